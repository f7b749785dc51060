"""ResEdit: the edited picture as a gated sum of residual codes, and the loop that fills it scale by scale.

One batch holds every item under three prompts (target, null, source), all reading the same edited prefix. At each
scale the predictions give guided and tilted log-odds (:mod:`bitresedit.bits`), bits are drawn, and the codes of drawn
and source bits are mixed by the gate before the next scale reads their sum.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bitresedit.backbones import Backbone, Cond
from bitresedit.bits import bernoulli_kl, source_negative, trust_region
from bitresedit.config import EditConfig
from bitresedit.gate import region
from bitresedit.prompts import contrast_phrases, same_prompt, strip_brackets
from bitresedit.rollout import draw, empty_latent, guided, null_rows, predict


@dataclass(frozen=True)
class EditBatch:
    """Items ready to be edited together.

    Attributes
    ----------
    source_bits
        One bool tensor ``[B, h_k, w_k, d]`` a scale: the pictures' own codes.
    gate
        ``[B, 1, H_K, W_K]`` in [0, 1].
    coverage
        ``[B]``: share of the picture that each mask selects.
    sources, targets
        Prompts, brackets allowed.
    generators
        One source of randomness an item.
    """

    source_bits: list[Tensor]
    gate: Float[Tensor, "b 1 H W"]
    coverage: Float[Tensor, " b"]
    sources: Sequence[str]
    targets: Sequence[str]
    generators: Sequence[torch.Generator]

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class ScaleTrace:
    """What happened at one scale of one edit.

    Attributes
    ----------
    scale, grid
        Number from 1, and ``(rows, columns)``.
    flipped_inside, flipped_outside
        Share of the drawn bits that differ from the source's, inside and outside the region (0 where it is empty).
    kl, kl_max
        Mean and largest divergence of the limited from the guided prediction over the region's bits, in nats.
    limited, clipped
        Share of the region's bits stopped by the trust region, and by the clip on logits.
    eta
        The tilt used.
    locked
        Whether the structure lock kept the source's codes.
    seconds
        Time for the scale: an edit's share of its batch's.
    """

    scale: int
    grid: tuple[int, int]
    flipped_inside: float
    flipped_outside: float
    kl: float
    kl_max: float
    limited: float
    clipped: float
    eta: float
    locked: bool
    seconds: float


@dataclass
class Outcome:
    """Codes during and after an edit.

    Attributes
    ----------
    latent, source_latent
        ``[B, d, H_K, W_K]``: the edited sum of codes and the source's.
    bits
        Drawn bits, one tensor ``[B, h_k, w_k, d]`` a scale.
    trace
        One list of scales an item.
    """

    latent: Tensor
    source_latent: Tensor
    trace: list[list[ScaleTrace]]
    bits: list[Tensor] = field(default_factory=list)

    @classmethod
    def empty(cls, backbone: Backbone, items: int) -> Outcome:
        """Start with no scale done."""
        nothing = empty_latent(backbone, items)
        return cls(nothing, nothing, [[] for _ in range(items)])

    def add(self, term: Tensor, source_term: Tensor, bits: Tensor) -> None:
        """Add one scale's upsampled codes, in the order of the source's own sum so that equal terms stay equal."""
        self.latent = self.latent + term
        self.source_latent = self.source_latent + source_term
        self.bits.append(bits)


def compose(
    source: Float[Tensor, "b d H W"], target: Float[Tensor, "b d H W"], gate: Float[Tensor, "b 1 H W"]
) -> Float[Tensor, "b d H W"]:
    """Mix one scale's upsampled codes: ``U(q_S) + g * (U(q_T) - U(q_S))``, exact at ``g = 0`` and at ``g = 1``.

    Parameters
    ----------
    source, target
        Upsampled codes of the source's bits and of the drawn bits.
    gate
        In [0, 1].

    Returns
    -------
    Tensor
        What the scale adds to the edited latent.

    References
    ----------
    Paper, section 4.2 (ResEdit).
    """
    return torch.lerp(source, target, gate)


@torch.no_grad()
def edit_codes(
    backbone: Backbone,
    config: EditConfig,
    batch: EditBatch,
    mix: Float[Tensor, "b 1 H W"] | None = None,
) -> Outcome:
    """Run BitEdit and ResEdit over all scales.

    Parameters
    ----------
    backbone
        The model.
    config
        Strengths; ``eta = 0`` leaves plain guidance.
    batch
        The items.
    mix
        Gate of the composition, if it is to differ from the batch's gate (which always tells where to tilt).

    Returns
    -------
    Outcome

    Raises
    ------
    BitResEditError
        If a logit is not finite.

    References
    ----------
    Paper, section 4, algorithm 1.
    """
    mix = batch.gate if mix is None else mix
    cond, cache = conditions(backbone, config, batch), backbone.cache()
    pairs = zip(batch.sources, batch.targets, strict=True)
    differs = [not same_prompt(strip_brackets(source), strip_brackets(target)) for source, target in pairs]
    active = torch.tensor(differs, device=batch.gate.device)
    lock = locked_items(config, batch)
    outcome = Outcome.empty(backbone, len(batch))
    for k, grid in enumerate(backbone.schedule):
        begun = time.perf_counter()
        d = predict(backbone, outcome.latent, cond, k, cache)
        locked = lock if k < config.lock_scales else torch.zeros_like(lock)
        eta = config.tilt(k, len(backbone.schedule))
        inside = region(batch.gate, grid) & (active & ~locked)[:, None, None]
        step = bit_edit(config, d.chunk(d.shape[0] // len(batch)), inside, eta)
        drawn = draw(step.d, config, batch.generators)
        source_term = backbone.bsq.upsampled(batch.source_bits[k], k)
        weight = torch.where(locked[:, None, None, None], 0.0, mix)
        outcome.add(compose(source_term, backbone.bsq.upsampled(drawn, k), weight), source_term, drawn)
        rows = _measure(step, drawn, batch.source_bits[k], region(batch.gate, grid), inside)
        seconds = (time.perf_counter() - begun) / len(batch)
        for item, row in enumerate(rows):
            tilted = eta if bool(active[item] & ~locked[item]) else 0.0
            outcome.trace[item].append(ScaleTrace(k + 1, grid, *row, tilted, bool(locked[item]), seconds))
    return outcome


@dataclass(frozen=True)
class BitStep:
    """One scale's log-odds: guided, after the edit, and how each bit was held back."""

    d_cfg: Tensor
    d: Tensor
    limited: Tensor
    clipped: Tensor


def bit_edit(config: EditConfig, predictions: Sequence[Tensor], inside: Bool[Tensor, "b h w"], eta: float) -> BitStep:
    """Apply BitEdit's steps 1 to 4 to one scale.

    Parameters
    ----------
    config
        Guidance and limits.
    predictions
        Log-odds ``[B, h, w, d]`` under target, null and source prompt, and, for a contrast of phrases, under the
        target phrase.
    inside
        Where to tilt.
    eta
        Tilt of this scale.

    Returns
    -------
    BitStep
        ``d`` equals the guided ``d_cfg`` exactly wherever nothing tilts.
    """
    d_target, d_null, d_source = predictions[:3]
    d_cfg = guided(d_target, d_null, config.cfg)
    nothing = torch.zeros_like(d_cfg, dtype=torch.bool)
    if eta == 0 or not bool(inside.any()):
        return BitStep(d_cfg, d_cfg, nothing, nothing)
    d_raw = source_negative(
        d_cfg, predictions[-1] if len(predictions) > 3 else d_target, d_source, inside[..., None], eta
    )
    d, a = trust_region(d_raw, d_cfg, config.delta, config.linf, config.solver)
    clipped = ((d - d_cfg).abs() >= config.linf) & inside[..., None]
    return BitStep(d_cfg, d, a < 1, clipped)


def conditions(backbone: Backbone, config: EditConfig, batch: EditBatch) -> Cond:
    """Encode the rows of the batch: targets, nulls, sources, and target phrases when phrases are contrasted."""
    targets = [strip_brackets(text) for text in batch.targets]
    sources = [strip_brackets(text) for text in batch.sources]
    target = backbone.text(targets)
    null = null_rows(backbone, target, config.null)
    if config.contrast == "prompt":
        return Cond.cat([target, null, backbone.text(sources)])
    phrases = [contrast_phrases(s, t) for s, t in zip(batch.sources, batch.targets, strict=True)]
    before, after = ([pair[side] for pair in phrases] for side in (0, 1))
    return Cond.cat([target, null, backbone.text(before), backbone.text(after)])


def locked_items(config: EditConfig, batch: EditBatch) -> Bool[Tensor, " b"]:
    """Tell which items keep the source's structure: all, none, or (``"auto"``) those masked by half or more."""
    if config.lock == "auto":
        return batch.coverage >= 0.5
    return torch.full_like(batch.coverage, config.lock == "on", dtype=torch.bool)


def flipped_shares(
    bits: Bool[Tensor, "b h w d"], source: Bool[Tensor, "b h w d"], where: Bool[Tensor, "b h w"]
) -> list[float]:
    """Give each item's share of bits that differ from the source's in the cells selected (0 if there is none)."""
    return _share(bits ^ source, where[..., None].expand_as(bits)).tolist()


def _measure(step: BitStep, drawn: Tensor, source: Tensor, reached: Tensor, inside: Tensor) -> list[tuple[float, ...]]:
    """Give per item: flipped inside, flipped outside, mean and largest divergence, limited, clipped."""
    tilt = inside[..., None].expand_as(drawn)
    kl = bernoulli_kl(step.d, step.d_cfg) * tilt
    limits = [_share(kl, tilt), kl.flatten(1).amax(1), _share(step.limited, tilt), _share(step.clipped, tilt)]
    flips = (flipped_shares(drawn, source, where) for where in (reached, ~reached))
    return list(zip(*flips, *torch.stack(limits).tolist(), strict=True))


def _share(value: Tensor, where: Tensor) -> Tensor:
    """Average over the selected bits of each item; 0 where none is selected."""
    count = where.flatten(1).sum(1).clamp_min(1)
    return (value.float() * where).flatten(1).sum(1) / count

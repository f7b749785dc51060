"""What BitResEdit is compared with, all on the same backbone, codes, masks and seeds.

``METHODS`` names them. Each takes a backbone, a configuration and a batch and gives edited codes, so each can be
passed to :class:`bitresedit.Editor` as ``method``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from scipy.ndimage import distance_transform_cdt
from torch import Tensor

from bitresedit.backbones import Backbone, Cond
from bitresedit.config import EditConfig
from bitresedit.errors import BitResEditError
from bitresedit.gate import region
from bitresedit.prompts import shared_positions, strip_brackets
from bitresedit.resedit import EditBatch, Outcome, ScaleTrace, edit_codes, flipped_shares
from bitresedit.rollout import draw, guided, null_rows, predict, teacher_forced


def regenerate(backbone: Backbone, config: EditConfig, batch: EditBatch) -> Outcome:
    """Draw the whole picture anew from the target prompt: no tilt, and the gate open everywhere."""
    return edit_codes(backbone, replace(config, eta=0.0, lock="off"), batch, torch.ones_like(batch.gate))


def inpaint(backbone: Backbone, config: EditConfig, batch: EditBatch) -> Outcome:
    """Draw the masked part anew from the target prompt: ResEdit without BitEdit's tilt (``eta = 0``)."""
    return edit_codes(backbone, replace(config, eta=0.0), batch)


def bitedit_only(backbone: Backbone, config: EditConfig, batch: EditBatch) -> Outcome:
    """Tilt inside the mask but keep whatever is drawn everywhere: BitEdit without ResEdit (``g = 1``)."""
    return edit_codes(backbone, config, batch, torch.ones_like(batch.gate))


def editinfinity_blend(backbone: Backbone, config: EditConfig, batch: EditBatch) -> Outcome:
    """Mix source and target codes by distance from the mask, as EditInfinity does, without its LoRA inversion.

    The source's weight is 0 up to a Manhattan distance of 1 token from the masked tokens, 1 beyond 4, linear between.

    References
    ----------
    EditInfinity, arXiv 2510.20217 (holistic smoothing).
    """
    kernel = torch.cat([1 - smoothing_kernel(gate) for gate in batch.gate[:, 0]])
    return edit_codes(backbone, replace(config, eta=0.0, lock="off"), batch, kernel)


def smoothing_kernel(gate: Float[Tensor, "h w"]) -> Float[Tensor, "1 1 h w"]:
    """Give the source's weight by token: ``clamp((distance - 1) / 4, 0, 1)`` from the tokens at least half inside.

    Distances between tokens are whole numbers, so the weight reaches 1 just beyond 4.
    """
    masked = gate.cpu().numpy() >= 0.5
    distance = distance_transform_cdt(~masked, metric="taxicab").astype(np.float32)
    return torch.from_numpy(np.clip((distance - 1) / 4, 0, 1))[None, None].to(gate.device)


@dataclass
class AttentionCache:
    """Cross-attention of the first pass, and the words whose columns the second pass takes from it.

    Attributes
    ----------
    pairs
        For each item, positions ``(in the source prompt, in the target prompt)`` of the words both have.
    scale
        The scale under way; the passes set it.
    stored
        ``(scale, layer) -> [B, heads, L, T]``.
    """

    pairs: list[list[tuple[int, int]]]
    scale: int = 0
    stored: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def record(self, layer: int, probabilities: Tensor) -> Tensor:
        """Keep the source rows' probabilities and change nothing."""
        self.stored[self.scale, layer] = probabilities[: len(self.pairs)].clone()
        return probabilities

    def inject(self, layer: int, probabilities: Tensor) -> Tensor:
        """Replace the shared words' columns of the target rows."""
        probabilities = probabilities.clone()
        kept = self.stored[self.scale, layer]
        for item, pairs in enumerate(self.pairs):
            if pairs:
                before, after = (list(side) for side in zip(*pairs, strict=True))
                probabilities[item][..., after] = kept[item][..., before]
        return probabilities


@torch.no_grad()
def aredit(
    backbone: Backbone,
    config: EditConfig,
    batch: EditBatch,
    use_mask: bool = False,
    keep_scales: int = 2,
    threshold: float = 0.2,
    source_cfg: float = 3.0,
    inject_to: int = 16,
) -> Outcome:
    """Re-draw only those bits that the target prompt makes less likely, as AREdit does: two passes.

    The first pass feeds the source's bits under the source prompt and keeps the probability ``P_src(r)`` of every
    source bit ``r`` and the cross-attention maps. The second pass predicts under the target prompt on the edited
    prefix: the first ``keep_scales`` scales keep the source's bits; later, a bit is drawn anew where
    ``P_src(r) - P_tgt(r) > threshold`` (or, with ``use_mask``, inside the mask) and kept elsewhere. Cross-attention to
    words that both prompts share comes from the first pass on grids up to ``inject_to``.

    Parameters
    ----------
    backbone, config, batch
        As for every method; ``cfg``, ``tau``, ``top_p`` and ``null`` of the configuration are used.
    use_mask
        Take the mask in place of the threshold.
    keep_scales, threshold, source_cfg, inject_to
        AREdit's gamma, tau, guidance of the first pass, and largest grid with injected attention.

    Returns
    -------
    Outcome

    References
    ----------
    AREdit, arXiv 2503.23897.
    """
    source = backbone.text([strip_brackets(text) for text in batch.sources])
    target = backbone.text([strip_brackets(text) for text in batch.targets])
    injected = [max(grid) <= inject_to for grid in backbone.schedule]
    attention = AttentionCache([shared_positions(*words) for words in zip(source.words, target.words, strict=True)])
    guide = replace(config, cfg=source_cfg)
    p_source = _source_pass(backbone, guide, batch, _with_null(backbone, source, config), attention, injected)
    cond, cache, outcome = _with_null(backbone, target, config), backbone.cache(), Outcome.empty(backbone, len(batch))
    for k, grid in enumerate(backbone.schedule):
        begun = time.perf_counter()
        attention.scale = k
        cache.cross_attention = attention.inject if injected[k] else None
        d = guided(*predict(backbone, outcome.latent, cond, k, cache).chunk(2), config.cfg)
        kept, inside = batch.source_bits[k], region(batch.gate, grid)
        free = p_source[k] - _probability(d, kept, config.tau) > threshold
        if use_mask:
            free = inside[..., None].expand_as(kept)
        drawn = draw(d, config, batch.generators)
        bits = torch.where(free, drawn, kept) if k >= keep_scales else kept
        outcome.add(backbone.bsq.upsampled(bits, k), backbone.bsq.upsampled(kept, k), bits)
        flips = zip(flipped_shares(bits, kept, inside), flipped_shares(bits, kept, ~inside), strict=True)
        seconds = (time.perf_counter() - begun) / len(batch)
        for trace, shares in zip(outcome.trace, flips, strict=True):
            trace.append(ScaleTrace(k + 1, grid, *shares, *[0.0] * 5, k < keep_scales, seconds))
    return outcome


def _with_null(backbone: Backbone, text: Cond, config: EditConfig) -> Cond:
    return Cond.cat([text, null_rows(backbone, text, config.null)])


def _source_pass(
    backbone: Backbone,
    config: EditConfig,
    batch: EditBatch,
    cond: Cond,
    attention: AttentionCache,
    injected: list[bool],
) -> list[Tensor]:
    """Give the probability of every source bit under the source prompt, and record cross-attention on the way."""
    cache, probabilities = backbone.cache(), []
    cache.cross_attention = attention.record if injected[0] else None
    for k, d in teacher_forced(backbone, batch.source_bits, cond, cache):
        probabilities.append(_probability(guided(*d.chunk(2), config.cfg), batch.source_bits[k], config.tau))
        attention.scale = k + 1
        cache.cross_attention = attention.record if injected[k + 1 : k + 2] == [True] else None
    return probabilities


def _probability(d: Tensor, bits: Tensor, tau: float) -> Tensor:
    """Give the probability of the given bits."""
    return torch.sigmoid(torch.where(bits, d, -d) / tau)


METHODS: dict[str, Callable[[Backbone, EditConfig, EditBatch], Outcome]] = {
    "bitresedit": edit_codes,
    "aredit": aredit,
    "aredit_mask": partial(aredit, use_mask=True),
    "editinfinity_blend": editinfinity_blend,
    "inpaint": inpaint,
    "bitedit_only": bitedit_only,
    "regenerate": regenerate,
}
"""The editing methods by name: BitResEdit first, then its peers, then its ablations."""


def check_methods(names: Sequence[str]) -> list[str]:
    """Give the names without repetition.

    Raises
    ------
    BitResEditError
        If one is unknown or none is given.
    """
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise BitResEditError(f"no method '{', '.join(unknown)}'", f"methods: {', '.join(METHODS)}")
    return list(dict.fromkeys(names))

"""Run a backbone scale by scale: one prediction, teacher forcing, and plain guided generation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from bitresedit.backbones import Backbone, Cond
from bitresedit.bits import logodds, sample_bits
from bitresedit.config import EditConfig, Null
from bitresedit.errors import BitResEditError
from bitresedit.var_transformer import KVCache


def guided(d: Float[Tensor, "*bits"], d_null: Float[Tensor, "*bits"], cfg: float) -> Float[Tensor, "*bits"]:
    """Apply classifier-free guidance to log-odds: ``d + (s - 1) (d - d_null)``."""
    return d + (cfg - 1) * (d - d_null)


def empty_latent(backbone: Backbone, items: int) -> Float[Tensor, "b d H W"]:
    """Give the sum of no codes, ``[B, d, H_K, W_K]`` zeros."""
    return torch.zeros(items, backbone.d, *backbone.schedule[-1], device=backbone.device)


def null_rows(backbone: Backbone, text: Cond, kind: Null) -> Cond:
    """Give the unconditional row of each row of a condition.

    In training, captions are dropped by putting learned vectors in the place of their tokens. So ``"cfg_uncond"``
    takes, row by row, as many of the learned vectors as the prompt has tokens.

    References
    ----------
    Infinity's published sampler.
    """
    if kind == "empty":
        return backbone.null_text(text.tokens.shape[0])
    return Cond.cat([backbone.null_text(1, kind, tokens) for tokens in text.mask.sum(1).tolist()])


def predict(
    backbone: Backbone, latent: Float[Tensor, "b d H W"], cond: Cond, k: int, cache: KVCache
) -> Float[Tensor, "rows h w d"]:
    """Predict the log-odds of scale ``k`` for several prompts on one shared prefix.

    Parameters
    ----------
    backbone
        The model.
    latent
        Sum of codes of the scales before ``k`` (``[B, d, H_K, W_K]``); not read at ``k = 0``.
    cond
        ``R B`` rows: the ``B`` items under a first prompt, then under a second, and so on.
    k
        Scale, from 0.
    cache
        Keys and values of the scales before; receives this one.

    Returns
    -------
    Tensor
        ``[R B, h_k, w_k, d]`` float32.

    Raises
    ------
    BitResEditError
        If a logit is not finite.
    """
    h, w = backbone.schedule[k]
    rows = cond.tokens.shape[0]
    if k == 0:
        x = backbone.start(cond)
    else:
        x = backbone.next_input(latent, k)
        x = x.repeat(rows // x.shape[0], 1, 1)
    logits = backbone.logits(x, cond, k, cache)
    if not bool(torch.isfinite(logits).all()):
        raise BitResEditError(
            f"the logits of scale {k + 1} of {len(backbone.schedule)} ({h}x{w}) are not finite",
            "the checkpoint may be damaged, or float32 be needed instead of a half precision",
        )
    return logodds(logits).unflatten(1, (h, w))


def teacher_forced(
    backbone: Backbone, bits: Sequence[Tensor], cond: Cond, cache: KVCache
) -> Iterator[tuple[int, Tensor]]:
    """Predict each scale from the given bits of the scales before it.

    Parameters
    ----------
    backbone
        The model.
    bits
        Bool tensors ``[B, h_k, w_k, d]``; as many scales are predicted as are given.
    cond
        ``R B`` rows as in :func:`predict`.
    cache
        Empty cache.

    Yields
    ------
    k, d
        Scale and its log-odds ``[R B, h_k, w_k, d]``.
    """
    latent = empty_latent(backbone, bits[0].shape[0])
    for k, scale in enumerate(bits):
        yield k, predict(backbone, latent, cond, k, cache)
        latent = latent + backbone.bsq.upsampled(scale, k)


def draw(d: Float[Tensor, "b h w d"], config: EditConfig, generators: Sequence[torch.Generator]) -> Tensor:
    """Sample each item's bits from its own generator, so that a batch gives what single items give."""
    return torch.stack([sample_bits(row, config.tau, config.top_p, g) for row, g in zip(d, generators, strict=True)])


@torch.no_grad()
def generate(
    backbone: Backbone, prompts: Sequence[str], config: EditConfig, seeds: Sequence[int]
) -> Float[Tensor, "b d H W"]:
    """Sample pictures from prompts with classifier-free guidance, two rows an item.

    Parameters
    ----------
    backbone
        The model.
    prompts, seeds
        One of each per picture.
    config
        ``cfg``, ``tau``, ``top_p`` and ``null`` are used.

    Returns
    -------
    Tensor
        Latents ``[B, d, H_K, W_K]``; ``backbone.decode`` turns them into pictures.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    text = backbone.text(list(prompts))
    cond = Cond.cat([text, null_rows(backbone, text, config.null)])
    cache = backbone.cache()
    latent = empty_latent(backbone, len(prompts))
    for k in range(len(backbone.schedule)):
        d, d_null = predict(backbone, latent, cond, k, cache).chunk(2)
        latent = latent + backbone.bsq.upsampled(draw(guided(d, d_null, config.cfg), config, generators), k)
    return latent

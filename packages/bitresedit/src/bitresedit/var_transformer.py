"""Bitwise visual autoregressive transformer: Infinity's block, with a key/value cache.

One implementation serves the bundled scene model and the published Infinity weights. Module and parameter names
follow the published checkpoints (``sa.mat_qkv``, ``ca.mat_kv``, ``ada_gss``, ...), with the blocks in one flat
list ``blocks``.

The transformer reads, for scale ``k``, the sum of codes so far resampled to grid ``(h_k, w_k)``, and predicts two
logits for every bit of the scale at once. A token sees every token of its own and of earlier scales.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bitresedit.attention import CrossAttention, KVCache, SelfAttention, block_causal_mask, rope_rotations
from bitresedit.bsq import Schedule, upsample


@dataclass(frozen=True)
class VARConfig:
    """Shape of a :class:`VARTransformer`.

    Parameters
    ----------
    depth, width, heads
        Blocks, channels, and heads of self- and cross-attention.
    d
        Bits of one token.
    text_dim
        Channels of the text encoder's features.
    pool_heads
        Heads of the attention pool over text (Infinity: ``text_dim / 128``).
    null_tokens
        Rows of the learned unconditional text.
    levels
        Rows of the level embedding, at least the number of scales.
    mlp_ratio, eps
        Hidden width of the feed-forward over ``width``; epsilon of the norms.
    rope_base
        Base of the rotary frequencies (Infinity: 10000).
    position_embedding
        Add a learned vector to each token of the schedule (the scene model; Infinity has none).
    """

    depth: int
    width: int
    heads: int
    d: int
    text_dim: int
    pool_heads: int = 1
    null_tokens: int = 512
    levels: int = 15
    mlp_ratio: int = 4
    eps: float = 1e-6
    rope_base: float = 10000.0
    position_embedding: bool = False


class Cond(NamedTuple):
    """Text condition of a batch.

    Attributes
    ----------
    pooled
        ``[B, width]``: modulation of every block, and the first token.
    tokens
        ``[B, T, width]``: what cross-attention reads.
    mask
        Bool ``[B, T]``: True for real words.
    words
        The text pieces that stand at the ``T`` positions of each row (empty strings where unknown).
    """

    pooled: Tensor
    tokens: Tensor
    mask: Tensor
    words: tuple[tuple[str, ...], ...] = ()

    @staticmethod
    def cat(conditions: Sequence[Cond]) -> Cond:
        """Stack conditions along the batch, padding the shorter texts (padding is masked)."""
        longest = max(c.tokens.shape[1] for c in conditions)
        tokens = [nnf.pad(c.tokens, (0, 0, 0, longest - c.tokens.shape[1])) for c in conditions]
        masks = [nnf.pad(c.mask, (0, longest - c.mask.shape[1])) for c in conditions]
        words = tuple(
            (*row, *[""] * (longest - len(row))) for c in conditions for row in (c.words or ((),) * c.tokens.shape[0])
        )
        return Cond(torch.cat([c.pooled for c in conditions]), torch.cat(tokens), torch.cat(masks), words)

    def select(self, rows: Sequence[int]) -> Cond:
        """Pick rows of the batch, in the order given; a row may repeat."""
        index = torch.as_tensor(list(rows), device=self.tokens.device)
        words = tuple(self.words[r] for r in rows) if self.words else ()
        return Cond(self.pooled[index], self.tokens[index], self.mask[index], words)


class FeedForward(nn.Module):
    """Two linear maps around a tanh-approximated GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, L, C]`` to the same shape."""
        return self.fc2(nnf.gelu(self.fc1(x), approximate="tanh"))


class Block(nn.Module):
    """One transformer block.

    With ``(g1, g2, s1, s2, b1, b2) = ada_gss + shared`` (``shared`` from the pooled text):
    ``x += g1 * SA(LN(x) (1 + s1) + b1)``, ``x += CA(LN_affine(x))``, ``x += g2 * FFN(LN(x) (1 + s2) + b2)``.
    """

    def __init__(self, config: VARConfig) -> None:
        super().__init__()
        width = config.width
        self.norm = nn.LayerNorm(width, eps=config.eps, elementwise_affine=False)
        self.sa = SelfAttention(width, config.heads)
        self.ca_norm = nn.LayerNorm(width, eps=config.eps)
        self.ca = CrossAttention(width, width, config.heads)
        self.ffn = FeedForward(width, config.mlp_ratio * width)
        self.ada_gss = nn.Parameter(torch.randn(1, 1, 6, width) / math.sqrt(width))

    def forward(
        self,
        x: Tensor,
        shared: Tensor,
        cond: Cond,
        rotations: Tensor,
        mask: Tensor | None,
        layer: int,
        cache: KVCache | None,
    ) -> Tensor:
        """Map ``x[B, L, C]`` to the same shape; ``shared`` is ``[B, 1, 6, C]``."""
        gate1, gate2, scale1, scale2, shift1, shift2 = (self.ada_gss + shared).unbind(2)
        modulated = torch.addcmul(shift1, self.norm(x), 1 + scale1)
        x = torch.addcmul(x, gate1, self.sa(modulated, rotations, mask, layer, cache).to(x.dtype))
        x = x + self.ca(self.ca_norm(x), cond.tokens, cond.mask, layer, cache)
        modulated = torch.addcmul(shift2, self.norm(x), 1 + scale2)
        return torch.addcmul(x, gate2, self.ffn(modulated).to(x.dtype))


class TextAttentivePool(nn.Module):
    """One vector for a whole text, by attention from a learned query."""

    def __init__(self, text_dim: int, width: int, heads: int) -> None:
        super().__init__()
        self.ca = CrossAttention(width, text_dim, heads, pool=True)

    def forward(self, text: Tensor, mask: Tensor) -> Tensor:
        """Pool ``text[B, T, text_dim]`` where ``mask[B, T]`` into ``[B, width]``."""
        return self.ca(None, text, mask)[:, 0]


class AdaLNBeforeHead(nn.Module):
    """Layer norm whose scale and shift come from the pooled text, before the output head."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(width, eps=eps, elementwise_affine=False)
        self.ada_lin = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def forward(self, x: Tensor, pooled: Tensor) -> Tensor:
        """Modulate ``x[B, L, C]`` by ``pooled[B, C]``."""
        scale, shift = self.ada_lin(pooled).unflatten(-1, (2, -1))[:, None].unbind(2)
        return torch.addcmul(shift.to(x.dtype), self.ln(x), 1 + scale.to(x.dtype))


class VARTransformer(nn.Module):
    """Predict the bits of scale ``k`` from the codes of the scales before it and a text.

    Parameters
    ----------
    config
        Sizes and options.
    schedule
        Grids, coarse to fine; the first is ``(1, 1)``.
    reference
        Integer grid of the rotary positions; see :func:`rope_rotations`.

    References
    ----------
    Han et al., "Infinity: Scaling Bitwise AutoRegressive Modeling", 2412.04431, section 3.
    """

    def __init__(self, config: VARConfig, schedule: Schedule, reference: tuple[int, int] | None = None) -> None:
        super().__init__()
        width = config.width
        if width % config.heads:
            raise ValueError(f"width {width} is not a multiple of {config.heads} heads")
        self.config = config
        self.cfg_uncond = nn.Parameter(torch.randn(config.null_tokens, config.text_dim) / config.text_dim**0.5)
        self.text_norm = nn.RMSNorm(config.text_dim, eps=config.eps)
        self.text_proj_for_sos = TextAttentivePool(config.text_dim, width, config.pool_heads)
        self.text_proj_for_ca = nn.Sequential(
            nn.Linear(config.text_dim, width), nn.GELU(approximate="tanh"), nn.Linear(width, width)
        )
        self.pos_start = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.lvl_embed = nn.Embedding(config.levels, width)
        self.word_embed = nn.Linear(config.d, width)
        self.shared_ada_lin = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.head_nm = AdaLNBeforeHead(width, config.eps)
        self.head = nn.Linear(width, 2 * config.d)
        self.set_schedule(schedule, reference)
        if config.position_embedding:
            self.pos_embed = nn.Parameter(torch.randn(self.offsets[-1], width) * 0.02)
        self.reset_parameters()

    def set_schedule(self, schedule: Schedule, reference: tuple[int, int] | None = None) -> None:
        """Use another list of grids (another aspect ratio or resolution) with the same weights."""
        self.schedule = [(int(h), int(w)) for h, w in schedule]
        if self.schedule[0] != (1, 1):
            raise ValueError("the first scale must be 1 x 1: its input is the text")
        if len(self.schedule) > self.config.levels:
            raise ValueError(f"{len(self.schedule)} scales, but {self.config.levels} level embeddings")
        self.offsets = [0]
        for h, w in self.schedule:
            self.offsets.append(self.offsets[-1] + h * w)
        head_dim = self.config.width // self.config.heads
        # Plain attributes: as buffers, a cast of the module to a half precision would round the rotations.
        self._rotations = rope_rotations(self.schedule, head_dim, self.config.rope_base, reference)
        cells = torch.tensor([h * w for h, w in self.schedule], device="cpu")
        self._levels = torch.arange(len(cells), device="cpu").repeat_interleave(cells)
        self._mask: Tensor | None = None

    def reset_parameters(self) -> None:
        """Start as a plain pre-norm transformer: unit gates, small residual branches, small head."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=math.sqrt(1 / module.in_features))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.lvl_embed.weight, std=0.02)
        shrink = 1 / math.sqrt(3 * max(1, self.config.depth))
        with torch.no_grad():
            for block in self.blocks:
                block.ada_gss.mul_(0.1)
                block.ada_gss[:, :, :2].add_(1.0)
                for last in (block.sa.proj, block.ca.proj, block.ffn.fc2):
                    last.weight.mul_(shrink)
            for small in (self.shared_ada_lin[1], self.head_nm.ada_lin[1], self.head):
                small.weight.mul_(0.1)

    def condition(
        self,
        features: Float[Tensor, "b t text_dim"],
        mask: Bool[Tensor, "b t"],
        words: tuple[tuple[str, ...], ...] = (),
    ) -> Cond:
        """Turn a text encoder's features into what the blocks read.

        Parameters
        ----------
        features
            ``[B, T, text_dim]``.
        mask
            Bool ``[B, T]``, True for real words; each row needs one.
        words
            Text pieces at the ``T`` positions, kept for editors that match words.

        Returns
        -------
        Cond
        """
        text = self.text_norm(features)
        return Cond(self.text_proj_for_sos(text, mask).float(), self.text_proj_for_ca(text), mask, words)

    def null_condition(self, batch: int, tokens: int | None = None) -> Cond:
        """Give the learned unconditional text, its first ``tokens`` rows (all by default)."""
        rows = self.cfg_uncond[:tokens]
        mask = torch.ones(batch, rows.shape[0], dtype=torch.bool, device=rows.device)
        return self.condition(rows.expand(batch, -1, -1), mask, (("",) * rows.shape[0],) * batch)

    def start(self, cond: Cond) -> Float[Tensor, "b 1 c"]:
        """Give the first scale's input: the pooled text plus a learned vector."""
        return cond.pooled[:, None] + self.pos_start

    def embed(self, total: Float[Tensor, "b d H W"], k: int) -> Float[Tensor, "b L_k c"]:
        """Give scale ``k``'s input: the codes so far, resampled to its grid and embedded."""
        grid = upsample(total, self.schedule[k]).flatten(2).transpose(1, 2)
        return self.word_embed(grid.to(self.word_embed.weight.dtype))

    def logits(self, x: Float[Tensor, "b L_k c"], cond: Cond, k: int, cache: KVCache) -> Float[Tensor, "b L_k d 2"]:
        """Run scale ``k`` on top of the cached scales.

        Parameters
        ----------
        x
            ``[B, h_k w_k, width]`` from :meth:`start` or :meth:`embed`.
        cond
            Text condition of the ``B`` rows.
        k
            Index of the scale.
        cache
            Holds scales ``0 .. k-1`` and receives this one.

        Returns
        -------
        Tensor
            float32 logits, last axis ``(bit = 0, bit = 1)``.
        """
        return self._run(x, cond, slice(self.offsets[k], self.offsets[k + 1]), None, cache)

    def forward(self, x: Float[Tensor, "b L c"], cond: Cond) -> Float[Tensor, "b L d 2"]:
        """Run all scales at once under the block-causal mask; same result as the cached path."""
        # Built on first use: at ten thousand tokens it takes 100 MB, and cached generation never needs it.
        if self._mask is None:
            self._mask = block_causal_mask(self.schedule)
        self._mask = self._mask.to(x.device)
        return self._run(x, cond, slice(0, self.offsets[-1]), self._mask, None)

    def _run(self, x: Tensor, cond: Cond, tokens: slice, mask: Tensor | None, cache: KVCache | None) -> Tensor:
        if x.shape[1] != tokens.stop - tokens.start:
            raise ValueError(f"expected {tokens.stop - tokens.start} tokens, got {x.shape[1]}")
        self._rotations, self._levels = self._rotations.to(x.device), self._levels.to(x.device)
        x = x + self.lvl_embed(self._levels[tokens])
        if self.config.position_embedding:
            x = x + self.pos_embed[tokens]
        pooled = cond.pooled.to(x.dtype)
        # Modulation and head keep their parameters' precision where a caller runs the blocks under autocast.
        with torch.autocast(x.device.type, enabled=False):
            shared = self.shared_ada_lin(pooled).unflatten(-1, (6, -1))[:, None].to(x.dtype)
        for layer, block in enumerate(self.blocks):
            x = block(x, shared, cond, self._rotations[tokens], mask, layer, cache)
        with torch.autocast(x.device.type, enabled=False):
            # Blocks spread over several devices leave the last one's output where it was computed.
            return self.head(self.head_nm(x.to(pooled.device), pooled)).float().unflatten(-1, (-1, 2))

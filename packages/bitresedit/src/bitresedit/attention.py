"""Attention of the transformer: cosine self-attention with rotary positions, attention to text, and their cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Complex
from torch import Tensor, nn

from bitresedit.bsq import Schedule

CrossAttentionHook = Callable[[int, Tensor], Tensor]
"""``hook(layer, probabilities[B, heads, L, T]) -> probabilities`` on text cross-attention."""


def rope_rotations(
    schedule: Schedule, head_dim: int, base: float, reference: tuple[int, int] | None = None
) -> Complex[Tensor, "L half"]:
    """Give the unit complex numbers of two-dimensional rotary positions for every token of a schedule.

    Half of the head's pairs turn with the row, half with the column, with frequencies
    ``base ** (-2 i / (head_dim / 2))``. With a ``reference`` grid ``(H, W)`` the token ``(i, j)`` of grid ``h x w``
    sits at ``(round(i H / h), round(j W / w))``, half to even (Infinity: the grid of the last 1M scale). Without
    one it sits at its cell's centre in units of the schedule's last grid.

    Parameters
    ----------
    schedule
        Grids ``(rows, columns)``.
    head_dim
        Channels of a head, a multiple of 4.
    base
        Base of the frequencies.
    reference
        Grid whose integer cells are the positions, or None for cell centres.

    Returns
    -------
    Tensor
        complex64 ``[L, head_dim / 2]``, ``L`` the schedule's number of tokens.
    """
    if head_dim % 4:
        raise ValueError(f"two-dimensional rotary positions need heads of a multiple of 4, got {head_dim}")
    half = head_dim // 2
    # On the CPU by name: a model may be built on the meta device, where angles would have no values.
    frequencies = base ** (-torch.arange(0, half, 2, dtype=torch.float32, device="cpu") / half)
    angles = []
    for h, w in schedule:
        rows, columns = (torch.arange(n, dtype=torch.float32, device="cpu") for n in (h, w))
        if reference is None:
            last_h, last_w = schedule[-1]
            rows, columns = (rows + 0.5) * last_h / h, (columns + 0.5) * last_w / w
        else:
            rows, columns = torch.round(rows * (reference[0] / h)), torch.round(columns * (reference[1] / w))
        by_row = torch.outer(rows, frequencies)[:, None].expand(h, w, -1)
        by_column = torch.outer(columns, frequencies)[None].expand(h, w, -1)
        angles.append(torch.cat([by_row, by_column], dim=-1).reshape(h * w, half))
    turns = torch.cat(angles)
    return torch.polar(torch.ones_like(turns), turns)


def block_causal_mask(schedule: Schedule) -> Bool[Tensor, "L L"]:
    """Say which tokens may attend to which: True where the key's scale is not after the query's."""
    level = torch.cat([torch.full((h * w,), k) for k, (h, w) in enumerate(schedule)])
    return level[:, None] >= level[None, :]


@dataclass
class KVCache:
    """Keys and values of the scales already seen, one entry a layer.

    ``cross_attention`` may hold a hook that reads and may replace the text cross-attention's probabilities.
    """

    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    text: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    cross_attention: CrossAttentionHook | None = None

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add a scale's keys and values ``[B, heads, L, head_dim]``; give those of all scales so far."""
        if layer in self.keys:
            key = torch.cat([self.keys[layer], key], dim=2)
            value = torch.cat([self.values[layer], value], dim=2)
        self.keys[layer], self.values[layer] = key, value
        return key, value

    def text_pair(self, layer: int, tokens: Tensor, project: Callable[[Tensor], tuple[Tensor, Tensor]]):
        """Project the text once a layer and reuse it for as long as ``tokens`` is the same tensor."""
        if layer not in self.text or self.text[layer][0] is not tokens:
            self.text[layer] = (tokens, *project(tokens))
        return self.text[layer][1:]


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    dtype = value.dtype
    if value.device.type == "cpu" and dtype != torch.float64:
        # On a CPU the fused kernel's backward pass is 2.5 times slower in bfloat16 than in float32.
        dtype = torch.float32
    with torch.autocast(value.device.type, enabled=False):
        return nnf.scaled_dot_product_attention(
            query.to(dtype), key.to(dtype), value.to(dtype), attn_mask=mask, scale=scale
        ).to(value.dtype)


class SelfAttention(nn.Module):
    """Cosine self-attention: unit queries and keys, a learned temperature a head, rotary positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mat_qkv = nn.Linear(width, 3 * width, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(width))
        self.v_bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("zero_k_bias", torch.zeros(width))
        self.scale_mul_1H11 = nn.Parameter(torch.full((1, heads, 1, 1), math.log(4.0)))
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, rotations: Tensor, mask: Tensor | None, layer: int, cache: KVCache | None) -> Tensor:
        """Attend over ``x[B, L, C]`` and what the cache holds."""
        bias = torch.cat([self.q_bias, self.zero_k_bias, self.v_bias])
        qkv = nnf.linear(x, self.mat_qkv.weight, bias)
        query, key, value = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        temperature = self.scale_mul_1H11.clamp(max=math.log(100.0)).exp()
        query = self._turn(nnf.normalize(self._wide(query), dim=-1, eps=1e-12) * temperature, rotations)
        key = self._turn(nnf.normalize(self._wide(key), dim=-1, eps=1e-12), rotations)
        query, key = query.to(value.dtype), key.to(value.dtype)
        if cache is not None:
            key, value = cache.append(layer, key, value)
        out = _attend(query, key, value, mask, 1.0)
        return self.proj(out.transpose(1, 2).flatten(2))

    @staticmethod
    def _wide(x: Tensor) -> Tensor:
        # The rotation is a complex product, which half precisions do not have.
        return x if x.dtype == torch.float64 else x.float()

    @staticmethod
    def _turn(x: Tensor, rotations: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
        return torch.view_as_real(pairs * rotations).flatten(-2)


class CrossAttention(nn.Module):
    """Attention to text; with ``pool`` a learned query gathers the whole text into one vector."""

    def __init__(self, width: int, text_dim: int, heads: int, pool: bool = False) -> None:
        super().__init__()
        self.heads, self.pool = heads, pool
        if pool:
            self.mat_q = nn.Parameter(torch.randn(1, heads, width // heads) * math.sqrt(1 / width / 3))
        else:
            self.mat_q = nn.Linear(width, width)
        self.mat_kv = nn.Linear(text_dim, 2 * width, bias=False)
        self.v_bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("zero_k_bias", torch.zeros(width))
        self.proj = nn.Linear(width, width)

    def project(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Give the text's keys and values, each ``[B, heads, T, head_dim]``."""
        pair = nnf.linear(text, self.mat_kv.weight, torch.cat([self.zero_k_bias, self.v_bias]))
        key, value = pair.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return key, value

    def forward(
        self, x: Tensor | None, text: Tensor, mask: Tensor, layer: int = 0, cache: KVCache | None = None
    ) -> Tensor:
        """Attend from ``x[B, L, C]`` (or the learned query) to ``text[B, T, text_dim]`` where ``mask[B, T]``."""
        pair = self.project(text) if cache is None else cache.text_pair(layer, text, self.project)
        key, value = pair
        if self.pool:
            query = self.mat_q.to(key.dtype)[None].transpose(1, 2).expand(text.shape[0], -1, -1, -1)
        else:
            query = self.mat_q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        allowed = mask[:, None, None, :]
        hook = None if cache is None else cache.cross_attention
        if hook is None:
            out = _attend(query, key, value, allowed, None)
        else:
            scores = (query @ key.transpose(-1, -2)).float() / math.sqrt(query.shape[-1])
            probabilities = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
            out = hook(layer, probabilities).to(value.dtype) @ value
        return self.proj(out.transpose(1, 2).flatten(2))

"""What an editor needs of a bitwise visual autoregressive model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from bitresedit.bsq import MultiScaleBSQ
from bitresedit.var_transformer import Cond, KVCache


@runtime_checkable
class Backbone(Protocol):
    """A tokenizer, a text encoder and a transformer that predicts bits scale by scale.

    Attributes
    ----------
    schedule
        Grids ``(rows, columns)``, coarse to fine.
    d
        Bits of a token.
    image_size
        Height and width of its pictures (pixels).
    bsq
        The multi-scale quantiser.
    device, dtype
        Where it runs, and in what precision.
    default_config
        Editing settings that differ from the paper's for this model (guidance, temperature).
    """

    schedule: list[tuple[int, int]]
    d: int
    image_size: tuple[int, int]
    bsq: MultiScaleBSQ
    device: torch.device
    dtype: torch.dtype
    default_config: Mapping[str, Any]

    def encode_image(self, image: Float[Tensor, "b 3 height width"]) -> list[Tensor]:
        """Give a picture's bits, one bool tensor ``[B, h_k, w_k, d]`` a scale; RGB in [-1, 1]."""

    def decode(self, latent: Float[Tensor, "b d h w"]) -> Float[Tensor, "b 3 height width"]:
        """Give the picture of a sum of codes, RGB in [-1, 1]."""

    def text(self, prompts: Sequence[str]) -> Cond:
        """Encode prompts, one a row."""

    def null_text(self, batch: int, kind: Literal["empty", "cfg_uncond"] = "empty", tokens: int | None = None) -> Cond:
        """Give the unconditional text: the empty prompt, or the model's learned vectors, the first ``tokens``."""

    def start(self, cond: Cond) -> Float[Tensor, "b 1 c"]:
        """Give the first scale's input."""

    def cache(self) -> KVCache:
        """Give an empty key/value cache."""

    def logits(
        self, x: Float[Tensor, "b tokens c"], cond: Cond, k: int, cache: KVCache
    ) -> Float[Tensor, "b tokens d 2"]:
        """Give float32 logits of every bit of scale ``k``; the cache holds the scales before and receives it."""

    def next_input(self, latent: Float[Tensor, "b d h w"], k: int) -> Float[Tensor, "b tokens c"]:
        """Give the input of scale ``k`` from the sum of codes before it."""

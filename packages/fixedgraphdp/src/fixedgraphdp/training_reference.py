"""DP-SGD's clipped sum, one example at a time, in float64; tests hold the vectorised one to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Num


def clipped_sum_loop(
    loss_fn: Callable[..., Any],
    params: Num[Any, " d"],
    x: Num[np.ndarray, "b ..."],
    y: Num[np.ndarray, "b ..."],
    clip: float,
) -> Float[np.ndarray, " d"]:
    """Add up each example's gradient, scaled down to norm ``clip`` if it is longer."""
    total = np.zeros(len(params))
    for row, label in zip(x, y, strict=True):
        gradient = np.asarray(jax.grad(loss_fn)(params, jnp.asarray(row), jnp.asarray(label)), float)
        norm = float(np.linalg.norm(gradient))
        total += gradient * (clip / norm if norm > clip else 1.0)
    return total

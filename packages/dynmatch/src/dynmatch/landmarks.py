"""The landmark hierarchy of Thorup and Zwick, frozen between rebuilds."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from dynmatch.costs import Real

ZERO_LEVEL = -(2**31)
"""The exponent that stands for radius 0."""


def sample_levels(n: int, k: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Draw each point's highest level: A_0 is everything, A_i keeps points of A_{i-1} with probability n^(-1/k)."""
    keep = max(n, 2) ** (-1.0 / k)
    levels = np.zeros(n, np.int64)
    alive = np.ones(n, np.bool_)
    for i in range(1, k):
        alive &= rng.random(n) < keep
        levels[alive] = i
    return levels


def bunch(
    distances: Float[np.ndarray, " n"], levels: Int[np.ndarray, " n"], k: int, present: np.ndarray
) -> Int[np.ndarray, " m"]:
    r"""Return the landmarks of a point, :math:`\bigcup_i \{w \in A_i \setminus A_{i+1}: d(v, w) < d(v, A_{i+1})\}`.

    The pivots, nearest in each A_i, are among them. Level-0 points count only while present; landmarks of higher levels
    also as ghosts.

    References
    ----------
    Thorup, Zwick, "Approximate distance oracles", J. ACM 52 (2005).
    """
    found: list[np.ndarray] = []
    nearest = math.inf
    for i in reversed(range(k)):
        here = np.flatnonzero((levels == i) & present) if i == 0 else np.flatnonzero(levels == i)
        if len(here):
            row = distances[here]
            found.append(here[row < nearest])
            nearest = min(nearest, float(row.min()))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def exponents(distances: Float[np.ndarray, " m"], eps: Real) -> Int[np.ndarray, " m"]:
    """Return min{j : (1 + eps)^j >= d}, and `ZERO_LEVEL` for distance 0."""
    base = 1.0 + eps
    out = np.full(len(distances), ZERO_LEVEL, np.int64)
    positive = distances > 0
    j = np.ceil(np.log(distances[positive]) / math.log(base) - 1e-9).astype(np.int64)
    j += base ** j.astype(np.float64) < distances[positive]
    out[positive] = j
    return out


def radii(levels: Int[np.ndarray, " m"], eps: Real) -> Float[np.ndarray, " m"]:
    """Return r_j = (1 + eps)^j, 0 for `ZERO_LEVEL`."""
    return np.where(levels == ZERO_LEVEL, 0.0, (1.0 + eps) ** np.maximum(levels, -(10**6)).astype(np.float64))

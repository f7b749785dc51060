"""The private mean over a bounded set: clip, add, noise once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fixedgraphdp.bounding import Bounded
from fixedgraphdp.bounds import gaussian_sigma


def private_mean(
    x: Float[np.ndarray, "n d"],
    bounded: Bounded,
    epsilon: float,
    delta: float,
    *,
    clip: float = 1.0,
    seed: int | None = None,
) -> Float[np.ndarray, " d"]:
    r"""Estimate the mean of the kept examples with user-level (epsilon, delta)-privacy under ``zero-out``.

    .. math:: \frac{1}{|S|} \Big( \sum_{e \in S} x_e \min(1, C/\|x_e\|) + k\, C\, \sigma(\epsilon, \delta)\, \xi \Big)

    Parameters
    ----------
    x
        ``(n, d)`` contents of all examples; only those kept are read.
    bounded
        From `fixedgraphdp.bounding.bound`.
    clip
        :math:`C`, in the unit of x.
    seed
        Of the noise; None for a secret one.
    """
    kept = x[bounded.selected]
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    total = (kept * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))).sum(axis=0)
    scale = gaussian_sigma(epsilon, delta, bounded.k * clip)
    return (total + scale * np.random.default_rng(seed).standard_normal(x.shape[1])) / bounded.size

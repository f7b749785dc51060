"""The private mean over a bounded set: clip, add, noise once."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fixedgraphdp.bounding import Bounded
from fixedgraphdp.bounds import gaussian_sigma
from papers_shared.errors import InputError


def private_mean(
    x: Float[np.ndarray, "n d"],
    bounded: Bounded,
    epsilon: float,
    delta: float,
    *,
    clip: float = 1.0,
    weights: Float[np.ndarray, " n"] | None = None,
    seed: int | None = None,
) -> Float[np.ndarray, " d"]:
    r"""Estimate the mean of the kept examples with user-level (epsilon, delta)-privacy under ``zero-out``.

    .. math:: \frac{1}{\sum_{e \in S} w_e} \Big( \sum_{e \in S} w_e\, x_e \min(1, C/\|x_e\|)
        + k\, w_{max} C\, \sigma(\epsilon, \delta)\, \xi \Big)

    Parameters
    ----------
    x
        ``(n, d)`` contents of all examples; only those kept are read.
    bounded
        From `fixedgraphdp.bounding.bound`.
    clip
        :math:`C`, in the unit of x.
    weights
        ``(n,)`` non-negative weights that depend on the graph alone, such as `fixedgraphdp.bias.ht_weights` against
        selection bias; by default all 1.
    seed
        Of the noise; None for a secret one.

    Raises
    ------
    InputError
        epsilon, delta or clip out of range; weights that are negative, not finite or all zero on S.
    """
    if not clip > 0:
        raise InputError(f"the clip norm must be positive, not {clip}")
    w = (np.ones(len(x)) if weights is None else weights)[bounded.selected]
    if not np.isfinite(w).all() or (w < 0).any() or not w.any():
        raise InputError("weights must be finite, non-negative and not all zero")
    kept = x[bounded.selected]
    kept = np.where(np.isfinite(kept).all(axis=1, keepdims=True), kept, 0.0)  # no clip holds those
    lengths = np.linalg.norm(kept, axis=1, keepdims=True)
    clipped = kept * np.minimum(1.0, clip / np.maximum(lengths, 1e-300))
    scale = gaussian_sigma(epsilon, delta, bounded.k * float(w.max()) * clip)
    return (w @ clipped + scale * np.random.default_rng(seed).standard_normal(x.shape[1])) / w.sum()

"""Welford's one-pass mean and variance, as a pure state and pure updates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Moments(NamedTuple):
    r"""Count, mean and sum of squared deviations of the values seen so far.

    Attributes
    ----------
    count
        How many values were seen, :math:`n`.
    mean
        Their mean :math:`m_n`, in the values' unit.
    m2
        Sum of squared deviations :math:`S_n = \sum_i (x_i - m_n)^2`, in the unit squared.
    """

    count: int
    mean: float
    m2: float

    @property
    def variance(self) -> float:
        """Unbiased variance :math:`S_n / (n - 1)`; NaN for fewer than two values."""
        return self.m2 / (self.count - 1) if self.count > 1 else float("nan")


def empty() -> Moments:
    """Return the state before any value was seen."""
    return Moments(0, 0.0, 0.0)


def merge(a: Moments, b: Moments) -> Moments:
    r"""Combine the moments of two disjoint sets of values.

    .. math::
        \delta = m_b - m_a, \quad m = m_a + \delta \frac{n_b}{n}, \quad
        S = S_a + S_b + \delta^2 \frac{n_a n_b}{n}, \quad n = n_a + n_b

    Parameters
    ----------
    a, b
        The two sets' moments; either may be empty.

    Returns
    -------
    Moments
        Those of the union.

    References
    ----------
    Welford (1962), equation I, is the case :math:`n_b = 1`.
    """
    count = a.count + b.count
    if not count:
        return empty()
    delta = b.mean - a.mean
    mean = a.mean + delta * b.count / count
    return Moments(count, mean, a.m2 + b.m2 + delta**2 * a.count * b.count / count)


def update(state: Moments, values: Float[np.ndarray, " n"]) -> Moments:
    """Take a chunk of values in.

    Parameters
    ----------
    state
        The moments so far.
    values
        Any number of finite values, in one unit.

    Returns
    -------
    Moments
        The moments of everything seen, this chunk included.

    Raises
    ------
    ValueError
        When a value is not finite; the message gives its place.
    """
    if not len(values):
        return state
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ValueError(f"value {values[bad[0]]} at position {bad[0]} is not finite")
    mean = float(np.mean(values, dtype=np.float64))
    chunk = Moments(len(values), mean, float(np.sum((values - mean) ** 2, dtype=np.float64)))
    return merge(state, chunk)

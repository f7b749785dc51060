"""Bootstrap intervals over clusters, and accuracy under rejection; what several papers need and no library has.

Everything else comes from scikit-learn, scipy, statsmodels or torchmetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped

__all__ = ["Interval", "auarc", "aurc", "bootstrap_counts", "bootstrap_interval", "paired_bootstrap", "risk_coverage"]

Values = Num[np.ndarray, " n"] | Bool[np.ndarray, " n"] | Sequence[float] | Sequence[int] | Sequence[bool]
Labels = Shaped[np.ndarray, " n"] | Sequence[Any]

_NORMAL = NormalDist()
_CHUNK = 4_000_000


class Interval(NamedTuple):
    """An estimate with its confidence interval; claims.json shows it as ``value [low, high]``."""

    value: float
    low: float
    high: float

    def excludes(self, point: float = 0.0) -> bool:
        """Tell whether ``point`` lies outside the interval."""
        return not self.low <= point <= self.high


def bootstrap_interval(
    data: Values | tuple[Shaped[np.ndarray, "n ..."], ...],
    statistic: Callable[..., float] | None = None,
    *,
    clusters: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    method: Literal["percentile", "bca"] = "percentile",
    seed: int | np.random.Generator = 0,
) -> Interval:
    r"""Estimate a statistic's confidence interval by the bootstrap, over observations or whole clusters.

    Clusters (patients, questions, scenes) are drawn with replacement and bring all their observations, so that the
    interval is right when observations of one cluster depend on each other. ``percentile`` takes the
    :math:`\alpha/2` and :math:`1-\alpha/2` quantiles of the resampled statistics; ``bca`` corrects them for bias
    :math:`z_0 = \Phi^{-1}(P(\theta^* < \theta))` (ties count half) and acceleration
    :math:`a = \sum d^3 / (6 (\sum d^2)^{3/2})`, with :math:`d` the jackknife deviations over clusters. Where these are
    undefined, ``bca`` gives the percentile interval.

    Parameters
    ----------
    data
        ``(n,)`` observations, or a tuple of arrays with a common first axis.
    statistic
        Takes the arrays of a sample and returns a number; by default the mean, which is fast. Samples on which it is
        NaN, such as the AUROC of one class, are left out.
    clusters
        ``(n,)`` label of each observation's cluster; by default each is its own.
    confidence
        The coverage, in (0, 1).
    n_resamples
        How many samples to draw.
    method
        ``"percentile"`` or ``"bca"``.
    seed
        Seed or generator. The same seed gives the same interval, and the same samples to every statistic on data of
        the same clusters.

    Returns
    -------
    Interval
        ``value`` is the statistic of the data themselves.

    Raises
    ------
    ValueError
        No data, arrays of different lengths, NaN in the data of a mean, a confidence outside (0, 1), a statistic
        that is NaN on every sample.

    References
    ----------
    Efron, "Better bootstrap confidence intervals", JASA 82 (1987).
    """
    arrays = tuple(np.asarray(array) for array in (data if isinstance(data, tuple) else (data,)))
    members = _members(arrays, clusters)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), not {confidence}")
    if n_resamples < 1:
        raise ValueError(f"n_resamples must be at least 1, not {n_resamples}")
    if method not in ("percentile", "bca"):
        raise ValueError(f"method must be 'percentile' or 'bca', not {method!r}")
    if statistic is None:
        value, draws, jackknife = _mean_draws(arrays, members, n_resamples, seed)
    else:
        value, draws, jackknife = _statistic_draws(arrays, statistic, members, n_resamples, seed)
    draws = draws[~np.isnan(draws)]
    if not draws.size:
        raise ValueError("the statistic is NaN on every sample")
    low = (1 - confidence) / 2
    levels = (low, 1 - low)
    if method == "bca":
        levels = _bca_levels(value, draws, jackknife(), levels)
    return Interval(float(value), *(float(bound) for bound in np.quantile(draws, levels)))


def paired_bootstrap(
    a: Values,
    b: Values,
    *,
    clusters: Labels | None = None,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    method: Literal["percentile", "bca"] = "percentile",
    seed: int | np.random.Generator = 0,
) -> Interval:
    """Estimate the interval of ``mean(a - b)`` for two methods measured on the same ``(n,)`` items.

    Parameters are those of `bootstrap_interval`.

    Raises
    ------
    ValueError
        ``a`` and ``b`` have different shapes, and as in `bootstrap_interval`.
    """
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"paired values need one shape, got {first.shape} and {second.shape}")
    return bootstrap_interval(
        first - second, clusters=clusters, confidence=confidence, n_resamples=n_resamples, method=method, seed=seed
    )


def bootstrap_counts(
    n: int,
    n_resamples: int,
    *,
    clusters: Labels | None = None,
    seed: int | np.random.Generator = 0,
) -> Int[np.ndarray, "n_resamples n"]:
    """Draw how often each of ``n`` observations occurs in each bootstrap sample.

    For statistics that are functions of weighted sums, where one matrix serves many methods at once:
    ``counts @ values / counts.sum(1)`` are the means that `bootstrap_interval` draws from the same seed.

    Parameters
    ----------
    n
        The number of observations.
    n_resamples
        The number of samples.
    clusters
        ``(n,)`` labels; observations of one cluster occur equally often.
    seed
        Seed or generator.

    Returns
    -------
    ndarray
        int64 ``(n_resamples, n)``.
    """
    members = _members((np.empty(n),), clusters)
    groups = n if members is None else len(members)
    counts = np.concatenate([_count(chosen, groups) for chosen in _draw(groups, n_resamples, seed)])
    return counts if members is None else counts[:, _cluster_index(members, n)]


def risk_coverage(loss: Values, confidence: Values) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    r"""Return the risk-coverage curve: the mean loss of the ``i`` most confident of ``n`` items, for each ``i``.

    .. math:: r_i = \frac{1}{i} \sum_{j \le i} \ell_{(j)}, \qquad c_i = i / n

    Items of equal confidence have no order; the curve is the exact expectation over a random one: after
    :math:`m` items with total loss :math:`L`, and inside a tie of :math:`g` items with total loss :math:`h`,
    :math:`r_{m+j} = (L + j h / g) / (m + j)`.

    Parameters
    ----------
    loss
        ``(n,)`` loss of each item, for example 0 for a right answer and 1 for a wrong one.
    confidence
        ``(n,)``, higher is surer.

    Returns
    -------
    coverage : ndarray
        float64 ``(n,)``, from ``1/n`` to 1.
    risk : ndarray
        float64 ``(n,)``; the last entry is the mean loss.

    Raises
    ------
    ValueError
        No items, different lengths, NaN.
    """
    losses, sureness = np.asarray(loss, dtype=float), np.asarray(confidence, dtype=float)
    if losses.ndim != 1 or losses.shape != sureness.shape or not losses.size:
        raise ValueError(f"need two vectors of one length, got {losses.shape} and {sureness.shape}")
    if np.isnan(losses).any() or np.isnan(sureness).any():
        raise ValueError("loss and confidence must not contain NaN")
    n = losses.size
    _, block, sizes = np.unique(-sureness, return_inverse=True, return_counts=True)
    sums = np.bincount(block, weights=losses)
    expected = np.repeat(sums / sizes, sizes)
    # At the end of each tie the sum is exact; inside it, the expectation is added step by step.
    starts = np.cumsum(sizes) - sizes
    before = np.repeat(np.cumsum(sums) - sums, sizes)
    steps = np.arange(1, n + 1) - np.repeat(starts, sizes)
    rank = np.arange(1, n + 1)
    return rank / n, (before + steps * expected) / rank


def aurc(loss: Values, confidence: Values) -> float:
    r"""Area under the risk-coverage curve, :math:`\frac{1}{n} \sum_i r_i`; lower is better. See `risk_coverage`.

    References
    ----------
    Geifman, Uziel, El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers", ICLR 2019.
    """
    return float(risk_coverage(loss, confidence)[1].mean())


def auarc(correct: Values, confidence: Values) -> float:
    r"""Area under the accuracy-rejection curve: accuracy among the ``i`` most confident, averaged over ``i = 1..n``.

    .. math:: \frac{1}{n} \sum_{i=1}^{n} \frac{1}{i} \sum_{j \le i} y_{(j)}

    with ties in their exact expectation, as in `risk_coverage`; higher is better.

    Parameters
    ----------
    correct
        ``(n,)`` booleans, or scores in [0, 1].
    confidence
        ``(n,)``, higher is surer.

    Returns
    -------
    float
        In [0, 1]; the mean of ``correct`` if all items are equally sure.

    Raises
    ------
    ValueError
        As in `risk_coverage`.

    References
    ----------
    Nadeem, Zucker, Hanczar, "Accuracy-rejection curves (ARCs) for comparing classification methods with a reject
    option", MLSB 2009.
    """
    return aurc(correct, confidence)


def _members(arrays: tuple[np.ndarray, ...], clusters: Labels | None) -> list[np.ndarray] | None:
    """Return the positions of each cluster's observations, or None when each is its own cluster."""
    lengths = {array.shape[0] if array.ndim else 0 for array in arrays}
    if len(lengths) != 1:
        raise ValueError(f"arrays differ in length: {sorted(lengths)}")
    n = lengths.pop()
    if n == 0:
        raise ValueError("no observations")
    if clusters is None:
        return None
    labels = np.asarray(clusters)
    if labels.shape != (n,):
        raise ValueError(f"clusters must have shape ({n},), not {labels.shape}")
    _, index, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return np.split(np.argsort(index, kind="stable"), np.cumsum(sizes)[:-1])


def _cluster_index(members: list[np.ndarray], n: int) -> np.ndarray:
    index = np.empty(n, dtype=np.intp)
    for number, positions in enumerate(members):
        index[positions] = number
    return index


def _draw(groups: int, n_resamples: int, seed: int | np.random.Generator) -> Iterator[np.ndarray]:
    """Yield drawn cluster numbers ``(some, groups)`` in blocks that fit into memory."""
    rng = np.random.default_rng(seed)
    block = max(1, _CHUNK // groups)
    for start in range(0, n_resamples, block):
        yield rng.integers(0, groups, (min(block, n_resamples - start), groups))


def _count(chosen: np.ndarray, groups: int) -> np.ndarray:
    rows = np.arange(len(chosen))[:, None] * groups
    return np.bincount((chosen + rows).ravel(), minlength=chosen.size).reshape(len(chosen), groups)


def _mean_draws(
    arrays: tuple[np.ndarray, ...], members: list[np.ndarray] | None, n_resamples: int, seed: int | np.random.Generator
) -> tuple[float, np.ndarray, Callable[[], np.ndarray]]:
    if len(arrays) != 1 or arrays[0].ndim != 1:
        raise ValueError("without a statistic, data must be one vector")
    values = arrays[0].astype(float)
    if np.isnan(values).any():
        raise ValueError("the data contain NaN; drop or fill these first")
    if members is None:
        sums, sizes = values, np.ones(len(values))
    else:
        sums = np.array([values[positions].sum() for positions in members])
        sizes = np.array([len(positions) for positions in members], dtype=float)
    blocks = [
        sums[chosen].sum(axis=1) / (chosen.shape[1] if members is None else sizes[chosen].sum(axis=1))
        for chosen in _draw(len(sums), n_resamples, seed)
    ]

    def jackknife() -> np.ndarray:
        return (sums.sum() - sums) / (sizes.sum() - sizes) if len(sums) > 1 else np.empty(0)

    return float(values.mean()), np.concatenate(blocks), jackknife


def _statistic_draws(
    arrays: tuple[np.ndarray, ...],
    statistic: Callable[..., float],
    members: list[np.ndarray] | None,
    n_resamples: int,
    seed: int | np.random.Generator,
) -> tuple[float, np.ndarray, Callable[[], np.ndarray]]:
    n = arrays[0].shape[0]
    groups = n if members is None else len(members)

    def of(positions: np.ndarray) -> float:
        return float(statistic(*(array[positions] for array in arrays)))

    def expand(chosen: np.ndarray) -> np.ndarray:
        return chosen if members is None else np.concatenate([members[group] for group in chosen])

    draws = [of(expand(chosen)) for block in _draw(groups, n_resamples, seed) for chosen in block]

    def jackknife() -> np.ndarray:
        everything = np.arange(groups)
        return np.array([of(expand(np.delete(everything, group))) for group in range(groups)] if groups > 1 else [])

    return of(np.arange(n)), np.array(draws), jackknife


def _bca_levels(
    value: float, draws: np.ndarray, jackknife: np.ndarray, levels: tuple[float, float]
) -> tuple[float, float]:
    """Return the corrected quantile levels, or the given ones where the correction is undefined."""
    below = (np.mean(draws < value) + np.mean(draws <= value)) / 2
    spread = jackknife.mean() - jackknife if jackknife.size else np.zeros(1)
    squares = float((spread**2).sum())
    if not 0 < below < 1 or not squares > 0:
        return levels
    bias = _NORMAL.inv_cdf(float(below))
    acceleration = float((spread**3).sum()) / (6 * squares**1.5)

    def corrected(level: float) -> float:
        shifted = bias + _NORMAL.inv_cdf(level)
        return _NORMAL.cdf(bias + shifted / (1 - acceleration * shifted))

    return corrected(levels[0]), corrected(levels[1])

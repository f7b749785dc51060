"""When not to decide: calibration on dev, a band of abstention with a guarantee, label sets, risk against coverage."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy.special import betaincinv

from papers_shared.metrics import aurc as _aurc
from papers_shared.metrics import risk_coverage as _risk_coverage
from sanctionspairs.errors import SanctionsPairsError, ThresholdError

CONFIDENCE = 0.95
_STARTS = ((0.5, 0.8), (0.0, 0.2))
"""Coverage at which a sequence of tests begins, and its share of the error that is allowed."""
Labels = Num[np.ndarray, " n"] | Bool[np.ndarray, " n"]


def centered_isotonic(
    scores: Float[np.ndarray, " n"], labels: Labels
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """Fit isotonic regression and return points through which to interpolate, so that the order of scores is kept.

    Plain isotonic regression gives whole runs of scores one probability, and with it ties where abstention most needs
    an order. Here each run stands at its mean score, with its rate shrunk by half a pair (a run of m pairs, all right,
    still leaves half a pair of doubt), and the outermost scores get half of the doubt of their run.

    References
    ----------
    Oron, Flournoy, "Centered isotonic regression", 2017.

    Raises
    ------
    ThresholdError
        The labels are all alike.
    """
    from sklearn.isotonic import IsotonicRegression

    y = np.asarray(labels, float)
    if len(set(y.tolist())) < 2:
        raise ThresholdError("calibration needs pairs of both judgements")
    fitted = IsotonicRegression(out_of_bounds="clip").fit(scores, y).predict(scores)
    rates, run, counts = np.unique(fitted, return_inverse=True, return_counts=True)
    centers = np.bincount(run, scores) / counts
    shrunk = np.maximum.accumulate((rates * counts + 0.5) / (counts + 1.0))
    points = dict(zip(centers.tolist(), shrunk.tolist(), strict=True))
    points.setdefault(float(scores.min()), float(shrunk[0]) / 2)
    points.setdefault(float(scores.max()), (1 + float(shrunk[-1])) / 2)
    xs = np.array(sorted(points))
    return xs, np.maximum.accumulate(np.array([points[x] for x in xs.tolist()]))


class Calibrator:
    """Maps scores to probabilities by `centered_isotonic` on dev."""

    def fit(self, scores: Float[np.ndarray, " n"], labels: Labels) -> Calibrator:
        """Fit on dev; NaN scores are left out.

        Raises
        ------
        ThresholdError
            The labels are all alike.
        """
        answered = ~np.isnan(scores)
        self._x, self._y = centered_isotonic(scores[answered], np.asarray(labels, float)[answered])
        return self

    def transform(self, scores: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Return probabilities; NaN stays NaN."""
        return np.interp(scores, self._x, self._y)


def upper_error(errors: int, n: int, confidence: float = CONFIDENCE) -> float:
    """Return the Clopper-Pearson upper bound of an error rate after ``errors`` among ``n``; 1 if there is nothing."""
    if n == 0 or errors >= n:
        return 1.0
    return float(betaincinv(errors + 1, n - errors, confidence))


def abstain_band(
    p: Float[np.ndarray, " n"], y: Labels, alpha: float, *, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    r"""Return the smallest band of probabilities in which to abstain, so that decisions err at most ``alpha``.

    A pair with :math:`p \le lo` is decided negative, with :math:`p \ge hi = 1 - lo` positive. Bands are tried from wide
    to narrow and the last is returned whose decided pairs pass a one-sided Clopper-Pearson test; the sequence stops at
    the first failure, so the test is valid although many bands are tried. Two sequences are run, from half of the pairs
    and from the fewest that can pass, and share the error that is allowed.

    Parameters
    ----------
    p
        ``(n,)`` calibrated probabilities on pairs that did not calibrate.
    y
        ``(n,)`` judgements of these.
    alpha
        Error rate allowed among decided pairs.
    confidence
        With this probability over the draw of the pairs, the true error rate of decided pairs is at most ``alpha``.

    Returns
    -------
    tuple of float
        ``lo``, ``hi`` and the share of pairs decided; ``(0, 1, 0)`` with coverage 0 if nothing can be promised.

    Raises
    ------
    SanctionsPairsError
        ``alpha`` is not in (0, 1), or there are no pairs.

    References
    ----------
    Clopper, Pearson 1934; Angelopoulos et al., "Learn then test", 2021 (fixed-sequence testing).
    """
    if not 0 < alpha < 1:
        raise SanctionsPairsError(f"target error {alpha} must lie in (0, 1)")
    truth = np.asarray(y, bool)
    if not len(truth) or np.isnan(p).any():
        raise SanctionsPairsError("an abstain band needs answered pairs")
    doubt = np.minimum(p, 1 - p)
    wrong = (p >= 0.5) != truth
    order = np.argsort(doubt, kind="stable")
    # Pairs of equal doubt are decided together, so tests stand at the ends of ties.
    ends = np.flatnonzero(np.append(np.diff(doubt[order]) > 1e-12, True)) + 1
    errors = np.cumsum(wrong[order])[ends - 1]
    best = 0
    for begin, share in _STARTS:
        level = 1 - (1 - confidence) * share
        fewest = max(math.ceil(begin * len(p)), math.ceil(math.log(1 - level) / math.log(1 - alpha)))
        grid = _grid(ends, fewest, len(p))
        for position in grid:
            if upper_error(int(errors[position]), int(ends[position]), level) > alpha:
                break
            best = max(best, int(ends[position]))
    if not best:
        return 0.0, 1.0, 0.0
    edge = float(doubt[order][best - 1])
    return edge, 1 - edge, best / len(p)


def _grid(ends: Int[np.ndarray, " e"], fewest: int, n: int) -> list[int]:
    """Return the positions of about fifty coverages from ``fewest`` pairs to all."""
    wanted = np.linspace(fewest, n, 51) if fewest <= n else np.empty(0)
    return sorted(set(np.searchsorted(ends, wanted).clip(max=len(ends) - 1).tolist()))


def decide(p: Float[np.ndarray, " n"], lo: float, hi: float) -> Int[np.ndarray, " n"]:
    """Return 1 for one entity, 0 for two, -1 for abstained (also where there was no answer)."""
    out = np.full(len(p), -1, dtype=np.int64)
    out[p <= lo] = 0
    out[p >= hi] = 1
    return out


def risk_coverage(p: Float[np.ndarray, " n"], y: Labels) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Return coverage and error rate as ever less certain pairs are decided, by ``p >= 1/2``; surest first."""
    wrong = ((p >= 0.5) != np.asarray(y, bool)).astype(float)
    return _risk_coverage(wrong, np.maximum(p, 1 - p))


def aurc(p: Float[np.ndarray, " n"], y: Labels) -> float:
    """Return the area under `risk_coverage`; lower is better."""
    wrong = ((p >= 0.5) != np.asarray(y, bool)).astype(float)
    return float(_aurc(wrong, np.maximum(p, 1 - p)))


def conformal_sets(
    p_calibration: Float[np.ndarray, " m"],
    y_calibration: Num[np.ndarray, " m"] | Bool[np.ndarray, " m"],
    p: Float[np.ndarray, " n"],
    alpha: float,
) -> Bool[np.ndarray, "n 2"]:
    r"""Return split-conformal sets of labels that hold the true one with probability at least :math:`1 - \alpha`.

    With scores :math:`s_i = 1 - \hat p(y_i)` on calibration pairs and :math:`q` their
    :math:`\lceil (m + 1)(1 - \alpha) \rceil`-th smallest, the set holds every label with
    :math:`1 - \hat p(label) \le q`.

    Returns
    -------
    ndarray
        bool ``(n, 2)``: whether negative, positive are in the set.

    References
    ----------
    Vovk, Gammerman, Shafer, "Algorithmic learning in a random world", 2005.
    """
    if not 0 < alpha < 1:
        raise SanctionsPairsError(f"alpha {alpha} must lie in (0, 1)")
    truth = np.asarray(y_calibration, bool)
    scores = np.sort(1 - np.where(truth, p_calibration, 1 - p_calibration))
    rank = math.ceil((len(scores) + 1) * (1 - alpha))
    q = scores[rank - 1] if rank <= len(scores) else np.inf
    return np.stack([p <= q, 1 - p <= q], axis=1)

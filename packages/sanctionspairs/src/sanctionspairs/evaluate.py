"""Figures for scores: thresholds, precision and recall with clustered intervals, calibration, paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num, Shaped
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, roc_auc_score

from papers_shared.metrics import Interval, bootstrap_counts
from sanctionspairs.errors import SanctionsPairsError, ThresholdError
from sanctionspairs.tags import tag_errors

__all__ = ["McNemar", "Report", "compare", "confusion", "ece", "f1_of", "report", "tag_errors", "tune_threshold"]

GRID = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""The paper's thresholds for regression-v1."""
Labels = Num[np.ndarray, " n"] | Bool[np.ndarray, " n"]


class Confusion(NamedTuple):
    """Counts of decisions against judgements."""

    tp: int
    fp: int
    fn: int
    tn: int


class McNemar(NamedTuple):
    """Two matchers on the same pairs.

    Attributes
    ----------
    only_a_right, only_b_right
        Discordant pairs.
    p
        Exact two-sided binomial test that both are equally often right.
    yule_q
        Association of the two matchers' errors, from -1 (they err on different pairs) to 1; NaN where undefined.
    oracle_f1
        F1 if each pair were decided by whichever matcher is right on it.
    """

    only_a_right: int
    only_b_right: int
    p: float
    yule_q: float
    oracle_f1: float


@dataclass(frozen=True)
class Report:
    """Figures of one matcher on one set of pairs; the positive class is "one entity"."""

    n: int
    positives: int
    threshold: float
    precision: float
    recall: float
    f1: Interval
    always_f1: float
    counts: Confusion
    roc_auc: float
    pr_auc: float
    brier: float
    ece: float
    unanswered: int

    def as_dict(self) -> dict[str, object]:
        """Return plain numbers for JSON."""
        row = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("counts", "f1")}
        return row | self.counts._asdict() | {"f1": self.f1.value, "f1_low": self.f1.low, "f1_high": self.f1.high}


def confusion(predicted: Labels, labels: Labels) -> Confusion:
    """Count true and false positives and negatives."""
    yes, truth = np.asarray(predicted, bool), np.asarray(labels, bool)
    return Confusion(
        int((yes & truth).sum()), int((yes & ~truth).sum()), int((~yes & truth).sum()), int((~yes & ~truth).sum())
    )


def f1_of(tp: float | int, fp: float | int, fn: float | int) -> float:
    """Return :math:`2 tp / (2 tp + fp + fn)`, 0 if there is nothing to find."""
    total = 2 * tp + fp + fn
    return 2 * tp / total if total else 0.0


def tune_threshold(
    scores: Float[np.ndarray, " n"], labels: Labels, grid: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the threshold of the grid with the largest F1 on dev, the first of equals, and that F1.

    Parameters
    ----------
    scores
        ``(n,)`` in [0, 1]; NaN (no answer) is left out.
    labels
        ``(n,)``, 1 for one entity.
    grid
        Thresholds in the order in which ties are broken; by default 0.05, 0.10, ..., 0.95.

    Raises
    ------
    ThresholdError
        The labels are all alike, or there is none.
    """
    answered = ~np.isnan(scores)
    s, y = scores[answered], np.asarray(labels, bool)[answered]
    if not len(y):
        raise ThresholdError("no judged pair")
    if y.all() or not y.any():
        raise ThresholdError(f"all {len(y)} pairs are {'positive' if y.all() else 'negative'}")
    best = (-1.0, 0.0)
    for threshold in GRID if grid is None else grid:
        counts = confusion(s >= threshold, y)
        f1 = f1_of(counts.tp, counts.fp, counts.fn)
        if f1 > best[0]:
            best = (f1, float(threshold))
    return best[1], best[0]


def ece(probability: Float[np.ndarray, " n"], labels: Labels, bins: int = 15) -> float:
    r"""Return the calibration error :math:`\sum_b \frac{n_b}{n} |\bar p_b - \bar y_b|` over equal-width bins."""
    place = np.minimum((probability * bins).astype(int), bins - 1)
    gaps = np.bincount(place, probability - np.asarray(labels, float), minlength=bins)
    return float(np.abs(gaps).sum() / len(probability))


def report(
    scores: Float[np.ndarray, " n"],
    labels: Labels,
    t: float,
    groups: Shaped[np.ndarray, " n"] | None = None,
    *,
    n_resamples: int = 2000,
    seed: int = 0,
) -> Report:
    """Measure scores at a threshold.

    Parameters
    ----------
    scores
        ``(n,)``; NaN is "no answer", counted and left out of the figures.
    labels
        ``(n,)``, 1 for one entity.
    t
        The threshold; tune it on other pairs.
    groups
        ``(n,)`` component of each pair (`split.components`): the bootstrap draws whole components.
    n_resamples, seed
        Of the bootstrap.

    Raises
    ------
    SanctionsPairsError
        No pair was answered.
    """
    answered = ~np.isnan(scores)
    s, y = scores[answered], np.asarray(labels, bool)[answered]
    if not len(s):
        raise SanctionsPairsError("no pair was answered, so there is nothing to measure")
    cluster = np.arange(len(s)) if groups is None else np.asarray(groups)[answered]
    counts = confusion(s >= t, y)
    both = bool(y.any() and not y.all())
    return Report(
        n=len(s),
        positives=int(y.sum()),
        threshold=float(t),
        precision=counts.tp / max(1, counts.tp + counts.fp),
        recall=counts.tp / max(1, counts.tp + counts.fn),
        f1=_f1_interval(s >= t, y, cluster, n_resamples, seed),
        always_f1=f1_of(int(y.sum()), int((~y).sum()), 0),
        counts=counts,
        roc_auc=float(roc_auc_score(y, s)) if both else float("nan"),
        pr_auc=float(average_precision_score(y, s)) if both else float("nan"),
        brier=float(np.mean((s - y) ** 2)),
        ece=ece(s, y),
        unanswered=int((~answered).sum()),
    )


def _f1_interval(
    predicted: Bool[np.ndarray, " n"],
    labels: Bool[np.ndarray, " n"],
    cluster: Shaped[np.ndarray, " n"],
    n_resamples: int,
    seed: int,
) -> Interval:
    """Bootstrap F1 over components: it is a function of three sums, so a resample is a product with their counts."""
    _, place = np.unique(cluster, return_inverse=True)
    size = int(place.max()) + 1
    parts = np.stack(
        [
            np.bincount(place, chosen, minlength=size)
            for chosen in (predicted & labels, predicted & ~labels, ~predicted & labels)
        ],
        axis=1,
    )
    draws = []
    for block in range(0, n_resamples, 200):
        rng = np.random.default_rng([seed, block])
        counts = bootstrap_counts(size, min(200, n_resamples - block), seed=rng)
        draws.append(counts @ parts)
    tp, fp, fn = np.concatenate(draws).T
    f1 = 2 * tp / np.maximum(2 * tp + fp + fn, 1e-12)
    low, high = np.quantile(f1, [0.025, 0.975])
    return Interval(f1_of(*parts.sum(axis=0)), float(low), float(high))


def compare(a: Labels, b: Labels, labels: Labels) -> McNemar:
    """Compare two matchers' decisions on the same pairs.

    Parameters
    ----------
    a, b
        ``(n,)`` decisions, 1 for one entity.
    labels
        ``(n,)`` judgements.
    """
    first, second, truth = (np.asarray(values, bool) for values in (a, b, labels))
    wrong_a, wrong_b = first != truth, second != truth
    only_a, only_b = int((~wrong_a & wrong_b).sum()), int((wrong_a & ~wrong_b).sum())
    both_wrong, both_right = int((wrong_a & wrong_b).sum()), int((~wrong_a & ~wrong_b).sum())
    together, apart = both_wrong * both_right, only_a * only_b
    oracle = np.where(wrong_a & wrong_b, first, truth)
    counts = confusion(oracle, truth)
    return McNemar(
        only_a_right=only_a,
        only_b_right=only_b,
        p=float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0,
        yule_q=(together - apart) / (together + apart) if together + apart else float("nan"),
        oracle_f1=f1_of(counts.tp, counts.fp, counts.fn),
    )


def labels_of(pairs: Sequence) -> Int[np.ndarray, " n"]:
    """Return int64 ``(n,)``: 1 for positive judgements."""
    return np.array([pair.label for pair in pairs], dtype=np.int64)

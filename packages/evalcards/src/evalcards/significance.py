r"""Is a difference larger than chance? Shown beside the paper's signals, never mixed with them.

For two scores with standard errors, :math:`z = |a - b| / \sqrt{se_a^2 + se_b^2}` and a two-sided normal p-value. A
proportion of :math:`n` items without a reported error has the binomial one, :math:`\sqrt{p (1 - p) / n}`. A triple with
:math:`k` scores is tested at its two extremes, so its p-value is multiplied by the :math:`k (k - 1) / 2` pairs; over
the corpus the p-values are adjusted by Holm's method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from evalcards.store import Store


class PairTest(NamedTuple):
    """The test of the most distant scores of one triple.

    Attributes
    ----------
    group_id, link : int, str
        The triple.
    low, high : float
        The two scores.
    z : float
        Distance in standard errors of the difference.
    p : float
        Two-sided, times the number of pairs.
    p_holm : float
        Adjusted over all tested triples.
    """

    group_id: int
    link: str
    low: float
    high: float
    z: float
    p: float
    p_holm: float


def error_of(score: float | None, standard_error: float | None, samples: int | None, unit: str | None) -> float | None:
    """Return the reported standard error, else the binomial one of a proportion of known size, else None."""
    if standard_error is not None and standard_error > 0:
        return standard_error
    if score is None or not samples or unit != "proportion" or not 0 <= score <= 1:
        return None
    return math.sqrt(score * (1 - score) / samples) or None


def z_test(a: float, se_a: float, b: float, se_b: float) -> tuple[float, float]:
    """Return z and the two-sided p-value of a difference.

    Raises
    ------
    ValueError
        Both standard errors are zero.
    """
    spread = math.hypot(se_a, se_b)
    if spread == 0:
        raise ValueError("two standard errors of zero say nothing")
    z = abs(a - b) / spread
    return z, math.erfc(z / math.sqrt(2))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, in the given order.

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", 1979.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted


def corpus_tests(store: Store) -> list[PairTest]:
    """Test every triple with at least two scores whose errors are known; the smallest p-value first."""
    lines = store.fetch(
        """SELECT group_id, link, score, standard_error, samples, unit FROM results JOIN groups USING (group_id)
        SEMI JOIN (SELECT group_id FROM results WHERE score IS NOT NULL GROUP BY 1 HAVING count(*) > 1) USING (group_id)
        WHERE score IS NOT NULL ORDER BY group_id, score, row_id"""
    )
    groups: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for group, link, score, error, samples, unit in lines:
        known = error_of(score, error, samples, unit)
        if known is not None:
            groups.setdefault((group, link), []).append((score, known))
    found = []
    for (group, link), scores in groups.items():
        if len(scores) > 1:
            (low, se_low), (high, se_high) = scores[0], scores[-1]
            z, p = z_test(low, se_low, high, se_high)
            found.append((group, link, low, high, z, min(1.0, p * len(scores) * (len(scores) - 1) / 2)))
    adjusted = holm([line[-1] for line in found])
    tests = [PairTest(*line, p_holm) for line, p_holm in zip(found, adjusted, strict=True)]
    return sorted(tests, key=lambda test: (test.p, test.group_id))

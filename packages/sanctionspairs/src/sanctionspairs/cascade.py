"""The cascade: cheap rules where they are sure, an expensive matcher in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.evaluate import labels_of, tune_threshold
from sanctionspairs.matchers import Matcher, get
from sanctionspairs.records import Pair

Labels = Num[np.ndarray, " n"] | Bool[np.ndarray, " n"]


class Band(NamedTuple):
    """Where the expensive matcher is asked.

    Attributes
    ----------
    lo, hi
        Scores of the cheap matcher strictly between them go on; at or below ``lo`` is no, at or above ``hi`` is yes.
    cost
        Of all decisions on dev.
    calls
        Share of dev that goes on.
    """

    lo: float
    hi: float
    cost: float
    calls: float


def best_band(
    cheap: Float[np.ndarray, " n"],
    inner: Bool[np.ndarray, " n"],
    labels: Labels,
    c_fp: float = 1.0,
    c_fn: float = 1.0,
    c_call: float = 0.01,
    grid: Sequence[float] | Float[np.ndarray, " g"] | None = None,
) -> Band:
    r"""Return the band with the least cost :math:`c_{fp} FP + c_{fn} FN + c_{call} \, calls` on dev.

    Parameters
    ----------
    cheap
        ``(n,)`` scores of the cheap matcher.
    inner
        ``(n,)`` decisions of the expensive one.
    labels
        ``(n,)`` judgements.
    c_fp, c_fn, c_call
        Costs of a wrong yes, a wrong no and a call.
    grid
        Candidate edges; by default 101 steps of 0.01. Ties go to the band with fewer calls.
    """
    truth = np.asarray(labels, bool)
    edges = np.linspace(0, 1, 101) if grid is None else np.asarray(grid, float)
    order = np.argsort(cheap, kind="stable")
    s, y, inside = cheap[order], truth[order], inner[order]
    below = np.concatenate([[0], np.cumsum(y)]) * c_fn
    above = np.concatenate([np.cumsum((~y)[::-1])[::-1], [0]]) * c_fp
    middle = np.concatenate(
        [[0], np.cumsum(np.where(inside & ~y, c_fp, 0.0) + np.where(~inside & y, c_fn, 0.0) + c_call)]
    )
    best: tuple[float, int, float, float] | None = None
    for lo in edges:
        first = int(np.searchsorted(s, lo, side="right"))
        for hi in edges[edges >= lo]:
            last = max(first, int(np.searchsorted(s, hi, side="left")))
            total = below[first] + above[last] + middle[last] - middle[first]
            found = (round(float(total), 9), last - first, float(lo), float(hi))
            if best is None or found[:2] < best[:2]:
                best = found
    assert best is not None
    return Band(best[2], best[3], best[0], best[1] / max(1, len(cheap)))


class Cascade:
    """regression-v1 outside a band of scores, another matcher inside.

    Parameters
    ----------
    inner
        The expensive matcher or its name, ``pairnet`` by default.
    outer
        The cheap one.
    c_fp, c_fn, c_call
        Costs, see `best_band`.
    """

    def __init__(
        self,
        inner: Matcher | str = "pairnet",
        outer: Matcher | str = "regression-v1",
        c_fp: float = 1.0,
        c_fn: float = 1.0,
        c_call: float = 0.01,
    ) -> None:
        self.inner = get(inner) if isinstance(inner, str) else inner
        self.outer = get(outer) if isinstance(outer, str) else outer
        self.costs = (c_fp, c_fn, c_call)
        self.name = "cascade" if self.inner.name == "pairnet" else f"cascade-{self.inner.name}"
        self.band: Band | None = None
        self.trained = False
        self.calls = 0

    def fit(self, pairs: Sequence[Pair]) -> Cascade:
        """Choose the band on dev; returns itself."""
        labels = labels_of(pairs)
        inner = self.inner.score(pairs)
        threshold, _ = tune_threshold(inner, labels)
        self.band = best_band(self.outer.score(pairs), inner >= threshold, labels, *self.costs)
        self.trained = True
        return self

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return 0 below the band, 1 above it, the inner matcher's score inside; only those pairs are asked."""
        if self.band is None:
            raise SanctionsPairsError("the cascade has no band yet", "call fit(dev) first")
        cheap = self.outer.score(pairs)
        scores = np.where(cheap >= self.band.hi, 1.0, 0.0)
        inside = np.flatnonzero((cheap > self.band.lo) & (cheap < self.band.hi))
        self.calls = len(inside)
        if len(inside):
            scores[inside] = self.inner.score([pairs[number] for number in inside])
        return scores

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return the explanation of whichever matcher decides."""
        if self.band is None:
            raise SanctionsPairsError("the cascade has no band yet", "call fit(dev) first")
        cheap = self.outer.score([pair])[0]
        return (self.inner if self.band.lo < cheap < self.band.hi else self.outer).explain(pair)

"""The exact matcher: the primal-dual kernel on all points, any cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dynmatch.costs import CALLABLE, PRECOMPUTED, Real, make_metric
from dynmatch.matcher import BaseMatcher, Entry
from dynmatch.primal_dual import DenseKernel


class ExactMatcher(BaseMatcher):
    r"""Exact :math:`W_p` under insertions and deletions, O(n^2) at worst and one search per update, O(n) memory.

    Parameters
    ----------
    metric
        ``"euclidean"``, ``"l1"``, ``"linf"``, ``"minkowski"`` (with ``norm``), ``"precomputed"`` (with ``matrix``; a
        point of A is a row number, one of B a column number, and any non-negative costs will do), or a callable
        ``f(x, Y) -> (m,)``.
    p
        The exponent, p >= 1; the cost of a pair is d^p.
    matrix
        ``(N, M)`` distances of a precomputed metric.
    norm
        The l_q norm of ``"minkowski"``.

    Examples
    --------
    >>> live = ExactMatcher(p=1)
    >>> _ = live.insert("A", [0.0, 0.0]), live.insert("B", [3.0, 4.0])
    >>> live.cost()
    5.0

    References
    ----------
    The kernel is the successive shortest path method (Edmonds and Karp, 1972) with potentials kept between updates.
    """

    def __init__(self, metric: Any = "euclidean", p: Real = 1.0, matrix: Any = None, norm: Real = 2.0) -> None:
        self.metric = make_metric(metric, matrix, norm)
        config: dict[str, Any] = {"metric": metric, "p": float(p), "norm": float(norm)}
        if self.metric.kind == CALLABLE:
            config["metric"] = "callable"
        if self.metric.kind == PRECOMPUTED:
            config |= {"metric": "precomputed", "matrix": self.metric.matrix}
        super().__init__(p, config, 1 if self.metric.kind == PRECOMPUTED else None)
        self.kernel: DenseKernel | None = None
        if self.dim is not None:
            self._first_point(self.dim)

    def _first_point(self, dim: int) -> None:
        self.dim = dim
        self.kernel = DenseKernel(self.metric, dim, self.p, capacity=16)

    def _validate(self, side: int, point: Any, row: int | None, id: Any, dim: int | None = None) -> np.ndarray:
        x = super()._validate(side, point, row, id, dim)
        if self.metric.kind == PRECOMPUTED:
            size = self.metric.matrix.shape[side]
            if x[0] != int(x[0]) or not 0 <= x[0] < size:
                where = "" if row is None else f"row {row}: "
                raise ValueError(f"{where}point {id!r}: {x[0]:g} is not a number of the matrix, 0 to {size - 1}")
        return x

    def _add(self, key: int, side: int, x: np.ndarray, weight: int) -> None:
        assert self.kernel is not None
        self.kernel.add(side, key, x, weight)

    def _remove(self, entry: Entry) -> None:
        assert self.kernel is not None
        self.kernel.remove(entry.side, entry.key, entry.weight)

    def _total(self) -> tuple[float, float]:
        return (self.kernel.cost, self.kernel.scale) if self.kernel is not None else (0.0, 1.0)

    def _pairs(self) -> Iterable[tuple[int, int, int, float]]:
        if self.kernel is not None:
            scale = self.kernel.scale
            for a, b, units, cost in self.kernel.pairs():
                yield a, b, units, scale * cost ** (1.0 / self.p)

    def _mates(self, entry: Entry) -> list[tuple[int, int]]:
        assert self.kernel is not None
        return [(key, units) for key, units, _ in self.kernel.mates(entry.side, entry.key)]

    def _free(self) -> dict[tuple[int, int], int]:
        return self.kernel.free_units() if self.kernel is not None else {}

    def lower_bound(self) -> float:
        """Return W_p from the duals alone: the certificate that the matching is optimal (up to rounding)."""
        if self.kernel is None:
            return 0.0
        return self.kernel.scale * max(0.0, min(self.kernel.dual_value(), self.kernel.cost)) ** (1.0 / self.p)

    def stats(self) -> dict[str, Any]:
        """Return sizes, searches, and how many pairs the searches have looked at."""
        pairs, searches = (int(v) for v in self.kernel.count[6:]) if self.kernel is not None else (0, 0)
        return {"size": self.size, "updates": self.updates, "searches": searches, "relaxed_pairs": pairs}

    def _check(self) -> None:
        if self.kernel is not None:
            self.kernel.check()

    def _state(self) -> dict[str, Any]:
        return {} if self.kernel is None else self.kernel.state()

    def _restore(self, own: dict[str, Any]) -> None:
        if own:
            assert self.kernel is not None
            self.kernel.restore(own)

"""How dense a graph is: the least budget that keeps a constant share of the examples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from fixedgraphdp import lp
from fixedgraphdp.bounding import bound
from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError


class Density(NamedTuple):
    r"""The density parameter and what bounds it.

    Attributes
    ----------
    c
        :math:`c_\beta = \min\{k : LP_k \ge (1 - \beta) n\}`.
    cover
        Fractional cover :math:`\tau^* = \min \sum_v y_v` with :math:`y(e) \ge 1` for every example.
    n_over_cover
        :math:`n / \tau^*`; always :math:`c_\beta \ge (1 - \beta)\, n / \tau^*`, because :math:`LP_k \le k \tau^*`.
    exact
        True when c and the cover are known; False where an LP was too large or out of time. Then c and the cover are
        certified upper bounds, and ``c_at_least`` and ``cover_gap`` say how far they may be off.
    c_at_least
        Certified lower bound of :math:`c_\beta`; equal to c when the density is known.
    cover_gap
        :math:`\tau^*` is at least ``(1 - cover_gap) * cover``.
    """

    c: int
    beta: float
    cover: float
    n_over_cover: float
    max_degree: int
    mean_degree: float
    r: int
    exact: bool
    c_at_least: int
    cover_gap: float


def density(
    graph: AttributionGraph,
    beta: float = 0.5,
    *,
    time_limit: float = 600.0,
    progress: Callable[[float, str], None] = lambda share, note: None,
) -> Density:
    r"""Measure the density :math:`c_\beta(G)`.

    About 1 for disjoint users, :math:`(1-\beta) n` for one user in everything.

    Parameters
    ----------
    graph
        At least one example.
    beta
        The share of the examples that may be lost, in [0, 1).
    time_limit
        Seconds for all linear programmes together. When they are over, each budget that is still open is taken as too
        small unless greedy shows that it is not, so c stays an upper bound.
    progress
        Called with the share of the time used and what is being solved.

    Raises
    ------
    InputError
        beta outside [0, 1), no examples.
    """
    if not 0 <= beta < 1:
        raise InputError(f"beta must lie in [0, 1), not {beta}")
    if not graph.n_examples:
        raise InputError("the graph has no example")
    owned = int((graph.sizes > 0).sum())
    public = graph.n_examples - owned
    clock = _Clock(time_limit, progress)
    covering = clock.solve(graph, 1, 0.25, "cover", capped=False)
    known = covering.solver == "simplex"
    cover = (covering.value if known else covering.upper_bound) - public
    gap = 0.0 if known or cover <= 0 else 1 - (covering.value - public) / cover
    target = (1 - beta) * graph.n_examples - 1e-6
    low = max(1, math.ceil((target - public) / cover - 1e-6)) if owned else 1
    at_least, high = low, max(low, int(graph.degrees.max(initial=1)))
    while low < high:
        middle = (low + high) // 2
        keeps = _keeps(graph, middle, target, clock, 1 / math.ceil(math.log2(high - low + 1)), (low, high))
        if keeps:
            high = middle
        else:
            low = middle + 1
            at_least = at_least if keeps is None else low
    return Density(
        c=high,
        beta=beta,
        cover=float(cover),
        n_over_cover=graph.n_examples / cover if cover else float("inf"),
        max_degree=int(graph.degrees.max(initial=0)),
        mean_degree=float(graph.degrees.mean()) if graph.n_users else 0.0,
        r=graph.r,
        exact=known and at_least == high,
        c_at_least=at_least,
        cover_gap=float(gap),
    )


class _Clock:
    """Shares one time limit between linear programmes and reports how much of it is used."""

    def __init__(self, limit: float, progress: Callable[[float, str], None]) -> None:
        self.limit, self.progress, self.begun = limit, progress, time.monotonic()

    def report(self, note: str) -> None:
        used = time.monotonic() - self.begun
        self.progress(min(1.0, used / max(self.limit, 1e-9)), note)

    def solve(self, graph: AttributionGraph, k: int, share: float, what: str, **options: Any) -> lp.LPSolution:
        """Solve an LP in ``share`` of the time that is left; half of that each where two solvers may be needed."""
        left = max(0.0, self.limit - (time.monotonic() - self.begun)) * share
        left = left if graph.n_incidences > lp.LARGE else left / 2
        self.report(what)
        return lp.relaxation(
            graph, k, time_limit=left, progress=lambda _, note: self.report(f"{what}, {note}"), **options
        )


def _keeps(
    graph: AttributionGraph, k: int, target: float, clock: _Clock, share: float, span: tuple[int, int]
) -> bool | None:
    """Tell whether LP_k reaches the target; greedy and its certificate often say so without an LP. None: not known."""
    what = f"c between {span[0]} and {span[1]}"
    clock.report(what)
    quick = bound(graph, k, order="user-degree")
    if quick.size >= target:
        return True
    if quick.upper_bound < target - 1:
        return False
    solved = clock.solve(graph, k, share, f"{what}, k = {k}", target=target)
    if solved.value >= target:
        return True
    return False if solved.upper_bound < target or solved.solver == "simplex" else None

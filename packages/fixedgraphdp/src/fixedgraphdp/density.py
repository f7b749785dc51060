"""How dense a graph is: the least budget that keeps a constant share of the examples."""

from __future__ import annotations

import math
from typing import NamedTuple

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
        False where an LP was too large or out of time: then c is an upper bound on :math:`c_\beta`, and the cover one
        on :math:`\tau^*`, each by the few percent that the approximate solver leaves open.
    """

    c: int
    beta: float
    cover: float
    n_over_cover: float
    max_degree: int
    mean_degree: float
    r: int
    exact: bool


def density(graph: AttributionGraph, beta: float = 0.5, *, time_limit: float = 600.0) -> Density:
    r"""Measure the density :math:`c_\beta(G)`.

    About 1 for disjoint users, :math:`(1-\beta) n` for one user in everything.

    Parameters
    ----------
    graph
        At least one example.
    beta
        The share of the examples that may be lost, in [0, 1).
    time_limit
        Seconds for each LP.

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
    covering = lp.relaxation(graph, 1, capped=False, time_limit=time_limit)
    exact = covering.solver == "simplex"
    cover = (covering.value if exact else covering.upper_bound) - public
    target = (1 - beta) * graph.n_examples - 1e-6
    low = max(1, math.ceil((target - public) / cover - 1e-6)) if owned else 1
    high = max(low, int(graph.degrees.max(initial=1)))
    while low < high:
        middle = (low + high) // 2
        keeps = _keeps(graph, middle, target, time_limit)
        exact = exact and keeps is not None
        low, high = (low, middle) if keeps else (middle + 1, high)
    return Density(
        c=low,
        beta=beta,
        cover=float(cover),
        n_over_cover=graph.n_examples / cover if cover else float("inf"),
        max_degree=int(graph.degrees.max(initial=0)),
        mean_degree=float(graph.degrees.mean()) if graph.n_users else 0.0,
        r=graph.r,
        exact=exact,
    )


def _keeps(graph: AttributionGraph, k: int, target: float, time_limit: float) -> bool | None:
    """Tell whether LP_k reaches the target; greedy and its certificate often say so without an LP. None: not known."""
    quick = bound(graph, k, order="user-degree")
    if quick.size >= target:
        return True
    if quick.upper_bound < target - 1:
        return False
    solved = lp.relaxation(graph, k, time_limit=time_limit, target=target)
    if solved.value >= target:
        return True
    return False if solved.upper_bound < target or solved.solver == "simplex" else None

r"""Contribution bounding: the largest set of examples in which no user has more than k.

.. math:: \max |S| \quad\text{subject to}\quad \deg_S(v) \le k \text{ for every user } v

It sees the public graph and nothing else, so it costs no privacy; the contents cannot be passed to it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from fixedgraphdp import kernels, lp
from fixedgraphdp.errors import InfeasibleError
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.rounding import lp_candidates
from fixedgraphdp.rounds import parallel_rounds
from papers_shared.errors import InputError

METHODS = ("greedy", "greedy-then-swap", "rounds", "online", "lp", "exact")
ORDERS = ("size", "user-degree", "random", "given")


@dataclass(frozen=True)
class Bounded:
    r"""A k-bounded set of examples and how good it certainly is.

    Attributes
    ----------
    selected
        int64 ``(size,)``, ascending example numbers.
    weight
        Total weight :math:`w(S)`; the size without weights.
    lp_value
        Value of the linear relaxation, where it was solved.
    upper_bound
        No k-bounded set weighs more: a dual value of the relaxation, or the branch-and-bound's.
    ratio_certificate
        ``weight / upper_bound``: at least this share of the optimum is kept. Greedy's is at least 1/r.
    user_degrees
        int64 ``(v,)``, :math:`\deg_S(v) \le k`.
    notes
        What a reader should know, for example that the LP ran out of time.
    """

    selected: Int[np.ndarray, " s"]
    k: int
    method: str
    weight: float
    lp_value: float | None
    upper_bound: float
    user_degrees: Int[np.ndarray, " v"]
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many examples are kept."""
        return len(self.selected)

    @property
    def ratio_certificate(self) -> float:
        """At least this share of the best possible weight is kept."""
        return self.weight / self.upper_bound if self.upper_bound > 0 else 1.0


def bound(
    graph: AttributionGraph,
    k: Any,
    method: str = "greedy",
    *,
    weights: Float[np.ndarray, " n"] | None = None,
    key: int | None = None,
    trials: int = 16,
    order: str = "size",
    time_limit: float = 600.0,
) -> Bounded:
    r"""Choose a k-bounded set of examples.

    Parameters
    ----------
    graph
        Who owns what. There is no argument for contents or labels, so the choice cannot depend on them.
    k
        Budget of every user, a whole number of at least 1.
    method
        ``"greedy"``: in priority order, add what fits; :math:`w(OPT) \le r\, w(S)`. ``"rounds"``: the same set by
        parallel rounds. ``"online"``: greedy in the order of arrival. ``"greedy-then-swap"``: then exchange one
        example for one or two of more weight while that is possible. ``"lp"``: linear relaxation, sampling,
        alteration, augmentation; :math:`O(|V|^{1/(k+1)})`, usually within 5 % of the LP. ``"exact"``: integer
        programme.
    weights
        ``(n,)`` non-negative; heavier examples come first in the greedy order, which keeps the factor r.
    key
        Seed of random ties, random order and sampling; None breaks ties by number.
    trials
        Draws per sampling rate of ``"lp"``.
    order
        Priority of greedy among equal weights: ``"size"`` ascending |e|, ``"user-degree"`` ascending sum of the
        users' degrees (markedly better), ``"random"``, ``"given"`` by number.
    time_limit
        Seconds for the LP or integer solver.

    Returns
    -------
    Bounded
        With an upper bound that holds whatever the method.

    Raises
    ------
    InputError
        k is no whole number of at least 1; weights that are negative or of the wrong length; unknown names.
    InfeasibleError
        Nothing can be kept: the graph has no example.
    TypeError
        Something other than a graph is passed, for example (graph, labels).

    References
    ----------
    Ganesh et al., arXiv 2503.03622, algorithm 2 (greedy); "Scalable contribution bounding", arXiv 2507.23432 (rounds).

    Examples
    --------
    >>> kept = bound(AttributionGraph.from_lists([[0, 1], [1, 2], [2, 3]]), k=1)
    >>> kept.selected
    array([0, 2])
    """
    if not isinstance(graph, AttributionGraph):
        raise TypeError(f"bounding sees the public graph only, not {type(graph).__name__}")
    k = checked_budget(k)
    w = _checked_weights(graph, weights)
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}", hint=f"choose {', '.join(METHODS)}")
    if not graph.n_examples:
        raise InfeasibleError("the graph has no example, so nothing can be kept")
    begun = time.monotonic()
    ranking = priority(graph, "given" if method == "online" else order, weights=weights, key=key)
    lp_value, upper, notes = None, np.inf, ()
    if method == "lp":
        solved = lp.relaxation(graph, k, w, time_limit=time_limit)
        lp_value, upper = solved.value, solved.upper_bound
        notes = (f"{solved.solver}: {solved.note}",) if solved.note else ()
        chosen = lp_candidates(graph, k, w, solved.x, ranking, trials=trials, seed=key or 0).best
    elif method == "exact":
        found = lp.integer_optimum(graph, k, w, time_limit=time_limit)
        upper = found.upper_bound
        fallback = greedy_set(graph, k, ranking)
        chosen = found.chosen if w[found.chosen].sum() >= w[fallback].sum() else fallback
        notes = () if found.optimal else (f"not proven optimal within {time_limit:g} s",)
    elif method == "rounds":
        chosen = parallel_rounds(graph, k, ranking)
    else:
        chosen = greedy_set(graph, k, ranking)
        if method == "greedy-then-swap":
            chosen = _swap(graph, k, ranking, chosen, w)
    chosen = np.sort(chosen).astype(np.int64)
    upper = min(upper, greedy_certificate(graph, k, chosen, w))
    if weights is None:
        upper = float(np.floor(upper + 1e-6))
    return Bounded(
        selected=chosen,
        k=k,
        method=method,
        weight=float(w[chosen].sum()),
        lp_value=lp_value,
        upper_bound=upper,
        user_degrees=graph.user_degrees(chosen),
        seconds=time.monotonic() - begun,
        notes=notes,
    )


def priority(
    graph: AttributionGraph,
    order: str = "size",
    *,
    weights: Float[np.ndarray, " n"] | None = None,
    key: int | None = None,
) -> Int[np.ndarray, " n"]:
    """Return the examples in greedy's order, the first considered first.

    Parameters
    ----------
    graph, order, weights, key
        As in `bound`: descending weight, then the order's measure, then random under a key or by number.

    Raises
    ------
    InputError
        An unknown order.
    """
    n = graph.n_examples
    rng = np.random.default_rng(key)
    ranking = np.arange(n) if key is None and order != "random" else rng.permutation(n)
    if order == "size":
        measure = graph.sizes
    elif order == "user-degree":
        loads = graph.degrees[graph.example_users].astype(float)
        measure = np.bincount(graph.example_of_incidence, loads, n).astype(np.int64)
    elif order in ("random", "given"):
        measure = None
        ranking = ranking if order == "random" else np.arange(n)
    else:
        raise InputError(f"unknown order {order!r}", hint=f"choose {', '.join(ORDERS)}")
    # Stable sorts, the least important first.
    for values in (measure, None if weights is None else -weights):
        if values is not None:
            small = values.dtype.kind == "i" and values.max(initial=0) < 2**16
            keys = values.astype(np.uint16) if small else values  # NumPy sorts 16 bits by radix
            ranking = ranking[np.argsort(keys[ranking], kind="stable")]
    return ranking


def greedy_certificate(
    graph: AttributionGraph, k: int, selected: Int[np.ndarray, " s"], weights: Float[np.ndarray, " n"]
) -> float:
    r"""Bound the optimum by a set in which nothing more fits, in one pass and without an LP.

    Every example outside S has a saturated user; that user's price :math:`y_v` is the heaviest example charged to it,
    and :math:`z_e = \max(0, w_e - y(e))`. This is feasible in the dual, so
    :math:`w(OPT) \le k \sum_v y_v + \sum_e z_e`, which without weights is at most :math:`r |S|`. Infinite when
    something still fits.
    """
    degree, inside = _state(graph, selected)
    prices = np.zeros(graph.n_users)
    return kernels.charge(graph.example_ptr, graph.example_users, k, degree, inside, weights.astype(float), prices)


def checked_budget(k: Any) -> int:
    """Return k as an int.

    Raises
    ------
    InputError
        It is no whole number of at least 1.
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}")
    return int(k)


def _checked_weights(graph: AttributionGraph, weights: np.ndarray | None) -> np.ndarray:
    if weights is None:
        return np.ones(graph.n_examples)
    if weights.shape != (graph.n_examples,) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError(f"weights must be {graph.n_examples} finite non-negative numbers")
    return weights


def _state(graph: AttributionGraph, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    selected = np.zeros(graph.n_examples, bool)
    selected[chosen] = True
    return graph.user_degrees(chosen).astype(np.int64), selected


def greedy_set(graph: AttributionGraph, k: int, ranking: Int[np.ndarray, " n"]) -> Int[np.ndarray, " s"]:
    """Return what sequential greedy keeps when it goes through the examples in the order ``ranking``, ascending."""
    degree, selected = np.zeros(graph.n_users, np.int64), np.zeros(graph.n_examples, bool)
    kernels.admit(ranking, graph.example_ptr, graph.example_users, k, degree, selected)
    return np.flatnonzero(selected)


def _swap(graph: AttributionGraph, k: int, ranking: np.ndarray, chosen: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Exchange until nothing improves, then fill up; at most 50 passes."""
    degree, selected = _state(graph, chosen)
    for _ in range(50):
        swaps = kernels.swap_pass(
            ranking,
            graph.example_ptr,
            graph.example_users,
            graph.user_ptr,
            graph.user_examples,
            w.astype(np.float64),
            k,
            degree,
            selected,
        )
        kernels.admit(ranking, graph.example_ptr, graph.example_users, k, degree, selected)
        if not swaps:
            break
    return np.flatnonzero(selected)


class OnlineBounder:
    """Greedy for examples that arrive one by one and cannot be called back.

    Parameters
    ----------
    k
        Budget of every user.

    Examples
    --------
    >>> gate = OnlineBounder(k=1)
    >>> gate.offer(["ann", "bob"]), gate.offer(["bob", "eve"])
    (True, False)
    """

    def __init__(self, k: int) -> None:
        self.k = checked_budget(k)
        self.degree: dict[Any, int] = {}

    def offer(self, users: list[Any]) -> bool:
        """Take the example if all its users have budget left, and say whether it was taken."""
        people = set(users)
        if any(self.degree.get(user, 0) >= self.k for user in people):
            return False
        for user in people:
            self.degree[user] = self.degree.get(user, 0) + 1
        return True

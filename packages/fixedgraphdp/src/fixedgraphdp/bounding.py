r"""Contribution bounding: the largest set of examples in which no user has more than k.

.. math:: \max |S| \quad\text{subject to}\quad \deg_S(v) \le k \text{ for every user } v

It sees the public graph and nothing else, so it costs no privacy; the contents cannot be passed to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fixedgraphdp import lp
from fixedgraphdp.errors import InfeasibleError
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.greedy import certificate, certified_greedy, checked_budget, greedy_set, improved_by_swaps
from fixedgraphdp.ranking import priority
from fixedgraphdp.rounding import lp_candidates
from fixedgraphdp.rounds import parallel_rounds
from papers_shared.errors import InputError

METHODS = ("greedy", "greedy-then-swap", "rounds", "online", "lp", "exact")


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


class _Found(NamedTuple):
    """What a method gives: the set, a bound on the optimum, degrees if it comes with a certificate, LP value, notes."""

    chosen: Int[np.ndarray, " s"]
    upper_bound: float = np.inf
    degree: Int[np.ndarray, " v"] | None = None
    lp_value: float | None = None
    notes: tuple[str, ...] = ()


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
    progress: Callable[[float, str], None] = lambda share, note: None,
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
    progress
        Called with the share of the work done and a note while ``"lp"`` solves a large graph.

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
    begun = time.monotonic()
    k = _checked(graph, k, method, weights)
    if method == "online":
        ranking = priority(graph, "given")
    else:
        ranking = priority(graph, order, weights=weights, key=key)
    if method == "lp":
        rankings = [ranking] if order == "size" else [ranking, priority(graph, "size", weights=weights)]
        found = _by_relaxation(graph, k, _weights(graph, weights), rankings, trials, key or 0, time_limit, progress)
    elif method == "exact":
        found = _by_branching(graph, k, _weights(graph, weights), ranking, time_limit)
    elif method == "rounds":
        found = _Found(parallel_rounds(graph, k, ranking))
    elif method == "greedy-then-swap":
        w = _weights(graph, weights)
        found = _Found(improved_by_swaps(graph, k, ranking, greedy_set(graph, k, ranking), w))
    elif weights is None:
        chosen, degree, upper = certified_greedy(graph, k, ranking)
        found = _Found(chosen, upper, degree)
    else:
        found = _Found(greedy_set(graph, k, ranking))
    return _finished(graph, k, method, found, weights, ranking, begun)


def certified(graph: AttributionGraph, k: Any, chosen: Int[np.ndarray, " s"], *, method: str = "given") -> Bounded:
    """Check a set chosen elsewhere, by other code or at random, and tell how good it certainly is.

    Parameters
    ----------
    graph, k
        As in `bound`.
    chosen
        Example numbers in any order.
    method
        A name for the result.

    Raises
    ------
    InputError
        A user has more than k examples in the set; an example is named twice or is not in the graph.
    """
    begun = time.monotonic()
    k = checked_budget(k)
    inside = np.unique(chosen)
    if len(inside) != len(chosen) or (len(inside) and not 0 <= inside[0] <= inside[-1] < graph.n_examples):
        raise InputError(f"the set must name examples of the graph, 0 to {graph.n_examples - 1}, once each")
    degree = graph.user_degrees(inside)
    if degree.max(initial=0) > k:
        worst = int(degree.argmax())
        raise InputError(f"user {graph.user_ids[worst]} has {degree[worst]} examples in the set, more than k = {k}")
    ranking = priority(graph, "given")
    return _finished(graph, k, method, _Found(inside, float(graph.n_examples)), None, ranking, begun)


def _by_relaxation(
    graph: AttributionGraph,
    k: int,
    w: np.ndarray,
    rankings: list[np.ndarray],
    trials: int,
    seed: int,
    limit: float,
    progress: Callable[[float, str], None],
) -> _Found:
    """Solve the LP, nine tenths of the work on a large graph, and round it."""
    solved = lp.relaxation(
        graph, k, w, time_limit=limit, progress=lambda share, note: progress(0.9 * share, f"LP, {note}")
    )
    rounding = lp_candidates(
        graph, k, w, solved.x, rankings, trials=trials, seed=seed,
        progress=lambda share: progress(0.9 + 0.1 * share, "rounding"),
    )  # fmt: skip
    chosen = rounding.best
    notes = (f"{solved.solver}: {solved.note}",) if solved.note else ()
    return _Found(chosen, solved.upper_bound, lp_value=solved.value, notes=notes)


def _by_branching(graph: AttributionGraph, k: int, w: np.ndarray, ranking: np.ndarray, limit: float) -> _Found:
    """Solve the integer programme; greedy's set stands in when time is up before anything better is found."""
    solved = lp.integer_optimum(graph, k, w, time_limit=limit)
    chosen, fallback = solved.chosen, greedy_set(graph, k, ranking)
    if w[fallback].sum() > w[chosen].sum():
        chosen = fallback
    notes = () if solved.optimal else (f"not proven optimal within {limit:g} s",)
    return _Found(chosen, solved.upper_bound, notes=notes)


def _finished(
    graph: AttributionGraph,
    k: int,
    method: str,
    found: _Found,
    weights: np.ndarray | None,
    ranking: np.ndarray,
    begun: float,
) -> Bounded:
    """Add the degrees and the certificate, unless greedy brought them along."""
    chosen, upper, degree = found.chosen, found.upper_bound, found.degree
    if degree is None:
        degree = graph.user_degrees(chosen)
        upper = min(upper, certificate(graph, k, chosen, _weights(graph, weights), ranking))
    return Bounded(
        selected=chosen,
        k=k,
        method=method,
        weight=float(len(chosen) if weights is None else weights[chosen].sum()),
        lp_value=found.lp_value,
        upper_bound=float(np.floor(upper + 1e-6)) if weights is None else upper,
        user_degrees=degree,
        seconds=time.monotonic() - begun,
        notes=found.notes,
    )


def _checked(graph: AttributionGraph, k: Any, method: str, weights: np.ndarray | None) -> int:
    """Refuse what `bound` cannot work on; return k as an int."""
    if not isinstance(graph, AttributionGraph):
        raise TypeError(f"bounding sees the public graph only, not {type(graph).__name__}")
    if method not in METHODS:
        raise InputError(f"unknown method {method!r}", hint=f"choose {', '.join(METHODS)}")
    n = graph.n_examples
    if weights is not None and (weights.shape != (n,) or not np.isfinite(weights).all() or (weights < 0).any()):
        raise InputError(f"weights must be {n} finite non-negative numbers")
    budget = checked_budget(k)
    if not n:
        raise InfeasibleError("the graph has no example, so nothing can be kept")
    return budget


def _weights(graph: AttributionGraph, weights: np.ndarray | None) -> np.ndarray:
    return np.ones(graph.n_examples) if weights is None else weights

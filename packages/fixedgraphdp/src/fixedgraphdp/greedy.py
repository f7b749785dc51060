"""Greedy contribution bounding: sequential, online, improved by swaps, and the bound on the optimum it proves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fixedgraphdp import kernels
from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError


class Greedy(NamedTuple):
    """What greedy keeps, ascending; each user's kept examples; and a weight that no k-bounded set exceeds."""

    chosen: Int[np.ndarray, " s"]
    degree: Int[np.ndarray, " v"]
    upper_bound: float


def greedy_set(graph: AttributionGraph, k: int, ranking: Int[np.ndarray, " n"]) -> Int[np.ndarray, " s"]:
    """Return what sequential greedy keeps when it goes through the examples in the order ``ranking``, ascending."""
    degree, selected = np.zeros(graph.n_users, np.int64), np.zeros(graph.n_examples, bool)
    kernels.admit(ranking, graph.example_ptr, graph.example_users, k, degree, selected)
    return np.flatnonzero(selected)


def certified_greedy(graph: AttributionGraph, k: int, ranking: Int[np.ndarray, " n"]) -> Greedy:
    r"""Run greedy on examples of weight 1 and bound the optimum in the same pass, by the prices of `certificate`.

    Parameters
    ----------
    graph, k
        As in `fixedgraphdp.bounding.bound`.
    ranking
        int64 ``(n,)``, the examples, best first.
    """
    selected, degree = np.zeros(graph.n_examples, bool), np.zeros(graph.n_users, np.int64)
    state = np.zeros(graph.n_users, np.uint8)
    kernels.admit_marked(ranking, graph.example_ptr, graph.example_users, k, degree, selected, state)
    chosen = np.flatnonzero(selected)
    priced = state == 3
    users, example = graph.incidences_of(chosen)
    uncovered = np.bincount(example, priced[users], len(chosen)) == 0
    return Greedy(chosen, degree, float(k * int(priced.sum()) + int(uncovered.sum())))


def certificate(
    graph: AttributionGraph,
    k: int,
    selected: Int[np.ndarray, " s"],
    weights: Float[np.ndarray, " n"],
    ranking: Int[np.ndarray, " n"],
) -> float:
    r"""Bound the optimum by a set in which nothing more fits, in one pass and without an LP.

    Every example outside S has a full user. In greedy's order, one that its full users' prices :math:`y_v` do not
    cover yet raises one of them until they do; :math:`z_e = \max(0, w_e - y(e))` covers the selected ones. That is
    feasible in the dual, so :math:`w(OPT) \le k \sum_v y_v + \sum_{e \in S} z_e`. For greedy's own set
    :math:`y_v \le w_e` at each selected example of v, and v has k of them, so the bound is
    :math:`\sum_{e \in S} \max(w_e, y(e)) \le r\, w(S)`. Infinite when something still fits.

    Parameters
    ----------
    graph, k, weights
        As in `fixedgraphdp.bounding.bound`.
    selected
        A k-bounded set.
    ranking
        The order in which greedy went, or would.
    """
    inside = np.zeros(graph.n_examples, bool)
    inside[selected] = True
    degree, prices = np.zeros(graph.n_users, np.int64), np.zeros(graph.n_users)
    w = weights.astype(float)
    if not kernels.charge(ranking, graph.example_ptr, graph.example_users, k, w, inside, degree, prices):
        return float("inf")
    users, example = graph.incidences_of(selected)
    covered = np.bincount(example, prices[users], len(selected))
    return float(k * prices.sum() + np.maximum(0.0, w[selected] - covered).sum())


def improved_by_swaps(
    graph: AttributionGraph,
    k: int,
    ranking: Int[np.ndarray, " n"],
    chosen: Int[np.ndarray, " s"],
    weights: Float[np.ndarray, " n"],
) -> Int[np.ndarray, " t"]:
    """Exchange one example for one or two of more weight until nothing improves (at most 50 passes), and fill up."""
    selected, degree = np.zeros(graph.n_examples, bool), graph.user_degrees(chosen)
    selected[chosen] = True
    of_examples, of_users = (graph.example_ptr, graph.example_users), (graph.user_ptr, graph.user_examples)
    for _ in range(50):
        swaps = kernels.swap_pass(ranking, *of_examples, *of_users, weights.astype(float), k, degree, selected)
        kernels.admit(ranking, *of_examples, k, degree, selected)
        if not swaps:
            break
    return np.flatnonzero(selected)


LARGEST_BUDGET = 2**31 - 1


def checked_budget(k: Any) -> int:
    """Return k as an int.

    Raises
    ------
    InputError
        It is no whole number of at least 1, or does not fit the compiled loops.
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}")
    if k > LARGEST_BUDGET:
        raise InputError(f"k must be at most {LARGEST_BUDGET}, not {k}", hint="the largest degree keeps everything")
    return int(k)


class OnlineBounder:
    """Greedy for examples that arrive one by one and cannot be called back: one pass, no shuffle.

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

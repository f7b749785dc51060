"""What contribution bounding and its accounting are compared with."""

from __future__ import annotations

import networkx as nx
import numpy as np
from jaxtyping import Int

from fixedgraphdp import accounting
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.greedy import greedy_set
from fixedgraphdp.ranking import priority
from papers_shared.errors import InputError


def random_order(graph: AttributionGraph, k: int, *, seed: int = 0) -> Int[np.ndarray, " s"]:
    """Run greedy in a random order of the examples."""
    return greedy_set(graph, k, priority(graph, "random", key=seed))


def truncate_per_user(graph: AttributionGraph, k: int) -> Int[np.ndarray, " s"]:
    """Let every user keep its first k examples; an example stays only if all its users keep it."""
    place = np.arange(graph.n_incidences) - np.repeat(graph.user_ptr[:-1], graph.degrees)
    votes = np.bincount(graph.user_examples[place < k], minlength=graph.n_examples)
    return np.flatnonzero(votes == graph.sizes)


def group_privacy_epsilon(degree: int, q: float, sigma: float, steps: int, delta: float) -> float:
    r"""Turn example-level accounting into user-level by group privacy over the user's examples.

    With :math:`m` examples, :math:`\epsilon = m \epsilon_1` at
    :math:`\delta = \delta_1 (e^{m\epsilon_1} - 1)/(e^{\epsilon_1} - 1)`; solved for the least :math:`\epsilon_1`.
    """
    spent = accounting.composed(1, q, sigma, steps, interval=accounting.SEARCH)

    def excess(one: float) -> float:
        exponent = min(degree * one, 700.0)
        grown = np.expm1(exponent) / np.expm1(one) if one > 0 else degree
        return float(spent.get_delta_for_epsilon(one)) * grown - delta

    low, high = 0.0, 1.0
    while excess(high) > 0:
        high *= 2
        if high > 700:
            return float("inf")
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return degree * high


def published_greedy_k1(lists: list[list[int]]) -> list[int]:
    """Read the published k = 1 multi-owner greedy literally: by size, then number, skip an example with a user seen.

    References
    ----------
    Ganesh et al., arXiv 2503.03622, algorithm 2 at k = 1.
    """
    seen: set[int] = set()
    selected = []
    for e in sorted(range(len(lists)), key=lambda number: (len(lists[number]), number)):
        if all(user not in seen for user in lists[e]):
            selected.append(e)
            seen.update(lists[e])
    return sorted(selected)


def maximum_matching(graph: AttributionGraph) -> int:
    """Return the exact optimum for k = 1 and examples of two users, by networkx's maximum matching.

    Raises
    ------
    InputError
        An example has another number of users.
    """
    if not (graph.sizes == 2).all():
        raise InputError("matching needs two users in every example")
    pairs = graph.example_users.reshape(-1, 2).tolist()
    return len(nx.max_weight_matching(nx.Graph(map(tuple, pairs)), maxcardinality=True))

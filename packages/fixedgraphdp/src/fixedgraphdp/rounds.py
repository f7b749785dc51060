"""Greedy in parallel rounds, two group-bys each, with the sequential algorithm's result.

Here in memory; `fixedgraphdp.rounds_sql` runs the same rounds in DuckDB and Spark, `fixedgraphdp.rounds_beam` in Beam.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from fixedgraphdp.graph import AttributionGraph


def parallel_rounds(
    graph: AttributionGraph, k: int, ranking: Int[np.ndarray, " n"], *, max_rounds: int | None = None
) -> Int[np.ndarray, " s"]:
    r"""Run greedy for the priority ``ranking`` in rounds of vector operations.

    In a round each user with :math:`b_v = k - \deg_S(v) > 0` proposes its :math:`b_v` best examples among those still
    open; an example that all its users propose is taken; then those with a saturated user are closed.

    A taken example has, at each of its users, fewer than :math:`b_v` open ones before it, so the sequential algorithm
    takes it too; and a user is saturated only by examples better than every open one it has left, so nothing closed
    would have been taken. Hence both give the same set.

    Parameters
    ----------
    graph, k
        As in `fixedgraphdp.bounding.bound`.
    ranking
        int64 ``(n,)``, the examples, best first.
    max_rounds
        Stop early; the set is then k-bounded but may not be maximal.

    Returns
    -------
    ndarray
        The taken examples, ascending.

    References
    ----------
    "Scalable contribution bounding", arXiv 2507.23432.
    """
    rank = np.empty(graph.n_examples, np.int64)
    rank[ranking] = np.arange(graph.n_examples)
    order = np.lexsort((rank[graph.example_of_incidence], graph.example_users))
    user, example = graph.example_users[order], graph.example_of_incidence[order]
    degree = np.zeros(graph.n_users, np.int64)
    taken = graph.sizes == 0
    done = 0
    while len(user) and (max_rounds is None or done < max_rounds):
        first = np.flatnonzero(np.r_[True, user[1:] != user[:-1]])
        place = np.arange(len(user)) - np.repeat(first, np.diff(np.r_[first, len(user)]))
        proposed = example[place < k - degree[user]]
        votes = np.bincount(proposed, minlength=graph.n_examples)
        new = (votes == graph.sizes) & (votes > 0)
        taken |= new
        degree += np.bincount(user[new[example]], minlength=graph.n_users)
        closed = new.copy()
        closed[example[degree[user] >= k]] = True
        live = ~closed[example]
        user, example = user[live], example[live]
        done += 1
    return np.flatnonzero(taken)

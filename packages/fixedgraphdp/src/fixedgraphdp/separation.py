"""Batch order for matrix-factorisation mechanisms: a user's appearances are b steps apart, at most k in all."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from fixedgraphdp.errors import InfeasibleError
from fixedgraphdp.graph import AttributionGraph


def separated_batches(
    graph: AttributionGraph, selected: Int[np.ndarray, " s"], *, batch_size: int, b: int, steps: int | None = None
) -> list[Int[np.ndarray, " batch"]]:
    """Place each example of a bounded set into the first batch that keeps its users b batches apart.

    With ``selected`` k-bounded, every user takes part at most k times, at least b batches apart: the (k, b)
    participation that DP-MF accountants ask for.

    Parameters
    ----------
    graph, selected
        The hypergraph and a bounded set.
    batch_size
        The most examples of a batch.
    b
        The least distance of two batches with one user; 1 only forbids the same batch.
    steps
        How many batches there may be; by default as many as it takes.

    Returns
    -------
    list of ndarray
        The examples of each batch.

    Raises
    ------
    InfeasibleError
        ``steps`` batches do not hold them this way.

    References
    ----------
    Ganesh et al., arXiv 2503.03622, section 5.
    """
    batches: list[list[int]] = []
    last: dict[int, list[int]] = {}
    by_load = np.argsort([-int(graph.degrees[graph.users_of(int(e))].max(initial=0)) for e in selected], kind="stable")
    first_open = 0
    for e in selected[by_load].tolist():
        users = graph.users_of(e).tolist()
        taken = [time for user in users for time in last.get(user, [])]
        place = first_open
        while any(abs(place - time) < b for time in taken) or (
            place < len(batches) and len(batches[place]) >= batch_size
        ):
            place += 1
        if steps is not None and place >= steps:
            raise InfeasibleError(
                f"{steps} batches of {batch_size} do not keep users {b} apart", hint="lower b or k, or allow more steps"
            )
        batches += [[] for _ in range(place + 1 - len(batches))]
        batches[place].append(e)
        for user in users:
            last.setdefault(user, []).append(place)
        while first_open < len(batches) and len(batches[first_open]) >= batch_size:
            first_open += 1
    return [np.array(batch, np.int64) for batch in batches]

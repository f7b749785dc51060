"""The order in which greedy looks at examples."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError

ORDERS = ("size", "user-degree", "random", "given")


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
        As in `fixedgraphdp.bounding.bound`: descending weight, then the order's measure, then random under a key or by
        number.

    Raises
    ------
    InputError
        An unknown order.
    """
    n = graph.n_examples
    measure = None
    if order == "size":
        measure = graph.sizes
    elif order == "user-degree":
        loads = graph.degrees[graph.example_users].astype(float)
        measure = np.bincount(graph.example_of_incidence, loads, n).astype(np.int64)
    elif order not in ORDERS:
        raise InputError(f"unknown order {order!r}", hint=f"choose {', '.join(ORDERS)}")
    by_number = order == "given" or (key is None and order != "random")
    ranking = np.arange(n) if by_number else np.random.default_rng(key).permutation(n)
    # Stable sorts, the least important first.
    for values in (measure, None if weights is None else -weights):
        if values is not None:
            small = values.dtype.kind == "i" and values.max(initial=0) < 2**16
            keys = (values.astype(np.uint16) if small else values)[ranking]  # NumPy sorts 16 bits by radix
            if (keys[1:] < keys[:-1]).any():
                ranking = ranking[np.argsort(keys, kind="stable")]
    return ranking

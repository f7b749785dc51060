"""From fractions to a set: independent sampling, alteration, augmentation, and the best of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fixedgraphdp import kernels
from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.greedy import greedy_set

STEPS = 6
"""Sampling rates tried, geometric from the whole fraction to the theory's."""


class Candidates(NamedTuple):
    """What sampling gave: the theory's set (its best feasible draw, perhaps none) and the best of all candidates."""

    theory: Int[np.ndarray, " t"] | None
    best: Int[np.ndarray, " s"]


def theory_alpha(n_users: int, k: int) -> float:
    r"""Return :math:`\alpha = e (2|V|)^{1/(k+1)}`.

    Keeping each example with probability :math:`x_e/\alpha` gives a user at most :math:`k/\alpha` in expectation, and
    by Chernoff :math:`P[\text{over } k] \le (e/\alpha)^{k+1} = 1/(2|V|)`: with probability 1/2 nobody is over.
    """
    return math.e * (2 * max(n_users, 1)) ** (1 / (k + 1))


def theory_rounding(
    graph: AttributionGraph,
    k: int,
    weights: Float[np.ndarray, " n"],
    x: Float[np.ndarray, " n"],
    *,
    trials: int = 16,
    seed: int = 0,
) -> Int[np.ndarray, " t"] | None:
    """Return the best feasible of ``trials`` independent draws at `theory_alpha` and nothing else; None if none is."""
    rng = np.random.default_rng(seed)
    alpha = theory_alpha(graph.n_users, k)
    best = None
    for _ in range(trials):
        drawn = np.flatnonzero(rng.random(graph.n_examples) < x / alpha)
        if graph.user_degrees(drawn).max(initial=0) <= k and (
            best is None or weights[drawn].sum() > weights[best].sum()
        ):
            best = drawn
    return best


def lp_candidates(
    graph: AttributionGraph,
    k: int,
    weights: Float[np.ndarray, " n"],
    x: Float[np.ndarray, " n"],
    rankings: Sequence[Int[np.ndarray, " n"]],
    *,
    trials: int = 16,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Candidates:
    """Round a fractional solution; the best is never below the theory's draws, nor below greedy in any of ``rankings``.

    At each of six rates from 1 to ``1/theory_alpha``, ``trials`` draws lose the least x of each user over k, and are
    filled up in the order of descending x, ascending size, number.

    Parameters
    ----------
    graph, k, weights
        As in `fixedgraphdp.bounding.bound`.
    x
        ``(n,)`` fractions in [0, 1].
    rankings
        Greedy's orders, for the candidates that sample nothing.
    trials, seed
        Draws per rate, and their seed.
    progress
        Called after each draw with the share of them that is done.
    """
    rng = np.random.default_rng([seed, 1])
    alpha = theory_alpha(graph.n_users, k)
    by_fraction = np.lexsort((np.arange(graph.n_examples), graph.sizes, -np.round(x, 9)))
    worst_first = by_fraction[::-1].copy()
    theory = theory_rounding(graph, k, weights, x, trials=trials, seed=seed)
    candidates = [greedy_set(graph, k, ranking) for ranking in rankings]
    for step, rate in enumerate(np.geomspace(1.0, alpha, STEPS)):
        for trial in range(trials):
            drawn = rng.random(graph.n_examples) < x / rate
            candidates.append(_completed(graph, k, drawn, worst_first, by_fraction))
            progress((step * trials + trial + 1) / (STEPS * trials))
            candidates = [max(candidates, key=lambda chosen: weights[chosen].sum())]
    if theory is not None:
        drawn = np.zeros(graph.n_examples, bool)
        drawn[theory] = True
        candidates.append(_completed(graph, k, drawn, worst_first, by_fraction))
    return Candidates(theory, max(candidates, key=lambda chosen: weights[chosen].sum()))


def _completed(
    graph: AttributionGraph, k: int, drawn: np.ndarray, worst_first: np.ndarray, fill: np.ndarray
) -> np.ndarray:
    """Alter a draw until nobody is over k, then add what fits."""
    selected = drawn.copy()
    degree = graph.user_degrees(np.flatnonzero(selected)).astype(np.int64)
    kernels.drop_excess(worst_first, graph.example_ptr, graph.example_users, k, degree, selected)
    kernels.admit(fill, graph.example_ptr, graph.example_users, k, degree, selected)
    return np.flatnonzero(selected)

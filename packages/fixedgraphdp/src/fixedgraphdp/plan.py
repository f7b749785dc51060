"""What is settled before training, from the public graph alone: the set, its weights, the noise, the guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fixedgraphdp import accounting
from fixedgraphdp.bias import ht_weights, inclusion_probabilities
from fixedgraphdp.bounding import Bounded, bound
from fixedgraphdp.errors import InfeasibleError
from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError

RUNS = 200
"""Draws for the inclusion probabilities behind Horvitz-Thompson weights."""


@dataclass(frozen=True)
class PrivacyReport:
    """What a training run guarantees and how.

    Attributes
    ----------
    epsilon, delta, adjacency
        The user-level guarantee of the finished run.
    k
        The most examples any user has in the training set.
    noise_multiplier, clip, w_max
        Noise of a step is ``noise_multiplier * w_max * clip``; a user moves the sum by at most ``k * w_max * clip``.
    q, steps, size
        Sampling rate, number of steps, examples in the training set.
    """

    epsilon: float
    delta: float
    adjacency: str
    k: int
    noise_multiplier: float
    clip: float
    w_max: float
    q: float
    steps: int
    size: int


class Plan(NamedTuple):
    """A bounded set, the weight of every example of the graph, and the guarantee of training with them."""

    bounded: Bounded
    weights: Float[np.ndarray, " n"]
    report: PrivacyReport


def make_plan(
    graph: AttributionGraph,
    k: int,
    eps: float,
    delta: float,
    *,
    adjacency: str = "zero-out",
    q: float | None = None,
    steps: int = 300,
    clip: float = 1.0,
    method: str = "greedy",
    order: str = "user-degree",
    weights: str | None = None,
    w_max: float = 4.0,
    key: int | None = None,
    bounded: Bounded | None = None,
) -> Plan:
    """Bound the graph and find the least noise whose `fixedgraphdp.accounting.epsilon` meets the budget.

    Parameters
    ----------
    graph, k
        Who owns what, and the budget of every user.
    eps, delta, adjacency
        The guarantee to meet after ``steps``.
    q, steps
        Sampling rate (by default 256 expected examples) and number of batches.
    clip
        Clip norm :math:`C` of an example's gradient.
    method, order, key
        Of the bounding.
    weights
        ``"ht"`` weights examples against selection bias, up to ``w_max``; None weights all alike. The weights undo the
        bias of a set drawn at random, so ``key`` is then 0 unless given.
    bounded
        A set bounded before, in place of ``method``, ``order`` and ``key``; what it says of itself is not trusted, its
        users' degrees are counted anew.

    Raises
    ------
    InfeasibleError
        Nothing is left to train on.
    BudgetError
        No noise meets the budget.
    InputError
        An argument out of range.
    """
    if weights not in (None, "ht"):
        raise InputError(f"unknown weights {weights!r}", hint="choose ht, or none")
    if not 0 < clip < np.inf:
        raise InputError(f"the clip norm must be positive, not {clip}")
    if weights == "ht" and key is None:
        key = 0
    kept = bound(graph, k, method, order=order, key=key) if bounded is None else bounded
    if not kept.size:
        raise InfeasibleError("the bounded set is empty, so there is nothing to train on")
    w = np.ones(graph.n_examples)
    if weights == "ht":
        p = inclusion_probabilities(graph, k, method=method, order=order, runs=RUNS)
        w = ht_weights(np.maximum(p, 0.5 / RUNS), w_max)
    rate = min(1.0, 256 / kept.size) if q is None else q
    worst = int(graph.user_degrees(kept.selected).max(initial=0))
    sigma = accounting.noise_multiplier(eps, max(worst, 1), rate, steps, delta, adjacency)
    report = PrivacyReport(
        epsilon=accounting.epsilon(max(worst, 1), rate, sigma, steps, delta, adjacency),
        delta=delta,
        adjacency=adjacency,
        k=worst,
        noise_multiplier=sigma,
        clip=clip,
        w_max=w_max if weights == "ht" else 1.0,
        q=rate,
        steps=steps,
        size=kept.size,
    )
    return Plan(kept, w, report)


def poisson_batch(plan: Plan, seed: int, step: int) -> np.ndarray:
    """Return the examples of one step: a coin of rate q for each of S, a function of the seed and the step."""
    coins = np.random.default_rng([seed, step, 5]).random(plan.bounded.size)
    return plan.bounded.selected[coins < plan.report.q]

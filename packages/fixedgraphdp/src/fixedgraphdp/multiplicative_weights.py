"""A packing LP by multiplicative weights: each step is two sparse products, and the gap it stops at is certified."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array

from fixedgraphdp.graph import AttributionGraph


class Packing(NamedTuple):
    """A feasible ``x``, its value, and prices whose dual value bounds every other."""

    x: Float[np.ndarray, " n"]
    value: float
    upper_bound: float
    prices: Float[np.ndarray, " v"]
    steps: int

    @property
    def gap(self) -> float:
        """How far the value may be below the optimum, as a share of the bound."""
        return 1 - self.value / self.upper_bound if self.upper_bound > 0 else 0.0


def packing(
    graph: AttributionGraph,
    k: int,
    weights: Float[np.ndarray, " n"],
    *,
    eta: float = 0.05,
    capped: bool = True,
    max_steps: int = 20_000,
    time_limit: float = float("inf"),
    target: float | None = None,
    progress: Callable[[float, str], None] = lambda share, note: None,
) -> Packing:
    r"""Solve the bounding LP to a relative gap ``eta`` between a feasible point and a dual bound.

    Minimises :math:`\mu \sum_j e^{((Ax)_j - 1)/\mu} - w^\top x` by the multiplicative update
    :math:`x_e \leftarrow x_e \exp(-\alpha \,\mathrm{clip}(g_e, -1, 1))`, with
    :math:`g_e = (A^\top p)_e / w_e - 1`, :math:`p_j = e^{((Ax)_j - 1)/\mu}` and :math:`\alpha = \mu / 2`.
    The rows of A are the users, divided by k, and the caps :math:`x_e \le 1`. The smoothing :math:`\mu` starts at 1/4
    and halves, once the gap no longer shrinks, down to :math:`\eta / (4 \ln(m n/\eta))`, where the theory's guarantee
    holds; the gap usually closes long before. Every 20 steps x is scaled to be feasible and the prices p, now and on
    average, are evaluated in the dual; the best of both are kept.

    Parameters
    ----------
    graph, k, weights, capped
        As in `fixedgraphdp.lp.relaxation`; examples of weight zero get x = 0.
    eta
        Relative gap to stop at, in (0, 1).
    max_steps, time_limit
        Stop after so many steps or seconds in any case; the bound returned is valid whenever it stops.
    target
        Stop as soon as it is certain whether the optimum reaches this value.
    progress
        Called every 20 steps with the share of the time or steps used, whichever is larger, and the gap in words.

    References
    ----------
    Allen-Zhu and Orecchia, "Using optimization to break the epsilon barrier", SODA 2015, section 2.
    """
    n, v = graph.n_examples, graph.n_users
    a = csr_array((np.ones(graph.n_incidences), graph.example_users, graph.example_ptr), shape=(n, v))
    at = csr_array((np.ones(graph.n_incidences), graph.user_examples, graph.user_ptr), shape=(v, n))
    used = weights > 0
    w = np.where(used, weights, 1.0)
    scale = float(w[used].max(initial=1.0))
    w = w / scale
    single = capped | (graph.sizes == 0)
    rows = v + n
    smallest = eta / (4 * np.log(rows * n / eta + 2))
    mu = max(0.25, smallest)
    width = np.maximum((at @ used.astype(float))[graph.example_users], 1.0)
    largest = np.ones(n)
    np.maximum.at(largest, graph.example_of_incidence, width / k)
    x = np.where(used, (1 - eta / 2) / largest, 0.0)
    best = Packing(np.zeros(n), 0.0, np.inf, np.zeros(v), 0)
    mean_p, count, begun = np.zeros(v), 0, time.monotonic()
    gap, since = 1.0, 0
    for step in range(1, max_steps + 1):
        p = np.exp(np.minimum((at @ x / k - 1) / mu, 50.0))
        caps = np.where(single, np.exp(np.minimum((x - 1) / mu, 50.0)), 0.0)
        gradient = np.clip((a @ p / k + caps) / w - 1, -1.0, 1.0)
        x *= np.exp(-mu / 2 * gradient)
        mean_p += p
        count += 1
        if step % 20 == 0 or step == max_steps:
            best = _better(best, graph, a, at, x, (p / k, mean_p / count / k), weights, scale, k, capped, step)
            decided = target is not None and (best.value >= target or best.upper_bound < target)
            before, gap = gap, best.gap
            elapsed = time.monotonic() - begun
            progress(min(1.0, max(elapsed / max(time_limit, 1e-9), step / max_steps)), f"gap {gap:.1%}")
            if decided or gap <= eta or elapsed > time_limit:
                break
            if gap > 0.97 * before and step - since >= 40:
                # The average starts anew, without the prices of a coarser problem.
                mu, mean_p, count, since = max(mu / 2, smallest), np.zeros(v), 0, step
    return best


def _better(
    best: Packing,
    graph: AttributionGraph,
    a: csr_array,
    at: csr_array,
    x: np.ndarray,
    candidates: tuple[np.ndarray, ...],
    weights: np.ndarray,
    scale: float,
    k: int,
    capped: bool,
    step: int,
) -> Packing:
    """Make x feasible, evaluate the candidate prices, and keep what improves."""
    caps = np.where(capped | (graph.sizes == 0), 1.0, float(k))  # without its own cap, x_e <= k all the same
    load = at @ x / k
    fair = x / np.maximum(1.0, np.maximum.reduceat(np.append(load[graph.example_users], 0.0), graph.example_ptr[:-1])
                          if graph.n_incidences else 1.0)  # fmt: skip
    fair = np.where(graph.sizes > 0, fair, x)
    if capped:
        fair = np.minimum(fair, 1.0)
    value = float(weights @ fair)
    if value > best.value:
        best = best._replace(x=fair, value=value)
    for prices in candidates:
        prices = prices * scale
        covered = a @ prices
        bound = float(k * prices.sum() + caps @ np.maximum(0.0, weights - covered))
        if bound < best.upper_bound:
            best = best._replace(upper_bound=bound, prices=prices)
    return best._replace(steps=step)

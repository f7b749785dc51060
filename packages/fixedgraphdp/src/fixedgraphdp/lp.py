"""The linear and integer programmes of contribution bounding, with a dual certificate that stands on its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import highspy
import numpy as np
from highspy._core import _Highs
from jaxtyping import Float

from fixedgraphdp.graph import AttributionGraph
from fixedgraphdp.multiplicative_weights import packing

LARGE = 2_000_000
"""More incidences than this go to the multiplicative-weights solver at once."""


class LPSolution(NamedTuple):
    r"""A fractional bounding and a proof of how good any bounding can be.

    Attributes
    ----------
    x
        float64 ``(n,)``, the fraction of each example, feasible up to the solver's 1e-7.
    value
        :math:`\sum_e w_e x_e`.
    upper_bound
        The dual value :math:`k \sum_v y_v + \sum_e \max(0, w_e - y(e))` of ``prices``: no k-bounded set weighs more,
        whatever the solver's tolerances.
    prices
        float64 ``(v,)``, :math:`y \ge 0`.
    solver
        ``"simplex"`` or ``"multiplicative weights"``.
    note
        Empty, or why this solver was taken.
    """

    x: Float[np.ndarray, " n"]
    value: float
    upper_bound: float
    prices: Float[np.ndarray, " v"]
    solver: str
    seconds: float
    note: str


class IntegerSolution(NamedTuple):
    """A bounding by branch and bound: the chosen examples, and the solver's proven upper bound."""

    chosen: np.ndarray
    upper_bound: float
    optimal: bool


def dual_value(
    graph: AttributionGraph, k: int, prices: Float[np.ndarray, " v"], weights: Float[np.ndarray, " n"]
) -> float:
    r"""Return :math:`k \sum_v y_v + \sum_e \max(0, w_e - \sum_{v \in e} y_v)`, an upper bound for any :math:`y \ge 0`.

    Users of no more than k examples never bind, so their price may as well be zero.
    """
    covered = np.bincount(graph.example_of_incidence, prices[graph.example_users], graph.n_examples)
    return float(k * prices.sum() + np.maximum(0.0, weights - covered).sum())


def relaxation(
    graph: AttributionGraph,
    k: int,
    weights: Float[np.ndarray, " n"] | None = None,
    *,
    capped: bool = True,
    time_limit: float = 600.0,
    eta: float = 0.05,
    target: float | None = None,
    progress: Callable[[float, str], None] = lambda share, note: None,
) -> LPSolution:
    r"""Solve :math:`\max \sum_e w_e x_e` subject to :math:`\sum_{e \ni v} x_e \le k` and :math:`0 \le x_e \le 1`.

    Parameters
    ----------
    graph, k
        The hypergraph and the budget of every user.
    weights
        ``(n,)`` non-negative; by default ones.
    capped
        False leaves out :math:`x_e \le 1`; with k = 1 the dual is then the fractional cover.
    time_limit
        Seconds for each solver. When HiGHS runs out of them, multiplicative weights take over and ``note`` says so;
        when these do, their gap is wider than ``eta`` and the bound as valid.
    eta
        The relative gap at which multiplicative weights stop.
    target
        They also stop when it is certain whether the optimum reaches this value.
    progress
        Called by multiplicative weights with the share of their time or steps used, and the gap in words.

    Returns
    -------
    LPSolution
        With a valid ``upper_bound`` in every case.
    """
    w = np.ones(graph.n_examples) if weights is None else weights
    begun = time.monotonic()
    note = f"more than {LARGE} incidences" if graph.n_incidences > LARGE else ""
    if not note:
        model = _model(graph, k, w, capped)
        model.setOptionValue("time_limit", float(time_limit))
        model.run()
        if model.getModelStatus() == highspy.HighsModelStatus.kOptimal:
            found = model.getSolution()
            x = np.clip(np.array(found.col_value), 0.0, 1.0 if capped else np.inf)
            prices = np.zeros(graph.n_users)
            prices[_binding(graph, k, capped)] = np.maximum(0.0, -np.array(found.row_dual))
            bound = dual_value(graph, k, prices, w) if capped else _cover_value(graph, k, prices, w)
            return LPSolution(x, float(w @ x), bound, prices, "simplex", time.monotonic() - begun, "")
        note = f"the LP did not finish within {time_limit:g} s"
    solved = packing(graph, k, w, eta=eta, capped=capped, time_limit=time_limit, target=target, progress=progress)
    seconds = time.monotonic() - begun
    note += f"; stopped after {seconds:.0f} s with a certified gap of {solved.gap:.1%}"
    return LPSolution(
        solved.x, solved.value, solved.upper_bound, solved.prices, "multiplicative weights", seconds, note
    )


def integer_optimum(
    graph: AttributionGraph, k: int, weights: Float[np.ndarray, " n"] | None = None, *, time_limit: float = 600.0
) -> IntegerSolution:
    """Solve the same with x in {0, 1} by branch and bound; exact when it ends within ``time_limit`` seconds."""
    w = np.ones(graph.n_examples) if weights is None else weights
    model = _model(graph, k, w, True)
    columns = np.arange(graph.n_examples, dtype=np.int32)
    model.changeColsIntegrality(
        graph.n_examples, columns, np.full(graph.n_examples, highspy.HighsVarType.kInteger, dtype=object)
    )
    model.setOptionValue("time_limit", float(time_limit))
    model.setOptionValue("mip_rel_gap", 0.0)
    model.run()
    optimal = model.getModelStatus() == highspy.HighsModelStatus.kOptimal
    x = np.array(model.getSolution().col_value)
    chosen = np.flatnonzero(x > 0.5) if len(x) else np.empty(0, np.int64)
    bound = float(w[chosen].sum()) if optimal else -float(model.getInfo().mip_dual_bound)
    return IntegerSolution(chosen, bound, optimal)


def _binding(graph: AttributionGraph, k: int, capped: bool) -> np.ndarray:
    """Users whose constraint can bind."""
    return np.flatnonzero(graph.degrees > k) if capped else np.flatnonzero(graph.degrees > 0)


def _cover_value(graph: AttributionGraph, k: int, prices: np.ndarray, w: np.ndarray) -> float:
    """Scale prices until they cover every owned example; their sum and the public weight bound the uncapped programme.

    A solver's prices are short by its tolerance only; where they are not, they prove nothing.
    """
    covered = np.bincount(graph.example_of_incidence, prices[graph.example_users], graph.n_examples)
    owned = graph.sizes > 0
    short = np.max(w[owned] / np.maximum(covered[owned], 1e-300), initial=0.0)
    return float(k * prices.sum() * max(short, 1.0) + w[~owned].sum() if short < 2 else np.inf)


def _model(graph: AttributionGraph, k: int, w: np.ndarray, capped: bool) -> Any:
    rows = _binding(graph, k, capped)
    number = np.full(graph.n_users, -1)
    number[rows] = np.arange(len(rows))
    index = number[graph.example_users]
    kept = index >= 0
    counts = np.bincount(graph.example_of_incidence[kept], minlength=graph.n_examples)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = graph.n_examples, len(rows)
    lp.sense_ = highspy.ObjSense.kMinimize
    lp.col_cost_ = -w
    lp.col_lower_ = np.zeros(graph.n_examples)
    lp.col_upper_ = np.where((graph.sizes > 0) & (not capped), highspy.kHighsInf, 1.0)
    lp.row_lower_ = np.full(len(rows), -highspy.kHighsInf)
    lp.row_upper_ = np.full(len(rows), float(k))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = graph.n_examples, len(rows)
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    lp.a_matrix_.index_ = index[kept].astype(np.int32)
    lp.a_matrix_.value_ = np.ones(int(kept.sum()))
    model = _Highs()  # the plain solver: the class around it prints a banner on stdout when it is made
    model.setOptionValue("output_flag", False)
    model.passModel(lp)
    return model

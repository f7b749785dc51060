"""What proves a kernel's matching to be of least cost: its dual value, feasible duals, complementary slackness."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dynmatch.primal_dual import DenseKernel


def dual_value(kernel: DenseKernel) -> float:
    r"""Return :math:`\sum w_a u_a + \sum w_b v_b - U \cdot` (free units), a lower bound on any matching's cost."""
    value = 0.0
    for s in range(2):
        n = int(kernel.count[s])
        value += float(kernel.nodes[s, :n, 0] @ kernel.duals[s, :n])
        if kernel.count[2 + s]:
            value -= int(kernel.count[2 + s]) * float(kernel.duals[s, :n].max())
    return value


def check(kernel: DenseKernel, tolerance: float = 1e-9) -> None:
    """Verify conservation, feasible duals, complementary slackness, the running cost; O(n^2) time, O(n) memory.

    Raises
    ------
    AssertionError
        Naming what is violated.
    """
    sums = [np.zeros(int(kernel.count[s]), np.int64) for s in range(2)]
    running, entries = 0.0, 0
    for i in range(int(kernel.count[0])):
        e = int(kernel.nodes[0, i, 2])
        while e >= 0:
            a, b, units = (int(v) for v in kernel.flows[e, :3])
            assert a == i, f"flow record {e} lies in the list of another node"
            assert units > 0, f"flow record {e} carries {units} units"
            sums[0][a] += units
            sums[1][b] += units
            running += units * float(kernel.flow_cost[e])
            entries += 1
            e = int(kernel.flows[e, 3])
    assert entries == kernel.count[5], "live flow records miscounted"
    for s in range(2):
        table = kernel.nodes[s, : kernel.count[s]]
        assert (sums[s] + table[:, 1] == table[:, 0]).all(), "matched plus free units differ from the weight"
        assert table[:, 1].sum() == kernel.count[2 + s], "free units miscounted"
        assert {int(k): i for i, k in enumerate(table[:, 3])} == kernel.slots[s], "slots disagree with keys"
    assert kernel.count[2] == 0 or kernel.count[3] == 0, "free units on both sides: the matching is not maximum"
    assert abs(running - kernel.cost) <= tolerance * max(running, 1e-300), f"cost {kernel.cost} is not {running}"
    _check_duals(kernel, tolerance)


def _check_duals(kernel: DenseKernel, tolerance: float) -> None:
    n, m = int(kernel.count[0]), int(kernel.count[1])
    largest = 1e-300
    for i in range(n if m else 0):
        row = kernel.costs_from(0, i)
        largest = max(largest, float(row.max()), float(np.abs(kernel.duals[0, i])))
        slack = row - kernel.duals[0, i] - kernel.duals[1, :m]
        assert slack.min() >= -tolerance * largest, f"pair ({i}, {int(slack.argmin())}) has reduced cost {slack.min()}"
        e = int(kernel.nodes[0, i, 2])
        while e >= 0:
            b = int(kernel.flows[e, 1])
            assert abs(slack[b]) <= tolerance * largest, f"matched pair ({i}, {b}) is not tight: {slack[b]}"
            e = int(kernel.flows[e, 3])
    for s in range(2):
        free = np.flatnonzero(kernel.nodes[s, : kernel.count[s], 1] > 0)
        if len(free) and kernel.count[1 - s]:
            top = kernel.duals[s, : kernel.count[s]].max()
            assert (top - kernel.duals[s, free] <= tolerance * largest).all(), "a free point's dual is below U"

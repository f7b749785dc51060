r"""The dynamic primal-dual min-cost matching that every matcher here is built on.

.. math:: \min \sum_{ab} c(a, b) f_{ab}, \qquad \sum_b f_{ab} \le w_a, \; \sum_a f_{ab} \le w_b, \;
          \sum f = \min(W_A, W_B)

An inserted or deleted unit costs one Dijkstra search on reduced costs, O(n) a scanned point; memory is O(n).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from dynmatch import augment, certificate
from dynmatch.costs import CALLABLE, PRECOMPUTED, Metric, Real
from dynmatch.row_search import search_by_rows

_LOG = logging.getLogger(__name__)

Event = tuple[int, int, int]
"""(side, key, units): a node has gained (positive) or lost free units."""


class DenseKernel:
    """A maximum matching of minimum cost between two changing weighted sets.

    Parameters
    ----------
    metric
        Distances between points.
    dim
        Coordinates of a point (1 for a matrix).
    power
        The cost is ``distance ** power``.
    unit
        If positive, the search sees distances rounded up to multiples of it; the reported cost stays true.
    search
        If given, the first ``search`` columns of a point steer the search and the rest are its true coordinates.
    """

    def __init__(
        self,
        metric: Metric,
        dim: int,
        power: Real = 1.0,
        unit: Real = 0.0,
        search: int | None = None,
        capacity: int = 4,
    ) -> None:
        self.metric, self.dim, self.power = metric, dim, float(power)
        self.unit, self.search_dim = float(unit), search
        self.scale = 1.0
        self.law = metric.law(self.power, self.scale, dim, self.unit, search)
        self._low: np.ndarray | None = None
        self._high: np.ndarray | None = None
        self._clear(capacity)

    def _clear(self, capacity: int) -> None:
        self.nodes = np.zeros((2, capacity, 4), np.int64)
        self.duals = np.zeros((2, capacity))
        self.coords = np.zeros((2, capacity, self.dim))
        self.flows = np.zeros((2 * capacity, 7), np.int64)
        self.flow_cost = np.zeros(2 * capacity)
        self.count = np.zeros(8, np.int64)
        self.total = np.zeros(3)
        self._chain_unused(0)
        self.slots: tuple[dict[int, int], dict[int, int]] = ({}, {})

    # -- sizes ---------------------------------------------------------------------------------------------------

    def _chain_unused(self, first: int) -> None:
        self.flows[first:, 3] = np.arange(first + 1, len(self.flows) + 1)
        self.flows[-1, 3] = self.count[4] if first else -1
        self.count[4] = first

    def _grow(self) -> None:
        old = self.nodes.shape[1]
        self.nodes = np.concatenate([self.nodes, np.zeros_like(self.nodes)], axis=1)
        self.duals = np.concatenate([self.duals, np.zeros_like(self.duals)], axis=1)
        self.coords = np.concatenate([self.coords, np.zeros_like(self.coords)], axis=1)
        self.flows = np.concatenate([self.flows, np.zeros_like(self.flows)])
        self.flow_cost = np.concatenate([self.flow_cost, np.zeros_like(self.flow_cost)])
        self._chain_unused(2 * old)

    def __len__(self) -> int:
        return int(self.count[0] + self.count[1])

    # -- updates -------------------------------------------------------------------------------------------------

    def add(self, side: int, key: int, point: Float[np.ndarray, " d"], units: int = 1) -> list[Event]:
        """Add units to a node, new or known, and return whose free units changed."""
        slot = self.slots[side].get(key)
        fresh = slot is None
        if slot is None:
            events = self._fit_scale(point) if self.power != 1.0 else []
            if self.count[side] == self.nodes.shape[1]:
                self._grow()
            slot = int(self.count[side])
            self.count[side] += 1
            self.nodes[side, slot] = (0, 0, -1, key)
            self.coords[side, slot] = point
            self.slots[side][key] = slot
        else:
            events = []
        self.nodes[side, slot, 0] += units
        try:
            return events + self._place(side, slot, units, fresh)
        except Exception:  # of a metric given as a callable, before its first search has changed anything
            if fresh and self.nodes[side, slot, 2] < 0 and not self.nodes[side, slot, 1]:
                self._forget(side, slot, key)
            raise

    def remove(self, side: int, key: int, units: int = 1) -> list[Event]:
        """Take units off a node, free ones first; a node without units is forgotten."""
        slot = self.slots[side][key]
        events: list[Event] = []
        nodes = self.nodes
        free = min(units, int(nodes[side, slot, 1]))
        if free:
            nodes[side, slot, 1] -= free
            self.count[2 + side] -= free
            events.append((side, key, -free))
        nodes[side, slot, 0] -= units
        widowed: list[tuple[int, int]] = []
        left = units - free
        while left:
            e = int(nodes[side, slot, 2])
            taken = min(left, int(self.flows[e, 2]))
            other = int(self.flows[e, 1 - side])
            augment.lessen(nodes, self.flows, self.flow_cost, self.count, self.total, e, taken)
            widowed.append((other, taken))
            left -= taken
        if not nodes[side, slot, 0]:
            self._forget(side, slot, key)
        for other, taken in widowed:
            events += self._place(1 - side, other, taken, False)
        return events + self._refresh()

    def _forget(self, side: int, slot: int, key: int) -> None:
        moved = augment.drop_node(self.nodes, self.duals, self.coords, self.flows, self.count, side, slot)
        del self.slots[side][key]
        if moved >= 0:
            self.slots[side][int(moved)] = slot

    def _place(self, side: int, slot: int, units: int, fresh: bool) -> list[Event]:
        events: list[Event] = []
        while units:
            # One path uses at most one flow record more than it frees.
            if self.count[4] < 0 or self.flows[self.count[4], 3] < 0:
                self._grow()
            own, target, moved = self._search(side, slot, units, fresh)
            fresh = False
            units -= moved
            end = side if own else 1 - side
            events.append((end, int(self.nodes[end, target, 3]), moved if own else -moved))
        return events

    def _search(self, side: int, slot: int, units: int, fresh: bool) -> tuple[bool, int, int]:
        if self.metric.kind == CALLABLE:
            return search_by_rows(self, side, slot, units, fresh)
        return augment.search(
            self.nodes,
            self.duals,
            self.coords,
            self.flows,
            self.flow_cost,
            self.count,
            self.total,
            self.metric.matrix,
            self.law,
            side,
            slot,
            units,
            fresh,
        )

    def costs_from(self, side: int, slot: int) -> Float[np.ndarray, " m"]:
        """Costs from a node to all of the other side."""
        n = int(self.count[1 - side])
        if self.metric.kind == CALLABLE:
            row = self.metric.row(self.coords[side, slot], self.coords[1 - side, :n]) if n else np.empty(0)
            return row if self.power == 1.0 and self.scale == 1.0 else (row / self.scale) ** self.power
        row = np.empty(n)
        augment.cost_row(self.coords[side, slot], self.coords[1 - side], side, self.metric.matrix, self.law, row)
        return row

    # -- precision -----------------------------------------------------------------------------------------------

    def _fit_scale(self, point: Float[np.ndarray, " d"]) -> list[Event]:
        """Choose S in ``(d / S)^p`` by the largest possible distance, so that a large p does not overflow."""
        if self.metric.kind >= 1:
            self._low = point.copy() if self._low is None else np.minimum(self._low, point)
            self._high = point.copy() if self._high is None else np.maximum(self._high, point)
        widest = self._widest(point)
        if widest <= 0 or abs(self.power * math.log2(widest / self.scale)) <= 400:
            return []
        if self.scale != 1.0 and widest < self.scale:
            return []
        return self._rescale(widest)

    def _widest(self, point: Float[np.ndarray, " d"]) -> float:
        """Bound the distances among the present points and this one."""
        if self.metric.kind >= 1:
            assert self._low is not None
            return float(np.linalg.norm(self._high - self._low, ord=self.metric.kind))
        if self.metric.kind == PRECOMPUTED:
            return float(self.metric.matrix.max(initial=0.0))
        rows = [self.metric.row(point, self.coords[s, : self.count[s]]) for s in range(2) if self.count[s]]
        return 2 * max((float(row.max()) for row in rows), default=0.0)

    def _rescale(self, widest: float) -> list[Event]:
        self.scale = 2.0 ** math.ceil(math.log2(widest))
        _LOG.warning(
            "costs are scaled: p = %g and distances up to %.3g would overflow; S = %.3g", self.power, widest, self.scale
        )
        self.law = self.metric.law(self.power, self.scale, self.dim, self.unit, self.search_dim)
        return self.resolve()

    def _refresh(self) -> list[Event]:
        """Solve again when a point far beyond the rest has gone: its size has eaten the duals' digits, or fixed S."""
        side = 0 if self.count[0] else 1
        if not self.count[0] or not self.count[1]:
            return []
        if self.scale != 1.0 and self.metric.kind != PRECOMPUTED:
            if self.metric.kind >= 1:
                held = np.concatenate([self.coords[s, : self.count[s]] for s in range(2)])
                self._low, self._high = held.min(axis=0), held.max(axis=0)
            widest = self._widest(self.coords[side, 0])
            if widest > 0 and self.power * math.log2(widest / self.scale) < -400:
                return self._rescale(widest)
        live = self.flow_cost[self.flows[:, 2] > 0]
        if self.total[2] < max(1e-290, 1000 * float(live.max(initial=0.0))):
            return []
        near = float(self.costs_from(side, 0).max())
        if near <= 0 or self.total[2] < 1000 * 2.0**self.power * near:
            return []
        return self.resolve()

    def resolve(self) -> list[Event]:
        """Solve from scratch and return how the free units differ from before."""
        before = self.free_units()
        held = [
            (s, int(self.nodes[s, i, 3]), self.coords[s, i].copy(), int(self.nodes[s, i, 0]))
            for s in range(2)
            for i in range(int(self.count[s]))
        ]
        work = self.count[6:].copy()
        self._clear(self.nodes.shape[1])
        self.count[6:] = work
        for s, key, point, units in held:
            self.nodes[s, (slot := int(self.count[s]))] = (units, 0, -1, key)
            self.count[s] += 1
            self.coords[s, slot] = point
            self.slots[s][key] = slot
            self._place(s, slot, units, True)
        after = self.free_units()
        return [
            (s, key, after.get((s, key), 0) - before.get((s, key), 0))
            for s, key in sorted(before | after)
            if after.get((s, key), 0) != before.get((s, key), 0)
        ]

    # -- answers -------------------------------------------------------------------------------------------------

    @property
    def cost(self) -> float:
        """Sum of the pairs' costs, in units of ``scale ** power``; O(1)."""
        return max(0.0, float(self.total[0]))

    def free_units(self) -> dict[tuple[int, int], int]:
        """Free units by (side, key)."""
        found = {}
        for s in range(2):
            if self.count[2 + s]:
                table = self.nodes[s, : self.count[s]]
                found |= {(s, int(key)): int(free) for _, free, _, key in table[table[:, 1] > 0]}
        return found

    def pairs(self) -> Iterator[tuple[int, int, int, float]]:
        """Yield (key of A, key of B, units, cost of one unit), in the order of A's nodes."""
        for i in range(int(self.count[0])):
            e = int(self.nodes[0, i, 2])
            while e >= 0:
                _, b, units = (int(v) for v in self.flows[e, :3])
                yield int(self.nodes[0, i, 3]), int(self.nodes[1, b, 3]), units, float(self.flow_cost[e])
                e = int(self.flows[e, 3])

    def mates(self, side: int, key: int) -> list[tuple[int, int, float]]:
        """Return (key, units, cost of one unit) of what a node is matched to."""
        found = []
        e = int(self.nodes[side, self.slots[side][key], 2])
        while e >= 0:
            other = int(self.flows[e, 1 - side])
            found.append((int(self.nodes[1 - side, other, 3]), int(self.flows[e, 2]), float(self.flow_cost[e])))
            e = int(self.flows[e, 3 + 2 * side])
        return found

    def dual_value(self) -> float:
        """Return the dual objective, a lower bound on any matching's cost."""
        return certificate.dual_value(self)

    def check(self, tolerance: float = 1e-9) -> None:
        """Verify all invariants; see `certificate.check`."""
        certificate.check(self, tolerance)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that decides later answers, as plain arrays and numbers."""
        n, ends = int(max(self.count[:2])), len(self.flows)
        box = [] if self._low is None else [self._low, self._high]
        return {
            "capacity": self.nodes.shape[1],
            "nodes": self.nodes[:, :n].copy(),
            "duals": self.duals[:, :n].copy(),
            "coords": self.coords[:, :n].copy(),
            "flows": self.flows[:ends].copy(),
            "flow_cost": self.flow_cost[:ends].copy(),
            "count": self.count.copy(),
            "total": self.total.copy(),
            "scale": self.scale,
            "box": box,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave: all later updates and answers are the same, bit for bit."""
        self._clear(int(state["capacity"]))
        n = state["nodes"].shape[1]
        self.nodes[:, :n], self.duals[:, :n], self.coords[:, :n] = state["nodes"], state["duals"], state["coords"]
        self.flows, self.flow_cost = state["flows"].copy(), state["flow_cost"].copy()
        self.count, self.total = state["count"].copy(), state["total"].copy()
        self.scale = float(state["scale"])
        self.law = self.metric.law(self.power, self.scale, self.dim, self.unit, self.search_dim)
        self._low, self._high = state["box"] if state["box"] else (None, None)
        for s in range(2):
            self.slots[s].update({int(k): i for i, k in enumerate(self.nodes[s, : self.count[s], 3])})

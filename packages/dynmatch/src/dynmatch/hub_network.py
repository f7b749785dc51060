"""The hub network's arrays: growth, joining and leaving points, its invariants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dynmatch import hub_arcs, hub_flow
from dynmatch.landmarks import ZERO_LEVEL

_ARRAYS = (
    "points",
    "pi",
    "attach",
    "levels",
    "level_pi",
    "direct",
    "direct_cost",
    "hub_low",
    "totals",
    "count",
    "sizes",
)


class HubNetwork:
    """A min-cost flow on landmark chains that changes by one search per unit.

    Attributes
    ----------
    sizes
        Levels, attachments and direct arcs in use (dead ones included).
    count
        Free units of A and of B, relaxed arcs, searches.
    totals
        Pay cost and direct cost, each a double-double.
    """

    def __init__(self, points: int, hubs: int) -> None:
        self.points = np.zeros((points, 7), np.int64)
        self.points[:, 0] = -1
        self.pi = np.zeros(points)
        self.attach = np.zeros((64, 5), np.int64)
        self.levels = np.zeros((64, 9), np.int64)
        self.level_pi = np.zeros((64, 3))
        self.direct = np.zeros((64, 7), np.int64)
        self.direct_cost = np.zeros(64)
        self.hub_low = np.full(hubs, -1, np.int64)
        self.dirty = np.zeros(hubs, np.int8)
        self.totals = np.zeros((2, 2))
        self.count = np.zeros(4, np.int64)
        self.sizes = np.zeros(3, np.int64)
        self.n_points = 0
        self.dead = self.dead_direct = 0
        self.rescale = False
        self._scratch()

    def _scratch(self) -> None:
        nodes = len(self.points) + 2 * len(self.levels)
        self.dist = np.full(nodes, np.inf)
        self.parent = np.zeros((nodes, 4), np.int64)
        self.position = np.full(nodes, -1, np.int64)
        self.heap = np.zeros(nodes, np.int64)
        self.touched = np.zeros(nodes, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        scratch = ("dist", "parent", "position", "heap", "touched", "dirty")
        return sum(int(getattr(self, name).nbytes) for name in (*_ARRAYS, *scratch))

    def _grown(self, array: np.ndarray, need: int, fill: int = 0) -> np.ndarray:
        size = len(array)
        if need <= size:
            return array
        more = max(need, size + size // 2) - size
        return np.concatenate([array, np.full((more, *array.shape[1:]), fill, array.dtype)])

    def new_point(self, side: int, weight: int) -> int:
        """Register a point without attachments."""
        slot = self.n_points
        self.n_points += 1
        if self.n_points > len(self.points):
            self.points = self._grown(self.points, self.n_points, -1)
            self.pi = self._grown(self.pi, len(self.points))
            self._scratch()
        self.points[slot] = (side, weight, 0, 0, 0, -1, 0)
        return slot

    def join(
        self,
        slot: int,
        hubs: Int[np.ndarray, " m"],
        steps: Int[np.ndarray, " m"],
        pays: Float[np.ndarray, " m"],
        others: Int[np.ndarray, " e"],
        costs: Float[np.ndarray, " e"],
    ) -> None:
        """Attach a new point at its levels, and give it its direct arcs."""
        m = len(hubs)
        self.attach = self._grown(self.attach, int(self.sizes[1]) + m)
        before = len(self.levels)
        self.levels = self._grown(self.levels, int(self.sizes[0]) + m)
        self.level_pi = self._grown(self.level_pi, len(self.levels))
        if len(self.levels) != before:
            self._scratch()
        self.direct = self._grown(self.direct, int(self.sizes[2]) + len(others))
        self.direct_cost = self._grown(self.direct_cost, len(self.direct))
        top = int(hubs.max(initial=-1)) + 1
        self.hub_low = self._grown(self.hub_low, top, -1)
        self.dirty = self._grown(self.dirty, len(self.hub_low))
        hub_arcs.join(
            self.points,
            self.pi,
            self.attach,
            self.levels,
            self.level_pi,
            self.hub_low,
            self.direct,
            self.direct_cost,
            self.sizes,
            slot,
            hubs,
            steps,
            pays,
            others,
            costs,
        )

    @property
    def _flowing(self) -> tuple[np.ndarray, ...]:
        """What a change of flow reads and writes."""
        arcs = (self.attach, self.levels, self.level_pi, self.direct, self.direct_cost)
        return *arcs, self.dirty, self.totals

    def place(self, side: int, slot: int, units: int) -> None:
        """Match pending units of a point, one search after the other."""
        while units:
            _, _, moved = hub_flow.search(
                self.points,
                self.pi,
                self.n_points,
                *self._flowing,
                self.count,
                self.dist,
                self.parent,
                self.heap,
                self.position,
                self.touched,
                side,
                slot,
                units,
            )
            units -= int(moved)

    def leave(self, side: int, slot: int) -> None:
        """Remove a point: undo its flow path by path, then let each partner search anew."""
        point = self.points[slot]
        self.count[side] -= int(point[2])
        left = int(point[1] - point[2])
        self.points[slot, 2] = 0
        path = np.empty((len(self.levels) + 4, 2), np.int64)
        widowed = []
        while left:
            other, units = hub_flow.cancel(
                self.points,
                *self._flowing,
                side,
                slot,
                left,
                path,
            )
            widowed.append((int(other), int(units)))
            left -= int(units)
        self.dead += int(self.points[slot, 4])
        self.dead_direct += int(hub_arcs.part(self.points, self.attach, self.levels, self.direct, slot))
        for other, units in widowed:
            self.place(1 - side, other, units)

    def direct_pairs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (slot of A, slot of B, units) of direct arcs with flow."""
        used = self.direct[: int(self.sizes[2])]
        yield from used[(used[:, 2] > 0) & (used[:, 0] >= 0), :3].tolist()

    def check(self, tolerance: float = 1e-7) -> None:
        """Verify conservation at points and levels, feasible potentials, complementary slackness, both costs."""
        n_levels, n_attach, n_direct = (int(v) for v in self.sizes)
        points, levels, pi = self.points[: self.n_points], self.levels[:n_levels], self.pi
        attach, direct = self.attach[:n_attach], self.direct[:n_direct]
        attach, arcs = attach[attach[:, 0] >= 0], np.flatnonzero(direct[:, 0] >= 0)
        cost = self.direct_cost[arcs]
        a, b, run = direct[arcs, 0], direct[arcs, 1], direct[arcs, 2]
        alive = points[:, 0] >= 0
        out = np.bincount(attach[:, 0], weights=attach[:, 2], minlength=len(points))
        out += np.bincount(a, weights=run, minlength=len(points)) + np.bincount(b, weights=run, minlength=len(points))
        assert (out[alive] == points[alive, 6]).all(), "a point's flow differs from its matched units"
        assert (points[alive, 6] + points[alive, 2] == points[alive, 1]).all(), (
            "matched plus free units miss the weight"
        )
        for s in range(2):
            assert points[points[:, 0] == s, 2].sum() == self.count[s], "free units miscounted"
        assert not (self.count[0] and self.count[1]), "free units on both sides"
        for copy in range(2):
            mine = attach[points[attach[:, 0], 0] == copy]
            enters = np.bincount(mine[:, 1], weights=mine[:, 2], minlength=n_levels)
            down = levels[:, 2]
            enters += np.where(down >= 0, levels[np.maximum(down, 0), 5 + copy], 0)
            leaves = levels[:, 7] + np.where(levels[:, 1] >= 0, levels[:, 5 + copy], 0)
            assert (enters == leaves).all(), "flow is not conserved at a level"
        large = max(
            1e-300,
            float(np.abs(self.level_pi[:n_levels]).max(initial=0)),
            float(np.abs(pi[: len(points)]).max(initial=0)),
        )
        slacks = [(cost + pi[a] - pi[b], run)]
        for copy, sign in ((0, 1.0), (1, -1.0)):
            mine = attach[points[attach[:, 0], 0] == copy]
            slacks.append((sign * (pi[mine[:, 0]] - self.level_pi[mine[:, 1], copy]), mine[:, 2]))
            joined = np.flatnonzero(levels[:, 1] >= 0)
            up = levels[joined, 1]
            slacks.append((sign * (self.level_pi[joined, copy] - self.level_pi[up, copy]), levels[joined, 5 + copy]))
        pay = self.level_pi[:n_levels]
        slacks.append((pay[:, 2] + pay[:, 0] - pay[:, 1], levels[:, 7]))
        for slack, flow in slacks:
            assert (slack >= -tolerance * large).all(), f"an arc has reduced cost {slack.min()}"
            assert (np.abs(slack[flow > 0]) <= tolerance * large).all(), "an arc with flow is not tight"
            assert (flow >= 0).all(), "negative flow"
        for s, sign in ((0, 1.0), (1, -1.0)):
            free = alive & (points[:, 0] == s) & (points[:, 2] > 0)
            if free.any():
                least = (sign * pi[: len(points)])[alive & (points[:, 0] == s)].min()
                assert ((sign * pi[: len(points)])[free] <= least + tolerance * large).all(), (
                    "a free point's dual is not extreme"
                )
        for value, expected in zip(self.totals[:, 0], (pay[:, 2] @ levels[:, 7], cost @ run), strict=True):
            assert abs(value - expected) <= tolerance * max(abs(expected), 1e-300) + 1e-290, "the network cost is wrong"
        assert (levels[levels[:, 8] == ZERO_LEVEL, 2] < 0).all(), "the radius-0 level is not lowest"

    def state(self) -> dict[str, Any]:
        """Return all arrays."""
        return {name: getattr(self, name) for name in _ARRAYS} | {
            "n_points": self.n_points,
            "dead": self.dead,
            "dead_direct": self.dead_direct,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        for name, value in state.items():
            setattr(self, name, value)
        self.dirty = np.zeros(len(self.hub_low), np.int8)
        self._scratch()

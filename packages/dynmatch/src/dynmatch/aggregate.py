"""The aggregate in-cell engine: children stand for their points, at their centres, with their excess as supply."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from dynmatch.costs import Metric
from dynmatch.primal_dual import DenseKernel, Event

Child = tuple[int, ...]


class AggregateEngine:
    """Match children of a cell by their excess; which points of a child go where is arbitrary.

    A cell of b^d children costs a kernel of that many nodes however many points the children carry up, at the price
    of an error of one child diameter a pair. Meant for d <= 3 and crowded cells.

    Parameters
    ----------
    metric
        The ground norm.
    dim
        Coordinates of a point.
    centre
        Gives a child's centre from its integer coordinates.
    """

    def __init__(self, metric: Metric, dim: int, centre: Any) -> None:
        self.metric, self.dim, self.centre = metric, dim, centre
        self.kernel = DenseKernel(metric, dim)
        self.number: dict[Child, int] = {}
        self.held: dict[int, dict[int, int]] = {}
        self.free: dict[int, dict[int, int]] = {}
        self.side: dict[int, int] = {}
        self.home: dict[tuple[int, int], Child] = {}
        self._next = 0

    def __len__(self) -> int:
        return sum(len(points) for points in self.held.values())

    def add(self, side: int, key: int, point: Float[np.ndarray, " d"], units: int, child: Child) -> list[Event]:
        """Add units of a point that ``child`` carries up."""
        c = self.number.get(child)
        if c is None:
            c = self.number[child] = self._next
            self._next += 1
            self.held[c], self.free[c], self.side[c] = {}, {}, side
        assert self.side[c] == side, "a child carries up both colours"
        self.home[side, key] = child
        self.held[c][key] = self.held[c].get(key, 0) + units
        changed = self.kernel.add(side, c, self.centre(child), units)
        return self._reconcile(c, changed, {}, prefer=key)

    def remove(self, side: int, key: int, units: int, child: Any = None) -> list[Event]:
        """Remove units of a point."""
        child = self.home[side, key]
        c = self.number[child]
        self.held[c][key] -= units
        lost = max(0, self.free[c].get(key, 0) - self.held[c][key])
        net: dict[tuple[int, int], int] = {}
        if lost:
            self._set_free(c, key, -lost, net)
        if not self.held[c][key]:
            del self.held[c][key], self.home[side, key]
        changed = self.kernel.remove(side, c, units)
        events = self._reconcile(c, changed, net)
        if not self.held[c]:
            del self.held[c], self.free[c], self.side[c], self.number[child]
        return events

    def _set_free(self, c: int, key: int, units: int, net: dict[tuple[int, int], int]) -> None:
        pool = self.free[c]
        pool[key] = pool.get(key, 0) + units
        if not pool[key]:
            del pool[key]
        place = (self.side[c], key)
        net[place] = net.get(place, 0) + units

    def _reconcile(
        self, touched: int, changed: list[Event], net: dict[tuple[int, int], int], prefer: int | None = None
    ) -> list[Event]:
        """Let each changed child have as many free points as the kernel says, moving as few as possible."""
        for c in dict.fromkeys([touched, *(c for _, c, _ in changed)]):
            slot = self.kernel.slots[self.side[c]].get(c)
            want = 0 if slot is None else int(self.kernel.nodes[self.side[c], slot, 1])
            pool = self.free[c]
            have = sum(pool.values())
            order = [prefer, *self.held[c]] if c == touched and prefer is not None else list(self.held[c])
            for key in order:
                if have >= want:
                    break
                step = min(want - have, self.held[c].get(key, 0) - pool.get(key, 0))
                if step > 0:
                    self._set_free(c, key, step, net)
                    have += step
            for key in list(reversed(pool)):
                if have <= want:
                    break
                step = min(have - want, pool[key])
                self._set_free(c, key, -step, net)
                have -= step
        return [(s, k, n) for (s, k), n in sorted(net.items(), key=lambda item: item[1]) if n]

    def members(self) -> list[tuple[int, int, int]]:
        """Return (side, key, units) of all points."""
        return [(self.side[c], key, units) for c, points in self.held.items() for key, units in points.items()]

    def free_units(self) -> dict[tuple[int, int], int]:
        """Free units by (side, key)."""
        return {(self.side[c], key): units for c, pool in self.free.items() for key, units in pool.items()}

    def pairs(self) -> list[tuple[int, int, int]]:
        """Return (key of A, key of B, units): each flow between children takes their matched points in order."""
        waiting = {
            c: [
                [key, units - self.free[c].get(key, 0)]
                for key, units in points.items()
                if units > self.free[c].get(key, 0)
            ]
            for c, points in self.held.items()
        }
        found = []
        for a, b, units, _ in self.kernel.pairs():
            left = units
            while left:
                mine, other = waiting[a][-1], waiting[b][-1]
                step = min(left, mine[1], other[1])
                found.append((mine[0], other[0], step))
                left -= step
                for c, item in ((a, mine), (b, other)):
                    item[1] -= step
                    if not item[1]:
                        waiting[c].pop()
        return found

    def check(self) -> None:
        """Verify the kernel and that points and children agree."""
        self.kernel.check()
        for child, c in self.number.items():
            slot = self.kernel.slots[self.side[c]][c]
            weight, free = (int(v) for v in self.kernel.nodes[self.side[c], slot, :2])
            assert weight == sum(self.held[c].values()), f"child {child} and its points disagree"
            assert free == sum(self.free[c].values()), f"child {child}'s free points are miscounted"
            assert all(n <= self.held[c][k] for k, n in self.free[c].items()), "more free units than units"

    def state(self) -> dict[str, Any]:
        """Return the engine as plain values."""
        return {
            "kernel": self.kernel.state(),
            "next": self._next,
            "children": [
                [
                    list(child),
                    c,
                    self.side[c],
                    [[k, n] for k, n in self.held[c].items()],
                    [[k, n] for k, n in self.free[c].items()],
                ]
                for child, c in self.number.items()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        self.kernel.restore(state["kernel"])
        self._next = int(state["next"])
        for child, c, side, held, free in state["children"]:
            self.number[tuple(child)], self.side[c] = c, side
            self.held[c], self.free[c] = dict(held), dict(free)
            self.home |= {(side, k): tuple(child) for k, _ in held}

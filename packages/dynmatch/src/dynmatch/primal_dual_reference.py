"""The dynamic matching as its definition says: explicit dummies, Bellman-Ford, no potentials. Right by inspection.

Tests hold `dynmatch.primal_dual` and `dynmatch.hub_network` to what stands here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Node = tuple[str, int]


class LiteralMatcher:
    """Both sides balanced with dummies, which cost 0 to every point of the other side; one search per update."""

    def __init__(self, cost: Callable[[Any, Any], float]) -> None:
        self.cost_of = cost
        self.sides: tuple[dict[Node, Any], dict[Node, Any]] = ({}, {})
        self.mate: dict[tuple[int, Node], Node] = {}
        self.dummies = 0

    def _cost(self, a: Node, b: Node) -> float:
        x, y = self.sides[0][a], self.sides[1][b]
        return 0.0 if x is None or y is None else self.cost_of(x, y)

    def _dummy(self, side: int) -> Node | None:
        return next((node for node, point in self.sides[side].items() if point is None), None)

    def _add(self, side: int, node: Node, point: Any) -> None:
        self.sides[side][node] = point

    def _drop(self, side: int, node: Node) -> Node | None:
        del self.sides[side][node]
        partner = self.mate.pop((side, node), None)
        if partner is not None:
            del self.mate[1 - side, partner]
        return partner

    def insert(self, side: int, key: int, point: Any) -> None:
        """Add a point: it takes a dummy's place, or the other side gets a dummy."""
        self._add(side, ("point", key), point)
        dummy = self._dummy(side)
        if dummy is not None:
            self._drop(side, dummy)
        else:
            self.dummies += 1
            self._add(1 - side, ("dummy", self.dummies), None)
        self._augment()

    def delete(self, side: int, key: int) -> None:
        """Remove a point: a dummy of the other side goes with it, or one comes to this side."""
        self._drop(side, ("point", key))
        dummy = self._dummy(1 - side)
        if dummy is not None:
            self._drop(1 - side, dummy)
        else:
            self.dummies += 1
            self._add(side, ("dummy", self.dummies), None)
        self._augment()

    def _augment(self) -> None:
        """Match the one free pair that is left along the cheapest alternating path."""
        source = next((a for a in self.sides[0] if (0, a) not in self.mate), None)
        if source is None:
            return
        distance = {(s, n): math.inf for s in range(2) for n in self.sides[s]}
        came: dict[tuple[int, Node], tuple[int, Node]] = {}
        distance[0, source] = 0.0
        for _ in range(len(distance)):
            changed = False
            for a in self.sides[0]:
                for b in self.sides[1]:
                    if self.mate.get((0, a)) == b:
                        start, end, length = (1, b), (0, a), -self._cost(a, b)
                    else:
                        start, end, length = (0, a), (1, b), self._cost(a, b)
                    if distance[start] + length < distance[end] - 1e-12:
                        distance[end], came[end], changed = distance[start] + length, start, True
            if not changed:
                break
        target = min((b for b in self.sides[1] if (1, b) not in self.mate), key=lambda b: distance[1, b])
        node = (1, target)
        path = [node]
        while node != (0, source):
            node = came[node]
            path.append(node)
        for (_, b), (_, a) in zip(path[::2], path[1::2], strict=True):
            self.mate[1, b], self.mate[0, a] = a, b

    def total(self) -> float:
        """Return the sum of the pairs' costs."""
        return math.fsum(self._cost(a, b) for (side, a), b in self.mate.items() if side == 0)


def hub_network_cost(matcher: Any, resolution: float = 1e-7) -> float:
    """Solve a `HubMatcher`'s network from scratch by networkx's network simplex, in whole multiples of ``resolution``.

    Parameters
    ----------
    matcher
        A small hub matcher.
    resolution
        Costs are rounded to it, because network simplex wants integers.

    Returns
    -------
    float
        The least cost of a maximum flow from A to B, in the matcher's scaled units.
    """
    import networkx as nx

    net = matcher.network
    flow: Any = nx.DiGraph()
    weights = [0, 0]

    def whole(cost: float) -> int:
        return round(float(cost) / resolution)

    alive = [q for q in range(net.n_points) if net.points[q, 0] >= 0]
    for q in alive:
        side, weight = int(net.points[q, 0]), int(net.points[q, 1])
        weights[side] += weight
        flow.add_node(("point", q), demand=-weight if side == 0 else weight)
    for e in range(int(net.sizes[1])):
        q, level = int(net.attach[e, 0]), int(net.attach[e, 1])
        if q >= 0:
            side = int(net.points[q, 0])
            ends = (("point", q), ("level", level, 0)) if side == 0 else (("level", level, 1), ("point", q))
            flow.add_edge(*ends, weight=0)
    for level in range(int(net.sizes[0])):
        up = int(net.levels[level, 1])
        flow.add_edge(("level", level, 0), ("level", level, 1), weight=whole(net.level_pi[level, 2]))
        if up >= 0:
            flow.add_edge(("level", level, 0), ("level", up, 0), weight=0)
            flow.add_edge(("level", up, 1), ("level", level, 1), weight=0)
    for e in range(int(net.sizes[2])):
        a, b = int(net.direct[e, 0]), int(net.direct[e, 1])
        if a >= 0:
            cost = whole(net.direct_cost[e])
            known = flow.get_edge_data(("point", a), ("point", b))
            flow.add_edge(("point", a), ("point", b), weight=cost if known is None else min(cost, known["weight"]))
    excess = weights[0] - weights[1]
    flow.add_node("dummy", demand=excess)
    for q in alive:
        if excess > 0 and net.points[q, 0] == 0:
            flow.add_edge(("point", q), "dummy", weight=0)
        if excess < 0 and net.points[q, 0] == 1:
            flow.add_edge("dummy", ("point", q), weight=0)
    return nx.network_simplex(flow)[0] * resolution

"""From the hub network's flow to pairs of points with their true distances, hub by hub, only where the flow changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from dynmatch import hub_arcs
from dynmatch.costs import Metric, Real
from dynmatch.hub_network import HubNetwork

SWAP_LIMIT = 24
"""Most pairs of one hub among which partners are exchanged."""

Pair = tuple[int, int, int, float]
"""Keys of A and B, units, distance."""


class HubPairs:
    """The pairs that run over hubs (direct arcs aside) and their cost.

    Parameters
    ----------
    metric, power
        d and p.
    point
        Gives a point's coordinates by key.
    swap
        Exchange partners within a hub while that shortens.
    """

    def __init__(self, metric: Metric, power: Real, point: Callable[[int], np.ndarray], swap: bool) -> None:
        self.metric, self.power, self.point, self.swap = metric, float(power), point, swap
        self.clear()

    def clear(self) -> None:
        """Forget all pairs."""
        self._paired: dict[int, list[Pair]] = {}
        self._cost: dict[int, float] = {}

    def __iter__(self) -> Iterator[Pair]:
        for paired in self._paired.values():
            yield from paired

    def total(self) -> float:
        """Return the sum of (d / S)^p over the pairs."""
        return math.fsum(self._cost.values())

    def settle(self, network: HubNetwork, keys: dict[int, int], scale: Real) -> None:
        """Pair the flow of every hub that has changed anew; ``keys`` gives points by their slot in the network."""
        for hub in np.flatnonzero(network.dirty[: len(network.hub_low)]).tolist():
            network.dirty[hub] = 0
            known = {pair[:2]: pair[3] for pair in self._paired.pop(hub, ())}
            self._cost.pop(hub, None)
            flow = hub_arcs.pair_hub(network.levels, network.attach, network.hub_low, hub).tolist()
            if not flow:
                continue
            pairs = [(keys[a], keys[b], units) for a, b, units in flow]
            if self.swap and 1 < len(pairs) <= SWAP_LIMIT:
                paired = self._exchanged(pairs, scale)
            else:
                paired = self._measured(pairs, known)
            self._paired[hub] = paired
            self._cost[hub] = math.fsum(n * (d / scale) ** self.power for _, _, n, d in paired)

    def distances(self, pairs: list[tuple[int, int]]) -> list[float]:
        """Return the true distances of pairs of keys."""
        if not pairs:
            return []
        first, second = (np.array([self.point(pair[side]) for pair in pairs]) for side in range(2))
        return self.metric.paired(first, second).tolist()

    def _measured(self, pairs: list[tuple[int, int, int]], known: dict[tuple[int, int], float]) -> list[Pair]:
        fresh = [pair[:2] for pair in pairs if pair[:2] not in known]
        known = known | dict(zip(fresh, self.distances(fresh), strict=True))
        return [(a, b, n, known[a, b]) for a, b, n in pairs]

    def _exchanged(self, pairs: list[tuple[int, int, int]], scale: Real) -> list[Pair]:
        """Exchange partners of two pairs of equal units while that lowers the cost."""
        units = [n for _, _, n in pairs]
        mates = list(range(len(pairs)))
        ends = np.array([self.point(b) for _, b, _ in pairs])
        table = np.stack([self.metric.row(self.point(a), ends) for a, _, _ in pairs])
        costs = (table / scale) ** self.power
        for _ in range(4):
            changed = False
            for i in range(len(pairs)):
                for j in range(i + 1, len(pairs)):
                    if units[i] == units[j]:
                        now = costs[i, mates[i]] + costs[j, mates[j]]
                        then = costs[i, mates[j]] + costs[j, mates[i]]
                        if then < now * (1 - 1e-12):
                            mates[i], mates[j] = mates[j], mates[i]
                            changed = True
            if not changed:
                break
        return [(a, pairs[mates[i]][1], n, float(table[i, mates[i]])) for i, (a, _, n) in enumerate(pairs)]

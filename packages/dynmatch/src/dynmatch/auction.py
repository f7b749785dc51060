r"""The auction on integer costs: the in-cell engine of the theory, driven by nearest-neighbour queries.

Costs are :math:`c = \max(1, \lceil d / \text{child diameter} \rceil) \le C`, prices integers in 0..C. The minority side
bids; a bidder i may keep object j while :math:`c_{ij} + p_j \le \min_l (c_{il} + p_l) + 1`, and free objects have price
0. Then the cost is at most OPT + (number of bidders) <= 2 OPT, times the factor of the nearest-neighbour index.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from dynmatch.ann_index import Index, make_index
from dynmatch.costs import Real, distance_row
from dynmatch.primal_dual import Event


class _Classes:
    """One nearest-neighbour index for each integer class."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.index: dict[int, Index] = {}

    def add(self, label: int, key: int, point: np.ndarray) -> None:
        self.index.setdefault(label, self.make()).add(key, point)

    def remove(self, label: int, key: int) -> None:
        self.index[label].remove(key)
        if not len(self.index[label]):
            del self.index[label]


class AuctionEngine:
    """A maximum matching of one cell kept within a factor 2 (times the index's) of the least rounded cost.

    Parameters
    ----------
    dim, norm
        Of the points and their l_q distance.
    diameter
        The child cells' diameter, the unit of the integer costs.
    largest
        C, the largest integer cost in the cell.
    backend
        ``brute``, ``kdtree``, ``lsh`` or ``hnsw``.
    """

    def __init__(
        self, dim: int, norm: Real, diameter: Real, largest: int, backend: str = "brute", seed: int = 0
    ) -> None:
        self.dim, self.norm, self.diameter, self.largest = dim, norm, diameter, largest
        self.backend, self.seed = backend, seed
        self.bidder_side = 0
        self._next = self.queries = 0
        self.units: dict[int, tuple[int, int, np.ndarray]] = {}
        self.copies: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
        self._clear()

    def _clear(self) -> None:
        def make() -> Index:
            return make_index(self.backend, self.dim, self.norm, self.seed, width=4 * self.diameter)

        self.price: dict[int, int] = {}
        self.holder: dict[int, int] = {}
        self.held: dict[int, int] = {}
        self.value: dict[int, int] = {}
        self.objects, self.bidders = _Classes(make), _Classes(make)
        self.free: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self.units)

    # -- the cell's interface ------------------------------------------------------------------------------------

    def add(self, side: int, key: int, point: Float[np.ndarray, " d"], units: int, child: Any = None) -> list[Event]:
        """Add units of a point; each is a bidder or an object of its own."""
        before = dict(self.free)
        for _ in range(units):
            uid = self._next
            self._next += 1
            self.units[uid] = (side, key, np.array(point, dtype=np.float64))
            self.copies[side].setdefault(key, []).append(uid)
            if side == self.bidder_side:
                if len(self.held) + 1 > len(self.price):
                    self._restart()
                else:
                    self._bid(uid)
            else:
                self._open(uid)
        return self._changes(before)

    def remove(self, side: int, key: int, units: int, child: Any = None) -> list[Event]:
        """Remove units of a point, free ones first."""
        before = dict(self.free)
        gone: dict[int, tuple[int, int, np.ndarray]] = {}
        for _ in range(units):
            mine = self.copies[side][key]
            uid = next((u for u in mine if u in self.free), mine[-1])
            mine.remove(uid)
            if not mine:
                del self.copies[side][key]
            gone[uid] = self.units.pop(uid)
            if side == self.bidder_side:
                freed = self._leave(uid, gone[uid][2])
                self._settle(freed)
                continue
            widow = self.holder.pop(uid, None)
            if widow is not None:
                self.bidders.remove(self.value.pop(widow), widow)
                del self.held[widow]
            self.objects.remove(self.price.pop(uid), uid)
            self.free.pop(uid, None)
            if widow is not None:
                if len(self.held) + 1 > len(self.price):
                    self._restart()
                else:
                    self._bid(widow)
        return self._changes(before, gone)

    def _changes(self, before: dict[int, None], gone: dict[int, Any] | None = None) -> list[Event]:
        net: dict[tuple[int, int], int] = {}
        for uid in before:
            if uid not in self.free:
                side, key, _ = self.units[uid] if uid in self.units else (gone or {})[uid]
                net[side, key] = net.get((side, key), 0) - 1
        for uid in self.free:
            if uid not in before:
                side, key, _ = self.units[uid]
                net[side, key] = net.get((side, key), 0) + 1
        # Losses first: a cell whose majority changes side must never carry both colours.
        return [(s, k, n) for (s, k), n in sorted(net.items(), key=lambda item: item[1]) if n]

    # -- the auction ---------------------------------------------------------------------------------------------

    def integer_cost(self, distance: float) -> int:
        """Return max(1, ceil(d / child diameter))."""
        return max(1, math.ceil(distance / self.diameter)) if self.diameter > 0 else 1

    def _take(self, bidder: int, obj: int, cost: int, price: int) -> None:
        """Give the object to the bidder at a new price."""
        point = self.units[obj][2]
        self.objects.remove(self.price[obj], obj)
        self.price[obj] = price
        self.objects.add(price, obj, point)
        self.free.pop(obj, None)
        self.holder[obj], self.held[bidder] = bidder, obj
        self.value[bidder] = cost + price
        self.bidders.add(cost + price, bidder, self.units[bidder][2])

    def _leave(self, bidder: int, point: np.ndarray) -> int:
        """Take a bidder off its object, and return the object."""
        obj = self.held.pop(bidder)
        del self.holder[obj]
        self.bidders.remove(self.value.pop(bidder), bidder)
        return obj

    def _bid(self, bidder: int) -> None:
        """Forward auction: the free bidder takes its best object, whose holder bids next."""
        waiting: int | None = bidder
        while waiting is not None:
            point = self.units[waiting][2]
            best: tuple[int, int, int, int] | None = None
            for price in sorted(self.objects.index):
                if best is not None and price + 1 > best[0]:
                    break
                found = self.objects.index[price].nearest(point)
                self.queries += 1
                if found is not None:
                    cost = self.integer_cost(found[1])
                    if best is None or cost + price < best[0]:
                        best = (cost + price, price, cost, found[0])
            assert best is not None
            _, price, cost, obj = best
            evicted = self.holder.get(obj)
            if evicted is not None:
                self._leave(evicted, self.units[evicted][2])
            self._take(waiting, obj, cost, price + 1)
            waiting = evicted

    def _open(self, obj: int) -> None:
        """Bring in a new object at a price nobody would pay, and let it fall."""
        self.price[obj] = self.largest + 1
        self.objects.add(self.largest + 1, obj, self.units[obj][2])
        self._settle(obj)

    def _settle(self, obj: int) -> None:
        """Reverse auction: a freed object's price falls until a bidder would rather have it, or to 0."""
        while True:
            point = self.units[obj][2]
            best: tuple[int, int, int] | None = None
            for value, index in sorted(self.bidders.index.items(), key=lambda item: item[0]):
                found = index.nearest(point)
                self.queries += 1
                if found is not None:
                    cost = self.integer_cost(found[1])
                    if best is None or value - 1 - cost > best[0]:
                        best = (value - 1 - cost, found[0], cost)
            if best is None or best[0] < 1 or self.price[obj] <= 0:
                break
            margin, bidder, cost = best
            freed = self._leave(bidder, self.units[bidder][2])
            self._take(bidder, obj, cost, min(margin, self.price[obj]))
            obj = freed
        if self.price[obj]:
            self.objects.remove(self.price[obj], obj)
            self.price[obj] = 0
            self.objects.add(0, obj, self.units[obj][2])
        self.free[obj] = None

    def _restart(self) -> None:
        """Begin again with the sides' roles decided by their sizes."""
        sizes = [0, 0]
        for side, _, _ in self.units.values():
            sizes[side] += 1
        self.bidder_side = (
            self.bidder_side if sizes[self.bidder_side] <= sizes[1 - self.bidder_side] else 1 - self.bidder_side
        )
        self._clear()
        for uid, (side, _, point) in self.units.items():
            if side != self.bidder_side:
                self.price[uid] = 0
                self.objects.add(0, uid, point)
                self.free[uid] = None
        for uid, (side, _, _) in self.units.items():
            if side == self.bidder_side:
                self._bid(uid)

    # -- answers -------------------------------------------------------------------------------------------------

    def members(self) -> list[tuple[int, int, int]]:
        """Return (side, key, units) of all points."""
        return [(s, key, len(uids)) for s in range(2) for key, uids in self.copies[s].items()]

    def free_units(self) -> dict[tuple[int, int], int]:
        """Free units by (side, key)."""
        found: dict[tuple[int, int], int] = {}
        for uid in self.free:
            side, key, _ = self.units[uid]
            found[side, key] = found.get((side, key), 0) + 1
        return found

    def pairs(self) -> list[tuple[int, int, int]]:
        """Return (key of A, key of B, units)."""
        found: dict[tuple[int, int], int] = {}
        for bidder, obj in self.held.items():
            i, j = self.units[bidder][1], self.units[obj][1]
            pair = (i, j) if self.bidder_side == 0 else (j, i)
            found[pair] = found.get(pair, 0) + 1
        return [(a, b, n) for (a, b), n in found.items()]

    def check(self, exact: bool | None = None) -> None:
        """Verify that all bidders hold, free objects are free, and (exact indexes) nobody would gain more than 1."""
        exact = self.backend in ("brute", "kdtree") if exact is None else exact
        assert len(self.held) == sum(s == self.bidder_side for s, _, _ in self.units.values()), "a bidder holds nothing"
        assert all(self.price[obj] == 0 for obj in self.free), "a free object has a price"
        assert set(self.free) == set(self.price) - set(self.holder), "free objects miscounted"
        for bidder, obj in self.held.items():
            assert self.holder[obj] == bidder, "holder and held disagree"
            assert 0 <= self.price[obj] <= self.largest + 1, "a price is out of range"
        if not exact or not self.price:
            return
        keys = list(self.price)
        points = np.array([self.units[k][2] for k in keys])
        prices = np.array([self.price[k] for k in keys])
        row = np.empty(len(keys))
        for bidder, obj in self.held.items():
            distance_row(self.units[bidder][2], points, self.norm, 0, self.dim, row)
            costs = np.maximum(1, np.ceil(row / self.diameter)) if self.diameter > 0 else np.ones(len(keys))
            mine = costs[keys.index(obj)] + self.price[obj]
            assert mine <= (costs + prices).min() + 1, "a bidder would gain more than 1 by another object"

    def state(self) -> dict[str, Any]:
        """Return the auction as plain values; the indexes are rebuilt from it in the same order."""
        uids = list(self.units)
        return {
            "bidder_side": self.bidder_side,
            "next": self._next,
            "queries": self.queries,
            "units": [[u, *self.units[u][:2]] for u in uids],
            "points": np.array([self.units[u][2] for u in uids]).reshape(-1, self.dim),
            "price": [[k, v] for k, v in self.price.items()],
            "held": [[k, v, self.value[k]] for k, v in self.held.items()],
            "free": list(self.free),
            "copies": [[[k, v] for k, v in c.items()] for c in self.copies],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        self.bidder_side, self._next = int(state["bidder_side"]), int(state["next"])
        self.queries = int(state["queries"])
        self.units = {u: (s, k, point) for (u, s, k), point in zip(state["units"], state["points"], strict=True)}
        for side in range(2):
            self.copies[side].update({k: list(v) for k, v in state["copies"][side]})
        self._clear()
        for uid, price in state["price"]:
            self.price[uid] = price
            self.objects.add(price, uid, self.units[uid][2])
        for bidder, obj, value in state["held"]:
            self.held[bidder], self.holder[obj], self.value[bidder] = obj, bidder, value
            self.bidders.add(value, bidder, self.units[bidder][2])
        self.free = dict.fromkeys(state["free"])

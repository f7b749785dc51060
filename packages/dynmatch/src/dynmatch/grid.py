"""The grid matcher: a randomly shifted tree of nested grids, each cell matching what its children could not."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dynmatch.augment import add_exactly
from dynmatch.cells import DENSE_LIMIT, Cell, CellSettings, _merge
from dynmatch.costs import Metric, Real, distance_row
from dynmatch.matcher import SIDES, BaseMatcher, Entry, Id, Side
from dynmatch.primal_dual import DenseKernel, Event

_LOG = logging.getLogger(__name__)

Coordinates = tuple[int, ...]


class GridMatcher(BaseMatcher):
    r"""Approximate :math:`W_1` in R^d under an l_p ground norm; an update touches one cell a level.

    Nested grids with branching :math:`b = \max(2, \lceil n^\epsilon \rceil)` and :math:`H = \lceil 1/\epsilon \rceil`
    levels below a root twice as wide as the points. A cell matches the points its children carry up (their unmatched
    excess) and carries the rest up, so that an update changes at most one carried point a level. A point and its
    partner at distance r are cut at a level with probability proportional to r, which makes the expected cost
    O(d) OPT per level.

    Parameters
    ----------
    dim
        d, the coordinates of a point.
    norm
        The ground norm's exponent, 1 <= norm <= inf.
    eps
        Smaller means more and finer levels: faster updates, a coarser answer.
    engine
        In a cell: ``dense`` (exact kernel), ``aggregate`` (children at their centres, d <= 3), ``ann`` (integer auction
        on nearest-neighbour indexes), or ``auto``: dense up to 1024 carried points.
    backend
        Of ``ann``: ``brute``, ``kdtree``, ``lsh``, ``hnsw``; ``auto`` is ``kdtree`` for d <= 8, else ``brute``.
    rounded
        Search with distances rounded up to multiples of the child diameter, the variant that the analysis covers.
    project
        ``"auto"`` or a number of dimensions: for l_2 and d > 4 log n, cells and searches see a random projection
        (Johnson-Lindenstrauss); costs stay true.
    seed
        Of the shifts and projections.

    References
    ----------
    Goranci et al., "Fully dynamic Euclidean bipartite matching in sublinear update time", ICML 2025.
    """

    def __init__(
        self,
        dim: int,
        norm: Real = 2.0,
        eps: Real = 0.25,
        engine: str = "auto",
        backend: str = "auto",
        rounded: bool = False,
        project: str | int | None = None,
        seed: int = 0,
        p: Real = 1.0,
    ) -> None:
        if not norm >= 1:
            raise ValueError(f"the l_p ground norm needs 1 <= p <= inf, not {norm}")
        if not 0 < eps <= 1:
            raise ValueError(f"eps must lie in (0, 1], not {eps}")
        if engine not in ("auto", "dense", "aggregate", "ann"):
            raise ValueError(f"no in-cell engine {engine!r}; give auto, dense, aggregate or ann")
        if p != 1:
            raise ValueError("the grid matches for W_1; use ExactMatcher or HubMatcher for p > 1")
        if dim < 1:
            raise ValueError(f"a point needs at least one coordinate, not {dim}")
        config = {
            "dim": int(dim),
            "norm": float(norm),
            "eps": float(eps),
            "engine": engine,
            "backend": backend,
            "rounded": bool(rounded),
            "project": project,
            "seed": int(seed),
        }
        super().__init__(1.0, config, int(dim))
        self.norm, self.eps, self.seed, self.project = float(norm), float(eps), int(seed), project
        self.engine, self.rounded = engine, bool(rounded)
        self.backend = ("kdtree" if dim <= 8 else "brute") if backend == "auto" else backend
        self.epoch = 0
        self.rebuilds = 0
        self._rows: dict[int, np.ndarray] = {}
        self._leaf: dict[int, Coordinates] = {}
        self._empty_grid()

    # -- geometry ------------------------------------------------------------------------------------------------

    def _empty_grid(self) -> None:
        self.levels = 0
        self.built_for = 0
        self.cells: list[dict[Coordinates, Cell]] = []
        self.offsets: list[Coordinates] = []
        self._exact_part = np.zeros(3)
        self._lazy: dict[tuple[int, Coordinates], float | None] = {}

    def _lay_out(self, points: np.ndarray, extra: int) -> None:
        """Choose branching, height, shift and projection for the points at hand."""
        n = len(points)
        rng = np.random.default_rng([self.seed, self.epoch])
        target = self._projected_dim(n)
        self.projection = None
        if target:
            self.projection = np.random.default_rng([self.seed, 7]).standard_normal(
                (points.shape[1], target)
            ) / math.sqrt(target)
        seen = points if self.projection is None else points @ self.projection
        self.low, self.high = seen.min(axis=0), seen.max(axis=0)
        span = float((self.high - self.low).max())
        span = span if span > 0 else 1.0
        self.branching = max(2, math.ceil(n**self.eps))
        self.levels = math.ceil(1 / self.eps) + extra
        self.leaf_side = 2 * span / float(self.branching) ** self.levels
        self.leaf_side = max(self.leaf_side, np.finfo(float).tiny)
        self.origin = self.low - rng.random(len(self.low)) * span
        self.offsets = []
        self.extra = extra
        dim = len(self.low)
        self.settings = CellSettings(
            Metric(self.norm),
            self.engine,
            self.backend,
            self.rounded,
            dim,
            points.shape[1] if self.projection is not None else 0,
            self.branching,
            self.seed,
        )
        if self.engine == "aggregate" and dim > 3:
            raise ValueError(f"the aggregate engine is for d <= 3, not {dim}: a cell has b^d children")

    def _projected_dim(self, n: int) -> int:
        dim = self.dim or 1
        if self.project is None or self.norm != 2.0:
            return 0
        if self.project == "auto":
            target = math.ceil(4 * math.log(max(n, 2)))
            return target if dim > target else 0
        return int(self.project) if int(self.project) < dim else 0

    def _row_of(self, x: np.ndarray) -> np.ndarray:
        return x if self.projection is None else np.concatenate([x @ self.projection, x])

    def _leaf_of(self, row: np.ndarray) -> Coordinates:
        scaled = (row[: len(self.origin)] - self.origin) / self.leaf_side
        return tuple(math.floor(v) for v in scaled.tolist())

    def _at(self, leaf: Coordinates, height: int) -> Coordinates:
        """Coordinates of the ancestor of a leaf cell; height 0 is the leaf itself."""
        if height <= self.levels:
            step = self.branching**height
            return tuple(c // step for c in leaf)
        coordinates = self._at(leaf, self.levels)
        for offset in self.offsets[: height - self.levels]:
            coordinates = tuple((c + o) // self.branching for c, o in zip(coordinates, offset, strict=True))
        return coordinates

    def _diameter(self, height: int) -> float:
        """Diameter of the children of a cell of this height."""
        side = self.leaf_side * float(self.branching) ** max(0, height - 1)
        return side * len(self.origin) ** (0.0 if math.isinf(self.norm) else 1.0 / self.norm)

    def _centre(self, height: int) -> Any:
        """Return the function that gives the centre of a cell of this height from its coordinates."""
        side = self.leaf_side * float(self.branching) ** height
        shift = np.zeros(len(self.origin))
        for level, offset in enumerate(self.offsets[: max(0, height - self.levels)]):
            shift += (
                np.array(offset, dtype=np.float64) * self.leaf_side * float(self.branching) ** (self.levels + level)
            )
        return lambda coordinates: self.origin - shift + (np.array(coordinates, dtype=np.float64) + 0.5) * side

    # -- building ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Lay the grid out anew for the present points, and match bottom up, a level at a time."""
        extra = self.extra if self.levels else 0
        entries = list(self.entries.values())
        self._empty_grid()
        self._rows, self._leaf = {}, {}
        if not entries:
            return
        self.epoch += 1
        self.rebuilds += 1
        self.built_for = len(entries)
        points = np.array([e.point for e in entries])
        while True:
            self._lay_out(points, extra)
            self._rows = {e.key: self._row_of(e.point) for e in entries}
            self._leaf = {key: self._leaf_of(row) for key, row in self._rows.items()}
            if self.branching ** (self.levels + 1) > 2**52 or not self._crowded():
                break
            extra += 1
        events: dict[Coordinates, list[Event]] = {}
        for e in entries:
            events.setdefault(self._leaf[e.key], []).append((e.side, e.key, e.weight))
        for height in range(self.levels + 1):
            level: dict[Coordinates, Cell] = {}
            above: dict[Coordinates, list[Event]] = {}
            centre = self._centre(height - 1)
            for coordinates, members in events.items():
                cell = level[coordinates] = Cell(height == 0, self._diameter(height))
                cell.load(self.settings, members, self._rows.__getitem__, self._child(height), centre)
                self._account(height, coordinates, cell)
                carried = [(s, k, n) for (s, k), n in cell.carried().items()]
                if carried and height < self.levels:
                    parent = tuple(c // self.branching for c in coordinates)
                    above.setdefault(parent, []).extend(carried)
            self.cells.append(level)
            events = above

    def _crowded(self) -> bool:
        """Tell whether a leaf holds more than 1024 points that are not all the same."""
        groups: dict[Coordinates, list[int]] = {}
        for key, leaf in self._leaf.items():
            groups.setdefault(leaf, []).append(key)
        return any(self._too_many(keys) for keys in groups.values() if len(keys) > DENSE_LIMIT)

    def _too_many(self, keys: list[int]) -> bool:
        first = self._rows[keys[0]]
        return len(keys) > DENSE_LIMIT and any(not np.array_equal(self._rows[k], first) for k in keys)

    def _child(self, height: int) -> Any:
        return lambda key: self._at(self._leaf[key], height - 1) if height else self._leaf[key]

    def _grow(self, leaf: Coordinates) -> None:
        """Put a level on top until the root covers the leaf, towards the side on which it lies."""
        top = self._at(leaf, self.levels + len(self.offsets))
        while any(top):
            rng = np.random.default_rng([self.seed, self.epoch, len(self.offsets)])
            last = self.branching - 1
            offset = tuple(last if c < 0 else 0 if c > 0 else int(rng.integers(last + 1)) for c in top)
            old = self.cells[-1].get((0,) * len(offset))
            self.offsets.append(offset)
            height = self.levels + len(self.offsets)
            level: dict[Coordinates, Cell] = {}
            if old is not None and (carried := old.carried()):
                cell = level[(0,) * len(offset)] = Cell(False, self._diameter(height))
                members = [(s, k, n) for (s, k), n in carried.items()]
                cell.load(self.settings, members, self._rows.__getitem__, self._child(height), self._centre(height - 1))
            self.cells.append(level)
            top = self._at(leaf, height)
        if len(self.offsets) * math.log2(self.branching) > 40:
            _LOG.warning("the points spread over more than 2^40 times the box the grid was built for")

    # -- updates -------------------------------------------------------------------------------------------------

    def extend(self, side: Side, points: Any) -> list[Id]:
        """Insert the rows of ``points``; many at once are laid out anew, bottom up, in O(n) cell updates."""
        rows = list(points)
        if 2 * len(rows) < len(self.entries):
            return super().extend(side, rows)
        s = SIDES.index(side)
        checked = [self._validate(s, point, row, None) for row, point in enumerate(rows, 1)]
        made: list[Id] = []
        for x in checked:
            while self._next_id in self.entries:
                self._next_id += 1
            name, key = self._next_id, self._next_key
            self.entries[name], self.ids[key] = Entry(key, s, 1, x), name
            self._next_key += 1
            made.append(name)
        self.weights[s] += len(made)
        self.updates += len(made)
        self._build()
        return made

    def _add(self, key: int, side: int, x: np.ndarray, weight: int) -> None:
        if not self.cells:
            return  # the first point: built after it is registered
        row = self._row_of(x)
        leaf = self._leaf_of(row)
        self._rows[key], self._leaf[key] = row, leaf
        self._grow(leaf)
        self._propagate(leaf, (side, key, weight))

    def _remove(self, entry: Entry) -> None:
        self._propagate(self._leaf[entry.key], (entry.side, entry.key, -entry.weight))
        del self._rows[entry.key], self._leaf[entry.key]

    def _propagate(self, leaf: Coordinates, event: Event) -> None:
        events = [event]
        for height, level in enumerate(self.cells):
            coordinates = self._at(leaf, height)
            cell = level.get(coordinates)
            if cell is None:
                cell = level[coordinates] = Cell(height == 0, self._diameter(height))
            changed: list[Event] = []
            for one in events:
                changed += cell.change(
                    self.settings, one, self._rows.__getitem__, self._child(height), self._centre(height - 1)
                )
            self._account(height, coordinates, cell)
            if not len(cell):
                del level[coordinates]
            events = changed if len(changed) < 2 else _merge(changed, [])
            if not events:
                break

    def _account(self, height: int, coordinates: Coordinates, cell: Cell) -> None:
        """Keep the running cost: dense cells at once, the others when asked for."""
        place = (height, coordinates)
        if cell.kind in ("", "dense"):
            self._lazy.pop(place, None)
            now = cell.true_cost(None)
        else:
            self._lazy[place] = None
            now = 0.0
        if now != cell.cost:
            add_exactly(self._exact_part, -cell.cost)
            add_exactly(self._exact_part, now)
            cell.cost = now

    def _after_update(self) -> None:
        super()._after_update()
        n = len(self.entries)
        if not self.cells or n > 2 * self.built_for or (n < self.built_for / 2 and self.built_for > 16):
            self._build()
            return
        newest = self._next_key - 1
        if newest in self._leaf:
            cell = self.cells[0].get(self._leaf[newest])
            if cell is not None and len(cell) > DENSE_LIMIT and len(cell) % 256 == 1:
                keys = [k for _, k, _ in cell.members()]
                if self._too_many(keys):
                    self._build()

    # -- answers -------------------------------------------------------------------------------------------------

    def _distance(self, a: int, b: int) -> float:
        x, y = (self.entries[self.ids[key]].point for key in (a, b))
        out = np.empty(1)
        distance_row(x, y[None], 1, self.norm, 0, len(x), out)
        return float(out[0])

    def _total(self) -> tuple[float, float]:
        for (height, coordinates), value in self._lazy.items():
            if value is None:
                self._lazy[height, coordinates] = self.cells[height][coordinates].true_cost(self._distance)
        lazy = [v for v in self._lazy.values() if v is not None]
        return max(0.0, math.fsum([self._exact_part[0], *lazy])) if min(self.weights) else 0.0, 1.0

    def _pairs(self) -> Iterable[tuple[int, int, int, float]]:
        for level in self.cells:
            for cell in level.values():
                for a, b, units in cell.pairs():
                    yield a, b, units, self._distance(a, b)

    def _mates(self, entry: Entry) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for height, level in enumerate(self.cells):
            cell = level.get(self._at(self._leaf[entry.key], height))
            if cell is None or cell.engine is None:
                continue
            if cell.kind == "dense":
                if entry.key in cell.engine.slots[entry.side]:
                    found += [(key, units) for key, units, _ in cell.engine.mates(entry.side, entry.key)]
            else:
                mine = [pair for pair in cell.pairs() if pair[entry.side] == entry.key]
                found += [(pair[1 - entry.side], pair[2]) for pair in mine]
        return found

    def _free(self) -> dict[tuple[int, int], int]:
        if not self.cells:
            return {}
        return {place: n for cell in self.cells[-1].values() for place, n in cell.carried().items()}

    def lower_bound(self, certify: bool = False) -> float | None:
        """Return None, or with ``certify`` the exact W_1, which the kernel solves afresh for the present points."""
        if not certify:
            return None
        exact = DenseKernel(Metric(self.norm), self.dim or 1, capacity=max(4, len(self.entries)))
        for entry in self.entries.values():
            exact.add(entry.side, entry.key, entry.point, entry.weight)
        return max(0.0, min(exact.dual_value(), exact.cost))

    def stats(self) -> dict[str, Any]:
        """Return sizes, the grid's shape, cells, engines, and the work of the searches."""
        engines = [cell for level in self.cells for cell in level.values() if cell.engine is not None]
        kernels = [
            c.engine if c.kind == "dense" else c.engine.kernel for c in engines if c.kind in ("dense", "aggregate")
        ]
        return {
            "size": self.size,
            "updates": self.updates,
            "rebuilds": self.rebuilds,
            "levels": len(self.cells),
            "branching": self.branching if self.cells else 0,
            "cells": sum(len(level) for level in self.cells),
            "engines": len(engines),
            "largest_cell": max((len(c) for c in engines), default=0),
            "relaxed_pairs": sum(int(k.count[6]) for k in kernels),
            "searches": sum(int(k.count[7]) for k in kernels),
        }

    def _check(self) -> None:
        """Recompute every carried list from the points up, and check each engine and the running cost."""
        expected: dict[Coordinates, dict[tuple[int, int], int]] = {}
        for entry in self.entries.values():
            assert self._leaf[entry.key] == self._leaf_of(self._row_of(entry.point)), "a point lies in a wrong leaf"
            expected.setdefault(self._leaf[entry.key], {})[entry.side, entry.key] = entry.weight
        costs = []
        for height, level in enumerate(self.cells):
            assert set(expected) == set(level), f"cells of height {height} differ from those that have points"
            above: dict[Coordinates, dict[tuple[int, int], int]] = {}
            for coordinates, cell in level.items():
                held = {(s, k): n for s, k, n in cell.members()}
                assert held == expected[coordinates], f"cell {coordinates} of height {height} holds wrong points"
                if cell.engine is not None:
                    cell.engine.check()
                carried = cell.carried()
                assert len({s for s, _ in carried}) < 2, f"cell {coordinates} carries up both colours"
                costs.append(cell.true_cost(self._distance))
                if carried and height + 1 < len(self.cells):
                    key = next(iter(carried))[1]
                    above.setdefault(self._at(self._leaf[key], height + 1), {}).update(carried)
            expected = above
        total = math.fsum(costs)
        assert abs(total - self._total()[0]) <= 1e-9 * max(total, 1e-300), "the running cost is wrong"

    def _state(self) -> dict[str, Any]:
        if not self.cells:
            return {"epoch": self.epoch, "rebuilds": self.rebuilds, "cells": []}
        return {
            "epoch": self.epoch,
            "rebuilds": self.rebuilds,
            "levels": self.levels,
            "built_for": self.built_for,
            "branching": self.branching,
            "leaf_side": self.leaf_side,
            "origin": self.origin,
            "low": self.low,
            "high": self.high,
            "extra": self.extra,
            "offsets": [list(o) for o in self.offsets],
            "projection": self.projection,
            "total": self._exact_part,
            "cells": [[[list(c), cell.state()] for c, cell in level.items()] for level in self.cells],
        }

    def _restore(self, own: dict[str, Any]) -> None:
        self.epoch, self.rebuilds = int(own["epoch"]), int(own["rebuilds"])
        if not own["cells"]:
            return
        for name in ("levels", "built_for", "branching", "leaf_side", "origin", "low", "high", "extra", "projection"):
            setattr(self, name, own[name])
        self.offsets = [tuple(o) for o in own["offsets"]]
        self._exact_part = own["total"]
        dim = self.dim or 1
        self.settings = CellSettings(
            Metric(self.norm),
            self.engine,
            self.backend,
            self.rounded,
            len(self.origin),
            dim if self.projection is not None else 0,
            self.branching,
            self.seed,
        )
        self._rows = {e.key: self._row_of(e.point) for e in self.entries.values()}
        self._leaf = {key: self._leaf_of(row) for key, row in self._rows.items()}
        for height, saved in enumerate(own["cells"]):
            level: dict[Coordinates, Cell] = {}
            for coordinates, state in saved:
                cell = level[tuple(coordinates)] = Cell(height == 0, self._diameter(height))
                cell.restore(self.settings, state, self._centre(height - 1))
                if cell.kind not in ("", "dense"):
                    self._lazy[height, tuple(coordinates)] = None
            self.cells.append(level)

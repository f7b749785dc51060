"""The grid matcher: a randomly shifted tree of nested grids, each cell matching what its children could not."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from dynmatch.ann_index import make_index
from dynmatch.augment import add_exactly
from dynmatch.cells import DENSE_LIMIT, Cell, CellSettings, merge
from dynmatch.costs import Metric, Real, distance_pairs
from dynmatch.grid_layout import Coordinates, GridLayout, projected_dim
from dynmatch.matcher import BaseMatcher, Entry
from dynmatch.primal_dual import DenseKernel, Event

_LOG = logging.getLogger(__name__)


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

    built = True

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
        seen = min(int(dim), project) if isinstance(project, int) else int(dim)
        if engine == "aggregate" and seen > 3:
            raise ValueError(f"the aggregate engine is for d <= 3, not {seen}: a cell has b^d children")
        self.backend = ("kdtree" if dim <= 8 else "brute") if backend == "auto" else backend
        make_index(self.backend, 1, self.norm)
        projected_dim(int(dim), 2, project)
        self.epoch = 0
        self.rebuilds = 0
        self.work = np.zeros(3, np.int64)
        self._empty_grid()

    def _empty_grid(self) -> None:
        self.built_for = 0
        self.leaf_limit = DENSE_LIMIT
        self.layout: GridLayout | None = None
        self.cells: list[dict[Coordinates, Cell]] = []
        self._rows: dict[int, np.ndarray] = {}
        self._leaf: dict[int, Coordinates] = {}
        self._exact_part = np.zeros(3)
        self._lazy: dict[tuple[int, Coordinates], float | None] = {}

    # -- building ------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Lay the grid out anew for the present points, and match bottom up, a level at a time."""
        self._empty_grid()
        entries = list(self.entries.values())
        if not entries:
            return
        self.epoch += 1
        self.rebuilds += 1
        self.built_for = len(entries)
        points = np.array([e.point for e in entries])
        extra = 0
        while True:
            layout = GridLayout(points, self.norm, self.eps, self.project, self.seed, extra, self.epoch)
            self._lay_out(layout)
            crowd = self._largest_crowd()
            if crowd <= DENSE_LIMIT or layout.finest:
                break
            extra += 1
        self.leaf_limit = max(DENSE_LIMIT, 2 * crowd if crowd > DENSE_LIMIT else 0)
        self._fill()

    def _lay_out(self, layout: GridLayout) -> None:
        self.layout = layout
        self._rows = {e.key: layout.row_of(e.point) for e in self.entries.values()}
        self._leaf = {key: layout.leaf_of(row) for key, row in self._rows.items()}
        self.settings = CellSettings(
            Metric(self.norm),
            self.engine,
            self.backend,
            self.rounded,
            layout.dim,
            0 if layout.projection is None else self.dim or 1,
            layout.branching,
            self.seed,
            self.work,
        )

    def _fill(self) -> None:
        """Match all points in the cells of the present layout."""
        assert self.layout is not None
        self.cells = []
        events: dict[Coordinates, list[Event]] = {}
        for e in self.entries.values():
            events.setdefault(self._leaf[e.key], []).append((e.side, e.key, e.weight))
        for height in range(self.layout.height + 1):
            level: dict[Coordinates, Cell] = {}
            above: dict[Coordinates, list[Event]] = {}
            for coordinates, members in events.items():
                cell = level[coordinates] = self._cell(height)
                cell.load(self.settings, members, self._rows.__getitem__, self._child(height), self._centre(height))
                self._account(height, coordinates, cell)
                if height < self.layout.height and (carried := cell.carried()):
                    parent = self.layout.at(self._leaf[next(iter(carried))[1]], height + 1)
                    above.setdefault(parent, []).extend((s, k, n) for (s, k), n in carried.items())
            self.cells.append(level)
            events = above

    def _cell(self, height: int) -> Cell:
        assert self.layout is not None
        return Cell(height == 0, self.layout.diameter(height))

    def _child(self, height: int) -> Any:
        """Return the function that gives the child cell of height - 1 in which a point lies."""
        assert self.layout is not None
        at = self.layout.at
        return lambda key: at(self._leaf[key], max(0, height - 1))

    def _centre(self, height: int) -> Any:
        """Return the function that gives the centre of a child of a cell of this height."""
        assert self.layout is not None
        return partial(self.layout.centre, height - 1)

    def _largest_crowd(self) -> int:
        """Points in the largest leaf that are not all the same, and so could be told apart by a finer grid."""
        groups: dict[Coordinates, list[int]] = {}
        for key, leaf in self._leaf.items():
            groups.setdefault(leaf, []).append(key)
        return max((len(keys) for keys in groups.values() if self._differ(keys)), default=0)

    def _differ(self, keys: list[int]) -> bool:
        first = self._rows[keys[0]]
        return any(not np.array_equal(self._rows[k], first) for k in keys)

    def _overfull(self) -> bool:
        """Tell whether the newest point has made a leaf larger than a finer grid would."""
        newest = self._next_key - 1
        leaf = self._leaf.get(newest)
        cell = None if leaf is None else self.cells[0].get(leaf)
        if cell is None or len(cell) <= self.leaf_limit:
            return False
        # All points of a leaf that large were the same until now, but for the first time that it is.
        if len(cell) == self.leaf_limit + 1:
            return self._differ([key for _, key, _ in cell.members()])
        other = cell.another(newest)
        return other is not None and self._differ([newest, other])

    def _grow(self, leaf: Coordinates) -> None:
        """Put a level on top until the root covers the leaf, towards the side on which it lies."""
        layout = self.layout
        assert layout is not None
        while any(top := layout.at(leaf, layout.height)):
            root = (0,) * layout.dim
            old = self.cells[-1].get(root)
            layout.grow(top)
            level: dict[Coordinates, Cell] = {}
            if old is not None and (carried := old.carried()):
                height = layout.height
                cell = level[root] = self._cell(height)
                members = [(s, k, n) for (s, k), n in carried.items()]
                cell.load(self.settings, members, self._rows.__getitem__, self._child(height), self._centre(height))
            self.cells.append(level)
        if len(layout.offsets) * math.log2(layout.branching) > 40:
            _LOG.warning("the points spread over more than 2^40 times the box the grid was built for")

    # -- updates -------------------------------------------------------------------------------------------------

    def _add(self, key: int, side: int, x: np.ndarray, weight: int) -> None:
        if self.layout is None:
            return  # the first point: built after it is registered
        row = self.layout.row_of(x)
        leaf = self.layout.leaf_of(row)
        self._rows[key], self._leaf[key] = row, leaf
        self._grow(leaf)
        self._propagate(leaf, (side, key, weight))

    def _remove(self, entry: Entry) -> None:
        self._propagate(self._leaf[entry.key], (entry.side, entry.key, -entry.weight))
        del self._rows[entry.key], self._leaf[entry.key]

    def _propagate(self, leaf: Coordinates, event: Event) -> None:
        assert self.layout is not None
        events = [event]
        for height, level in enumerate(self.cells):
            coordinates = self.layout.at(leaf, height)
            cell = level.get(coordinates)
            if cell is None:
                cell = level[coordinates] = self._cell(height)
            changed: list[Event] = []
            for one in events:
                changed += cell.change(
                    self.settings, one, self._rows.__getitem__, self._child(height), self._centre(height)
                )
            self._account(height, coordinates, cell)
            if not len(cell):
                del level[coordinates]
            events = changed if len(changed) < 2 else merge(changed, [])
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
        shrunk = n < self.built_for / 2 and self.built_for > 16
        if self.layout is None or n > 2 * self.built_for or shrunk or self._overfull():
            self._build()

    # -- answers -------------------------------------------------------------------------------------------------

    def _distances(self, pairs: list[tuple[int, int, int]]) -> np.ndarray:
        """Return the true distances of pairs of keys."""
        out = np.empty(len(pairs))
        if pairs:
            first, second = (np.array([self.entries[self.ids[p[s]]].point for p in pairs]) for s in range(2))
            distance_pairs(first, second, self.norm, 0, self.dim, out)
        return out

    def _total(self) -> tuple[float, float]:
        for (height, coordinates), value in self._lazy.items():
            if value is None:
                self._lazy[height, coordinates] = self.cells[height][coordinates].true_cost(self._distances)
        lazy = [v for v in self._lazy.values() if v is not None]
        return max(0.0, math.fsum([self._exact_part[0], *lazy])) if min(self.weights) else 0.0, 1.0

    def _pairs(self) -> Iterable[tuple[int, int, int, float]]:
        pairs = [pair for level in self.cells for cell in level.values() for pair in cell.pairs()]
        yield from ((a, b, n, float(d)) for (a, b, n), d in zip(pairs, self._distances(pairs), strict=True))

    def _mates(self, entry: Entry) -> list[tuple[int, int]]:
        assert self.layout is not None
        found: list[tuple[int, int]] = []
        for height, level in enumerate(self.cells):
            cell = level.get(self.layout.at(self._leaf[entry.key], height))
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
        """Return sizes, the grid's shape, and all work so far: searches, pairs they saw, index queries."""
        return {
            "size": self.size,
            "updates": self.updates,
            "rebuilds": self.rebuilds,
            "levels": len(self.cells),
            "branching": self.layout.branching if self.layout is not None else 0,
            "cells": sum(len(level) for level in self.cells),
            "relaxed_pairs": int(self.work[0]),
            "searches": int(self.work[1]),
            "queries": int(self.work[2]),
        }

    def cell_sizes(self) -> list[int]:
        """Return how many points each cell matches, for the cells in which both sides meet."""
        return [len(cell) for level in self.cells for cell in level.values() if cell.engine is not None]

    def _check(self) -> None:
        """Recompute every carried list from the points up, and check each engine and the running cost."""
        layout = self.layout
        if layout is None:
            return
        expected: dict[Coordinates, dict[tuple[int, int], int]] = {}
        for entry in self.entries.values():
            leaf = layout.leaf_of(layout.row_of(entry.point))
            assert self._leaf[entry.key] == leaf, "a point lies in a wrong leaf"
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
                costs.append(cell.true_cost(self._distances))
                if carried and height + 1 < len(self.cells):
                    key = next(iter(carried))[1]
                    above.setdefault(layout.at(self._leaf[key], height + 1), {}).update(carried)
            expected = above
        total = math.fsum(costs)
        assert abs(total - self._total()[0]) <= 1e-9 * max(total, 1e-300), "the running cost is wrong"

    def _state(self) -> dict[str, Any]:
        own = {"epoch": self.epoch, "rebuilds": self.rebuilds, "work": self.work, "layout": None}
        if self.layout is None:
            return own
        return own | {
            "layout": self.layout.state(),
            "built_for": self.built_for,
            "leaf_limit": self.leaf_limit,
            "total": self._exact_part,
            "cells": [[[list(c), cell.state()] for c, cell in level.items()] for level in self.cells],
        }

    def _restore(self, own: dict[str, Any]) -> None:
        self.epoch, self.rebuilds, self.work = int(own["epoch"]), int(own["rebuilds"]), own["work"]
        if own["layout"] is None:
            return
        self._lay_out(GridLayout.from_state(own["layout"]))
        self.built_for, self.leaf_limit = int(own["built_for"]), int(own["leaf_limit"])
        self._exact_part = own["total"]
        for height, saved in enumerate(own["cells"]):
            level: dict[Coordinates, Cell] = {}
            for coordinates, state in saved:
                cell = level[tuple(coordinates)] = self._cell(height)
                cell.restore(self.settings, state, self._centre(height))
                if cell.kind not in ("", "dense"):
                    self._lazy[height, tuple(coordinates)] = None
            self.cells.append(level)

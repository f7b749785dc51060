"""One cell of the grid: what its children carry up, the engine that matches it, and what it carries up itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dynmatch.aggregate import AggregateEngine
from dynmatch.auction import AuctionEngine
from dynmatch.costs import Metric, Real
from dynmatch.primal_dual import DenseKernel, Event

DENSE_LIMIT = 1024
"""Most carried points that ``auto`` gives to the dense kernel; leaves with more make the grid rebuild."""


@dataclass
class CellSettings:
    """What all cells of a grid share.

    Attributes
    ----------
    engine
        ``auto``, ``dense``, ``aggregate`` or ``ann``.
    dim
        Coordinates that steer the search.
    true_dim
        Coordinates of the true distance, 0 when they are the same.
    work
        Pairs seen, searches, index queries so far.
    """

    metric: Metric
    engine: str
    backend: str
    rounded: bool
    dim: int
    true_dim: int
    branching: int
    seed: int
    work: np.ndarray


class Cell:
    """The points of a cell and their matching.

    A cell with one colour keeps a plain dict and carries everything up; only cells where both colours meet have an
    engine, so that a grid of n points costs O(n H) small dicts and few engines.
    """

    __slots__ = ("cost", "diameter", "engine", "kind", "leaf", "only")

    def __init__(self, leaf: bool, diameter: Real) -> None:
        self.leaf, self.diameter = leaf, diameter
        self.only: dict[tuple[int, int], int] = {}
        self.engine: Any = None
        self.kind = ""
        self.cost = 0.0

    def __len__(self) -> int:
        return len(self.only) if self.engine is None else len(self.engine)

    def _wanted(self, settings: CellSettings, size: int) -> str:
        if self.leaf:
            return "dense"
        if settings.engine != "auto":
            return settings.engine
        if size <= (DENSE_LIMIT if self.kind in ("", "dense") else DENSE_LIMIT // 2):
            return "dense"
        return "aggregate" if settings.dim <= 3 else "ann"

    def _make(self, settings: CellSettings, kind: str, centre: Any) -> Any:
        if kind == "aggregate":
            return AggregateEngine(settings.metric, settings.dim, centre)
        if kind == "ann":
            largest = settings.branching + 1
            return AuctionEngine(
                settings.dim, settings.metric.kind, self.diameter, largest, settings.backend, settings.seed
            )
        unit = self.diameter if settings.rounded and not self.leaf else 0.0
        search = settings.dim if settings.true_dim else None
        return DenseKernel(settings.metric, settings.dim + settings.true_dim, 1.0, unit, search)

    def change(self, settings: CellSettings, event: Event, points: Any, child: Any, centre: Any) -> list[Event]:
        """Add (or remove, for negative units) units of a point, and return how the carried units change.

        Parameters
        ----------
        event
            (side, key, units).
        points
            Gives a point's coordinates by key.
        child
            Coordinates of the child cell that carries the point.
        centre
            Gives a child's centre, for the aggregate engine.
        """
        side, key, units = event
        if self.engine is None:
            if units < 0 or not self.only or next(iter(self.only))[0] == side:
                left = self.only.get((side, key), 0) + units
                self.only[side, key] = left
                if not left:
                    del self.only[side, key]
                return [event]
            return self._build(
                settings, [*((s, k, n) for (s, k), n in self.only.items()), event], points, child, centre
            )
        if units > 0:
            events = self._add(side, key, units, points, child(key))
        else:
            events = self.engine.remove(side, key, -units)
        if not len(self.engine):
            self.retire(settings)
        elif self._wanted(settings, len(self.engine)) != self.kind:
            events = merge(events, self._build(settings, self.members(), points, child, centre))
        self.tally(settings)
        return events

    def _add(self, side: int, key: int, units: int, points: Any, child: Any) -> list[Event]:
        if self.kind == "dense":
            return self.engine.add(side, key, points(key), units)
        return self.engine.add(side, key, points(key), units, child)

    def _build(self, settings: CellSettings, members: list[Event], points: Any, child: Any, centre: Any) -> list[Event]:
        """Put the members into a new engine, and return how the carried units differ from before."""
        before = self.carried()
        kind = self._wanted(settings, len({(s, k) for s, k, _ in members}))
        self.retire(settings)
        self.kind = kind
        self.engine = self._make(settings, self.kind, centre)
        self.only = {}
        larger = sum(n if s else -n for s, _, n in members) > 0
        for side, key, units in sorted(members, key=lambda e: e[0] != larger):  # so that searches end early
            self._add(side, key, units, points, child(key))
        self.tally(settings)
        return difference(before, self.engine.free_units())

    def load(self, settings: CellSettings, members: list[Event], points: Any, child: Any, centre: Any) -> None:
        """Fill an empty cell at once."""
        if len({s for s, _, _ in members}) < 2:
            self.only = {(s, k): n for s, k, n in members}
        else:
            self._build(settings, members, points, child, centre)

    def tally(self, settings: CellSettings) -> None:
        """Move the engine's counts of work to the grid's."""
        if self.kind == "ann":
            settings.work[2] += self.engine.queries
            self.engine.queries = 0
        elif self.engine is not None:
            kernel = self.engine if self.kind == "dense" else self.engine.kernel
            settings.work[:2] += kernel.count[6:8]
            kernel.count[6:8] = 0

    def retire(self, settings: CellSettings) -> None:
        """Give the engine up; its work stays counted."""
        self.tally(settings)
        self.engine, self.kind = None, ""

    def another(self, key: int) -> int | None:
        """Return the key of some other point of the cell."""
        if self.engine is None:
            return next((k for _, k in self.only if k != key), None)
        held = (k for s in range(2) for k in self.engine.nodes[s, : min(2, self.engine.count[s]), 3].tolist())
        return next((k for k in held if k != key), None)

    def members(self) -> list[Event]:
        """Return (side, key, units) of all points of the cell."""
        if self.engine is None:
            return [(s, k, n) for (s, k), n in self.only.items()]
        if self.kind != "dense":
            return self.engine.members()
        table = self.engine.nodes
        return [(s, int(key), int(w)) for s in range(2) for w, _, _, key in table[s, : self.engine.count[s]]]

    def carried(self) -> dict[tuple[int, int], int]:
        """Return the units carried up, by (side, key)."""
        return dict(self.only) if self.engine is None else self.engine.free_units()

    def pairs(self) -> list[tuple[int, int, int]]:
        """Return (key of A, key of B, units)."""
        return [] if self.engine is None else [pair[:3] for pair in self.engine.pairs()]

    def true_cost(self, distances: Any) -> float:
        """Return the sum of true distances of the cell's pairs; O(1) for the dense kernel."""
        if self.engine is None:
            return 0.0
        if self.kind == "dense":
            return float(self.engine.cost)
        pairs = self.pairs()
        return float(sum(n * d for (_, _, n), d in zip(pairs, distances(pairs).tolist(), strict=True)))

    def state(self) -> dict[str, Any]:
        """Return the cell as plain values."""
        only = np.array([[s, k, n] for (s, k), n in self.only.items()], np.int64).reshape(-1, 3)
        engine = None if self.engine is None else self.engine.state()
        return {"only": only, "kind": self.kind, "cost": self.cost, "engine": engine}

    def restore(self, settings: CellSettings, state: dict[str, Any], centre: Any) -> None:
        """Take back what `state` gave."""
        self.only = {(s, k): n for s, k, n in state["only"].tolist()}
        self.kind, self.cost = state["kind"], float(state["cost"])
        if state["engine"] is not None:
            self.engine = self._make(settings, self.kind, centre)
            self.engine.restore(state["engine"])


def difference(before: dict[tuple[int, int], int], after: dict[tuple[int, int], int]) -> list[Event]:
    """Return the changes from one set of carried units to another, losses first."""
    changes = [(s, k, after.get((s, k), 0) - before.get((s, k), 0)) for s, k in sorted(before | after)]
    return sorted((c for c in changes if c[2]), key=lambda c: c[2])


def merge(first: list[Event], second: list[Event]) -> list[Event]:
    """Net out two successive lists of changes, losses first."""
    net: dict[tuple[int, int], int] = {}
    for side, key, units in [*first, *second]:
        net[side, key] = net.get((side, key), 0) + units
    return sorted(((s, k, n) for (s, k), n in net.items() if n), key=lambda c: c[2])

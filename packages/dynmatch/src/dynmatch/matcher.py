"""What all matchers have in common: ids, validation, batches, answers in the users' ids, save and load."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dynmatch import snapshot
from dynmatch.costs import Real, validate_point
from dynmatch.errors import CapacityError
from dynmatch.protocol import SIDES, Id, Side, Update
from papers_shared.errors import InputError


@dataclass
class Entry:
    """A point that is present."""

    key: int
    side: int
    weight: int
    point: np.ndarray


def _at(row: int | None) -> str:
    return "" if row is None else f"row {row}: "


class BaseMatcher(ABC):
    """Ids and validation around a matcher's own ``_add``, ``_remove`` and answers.

    Attributes
    ----------
    p
        The exponent of W_p.
    config
        The constructor's arguments, for `save`.
    """

    kinds: ClassVar[dict[str, type[BaseMatcher]]] = {}
    built: ClassVar[bool] = False
    """Whether ``_build`` can match all present points at once."""

    def __init_subclass__(cls) -> None:
        BaseMatcher.kinds[cls.__name__] = cls

    def __init__(self, p: Real, config: dict[str, Any], dim: int | None) -> None:
        if not (p >= 1 and np.isfinite(p)):
            raise ValueError(f"W_p needs a finite p >= 1, not {p}")
        self.p, self.config, self.dim = float(p), config, dim
        self.entries: dict[Id, Entry] = {}
        self.ids: dict[int, Id] = {}
        self.weights = [0, 0]
        self._next_key = 0
        self._next_id = 0
        self.updates = 0

    # -- updates -------------------------------------------------------------------------------------------------

    def insert(self, side: str, point: Any, *, id: Id | None = None, weight: Any = 1) -> Id:
        """Add a point to one side.

        Parameters
        ----------
        side
            ``"A"`` or ``"B"``.
        point
            ``(d,)`` finite numbers, or a row number for a precomputed metric.
        id
            How to call it; by default a number that is not in use.
        weight
            Its multiplicity, a positive integer.

        Returns
        -------
        int or str
            The id.

        Raises
        ------
        ValueError
            NaN, infinity, wrong dimension, id in use, unknown side, bad weight. Nothing has changed then.
        """
        return self._insert(side, point, id, weight, None)

    def _insert(
        self,
        side: str,
        point: Any,
        id: Id | None,
        weight: Any,
        row: int | None,
        taken: frozenset[Id | None] = frozenset(),
    ) -> Id:
        s, units = self._checked(side, weight, row, self.weights)
        if id is None:
            id = self._free_id(taken)
        elif id in self.entries:
            raise ValueError(f"{_at(row)}id {id!r} is in use")
        x = self._validate(s, point, row, id)
        if self.dim is None:
            self._first_point(len(x))
        self._add(self._next_key, s, x, units)
        self._register(id, s, x, units)
        self._after_update()
        return id

    def _checked(self, side: Any, weight: Any, row: int | None, weights: list[int]) -> tuple[int, int]:
        """Return side and weight as numbers, if they are fit for sides that weigh ``weights`` so far."""
        if side not in SIDES:
            raise ValueError(f"{_at(row)}side {side!r}, want 'A' or 'B'")
        if isinstance(weight, bool) or not isinstance(weight, (int, np.integer)) or weight < 1:
            raise ValueError(f"{_at(row)}weight {weight!r} is not a positive integer")
        s = SIDES.index(side)
        if weights[s] + int(weight) > 2**53:
            raise CapacityError(f"{_at(row)}side {side} would weigh more than 2^53")
        return s, int(weight)

    def _free_id(self, taken: Set[Id | None] = frozenset()) -> int:
        while self._next_id in self.entries or self._next_id in taken:
            self._next_id += 1
        return self._next_id

    def _register(self, id: Id, side: int, x: np.ndarray, units: int) -> None:
        key = self._next_key
        self._next_key += 1
        self.entries[id], self.ids[key] = Entry(key, side, units, x), id
        self.weights[side] += units

    def extend(self, side: Side, points: Any) -> list[Id]:
        """Insert the rows of ``points`` and return their ids; a grid or a hub network is built once instead of grown.

        Raises
        ------
        ValueError
            As `insert`, naming the row. Nothing has changed then.
        """
        s, _ = self._checked(side, 1, None, self.weights)
        dim, rows = self.dim, []
        for number, point in enumerate(points, 1):
            rows.append(self._validate(s, point, number, None, dim))
            dim = len(rows[0])
        if not self.built or 2 * len(rows) < len(self.entries):
            return [self._insert(side, x, None, 1, number) for number, x in enumerate(rows, 1)]
        if self.dim is None and rows:
            self._first_point(len(rows[0]))
        made: list[Id] = []
        for x in rows:
            made.append(self._free_id())
            self._register(made[-1], s, x, 1)
        self.updates += len(made)
        self._build()
        return made

    def delete(self, id: Id) -> None:
        """Remove a point with all its weight.

        Raises
        ------
        KeyError
            No point has this id. Nothing has changed then.
        """
        entry = self.entries.get(id)
        if entry is None:
            raise KeyError(f"no point has the id {id!r}")
        self._remove(entry)
        del self.entries[id], self.ids[entry.key]
        self.weights[entry.side] -= entry.weight
        self._after_update()

    def apply(self, batch: Iterable[Update]) -> list[float]:
        """Apply updates in order; all are validated first, so that a bad one leaves everything as it was.

        Parameters
        ----------
        batch
            Inserts, deletes and queries.

        Returns
        -------
        list of float
            The cost at each query.

        Raises
        ------
        ValueError, KeyError
            As `insert` and `delete`, naming the row.
        """
        updates = list(batch)
        self._validate_batch(updates)
        named = frozenset(update.id for update in updates)
        answers = []
        for update in updates:
            if update.op == "insert":
                assert update.side is not None
                self._insert(update.side, update.point, update.id, update.weight, update.row, named)
            elif update.op == "delete":
                assert update.id is not None
                self.delete(update.id)
            else:
                answers.append(self.cost())
        return answers

    def _validate_batch(self, updates: list[Update]) -> None:
        known: dict[Id, tuple[int, int] | None] = {}
        weights, dim = list(self.weights), self.dim
        for number, update in enumerate(updates, 1):
            row = update.row if update.row is not None else number
            held = self.entries.get(update.id) if update.id is not None else None
            now = None if held is None else (held.side, held.weight)
            now = known.get(update.id, now) if update.id is not None else None
            if update.op == "insert":
                if now is not None:
                    raise ValueError(f"row {row}: id {update.id!r} is in use")
                s, units = self._checked(update.side, update.weight, row, weights)
                dim = len(self._validate(s, update.point, row, update.id, dim))
                weights[s] += units
                if update.id is not None:
                    known[update.id] = (s, units)
            elif update.op == "delete":
                if update.id is None or now is None:
                    raise KeyError(f"row {row}: no point has the id {update.id!r}")
                weights[now[0]] -= now[1]
                known[update.id] = None
            elif update.op != "query":
                raise ValueError(f"row {row}: op {update.op!r}, want insert, delete or query")

    def _validate(
        self, side: int, point: Any, row: int | None, id: Id | None, dim: int | None = None
    ) -> Float[np.ndarray, " d"]:
        return validate_point(point, self.dim if dim is None else dim, row, id)

    def _first_point(self, dim: int) -> None:
        self.dim = dim

    def _after_update(self) -> None:
        """Count the update; matchers that rebuild themselves do more."""
        self.updates += 1

    def _build(self) -> None:
        """Match all present points anew; only matchers that are ``built`` have that."""
        raise NotImplementedError

    @abstractmethod
    def _add(self, key: int, side: int, x: np.ndarray, weight: int) -> None: ...

    @abstractmethod
    def _remove(self, entry: Entry) -> None: ...

    # -- answers -------------------------------------------------------------------------------------------------

    def cost(self) -> float:
        r"""Return :math:`W_p = (\sum d(a, b)^p)^{1/p}` over the pairs, in the points' unit; no 1/n."""
        total, scale = self._total()
        return scale * total ** (1.0 / self.p)

    def wasserstein(self, normalized: bool = False) -> float:
        """Return the cost; ``normalized`` divides the sum by the number of matched units, as for two distributions."""
        if not normalized:
            return self.cost()
        total, scale = self._total()
        size = min(self.weights)
        return scale * (total / size) ** (1.0 / self.p) if size else 0.0

    def pairs(self) -> tuple[list[Id], list[Id], Float[np.ndarray, " m"]]:
        """Return the matching as ids of A, ids of B and distances; a pair of weight w stands there w times."""
        ids_a: list[Id] = []
        ids_b: list[Id] = []
        distances: list[float] = []
        for a, b, units, distance in self._pairs():
            ids_a += [self.ids[a]] * units
            ids_b += [self.ids[b]] * units
            distances += [distance] * units
        return ids_a, ids_b, np.array(distances, dtype=np.float64)

    def mate(self, id: Id) -> Id | dict[Id, int] | None:
        """Return the id a point is matched to, or None; for a weight above 1, units by id.

        Raises
        ------
        KeyError
            No point has this id.
        """
        if id not in self.entries:
            raise KeyError(f"no point has the id {id!r}")
        entry = self.entries[id]
        found: dict[Id, int] = {}
        for key, units in self._mates(entry):
            found[self.ids[key]] = found.get(self.ids[key], 0) + units
        if entry.weight > 1:
            return found
        return next(iter(found), None)

    def _mates(self, entry: Entry) -> list[tuple[int, int]]:
        mine = [(a, b, n) for a, b, n, _ in self._pairs() if entry.key == (b if entry.side else a)]
        return [(a if entry.side else b, n) for a, b, n in mine]

    def unmatched(self) -> dict[Id, int]:
        """Return the unmatched units by id; they all lie on the larger side."""
        return {self.ids[key]: units for (_, key), units in sorted(self._free().items()) if units}

    @property
    def size(self) -> tuple[int, int]:
        """Total weight of A and of B."""
        return self.weights[0], self.weights[1]

    @abstractmethod
    def _total(self) -> tuple[float, float]:
        """Sum of d^p over the pairs, in units of scale^p, and the scale."""

    @abstractmethod
    def _pairs(self) -> Iterable[tuple[int, int, int, float]]:
        """Keys of A and B, units, true distance."""

    @abstractmethod
    def _free(self) -> dict[tuple[int, int], int]: ...

    def lower_bound(self) -> float | None:
        """Return a number that W_p cannot be below, or None if the method gives none."""
        return None

    @abstractmethod
    def stats(self) -> dict[str, Any]:
        """Return sizes and work done so far."""

    def check(self) -> None:
        """Verify every invariant; raises AssertionError naming what is violated."""
        found = [0, 0]
        for entry in self.entries.values():
            found[entry.side] += entry.weight
        assert found == self.weights, "the sides' weights are miscounted"
        assert sum(units for _, _, units, _ in self._pairs()) == min(self.weights), "the matching is not maximum"
        self._check()

    @abstractmethod
    def _check(self) -> None: ...

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything that decides later answers, as plain arrays, numbers and text."""
        held = list(self.entries.values())
        dim = self.dim or 1
        return {
            "class": type(self).__name__,
            "config": self.config,
            "dim": self.dim,
            "updates": self.updates,
            "next": [self._next_key, self._next_id],
            "ids": list(self.entries),
            "entries": np.array([[e.key, e.side, e.weight] for e in held], np.int64).reshape(-1, 3),
            "points": np.array([e.point for e in held], np.float64).reshape(-1, dim),
            "own": self._state(),
        }

    @abstractmethod
    def _state(self) -> dict[str, Any]: ...

    @abstractmethod
    def _restore(self, own: dict[str, Any]) -> None: ...

    @staticmethod
    def from_state(state: dict[str, Any], **given: Any) -> BaseMatcher:
        """Make a matcher from `state`; later answers are the same bit for bit.

        Parameters
        ----------
        state
            What `state` returned.
        **given
            Arguments that cannot be saved: ``metric=`` for a callable one.
        """
        config = dict(state["config"]) | given
        if config.get("metric") == "callable":
            raise InputError("this snapshot used a callable metric", hint="pass it: load(path, metric=function)")
        made = BaseMatcher.kinds[state["class"]](**config)
        if made.dim is None and state["dim"] is not None:
            made._first_point(int(state["dim"]))
        for id, (key, side, weight), point in zip(
            state["ids"], state["entries"].tolist(), state["points"], strict=True
        ):
            made.entries[id] = Entry(key, side, weight, point)
            made.ids[key] = id
            made.weights[side] += weight
        made.updates = int(state["updates"])
        made._next_key, made._next_id = (int(v) for v in state["next"])
        made._restore(state["own"])
        return made

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the state to a file, whole or not at all."""
        return snapshot.write(Path(path), self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str], **given: Any) -> BaseMatcher:
        """Read a matcher that `save` wrote.

        Raises
        ------
        InputError
            The file is missing, no snapshot, or of another kind of matcher.
        """
        made = BaseMatcher.from_state(snapshot.read(Path(path)), **given)
        if not isinstance(made, cls):
            raise InputError(f"{os.fspath(path)} holds a {type(made).__name__}, not a {cls.__name__}")
        return made

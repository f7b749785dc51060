"""The words that matchers, streams and readers share: sides, ids, updates, and what every matcher can do."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

Side = Literal["A", "B"]
Id = int | str
SIDES: tuple[Side, Side] = ("A", "B")


@dataclass(frozen=True)
class Update:
    """One line of an update stream: ``insert`` or ``delete`` a point, or ``query`` the distance."""

    op: Literal["insert", "delete", "query"]
    side: Side | None = None
    id: Id | None = None
    point: tuple[Any, ...] | None = None
    weight: int = 1
    row: int | None = None


@runtime_checkable
class Matcher(Protocol):
    """What every matcher can do; see `ExactMatcher`, `HubMatcher`, `GridMatcher`."""

    def insert(self, side: str, point: Any, *, id: Id | None = None, weight: Any = 1) -> Id:
        """Add a point."""

    def delete(self, id: Id) -> None:
        """Remove a point."""

    def apply(self, batch: Iterable[Update]) -> list[float]:
        """Apply updates in order, and return the cost at each query."""

    def cost(self) -> float:
        """Return W_p, without 1/n."""

    def wasserstein(self, normalized: bool = False) -> float:
        """Return W_p, of the two normalized distributions if asked for."""

    def pairs(self) -> tuple[list[Id], list[Id], Float[np.ndarray, " m"]]:
        """Return ids of A, ids of B and distances."""

    def mate(self, id: Id) -> Id | dict[Id, int] | None:
        """Return what a point is matched to."""

    def unmatched(self) -> dict[Id, int]:
        """Return unmatched units by id."""

    def lower_bound(self) -> float | None:
        """Return a number that W_p cannot be below, or None."""

    def stats(self) -> dict[str, Any]:
        """Return sizes and work done so far."""

    def check(self) -> None:
        """Verify all invariants."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the state to a file."""

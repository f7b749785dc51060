"""Run a matcher over a stream of updates: the running table, periodic snapshots, exact continuation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dynmatch import snapshot
from dynmatch.exact import ExactMatcher
from dynmatch.matcher import BaseMatcher
from dynmatch.protocol import Update
from papers_shared.errors import InputError

Row = dict[str, Any]


@dataclass
class Run:
    """A matcher on its way through a stream.

    Attributes
    ----------
    matcher
        What is run and timed.
    shadow
        An exact matcher beside it that certifies its distance, or None.
    rows
        One row per ``every`` updates and per query: n, cost, lower bound, milliseconds per update.
    seconds
        Time of each update since the last row.
    """

    matcher: BaseMatcher
    shadow: ExactMatcher | None = None
    position: int = 0
    rows: list[Row] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    shadow_seconds: list[float] = field(default_factory=list)

    def step(self, update: Update) -> None:
        """Apply one update; the user's mistakes come back as `InputError` with the row."""
        row = update.row if update.row is not None else self.position + 1
        try:
            began = time.perf_counter()
            self.matcher.apply([update] if update.op != "query" else [])
            self.seconds.append(time.perf_counter() - began)
            if self.shadow is not None and update.op != "query":
                began = time.perf_counter()
                self.shadow.apply([update])
                self.shadow_seconds.append(time.perf_counter() - began)
        except (ValueError, KeyError) as error:
            text = str(error.args[0]) if error.args else str(error)
            raise InputError(text if text.startswith("row") else f"row {row}: {text}") from error
        self.position += 1

    def report(self) -> Row:
        """Close a row of the running table."""
        times = 1e3 * np.array(self.seconds or [0.0])
        bound = self.matcher.lower_bound()
        bound = self.shadow.lower_bound() if self.shadow is not None else bound
        row = {
            "update": self.position,
            "n_a": self.matcher.size[0],
            "n_b": self.matcher.size[1],
            "cost": self.matcher.cost(),
            "normalized": self.matcher.wasserstein(normalized=True),
            "lower_bound": bound,
            "ms": float(np.median(times)),
            "ms_p95": float(np.quantile(times, 0.95)),
            "certificate_ms": float(1e3 * np.median(self.shadow_seconds)) if self.shadow_seconds else None,
        }
        self.rows.append(row)
        self.seconds, self.shadow_seconds = [], []
        return row

    def save(self, path: Path) -> None:
        """Write a snapshot of everything, whole or not at all."""
        shadow = None if self.shadow is None else self.shadow.state()
        state = {
            "position": self.position,
            "rows": self.rows,
            "matcher": self.matcher.state(),
            "shadow": shadow,
            "seconds": self.seconds,
            "shadow_seconds": self.shadow_seconds,
        }
        snapshot.write(path, state)

    @staticmethod
    def load(path: Path, **given: Any) -> Run:
        """Continue from a snapshot."""
        state = snapshot.read(path)
        matcher = BaseMatcher.from_state(state["matcher"], **given)
        shadow = None if state["shadow"] is None else BaseMatcher.from_state(state["shadow"], **given)
        assert shadow is None or isinstance(shadow, ExactMatcher)
        return Run(matcher, shadow, int(state["position"]), state["rows"], state["seconds"], state["shadow_seconds"])

    def through(
        self, updates: list[Update], every: int, keep: Path | None, keep_every: int, progress: Callable[[int], None]
    ) -> Iterator[Row]:
        """Apply the updates that are still to come, and yield a row every ``every`` updates, at queries, at the end.

        The last part is saved to ``keep`` every ``keep_every`` updates, if given.
        """
        for number in range(self.position, len(updates)):
            update = updates[number]
            self.step(update)
            progress(1)
            if update.op == "query" or self.position % every == 0 or self.position == len(updates):
                yield self.report()
            if keep is not None and self.position % keep_every == 0:
                self.save(keep)

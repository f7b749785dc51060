"""The stream service: JSON lines in, one distance a line out, every accepted line journalled before it is answered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dynmatch.data import read_points, update_from
from dynmatch.factory import make_matcher
from dynmatch.matcher import BaseMatcher
from dynmatch.protocol import Update
from dynmatch.service import Journal
from dynmatch.window import SlidingWindow
from papers_shared.errors import InputError


class Live:
    """A drift monitor (with a reference) or a matcher (fed with updates) behind a pipe.

    Parameters
    ----------
    reference
        Points to compare a sliding window with; None to take updates ``{"op", "side", "id", "point"}`` instead.
    window
        Size of the window.
    dim
        Coordinates of a point, for a grid fed with updates.
    options
        method, metric, p, eps, k, seed.
    journal
        Where to remember the lines, or None.
    """

    def __init__(
        self, reference: Path | None, window: int, dim: int | None, options: dict[str, Any], journal: Journal | None
    ) -> None:
        self.journal = journal
        self.monitor: SlidingWindow | None = None
        self.matcher: BaseMatcher | None = None
        rest = dict(options)
        method = rest.pop("method")
        digest = None
        try:
            if reference is not None:
                points = read_points(reference)
                digest = hashlib.sha256(points.tobytes()).hexdigest()[:16]
                self.monitor = SlidingWindow(points, window, method, **rest)
            else:
                self.matcher = make_matcher("exact" if method == "auto" else method, dim, **rest)
        except ValueError as error:
            raise error if isinstance(error, InputError) else InputError(str(error)) from error
        if journal is not None:
            journal.agree(options | {"window": window, "reference": digest, "dim": dim})

    def take(self, line: str) -> float:
        """Apply a line of JSON and return the distance.

        Raises
        ------
        InputError
            The line is malformed or cannot be applied; nothing has changed then.
        """
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not JSON: {getattr(error, 'msg', error)}") from error
        answer = self._apply(value)
        if self.journal is not None:
            self.journal.record(value)
            if self.journal.due():
                self.journal.checkpoint(self._state())
        return answer

    def _apply(self, value: Any) -> float:
        try:
            if self.monitor is not None:
                return self.monitor.push(value.get("point", value.get("x")) if isinstance(value, dict) else value)
            assert self.matcher is not None
            if not isinstance(value, dict):
                raise InputError('want {"op", "side", "id", "point"}', hint="or give --reference for plain points")
            update = update_from(value, 0)
            if update.op != "query":
                self.matcher.apply([Update(update.op, update.side, update.id, update.point, update.weight)])
            return self.matcher.cost()
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(str(error.args[0]) if error.args else str(error)) from error

    def distance(self) -> float:
        """Return the present distance."""
        if self.monitor is not None:
            return self.monitor.distance()
        assert self.matcher is not None
        return self.matcher.cost()

    def _state(self) -> dict[str, Any]:
        held: Any = self.monitor if self.monitor is not None else self.matcher
        return held.state()

    def recover(self) -> None:
        """Bring back what the journal remembers."""
        assert self.journal is not None

        def restore(state: dict[str, Any]) -> None:
            if self.monitor is not None:
                self.monitor = SlidingWindow.from_state(state)
            else:
                self.matcher = BaseMatcher.from_state(state)

        def replay(value: Any) -> None:
            self._apply(value)

        self.journal.recover(restore, replay)

"""Progress on stderr: a live bar with ETA on a terminal, a line now and then elsewhere, nothing under ``--quiet``."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sized
from typing import Any, TypeVar

T = TypeVar("T")

FIRST_LINE = 3.0
"""Seconds after which a progress line is written where there is no terminal; later ones come ever more rarely."""

_LONGEST_GAP = 60.0


class Progress:
    """One task under way; made by `progress`.

    Attributes
    ----------
    done : float
        Steps finished.
    total : float or None
        Steps in all, if known.
    """

    def __init__(self, description: str, total: float | None) -> None:
        self.description = description
        self.total = total
        self.done = 0.0
        self.note = ""

    def advance(self, steps: float = 1, note: str | None = None) -> None:
        """Count ``steps`` more as done; ``note`` is shown beside the bar, for example the loss."""
        self.update(self.done + steps, note)

    def update(self, done: float | None = None, note: str | None = None, total: float | None = None) -> None:
        """Set what is done, the note, or the total."""
        self.done = self.done if done is None else done
        self.note = self.note if note is None else note
        self.total = self.total if total is None else total
        self._show()

    def _show(self) -> None:
        """Draw nothing; the visible kinds of progress override this."""

    def _close(self) -> None:
        """Release nothing; the visible kinds of progress override this."""


class _Lines(Progress):
    """For log files: lines after 3 s, 6 s, 12 s, ... and then every minute, and one at the end if any came before."""

    def __init__(self, description: str, total: float | None) -> None:
        super().__init__(description, total)
        self._begun = self._last = time.monotonic()
        self._gap = FIRST_LINE
        self._shown_at: float | None = None

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._last >= self._gap:
            self._last, self._gap = now, min(2 * self._gap, _LONGEST_GAP)
            self._line(now)

    def _line(self, now: float) -> None:
        elapsed = now - self._begun
        parts = [f"{self.done:g}"]
        if self.total:
            parts = [f"{self.done:g}/{self.total:g} ({100 * self.done / self.total:.0f}%)"]
            if 0 < self.done < self.total:
                parts.append(f"about {duration(elapsed * (self.total - self.done) / self.done)} left")
        parts.append(f"{duration(elapsed)} so far")
        parts += [self.note] if self.note else []
        self._shown_at = self.done
        _write_line(f"{self.description}: {', '.join(parts)}")

    def _close(self) -> None:
        if self._shown_at not in (None, self.done):
            self._line(time.monotonic())


class _Display:
    """The one live display on the terminal, shared by all tasks: rich allows one, and tasks nest."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.users = 0
        self.rich: Any = None

    def open(self, description: str, total: float | None) -> Any:
        from rich import progress as parts

        with self.lock:
            if self.users == 0:
                self.rich = parts.Progress(
                    parts.TextColumn("{task.description}", markup=False),
                    parts.BarColumn(bar_width=None, table_column=None),
                    parts.TaskProgressColumn(),
                    parts.MofNCompleteColumn(),
                    parts.TimeElapsedColumn(),
                    parts.TextColumn("left"),
                    parts.TimeRemainingColumn(),
                    parts.TextColumn("{task.fields[note]}", markup=False),
                    console=stderr_console(),
                    transient=True,
                )
                self.rich.start()
            self.users += 1
            return self.rich.add_task(description, total=total, note="")

    def close(self, task: Any) -> None:
        with self.lock:
            self.rich.remove_task(task)
            self.users -= 1
            if self.users == 0:
                self.rich.stop()
                self.rich = None


_DISPLAY = _Display()


class _Bar(Progress):
    def __init__(self, description: str, total: float | None) -> None:
        super().__init__(description, total)
        self._task = _DISPLAY.open(description, total)

    def _show(self) -> None:
        _DISPLAY.rich.update(self._task, completed=self.done, total=self.total, note=self.note)

    def _close(self) -> None:
        _DISPLAY.close(self._task)


@contextlib.contextmanager
def progress(description: str, total: float | None = None, *, quiet: bool = False) -> Generator[Progress, None, None]:
    """Show progress on stderr while the block runs.

    Parameters
    ----------
    description
        What is being done, a few words.
    total
        Steps in all; None when unknown.
    quiet
        Show nothing.

    Yields
    ------
    Progress
        Call ``advance()`` after each step.
    """
    if quiet or sys.stderr is None:
        shown = Progress(description, total)
    elif sys.stderr.isatty():
        shown = _Bar(description, total)
    else:
        shown = _Lines(description, total)
    try:
        yield shown
    finally:
        shown._close()


def track(iterable: Iterable[T], description: str, total: float | None = None, *, quiet: bool = False) -> Iterator[T]:
    """Yield from ``iterable`` and show progress on stderr; ``total`` defaults to its length if it has one."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with progress(description, total, quiet=quiet) as shown:
        for item in iterable:
            yield item
            shown.advance()


def duration(seconds: float) -> str:
    """Format seconds as ``8 s``, ``3 min 20 s`` or ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def stderr_console() -> Any:
    """Return a rich console on the present stderr."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


def _write_line(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed stderr must not stop the work
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

"""A claim, the mark that makes one, and what its function may use."""

from __future__ import annotations

import functools
import hashlib
import importlib
import logging
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from papers_shared import cli
from papers_shared._figures import write_figure
from papers_shared._fingerprint import source_digest
from papers_shared._json import dumps_line
from papers_shared._text import write_bytes, write_text
from papers_shared.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
STATE = ".partial"
"""The folder inside the results that holds what only an unfinished run needs."""


@dataclass(frozen=True)
class Claim:
    """One claim of a paper and the function that re-tests it."""

    id: str
    statement: str
    paper: str
    must_hold: bool
    seeds: int
    function: Callable[[Context], Mapping[str, Any]]


def claim(
    id: str,
    *,
    statement: str,
    paper: str,
    must_hold: bool = True,
    seeds: int = 1,
) -> Callable[[Callable[[Context], Mapping[str, Any]]], Callable[[Context], Mapping[str, Any]]]:
    """Mark a function of a package's ``claims`` module as the test of a claim.

    Parameters
    ----------
    id
        As in the specification, for example ``"B1"``.
    statement
        What is claimed, in one line.
    paper
        The paper's own figure, or where it says so.
    must_hold
        False for a claim that is only reported; its ``holds`` is None.
    seeds
        How many seeds to use, 0, 1, ..., when ``--seeds`` is not given.

    Returns
    -------
    callable
        Leaves the function as it is. The function takes a `Context` and returns a mapping with ``measured`` (a
        mapping of names to numbers, intervals, lists), ``holds`` (a boolean, or None for a claim only reported) and
        optionally ``figure`` (a file name that `Context.figure` returned).
    """

    def mark(function: Callable[[Context], Mapping[str, Any]]) -> Callable[[Context], Mapping[str, Any]]:
        function.__claim__ = Claim(id, statement, paper, must_hold, seeds, function)  # ty: ignore[missing-attribute]
        return function

    return mark


@dataclass
class Context:
    """What a claim's function may use.

    Attributes
    ----------
    scale
        ``"small"``, ``"paper"`` or, in tests, ``"smoke"``.
    seeds
        The seeds to use.
    out
        The folder of results; put there only what should be kept with them.
    """

    scale: str = "small"
    seeds: tuple[int, ...] = (0,)
    out: Path = Path()
    version: str = ""
    label: str = ""
    figures: list[str] = field(default_factory=list)
    _memory: dict[str, Any] = field(default_factory=dict, repr=False)

    def pick(self, *, small: T, paper: T, smoke: T | None = None) -> T:
        """Return the value for the present scale; ``smoke`` falls back to ``small``."""
        if self.scale == "paper":
            return paper
        return smoke if self.scale == "smoke" and smoke is not None else small

    def cache(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return ``function(*args, **kwargs)``, computed once for all claims and kept for ``--resume``.

        Computed again when the function's code (with what it calls in its package), its arguments, the scale, the
        seeds or the package's version have changed. The value is pickled in the results folder until all claims are
        done.
        """
        key = self._key(name, function, args, kwargs)
        if key in self._memory:
            return self._memory[key]
        path = self.out / STATE / "cache" / f"{key}.pickle"
        try:
            value = pickle.loads(path.read_bytes())
        except Exception as error:  # not there, or of a class that has moved since, or of another library's version
            if not isinstance(error, FileNotFoundError):
                _LOG.info("%s: %s is computed again: %s", self.label, path.stem, error)
            value = function(*args, **kwargs)
            self._keep(path, value)
        self._memory[key] = value
        return value

    def _keep(self, path: Path, value: Any) -> None:
        # What cannot be kept, or finds no room, is no reason to lose what was measured.
        try:
            data = pickle.dumps(value, protocol=5)
            make_state(self.out)
            path.parent.mkdir(exist_ok=True)
            write_bytes(path, data)
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError, OSError, InputError) as error:
            _LOG.warning("%s: %s is not kept for --resume: %s", self.label, path.stem, error)

    def _key(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        while isinstance(function, functools.partial):
            function, args, kwargs = function.func, (*function.args, *args), {**function.keywords, **kwargs}
        if isinstance(function, MethodType):
            function, args = function.__func__, (function.__self__, *args)
        try:
            given = dumps_line([args, kwargs]).encode()
        except (TypeError, ValueError):
            given = pickle.dumps((args, kwargs), protocol=5)
        digest = hashlib.sha256(given)
        digest.update(f"{source_digest(function)} {self.scale} {self.seeds} {self.version}".encode())
        safe = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]
        return f"{safe}-{digest.hexdigest()[:16]}"

    def figure(self, name: str, fig: Figure, caption: str) -> str:
        """Save a figure among the results and return its name, for the ``figure`` of the claim's answer."""
        write_figure(self.out / name, fig, caption)
        self.figures.append(name)
        return name

    def track(self, iterable: Iterable[T], description: str, total: float | None = None) -> Iterator[T]:
        """Yield from ``iterable`` with progress on stderr."""
        return cli.track(iterable, f"{self.label} {description}".strip(), total)


def collect(module: ModuleType | str) -> list[Claim]:
    """Return the claims of a module in the order of their definition.

    Parameters
    ----------
    module
        A module, or a package's name, whose module ``claims`` is imported.

    Raises
    ------
    InputError
        The package has no claims.
    ValueError
        Two claims have the same id.
    """
    if isinstance(module, str):
        try:
            module = importlib.import_module(f"{module}.claims")
        except ModuleNotFoundError as error:
            if error.name == f"{module}.claims":
                raise InputError(f"{module} has no claims to re-test") from error
            raise
    functions = {
        id(value): value for value in vars(module).values() if isinstance(getattr(value, "__claim__", None), Claim)
    }
    claims = [function.__claim__ for function in functions.values()]
    ids = [found.id for found in claims]
    double = sorted({name for name in ids if ids.count(name) > 1})
    if double:
        raise ValueError(f"{module.__name__}: more than one claim is called {', '.join(double)}")
    return claims


def make_state(out: Path) -> None:
    """Make the folder of an unfinished run, hidden from git."""
    note = out / STATE / ".gitignore"
    if not note.exists():
        note.parent.mkdir(parents=True, exist_ok=True)
        write_text(note, "*\n")

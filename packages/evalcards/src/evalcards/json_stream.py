"""JSON files too large to hold: members of an object, items of an array, or lines, one in memory at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalcards.errors import SchemaError
from evalcards.strict_json import loads, too_large

_CHUNK = 1 << 20


def opening(path: Path) -> str:
    """Return the first character of a file that is no white space; empty if there is none."""
    with path.open("rb") as file:
        head = file.read(1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    return head[:1].decode("ascii", errors="replace")


def stream_members(path: Path, wanted: set[str], *, max_bytes: int, chunk: int = _CHUNK) -> dict[str, Any]:
    """Read some members of a JSON object without holding the rest: for logs whose samples are gigabytes.

    Parameters
    ----------
    path
        The file; its top level is an object.
    wanted
        The keys to parse.
    max_bytes
        The most that one wanted member may take.
    chunk
        Characters read at a time.

    Returns
    -------
    dict
        The wanted members that are there; NaN and infinities are accepted.

    Raises
    ------
    SchemaError
        Not an object, cut short, or a wanted member over ``max_bytes``.
    """
    found = {}
    for key, text in _values(path, _Splitter(str(path), max_bytes, wanted), chunk):
        found[key] = loads(text, f"{path}, {key}", constants=True)
    return found


def stream_items(path: Path, *, max_bytes: int, chunk: int = _CHUNK) -> Iterator[tuple[int, Any, int]]:
    """Yield (position, item, characters) of a JSON array, one item at a time.

    Parameters
    ----------
    path
        The file; its top level is an array.
    max_bytes
        The most that one item may take.
    chunk
        Characters read at a time.

    Raises
    ------
    SchemaError
        Not an array, cut short, or an item that is over ``max_bytes`` or no JSON.
    """
    for position, text in _values(path, _Splitter(str(path), max_bytes), chunk):
        yield position, loads(text, f"{path}, [{position}]"), len(text)


def lines(path: Path, *, max_bytes: int, constants: bool = False) -> Iterator[tuple[int, Any, int]]:
    """Yield (line number, value, bytes) of a JSON Lines file; a `SchemaError` as value where a line is none.

    Parameters
    ----------
    path
        The file.
    max_bytes
        The most that one line may take.
    constants
        Accept the bare tokens NaN, Infinity and -Infinity.
    """
    with path.open("rb") as file:
        number = 0
        while text := file.readline(max_bytes + 1):
            number += 1
            size = len(text)
            if size > max_bytes:
                while not text.endswith(b"\n") and (text := file.readline(max_bytes + 1)):
                    size += len(text)
                yield number, too_large(str(path), size, max_bytes), size
            elif text.strip():
                try:
                    value = loads(text, str(path), constants=constants)
                except SchemaError as error:
                    value = error
                yield number, value, size


def _values(path: Path, splitter: _Splitter, chunk: int) -> Iterator[tuple[Any, str]]:
    """Yield (key or position, text) of the top-level values."""
    try:
        with path.open("r", encoding="utf-8-sig", newline="") as file:
            while text := file.read(chunk):
                splitter.feed(text)
                yield from splitter.take_ready()
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(str(path), f"cannot be read: {error}") from error
    splitter.close()


class _Splitter:
    """A machine over chunks of text that follows strings and nesting and keeps only the text of wanted values.

    Inside a value only quotes and brackets matter; commas and colons do where the values themselves are.

    Parameters
    ----------
    path
        For errors.
    max_bytes
        The most that a kept value may take.
    wanted
        The members of an object to keep; None splits an array and keeps all.
    """

    _DEEP = re.compile(r'["{}\[\]]')
    _TOP = re.compile(r'["{}\[\],:]')
    _STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)

    def __init__(self, path: str, max_bytes: int, wanted: set[str] | None = None) -> None:
        self.path, self.max_bytes, self.wanted = path, max_bytes, wanted
        self.array = wanted is None
        self.depth = self.count = 0
        self.in_string = self.escaped = False
        self.key: str | None = None
        self.parts: list[str] = []
        self.size = 0
        self.ready: list[tuple[Any, str]] = []
        self.started = self.ended = False

    def take_ready(self) -> list[tuple[Any, str]]:
        """Return the values that are complete, and forget them."""
        ready, self.ready = self.ready, []
        return ready

    def _wants(self) -> bool:
        return self.array or self.key is None or self.key in (self.wanted or ())

    def _keep(self, text: str) -> None:
        """Keep a stretch of the present key or wanted value."""
        if text and self.depth and self._wants():
            self.size += len(text)
            if self.size > self.max_bytes:
                place = f"[{self.count}]" if self.array else self.key or "a key"
                raise too_large(f"{self.path}, {place}", self.size, self.max_bytes)
            self.parts.append(text)

    def _take(self) -> str:
        text = "".join(self.parts)
        self.parts, self.size = [], 0
        return text

    def _finish(self, last: bool) -> None:
        """File the value that ends here; only an empty object or array ends without one."""
        text = self._take()
        if (self.key is None and not self.array) or (self.array and not text.strip()):
            if text.strip() or not last or self.count:
                raise SchemaError(self.path, f"not JSON: no value after {self.count} others")
            return
        if self._wants():
            self.ready.append((self.count if self.array else self.key, text))
        self.count, self.key = self.count + 1, None

    def feed(self, text: str) -> None:
        """Follow one more piece of the file."""
        if not self.started:
            text = text.lstrip()
            if text and not text.startswith("[" if self.array else "{"):
                raise SchemaError(self.path, f"not a JSON {'array' if self.array else 'object'}", 1, 1)
            self.started = bool(text)
        kept = position = 0
        if self.escaped and text:
            position, self.escaped = 1, False
        while not self.ended:
            if self.in_string:
                position = self._STRING.match(text, position).end()  # ty: ignore[missing-union-attribute]
                if position >= len(text):
                    break
                if text[position] == "\\":  # the escaped character is in the next piece
                    self.escaped = True
                    break
                position, self.in_string = position + 1, False
            match = (self._DEEP if self.depth > 1 else self._TOP).search(text, position)
            if match is None:
                break
            position = match.end()
            kept = self._structure(match.group(), text, kept, position)
        if self.ended and text[position:].strip():
            raise SchemaError(self.path, "not JSON: something follows its end")
        self._keep(text[kept:])

    def _structure(self, mark: str, text: str, kept: int, position: int) -> int:
        """Follow a mark outside strings; return up to where the text is dealt with."""
        if mark == '"':
            self.in_string = True
        elif mark in "{[":
            self.depth += 1
            return position if self.depth == 1 else kept
        elif mark in "}]":
            if self.depth == 1:
                self._keep(text[kept : position - 1])
                self._finish(last=True)
                self.ended = True
                kept = position
            self.depth -= 1
        elif self.depth == 1 and mark == ":" and not self.array and self.key is None:
            self._keep(text[kept : position - 1])
            self.key = loads(self._take(), f"{self.path}, a key")
            return position
        elif self.depth == 1 and mark == ",":
            self._keep(text[kept : position - 1])
            self._finish(last=False)
            return position
        return kept

    def close(self) -> None:
        """Make sure that the value ended."""
        if not self.ended:
            raise SchemaError(self.path, "not JSON: the file is cut short")

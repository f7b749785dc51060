"""JSON as the standard has it: no NaN, no Infinity, no repeated keys, and errors that say where.

Python's own reader accepts all three. Finding the place of a fault needs a second pass over the text, which only a
faulty file pays for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evalcards.errors import SchemaError

MAX_BYTES = 512 * 2**20
"""What a reader takes in at most, unless told otherwise."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_CONSTANTS = ("NaN", "Infinity", "-Infinity")


class _Duplicate(ValueError):
    """An object repeats a key."""


class _Constant(ValueError):
    """A bare NaN or Infinity."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Duplicate
    return found


def _refuse(name: str) -> Any:
    raise _Constant(name)


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse)
_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))
_LENIENT = json.JSONDecoder(object_pairs_hook=_unique)


def loads(text: str | bytes, path: str = "<text>", *, constants: bool = False) -> Any:
    """Parse JSON strictly.

    Parameters
    ----------
    text
        The document; bytes are UTF-8, with or without a byte-order mark.
    path
        The file's name, for errors.
    constants
        Accept the bare tokens NaN, Infinity and -Infinity, which Python's harnesses write for undefined metrics.

    Returns
    -------
    object
        The parsed document.

    Raises
    ------
    SchemaError
        With line and column: not UTF-8, not JSON, a repeated key, and without ``constants`` a bare NaN or Infinity.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = text.count(b"\n", 0, error.start) + 1
            column = error.start - (text.rfind(b"\n", 0, error.start) + 1) + 1
            raise SchemaError(path, "not UTF-8", line, column, "save it as UTF-8") from error
    try:
        found = (_LENIENT if constants else _STRICT).decode(text)
    except json.JSONDecodeError as error:
        raise SchemaError(path, f"not JSON: {error.msg}", error.lineno, error.colno) from error
    except _Constant as error:
        line, column = _place(text, _first_constant(text))
        name = str(error)
        hint = f'write "{name}" as a string, or null' if "Inf" in name else "write null where there is no value"
        raise SchemaError(path, f"bare {name} is not JSON", line, column, hint) from error
    except _Duplicate as error:
        key, offset = _first_duplicate(text)
        line, column = _place(text, offset)
        raise SchemaError(path, f"key {key} occurs twice in one object", line, column) from error
    except RecursionError as error:
        raise SchemaError(path, "nested too deeply") from error
    except ValueError as error:  # Python reads no integer of more than some thousand digits
        raise SchemaError(path, "an integer has too many digits") from error
    if "\\ud" in text or "\\uD" in text:
        _refuse_surrogates(found, path)
    return found


def _refuse_surrogates(found: Any, path: str) -> None:
    """Refuse half of a character, which an escape can spell but no encoding can write."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SchemaError(path, f"a lone surrogate \\u{ord(error.object[error.start]):04x} is no character") from error


def read(path: Path, *, max_bytes: int = MAX_BYTES, constants: bool = False) -> Any:
    """Read and parse a file after looking at its size.

    Raises
    ------
    SchemaError
        As in `loads`; the file is missing, unreadable or larger than ``max_bytes``.
    """
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise too_large(str(path), size, max_bytes)
        data = path.read_bytes()
    except OSError as error:
        raise SchemaError(str(path), (error.strerror or str(error)).lower()) from error
    return loads(data, str(path), constants=constants)


def too_large(path: str, size: int, max_bytes: int) -> SchemaError:
    """Return the error for something over the size cap."""
    return SchemaError(
        path, f"{size:,} bytes, over the cap of {max_bytes:,}", hint="raise --max-bytes if you trust the file"
    )


def canonical(value: Any) -> str:
    """Return canonical JSON: sorted keys, no spaces, non-ASCII characters as they are."""
    return _CANONICAL.encode(value)


def _place(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - (text.rfind("\n", 0, offset) + 1) + 1


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    for match in _TOKEN.finditer(text):
        yield match.group(), match.start()


def _first_constant(text: str) -> int:
    return next(offset for token, offset in _tokens(text) if token in _CONSTANTS)


def _first_duplicate(text: str) -> tuple[str, int]:
    """Return the first repeated key, as written, and its offset; the text is known to have one."""
    stack: list[set[str] | None] = []
    previous = ""
    pending: tuple[str, int] | None = None
    for token, offset in _tokens(text):
        if token == "{":
            stack.append(set())
        elif token == "[":
            stack.append(None)
        elif token in "}]":
            stack.pop()
        elif token == ":" and pending and stack and stack[-1] is not None:
            key = json.loads(pending[0])
            if key in stack[-1]:
                return pending
            stack[-1].add(key)
        pending = (token, offset) if token.startswith('"') and previous in "{," else pending
        previous = token
    raise AssertionError("no repeated key")

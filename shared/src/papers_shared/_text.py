"""Text, JSON and JSON Lines: written whole, read with the place of any mistake."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from papers_shared import _atomic
from papers_shared._atomic import atomic_path, refuse_existing
from papers_shared._json import dumps, dumps_line, loads
from papers_shared.errors import InputError

PathLike = str | os.PathLike[str]


def write_bytes(path: PathLike, data: bytes | bytearray | memoryview, *, force: bool = True) -> Path:
    """Write bytes atomically."""
    with atomic_path(path, force=force) as temporary:
        temporary.write_bytes(data)
    return Path(path)


def write_text(path: PathLike, text: str, *, force: bool = True) -> Path:
    r"""Write text atomically as UTF-8 with ``\n`` line ends on every system."""
    return write_bytes(path, text.encode(), force=force)


def write_json(path: PathLike, value: Any, *, sort_keys: bool = False, force: bool = True) -> Path:
    """Write strict JSON atomically, indented, ending in a newline.

    NaN and infinities become null; numpy, torch and jax values become numbers and lists; named tuples and dataclasses
    become objects. See `jsonable` for all types.
    """
    return write_text(path, dumps(value, sort_keys=sort_keys) + "\n", force=force)


def write_jsonl(path: PathLike, rows: Iterable[Any], *, force: bool = True) -> Path:
    """Write one strict JSON value a line, atomically."""
    refuse_existing(path, force)
    with atomic_path(path, force=force) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(dumps_line(row) + "\n" for row in rows)
    return Path(path)


def append_jsonl(path: PathLike, row: Any) -> Path:
    """Append one row to a JSON Lines file; made if missing.

    The row goes out in one write, so a kill leaves it whole, absent, or torn at the very end of the file. A torn end is
    cut off before the next row is appended, and `read_jsonl` leaves it out. Several processes may append.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    line = (dumps_line(row) + "\n").encode()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            if _atomic.fcntl is not None:
                _atomic.fcntl.flock(file, _atomic.fcntl.LOCK_EX)
            line = _mend_end(file) + line
            while line:
                line = line[file.write(line) :]
    except OSError as error:
        raise _atomic.cannot_write(path, error) from error
    return Path(path)


def _mend_end(file: io.FileIO) -> bytes:
    """Cut a torn last line off; return the newline that a complete last line may lack."""
    size = file.seek(0, os.SEEK_END)
    start, tail = size, b""
    while start > 0 and b"\n" not in tail:
        step = min(1 << 16, start)
        start -= step
        file.seek(start)
        tail = file.read(step) + tail
        if tail.endswith(b"\n"):
            return b""
    last = tail[tail.rfind(b"\n") + 1 :]
    if not last:
        return b""
    try:
        loads(last)
    except ValueError:
        file.truncate(size - len(last))
        return b""
    return b"\n"


def read_json(path: PathLike) -> Any:
    """Read a JSON file.

    Raises
    ------
    InputError
        The file is missing, unreadable or not JSON; names line and column.
    """
    text = _read_text(path)
    try:
        return loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{os.fspath(path)}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise InputError(f"{os.fspath(path)}: {error}") from error


def read_jsonl(path: PathLike) -> list[Any]:
    """Read a JSON Lines file; blank lines are skipped, and a last line torn by a kill is left out.

    Raises
    ------
    InputError
        The file is missing or unreadable, or a line other than a torn last one is not JSON; names the line.
    """
    text = _read_text(path, errors="surrogateescape")
    lines = text.split("\n")
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            rows.append(loads(line))
        except ValueError as error:
            if number == len(lines):  # no newline after it
                break
            raise InputError(f"{os.fspath(path)}:{number}: not JSON: {error}") from error
    return rows


def _read_text(path: PathLike, errors: str = "strict") -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig", errors=errors)
    except OSError as error:
        raise InputError(f"cannot read {os.fspath(path)}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{os.fspath(path)}: not UTF-8 text (byte {error.start})") from error

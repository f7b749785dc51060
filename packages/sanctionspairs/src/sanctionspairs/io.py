"""Reading and writing pairs and entities in the forms in which they are published.

Pairs come as JSON Lines, the same gzipped, one JSON array, or an object ``{"metadata": ..., "pairs": [...]}``. The form
is told from the content, not from the name.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from followthemoney import EntityProxy

from papers_shared.artifacts import atomic_path
from sanctionspairs.errors import PairFormatError, SanctionsPairsError, UnknownSchemaError
from sanctionspairs.records import JUDGEMENTS, Pair, make_entity

PathLike = str | os.PathLike[str]
T = TypeVar("T")

BAD_SHARE = 0.01
"""With bad lines skipped, more than this share of them is still an error (exit 3)."""


@dataclass
class ReadStats:
    """What a reader met; filled while it reads.

    Attributes
    ----------
    read
        Pairs or entities given out.
    coerced
        Values that were not lists of text and were made so.
    skipped
        ``(line, reason)`` of what was left out.
    judgements
        How often each judgement occurred.
    """

    read: int = 0
    coerced: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)
    judgements: dict[str, int] = field(default_factory=dict)

    @property
    def too_many_bad(self) -> bool:
        """Whether more than one line in a hundred was bad."""
        total = self.read + len(self.skipped)
        return bool(self.skipped) and len(self.skipped) > BAD_SHARE * total


class _Counting(io.RawIOBase):
    """A file that says which byte of it was read last, also from inside gzip."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def _lines(path: Path) -> Iterator[bytes]:
    """Yield raw lines of a plain or gzipped file.

    Raises
    ------
    PairFormatError
        The gzip stream is cut or damaged; the reason gives the byte.
    SanctionsPairsError
        The file cannot be opened.
    """
    try:
        raw = path.open("rb")
    except OSError as error:
        raise SanctionsPairsError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    with raw:
        if raw.peek(2)[:2] != b"\x1f\x8b":
            yield from raw
            return
        counting = _Counting(raw)
        with gzip.GzipFile(fileobj=counting) as unpacked:
            try:
                yield from unpacked
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                place = f"{path}: the gzip stream is cut or damaged at byte {raw.tell()}"
                raise PairFormatError(0, place, "fetch the file again") from error


def _documents(path: Path, key: str) -> Iterator[tuple[int, Any]]:
    """Yield ``(line or number, JSON value or error)`` of whichever container form the file has."""
    lines = enumerate(_lines(path), 1)
    for number, line in lines:
        head = line.removeprefix(b"\xef\xbb\xbf").strip()
        if not head:
            continue
        whole = head[:1] == b"["
        if not whole:
            first = _parse(head)
            whole = isinstance(first, ValueError) and _opens_container(head)
            whole = whole or (isinstance(first, dict) and isinstance(first.get(key), list))
        if whole:
            text = head + b"\n" + b"".join(rest for _, rest in lines)
            yield from _container(path, text, key, number)
            return
        yield number, first
        break
    for number, line in lines:
        if line.strip():
            yield number, _parse(line)


def _opens_container(head: bytes) -> bool:
    """Tell a pretty-printed object, whose first line is only a part, from a broken line of a JSON Lines file."""
    return head == b"{" or head.startswith((b'{"metadata"', b'{"pairs"', b'{"entities"'))


def _container(path: Path, text: bytes, key: str, number: int) -> Iterator[tuple[int, Any]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = number - 1 + getattr(error, "lineno", 1)
        raise PairFormatError(line, f"not JSON: {getattr(error, 'msg', error)}") from error
    items = data.get(key) if isinstance(data, dict) else data
    if not isinstance(items, list):
        raise PairFormatError(0, f"{path} is an object without a list of {key}")
    yield from enumerate(items, 1)


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError) as error:
        return error if isinstance(error, ValueError) else ValueError(str(error))


def _read(
    path: PathLike, key: str, build: Callable[[Any], tuple[T, int]], skip_bad: bool, stats: ReadStats
) -> Iterator[T]:
    for number, document in _documents(Path(path), key):
        try:
            if isinstance(document, ValueError):
                raise PairFormatError(number, f"not JSON: {getattr(document, 'msg', document)}")
            try:
                built, coerced = build(document)
            except (PairFormatError, UnknownSchemaError):
                raise
            except SanctionsPairsError as error:
                raise PairFormatError(number, error.message, error.hint) from error
        except SanctionsPairsError as error:
            if not skip_bad:
                raise
            stats.skipped.append((number, str(error)))
            continue
        stats.read += 1
        stats.coerced += coerced
        yield built


def read_pairs(path: PathLike, *, skip_bad: bool = False, stats: ReadStats | None = None) -> Iterator[Pair]:
    """Yield the pairs of a file, whichever of the four container forms it has, without holding JSON Lines in memory.

    Parameters
    ----------
    path
        The file; gzipped or not.
    skip_bad
        Leave out lines that are no pairs and count them in ``stats``, instead of stopping at the first.
    stats
        Counts what was read, coerced and skipped.

    Yields
    ------
    Pair
        With any of the four judgements.

    Raises
    ------
    PairFormatError
        A line that is not JSON or not a pair; a gzip stream that ends early.
    UnknownSchemaError
        A schema that FollowTheMoney does not know.
    """
    counted = stats if stats is not None else ReadStats()

    def build(data: Any) -> tuple[Pair, int]:
        """Make a pair of one decoded line, and count the properties left out."""
        if not isinstance(data, dict) or "left" not in data or "right" not in data:
            raise SanctionsPairsError("not a pair: an object with left, right and judgement is wanted")
        judgement = data.get("judgement", "no_judgement")
        if judgement not in JUDGEMENTS:
            raise SanctionsPairsError(f"judgement {judgement!r} is none of {', '.join(JUDGEMENTS)}")
        left, first = make_entity(data["left"])
        right, second = make_entity(data["right"])
        counted.judgements[judgement] = counted.judgements.get(judgement, 0) + 1
        return Pair(left, right, judgement), first + second

    return _read(path, "pairs", build, skip_bad, counted)


def read_entities(path: PathLike, *, skip_bad: bool = False, stats: ReadStats | None = None) -> Iterator[EntityProxy]:
    """Yield the FollowTheMoney entities of a file (JSON Lines, gzipped, array, or ``{"entities": [...]}``).

    Parameters and errors are those of `read_pairs`.
    """
    return _read(path, "entities", make_entity, skip_bad, stats if stats is not None else ReadStats())


def write_pairs(path: PathLike, pairs: Iterable[Pair], *, force: bool = True) -> Path:
    """Write pairs as JSON Lines (gzipped if the name ends in ``.gz``), whole or not at all; equal pairs, equal bytes.

    Raises
    ------
    InputError
        The file exists and ``force`` is false, or its folder cannot be written.
    """
    with atomic_path(path, force=force) as temporary, temporary.open("wb") as file:
        out: Any = file
        if Path(path).suffix == ".gz":
            out = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0)
        for pair in pairs:
            line = json.dumps(pair.to_dict(), ensure_ascii=False, separators=(",", ":"))
            out.write(line.encode() + b"\n")
        if out is not file:
            out.close()
    return Path(path)

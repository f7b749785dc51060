"""The embedded default and the readers of the real formats: mail, bibliographies, chats, edge lists, pair tables."""

from __future__ import annotations

import codecs
import email.policy
import json
import mailbox
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from email.utils import getaddresses
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np

from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError

EMBEDDED = ("les_miserables", "davis_southern_women", "karate_club")
"""Graphs that networkx carries; the first is the default."""


class Reading(NamedTuple):
    """A graph read from files, and what could not be used, each with the reason."""

    graph: AttributionGraph
    skipped: list[str]


def embedded(name: str = EMBEDDED[0]) -> AttributionGraph:
    """Return a graph that needs no file.

    ``les_miserables``: 254 scenes of two of 77 characters. ``davis_southern_women``: 14 events of 18 women.
    ``karate_club``: 78 ties of two of 34 members.

    Raises
    ------
    InputError
        Another name.
    """
    makers: dict[str, Callable[[], nx.Graph]] = {
        "les_miserables": nx.les_miserables_graph,
        "davis_southern_women": nx.davis_southern_women_graph,
        "karate_club": nx.karate_club_graph,
    }
    if name not in makers:
        raise InputError(f"no embedded graph {name!r}", hint=f"choose among {', '.join(EMBEDDED)}")
    return AttributionGraph.from_networkx(makers[name]())


def read(path: Path, *, dedupe: bool = False, empty: str = "error") -> Reading:
    """Read a graph from a file or folder, by its name.

    ``.csv``, ``.parquet``, ``.mbox`` or a maildir folder, ``.jsonl`` (arXiv metadata or a chat export, told apart by
    their keys), ``.txt``/``.edges`` (edge list).

    Raises
    ------
    InputError
        A missing file, an unknown kind, and whatever its reader refuses.
    """
    if not path.exists():
        raise InputError(f"cannot read {path}: no such file or folder")
    kind = path.suffix.lower()
    if path.is_dir() or kind == ".mbox":
        return read_emails(path)
    if kind == ".jsonl":
        first = next((line for line in _lines(path) if line.strip()), "")
        return read_arxiv(path) if "authors_parsed" in first else read_chat(path)
    tables = {".csv": read_csv, ".parquet": read_parquet, ".txt": read_edge_list, ".edges": read_edge_list}
    if kind not in tables:
        raise InputError(
            f"{path}: unknown kind of file {kind!r}",
            hint="give .csv, .parquet, .mbox, .jsonl, .txt, .edges or a maildir folder",
        )
    return Reading(tables[kind](path, dedupe=dedupe, empty=empty), [])


def read_csv(path: Path, **options: Any) -> AttributionGraph:
    """Read a CSV file with the columns ``example_id,user_id``; options as in `AttributionGraph.from_pairs`.

    Names are text as it stands in the file: ``007`` and ``7`` are two users. Other columns are not looked at.

    Raises
    ------
    InputError
        The file cannot be read or lacks a column; an example without users, a repeated pair.
    """
    from pyarrow import ArrowInvalid, csv, string

    as_text = csv.ConvertOptions(column_types={"example_id": string(), "user_id": string()})
    try:
        with path.open("rb") as file:
            if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
                raise InputError(f"{path} is UTF-16 text", hint="save it as UTF-8")
        table = csv.read_csv(path, convert_options=as_text)
    except (ArrowInvalid, OSError) as error:
        raise InputError(f"cannot read {path}: {error}", hint="give a CSV with columns example_id,user_id") from error
    return _from_table(table, path, options)


def read_parquet(path: Path, **options: Any) -> AttributionGraph:
    """Read a bipartite Parquet table: rows of ``example_id,user_id``, or of ``example_id`` and a list ``user_ids``.

    Raises
    ------
    InputError
        As in `read_csv`.
    """
    from pyarrow import ArrowInvalid, parquet

    try:
        table = parquet.read_table(path)
    except (ArrowInvalid, OSError) as error:
        raise InputError(
            f"cannot read {path}: {error}", hint="give a Parquet table of (example_id, user_id)"
        ) from error
    if "user_ids" in table.column_names and "example_id" in table.column_names:
        lists = table["user_ids"].to_pylist()
        names = table["example_id"].to_pylist()
        return _from_rows(zip(names, lists, strict=True), **options)
    return _from_table(table, path, options)


def _from_table(table: Any, path: Path, options: dict[str, Any]) -> AttributionGraph:
    from pyarrow import types

    missing = [name for name in ("example_id", "user_id") if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} lacks {' and '.join(missing)} (its columns are {', '.join(table.column_names)})",
            hint="the columns are example_id,user_id",
        )
    for name in ("example_id", "user_id"):
        if types.is_nested(table[name].type):
            raise InputError(
                f"the column {name} of {path} holds {table[name].type}, not names", hint="a list of users is user_ids"
            )
    examples, users = (table[name].combine_chunks() for name in ("example_id", "user_id"))
    if _has_gaps(examples) or _has_gaps(users):
        return _from_columns(examples.to_pylist(), users.to_pylist(), options)
    # Arrow numbers distinct values by first appearance, as `AttributionGraph.from_pairs` does name by name.
    coded = [column.dictionary_encode() for column in (examples, users)]
    (example_numbers, user_numbers) = (column.indices.to_numpy() for column in coded)
    example_names, user_names = (column.dictionary.to_numpy(zero_copy_only=False) for column in coded)
    return AttributionGraph.from_indices(
        example_numbers,
        user_numbers,
        n_examples=len(example_names),
        n_users=len(user_names),
        example_ids=_plain(example_names),
        user_ids=_plain(user_names),
        **options,
    )


def _has_gaps(column: Any) -> bool:
    """Tell whether a cell is null or an empty text."""
    return bool(column.null_count) or "" in column.unique().to_pylist()


def _plain(names: np.ndarray) -> np.ndarray:
    """Return names as an array of integers or of text."""
    return names if names.dtype.kind in "iuU" else names.astype(str)


def _from_columns(examples: list[Any], users: list[Any], options: dict[str, Any]) -> AttributionGraph:
    """Make a graph of two columns, where an example without a user stands with an empty cell."""
    rows: dict[Any, list[Any]] = {}
    for number, (example, user) in enumerate(zip(examples, users, strict=True), 1):
        if example is None or example == "":
            raise InputError(f"example id missing in row {number}", hint="every row needs an example")
        rows.setdefault(example, []).extend([] if user is None or user == "" else [user])
    return _from_rows(rows.items(), **options)


def _from_rows(rows: Iterable[tuple[Any, Iterable[Any]]], **options: Any) -> AttributionGraph:
    """Make a graph of (example, its users) rows."""
    names: list[str] = []
    numbers: dict[str, int] = {}
    lists = []
    for name, users in rows:
        names.append(str(name))
        lists.append([numbers.setdefault(str(user), len(numbers)) for user in users])
    repeated = len(names) - len(set(names))
    if repeated:
        raise InputError(f"{repeated} repeated example ids", hint="give each example one row")
    return AttributionGraph.from_lists(
        lists, n_users=len(numbers), example_ids=names, user_ids=list(numbers), **options
    )


def read_edge_list(path: Path, **options: Any) -> AttributionGraph:
    """Read an edge list: each line is one example, its users separated by spaces; ``#`` starts a comment."""
    lines = [(number, line.partition("#")[0].split()) for number, line in enumerate(_lines(path), 1)]
    return _from_rows(((f"line {number}", users) for number, users in lines if users), **options)


def read_emails(path: Path) -> Reading:
    """Read mail: each message is an example, and From, To and Cc are its users.

    Addresses are lower-cased and lose their ``+tag``. The example's name is its Message-ID. Messages that repeat an
    ID, or have no ID or no address, are skipped and listed.

    Parameters
    ----------
    path
        An mbox file, or a maildir folder (with ``cur`` and ``new``).

    Raises
    ------
    InputError
        A folder that is no maildir, or not one usable message.
    """
    if path.is_dir() and not (path / "cur").is_dir():
        raise InputError(f"{path} is no maildir: it has no folder 'cur'")
    box: Any = mailbox.Maildir(path, create=False) if path.is_dir() else mailbox.mbox(path, create=False)
    seen: dict[str, list[str]] = {}
    skipped = []
    with_bytes = ((key, box.get_bytes(key)) for key in sorted(box.keys()))
    for key, raw in with_bytes:
        try:
            message = email.message_from_bytes(raw, policy=email.policy.compat32)
            identity = str(message.get("Message-ID", "")).strip().strip("<>")
            headers = [str(value) for name in ("From", "To", "Cc") for value in message.get_all(name, [])]
            people = sorted({address for address in map(_address, _addresses(headers)) if address})
        except (ValueError, TypeError, LookupError) as error:
            skipped.append(f"message {key}: {error}")
            continue
        reason = "no Message-ID" if not identity else "no address" if not people else ""
        reason = f"repeats Message-ID {identity}" if identity in seen else reason
        if reason:
            skipped.append(f"message {key}: {reason}")
        else:
            seen[identity] = people
    box.close()
    if not seen:
        raise InputError(f"{path} holds no usable message ({len(skipped)} skipped)")
    return Reading(_from_rows(seen.items()), skipped)


def _addresses(headers: list[str]) -> Iterator[str]:
    return (address for _, address in getaddresses(headers))


def _address(text: str) -> str:
    """Normalise an address; empty if it is none."""
    match = re.fullmatch(r"([^@\s+]+)(?:\+[^@\s]*)?@([^@\s]+)", text.strip().lower())
    return f"{match[1]}@{match[2]}" if match else ""


def read_arxiv(path: Path) -> Reading:
    """Read arXiv metadata, one JSON object a line with ``id`` and ``authors_parsed`` ([last, first, suffix] each).

    An author is ``last, first initial``, lower-cased. Lines that are not such objects are skipped and listed.

    Raises
    ------
    InputError
        Not one usable line.
    """

    def users(row: dict[str, Any]) -> tuple[str, list[str]]:
        names = [(str(author[0]).strip().lower(), str(author[1]).strip().lower()) for author in row["authors_parsed"]]
        return str(row["id"]), sorted({f"{last}, {first[:1]}".rstrip(", ") for last, first in names if last})

    return _read_jsonl(path, users, "arXiv metadata with id and authors_parsed")


def read_chat(path: Path) -> Reading:
    """Read a chat export, one JSON object a line with ``id``, ``sender`` and perhaps lists ``mentions`` or ``to``.

    Lines that are not such objects are skipped and listed.

    Raises
    ------
    InputError
        Not one usable line.
    """

    def users(row: dict[str, Any]) -> tuple[str, list[str]]:
        """Return a message's id and the names of sender and addressed."""
        others = [row.get("mentions") or [], row.get("to") or []]
        if not all(isinstance(names, list) for names in others):
            raise ValueError("mentions and to must be lists")
        names = [row["sender"], *others[0], *others[1]]
        if row["id"] is None or not all(isinstance(name, str | int) and str(name).strip() for name in names):
            raise ValueError("an id or a user's name is missing")
        return str(row["id"]), sorted({str(name) for name in names})

    return _read_jsonl(path, users, "a chat export with id and sender")


def read_arxiv_texts(path: Path) -> tuple[Reading, list[str]]:
    """Read arXiv metadata as `read_arxiv` does, with each example's title and abstract as its text, in their order."""
    reading = read_arxiv(path)
    texts: dict[str, str] = {}
    for line in _lines(path):
        try:
            row = json.loads(line)
            name = str(row["id"])
            texts.setdefault(name, "\n".join(" ".join(str(row.get(key, "")).split()) for key in ("title", "abstract")))
        except (ValueError, KeyError, TypeError, AttributeError):  # `read_arxiv` has listed it
            continue
    return reading, [texts[name] for name in reading.graph.example_ids.tolist()]


def _read_jsonl(path: Path, users: Callable[[dict[str, Any]], tuple[str, list[str]]], what: str) -> Reading:
    rows: dict[str, list[str]] = {}
    skipped = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            name, people = users(json.loads(line))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            skipped.append(f"line {number}: {type(error).__name__}: {error}")
            continue
        if not people or name in rows:
            skipped.append(f"line {number}: {'no users' if not people else f'repeats id {name}'}")
        else:
            rows[name] = people
    if not rows:
        raise InputError(f"{path} holds no usable line ({len(skipped)} skipped)", hint=f"give {what}")
    return Reading(_from_rows(rows.items()), skipped)


def _lines(path: Path) -> Iterator[str]:
    """Yield a file's lines one by one: metadata dumps are larger than memory, and JSON may hold odd line separators."""
    try:
        with path.open(encoding="utf-8-sig", newline="\n") as file:
            yield from file
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def read_features(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read features ``x`` ``(n, d)`` and labels ``y`` ``(n,)``, 0 or 1, from an ``.npz`` file.

    Raises
    ------
    InputError
        The file cannot be read, lacks an array, the shapes do not fit each other, x is not finite, y not 0 or 1.
    """
    hint = "give an .npz with arrays x (n, d) and y (n,)"
    try:
        with path.open("rb") as raw:  # opened here, because np.load leaves a torn file open
            if raw.read(2) not in (b"PK", b"\x93N"):
                raise InputError(f"{path} is no .npz file", hint=hint)  # NumPy would advise to unpickle it
            raw.seek(0)
            arrays = np.load(raw)
            if not isinstance(arrays, np.lib.npyio.NpzFile):
                raise InputError(f"{path} is a single array", hint=hint)
            x, y = (arrays[name].astype(np.float32) for name in ("x", "y"))
    except InputError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {error}", hint=hint) from error
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise InputError(f"{path}: x has shape {x.shape}, y {y.shape}", hint="want x (n, d) and y (n,)")
    if not np.isfinite(x).all():
        row, column = np.argwhere(~np.isfinite(x))[0]
        raise InputError(f"{path}: x is {x[row, column]} in row {row}, column {column}", hint="want finite numbers")
    if not np.isin(y, (0, 1)).all():
        raise InputError(f"{path}: y holds {y[~np.isin(y, (0, 1))][0]:g}", hint="labels are 0 or 1")
    return x, y

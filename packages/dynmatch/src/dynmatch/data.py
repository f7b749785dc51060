"""Readers of the real formats: update streams, points, matrices, graphs, taxi trips."""

from __future__ import annotations

import csv
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dynmatch.costs import graph_metric
from dynmatch.protocol import SIDES, Id, Update
from papers_shared.errors import InputError

OPS = {
    "insert": "insert",
    "add": "insert",
    "+": "insert",
    "delete": "delete",
    "remove": "delete",
    "-": "delete",
    "query": "query",
    "?": "query",
}

NPZ_ARRAYS = ("op", "side", "id", "x", "weight")
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def no_file(path: Path, error: OSError) -> InputError:
    """Return what to tell the user of a file that cannot be opened."""
    reason = "no such file or directory" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
    return InputError(f"cannot read {path}: {reason.lower()}")


def _identity(value: Any) -> Id:
    """Keep whole numbers as numbers, so that the same id in csv, jsonl and parquet is the same id."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value == int(value):
        return int(value)
    text = str(value).strip()
    if not text:
        raise ValueError("an empty id")
    # "007" stays text: as 7 it would collide with another id and come back changed in matching.csv.
    return int(text) if WHOLE.fullmatch(text) else text


def update_from(fields: dict[str, Any], row: int, nodes: dict[str, int] | None = None) -> Update:
    """Read one update from named fields: op, side, id, then x0, x1, ... or ``point``, and optionally weight.

    Parameters
    ----------
    fields, row
        The update and its line.
    nodes
        In a graph metric, the numbers of the nodes by name; a point is then a node's name.

    Raises
    ------
    ValueError
        Saying what is wrong with the fields.
    """
    op = OPS.get(str(fields.get("op", "")).strip().lower())
    if op is None:
        raise ValueError(f"op {fields.get('op')!r}, want insert, delete or query")
    if op == "query":
        return Update("query", row=row)
    if fields.get("id") in (None, ""):
        raise ValueError(f"{op} without an id")
    name = _identity(fields["id"])
    if op == "delete":
        return Update("delete", None, name, row=row)
    side = str(fields.get("side", "")).strip().upper()
    side = {"0": "A", "1": "B"}.get(side, side)
    if side not in SIDES:
        raise ValueError(f"side {fields.get('side')!r}, want A or B")
    given = fields.get("point", fields.get("x"))
    if given is None:
        given = []
        while f"x{len(given)}" in fields:
            given.append(fields[f"x{len(given)}"])
        empty = [i for i, cell in enumerate(given) if cell in (None, "")]
        if 0 < len(empty) < len(given):
            raise ValueError(f"id {name!r}: x{empty[0]} is empty")
        given = [] if empty else given
    cells = list(given) if isinstance(given, (list, tuple, np.ndarray)) else [given]
    if not cells:
        raise ValueError("an insert without coordinates")
    point = tuple(float(v) for v in cells) if nodes is None else (float(_node(cells, nodes)),)
    if not all(math.isfinite(v) for v in point):
        raise ValueError(f"id {name!r}: coordinate {next(v for v in point if not math.isfinite(v))} is not finite")
    weight = fields.get("weight") or 1
    if float(weight) != int(float(weight)) or int(float(weight)) < 1:
        raise ValueError(f"weight {weight!r} is not a positive integer")
    return Update("insert", side, name, point, int(float(weight)), row)


def _node(cells: list[Any], nodes: dict[str, int]) -> int:
    """Find a node by its name; where names are no numbers, its place in the file will do."""
    if len(cells) != 1:
        raise ValueError(f"{len(cells)} coordinates, want the name of one node")
    name = str(_identity(cells[0]))
    if name in nodes:
        return nodes[name]
    if name.isdigit() and int(name) < len(nodes) and not all(key.lstrip("-").isdigit() for key in nodes):
        return int(name)
    raise ValueError(f"the graph has no node {name!r}")


def read_updates(path: Path, skip_bad: bool = False, nodes: dict[str, int] | None = None) -> tuple[list[Update], int]:
    """Read a stream of updates from csv, jsonl, npy, npz or parquet.

    Parameters
    ----------
    path
        csv and parquet have the columns ``op, side, id, x0, x1, ...`` and optionally ``weight``; jsonl one object a
        line with these names, or ``point`` for the coordinates; npy a float matrix with columns op (1 insert, -1
        delete, 0 query), side (0, 1), id, x0, ...; npz arrays op, side, id, x and optionally weight.
    skip_bad
        Leave out and count lines that cannot be applied: malformed ones, an insert of an id that is there, a delete of
        one that is not.
    nodes
        As in `update_from`.

    Returns
    -------
    updates : list of Update
    skipped : int

    Raises
    ------
    InputError
        Naming the file, the line, and what is wrong.
    """
    readers: dict[str, Callable[[Path], Iterator[tuple[int, Any]]]] = {
        ".csv": _csv_rows,
        ".jsonl": _jsonl_rows,
        ".ndjson": _jsonl_rows,
        ".npy": _npy_rows,
        ".npz": _npz_rows,
        ".parquet": _parquet_rows,
    }
    if path.suffix.lower() not in readers:
        raise InputError(f"{path}: unknown kind of update file", hint=f"give {', '.join(readers)}")
    updates: list[Update] = []
    present: set[Id] = set()
    skipped, dim = 0, None
    try:
        for line, fields in readers[path.suffix.lower()](path):
            try:
                if isinstance(fields, Exception):
                    raise fields
                update = update_from(fields, line, nodes)
                if update.point is not None:
                    dim = len(update.point) if dim is None else dim
                    if len(update.point) != dim:
                        raise ValueError(f"id {update.id!r}: {len(update.point)} coordinates, want {dim} as before")
                _follow(update, present)
                updates.append(update)
            except (ValueError, TypeError, OverflowError) as error:
                if not skip_bad:
                    raise InputError(
                        f"{path}, line {line}: {error}", hint="--skip-bad leaves such lines out"
                    ) from error
                skipped += 1
    except OSError as error:
        raise no_file(path, error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text") from error
    except csv.Error as error:
        raise InputError(f"{path} is not csv: {error}") from error
    if not updates:
        raise InputError(f"{path} holds no update" + (f": all its {skipped} lines are malformed" if skipped else ""))
    return updates, skipped


def _follow(update: Update, present: set[Id]) -> None:
    """Keep the ids that are there after an update; whether an id is free is known before anything is matched."""
    if update.id is None:
        return
    if update.op == "delete":
        if update.id not in present:
            raise ValueError(f"no point has the id {update.id!r}")
        present.remove(update.id)
    elif update.id in present:
        raise ValueError(f"id {update.id!r} is in use")
    else:
        present.add(update.id)


def _csv_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        header = [name.strip().lower() for name in next(reader, [])]
        if not {"op", "id"} <= set(header):
            raise InputError(
                f"{path}, line 1: the header needs op, side, id, x0, ...; found {','.join(header) or 'nothing'}"
            )
        for row in reader:
            if not row:
                continue
            if len(row) > len(header):
                yield reader.line_num, ValueError(f"{len(row)} cells for {len(header)} columns")
            else:
                yield reader.line_num, dict(zip_longest(header, row, fillvalue=""))


def _jsonl_rows(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = json.loads(line)
                    yield (
                        number,
                        value if isinstance(value, dict) else ValueError("want an object with op, side, id, point"),
                    )
                except (ValueError, RecursionError) as error:
                    yield number, ValueError(f"not JSON: {getattr(error, 'msg', error)}")


def _npy_rows(path: Path) -> Iterator[tuple[int, Any]]:
    table = _array(path)
    if table.ndim != 2 or table.shape[1] < 4:
        raise InputError(f"{path}: want columns op, side, id, x0, ...; the shape is {table.shape}")
    names = {1.0: "insert", -1.0: "delete", 0.0: "query"}
    for number, row in enumerate(table.tolist(), 1):
        yield number, {"op": names.get(row[0]), "side": f"{row[1]:g}", "id": row[2], "point": row[3:]}


def _npz_rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not an npz archive of plain arrays: {_numpy_reason(error)}") from error
    if not {"op", "side", "id", "x"} <= set(arrays):
        raise InputError(f"{path}: want arrays op, side, id, x; found {', '.join(arrays)}")
    lengths = {name: array.shape[0] if array.ndim else None for name, array in arrays.items() if name in NPZ_ARRAYS}
    if None in lengths.values() or len(set(lengths.values())) != 1:
        found = ", ".join(f"{name} {arrays[name].shape}" for name in lengths)
        raise InputError(f"{path}: want one entry an update in each array; the shapes are {found}")
    names = {1: "insert", -1: "delete", 0: "query"}
    for number, (op, side, name, x) in enumerate(
        zip(*(arrays[n].tolist() for n in ("op", "side", "id", "x")), strict=True), 1
    ):
        weight = int(arrays["weight"][number - 1]) if "weight" in arrays else 1
        yield number, {"op": names.get(op, op), "side": side, "id": name, "point": x, "weight": weight}


def _parquet_rows(path: Path) -> Iterator[tuple[int, Any]]:
    table = read_parquet(path)
    if not {"op", "id"} <= set(table):
        raise InputError(f"{path}: want the columns op, side, id, x0, ...; found {', '.join(table)}")
    for number, row in enumerate(zip(*table.values(), strict=True), 1):
        yield number, dict(zip(table, row, strict=True))


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """Read a parquet file as lists by column name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path).to_pydict()
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a parquet file") from error


def _numpy_reason(error: Exception) -> str:
    """Say why numpy could not read a file, without its advice to load what it takes for pickles unsafely."""
    return "it holds objects, or nothing that numpy wrote" if "pickle" in str(error) else str(error)


def _array(path: Path) -> np.ndarray:
    try:
        with path.open("rb") as file:  # numpy leaves a file of its own open when the archive is broken
            found = np.load(file, allow_pickle=False)
            return np.asarray(found if isinstance(found, np.ndarray) else found[found.files[0]], dtype=np.float64)
    except OSError as error:
        raise no_file(path, error) from error
    except (ValueError, TypeError, EOFError, IndexError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a numeric numpy file: {_numpy_reason(error)}") from error


def read_points(path: Path) -> Float[np.ndarray, "n d"]:
    """Read points, one a row, from npy, npz (its first array), csv (no header, or one that is skipped) or parquet.

    Raises
    ------
    InputError
        The file cannot be read, or a row is not finite.
    """
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        points = _array(path)
    elif suffix == ".parquet":
        try:
            points = np.array(list(read_parquet(path).values()), dtype=np.float64).T
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}: a column is not numeric: {error}") from error
    else:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except OSError as error:
            raise no_file(path, error) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 text") from error
        skip = 0 if lines and all(_is_number(cell) for cell in lines[0].split(",")) else 1
        try:
            points = np.array([[float(v) for v in line.split(",")] for line in lines[skip:] if line.strip()])
        except ValueError as error:
            raise InputError(f"{path}: {error}", hint="give one point a line, coordinates between commas") from error
    points = points[:, None] if points.ndim == 1 else points
    if points.ndim != 2 or not points.size:
        raise InputError(f"{path}: want a matrix of points, found shape {points.shape}")
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if len(bad):
        raise InputError(f"{path}, row {bad[0] + 1}: a coordinate is not finite")
    return points


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_matrix(path: Path) -> Float[np.ndarray, "n n"]:
    """Read a square matrix of distances from npy, npz or csv."""
    matrix = read_points(path)
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"{path}: a distance matrix is square, not {matrix.shape}")
    return matrix


def read_graph(path: Path, weight: str = "weight") -> tuple[Float[np.ndarray, "n n"], list[Any]]:
    """Read a graph from GraphML, or an edge list ``u v [length]`` (blank or comma separated), as shortest paths.

    Raises
    ------
    InputError
        Unreadable; `NotAMetricError` when directed or disconnected.
    """
    import networkx as nx

    try:
        if path.suffix.lower() in (".graphml", ".xml"):
            network: Any = nx.read_graphml(path)
        else:
            network = nx.Graph()
            for number, line in enumerate(path.read_text().splitlines(), 1):
                cells = line.partition("#")[0].replace(",", " ").split()
                if not cells:
                    continue
                if len(cells) not in (2, 3):
                    raise InputError(f"{path}, line {number}: want two nodes and perhaps a length")
                network.add_edge(cells[0], cells[1], **{weight: float(cells[2]) if len(cells) == 3 else 1.0})
    except OSError as error:
        raise no_file(path, error) from error
    except InputError:
        raise
    except Exception as error:  # the XML parser raises what it likes
        raise InputError(f"{path} is not a graph: {error}") from error
    if not len(network):
        raise InputError(f"{path}: the graph has no node")
    return graph_metric(network, weight)


def write_updates(path: Path, updates: list[Update], force: bool = False) -> Path:
    """Write a stream as csv, jsonl or parquet, by the name's ending.

    Raises
    ------
    InputError
        Another ending, or the file exists and ``force`` is false.
    """
    from papers_shared.artifacts import atomic_path, write_csv, write_jsonl

    if path.suffix.lower() == ".jsonl":
        rows = [
            {"op": u.op, "side": u.side, "id": u.id, "point": u.point, "weight": u.weight if u.op == "insert" else None}
            for u in updates
        ]
        return write_jsonl(path, ({k: v for k, v in row.items() if v is not None} for row in rows), force=force)
    dim = max((len(u.point) for u in updates if u.point is not None), default=0)
    columns = ["op", "side", "id", *(f"x{i}" for i in range(dim)), "weight"]
    table = [
        [u.op, u.side, None if u.id is None else str(u.id), *(u.point or (None,) * dim), u.weight if u.point else None]
        for u in updates
    ]
    if path.suffix.lower() == ".csv":
        return write_csv(path, table, columns, force=force)
    if path.suffix.lower() != ".parquet":
        raise InputError(f"{path}: unknown kind of update file", hint="end the name in .csv, .jsonl or .parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic_path(path, force=force) as temporary:
        pq.write_table(pa.table(dict(zip(columns, map(list, zip(*table, strict=True)), strict=True))), temporary)
    return path

"""The store's tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from evalcards.errors import InputError
from evalcards.rows import GROUP_COLUMNS, LOG_COLUMNS, ROW_COLUMNS, Encoder
from evalcards.signals.comparability import number
from evalcards.strict_json import canonical

_SQL_TYPE = {pa.string(): "VARCHAR", pa.float64(): "DOUBLE", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
             pa.bool_(): "BOOLEAN"}  # fmt: skip


def _columns(columns: Mapping[str, pa.DataType], key: str) -> str:
    return ", ".join(f"{n} {_SQL_TYPE[t]}{' PRIMARY KEY' if n == key else ''}" for n, t in columns.items())


TABLES = (
    f"CREATE TABLE logs ({_columns(LOG_COLUMNS, 'log_id')})",
    f"CREATE TABLE results ({_columns(ROW_COLUMNS, '')})",
    f"CREATE TABLE groups ({_columns(GROUP_COLUMNS, '')})",
    "CREATE TABLE settings (code INTEGER, text VARCHAR)",
    "CREATE TABLE organisations (code INTEGER, text VARCHAR)",
    "CREATE TABLE cards (benchmark VARCHAR PRIMARY KEY, document VARCHAR)",
    "CREATE TABLE models (model_id VARCHAR PRIMARY KEY, document VARCHAR)",
    "CREATE TABLE aliases (alias VARCHAR PRIMARY KEY, model_id VARCHAR)",
    "CREATE TABLE instances (instance_id VARCHAR PRIMARY KEY, log_id VARCHAR, evaluation_name VARCHAR,"
    " sample_id VARCHAR, score DOUBLE, is_correct BOOLEAN, document VARCHAR)",
    "CREATE TABLE failures (path VARCHAR, place VARCHAR, reason VARCHAR, n INTEGER)",
    "CREATE TABLE ledger (file_hash VARCHAR PRIMARY KEY, path VARCHAR, format VARCHAR, logs INTEGER,"
    " rows INTEGER, failed INTEGER)",
    "CREATE TABLE snapshots (name VARCHAR PRIMARY KEY, created VARCHAR, summary VARCHAR)",
    "CREATE TABLE snapshot_rows (name VARCHAR, row_id VARCHAR, link VARCHAR, score DOUBLE)",
    "CREATE TABLE snapshot_groups (name VARCHAR, link VARCHAR, model_id VARCHAR, benchmark VARCHAR,"
    " path VARCHAR, metric VARCHAR, n_rows INTEGER, n_parties INTEGER, variant BOOLEAN, crossed BOOLEAN)",
    "CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR)",
)
"""The statements that make them."""


FORMAT = "1"
"""The form of these tables; a store says which one it has."""


def refuse_other_files(path: Path) -> None:
    """Refuse a file that is no DuckDB database: DuckDB would read some, JSON for one, into memory and keep nothing.

    Raises
    ------
    InputError
        The file is something else, or cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(12)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot open the store {path}: {(error.strerror or str(error)).lower()}") from error
    if head and head[8:] != b"DUCK":
        raise InputError(f"{path} is no store, and no DuckDB file", hint="name another file")


def prepare(connection: duckdb.DuckDBPyConnection, path: str, *, new: bool) -> None:
    """Make the tables in an empty database, if a new store is wanted; leave a database that is no store alone.

    Raises
    ------
    InputError
        Somebody else's database, or a store of another version.
    """
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not tables and new:
        for statement in TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('format', ?)", [FORMAT])
        return
    query = "SELECT value FROM meta WHERE key = 'format'"
    if "meta" not in tables or connection.execute(query).fetchall() != [(FORMAT,)]:
        connection.close()
        raise InputError(f"{path} is no store of this version of evalcards", hint="name another file")


def write_batch(connection: duckdb.DuckDBPyConnection, encoder: Encoder) -> None:
    """Insert what an encoder has made since its last batch, and its new codes."""
    for name, table in encoder.tables().items():
        if table.num_rows:
            connection.register("incoming", table)
            connection.execute(f"INSERT INTO {name} SELECT * FROM incoming")
            connection.unregister("incoming")
    for name, codes in (("settings", encoder.settings), ("organisations", encoder.organisations)):
        insert(connection, name, codes.take_new())


def insert(connection: Any, table: str, lines: list[tuple[Any, ...]], *, verb: str = "INSERT") -> None:
    """Insert lines, if there are any, as one Arrow table: a statement per line would cost far more."""
    if lines:
        columns = [pa.array(column) for column in zip(*lines, strict=True)]
        connection.register("incoming", pa.table(columns, names=[f"c{i}" for i in range(len(columns))]))
        connection.execute(f"{verb} INTO {table} SELECT * FROM incoming")
        connection.unregister("incoming")


def forget_failures(connection: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
    """Take what the failure report says of files, or of anything in folders, out of it."""
    # A statement per file would cost more than reading it, and mostly there is nothing to take out.
    if paths and connection.execute("SELECT 1 FROM failures LIMIT 1").fetchone():
        connection.execute(
            """DELETE FROM failures WHERE EXISTS (SELECT 1 FROM (SELECT unnest($paths) AS renewed)
            WHERE path = renewed OR starts_with(path, renewed || '/'))""",
            {"paths": paths},
        )


def instance_line(log_id: str, sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return an instance record as a line of ``instances``; the same record of the same log has the same id."""
    judged = sample.get("evaluation")
    judged = judged if isinstance(judged, Mapping) else {}
    correct = judged.get("is_correct")
    text = json.dumps(sample, ensure_ascii=False)
    return (
        hashlib.sha256(f"{log_id} {canonical(sample)}".encode()).hexdigest(),
        log_id,
        str(sample.get("evaluation_name")),
        str(sample.get("sample_id")),
        number(judged.get("score")),
        correct if isinstance(correct, bool) else None,
        text,
    )

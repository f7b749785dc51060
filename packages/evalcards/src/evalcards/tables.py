"""The store's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from evalcards.rows import GROUP_COLUMNS, LOG_COLUMNS, ROW_COLUMNS

_SQL_TYPE = {pa.string(): "VARCHAR", pa.float64(): "DOUBLE", pa.int32(): "INTEGER", pa.int64(): "BIGINT",
             pa.bool_(): "BOOLEAN"}  # fmt: skip


def _columns(columns: Mapping[str, pa.DataType], key: str) -> str:
    return ", ".join(f"{n} {_SQL_TYPE[t]}{' PRIMARY KEY' if n == key else ''}" for n, t in columns.items())


TABLES = (
    f"CREATE TABLE IF NOT EXISTS logs ({_columns(LOG_COLUMNS, 'log_id')})",
    f"CREATE TABLE IF NOT EXISTS results ({_columns(ROW_COLUMNS, '')})",
    f"CREATE TABLE IF NOT EXISTS groups ({_columns(GROUP_COLUMNS, '')})",
    "CREATE TABLE IF NOT EXISTS settings (code INTEGER, text VARCHAR)",
    "CREATE TABLE IF NOT EXISTS organisations (code INTEGER, text VARCHAR)",
    "CREATE TABLE IF NOT EXISTS cards (benchmark VARCHAR PRIMARY KEY, document VARCHAR)",
    "CREATE TABLE IF NOT EXISTS models (model_id VARCHAR PRIMARY KEY, document VARCHAR)",
    "CREATE TABLE IF NOT EXISTS aliases (alias VARCHAR PRIMARY KEY, model_id VARCHAR)",
    "CREATE TABLE IF NOT EXISTS instances (log_id VARCHAR, evaluation_name VARCHAR, sample_id VARCHAR, score DOUBLE,"
    " is_correct BOOLEAN, document VARCHAR)",
    "CREATE TABLE IF NOT EXISTS failures (path VARCHAR, place VARCHAR, reason VARCHAR, n INTEGER)",
    "CREATE TABLE IF NOT EXISTS ledger (file_hash VARCHAR PRIMARY KEY, path VARCHAR, format VARCHAR, logs INTEGER,"
    " rows INTEGER, failed INTEGER)",
    "CREATE TABLE IF NOT EXISTS snapshots (name VARCHAR PRIMARY KEY, created VARCHAR, summary VARCHAR)",
    "CREATE TABLE IF NOT EXISTS snapshot_rows (name VARCHAR, row_id VARCHAR, link VARCHAR, score DOUBLE)",
    "CREATE TABLE IF NOT EXISTS snapshot_groups (name VARCHAR, link VARCHAR, model_id VARCHAR, benchmark VARCHAR,"
    " path VARCHAR, metric VARCHAR, n_rows INTEGER, n_parties INTEGER, variant BOOLEAN, crossed BOOLEAN)",
    "CREATE TABLE IF NOT EXISTS meta (key VARCHAR PRIMARY KEY, value VARCHAR)",
)
"""The statements that make them where they are missing."""


def insert(connection: Any, table: str, lines: list[tuple[Any, ...]]) -> None:
    """Insert lines, if there are any, as one Arrow table: a statement per line would cost far more."""
    if lines:
        columns = [pa.array(column) for column in zip(*lines, strict=True)]
        connection.register("incoming", pa.table(columns, names=[f"c{i}" for i in range(len(columns))]))
        connection.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        connection.unregister("incoming")


def instance_line(log_id: str, sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return an instance record as a line of ``instances``."""
    judged = sample.get("evaluation") or {}
    text = json.dumps(sample, ensure_ascii=False)
    return (
        log_id,
        sample.get("evaluation_name"),
        sample.get("sample_id"),
        judged.get("score"),
        judged.get("is_correct"),
        text,
    )

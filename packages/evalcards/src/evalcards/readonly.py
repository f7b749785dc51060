"""Queries of the user's on a connection that can change nothing: it holds copies, and sees neither files nor network.

DuckDB opens one file either for writing or for reading within a process, and a SELECT can read any file of the machine
or fetch an address. So a query gets a database of its own in memory, with the tables it names and nothing else.
"""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from evalcards.errors import InputError


def run_query(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Run one SELECT over the tables of a store; see `Store.query`."""
    try:
        with duckdb.connect(":memory:", config={"enable_external_access": False}) as reader:
            statements = reader.extract_statements(sql)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise InputError("a query must be one SELECT", hint="the store is read-only here")
            known = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
            for name in sorted(known & set(re.findall(r"\w+", sql.lower()))):
                reader.register(name, connection.table(name).to_arrow_table())
            reader.execute("SET lock_configuration = true")
            return reader.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        raise InputError(f"query: {' '.join(str(error).split())[:200]}") from error

"""The parallel rounds as two SQL queries each, for tables larger than memory: DuckDB, and Spark for clusters.

Both engines run the same text. Priority is ascending size, then ascending ``example_id``: the order of
`fixedgraphdp.bounding.bound` without a key when the ids ascend.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fixedgraphdp.greedy import checked_budget
from papers_shared.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OPEN = "SELECT example_id, user_id, count(*) OVER (PARTITION BY example_id) AS size, {k} AS budget FROM {pairs}"
"""All pairs, with the users of their example and what budget their user has left."""

WINNERS = """
SELECT example_id FROM (
  SELECT example_id, size,
         CASE WHEN row_number() OVER (PARTITION BY user_id ORDER BY size, example_id) <= budget
              THEN 1 ELSE 0 END AS vote
  FROM open_pairs) votes
GROUP BY example_id, size HAVING sum(vote) = size
"""
"""Group by user: each votes for its best open examples; group by example: those with all votes are taken."""

STILL_OPEN = """
WITH spent AS (
       SELECT user_id, count(*) AS gone FROM open_pairs SEMI JOIN winners USING (example_id) GROUP BY user_id),
     rest AS (
       SELECT o.example_id, o.user_id, o.size, o.budget - coalesce(s.gone, 0) AS budget
       FROM open_pairs o LEFT JOIN spent s ON o.user_id = s.user_id
       ANTI JOIN winners w ON o.example_id = w.example_id),
     shut AS (SELECT DISTINCT example_id FROM rest WHERE budget <= 0)
SELECT rest.* FROM rest ANTI JOIN shut ON rest.example_id = shut.example_id
"""
"""Lower the budgets, and close the taken examples and those of a user who has none left."""


def rounds_duckdb(
    pairs: Path, k: int, *, memory_limit: str = "2GB", folder: Path | None = None
) -> list[int] | list[str]:
    """Run the rounds inside DuckDB, which spills to disk.

    Parameters
    ----------
    pairs
        Parquet or CSV file with the columns example_id and user_id, without repeated pairs.
    k
        Budget of every user.
    memory_limit
        DuckDB's own limit.
    folder
        Where to spill; by default beside the file.

    Returns
    -------
    list
        The ids of the taken examples, ascending.

    Raises
    ------
    InputError
        DuckDB is not installed, or cannot read the table; k is no whole number of at least 1.
    """
    try:
        import duckdb
    except ImportError as error:
        raise InputError("duckdb is not installed", hint="install fixedgraphdp[duckdb]") from error
    reader = "read_parquet(?)" if pairs.suffix == ".parquet" else "read_csv(?)"
    first = OPEN.format(k=checked_budget(k), pairs=reader)
    with duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{memory_limit}'")
        db.execute("SET temp_directory = ?", [str(folder or pairs.parent)])
        try:
            db.execute(f"CREATE TEMP TABLE open_pairs AS {first}", [str(pairs)])
        except duckdb.Error as error:
            raise InputError(f"cannot read {pairs}: {error}", hint="want columns example_id, user_id") from error
        db.execute("CREATE TEMP TABLE chosen AS SELECT example_id FROM open_pairs LIMIT 0")
        while db.execute("SELECT count(*) FROM open_pairs").fetchone() != (0,):
            db.execute(f"CREATE OR REPLACE TEMP TABLE winners AS {WINNERS}")
            db.execute("INSERT INTO chosen SELECT example_id FROM winners")
            db.execute(f"CREATE OR REPLACE TEMP TABLE open_pairs AS {STILL_OPEN}")
        return [row[0] for row in db.execute("SELECT example_id FROM chosen ORDER BY example_id").fetchall()]


def rounds_spark(pairs: DataFrame, k: int) -> DataFrame:
    """Run the rounds on a Spark cluster.

    Each round's tables are checkpointed on the executors (``localCheckpoint``), or the plan would grow without end.

    Parameters
    ----------
    pairs
        Spark frame with the columns example_id and user_id, without repeated pairs.
    k
        Budget of every user.

    Returns
    -------
    DataFrame
        One column, example_id: the taken examples.

    Raises
    ------
    InputError
        A column is missing; k is no whole number of at least 1.
    """
    missing = {"example_id", "user_id"} - set(pairs.columns)
    if missing:
        raise InputError(f"the frame lacks the column {' and '.join(sorted(missing))}")
    spark = pairs.sparkSession
    pairs.createOrReplaceTempView("all_pairs")
    left = spark.sql(OPEN.format(k=checked_budget(k), pairs="all_pairs")).localCheckpoint()
    chosen = left.select("example_id").limit(0)
    while not left.isEmpty():
        left.createOrReplaceTempView("open_pairs")
        winners = spark.sql(WINNERS).localCheckpoint()
        winners.createOrReplaceTempView("winners")
        chosen = chosen.union(winners)
        left = spark.sql(STILL_OPEN).localCheckpoint()
    return chosen

"""Greedy in parallel rounds, two group-bys each, with the sequential algorithm's result; in memory and in DuckDB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Int

from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError


def parallel_rounds(
    graph: AttributionGraph, k: int, ranking: Int[np.ndarray, " n"], *, max_rounds: int | None = None
) -> Int[np.ndarray, " s"]:
    r"""Run greedy for the priority ``ranking`` in rounds of vector operations.

    In a round each user with :math:`b_v = k - \deg_S(v) > 0` proposes its :math:`b_v` best examples among those still
    open; an example that all its users propose is taken; then those with a saturated user are closed.

    A taken example has, at each of its users, fewer than :math:`b_v` open ones before it, so the sequential algorithm
    takes it too; and a user is saturated only by examples better than every open one it has left, so nothing closed
    would have been taken. Hence both give the same set.

    Parameters
    ----------
    graph, k
        As in `fixedgraphdp.bounding.bound`.
    ranking
        int64 ``(n,)``, the examples, best first.
    max_rounds
        Stop early; the set is then k-bounded but may not be maximal.

    Returns
    -------
    ndarray
        The taken examples, ascending.

    References
    ----------
    "Scalable contribution bounding", arXiv 2507.23432.
    """
    rank = np.empty(graph.n_examples, np.int64)
    rank[ranking] = np.arange(graph.n_examples)
    order = np.lexsort((rank[graph.example_of_incidence], graph.example_users))
    user, example = graph.example_users[order], graph.example_of_incidence[order]
    degree = np.zeros(graph.n_users, np.int64)
    taken = graph.sizes == 0
    done = 0
    while len(user) and (max_rounds is None or done < max_rounds):
        first = np.flatnonzero(np.r_[True, user[1:] != user[:-1]])
        place = np.arange(len(user)) - np.repeat(first, np.diff(np.r_[first, len(user)]))
        proposed = example[place < k - degree[user]]
        votes = np.bincount(proposed, minlength=graph.n_examples)
        new = (votes == graph.sizes) & (votes > 0)
        taken |= new
        degree += np.bincount(user[new[example]], minlength=graph.n_users)
        closed = new.copy()
        closed[example[degree[user] >= k]] = True
        live = ~closed[example]
        user, example = user[live], example[live]
        done += 1
    return np.flatnonzero(taken)


_ROUND = """
CREATE OR REPLACE TEMP TABLE winner AS
  SELECT example_id FROM (
    SELECT o.example_id, o.size,
           row_number() OVER (PARTITION BY o.user_id ORDER BY o.size, o.example_id) <= o.budget AS vote
    FROM open o)
  GROUP BY example_id, size HAVING count(*) FILTER (WHERE vote) = size;
INSERT INTO chosen SELECT example_id FROM winner;
CREATE OR REPLACE TEMP TABLE open AS
  WITH used AS (SELECT user_id, count(*) AS gone FROM open SEMI JOIN winner USING (example_id) GROUP BY user_id),
       rest AS (SELECT o.example_id, o.user_id, o.size, o.budget - coalesce(u.gone, 0) AS budget
                FROM open o LEFT JOIN used u USING (user_id) ANTI JOIN winner w ON o.example_id = w.example_id),
       shut AS (SELECT DISTINCT example_id FROM rest WHERE budget <= 0)
  SELECT rest.* FROM rest ANTI JOIN shut USING (example_id);
"""


def rounds_duckdb(pairs: Path, k: int, *, memory_limit: str = "2GB", folder: Path | None = None) -> list[int | str]:
    """Run the rounds inside DuckDB, which spills to disk, on a pair table that need not fit into memory.

    Priority is ascending size, then ascending ``example_id``, as ``order="size"`` without a key when the ids ascend.

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
        DuckDB is not installed, or cannot read the table.
    """
    try:
        import duckdb
    except ImportError as error:
        raise InputError("duckdb is not installed", hint="install fixedgraphdp[duckdb]") from error
    reader = "read_parquet" if pairs.suffix == ".parquet" else "read_csv"
    with duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{memory_limit}'")
        db.execute(f"SET temp_directory = '{folder or pairs.parent}'")
        try:
            db.execute(
                f"CREATE TEMP TABLE open AS SELECT example_id, user_id, "
                f"count(*) OVER (PARTITION BY example_id) AS size, {int(k)} AS budget FROM {reader}(?)",
                [str(pairs)],
            )
        except duckdb.Error as error:
            raise InputError(f"cannot read {pairs}: {error}", hint="want columns example_id, user_id") from error
        db.execute("CREATE TEMP TABLE chosen AS SELECT example_id FROM open LIMIT 0")
        while db.execute("SELECT count(*) FROM open").fetchone() != (0,):
            db.execute(_ROUND)
        return [row[0] for row in db.execute("SELECT example_id FROM chosen ORDER BY example_id").fetchall()]

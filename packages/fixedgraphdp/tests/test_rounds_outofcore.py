"""The rounds on engines for data that need not fit into memory give the sequential algorithm's set."""

import shutil
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fixedgraphdp import bound, generators
from fixedgraphdp.rounds_beam import PAIR, bounding_rounds, example_stage, user_stage
from fixedgraphdp.rounds_sql import rounds_duckdb, rounds_spark
from papers_shared.errors import InputError

GRAPH = generators.chung_lu_hypergraph(400, 80, 4, seed=3)
PAIRS = list(zip(GRAPH.example_of_incidence.tolist(), GRAPH.example_users.tolist(), strict=True))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_duckdb_gives_the_sequential_set(tmp_path, kind, k):
    path = tmp_path / f"pairs.{kind}"
    if kind == "csv":
        np.savetxt(path, PAIRS, fmt="%d", delimiter=",", header="example_id,user_id", comments="")
    else:
        examples, users = zip(*PAIRS, strict=True)
        parquet.write_table(pa.table({"example_id": examples, "user_id": users}), path)
    assert rounds_duckdb(path, k) == bound(GRAPH, k).selected.tolist()


def test_duckdb_works_within_its_memory_limit(tmp_path):
    graph = generators.chung_lu_hypergraph(5_000, 2_000, 3, seed=1)
    path = tmp_path / "pairs.parquet"
    columns = {"example_id": graph.example_of_incidence, "user_id": graph.example_users}
    parquet.write_table(pa.table(columns), path)
    assert rounds_duckdb(path, 2, memory_limit="64MB", folder=tmp_path) == bound(graph, 2).selected.tolist()


def test_duckdb_refuses_what_it_cannot_use(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="example_id, user_id"):
        rounds_duckdb(path, 1)
    with pytest.raises(InputError, match="whole number"):
        rounds_duckdb(path, 0)


def shuffle(items):
    groups = defaultdict(list)
    for key, value in items:
        groups[key].append(value)
    return sorted(groups.items())


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_two_stages_give_the_sequential_set_under_any_shuffle(k):
    keyed = [(user, (PAIR, int(GRAPH.sizes[example]), example)) for example, user in PAIRS]
    rng = np.random.default_rng(k)
    taken, rounds = [], 0
    while any(value[0] == PAIR for _, value in keyed):
        rounds += 1
        keyed = [keyed[i] for i in rng.permutation(len(keyed))]
        voted = [out for group in shuffle(keyed) for out in user_stage(group, k)]
        counted = [out for group in shuffle(v for kind, v in voted if kind == "vote") for out in example_stage(group)]
        taken += [example for kind, example in counted if kind == "taken"]
        keyed = [v for kind, v in voted if kind == "spent"] + [v for kind, v in counted if kind == "user"]
    assert sorted(taken) == bound(GRAPH, k).selected.tolist()
    assert rounds < 30


def test_beam_runs_the_stages(tmp_path):
    beam = pytest.importorskip("apache_beam", reason="Beam wants older libraries than the rest: its own environment")
    with beam.Pipeline() as pipeline:
        found = pipeline | beam.Create(PAIRS) | bounding_rounds(2, 12)
        for name in ("taken", "open"):
            _ = (
                found[name]
                | f"text {name}" >> beam.Map(str)
                | f"write {name}" >> beam.io.WriteToText(str(tmp_path / name), shard_name_template="")
            )
    assert sorted(map(int, (tmp_path / "taken").read_text().split())) == bound(GRAPH, 2).selected.tolist()
    assert (tmp_path / "open").read_text() == ""


def test_without_beam_the_error_says_what_to_install():
    try:
        import apache_beam  # noqa: F401
    except ImportError:
        with pytest.raises(InputError, match="apache-beam"):
            bounding_rounds(2, 3)
    with pytest.raises(ValueError, match=r"whole number|not installed"):
        bounding_rounds(0, 3)


def test_spark_runs_the_same_queries():
    sql = pytest.importorskip("pyspark.sql", reason="install fixedgraphdp[spark]")
    if shutil.which("java") is None:
        pytest.skip("Spark needs a Java runtime")
    session = sql.SparkSession.builder.master("local[1]").config("spark.sql.shuffle.partitions", 2)
    spark = session.config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = spark.createDataFrame(PAIRS, ["example_id", "user_id"])
        found = sorted(row.example_id for row in rounds_spark(frame, 2).collect())
        with pytest.raises(InputError, match="lacks the column"):
            rounds_spark(frame.select("user_id"), 2)
    finally:
        spark.stop()
    assert found == bound(GRAPH, 2).selected.tolist()

"""The store: what goes in comes out, once; its file, its queries, its exports and its snapshots."""

import random

import duckdb
import pytest

from evalcards import warehouse
from evalcards.errors import InputError, SnapshotExists, UnknownModel
from evalcards.schema import read_log
from evalcards.signals import rollup
from evalcards.snapshots import diff
from evalcards.store import Store


def flags_of(store):
    """The SQL's flags by content, not by row or group number."""
    return {
        line["link"]: {k: v for k, v in line.items() if k not in ("group_id", "link")}
        for line in store.records("SELECT group_signals.*, link FROM group_signals JOIN groups USING (group_id)")
    }


def test_the_order_of_import_changes_nothing(corpus, store):
    logs = corpus.logs()
    random.Random(5).shuffle(logs)
    with Store(None) as other:
        other.add_cards(corpus.benchmark_cards())
        for start in range(0, len(logs), 97):
            other.add(logs[start : start + 97])
        other.signals()
        assert flags_of(other) == flags_of(store)
        assert rollup(other) == rollup(store)


def test_importing_again_adds_nothing(corpus):
    with Store(None) as store:
        first = store.add(corpus.logs())
        before = store.fetch("SELECT * FROM results ORDER BY row_id")
        shuffled = [read_log(dict(reversed(list(document.items())))) for document in corpus.documents]
        again = store.add(shuffled)
        assert (again.logs, again.rows, again.duplicates) == (0, 0, first.logs)
        assert store.fetch("SELECT * FROM results ORDER BY row_id") == before


def test_what_went_in_comes_out_unknown_keys_and_all(corpus, record):
    strange = record(0.5, extra={"nested": [1, None, {"ü": "é"}]})
    strange["evaluation_results"][0]["score_details"]["note"] = "kept"
    with Store(None) as store:
        store.add([*corpus.logs(), read_log(strange)])
        stored = {log["evaluation_id"]: log for log in store.logs()}
    assert all(stored[d["evaluation_id"]] == d for d in [*corpus.documents, strange])


def test_queries_cannot_change_the_store(store):
    assert store.query("SELECT count(*) AS n FROM results").to_pylist() == [{"n": 450}]
    joined = "WITH r AS (FROM Results) SELECT count(*) AS n FROM r JOIN groups USING (group_id)"
    assert store.query(joined).to_pylist() == [{"n": 450}]
    for sql in ("DELETE FROM results", "SELECT 1; SELECT 2", "DROP TABLE logs", "COPY results TO 'x.csv'", "SELECT"):
        with pytest.raises(InputError):
            store.query(sql)
    assert store.fetch("SELECT count(*) FROM results") == [(450,)]


@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM read_text('/etc/hostname')", "SELECT * FROM 'http://127.0.0.1:9/x.parquet'", "SELECT * FROM store"],
)
def test_queries_see_neither_files_nor_network_nor_variables(store, sql):
    with pytest.raises(InputError, match="query: "):
        store.query(sql)


def test_a_store_file_is_opened_again_with_all_its_dictionaries(tmp_path, corpus):
    path = tmp_path / "cards.duckdb"
    half = len(corpus.documents) // 2
    with Store(path) as store:
        store.add_cards(corpus.benchmark_cards())
        store.add(corpus.logs()[:half])
    with Store(path) as store:
        store.add(corpus.logs()[half:])
        store.signals()
        found = flags_of(store)
    with Store(None) as whole:
        whole.add_cards(corpus.benchmark_cards())
        whole.add(corpus.logs())
        whole.signals()
        assert found == flags_of(whole)
    with Store(path, read_only=True) as store:
        assert rollup(store)["overall"]["rows"] == 450
        with pytest.raises(InputError, match="signals are not computed"):
            store.signals("spec4")


def test_somebody_elses_database_is_left_alone(tmp_path):
    path = tmp_path / "theirs.duckdb"
    with duckdb.connect(str(path)) as theirs:
        theirs.execute("CREATE TABLE meta (key VARCHAR, value VARCHAR)")
    with pytest.raises(InputError, match="no store of this version"):
        Store(path)
    with duckdb.connect(str(path)) as theirs:
        assert theirs.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("meta",)]


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "x.duckdb"
    path.write_text("not a database, and long enough to look like one" * 200)
    with pytest.raises(InputError, match="no store, and no DuckDB file"):
        Store(path)


def test_parquet_export_reads_back(tmp_path, corpus, store):
    from evalcards.importers import eee

    written = store.export(tmp_path)
    assert {path.name for path in written} >= {"logs.parquet", "results.parquet", "row_signals.parquet"}
    result = eee(tmp_path / "logs.parquet")
    assert (result.rows, result.failed) == (450, 0)
    with pytest.raises(InputError, match="already exists"):
        store.export(tmp_path)


def test_parts_of_the_tables_give_the_signals_of_the_whole(tmp_path, store):
    written = store.export(tmp_path, parts=3)
    assert len([path for path in written if path.name == "results.parquet"]) == 3
    wanted = {row[0]: row for row in store.fetch("SELECT * FROM group_signals")}
    found = {}
    for part in range(3):
        with duckdb.connect() as other:
            other.execute(f"CREATE VIEW results AS FROM read_parquet('{tmp_path}/results/part={part}/*.parquet')")
            warehouse.compute(other)
            found |= {row[0]: row for row in other.execute("SELECT * FROM group_signals").fetchall()}
    assert found == wanted
    with pytest.raises(InputError, match="parts"):
        store.export(tmp_path / "x", parts=0)


def test_snapshots_never_change_and_tell_what_did(record):
    with Store(None) as store:
        store.add([read_log(record(0.5, identity="a", arguments={"top_k": 1}))])
        store.snapshot("one")
        store.add([read_log(record(0.9, identity="b", arguments={"top_k": 2}, organisation="Second"))])
        store.snapshot("two")
        found = diff(store, "one", "two")
        assert [line["score"] for line in found.added] == [0.9]
        assert found.removed == []
        assert (found.signals[0]["variant_after"], found.signals[0]["parties_after"]) == (True, 2)
        assert found.rates["provenance.multi_source"] == (0.0, 1.0)
        assert [line["score"] for line in diff(store, "two", "one").removed] == [0.9]
        with pytest.raises(SnapshotExists, match="never change"):
            store.snapshot("one")
        with pytest.raises(UnknownModel, match="no snapshot"):
            diff(store, "one", "three")
        with pytest.raises(InputError, match="want a name"):
            store.snapshot("../x")

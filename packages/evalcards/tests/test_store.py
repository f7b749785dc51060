"""The store and its SQL: equal to loops and to pandas, to the planted truth, and to what went in."""

import json
import random

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcards import warehouse
from evalcards.baselines import bare_leaderboard, loop_signals, pandas_signals, rows_of, top_changes
from evalcards.compare import compare, score_difference
from evalcards.errors import InputError, SnapshotExists, UnitMismatch, UnknownModel
from evalcards.generator import PATTERNS, generate
from evalcards.identity import ModelIndex, parse_model, route_id, slug
from evalcards.importers import Options, lm_eval
from evalcards.samples import lm_eval_file
from evalcards.schema import BenchmarkCard, ModelMeta, read_log
from evalcards.signals import rollup
from evalcards.signals.slots import SLOTS
from evalcards.significance import corpus_tests, error_of, holm, z_test
from evalcards.snapshots import diff
from evalcards.store import Store


def flags_of(store):
    """The SQL's flags by content, not by row or group number."""
    return {
        line["link"]: {k: v for k, v in line.items() if k not in ("group_id", "link")}
        for line in store.records("SELECT group_signals.*, link FROM group_signals JOIN groups USING (group_id)")
    }


def messy_records(record, seed):
    """Records with everything that grouping could get wrong: ties, null and unnamed parties, missing scores' bounds."""
    rng = random.Random(seed)
    made = []
    for _ in range(80):
        arguments = {
            key: rng.choice(options)
            for key, options in {
                "temperature": [0, 0.0, 0.7, None],
                "top_k": [1, "1"],
                "prompt_template": ["", "p"],
                "max_tokens": [8, 16],
                "agentic_eval_config": [None, {"b": 1, "a": 2}, {"a": 2, "b": 1}],
            }.items()
            if rng.random() < 0.6
        }
        bounds = rng.choice(
            [{}, {"metric_unit": "proportion"}, {"min_score": 0, "max_score": 10}, {"max_score": "Infinity"}]
        )
        made.append(
            record(
                rng.choice([0.25, 0.3, 0.7, 0.75, 0.75, 2, 1e400, 73.4]),
                model=rng.choice(["example/one", "example/two"]),
                name=rng.choice(["MMLU", "SWE-bench"]),
                organisation=rng.choice(["A Lab", "a  LAB", "B", "", None]),
                relationship=rng.choice(["first_party", "third_party", "other", None]),
                arguments=arguments,
                metric=bounds,
                identity=f"r{rng.randrange(200)}",
            )
        )
    return made


@pytest.fixture(params=[0, 1])
def messy(request, record):
    with Store(None) as store:
        store.add([read_log(document) for document in messy_records(record, request.param)])
        store.signals()
        yield store


def test_sql_equals_the_literal_loop_on_messy_rows(messy):
    assert_equal_to_loop(messy)


def test_sql_equals_the_literal_loop_on_the_corpus(store):
    assert_equal_to_loop(store)


def assert_equal_to_loop(store):
    gaps, groups = loop_signals(rows_of(store))
    for row, missing, required in store.fetch("SELECT row_id, missing, required_field_count FROM row_signals"):
        assert warehouse.named(missing) == gaps[row].missing_fields
        assert required == gaps[row].required_field_count
    found = store.records("SELECT * FROM group_signals")
    assert len(found) == len(groups)
    for line in found:
        ours = groups[line["group_id"]]
        assert (line["has_variant_divergence"] if line["variant_eligible"] else None) == ours.variant
        assert line["variant_spread"] == ours.variant_spread
        assert warehouse.fields_of(line["variant_differs"]) == ours.variant_fields
        assert (line["has_cross_party_divergence"] if line["cross_eligible"] else None) == ours.cross
        assert line["cross_spread"] == ours.cross_spread
        assert warehouse.fields_of(line["cross_differs"]) == ours.cross_fields
        assert line["n_parties"] == ours.parties


loose_rows = st.lists(
    st.tuples(
        st.sampled_from([0.25, 0.3, 0.7, 0.75, 12.0]), st.sampled_from(["A", "a ", "B", "", None]),
        st.sampled_from([{}, {"top_k": 1}, {"top_k": 2, "temperature": 0}, {"prompt_template": ""}]),
        st.sampled_from(["same", "x", "y"]),
    ),
    min_size=1, max_size=9,
)  # fmt: skip


@settings(max_examples=10)
@given(rows=loose_rows)
def test_sql_equals_the_literal_loop_on_any_triple(record, rows):
    with Store(None) as store:
        logs = []
        for number, (score, party, arguments, identity) in enumerate(rows):
            document = record(score, organisation=party, arguments=arguments, identity=identity, number=number)
            logs.append(read_log(document))
        store.add(logs)
        store.signals()
        assert_equal_to_loop(store)


def test_the_profile_of_slots_is_the_slots(store):
    try:
        rates = rollup(store, profile="slots")["overall"]["reproducibility"]
        missing = store.fetch("SELECT missing, required, has_reproducibility_gap, slots FROM row_signals JOIN results "
                              "USING (row_id)")  # fmt: skip
        for bits, asked, gap, states in missing:
            told = dict(zip(SLOTS, states, strict=True))
            assert warehouse.named(bits, "slots") == tuple(s for s, state in told.items() if state == "m")
            assert warehouse.named(asked, "slots") == tuple(s for s, state in told.items() if state in "md")
            assert gap == ("m" in states)
        for slot, rate in rates["missing"].items():
            place = list(SLOTS).index(slot)
            assert rate["of"] == sum(states[place] in "md" for *_, states in missing)
            assert rate["count"] == sum(states[place] == "m" for *_, states in missing)
        with pytest.raises(InputError, match="choose one of paper, paper-h1, spec4, slots"):
            store.signals("best")
    finally:
        store.signals()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_sql_equals_pandas(messy, store):
    for held in (messy, store):
        theirs = pandas_signals(held)
        for line in held.records("SELECT * FROM group_signals"):
            other = theirs.loc[line["group_id"]]
            assert line["has_variant_divergence"] == bool(other["variant"])
            assert line["has_cross_party_divergence"] == bool(other["cross"])
            assert line["n_parties"] == other["parties"]
            for ours, key in ((line["variant_spread"], "variant_spread"), (line["cross_spread"], "cross_spread")):
                assert (ours is None) == bool(other[key] != other[key])
                assert ours is None or ours == pytest.approx(other[key], rel=1e-12)


def test_the_planted_truth_is_recovered(corpus, store):
    lines = store.records("SELECT * FROM group_signals JOIN groups USING (group_id)")
    assert len(lines) == len(corpus.truth.groups)
    for line in lines:
        key = (line["model_id"], line["benchmark_name"])
        pattern = PATTERNS[corpus.truth.groups[key]][1]
        assert (line["has_variant_divergence"] if line["variant_eligible"] else None) == pattern.variant, key
        assert (line["has_cross_party_divergence"] if line["cross_eligible"] else None) == pattern.cross, key
        assert line["n_parties"] == corpus.truth.parties[key]
        assert line["first_party_only"] == corpus.truth.first_only[key]
    seen = {corpus.truth.groups[line["model_id"], line["benchmark_name"]] for line in lines}
    assert seen >= set(PATTERNS) - {"scale anomaly"}


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


def test_rollups_are_sums_over_rows(corpus, store):
    for profile in ("paper", "spec4"):
        summed = rollup(store, profile=profile)
        rows = store.records("SELECT * FROM row_signals")
        overall = summed["overall"]
        assert overall["reproducibility"]["gap"]["count"] == sum(r["has_reproducibility_gap"] for r in rows)
        for field, rate in overall["reproducibility"]["missing"].items():
            lacking = [field in warehouse.named(r["missing"], profile) for r in rows]
            assert rate["count"] == sum(lacking)
        assert sum(k["count"] for k in overall["provenance"]["source_types"].values()) == len(rows) == overall["rows"]
        parts = summed["by_category"].values()
        assert sum(p["rows"] for p in parts) == overall["rows"]
        assert sum(p["triples"] for p in parts) == overall["triples"]
        assert sum(p["completeness"]["benchmarks"] for p in parts) == overall["completeness"]["benchmarks"]
        assert (
            sum(p["comparability"]["variant_divergence"]["of"] for p in parts)
            == (overall["comparability"]["variant_divergence"]["of"])
        )
    store.signals()
    agentic = store.fetch("SELECT count(*) FROM row_signals WHERE agentic")[0][0]
    assert rollup(store)["overall"]["reproducibility"]["missing"]["eval_plan"]["of"] == agentic


def test_rates_of_nothing_are_null():
    with Store(None) as store:
        overall = rollup(store)["overall"]
    assert overall["reproducibility"]["gap"] == {"count": 0, "of": 0, "rate": None}
    assert overall["comparability"]["cross_party_divergence"]["rate"] is None
    assert overall["completeness"]["mean"] is None


def test_a_larger_factor_flags_no_more_in_the_store(corpus):
    with Store(None) as store:
        store.add(corpus.logs())
        counts = [
            rollup(store, factor=f)["overall"]["comparability"]["variant_divergence"]["count"]
            for f in (0.5, 1.0, 1.5, 2.0)
        ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_units_and_protocols_never_join(record):
    logs = [
        record(0.7, metric={"metric_unit": "proportion"}, identity="a"),
        record(70.0, metric={"metric_unit": "percent"}, identity="b"),
        record(0.6, metric={"metric_unit": "proportion"}, identity="c", details={"num_fewshot": "5"}),
        record(0.61, metric={"metric_unit": "proportion"}, identity="d", name="mmlu"),
    ]
    with Store(None) as store:
        store.add([read_log(log) for log in logs])
        assert sorted(t.rows for t in store.triples()) == [1, 1, 2]


def test_names_join_only_by_registration(record):
    names = ["HuggingFaceTB/SmolLM2-135M-Instruct", "huggingfacetb/smollm2_135m_instruct", "local-name", "other"]
    with Store(None) as store:
        store.add([read_log(record(0.5, model=name, identity=name)) for name in names])
        assert len({t.model for t in store.triples()}) == 4
        store.add_models([ModelMeta(id=names[0], aliases=["local-name"])])
        assert {t.model for t in store.triples()} == {names[0], "other"}
        assert store.model("local-name")["id"] == names[0]
        assert store.model("HuggingFaceTB__SmolLM2-135M-Instruct")["id"] == names[0]
        with pytest.raises(UnknownModel, match="did you mean"):
            store.model("smollm2-135m")


def test_model_names_are_taken_apart():
    assert parse_model("a/b-20250102-high") == ("a/b-20250102-high", "a/b", "20250102", "high", "a")
    assert parse_model("a/b-20250102").qualifier is None
    assert parse_model("a/b-2025").variant_date is None
    assert route_id("a/b") == "a__b"
    index = ModelIndex(["A/b-1", "a/B1"], {"x": "A/b-1"})
    assert index.resolve("x") == ("A/b-1", "alias")
    assert index.resolve("A/b-1") == ("A/b-1", "exact")
    assert index.resolve("a/b_1")[1] == "unresolved"  # two registered ids fold to it


@pytest.mark.parametrize(
    "name", ["C", "C++", "C#", "../../etc/passwd", "<script>alert(1)</script>", "日本語", "", "a" * 500]
)
def test_slugs_hold_nothing_but_plain_letters(name):
    assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789_-" for c in slug(name))
    assert 0 < len(slug(name)) < 100
    assert slug("C") != slug("C++") != slug("C#")


def test_cards_move_rows_to_their_benchmark(record):
    with Store(None) as store:
        store.add([read_log(record(name="hendrycks_anatomy"))])
        store.add_cards(
            [BenchmarkCard.model_validate({"benchmark_details": {"name": "MMLU"}, "aliases": ["hendrycks"]})]
        )
        triple = store.triples()[0]
        assert triple.benchmark == "mmlu"
        assert "/anatomy@" in triple.path


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


def test_what_an_importer_had_to_write_does_not_count_as_reported(tmp_path):
    path = lm_eval_file(tmp_path)[0]
    scores = []
    for options in (Options(), Options(organisation="Us"), Options(organisation="Us", relationship="other")):
        with Store(None) as store:
            store.add(lm_eval(path, options).logs)
            scores.append(store.completeness()["gsm8k"].field_scores["eee.source_metadata"])
    assert scores == [0.25, 0.5, 0.75]


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


def test_compare_tells_what_stands_in_the_way(record):
    full = {"temperature": 0, "max_tokens": 10}

    def log(model, score, identity, **more):
        return read_log(record(score, model=model, identity=identity, **more))

    unit = {"metric_unit": "proportion"}
    with Store(None) as store:
        store.add([
            log("a", 0.5, "1", arguments=full, metric=unit), log("b", 0.6, "2", arguments=full, metric=unit),
            log("c", 0.6, "3", arguments=full | {"temperature": 1}, metric=unit, details={"num_fewshot": "5"}),
            log("d", 60.0, "4", arguments=full, metric={"metric_unit": "percent"}), log("e", 0.6, "5", metric=unit),
            log("f", 0.4, "6", metric=unit), log("g", 1.0, "7", name="Other"),
        ])  # fmt: skip
        store.signals()
        assert compare(store, "a", "b", "mmlu")[0].verdict == "comparable"
        assert compare(store, "a", "b", "mmlu")[0].difference == pytest.approx(-0.1)
        other = compare(store, "a", "c", "MMLU")[0]
        assert other.verdict == "differs in setup"
        assert other.differences["temperature"] == (0, 1)
        assert other.differences["few-shot examples"] == (None, "5")
        assert compare(store, "a", "d", "MMLU")[0].verdict == "unit mismatch"
        assert compare(store, "e", "f", "MMLU")[0].verdict == "insufficient disclosure"
        assert compare(store, "a", "e", "MMLU")[0].verdict == "insufficient disclosure"  # one says, one does not
        assert compare(store, "e", "f", "MMLU")[0].undisclosed == ("decoding", "length", "test_set")
        with pytest.raises(UnitMismatch, match="never rescaled"):
            score_difference({"unit": "percent", "score": 1.0}, {"unit": None, "score": 1.0})
        with pytest.raises(UnknownModel, match="no result on"):
            compare(store, "a", "g", "MMLU")


def test_significance_is_the_textbooks():
    z, p = z_test(0.6, 0.03, 0.5, 0.04)
    assert (z, p) == (pytest.approx(2.0), pytest.approx(0.0455, abs=1e-4))
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert error_of(0.5, None, 100, "proportion") == pytest.approx(0.05)
    assert error_of(0.5, 0.01, 100, "proportion") == 0.01
    assert error_of(50.0, None, 100, "percent") is error_of(0.5, None, None, "proportion") is None
    with pytest.raises(ValueError, match="say nothing"):
        z_test(1.0, 0.0, 2.0, 0.0)


def test_corpus_tests_use_the_extremes_of_each_triple(record):
    logs = [record(s, identity=str(i), metric={"metric_unit": "proportion"}) for i, s in enumerate((0.5, 0.55, 0.7))]
    for log in logs:
        log["evaluation_results"][0]["score_details"]["uncertainty"] = {"num_samples": 100}
    with Store(None) as store:
        store.add([read_log(log) for log in logs])
        (test,) = corpus_tests(store)
    z, p = z_test(0.5, 0.05, 0.7, (0.7 * 0.3 / 100) ** 0.5)
    assert (test.low, test.high, test.z, test.p) == (0.5, 0.7, pytest.approx(z), pytest.approx(3 * p))


def test_a_bare_leaderboard_can_lose_its_leader(record):
    unit = {"metric_unit": "proportion"}
    logs = [
        record(0.9, model="a", identity="1", metric=unit, arguments={"top_k": 1}),
        record(0.4, model="a", identity="2", metric=unit, arguments={"top_k": 2}),
        record(0.6, model="b", identity="3", metric=unit), record(0.5, model="c", identity="4", metric=unit),
    ]  # fmt: skip
    with Store(None) as store:
        store.add([read_log(log) for log in logs])
        store.signals()
        found = top_changes(store)
    assert (found.benchmarks, found.changed) == (1, 1)
    assert (found.examples[0]["before"][0], found.examples[0]["after"][0]) == ("a", "b")
    lower = [{"model_id": m, "score": s, "lower_is_better": True} for m, s in (("a", 3.0), ("b", 2.0))]
    assert bare_leaderboard(lower) == [("b", 2.0), ("a", 3.0)]


def test_the_generator_keeps_its_word():
    one, other = generate(30, 14, 200, seed=1), generate(30, 14, 200, seed=1)
    assert one == other
    assert one.rows == 200
    assert one.documents != generate(30, 14, 200, seed=2).documents
    with pytest.raises(ValueError, match="hold only"):
        generate(2, 2, 100)
    assert json.loads(json.dumps(one.documents)) == one.documents

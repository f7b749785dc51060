"""The signals over a store in SQL: equal to the literal loops, to pandas and to the planted truth."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcards import warehouse
from evalcards.baselines import loop_signals, pandas_signals, rows_of
from evalcards.errors import InputError
from evalcards.generator import PATTERNS, generate
from evalcards.importers import Options, lm_eval
from evalcards.samples import lm_eval_file
from evalcards.schema import read_log
from evalcards.signals import rollup
from evalcards.signals.slots import SLOTS
from evalcards.store import Store


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


def test_what_an_importer_had_to_write_does_not_count_as_reported(tmp_path):
    path = lm_eval_file(tmp_path)[0]
    scores = []
    for options in (Options(), Options(organisation="Us"), Options(organisation="Us", relationship="other")):
        with Store(None) as store:
            store.add(lm_eval(path, options).logs)
            scores.append(store.completeness()["gsm8k"].field_scores["eee.source_metadata"])
    assert scores == [0.25, 0.5, 0.75]


def test_the_generator_keeps_its_word():
    one, other = generate(30, 14, 200, seed=1), generate(30, 14, 200, seed=1)
    assert one == other
    assert one.rows == 200
    assert one.documents != generate(30, 14, 200, seed=2).documents
    with pytest.raises(ValueError, match="hold only"):
        generate(2, 2, 100)
    assert json.loads(json.dumps(one.documents)) == one.documents

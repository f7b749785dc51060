"""Two models side by side, tests of differences, and what bare scores hide."""

import math

import pytest

from evalcards.baselines import bare_leaderboard, top_changes
from evalcards.claim_figures import draw_leaders
from evalcards.compare import compare, score_difference
from evalcards.errors import UnitMismatch, UnknownModel
from evalcards.schema import read_log
from evalcards.sentences import difference_text
from evalcards.significance import corpus_tests, error_of, holm, z_test
from evalcards.store import Store


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


def test_a_score_that_is_no_number_has_no_difference(record):
    store = Store(None)
    for identity, model, score, unit in (("a", "m/a", math.inf, "points"), ("b", "m/b", 0.5, None)):
        metric = {"metric_unit": unit} if unit else {}
        store.add([read_log(record(score, identity=identity, model=model, metric=metric))])
    store.signals()
    (found,) = compare(store, "m/a", "m/b", "MMLU")
    assert (found.verdict, found.difference) == ("unit mismatch", None)
    with pytest.raises(UnitMismatch, match=r"no number \(points\) and 0.5 \(no unit\)"):
        score_difference(found.a, found.b)


def test_differences_of_percentages_are_points():
    assert difference_text(-17.3, "percent") == "-17.3 points"
    assert difference_text(0.25, "proportion") == "0.25"


def test_a_leader_at_nought_is_counted_and_not_drawn():
    examples = [{"before": ("a", 0.0), "after": ("b", 0.0)}, {"before": ("a", 0.5), "after": ("b", 0.4)}]
    left, right = draw_leaders(examples).axes
    assert len(left.lines) == 1
    assert len(right.lines) == 0
    assert right.texts[0].get_text() == "not drawn: 1 with a bare leader at 0"

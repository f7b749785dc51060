"""Signal 4: thresholds and both divergences against brute force."""

import itertools
import json
import math
import statistics

import pytest
from any_rows import few, rows_strategy
from hypothesis import given
from hypothesis import strategies as st

from evalcards.signals import (
    SETUP_FIELDS,
    cross_party_divergence,
    group_metric_config,
    provenance,
    threshold,
    variant_divergence,
)
from papers_shared.errors import InputError

metrics = st.sampled_from([
    {"metric_unit": "proportion"}, {"metric_unit": "percent"}, {"min_score": 0, "max_score": 10}, {},
    {"min_score": "-Infinity", "max_score": 1}, {"min_score": 1, "max_score": 1}, {"min_score": True, "max_score": 3},
])  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ({"metric_unit": "proportion", "min_score": 0, "max_score": 100}, (0.05, "proportion")),
        ({"metric_unit": "percent"}, (5.0, "percent")),
        ({"min_score": 0, "max_score": 10}, (0.5, "range_5pct")),
        ({"metric_unit": "points", "min_score": -1.0, "max_score": 1.0}, (0.1, "range_5pct")),
        ({"min_score": "-Infinity", "max_score": 1.0}, (0.05, "fallback_default")),
        ({"min_score": 1, "max_score": 1}, (0.05, "fallback_default")),
        ({"min_score": False, "max_score": True}, (0.05, "fallback_default")),
        ({"min_score": 0, "max_score": math.inf}, (0.05, "fallback_default")),
        (None, (0.05, "fallback_default")),
    ],
)
def test_thresholds_follow_unit_then_range_then_default(metric, expected):
    found = threshold(metric)
    assert found == (pytest.approx(expected[0]), expected[1])
    assert threshold(metric, 3.0)[0] == pytest.approx(3 * expected[0])


@pytest.mark.parametrize("factor", [0.0, -1.0, math.inf, math.nan])
def test_a_threshold_factor_is_positive_and_finite(factor):
    with pytest.raises(InputError, match="threshold factor"):
        threshold({}, factor)


def _number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) else None


def _brute_fields(setups):
    return [
        f for f in SETUP_FIELDS
        if len({json.dumps((s or {}).get(f), sort_keys=True) for s in setups}) > 1
    ]  # fmt: skip


@few
@given(rows_strategy, metrics, st.sampled_from([0.5, 1.0, 2.0]))
def test_variant_divergence_is_the_brute_force(rows, metric, factor):
    numbers = [s for r in rows if (s := _number(r["score"])) is not None]
    fields = _brute_fields([r["generation_args"] for r in rows])
    found = variant_divergence(rows, metric, factor)
    if len(rows) < 2 or not fields or len(numbers) < 2:
        assert found is None
        return
    tau = threshold(metric, factor)[0]
    widest = max(abs(a - b) for a, b in itertools.combinations(numbers, 2))
    assert found.divergence_magnitude == pytest.approx(widest, abs=1e-12)
    assert found.has_variant_divergence == (widest > tau * (1 + 1e-9))
    assert [d.field for d in found.differing_setup_fields] == fields
    assert found.score_scale_anomaly == (
        metric.get("metric_unit") == "proportion" and any(not 0 <= s <= 1 for s in numbers)
    )


@few
@given(rows_strategy, metrics)
def test_cross_party_divergence_is_the_brute_force(rows, metric):
    by_party = {}
    for r in rows:
        name = r["source_metadata"]["source_organization_name"]
        if name and name.strip() and _number(r["score"]) is not None:
            by_party.setdefault(" ".join(name.split()).lower(), []).append(r)
    found = cross_party_divergence(rows, metric)
    if len(by_party) < 2:
        assert found is None
        return
    medians = {name: statistics.median([float(r["score"]) for r in own]) for name, own in by_party.items()}
    middle = [
        sorted(own, key=lambda r: (float(r["score"]), r["evaluation_id"]))[(len(own) - 1) // 2]["generation_args"]
        for own in by_party.values()
    ]
    spread = max(medians.values()) - min(medians.values())
    assert found.scores_by_organisation == medians
    assert found.divergence_magnitude == pytest.approx(spread, abs=1e-12)
    assert found.has_cross_party_divergence == (spread > threshold(metric)[0] * (1 + 1e-9))
    assert [d.field for d in found.differing_setup_fields] == _brute_fields(middle)


@few
@given(rows_strategy, metrics, st.randoms(use_true_random=False))
def test_signals_do_not_depend_on_the_order_of_rows(rows, metric, random):
    other = list(rows)
    random.shuffle(other)

    def flags(given_rows):
        variant, cross = variant_divergence(given_rows, metric), cross_party_divergence(given_rows, metric)
        return (
            variant and (variant.has_variant_divergence, [d.field for d in variant.differing_setup_fields]),
            cross and (cross.has_cross_party_divergence, [d.field for d in cross.differing_setup_fields], cross[1]),
            sorted(provenance(given_rows)),
        )

    assert flags(rows) == flags(other)


def _pair(a, b):
    return [
        {"evaluation_id": str(i), "score": s, "generation_args": {"top_k": i}, "source_metadata": {}}
        for i, s in enumerate((a, b))
    ]


def test_binary_fractions_do_not_decide():
    assert 0.75 - 0.70 > 0.05 > 0.30 - 0.25
    for a, b in ((0.75, 0.70), (0.30, 0.25), (0.9, 0.85), (0.1, 0.05)):
        assert not variant_divergence(_pair(a, b), {"metric_unit": "proportion"}).has_variant_divergence
    assert variant_divergence(_pair(0.75, 0.6999), {"metric_unit": "proportion"}).has_variant_divergence


@few
@given(st.lists(st.integers(0, 1000), min_size=2, max_size=5))
def test_proportions_as_percent_change_no_flag(parts):
    def rows(scale):
        return [
            {"evaluation_id": str(i), "score": p / 1000 * scale, "generation_args": {"top_k": i},
             "source_metadata": {"source_organization_name": f"o{i % 2}"}}
            for i, p in enumerate(parts)
        ]  # fmt: skip

    for signal, flag in (
        (variant_divergence, "has_variant_divergence"),
        (cross_party_divergence, "has_cross_party_divergence"),
    ):
        one, hundred = signal(rows(1), {"metric_unit": "proportion"}), signal(rows(100), {"metric_unit": "percent"})
        assert getattr(one, flag) == getattr(hundred, flag)


@few
@given(rows_strategy, metrics, st.floats(0.1, 3), st.floats(1, 3))
def test_a_larger_factor_flags_no_more(rows, metric, factor, more):
    small, large = (variant_divergence(rows, metric, f) for f in (factor, factor * more))
    assert (small is None) == (large is None)
    assert small is None or small.has_variant_divergence >= large.has_variant_divergence


def test_stated_ranges_speak_for_a_group_whatever_the_order():
    ranges = [{"min_score": 0, "max_score": 100}, {}, {"min_score": 0, "max_score": 10}]
    for order in itertools.permutations(ranges):
        assert threshold(group_metric_config(order)) == (0.5, "range_5pct")
    assert group_metric_config([]) == {}


def test_ties_of_the_lower_median_fall_the_same_way_in_any_order():
    rows = [
        {"evaluation_id": "e", "score": 0.5, "generation_args": {"top_k": k},
         "source_metadata": {"source_organization_name": name}}
        for name, k in (("A", 3), ("A", 1), ("A", 2), ("B", 1))
    ]  # fmt: skip
    for order in itertools.permutations(rows):
        found = cross_party_divergence(order, {"metric_unit": "proportion"})
        assert {value for d in found.differing_setup_fields for value in d.values} == {1, 2}

"""The four signals against loops from their definitions, invariants, and cases where they could go wrong."""

import itertools
import json
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcards.signals import (
    PROFILES,
    SETUP_FIELDS,
    completeness,
    cross_party_divergence,
    field_set,
    group_metric_config,
    is_agentic,
    organisation,
    provenance,
    reproducibility,
    reproducibility_slots,
    risk_domains,
    threshold,
    variant_divergence,
)
from evalcards.signals.slots import SLOTS
from papers_shared.errors import InputError

values = st.one_of(st.none(), st.booleans(), st.floats(0, 2), st.integers(0, 5), st.sampled_from(["", "a", "b"]))
arguments = st.dictionaries(
    st.sampled_from([*SETUP_FIELDS, "eval_plan", "eval_limits", "harness", "other"]), values, max_size=6
)
scores = st.one_of(
    st.floats(-1, 2, allow_nan=False),
    st.integers(0, 1),
    st.none(),
    st.just(math.nan),
    st.just(math.inf),
    st.booleans(),
    st.sampled_from([0.25, 0.3, 0.7, 0.75]),
)
parties = st.sampled_from([None, "", "A Lab", "a  lab", " B Lab", "C"])
relations = st.sampled_from(["first_party", "third_party", "collaborative", "other", None])
row = st.builds(
    lambda i, s, a, p, r: {
        "evaluation_id": f"e{i}", "score": s, "generation_args": a,
        "source_metadata": {"source_organization_name": p, "evaluator_relationship": r},
    },
    st.integers(0, 50), scores, arguments, parties, relations,
)  # fmt: skip
few = settings(max_examples=50)
rows_strategy = st.lists(row, max_size=7, unique_by=lambda r: r["evaluation_id"])
metrics = st.sampled_from([
    {"metric_unit": "proportion"}, {"metric_unit": "percent"}, {"min_score": 0, "max_score": 10}, {},
    {"min_score": "-Infinity", "max_score": 1}, {"min_score": 1, "max_score": 1}, {"min_score": True, "max_score": 3},
])  # fmt: skip


@few
@given(arguments, st.booleans(), st.sampled_from(list(PROFILES)))
def test_a_gap_is_one_minus_the_product_of_populated(args, agentic, profile):
    base, more = PROFILES[profile]
    fields = list(base) + (list(more) if agentic else [])
    populated = [1 if field in args and args[field] is not None else 0 for field in fields]
    found = reproducibility(args, agentic, profile)
    assert found.has_reproducibility_gap == (1 - math.prod(populated) == 1)
    assert list(found.missing_fields) == [f for f, p in zip(fields, populated, strict=True) if not p]
    assert (found.required_field_count, found.populated_field_count) == (len(fields), sum(populated))


def test_profiles_ask_for_what_their_sources_say():
    assert reproducibility({"temperature": 0, "max_tokens": 1}, False).missing_fields == ()
    assert reproducibility({}, True).missing_fields == ("temperature", "max_tokens", "eval_plan", "eval_limits")
    assert reproducibility({}, True, "paper-h1").missing_fields[-1] == "harness"
    assert reproducibility({"prompt_template": ""}, False, "spec4").missing_fields == (
        "temperature",
        "top_p",
        "max_tokens",
    )
    assert reproducibility(None, False).populated_field_count == 0
    with pytest.raises(InputError, match="no reproducibility profile"):
        reproducibility({}, False, "best")


@pytest.mark.parametrize(
    ("name", "card", "args", "expected"),
    [
        ("MMLU", None, None, False),
        ("SWE-bench Verified", None, {}, True),
        ("tau-bench airline", None, {}, True),
        ("inspect_evals/gaia", None, {}, True),
        ("Gaiasphere", None, {}, False),
        ("X", {"purpose_and_intended_users": {"tasks": ["QA", " Tool_Use "]}}, {}, True),
        ("X", {"purpose_and_intended_users": {"tasks": "agentic"}}, {}, True),
        ("X", None, {"agentic_eval_config": {}}, True),
        ("X", None, {"agentic_eval_config": None}, False),
        (None, None, None, False),
    ],
)
def test_agentic_is_said_by_card_settings_or_name(name, card, args, expected):
    assert is_agentic(name, card, args) is expected


def evidence(**more):
    base = {"row": {"eval_library": "lm_eval", "eval_library_version": "0.4.9"}, "score": {"sample_size": 100}}
    return base | more


def test_log_prob_runs_are_not_asked_for_temperature_or_length():
    found = reproducibility_slots(
        evidence(generation_config={"additional_details": {"output_type": "multiple_choice"}})
    )
    assert found.slots["decoding"] == found.slots["length"] == "not_applicable"
    assert (found.disclosed, found.applicable) == (3, 3)
    said = reproducibility_slots(evidence(row={"scoring_mode": "log_prob"}))
    assert said.slots["decoding"] == "not_applicable"
    generative = {"additional_details": {"output_type": "multiple_choice"}}
    assert reproducibility_slots({"row": {"scoring_mode": "generative"}, "generation_config": generative}).slots[
        "decoding"
    ] == "missing"  # fmt: skip


def test_an_unknown_mode_keeps_both_slots_and_the_benchmarks_name_decides_nothing():
    found = reproducibility_slots({"row": {"benchmark": "MMLU multiple_choice"}})
    assert found.slots["decoding"] == found.slots["length"] == "missing"
    assert found.slots["reasoning_budget"] == found.slots["attempts"] == "unknown"
    assert (found.disclosed, found.applicable) == (0, 5)


def test_a_negative_discloses_but_marks_nothing():
    off = reproducibility_slots(evidence(protocol={"reasoning_effort": "none", "compaction": False}))
    assert off.slots["reasoning_budget"] == "disclosed"
    assert off.slots["context_handling"] == "disclosed"
    assert off.slots["attempts"] == "unknown"
    on = reproducibility_slots(evidence(protocol={"scaffold": "react"}))
    assert on.slots["attempts"] == on.slots["context_handling"] == "missing"
    assert reproducibility_slots(evidence(agent={"eval_plan": {"steps": []}})).slots["attempts"] == "missing"
    assert reproducibility_slots(evidence(limits={"message_limit": 50})).slots["length"] == "disclosed"
    assert reproducibility_slots(evidence(generation_args={"reasoning": True})).slots["reasoning_budget"] == "disclosed"


@pytest.mark.parametrize(
    ("value", "told"), [(0, True), (False, True), ("", False), ([], False), ({}, False), (None, False)]
)
def test_empty_shells_disclose_nothing(value, told):
    found = reproducibility_slots({"generation_args": {"temperature": value}})
    assert (found.slots["decoding"] == "disclosed") is told


def test_every_path_of_a_slot_discloses_it():
    for slot, (_, paths) in SLOTS.items():
        for path in paths:
            made: dict = {}
            *spaces, key = path.split(".")
            inner = made
            for space in spaces:
                inner = inner.setdefault(space, {})
            inner[key] = "stated"
            assert reproducibility_slots(made).slots[slot] == "disclosed", path


def test_the_reporting_schema_has_the_28_fields():
    fields = field_set()
    kinds = [field.coverage for field in fields]
    assert len(fields) == 28
    assert (kinds.count("full"), kinds.count("partial"), kinds.count("reserved")) == (23, 2, 3)
    assert all(len(field.items) == 4 for field in fields if field.coverage == "partial")


def _set(record, path, value):
    *spaces, key = path.split(".")
    for space in spaces:
        record = record.setdefault(space, {})
    record[key] = value


paths = [f"{f.path}.{i}" if i else f.path for f in field_set() for i in (f.items or ("",))]


@few
@given(
    st.lists(st.sampled_from(paths), unique=True),
    st.sampled_from(["x", "", [], "Not specified", 0]),
    st.sampled_from(paths),
)
def test_completeness_is_the_mean_of_field_scores_bounded_and_monotone(chosen, value, more):
    record: dict = {}
    for path in chosen:
        _set(record, path, value)
    expected = 0.0
    for field in field_set():
        if field.items:
            expected += sum(f"{field.path}.{item}" in chosen for item in field.items) / len(field.items)
        else:
            expected += field.path in chosen
    found = completeness(record)
    assert found.score == pytest.approx(expected / 28, abs=1e-12)
    assert 0 <= found.strict_score <= found.score <= 1
    assert set(found.missing_required_fields) == {p for p, s in found.field_scores.items() if s == 0}
    assert all(0 < part.populated < part.total for part in found.partial_fields)
    _set(record, more, "said")
    assert completeness(record).score >= found.score
    assert completeness(record).strict_score >= found.strict_score


def test_strict_reading_sees_through_empty_words():
    card = {"benchmark_details": {"name": "X", "overview": "Not specified", "domains": ["", "n/a"]}}
    plain, strict = (completeness({"benchmark_card": card}, strict_empty=flag) for flag in (False, True))
    assert plain.score == pytest.approx(3 / 28)
    assert plain.strict_score == strict.strict_score == pytest.approx(1 / 28)
    assert "benchmark_card.benchmark_details.overview" in strict.missing_required_fields
    assert "benchmark_card.benchmark_details.overview" not in plain.missing_required_fields


def test_a_field_set_of_ones_own_is_checked(tmp_path):
    good = tmp_path / "fields.json"
    good.write_text(json.dumps({"fields": [{"path": "benchmark_card.data.size", "coverage": "full"}]}))
    assert completeness({"benchmark_card": {"data": {"size": "3"}}}, field_set(good)).score == 1
    for bad in (
        {"fields": []},
        {"fields": [{"path": "a", "coverage": "some"}]},
        {"fields": [{"path": "a", "coverage": "partial"}]},
    ):
        good.write_text(json.dumps(bad))
        with pytest.raises(InputError):
            field_set(good)


@few
@given(rows_strategy)
def test_provenance_counts_named_organisations(rows):
    names = {
        " ".join(n.split()).lower()
        for r in rows
        if (n := r["source_metadata"]["source_organization_name"]) and n.strip()
    }
    for given_row, found in zip(rows, provenance(rows), strict=True):
        relation = given_row["source_metadata"]["evaluator_relationship"]
        assert found.source_type == ("unspecified" if relation in (None, "other") else relation)
        assert found.is_multi_source == (len(names) > 1)
        assert found.first_party_only == (relation == "first_party" and len(names) == 1)
        assert found.distinct_organisations == len(names)


def test_organisations_differ_in_more_than_case_and_spaces():
    assert organisation("  Example \t Lab ") == "example lab"
    assert organisation("Example-Lab") != organisation("Example Lab")
    assert organisation(" ") is organisation(None) is organisation(3) is None


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


def test_slots_are_the_published_ones():
    ad = "generation_config.additional_details"
    either = {  # rule, paths under both generation_args and protocol and so on, as the specification lists them
        "decoding": {f"{s}.{f}" for s in ("generation_args", "protocol") for f in ("temperature", "top_p", "top_k")}
        | {f"{ad}.temperature"},
        "reasoning_budget": {"protocol.reasoning_effort", "protocol.reasoning_tokens", "generation_args.reasoning",
                             f"{ad}.effort"},
        "length": {"generation_args.max_tokens", "protocol.token_limit", "limits.token_limit", "limits.message_limit"},
        "harness": {"row.eval_library", "protocol.scaffold", "agent.eval_plan", f"{ad}.harness", f"{ad}.lm_eval_task"},
        "harness_pin": {"row.eval_library_version", "protocol.harness_version", f"{ad}.lm_eval_task"},
        "context_handling": {"protocol.compaction", "limits.compaction", "limits.truncation"},
        "test_set": {"score.sample_size", "row.n_tasks", "row.split", "protocol.n_tasks", "protocol.split",
                     f"{ad}.n_samples", f"{ad}.subset"},
        "attempts": {f"{s}.{f}" for s in ("row", "protocol", "limits") for f in ("attempts", "epochs")}
        | {f"{ad}.repeats"},
    }  # fmt: skip
    assert {slot: set(paths) for slot, (_, paths) in SLOTS.items()} == either
    rules = [rule for rule, _ in SLOTS.values()]
    assert rules == ["not log-prob", "reasoning", "not log-prob", "always", "always", "agentic", "always", "agentic"]


def test_ties_of_the_lower_median_fall_the_same_way_in_any_order():
    rows = [
        {"evaluation_id": "e", "score": 0.5, "generation_args": {"top_k": k},
         "source_metadata": {"source_organization_name": name}}
        for name, k in (("A", 3), ("A", 1), ("A", 2), ("B", 1))
    ]  # fmt: skip
    for order in itertools.permutations(rows):
        found = cross_party_divergence(order, {"metric_unit": "proportion"})
        assert {value for d in found.differing_setup_fields for value in d.values} == {1, 2}


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("Membership inference attack", "privacy"), ("Jailbreaking", "cyber security and misuse"),
        ("Harmful code generation", "cyber security and misuse"), ("Decision bias", "bias and fairness"),
        ("Toxic output", "toxicity and harmful content"), ("Over- or under-reliance", "misinformation"),
        ("Data acquisition restrictions", "legal and intellectual property"), ("Non-disclosure", "transparency"),
        ("Generated content ownership and IP", "legal and intellectual property"),
        ("Lack of testing diversity", "robustness and reliability"), ("Misaligned actions", "autonomy and agents"),
        ("Impact on affected communities", "society and environment"), ("Data leakage", "privacy"),
    ],
)  # fmt: skip
def test_names_of_the_ibm_risk_atlas_are_accepted(name, domain):
    assert risk_domains({"possible_risks": [name]}) == (domain,)


def test_risks_fall_into_domains_and_none_is_lost():
    card = {"possible_risks": [{"category": "Output bias"}, {"category": "Membership inference attack"}, "moon dust"]}
    assert risk_domains(card) == ("bias and fairness", "privacy", "other")
    assert risk_domains({"possible_risks": "Spreading toxicity and hallucination"}) == (
        "toxicity and harmful content", "misinformation",
    )  # fmt: skip
    assert risk_domains(None) == risk_domains({}) == ()

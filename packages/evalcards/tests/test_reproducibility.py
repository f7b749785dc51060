"""Signal 1: gaps by profile, and slots by what discloses them."""

import math

import pytest
from any_rows import arguments, few
from hypothesis import given
from hypothesis import strategies as st

from evalcards.signals import (
    PROFILES,
    is_agentic,
    reproducibility,
    reproducibility_slots,
)
from evalcards.signals.slots import SLOTS
from papers_shared.errors import InputError


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

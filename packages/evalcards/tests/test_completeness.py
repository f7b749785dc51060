"""Signal 2: the share of the reporting schema that is filled in."""

import json

import pytest
from any_rows import few
from hypothesis import given
from hypothesis import strategies as st

from evalcards.signals import (
    completeness,
    field_set,
)
from papers_shared.errors import InputError


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

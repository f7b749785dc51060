"""Every bad value of the specification: what is said, what is kept, and that nothing is guessed."""

import datetime
import json
import time

import pytest

from evalcards import strict_json
from evalcards.errors import SchemaError
from evalcards.importers import eee
from evalcards.importing import import_files
from evalcards.render import card
from evalcards.schema import read_log, validate
from evalcards.semantics import timestamp
from evalcards.signals import rollup
from evalcards.store import Store


def stored(*records):
    store = Store(None)
    store.add([read_log(r) for r in records])
    store.signals()
    return store


def test_a_percent_under_proportion_bounds_is_flagged_and_never_rescaled(record):
    log = record(73.4, metric={"min_score": 0.0, "max_score": 1.0, "score_type": "continuous"})
    issues = validate(log)
    assert [(i.level, i.message) for i in issues] == [("warning", "73.4: percent under proportion bounds")]
    store = stored(log)
    assert store.fetch("SELECT score, flags FROM results") == [(73.4, "73.4: percent under proportion bounds")]
    assert validate(log, semantic=False) == []


def test_other_scores_outside_their_bounds_are_flagged_too(record):
    for score, metric in (
        (11.0, {"min_score": 0, "max_score": 10}),
        (120.0, {"metric_unit": "percent"}),
        (-0.1, {"metric_unit": "proportion"}),
    ):
        assert [i.level for i in validate(record(score, metric=metric))] == ["warning"]
    assert validate(record(5.0, metric={"min_score": 10, "max_score": 0}))[0].message.startswith("min_score 10 over")


def test_unbounded_ends_are_accepted_and_fall_back(record):
    log = record(1234.5, metric={"min_score": "-Infinity", "max_score": "Infinity", "score_type": "continuous"})
    assert validate(log) == []
    assert stored(log).fetch("SELECT tau, basis FROM results") == [(0.05, "fallback_default")]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ('{"a": 1,\n "b": NaN}', 2, 7, "bare NaN"),
        ('{"a": [1,\n\n  -Infinity]}', 3, 3, "bare -Infinity"),
        ('{"a": "NaN",\n "b": Infinity}', 2, 7, "bare Infinity"),
        ('{"a": {"b": 1},\n "c": {"b": 1, "b": 2}}', 2, 16, 'key "b" occurs twice'),
        ('{"a": "x \\"a\\": ", "a": 1}', 1, 20, 'key "a" occurs twice'),
        ('{"k": 1, "\\u006b": 2}', 1, 10, "occurs twice"),
        ('{"a": 1,}', 1, 9, "not JSON"),
        ('{"a": 1', 1, 8, "not JSON"),
    ],
)
def test_faults_of_the_text_are_told_with_line_and_column(tmp_path, text, line, column, says):
    with pytest.raises(SchemaError, match="says" if says is None else None) as caught:
        strict_json.loads(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert says in str(caught.value)
    path = tmp_path / "bad.json"
    path.write_text(text)
    found = eee(path)
    assert found.logs == []
    assert found.failures[0].where == f"line {line}, column {column}"


def test_bytes_that_are_not_utf8_are_placed():
    with pytest.raises(SchemaError, match="not UTF-8") as caught:
        strict_json.loads(b'{"a":\n "\xff"}')
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert strict_json.loads(b"\xef\xbb\xbf{}") == {}


def test_details_that_are_no_strings_become_json_with_a_warning(record):
    log = record(0.5)
    log["model_info"]["additional_details"] = {"params_billions": 8.3, "tags": ["a"], "name": "kept", "none": None}
    before = json.dumps(log)
    read = read_log(log)
    assert read.document["model_info"]["additional_details"] == {
        "params_billions": "8.3", "tags": '["a"]', "name": "kept", "none": None,
    }  # fmt: skip
    assert [i.level for i in read.issues] == ["warning", "warning"]
    assert json.dumps(log) == before  # the caller's own is not touched


def test_an_unknown_version_is_read_as_the_known_one_or_refused(record):
    newer = record(schema_version="0.9.1")
    assert [i.level for i in validate(newer)] == ["notice"]
    del newer["eval_library"]
    with pytest.raises(SchemaError, match="eval_library: required"):
        read_log(newer)
    for key in (
        "schema_version",
        "evaluation_id",
        "retrieved_timestamp",
        "source_metadata",
        "model_info",
        "evaluation_results",
    ):
        lacking = {k: v for k, v in record().items() if k != key}
        with pytest.raises(SchemaError, match=key):
            read_log(lacking)
        assert validate(lacking)[0].level == "error"
    lacking = record()
    del lacking["model_info"]["additional_details"]
    assert [i.level for i in validate(lacking)] == ["error"]
    assert [i.level for i in validate({**lacking, "schema_version": "0.2.0"})] == ["notice"]
    lacking = record()
    del lacking["evaluation_results"][0]["source_data"]["source_type"]
    assert "source_type" in validate(lacking)[0].path


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("score_details.score", "0.5"), ("score_details.score", True), ("score_details.score", None),
        ("metric_config.lower_is_better", "no"), ("metric_config.min_score", "low"), ("evaluation_name", ""),
        ("source_data", None), ("generation_config.generation_args", [1]),
    ],
)  # fmt: skip
def test_a_result_of_the_wrong_kind_fails_alone(tmp_path, record, path, value):
    log = record(0.5)
    good = json.loads(json.dumps(log["evaluation_results"][0]))
    *spaces, key = path.split(".")
    place = log["evaluation_results"][0]
    for space in spaces:
        place = place[space]
    place[key] = value
    log["evaluation_results"].append(good)
    file = tmp_path / "log.json"
    file.write_text(json.dumps(log))
    found = eee(file)
    assert (found.found, found.rows, found.failed) == (2, 1, 1)
    assert path in str(found.failures[0])


def test_times_without_zone_are_utc_whatever_the_host_says(record, monkeypatch):
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        found, naive = timestamp("2025-11-24T16:00:00")
        assert (found, naive) == (datetime.datetime(2025, 11, 24, 16, tzinfo=datetime.UTC), True)
        assert timestamp("2025-11-24T16:00:00+02:00") == (
            datetime.datetime(2025, 11, 24, 14, tzinfo=datetime.UTC),
            False,
        )
        assert timestamp("1764000000")[0] == datetime.datetime(2025, 11, 24, 16, tzinfo=datetime.UTC)
        assert timestamp("soon") == timestamp(None) == (None, False)
        issues = validate(record(evaluation_timestamp="2025-11-24T16:00:00"))
        assert [(i.level, "UTC" in i.message) for i in issues] == [("notice", True)]
        assert validate(record(evaluation_timestamp="soon"))[0].level == "warning"
    finally:
        monkeypatch.undo()
        time.tzset()


HOSTILE = [
    "../../../etc/passwd",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a|b\n# c",
    "{{7*7}}",
    "'; DROP TABLE logs; --",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_everywhere(tmp_path, record, name):
    store = stored(
        record(0.5, model=f"x/{name}", name=f"B {name}", organisation=name, arguments={"prompt_template": name})
    )
    for mode in ("research", "policy"):
        page = card(store, model=f"x/{name}", mode=mode)
        assert "<script" not in page
        assert "<img" not in page
        assert "7*7" not in page or "{{7*7}}" in page
        lines = card(store, model=f"x/{name}", mode=mode, fmt="md").splitlines()
        assert not any("<script>" in line or "<img" in line for line in lines)
        assert not any(line.startswith("# c") for line in lines)
    assert json.loads(card(store, model=f"x/{name}", fmt="json"))["id"] == f"x/{name}"
    triple = store.triples()[0]
    assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789_-/@:" for c in triple.path + triple.metric)
    from evalcards.report import write_cards

    written = write_cards(store, tmp_path, [f"x/{name}"], [triple.benchmark], "research", lambda: None)
    assert {path.parent for path in written} == {tmp_path}
    assert rollup(store)["overall"]["rows"] == 1


def test_numbers_that_no_float_holds_are_kept_and_count_as_no_score(tmp_path, record):
    huge = 10**400
    log = record(huge, metric={"min_score": -huge, "max_score": huge})
    log["evaluation_results"][0]["score_details"]["uncertainty"] = {
        "standard_error": {"value": huge},
        "num_samples": huge,
    }
    assert [i.message for i in validate(log)] == ["not a finite number, counts as no score"]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(log))
    with Store(None) as store:
        assert import_files(store, [path]).rows == 1
        assert store.fetch("SELECT score, tau, standard_error, samples FROM results") == [(None, 0.05, None, None)]
        assert store.logs() == [log]
    path.write_text('{"a": ' + "9" * 5000 + "}")
    assert "too many digits" in str(eee(path).failures[0])

"""Every bad input of the specification: what is said, what is kept, and that nothing is lost or guessed."""

import datetime
import json
import os
import sys
import time
import tracemalloc
import zipfile
from random import Random

import pytest

from evalcards import importers, importing, json_stream, strict_json
from evalcards.errors import InputError, SchemaError
from evalcards.importers import Options, eee, inspect
from evalcards.importers.eee import eee_parts
from evalcards.importing import import_files
from evalcards.render import card
from evalcards.samples import MAKERS, ZSTANDARD, inspect_log_file
from evalcards.schema import read_log, validate
from evalcards.semantics import timestamp
from evalcards.signals import rollup
from evalcards.store import Store
from evalcards.views import row_view

eee_module = sys.modules["evalcards.importers.eee"]  # the package has a function of that name


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


def test_a_zip_bomb_stops_at_the_cap(tmp_path):
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b'{"eval": "' + b"x" * 30_000_000 + b'"}')
    assert path.stat().st_size < 200_000
    found = inspect(path, Options(max_bytes=1_000_000))
    assert "over the cap of 1,000,000" in str(found.failures[0])


def test_a_zstandard_bomb_is_unpacked_a_little_at_a_time(tmp_path):
    # Zstandard gives all that a piece of input stands for at once: 128 MB here, packed into some kilobytes.
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", ZSTANDARD) as archive:
        archive.writestr("header.json", b" " * 2**27)
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    try:
        found = inspect(path, Options(max_bytes=1_000_000))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "over the cap of 1,000,000" in str(found.failures[0])
    assert peak < 2**26


def test_a_bomb_among_the_samples_does_not_cost_the_scores(tmp_path):
    path, _, _ = inspect_log_file(tmp_path)
    with zipfile.ZipFile(path, "a", ZSTANDARD) as archive:
        archive.writestr("samples/s0_epoch_1.json", b'"' + b"x" * 3_000_000 + b'"')
    found = inspect(path, Options(max_bytes=1_000_000))
    assert found.rows == 1
    assert any("over the cap" in notice for notice in found.notices)


def test_two_gigabytes_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.write(b'{"schema_version": "0.3.0", "evaluation_results": [')
        file.seek(2 * 2**30)
        file.write(b"]}")
    begin = time.perf_counter()
    with Store(None) as store:
        report = import_files(store, [path])
    assert "over the cap" in str(report.failures[0])
    assert time.perf_counter() - begin < 10
    os.truncate(path, 0)


def test_a_log_larger_than_the_cap_is_streamed_past_its_samples(tmp_path):
    path, _, _ = inspect_log_file(tmp_path, name="log.json")
    document = json.loads(path.read_text())
    document["samples"] = [
        {"id": i, "input": 'tricky "}]\\' * 50, "messages": [{"a": [1, {"b": "]"}]}]} for i in range(1200)
    ]
    path.write_text(json.dumps({"samples": document.pop("samples"), **document}))
    assert path.stat().st_size > 500_000
    found = inspect(path, Options(max_bytes=50_000))
    assert found.rows == 1
    with pytest.raises(SchemaError, match="over the cap"):
        json_stream.stream_members(path, {"samples"}, max_bytes=50_000)


def many_records(folder, record, n=60):
    path = folder / "many.json"
    path.write_text(json.dumps([record(identity=f"r{i}") for i in range(n)]))
    return path


def test_an_array_of_records_over_the_cap_is_read_record_by_record(tmp_path, record, monkeypatch):
    path = many_records(tmp_path, record)
    options = Options(max_bytes=2000)
    assert path.stat().st_size > 10 * options.max_bytes
    monkeypatch.setattr(eee_module, "_PART", 5000)
    parts = list(eee_parts(path, options))
    assert len(parts) > 5
    assert sum(part.rows for part in parts) == 60
    with Store(None) as store:
        report = import_files(store, [path], options)
        assert (report.files, report.found, report.rows, report.failures) == (1, 60, 60, ())
        assert import_files(store, [path], options).skipped == 1
    found = eee(path, Options(max_bytes=300))  # not even one record fits
    assert (found.rows, len(found.failures)) == (0, 1)
    assert "over the cap" in str(found.failures[0])
    path.write_text(path.read_text()[:-1])
    found = eee(path, options)
    assert (found.rows, len(found.failures)) == (59, 1)  # cut short: what came before is kept, and it is said
    assert "cut short" in str(found.failures[0])


def test_a_large_file_is_stored_part_by_part(tmp_path, record, monkeypatch):
    path = many_records(tmp_path, record)
    monkeypatch.setattr(eee_module, "_WHOLE", 1000)
    monkeypatch.setattr(eee_module, "_PART", 3000)
    monkeypatch.setattr(importing, "_MOST_ROWS", 10)
    with Store(None) as store:
        sizes = []
        add = store.add
        monkeypatch.setattr(store, "add", lambda logs, **more: sizes.append(len(logs)) or add(logs, **more))
        report = import_files(store, [path])
        assert max(sizes) < 25 < sum(sizes) == report.rows == 60
        assert store.fetch("SELECT logs, rows, failed FROM ledger") == [(60, 60, 0)]


def test_a_line_over_the_cap_costs_only_itself(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": "' + "x" * 500 + '"}\n\n{"a": NaN}\n{"a": 2}')
    found = list(json_stream.lines(path, max_bytes=100))
    assert [number for number, _, _ in found] == [1, 2, 4, 5]
    assert [value for _, value, _ in found if isinstance(value, dict)] == [{"a": 1}, {"a": 2}]
    assert "over the cap" in str(found[1][1])
    assert "bare NaN" in str(found[2][1])


@pytest.mark.parametrize("chunk", [1, 3, 64, 1 << 16])
def test_streaming_gives_what_parsing_gives(tmp_path, chunk):
    document = {
        "a": {"x": [1, "}", {"y": '\\"'}]},
        'k"ey': "é\\u0041",
        "b": "tail\\",
        "c": [],
        "d": -1.5e3,
        "e": None,
        "f": {},
    }
    path = tmp_path / "x.json"
    path.write_text(" \n" + json.dumps(document, indent=2), encoding="utf-8")
    assert json_stream.stream_members(path, set(document), max_bytes=10_000, chunk=chunk) == document
    assert json_stream.stream_members(path, {"d"}, max_bytes=10, chunk=chunk) == {"d": -1500}
    for items in ([], [1], list(document.values()), [[], [[]], {}, "]", ",", '"']):
        path.write_text(f" {json.dumps(items, indent=1)}\n", encoding="utf-8")
        found = list(json_stream.stream_items(path, max_bytes=10_000, chunk=chunk))
        assert [(number, item) for number, item, _ in found] == list(enumerate(items))


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1', "12", '{"a": {"b": 1}'])
def test_what_cannot_be_streamed_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SchemaError):
        json_stream.stream_members(path, {"a"}, max_bytes=100)


@pytest.mark.parametrize("text", ["", "{}", "[1", "[1,]", "[,1]", "[1,,2]", "[1 2]", "[1] 2", "[1]]", "[nul]"])
def test_no_array_is_read_from_what_is_none(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SchemaError):
        list(json_stream.stream_items(path, max_bytes=100))


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


def test_half_a_character_is_refused(tmp_path, record):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(record(arguments={"prompt_template": "\ud83d"})))
    assert "lone surrogate \\ud83d" in str(eee(path).failures[0])
    path.write_text(json.dumps(record(arguments={"prompt_template": "\U0001f600"})))
    assert eee(path).rows == 1


ODD = [None, True, 0, -1, 10**400, 1e308, "", "x", "NaN", [], [1], ["a"], {}, {"a": 1}, [{}], "<b>", "a\x00"]


def places(value, path=()):
    """Every place in a JSON value but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("name", ["eee", "lm_eval", "helm", "inspect"])
def test_whatever_stands_in_a_files_places_nothing_breaks_and_nothing_is_lost(tmp_path, name):
    random = Random(name)
    for attempt in range(40):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        MAKERS[name](folder, **({"name": "log.json"} if name == "inspect" else {}))
        target = random.choice(sorted(folder.rglob("*.json")))
        document = json.loads(target.read_text())
        for _ in range(random.choice([1, 2, 4])):
            *spaces, key = random.choice(list(places(document)))
            holder = document
            for space in spaces:
                holder = holder[space]
            holder[key] = random.choice(ODD)
        target.write_text(json.dumps(document))
    with Store(None) as store:
        report = import_files(store, [tmp_path])
        assert report.files == 40
        assert report.found == report.rows + report.failed
        assert report.rows > 5
        assert rollup(store)["overall"]["rows"] == sum(t.rows for t in store.triples()) > 0
        for model in {triple.model for triple in store.triples()}:
            card(store, model)


def test_samples_of_any_form_are_shown_as_text(record):
    odd = [{"input": "a text"}, {"input": {"raw": [1, "b"], "reference": 3}, "output": {"raw": "y"}}, {"output": [1]}]
    samples = [
        {"evaluation_name": "MMLU", "sample_id": i, "evaluation": ["no", {"score": "1"}, {"score": True}][i], **part}
        for i, part in enumerate(odd)
    ]
    with Store(None) as store:
        store.add([read_log(record())], instances={"r1": samples})
        store.add([read_log(record())], instances={"r1": samples})  # again: nothing is added
        view = row_view(store, store.fetch("SELECT row_id FROM results")[0][0])
    assert [(s["input"], s["reference"], s["output"], s["score"]) for s in view["samples"]] == [
        ("a text", "", "", None), ("1 b", "3", "y", None), ("", "", "1", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.eval", b"not a zip", "not a zip"),
        ("x.json", b'{"version": 2, "status": "started", "eval": {"task": "t"}, "results": null}', "no scores"),
        ("README.md", b"# no front matter", "no YAML front matter"),
        ("README.md", b"---\na: [1\n---\n", "not YAML"),
        ("README.md", b"---\nlicense: mit\n---\n", "reports no results"),
        ("results_1.json", b'{"results": {"t": 3}}', "not a table"),
        ("logs.parquet", b"PAR1", "not Parquet"),
    ],
)
def test_a_damaged_file_is_one_line_in_the_report(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with Store(None) as store:
        report = import_files(store, [tmp_path / name])
        assert report.rows == 0
        assert says in str(report.failures[0])
        assert "\n" not in str(report.failures[0])


def test_csv_mappings_are_checked_before_anything_is_read(tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("Model,S\nx,1\n")
    for mapping, says in (
        ({"scores": []}, "needs 'model'"),
        ({"model": "Modell", "score": "S"}, "no column 'Modell'"),
        ({"model": "Model", "score": "S", "colour": "S"}, "unknown colour"),
    ):
        with pytest.raises(InputError, match=says):
            importers.csv(path, mapping)
    with pytest.raises(InputError, match="needs --mapping"):
        importers.read_any(path)

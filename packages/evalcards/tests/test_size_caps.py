"""Bombs, gigabytes and streams: what is over the cap is refused, what is large is read piece by piece."""

import json
import os
import sys
import time
import tracemalloc
import zipfile

import pytest

from evalcards import importing, json_stream
from evalcards.errors import SchemaError
from evalcards.importers import Options, eee, inspect
from evalcards.importers.eee import eee_parts
from evalcards.importing import import_files
from evalcards.samples import ZSTANDARD, inspect_log_file
from evalcards.store import Store

eee_module = sys.modules["evalcards.importers.eee"]  # the package has a function of that name


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


def test_an_archive_that_owns_to_a_bomb_is_not_unpacked(tmp_path):
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b'{"eval": "' + b"0" * 30_000_000 + b'"}')
    tracemalloc.start()
    (failure,) = inspect(path, Options(max_bytes=20_000_000)).failures
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "30,000,012 bytes, over the cap of 20,000,000" in failure.reason
    assert peak < 2_000_000


def test_one_record_over_the_cap_is_refused_and_says_so(tmp_path, record):
    (tmp_path / "a.json").write_text(json.dumps(record()))
    (failure,) = eee(tmp_path / "a.json", Options(max_bytes=100)).failures
    assert "one record of" in failure.reason
    assert "over the cap of 100" in failure.reason
    assert "--max-bytes" in failure.reason


def test_small_records_of_a_large_file_are_stored_by_the_thousand(tmp_path, record, monkeypatch):
    (tmp_path / "a.json").write_text(json.dumps([record(identity=f"r{n}") for n in range(50)]))
    monkeypatch.setattr(eee_module, "_PART", 1)
    monkeypatch.setattr(importing, "_MOST_LOGS", 9)
    held = []
    add = Store.add
    monkeypatch.setattr(Store, "add", lambda store, logs, **more: held.append(len(logs)) or add(store, logs, **more))
    done = import_files(Store(None), [tmp_path / "a.json"])
    assert (done.rows, done.logs) == (50, 50)
    assert held == [10, 10, 10, 10, 10, 0]

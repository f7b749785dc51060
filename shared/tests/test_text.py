"""JSON is strict and readable, JSON Lines survive a kill, and mistakes are named with their place."""

import dataclasses
import datetime
import enum
import json
import pathlib
import random
import subprocess
import sys
import time
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers_shared import InputError
from papers_shared.artifacts import (
    append_jsonl,
    dumps,
    jsonable,
    read_json,
    read_jsonl,
    write_csv,
    write_json,
    write_jsonl,
    write_text,
)

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


class Point(NamedTuple):
    x: float
    y: float


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Config:
    lr: float
    where: pathlib.Path


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value):
    text = dumps(value)
    text.encode()
    assert json.loads(text) == value


@given(PLAIN)
def test_the_layout_says_the_same_as_the_standard_library(value):
    assert json.loads(dumps(value, sort_keys=True)) == json.loads(json.dumps(value, sort_keys=True))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        ([np.inf, -np.inf, 1.0], [None, None, 1.0]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([np.nan, 1]), [None, 1]),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Config(0.1, pathlib.Path("a/b")), {"lr": 0.1, "where": "a/b"}),
        (Colour.RED, "red"),
        ({3, 1, 2}, [1, 2, 3]),
        ((1, "a"), [1, "a"]),
        ({2: "a", None: "b"}, {"2": "a", "null": "b"}),
        ({np.int64(5): 1}, {"5": 1}),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_values_of_other_types_become_json(value, expected):
    assert jsonable(value) == expected
    assert json.loads(dumps(value), parse_constant=pytest.fail) == expected


@pytest.mark.parametrize("value", [object(), b"bytes", {(1, 2): 3}, {"a": [object()]}])
def test_what_json_cannot_hold_is_a_type_error(value):
    with pytest.raises(TypeError):
        dumps(value)


def test_two_keys_that_become_one_are_not_lost_in_silence():
    with pytest.raises(ValueError, match="same JSON string"):
        dumps({1: "a", "1": "b"})


def test_files_end_in_a_newline_and_lists_of_numbers_stay_on_one_line(tmp_path):
    path = write_json(tmp_path / "a.json", {"b": [1, 2, 3], "a": {"c": [[1], [2]]}, "e": {}, "f": []})
    assert path.read_text() == (
        '{\n  "b": [1, 2, 3],\n  "a": {\n    "c": [\n      [1],\n      [2]\n    ]\n  },\n  "e": {},\n  "f": []\n}\n'
    )
    assert write_json(path, {"b": 1, "a": 2}, sort_keys=True).read_text() == '{\n  "a": 2,\n  "b": 1\n}\n'


def test_half_a_surrogate_pair_is_kept_as_an_escape(tmp_path):
    path = write_json(tmp_path / "a.json", {"text": "x\ud83d", "other": "é"})
    assert read_json(path) == {"text": "x\ud83d", "other": "é"}
    assert "é" in path.read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot read"),
        ("[" * 100_000, r"a\.json: JSON nested too deeply"),
        ("{", r"a\.json:1:2: not JSON"),
        ('{\n "a": tru\n}', r"a\.json:2:7: not JSON"),
    ],
)
def test_wrong_json_is_named_with_line_and_column(tmp_path, text, says):
    if text is not None:
        (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=says):
        read_json(tmp_path / "a.json")


def test_a_binary_file_is_not_text(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_json(tmp_path / "a.json")


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf[1]")
    assert read_json(tmp_path / "a.json") == [1]


def test_jsonl_round_trip_with_line_breaks_inside_strings(tmp_path):
    rows = [{"a": "x\ny\u2028z"}, [1, 2], None, "é"]
    assert read_jsonl(write_jsonl(tmp_path / "a.jsonl", rows)) == rows


def test_a_broken_line_is_named_but_a_torn_last_one_is_left_out(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 2}\n{"a": ')
    assert read_jsonl(path) == [{"a": 1}, {"a": 2}]
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(InputError, match=r"a\.jsonl:2: not JSON"):
        read_jsonl(path)


@pytest.mark.parametrize("cut", range(1, 30))
def test_appending_after_any_cut_loses_at_most_the_torn_row(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    rows = [{"step": number, "é": "x" * number} for number in range(3)]
    for row in rows:
        append_jsonl(path, row)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    append_jsonl(path, "next")
    left = read_jsonl(path)
    ends = [position for position, byte in enumerate(whole) if byte == ord("\n")]
    complete = sum(end <= len(whole) - cut for end in ends)  # a row that lacks only its newline is whole
    assert left == [*rows[:complete], "next"]


def test_a_torn_row_longer_than_a_block_is_cut_off(tmp_path):
    path = tmp_path / "log.jsonl"
    append_jsonl(path, "first")
    with path.open("a") as file:
        file.write('"' + "x" * 200_000)
    append_jsonl(path, "second")
    assert read_jsonl(path) == ["first", "second"]


def test_kill_9_while_appending_loses_at_most_the_row_in_hand(tmp_path):
    code = (
        "import sys; from papers_shared.artifacts import append_jsonl\n"
        "print(flush=True)\n"
        "for n in range(10**9): append_jsonl(sys.argv[1], {'n': n, 'pad': 'x' * 5000})"
    )
    moments = random.Random(1)
    for number in range(5):
        path = tmp_path / f"{number}.jsonl"
        process = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(moments.uniform(0.01, 0.1))
        process.kill()
        process.wait()
        process.stdout.close()
        rows = read_jsonl(path) if path.exists() else []
        assert [row["n"] for row in rows] == list(range(len(rows)))


def test_csv_takes_mappings_and_sequences(tmp_path):
    path = write_csv(tmp_path / "a.csv", [{"a": 1, "b": 'x, "y"'}, {"b": None, "c": 0.1}])
    assert path.read_text() == 'a,b,c\n1,"x, ""y""",\n,,0.1\n'
    assert write_csv(path, [(1, 2)], ["x", "y"]).read_text() == "x,y\n1,2\n"
    assert write_csv(path, [], ["x"]).read_text() == "x\n"


@pytest.mark.parametrize(
    ("rows", "columns", "says"),
    [
        ([(1, 2)], None, "need `columns`"),
        ([(1, 2)], ["a"], "row 1 has 2 cells for 1 columns"),
        ([{"a": 1}, {"b": 1}], ["a"], r"row 2 has keys that are not columns: \['b'\]"),
    ],
)
def test_csv_rows_that_do_not_fit_are_refused(tmp_path, rows, columns, says):
    with pytest.raises(ValueError, match=says):
        write_csv(tmp_path / "a.csv", rows, columns)
    assert not (tmp_path / "a.csv").exists()


def test_a_generator_that_fails_half_way_leaves_no_file(tmp_path):
    def rows():
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_jsonl(tmp_path / "a.jsonl", rows())
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_refused_before_rows_are_made(tmp_path):
    path = write_text(tmp_path / "a.jsonl", "")
    with pytest.raises(InputError, match="--force"):
        write_jsonl(path, (pytest.fail("made a row") for _ in range(1)), force=False)

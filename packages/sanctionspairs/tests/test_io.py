"""The public file in its four container forms, and everything that can be wrong with it."""

import gzip
import json

import pytest
from sanctionspairs_records import make, make_pair

from sanctionspairs.errors import PairFormatError, SanctionsPairsError, UnknownSchemaError
from sanctionspairs.io import ReadStats, read_entities, read_pairs, write_pairs

PAIRS = [
    {
        "left": {"id": f"l{i}", "caption": "Иван", "schema": "Person", "datasets": ["us_ofac_sdn"], "referents": [],
                 "properties": {"name": ["Иван Петров"], "birthDate": ["1970"]}},
        "right": {"id": f"r{i}", "schema": "Person", "datasets": [], "properties": {"name": ["Ivan Petrov"]}},
        "judgement": judgement,
    }
    for i, judgement in enumerate(("positive", "negative", "unsure", "no_judgement"))
]  # fmt: skip
LINES = "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in PAIRS).encode()
FORMS = {
    "pairs.json": LINES,
    "pairs-20240101.json.gz": gzip.compress(LINES),
    "array.json": json.dumps(PAIRS, indent=1).encode(),
    "object.json": json.dumps({"metadata": {"count": 4}, "pairs": PAIRS}).encode(),
    "pretty.json": json.dumps({"metadata": {"count": 4}, "pairs": PAIRS}, indent=2).encode(),
    "object.json.gz": gzip.compress(json.dumps({"pairs": PAIRS}).encode()),
    "bom.json": b"\xef\xbb\xbf" + LINES,
    "blank.json": b"\n\n" + LINES.replace(b"\n", b"\n\n"),
    "noend.json": LINES.rstrip(b"\n"),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_container_form_reads_the_same(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FORMS[name])
    stats = ReadStats()
    pairs = list(read_pairs(path, stats=stats))
    assert [pair.judgement for pair in pairs] == ["positive", "negative", "unsure", "no_judgement"]
    assert [pair.scored for pair in pairs] == [True, True, False, False]
    assert pairs[0].left.get("name") == ["Иван Петров"]
    assert stats.judgements == {"positive": 1, "negative": 1, "unsure": 1, "no_judgement": 1}
    assert stats.read == 4


def test_lines_are_not_held_in_memory(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_bytes(LINES + b"broken")
    stream = read_pairs(path)
    assert next(stream).left.id == "l0"


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_what_is_written_is_read_back(tmp_path, name):
    pairs = [make_pair({"name": "Ivan"}, {"name": ["Иван", "Vanya"]}), make_pair({}, {}, "negative")]
    write_pairs(tmp_path / name, pairs)
    first = (tmp_path / name).read_bytes()
    again = list(read_pairs(tmp_path / name))
    assert [pair.to_dict() for pair in again] == [pair.to_dict() for pair in pairs]
    write_pairs(tmp_path / name, again)
    assert (tmp_path / name).read_bytes() == first


def test_a_broken_line_is_named_and_can_be_skipped(tmp_path):
    path = tmp_path / "pairs.json"
    lines = LINES.splitlines()
    path.write_bytes(b"\n".join([lines[0], b'{"left": {', lines[1], b"[]", b'{"left": 1, "right": 2}']))
    with pytest.raises(PairFormatError, match="line 2: not JSON") as caught:
        list(read_pairs(path))
    assert caught.value.line == 2
    stats = ReadStats()
    assert len(list(read_pairs(path, skip_bad=True, stats=stats))) == 2
    assert [line for line, _ in stats.skipped] == [2, 4, 5]
    assert stats.too_many_bad


def test_a_broken_first_line_is_line_1(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_bytes(b'{"left": {"id"\n' + LINES)
    with pytest.raises(PairFormatError, match="line 1"):
        list(read_pairs(path))
    assert len(list(read_pairs(path, skip_bad=True))) == 4


def test_one_bad_line_in_a_thousand_is_not_too_many(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_bytes(LINES * 250 + b"broken\n")
    stats = ReadStats()
    assert len(list(read_pairs(path, skip_bad=True, stats=stats))) == 1000
    assert len(stats.skipped) == 1
    assert not stats.too_many_bad


def test_a_cut_gzip_names_the_byte(tmp_path):
    path = tmp_path / "pairs.json.gz"
    path.write_bytes(gzip.compress(LINES * 500)[:400])
    with pytest.raises(PairFormatError, match="byte 400"):
        list(read_pairs(path))


def test_an_unknown_schema_is_named_with_its_entity(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({**PAIRS[0], "left": {**PAIRS[0]["left"], "schema": "Foo"}}))
    with pytest.raises(UnknownSchemaError, match=r"'l0'.*'Foo'"):
        list(read_pairs(path))


@pytest.mark.parametrize(
    ("given", "read", "coerced"),
    [
        ({"name": "Ivan Petrov"}, {"name": ["Ivan Petrov"]}, 1),
        ({"name": ["Ivan", None]}, {"name": ["Ivan"]}, 1),
        ({"name": None}, {}, 1),
        ({"name": ["A"], "birthDate": 1970}, {"name": ["A"], "birthDate": ["1970"]}, 2),
        ({"name": ["A"], "birthDate": [1970.0]}, {"name": ["A"], "birthDate": ["1970"]}, 1),
        ({"name": ["A"], "parent": [{"id": "p1", "schema": "Company"}]}, {"name": ["A"], "parent": ["p1"]}, 1),
        (None, {}, 0),
    ],
)
def test_values_that_are_no_lists_of_text_are_coerced_and_counted(tmp_path, given, read, coerced):
    path = tmp_path / "entities.json"
    path.write_text(json.dumps({"id": "x", "schema": "Company", "properties": given}))
    stats = ReadStats()
    found = next(iter(read_entities(path, stats=stats))).properties
    assert found == {name: values for name, values in read.items() if name in found}
    assert found.get("name") == read.get("name")
    assert stats.coerced == coerced


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ({"left": {"id": "a", "schema": "Person"}, "right": {"schema": "Person"}}, "no id"),
        ({"left": {"id": "a", "schema": "Person"}, "right": {"id": "b"}}, "'b' has no schema"),
        ({"left": {"id": "a", "schema": "Person", "properties": []}, "right": {}}, "list, not an object"),
        ({"left": {"id": "a", "schema": "Person", "properties": {"name": [[1]]}}, "right": {}}, "'name' holds list"),
        ({**PAIRS[0], "judgement": "maybe"}, "'maybe' is none of"),
    ],
)
def test_what_is_no_pair_says_why(tmp_path, pair, says):
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(pair))
    with pytest.raises(PairFormatError, match=says):
        list(read_pairs(path))


def test_entities_come_in_the_same_forms(tmp_path):
    entities = [make(f"e{i}", "Vessel", name="Star", imoNumber="IMO9074729").to_dict() for i in range(3)]
    for name, data in (("a.json", json.dumps(entities)), ("b.json", json.dumps({"entities": entities}))):
        (tmp_path / name).write_text(data)
        assert [entity.id for entity in read_entities(tmp_path / name)] == ["e0", "e1", "e2"]


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(SanctionsPairsError, match="no such file"):
        list(read_pairs(tmp_path / "none.json"))

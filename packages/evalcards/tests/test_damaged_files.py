"""Damaged files, and files that hold anything anywhere: one line in the failure report, nothing lost."""

import json
from random import Random

import pytest

from evalcards import importers
from evalcards.errors import InputError
from evalcards.importers import eee
from evalcards.importing import import_files
from evalcards.render import card
from evalcards.samples import MAKERS
from evalcards.schema import read_log, validate
from evalcards.signals import rollup
from evalcards.store import Store
from evalcards.views import row_view


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


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"", "the file is empty"),
        ("a.json", b" \r\n\xef\xbb\xbf", None),
        ("a.json", '{"a": 1}'.encode("utf-16"), "not UTF-8 text; save it as UTF-8"),
        ("a.json", b"\0\1\2", "not UTF-8 text; save it as UTF-8"),
        ("a.json", b"5", "none of the formats eee, lm_eval, helm, inspect, hf_model_card, csv; name it with --format"),
        ("a.csv", b"model,score\n", "a CSV needs --mapping FILE; it says which columns are models and scores"),
    ],
)
def test_a_file_that_cannot_be_read_says_why_and_its_name_once(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    (failure,) = import_files(Store(None), [path]).failures
    assert str(failure).count(str(path)) == 1
    assert reason is None or failure.reason == reason


@pytest.mark.parametrize(("score", "said"), [(None, "null"), (True, "true"), ("0.5", '"0.5"')])
def test_a_score_of_the_wrong_kind_is_told_once_with_what_was_there(record, score, said):
    (issue,) = validate(record(score))
    assert (issue.path, issue.message) == ("evaluation_results[0].score_details.score", f"want a number, not {said}")


def test_a_negative_number_of_samples_is_told(record):
    document = record()
    document["evaluation_results"][0]["score_details"]["uncertainty"] = {"num_samples": -5}
    assert [issue.message for issue in validate(document)] == ["number of samples -5 is negative"]

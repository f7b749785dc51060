"""The optional comparison with every-eval-ever, which needs Python 3.12: schema verdicts and converted scores."""

import json

import pytest

from evalcards.importers import helm, lm_eval
from evalcards.samples import eee_file, helm_run, lm_eval_file
from evalcards.schema import validate

every_eval_ever = pytest.importorskip("every_eval_ever")
jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def official():
    from importlib.resources import files

    text = files("every_eval_ever").joinpath("schemas/eval.schema.json").read_text()
    return jsonschema.Draft7Validator(json.loads(text))


def test_our_records_are_valid_in_the_official_schema(tmp_path, official):
    for made in (lm_eval(lm_eval_file(tmp_path)[0]), helm(helm_run(tmp_path)[0])):
        for log in made.logs:
            document = json.loads(json.dumps(log.document))
            errors = [e.message for e in official.iter_errors(document)]
            # Our importers keep eval_plan and eval_limits where the signal looks for them.
            assert errors == []


def test_verdicts_agree_on_records_with_one_fault(tmp_path, official):
    good = json.loads(eee_file(tmp_path)[0].read_text())
    good["evaluation_results"] = good["evaluation_results"][:1]
    assert official.is_valid(good)
    assert not [i for i in validate(good) if i.level == "error"]
    for place, value in (
        (("schema_version",), None),
        (("source_metadata", "source_type"), "x"),
        (("model_info", "id"), 3),
        (("evaluation_results", 0, "score_details", "score"), "1"),
        (("evaluation_results", 0, "metric_config", "lower_is_better"), "no"),
    ):
        bad = json.loads(json.dumps(good))
        holder = bad
        for key in place[:-1]:
            holder = holder[key]
        holder[place[-1]] = value
        assert not official.is_valid(bad)
        assert [i for i in validate(bad) if i.level == "error"], place

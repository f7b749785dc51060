"""The optional comparison with every-eval-ever, which needs Python 3.12: schema verdicts and converted scores."""

import json
import subprocess
import sys
from importlib.resources import files

import pytest

from evalcards.importers import helm, lm_eval
from evalcards.samples import eee_file, helm_run, lm_eval_file
from evalcards.schema import validate

every_eval_ever = pytest.importorskip("every_eval_ever")
jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def official():
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


def converted(results, out):
    """Let the official converter read lm-eval results; return its (exit status, scores)."""
    command = [sys.executable, "-m", "every_eval_ever", "convert", "lm_eval", "--log_path", str(results)]
    command += ["--output_dir", str(out), "--source_organization_name", "Us", "--evaluator_relationship", "other"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = [json.loads(path.read_text()) for path in out.rglob("*.json")]
    return done.returncode, sorted(r["score_details"]["score"] for log in logs for r in log["evaluation_results"])


def test_the_official_converter_finds_the_same_scores(tmp_path):
    from evalcards.data import real_rows

    ours = next(log for log in real_rows().logs if len(log.evaluation_results) == 14)
    scores = sorted(r.score_details.score for r in ours.evaluation_results)
    folder = files("evalcards").joinpath("assets/real/zero-shot")
    source = next(path for path in folder.iterdir() if path.name.startswith("results"))
    document = json.loads(source.read_text())
    document["model_name"] = "HuggingFaceTB/SmolLM2-135M-Instruct"
    document["config"]["model_args"] = "pretrained=HuggingFaceTB/SmolLM2-135M-Instruct"
    path = tmp_path / source.name
    path.write_text(json.dumps(document))
    assert converted(path, tmp_path / "out") == (0, scores)
    # Ours reads the file as the harness wrote it, with a local path for a model; theirs wants a developer in it.
    assert converted(source, tmp_path / "local")[0] != 0

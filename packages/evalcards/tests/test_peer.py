"""The optional comparison with every-eval-ever (Python 3.12): schema verdicts, converted scores and settings."""

import json
import subprocess
import sys
from importlib.resources import files

import pytest

from evalcards.importers import eee, helm, inspect, lm_eval, read_any
from evalcards.samples import MAKERS, eee_file, helm_run
from evalcards.schema import validate
from evalcards.store import Store

every_eval_ever = pytest.importorskip("every_eval_ever")
jsonschema = pytest.importorskip("jsonschema")


@pytest.fixture(scope="module")
def official():
    text = files("every_eval_ever").joinpath("schemas/eval.schema.json").read_text()
    return jsonschema.Draft7Validator(json.loads(text))


def test_our_records_are_valid_in_the_official_schema(tmp_path, official):
    made = [MAKERS[name](tmp_path)[0] for name in ("lm_eval", "helm", "inspect", "hf_model_card", "csv")]
    mapping = tmp_path / "board.yaml"
    for found in (read_any(path, mapping=mapping)[1] for path in made):
        assert found.logs
        for log in found.logs:
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


def converted(kind, source, out):
    """Let an official converter read a harness's files; return its exit status and the results it wrote."""
    command = [sys.executable, "-m", "every_eval_ever", "convert", kind, "--log_path", str(source)]
    command += ["--output_dir", str(out), "--source_organization_name", "Us", "--evaluator_relationship", "other"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = [json.loads(path.read_text()) for path in out.rglob("*.json") if "adapter_reports" not in path.parts]
    return done.returncode, [result for log in logs for result in log["evaluation_results"]]


def told(results, *settings):
    """What of results both sides write: metric, score, items, and some settings."""
    return sorted(
        (
            result["metric_config"]["metric_name"].rpartition("/")[2],
            result["score_details"]["score"],
            (result["score_details"].get("uncertainty") or {}).get("num_samples"),
            *((result["generation_config"]["generation_args"].get(key)) for key in settings),
        )
        for result in results
    )


def ours(found):
    return [result for log in found.logs for result in log.document["evaluation_results"]]


def real(name):
    return sorted(path for path in files("evalcards").joinpath("assets/real").iterdir() if path.name.endswith(name))


def test_the_official_converter_finds_the_same_scores_in_lm_evals_files(tmp_path):
    (folder,) = real("zero-shot")
    source = next(path for path in folder.iterdir() if path.name.startswith("results"))
    document = json.loads(source.read_text())
    document["model_name"] = "HuggingFaceTB/SmolLM2-135M-Instruct"
    document["config"]["model_args"] = "pretrained=HuggingFaceTB/SmolLM2-135M-Instruct"
    path = tmp_path / source.name
    path.write_text(json.dumps(document))
    status, theirs = converted("lm_eval", path, tmp_path / "out")
    assert status == 0
    mine = [result["score_details"]["score"] for result in ours(lm_eval(path))]
    assert sorted(mine) == sorted(result["score_details"]["score"] for result in theirs)
    # Ours reads the file as the harness wrote it, with a local path for a model; theirs wants a developer in it.
    assert len(ours(lm_eval(source))) == len(mine)
    assert converted("lm_eval", source, tmp_path / "local")[0] != 0


@pytest.mark.parametrize("source", real(".eval"), ids=lambda path: path.name[26:52])
def test_the_official_converter_finds_the_same_scores_and_settings_in_inspects_logs(tmp_path, source):
    pytest.importorskip("inspect_ai")
    status, theirs = converted("inspect", source, tmp_path)
    assert status == 0
    settings = ("temperature", "top_p", "max_tokens")
    assert told(theirs, *settings) == told(ours(inspect(source)), *settings)


def test_the_official_converter_finds_the_same_scores_and_settings_in_a_helm_run(tmp_path):
    pytest.importorskip("helm.benchmark.run_spec")
    path, _, _ = helm_run(tmp_path)
    status, theirs = converted("helm", path, tmp_path / "out")
    assert status == 0
    settings = ("temperature", "top_p", "max_tokens")
    mine = told(ours(helm(path)), *settings)
    wanted = {metric for metric, *_ in mine}
    assert [line for line in told(theirs, *settings) if line[0] in wanted] == mine


def test_records_of_the_official_converters_are_read_back(tmp_path):
    pytest.importorskip("inspect_ai")
    status, theirs = converted("inspect", real(".eval")[0], tmp_path)
    found = eee(next(path for path in tmp_path.rglob("*.json") if "adapter_reports" not in path.parts))
    assert (status, found.rows, found.failed) == (0, len(theirs), 0)
    with Store(None) as store:
        store.add(found.logs)
        # The shell of an agent that the converter writes for every run says nothing of an agent.
        assert {slots[7] for (slots,) in store.fetch("SELECT slots FROM results")} <= {"d", "u"}

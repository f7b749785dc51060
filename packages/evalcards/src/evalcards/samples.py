"""Small files in the real formats, made on the spot: what claims and tests import besides the embedded real rows.

Each maker returns how many results its files hold and how many of them cannot become rows, so that an importer's count
can be checked against one that it did not make itself.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalcards.importers import inspect_log  # noqa: F401  (lets zipfile write Zstandard before Python 3.14)

ZSTANDARD = 93
"""The compression method of current ``.eval`` archives."""


def lm_eval_file(folder: Path) -> tuple[Path, int, int]:
    """Write lm-eval results with a group placeholder, an "N/A" error and a NaN score; (file, results, bad ones)."""
    config = {
        "output_type": "generate_until",
        "num_fewshot": 5,
        "doc_to_text": "Q: {{q}}\nA:",
        "generation_kwargs": {"until": ["\n"], "temperature": 0.0, "max_gen_toks": 64},
    }
    document = {
        "results": {
            "gsm8k": {
                "alias": "gsm8k",
                "exact_match,strict-match": 0.41,
                "exact_match_stderr,strict-match": 0.013,
                "exact_match,flexible-extract": 0.44,
                "exact_match_stderr,flexible-extract": "N/A",
            },
            "mmlu_anatomy": {"alias": " - anatomy", "acc,none": 0.5, "acc_stderr,none": 0.04},
            "broken": {"alias": "broken", "acc,none": float("nan"), "f1,none": "N/A"},
            "mmlu": {" ": " ", "alias": "mmlu"},
        },
        "configs": {"gsm8k": config, "mmlu_anatomy": {"output_type": "multiple_choice", "num_fewshot": 5}},
        "versions": {"gsm8k": 3.0},
        "n-shot": {"gsm8k": 5, "mmlu_anatomy": 5},
        "higher_is_better": {"gsm8k": {"exact_match": True}, "mmlu_anatomy": {"acc": True}},
        "n-samples": {"gsm8k": {"original": 1319, "effective": 1319}},
        "config": {
            "model": "hf",
            "model_args": "pretrained=./checkpoints/run-7,dtype=float32",
            "gen_kwargs": "top_p=0.9",
        },
        "lm_eval_version": "0.4.9",
        "date": 1764000000.5,
        "model_name": "./checkpoints/run-7",
    }
    path = folder / "results_2025-11-24T16-00-00.000000.json"
    path.write_text(json.dumps(document))
    return path, 5, 2


def helm_run(folder: Path) -> tuple[Path, int, int]:
    """Write a HELM run with bookkeeping, a perturbation and a statistic without a mean."""
    run = folder / "mmlu:subject=anatomy,model=example_one"
    run.mkdir(parents=True)

    def stat(name: str, mean: float | None, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"name": {"name": name, "split": "test", **more}, "count": 1 if mean is not None else 0}
        return found | ({"sum": mean, "mean": mean} if mean is not None else {"sum": 0})

    worst = {"name": "robustness", "robustness": True, "fairness": False, "computed_on": "worst"}
    stats = [
        stat("num_references", 4.0), stat("inference_runtime", 0.8), stat("exact_match", 0.6),
        stat("quasi_exact_match", 0.62), stat("exact_match", 0.5, perturbation=worst), stat("f1_score", None),
    ]  # fmt: skip
    spec = {
        "name": "mmlu:subject=anatomy,model=example_one",
        "scenario_spec": {
            "class_name": "helm.benchmark.scenarios.mmlu_scenario.MMLUScenario",
            "args": {"subject": "anatomy"},
        },
        "adapter_spec": {
            "method": "multiple_choice_joint",
            "instructions": "Answer.",
            "input_prefix": "Question: ",
            "output_prefix": "Answer: ",
            "max_train_instances": 5,
            "temperature": 0.0,
            "max_tokens": 1,
            "model": "example/one",
            "model_deployment": "example/one",
        },
        "metric_specs": [{"class_name": "helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", "args": {}}],
        "groups": ["mmlu"],
    }
    state = {
        "adapter_spec": spec["adapter_spec"],
        "request_states": [
            {
                "instance": {"input": {"text": "?"}, "references": [{"output": {"text": "a"}, "tags": ["correct"]}],
                             "split": "test", "id": f"id{i}"},
                "reference_index": None, "request_mode": None, "train_trial_index": 0, "num_train_instances": 5,
                "output_mapping": {"A": "a"}, "prompt_truncated": False,
                "request": {"model_deployment": "example/one", "model": "example/one", "prompt": "Question: ?",
                            "temperature": 0.0, "max_tokens": 1, "top_p": 1},
                "result": {"success": True, "embedding": [], "cached": False, "request_time": 0.8,
                           "request_datetime": 1764000000 + i,
                           "completions": [{"text": " A", "logprob": -0.1, "tokens": []}]},
            }
            for i in range(3)
        ],
    }  # fmt: skip
    judged = [
        {
            "instance_id": f"id{i}",
            "train_trial_index": 0,
            "stats": [stat("num_references", 4.0), stat("exact_match", float(i % 2))],
        }
        for i in range(3)
    ]
    for name, value in (
        ("per_instance_stats", judged),
        ("run_spec", spec),
        ("stats", stats),
        ("scenario", {"name": "mmlu"}),
        ("scenario_state", state),
    ):
        (run / f"{name}.json").write_text(json.dumps(value))
    return run, 4, 1


def inspect_log_file(folder: Path, *, name: str = "log.eval") -> tuple[Path, int, int]:
    """Write an Inspect log of an agent, as ``.eval`` with Zstandard or as ``.json``."""
    header = {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": "x1",
            "run_id": "r1",
            "created": "2025-11-24T16:00:00+00:00",
            "task": "inspect_evals/gaia",
            "task_version": 0,
            "task_args": {},
            "dataset": {"name": "gaia", "samples": 10},
            "model": "example/two-20250801",
            "model_generate_config": {"temperature": 0.7, "max_tokens": 2048},
            "model_args": {},
            "config": {"epochs": 1, "message_limit": 50},
            "packages": {"inspect_ai": "0.3.150"},
            "sandbox": {"type": "docker"},
        },
        "plan": {"name": "plan", "steps": [{"solver": "basic_agent", "params": {}}], "config": {"temperature": 0.7}},
        "results": {
            "total_samples": 10,
            "completed_samples": 10,
            "scores": [
                {
                    "name": "gaia_scorer",
                    "scorer": "gaia_scorer",
                    "metrics": {
                        "accuracy": {"name": "accuracy", "value": 0.3, "params": {}},
                        "stderr": {"name": "stderr", "value": 0.15, "params": {}},
                        "mean_steps": {"name": "mean_steps", "value": float("nan"), "params": {}},
                    },
                }
            ],
        },
        "stats": {"started_at": "2025-11-24T16:00:00+00:00", "completed_at": "2025-11-24T17:00:00+00:00"},
    }
    sample = {
        "id": "s1",
        "epoch": 1,
        "input": "How many?",
        "target": "4",
        "messages": [],
        "output": {"completion": "4"},
        "scores": {"gaia_scorer": {"value": "C", "answer": "4"}},
    }
    path = folder / name
    if path.suffix == ".json":
        path.write_text(json.dumps(header | {"samples": [sample]}))
    else:
        with zipfile.ZipFile(path, "w", ZSTANDARD) as archive:
            archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": header["eval"]}))
            archive.writestr("samples/s1_epoch_1.json", json.dumps(sample))
            archive.writestr("header.json", json.dumps(header))
    return path, 2, 1


def model_card_file(folder: Path) -> tuple[Path, int, int]:
    """Write a model card with self-reported and sourced results, a percent sign and a word for a value."""
    path = folder / "README.md"
    path.write_text(
        """---
license: apache-2.0
model-index:
- name: example/three
  results:
  - task: {type: text-generation}
    dataset: {name: MMLU, type: cais/mmlu, config: all, split: test, args: {num_few_shot: 5}}
    metrics:
    - {type: acc, value: 61.2%, name: accuracy}
    - {type: acc_norm, value: pending}
  - task: {type: text-generation}
    dataset: {name: MMLU, type: cais/mmlu, config: all, split: test, args: {num_few_shot: 5}}
    metrics:
    - {type: acc, value: 0.58, verified: true}
    source: {name: Example Board, url: https://example.org/board}
---
# A model
"""
    )
    return path, 3, 1


def eee_file(folder: Path) -> tuple[Path, int, int]:
    """Write an EEE record of which one result lacks its score."""
    result = {
        "evaluation_name": "MMLU - anatomy",
        "source_data": {"dataset_name": "MMLU", "source_type": "hf_dataset", "hf_repo": "cais/mmlu"},
        "metric_config": {"metric_id": "accuracy", "metric_unit": "proportion", "lower_is_better": False,
                          "score_type": "continuous", "min_score": 0.0, "max_score": 1.0},
        "score_details": {"score": 0.55},
        "generation_config": {"generation_args": {"temperature": 0.0}},
    }  # fmt: skip
    document = {
        "schema_version": "0.3.0",
        "evaluation_id": "mmlu/example_one/1764000000",
        "retrieved_timestamp": "1764000000",
        "source_metadata": {"source_type": "documentation", "source_organization_name": "Example Board",
                            "evaluator_relationship": "third_party"},
        "model_info": {"name": "one", "id": "example/one",
                       "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"}},
        "eval_library": {"name": "example", "version": "unknown"},
        "evaluation_results": [result, {**result, "score_details": {}}],
    }  # fmt: skip
    path = folder / "record.json"
    path.write_text(json.dumps(document))
    return path, 2, 1


def csv_file(folder: Path) -> tuple[Path, int, int]:
    """Write a leaderboard, and its mapping beside it as ``board.yaml``."""
    path = folder / "board.csv"
    path.write_text(
        "Model,MMLU (5-shot),GSM8K,T\nexample/one,61.5,40.1,0\nexample/two,n/a,seven,0.7\nexample/three,70.2,,\n"
    )
    (folder / "board.yaml").write_text(
        """model: Model
organisation: {value: Example Board}
relationship: {value: third_party}
scores:
- {column: MMLU (5-shot), benchmark: MMLU, metric: accuracy, unit: percent, protocol: 5-shot, lower_is_better: false}
- {column: GSM8K, metric: exact_match, unit: percent, lower_is_better: false}
generation_args: {temperature: {column: T}}
"""
    )
    return path, 4, 1


MAKERS: dict[str, Callable[[Path], tuple[Path, int, int]]] = {
    "lm_eval": lm_eval_file,
    "helm": helm_run,
    "inspect": inspect_log_file,
    "hf_model_card": model_card_file,
    "eee": eee_file,
    "csv": csv_file,
}
"""Format to the maker of its file."""

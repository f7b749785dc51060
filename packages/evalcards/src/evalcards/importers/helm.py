"""HELM: a run's folder with ``run_spec.json`` and ``stats.json``, or a suite of such folders.

A statistic is a result if it measures the model's answers; HELM's bookkeeping (counts, lengths, run times, finish
reasons, energy) is no result and is counted in a notice. Perturbations and sub-splits are slices of their own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from evalcards import strict_json
from evalcards.errors import SchemaError
from evalcards.importers import common
from evalcards.importers.common import ImportResult, Options, finite, mapping, strings, without_none

_BOOKKEEPING = re.compile(
    r"num_.*|.*_runtime|inference_.*|batch_size|finish_reason_.*|training_.*|prompt_truncated|logprob.*|max_prob|"
    r"perplexity|bits_per_byte|.*_cost|cached.*|selective_.*"
)
_PERPLEXITY_TASKS = {"language_modeling"}
_PROPORTION = re.compile(
    r"(?:quasi_)?(?:prefix_)?exact_match(?:@\d+)?|exact_set_match|f1_score|f1_set_match|classification_(?:micro|macro)_f1|"
    r"rouge_[12l]|.*_accuracy|.*_rate|.*_frac(?:tion)?|RR@10|NDCG@\d+|bleu_4|math_equiv.*|pass|chain_of_thought_correctness|"
    r"ece_.*|final_num_exact_match|ifeval_strict_accuracy"
)
_LOWER = re.compile(
    r"ece_.*|bits_per_byte|.*perplexity|.*_error.*|toxic_frac|expected_max_toxicity|bias_metric.*|.*_edit_.*"
)


def helm(path: str | Path, options: Options | None = None) -> ImportResult:
    """Read a run's folder, or every run below a folder.

    Parameters
    ----------
    path
        A folder with ``run_spec.json``, or one with such folders below it.
    options
        What the files do not say.

    Returns
    -------
    ImportResult
    """
    found = common.existing(path)
    if not found.is_dir():
        found = found.parent
    runs = sorted(file.parent for file in found.rglob("run_spec.json"))
    if not runs:
        result = ImportResult()
        result.fail(str(path), "", "no run_spec.json here or below", rows=0)
        return result
    return common.each_file(runs, lambda run: _read(run, options or Options()))


def _json(run: Path, name: str, options: Options) -> Any:
    return strict_json.read(run / name, max_bytes=options.max_bytes, constants=True)


def _read(run: Path, options: Options) -> ImportResult:
    result = ImportResult()
    spec = common.need_mapping(_json(run, "run_spec.json", options), run / "run_spec.json", "a HELM run")
    stats = _json(run, "stats.json", options)
    if not isinstance(stats, list):
        raise SchemaError(str(run / "stats.json"), "not HELM statistics: want a list")
    adapter = mapping(spec.get("adapter_spec"))
    scenario = _json(run, "scenario.json", options) if (run / "scenario.json").exists() else {}
    state = _state(run, options, result)
    judged = _instance_scores(run, options, result)
    # Without the requests, the per-instance statistics still say how many instances there were.
    state["counts"] = state["counts"] or _count_instances(judged)
    language_model = str(adapter.get("method")) in _PERPLEXITY_TASKS
    lines, bookkeeping = [], 0
    for number, stat in enumerate(stats):
        stat = mapping(stat)
        name = mapping(stat.get("name"))
        metric = str(name.get("name", ""))
        if _BOOKKEEPING.fullmatch(metric) and not (language_model and metric in ("perplexity", "bits_per_byte")):
            bookkeeping += 1
            continue
        result.found += 1
        score = finite(stat.get("mean"))
        if score is None or not metric or stat.get("count") == 0:
            reason = "no name" if not metric else common.why_not_a_score(stat.get("mean"))
            result.fail(str(run / "stats.json"), f"[{number}] {metric}", reason)
            continue
        lines.append(_result(metric, name, score, spec, scenario, state))
    if bookkeeping:
        result.notices.append(f"{run}: {bookkeeping} statistics are bookkeeping, not results")
    if lines:
        model = str(adapter.get("model") or "not reported")
        result.logs.append(
            common.make_log(
                evaluation_id=f"helm/{spec.get('name') or run.name}",
                retrieved=common.file_time(run / "stats.json"),
                evaluated=common.iso(state.get("time")),
                model=model,
                model_details=strings(model_deployment=adapter.get("model_deployment")),
                library=("helm", None),
                source_kind="evaluation_run",
                options=options,
                results=lines,
                path=run,
            )
        )
        evaluation = result.logs[0].evaluation_id
        result.instances[evaluation] = [
            _instance(evaluation, model, lines[0], item, judged) for item in state["instances"]
        ]
    return result


def _state(run: Path, options: Options, result: ImportResult) -> dict[str, Any]:
    """Read what the requests say: sampling settings that are the same in all, instances, the time of the last one."""
    empty: dict[str, Any] = {"instances": [], "counts": {}, "arguments": {}, "time": None}
    if not (run / "scenario_state.json").exists():
        return empty
    try:
        document = _json(run, "scenario_state.json", options)
    except SchemaError as error:
        result.notices.append(f"{run}: scenario_state.json was not used: {error.reason}")
        return empty
    states = document.get("request_states") if isinstance(document, dict) else None
    states = [item for item in common.listed(states) if isinstance(item, dict)]
    counts: dict[str, set[str]] = {}
    for item in states:
        instance = mapping(item.get("instance"))
        counts.setdefault(str(instance.get("split")), set()).add(str(instance.get("id")))
    requests = [mapping(item.get("request")) for item in states]
    arguments = {}
    for theirs, ours in (("top_p", "top_p"), ("temperature", "temperature"), ("max_tokens", "max_tokens")):
        values = {finite(request.get(theirs)) for request in requests}
        if len(values) == 1 and None not in values:
            arguments[ours] = values.pop()
    times = [finite(mapping(item.get("result")).get("request_datetime")) for item in states]
    seen = [time for time in times if time is not None]
    sizes = {split: len(ids) for split, ids in counts.items()}
    return {"instances": states, "counts": sizes, "arguments": arguments, "time": max(seen, default=None)}


def _result(
    metric: str, name: dict[str, Any], score: float | int, spec: dict[str, Any], scenario: Any, state: dict[str, Any]
) -> dict[str, Any]:
    adapter = mapping(spec.get("adapter_spec"))
    scenario_args = mapping(mapping(spec.get("scenario_spec")).get("args"))
    run_name = str(spec.get("name") or "")
    benchmark = (scenario.get("name") if isinstance(scenario, dict) else None) or run_name.partition(":")[0]
    perturbation = name.get("perturbation")
    pieces = [f"{key}={value}" for key, value in scenario_args.items() if isinstance(value, (str, int))]
    if isinstance(perturbation, dict):
        pieces.append(f"{perturbation.get('name')} ({perturbation.get('computed_on', 'all')})")
    if name.get("sub_split"):
        pieces.append(f"sub-split {name['sub_split']}")
    proportion = _PROPORTION.fullmatch(metric) is not None
    samples = state["counts"].get(str(name.get("split")))
    limits = {"min_score": 0.0, "max_score": 1.0, "score_type": "continuous"} if proportion else {}
    return {
        "evaluation_name": str(benchmark),
        "source_data": {
            "dataset_name": str(benchmark),
            "source_type": "other",
            **without_none(hf_split=common.text_of(name.get("split"))),
        },
        "metric_config": {
            "metric_id": metric,
            "metric_name": metric,
            "lower_is_better": _LOWER.fullmatch(metric) is not None,
            **({"metric_unit": "proportion"} if proportion else {}),
            **limits,
            "additional_details": strings(
                slice=", ".join(pieces) or None,
                split=name.get("split"),
                method=adapter.get("method"),
                num_fewshot=adapter.get("max_train_instances"),
                composite=next(iter(common.listed(spec.get("groups"))), None),
            ),
        },
        "score_details": {
            "score": score,
            **({"uncertainty": {"num_samples": samples}} if samples else {}),
        },
        "generation_config": {
            "generation_args": _generation(adapter, state["arguments"]),
            "additional_details": strings(
                harness="helm",
                run=run_name,
                method=adapter.get("method"),
                instructions=common.text_of(adapter.get("instructions")),
                num_outputs=adapter.get("num_outputs"),
                num_train_trials=adapter.get("num_train_trials"),
                max_eval_instances=adapter.get("max_eval_instances"),
                num_fewshot=adapter.get("max_train_instances"),
                n_samples=samples,
            ),
        },
    }


def _generation(adapter: dict[str, Any], requests: dict[str, Any]) -> dict[str, Any]:
    """Return what the requests were sent with, and else what the adapter asked for."""
    arguments = without_none(
        temperature=finite(adapter.get("temperature")), max_tokens=finite(adapter.get("max_tokens"))
    )
    parts = [adapter.get(key) for key in ("global_prefix", "instructions", "input_prefix", "output_prefix")]
    if any(isinstance(part, str) for part in parts):
        arguments["prompt_template"] = "{input}".join(
            ["".join(p for p in parts[:3] if isinstance(p, str)), parts[3] if isinstance(parts[3], str) else ""]
        )
    return arguments | requests


def _instance_scores(run: Path, options: Options, result: ImportResult) -> dict[tuple[str, str], float]:
    """Read each instance's own score: the mean of its first accuracy-like statistic, by (split, instance id)."""
    path = run / "per_instance_stats.json"
    if not path.exists():
        return {}
    try:
        entries = _json(run, path.name, options)
    except SchemaError as error:
        result.notices.append(f"{run}: {path.name} was not used: {error.reason}")
        return {}
    scores: dict[tuple[str, str], float] = {}
    for entry in common.listed(entries):
        stats = mapping(entry).get("stats")
        for stat in map(mapping, common.listed(stats)):
            name, mean = mapping(stat.get("name")), finite(stat.get("mean"))
            key = (str(name.get("split")), str(entry.get("instance_id")))
            if mean is not None and key not in scores and _PROPORTION.fullmatch(str(name.get("name"))):
                scores[key] = float(mean)
    return scores


def _count_instances(judged: dict[tuple[str, str], float]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for split, _ in judged:
        counts[split] = counts.get(split, 0) + 1
    return counts


def _instance(
    evaluation: str, model: str, line: dict[str, Any], item: dict[str, Any], judged: dict[tuple[str, str], float]
) -> dict[str, Any]:
    instance, request, answer = (mapping(item.get(key)) for key in ("instance", "request", "result"))
    references, completions = instance.get("references"), answer.get("completions")
    right = [r for r in map(mapping, common.listed(references)) if "correct" in common.listed(r.get("tags"))]
    outputs = [r.get("output") for r in right]
    return common.instance_record(
        evaluation,
        model,
        line["evaluation_name"],
        instance.get("id"),
        prompt=request.get("prompt") or mapping(instance.get("input")).get("text"),
        # Older versions write the text where newer ones write an object.
        references=[o.get("text", "") if isinstance(o, dict) else o for o in outputs],
        answers=[mapping(c).get("text", "") for c in common.listed(completions)],
        score=judged.get((str(instance.get("split")), str(instance.get("id")))),
    )

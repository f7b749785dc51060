"""lm-evaluation-harness 0.4: ``results_*.json`` and, beside it, ``samples_*.jsonl``.

A metric's key is ``name,filter``; its standard error ``name_stderr,filter`` may be the text "N/A". Groups without an
aggregate hold the placeholder ``{" ": ...}``. A task's own settings are in ``configs``; what the command line adds in
``config.gen_kwargs`` goes before them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from evalcards import json_stream, strict_json
from evalcards.errors import SchemaError
from evalcards.importers import common
from evalcards.importers.common import ImportResult, Options, finite, mapping, strings, without_none

_NOT_METRICS = {"alias", "name", "sample_len", "sample_count", "samples", " "}
_PROPORTIONS = {
    "acc", "acc_norm", "acc_mutual_info", "acc_bytes", "exact_match", "f1", "contains", "pass@1", "pass_at_1", "em",
    "prompt_level_strict_acc", "inst_level_strict_acc", "prompt_level_loose_acc", "inst_level_loose_acc", "mc1", "mc2",
    "pct_stereotype", "math_verify",
}  # fmt: skip
_BOUNDS: dict[str, tuple[float | str, float | str]] = {
    "mcc": (-1.0, 1.0), "likelihood_diff": ("-Infinity", "Infinity"),
    "perplexity": (1.0, "Infinity"), "word_perplexity": (1.0, "Infinity"), "byte_perplexity": (1.0, "Infinity"),
    "bits_per_byte": (0.0, "Infinity"), "bleu": (0.0, 100.0), "chrf": (0.0, 100.0), "ter": (0.0, "Infinity"),
}  # fmt: skip
_LOADERS = ("json", "csv", "parquet", "text", "arrow")
_LOWER = {"perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "ter", "brier_score"}
_GENERATION = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_gen_toks": "max_tokens"}


def lm_eval(path: str | Path, options: Options | None = None) -> ImportResult:
    """Read one results file, or all below a folder.

    Parameters
    ----------
    path
        ``results_*.json`` or a folder.
    options
        What the file does not say.

    Returns
    -------
    ImportResult
    """
    return common.read_tree(path, ("results*.json",), lambda file: _read(file, options or Options()))


def samples_beside(results: Path) -> list[Path]:
    """Return the samples that were logged in the same run as a results file."""
    stamp = results.stem.partition("results_")[2]
    return sorted(results.parent.glob(f"samples_*_{stamp}.jsonl")) if stamp else []


def _read(path: Path, options: Options) -> ImportResult:
    if path.suffix == ".jsonl":
        raise SchemaError(str(path), "samples without scores", hint="name the results_*.json of the same run")
    document = common.need_mapping(
        strict_json.read(path, max_bytes=options.max_bytes, constants=True), path, "lm-eval results"
    )
    result = ImportResult()
    tables: dict[str, Any] = {}
    for section in ("results", "groups"):
        part = document.get(section)
        for task, values in (part if isinstance(part, dict) else {}).items():
            # A group with an aggregate stands in both sections, with the same values.
            tables.setdefault(task, values)
    lines = []
    for task, values in tables.items():
        lines += _task_results(task, values, document, path, result)
    config = mapping(document.get("config"))
    model = _model_of(document)
    identity = f"lm_eval/{model}/{document.get('date') or path.stem}"
    if lines:
        log = common.make_log(
            evaluation_id=identity,
            retrieved=common.file_time(path),
            evaluated=common.iso(finite(document.get("date"))),
            model=model,
            model_details=strings(
                model_args=_model_args(config.get("model_args")),
                model_source=document.get("model_source"),
                model_dtype=config.get("model_dtype"),
                model_sha=config.get("model_sha"),
                model_revision=config.get("model_revision"),
                num_parameters=config.get("model_num_parameters"),
            ),
            library=("lm_eval", document.get("lm_eval_version")),
            source_kind="evaluation_run",
            options=options,
            results=lines,
            path=path,
        )
        result.logs.append(log)
        _read_samples(path, log.evaluation_id, log.model_info.id, result, options)
    return result


def _model_args(arguments: Any) -> str | None:
    if isinstance(arguments, dict):
        return ",".join(f"{key}={value}" for key, value in arguments.items())
    return arguments if isinstance(arguments, str) else None


def _model_of(document: dict[str, Any]) -> str:
    name = document.get("model_name")
    if isinstance(name, str) and name:
        return name
    config = mapping(document.get("config"))
    match = re.search(r"(?:pretrained|model|model_name)=([^,]+)", _model_args(config.get("model_args")) or "")
    return match.group(1) if match else str(config.get("model") or "not reported")


def _task_results(
    task: str, values: Any, document: dict[str, Any], path: Path, result: ImportResult
) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    if not isinstance(values, dict):
        result.found += 1
        result.fail(str(path), f"results.{task}", "not a table of metrics")
        return lines
    placeholder = True
    for key, value in values.items():
        name, _, choice = key.partition(",")
        if not name.strip() or name in _NOT_METRICS or name.endswith("_stderr"):
            continue
        placeholder = False
        result.found += 1
        score = finite(value)
        if score is None:
            result.fail(str(path), f"results.{task}.{key}", common.why_not_a_score(value))
            continue
        error = finite(values.get(f"{name}_stderr,{choice}" if choice else f"{name}_stderr"))
        lines.append(_result(task, name, choice, score, error, document, path))
    if placeholder:
        result.notices.append(f"{path}: group {task} has no aggregate of its own")
    return lines


def _result(
    task: str,
    name: str,
    choice: str,
    score: float | int,
    error: float | int | None,
    document: dict[str, Any],
    path: Path,
) -> dict[str, Any]:
    configs, run = mapping(document.get("configs")), mapping(document.get("config"))
    config = mapping(configs.get(task))
    generation = mapping(config.get("generation_kwargs"))
    samples = mapping(mapping(document.get("n-samples")).get(task)).get("effective")
    shots = mapping(document.get("n-shot")).get(task, config.get("num_fewshot"))
    template_sha = common.text_of(document.get("chat_template_sha"))
    groups = mapping(document.get("group_subtasks"))
    composite = next((name for name, tasks in groups.items() if task in common.listed(tasks)), None)
    uncertainty: dict[str, Any] = without_none(num_samples=samples if isinstance(samples, int) else None)
    if error is not None:
        uncertainty["standard_error"] = {"value": error}
    details = strings(
        filter=choice if choice and choice != "none" else None,
        num_fewshot=shots if task in configs else None,
        composite=composite,
        chat_template=template_sha and template_sha[:8],
    )
    return {
        "evaluation_name": task,
        "source_data": {
            # Local tasks name the loader, "json", instead of a data set.
            "dataset_name": task if config.get("dataset_path") in (None, *_LOADERS) else str(config["dataset_path"]),
            "source_type": "other",
            **without_none(hf_split=common.text_of(config.get("test_split") or config.get("validation_split"))),
        },
        "metric_config": _metric(name, mapping(mapping(document.get("higher_is_better")).get(task)).get(name), details),
        "score_details": {"score": score, **({"uncertainty": uncertainty} if uncertainty else {})},
        "generation_config": {
            "generation_args": _generation(config, run),
            "additional_details": strings(
                output_type=config.get("output_type"),
                lm_eval_task=task,
                task_version=mapping(document.get("versions")).get(task),
                task_hash=mapping(document.get("task_hashes")).get(task) or None,
                num_fewshot=shots,
                do_sample=generation.get("do_sample"),
                until=_json(generation.get("until")),
                repeats=config.get("repeats"),
                limit=run.get("limit"),
                seed=run.get("random_seed"),
                batch_size=run.get("batch_size"),
                chat_template_sha=template_sha,
                fewshot_as_multiturn=document.get("fewshot_as_multiturn") if template_sha else None,
                system_instruction_sha=document.get("system_instruction_sha"),
                doc_to_target=config.get("doc_to_target"),
            ),
        },
    }


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _metric(name: str, higher: Any, details: dict[str, str]) -> dict[str, Any]:
    """Describe a metric; unit and bounds are those the harness defines, for metrics it defines."""
    low, high = _BOUNDS.get(name, (0.0, 1.0) if name in _PROPORTIONS else (None, None))
    lower = (not higher) if isinstance(higher, bool) else name in _LOWER
    notes = details if isinstance(higher, bool) else {**details, "direction": "not reported"}
    unit = "proportion" if name in _PROPORTIONS else "bits per byte" if name == "bits_per_byte" else None
    return {
        "metric_id": name,
        "metric_name": name,
        "lower_is_better": lower,
        **without_none(metric_unit=unit, min_score=low, max_score=high),
        **({"score_type": "continuous"} if low is not None else {}),
        "additional_details": notes,
    }


def _generation(config: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    stated = dict(mapping(config.get("generation_kwargs")))
    extra = run.get("gen_kwargs")
    if isinstance(extra, str):
        pairs = [pair.partition("=") for pair in extra.split(",") if "=" in pair]
        extra = {key.strip(): _number(value) for key, _, value in pairs}
    stated |= extra if isinstance(extra, dict) else {}
    arguments = {ours: stated[theirs] for theirs, ours in _GENERATION.items() if stated.get(theirs) is not None}
    prompt = config.get("doc_to_text")
    return arguments | ({"prompt_template": prompt} if isinstance(prompt, str) else {})


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _read_samples(path: Path, evaluation: str, model: str, result: ImportResult, options: Options) -> None:
    """Attach the samples that were logged in the same run, as instance records."""
    stamp = path.stem.partition("results_")[2]
    for file in samples_beside(path):
        task = file.name.removeprefix("samples_").removesuffix(f"_{stamp}.jsonl")
        for line, sample, _ in json_stream.lines(file, max_bytes=options.max_bytes, constants=True):
            if isinstance(sample, dict):
                result.instances.setdefault(evaluation, []).append(_instance(task, evaluation, model, sample, line))
            else:
                reason = sample.reason if isinstance(sample, SchemaError) else "not a JSON object"
                result.fail(str(file), f"line {line}", reason, rows=0)


def _instance(task: str, evaluation: str, model: str, sample: dict[str, Any], line: int) -> dict[str, Any]:
    metrics = sample.get("metrics")
    names = [m for m in common.listed(metrics) if isinstance(m, str)]
    name = next((m for m in names if finite(sample.get(m)) is not None), None)
    responses = sample.get("filtered_resps") or sample.get("resps") or []
    return common.instance_record(
        evaluation,
        model,
        task,
        sample.get("doc_id", line),
        prompt=mapping(mapping(sample.get("arguments")).get("gen_args_0")).get("arg_0"),
        references=[sample.get("target", "")],
        answers=[_json(responses)],
        score=finite(sample.get(name)) if name else None,
        sample_hash=sample.get("doc_hash"),
        metric=name,
        filter=sample.get("filter"),
    )

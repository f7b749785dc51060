"""Inspect: logs as ``.json``, and as ``.eval``, a zip whose members are compressed with Zstandard.

Only the parts that hold settings and scores are read; the samples, which make up nearly all of a log, are streamed past
(``.json``) or left packed (``.eval``) apart from the first ones, which become instance records.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

if sys.version_info < (3, 14):
    import zipfile_zstd  # noqa: F401  (teaches zipfile to read Zstandard)

from evalcards import json_stream, strict_json
from evalcards.errors import SchemaError
from evalcards.importers import common
from evalcards.importers.common import ImportResult, Options, finite, mapping, strings, without_none

_PARTS = {"version", "status", "eval", "plan", "results", "stats", "error", "invalidated"}
_ERRORS = {"stderr", "bootstrap_stderr", "hierarchical_bootstrap"}
_PROPORTIONS = {"accuracy", "pass_at_1", "mean_accuracy"}
_AGENT_SOLVERS = ("basic_agent", "react", "use_tools", "human_agent", "bridge", "multi_agent", "agent", "claude_code")
_LIMITS = ("message_limit", "token_limit", "time_limit", "working_limit")
_SAMPLES = 200
"""Instance records kept from one log."""
_PACKED = 1024
"""Bytes unpacked at a time."""


def inspect(path: str | Path, options: Options | None = None) -> ImportResult:
    """Read one Inspect log, or all below a folder.

    Parameters
    ----------
    path
        A ``.eval`` or ``.json`` file, or a folder.
    options
        What the file does not say.

    Returns
    -------
    ImportResult
    """
    return common.read_tree(path, ("*.eval", "*.json"), lambda file: _read(file, options or Options()))


def _read(path: Path, options: Options) -> ImportResult:
    result = ImportResult()
    if zipfile.is_zipfile(path):
        document, samples = _read_archive(path, options, result)
    elif path.suffix == ".eval":
        raise SchemaError(str(path), "not a zip archive, as .eval logs are")
    else:
        document = json_stream.stream_members(path, _PARTS, max_bytes=options.max_bytes)
        samples = _json_samples(path, options)
    header = document.get("eval")
    if not isinstance(header, dict):
        raise SchemaError(str(path), "not an Inspect log: no 'eval'")
    status = document.get("status")
    scores = mapping(document.get("results")).get("scores")
    if not isinstance(scores, list) or not scores:
        result.fail(str(path), "results.scores", f"no scores; the run's status is {status!r}", rows=0)
        return result
    if document.get("invalidated"):
        result.notices.append(f"{path}: the log is marked as invalidated")
    lines: list[dict[str, Any]] = []
    for number, score in enumerate(scores):
        lines += _score_results(score, f"results.scores[{number}]", document, path, result)
    if lines:
        log = _log(document, lines, path, options)
        result.logs.append(log)
        records = [
            _instance(log.evaluation_id, log.model_info.id, str(header.get("task")), sample) for sample in samples
        ]
        result.instances[log.evaluation_id] = records
    return result


def _member(archive: zipfile.ZipFile, name: str, path: Path, options: Options) -> Any:
    """Unpack one member, but never more than the cap: the sizes in an archive's directory are only claims."""
    claimed = archive.getinfo(name).file_size
    if claimed > options.max_bytes:
        raise strict_json.too_large(f"{path}, {name}", claimed, options.max_bytes)
    try:
        with archive.open(name) as stream:
            data = _capped(stream, options.max_bytes, f"{path}, {name}")
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(str(path), f"{name} cannot be unpacked: {error}") from error
    return strict_json.loads(data, f"{path}, {name}", constants=True)


def _capped(stream: Any, most: int, name: str) -> bytes:
    pieces, size = [], 0
    # Zstandard unpacks what it is given at once, and a kilobyte can stand for 32 MB: give it no more at a time.
    stream.MIN_READ_SIZE = _PACKED
    while piece := stream.read(_PACKED):
        size += len(piece)
        if size > most:
            raise strict_json.too_large(name, size, most)
        pieces.append(piece)
    return b"".join(pieces)


def _read_archive(path: Path, options: Options, result: ImportResult) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise SchemaError(str(path), f"not a zip archive: {error}") from error
    with archive:
        names = set(archive.namelist())
        if "header.json" in names:
            document = _member(archive, "header.json", path, options)
        elif "_journal/start.json" in names:
            document = {**_member(archive, "_journal/start.json", path, options), "status": "started"}
        else:
            raise SchemaError(str(path), "not an Inspect log: the archive has no header.json")
        samples = []
        chosen = sorted(name for name in names if name.startswith("samples/") and name.endswith(".json"))[:_SAMPLES]
        for name in chosen:
            try:
                samples.append(_member(archive, name, path, options))
            except SchemaError as error:
                result.notices.append(f"{path}: {name} was not used: {error.reason}")
    return document, samples


def _json_samples(path: Path, options: Options) -> list[dict[str, Any]]:
    """Return the first samples of a JSON log small enough to be read whole."""
    if path.stat().st_size > min(options.max_bytes, 64 * 2**20):
        return []
    found = json_stream.stream_members(path, {"samples"}, max_bytes=options.max_bytes).get("samples")
    return [sample for sample in common.listed(found)[:_SAMPLES] if isinstance(sample, dict)]


def _score_results(
    score: Any, place: str, document: dict[str, Any], path: Path, result: ImportResult
) -> list[dict[str, Any]]:
    metrics = score.get("metrics") if isinstance(score, dict) else None
    if not isinstance(metrics, dict):
        result.found += 1
        result.fail(str(path), place, "a score without metrics")
        return []
    values = {key: (m.get("value") if isinstance(m, dict) else m) for key, m in metrics.items()}
    error = next((finite(values[key]) for key in values if key in _ERRORS), None)
    spread = finite(values.get("std"))
    lines = []
    for key, value in values.items():
        if key in _ERRORS or key in ("std", "var"):
            continue
        result.found += 1
        number = finite(value)
        if number is None:
            result.fail(str(path), f"{place}.metrics.{key}", common.why_not_a_score(value))
            continue
        lines.append(_result(score, key, number, error, spread, document))
    return lines


def _samples(score: dict[str, Any], document: dict[str, Any]) -> int | None:
    """Return how many samples a score is over; an epoch repeats them, it adds none."""
    results, header = mapping(document.get("results")), document["eval"]
    if isinstance(scored := score.get("scored_samples"), int):
        return scored
    epochs = mapping(header.get("config")).get("epochs")
    if isinstance(completed := results.get("completed_samples"), int):
        return completed // epochs if isinstance(epochs, int) and epochs > 1 else completed
    listed = mapping(header.get("dataset")).get("samples")
    return listed if isinstance(listed, int) else None


def _method(score: dict[str, Any]) -> str:
    """Return how samples were scored: pass@k of several epochs is another measurement than their mean."""
    reducer = common.text_of(score.get("reducer"))
    return f"scorer {score.get('name')}" + (f", reducer {reducer}" if reducer not in (None, "mean") else "")


def _result(
    score: dict[str, Any],
    metric: str,
    value: float | int,
    error: float | int | None,
    spread: float | int | None,
    document: dict[str, Any],
) -> dict[str, Any]:
    header = document["eval"]
    dataset, config = mapping(header.get("dataset")), mapping(header.get("config"))
    samples = _samples(score, document)
    uncertainty: dict[str, Any] = without_none(num_samples=samples, standard_deviation=spread)
    if error is not None:
        uncertainty["standard_error"] = {"value": error}
    proportion = metric in _PROPORTIONS
    limits = {"metric_unit": "proportion", "min_score": 0.0, "max_score": 1.0, "score_type": "continuous"}
    return {
        "evaluation_name": str(header.get("task")),
        "source_data": {
            "dataset_name": str(dataset.get("name") or header.get("task")),
            "source_type": "other",
            **without_none(samples_number=finite(dataset.get("samples"))),
        },
        "metric_config": {
            "metric_id": metric,
            "metric_name": metric,
            "lower_is_better": False,
            **(limits if proportion else {}),
            "additional_details": strings(method=_method(score), direction=None if proportion else "not reported"),
        },
        "score_details": {"score": value, **({"uncertainty": uncertainty} if uncertainty else {})},
        "generation_config": {
            "generation_args": _generation(document),
            "additional_details": strings(
                harness="inspect_ai",
                task_version=header.get("task_version"),
                task_args=json.dumps(header.get("task_args"), sort_keys=True) if header.get("task_args") else None,
                epochs=config.get("epochs"),
                epochs_reducer=score.get("reducer"),
                n_samples=samples,
                limit=config.get("limit"),
                seed=_settings(document).get("seed"),
                reasoning_effort=_settings(document).get("reasoning_effort"),
                reasoning_tokens=_settings(document).get("reasoning_tokens"),
                scorer=score.get("name"),
            ),
        },
    }


def _settings(document: dict[str, Any]) -> dict[str, Any]:
    """Return the generation settings; those of the run go before those of the plan."""
    plan = mapping(mapping(document.get("plan")).get("config"))
    return {**plan, **mapping(document["eval"].get("model_generate_config"))}


def _generation(document: dict[str, Any]) -> dict[str, Any]:
    header, plan = document["eval"], mapping(document.get("plan"))
    settings = _settings(document)
    listed = plan.get("steps")
    steps = [step for step in common.listed(listed) if isinstance(step, dict)]
    arguments: dict[str, Any] = {
        key: settings[key] for key in ("temperature", "top_p", "top_k", "max_tokens") if settings.get(key) is not None
    }
    template = next((found for s in steps if isinstance(found := mapping(s.get("params")).get("template"), str)), None)
    limits = {name: value for name in _LIMITS if (value := mapping(header.get("config")).get(name)) is not None}
    sandbox = header.get("sandbox")
    tools = [s.get("solver") for s in steps if str(s.get("solver", "")).rpartition("/")[2] in _AGENT_SOLVERS]
    if steps:
        arguments["eval_plan"] = {
            "name": str(plan.get("name") or "plan"),
            "steps": [
                json.dumps({k: s.get(k) for k in ("solver", "params")}, sort_keys=True, default=str) for s in steps
            ],
        }
    if template is not None:
        arguments["prompt_template"] = template
    if limits:
        arguments["eval_limits"] = limits
    if tools or sandbox:
        arguments["agentic_eval_config"] = {"additional_details": strings(solvers=json.dumps(tools) if tools else None)}
        if isinstance(sandbox, dict):
            arguments["sandbox"] = strings(type=sandbox.get("type"))
    return arguments


def _log(document: dict[str, Any], lines: list[dict[str, Any]], path: Path, options: Options) -> Any:
    header = document["eval"]
    stats = mapping(document.get("stats"))
    arguments = header.get("model_args")
    return common.make_log(
        evaluation_id=f"inspect/{header.get('task')}/{header.get('eval_id') or header.get('run_id') or path.stem}",
        retrieved=common.file_time(path),
        evaluated=str(stats.get("started_at") or header.get("created") or "") or None,
        model=str(header.get("model") or "not reported"),
        model_details=strings(model_args=json.dumps(arguments, sort_keys=True, default=str) if arguments else None),
        library=("inspect_ai", common.text_of(mapping(header.get("packages")).get("inspect_ai"))),
        source_kind="evaluation_run",
        options=options,
        results=lines,
        path=path,
    )


def _text(value: Any) -> str:
    """Return the text of an input or of a message's content, which may be lists of parts."""
    if isinstance(value, list):
        return "\n".join(_text(v.get("text", v.get("content", ""))) if isinstance(v, dict) else str(v) for v in value)
    return str(value or "")


def _instance(evaluation: str, model: str, task: str, sample: dict[str, Any]) -> dict[str, Any]:
    first = mapping(next(iter(mapping(sample.get("scores")).values()), None))
    value = first.get("value")
    output, target = mapping(sample.get("output")), sample.get("target")
    choice = mapping(next(iter(common.listed(output.get("choices"))), None))
    return common.instance_record(
        evaluation,
        model,
        task,
        f"{sample.get('id')}" + (f"/{sample['epoch']}" if sample.get("epoch", 1) != 1 else ""),
        prompt=_text(sample.get("input")),
        references=target if isinstance(target, list) else [target],
        answers=[_text(output.get("completion") or mapping(choice.get("message")).get("content"))],
        score={"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}.get(str(value), finite(value)),
        turns="multi_turn" if len(common.listed(sample.get("messages"))) > 3 else "single_turn",
    )

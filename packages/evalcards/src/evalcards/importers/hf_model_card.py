"""Hugging Face model cards: ``README.md`` with YAML front matter, scores in ``model-index``.

A card is the model author's own word unless a result names another source. Values written as text ("73.4%") are read; a
percent sign is a stated unit, nothing is rescaled.
"""

from __future__ import annotations

import datetime
import math
import re
from pathlib import Path
from typing import Any

import yaml

from evalcards.errors import SchemaError
from evalcards.importers import common
from evalcards.importers.common import ImportResult, Options, finite, mapping, strings, text_of, without_none
from evalcards.schema import ModelMeta
from evalcards.strict_json import too_large

_FRONT = re.compile(r"\A\ufeff?---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(%?)")
_LOWER = re.compile(r"(?:wer|cer|ter|.*loss|perplexity|ppl|mae|mse|rmse|fid|.*error.*)", re.IGNORECASE)


def hf_model_card(path: str | Path, options: Options | None = None) -> ImportResult:
    """Read one model card, or every ``README.md`` below a folder.

    Parameters
    ----------
    path
        A Markdown file with front matter, or a folder.
    options
        What the card does not say; ``model_id`` gives the repository's full name.

    Returns
    -------
    ImportResult
        ``models`` holds what the card says of the model: licence, base model.
    """
    return common.read_tree(path, ("README.md",), lambda file: _read(file, options or Options()))


def front_matter(path: Path, max_bytes: int) -> dict[str, Any]:
    """Return the YAML between the two lines of dashes.

    Raises
    ------
    SchemaError
        There is none, or it is no YAML mapping; with its line and column.
    """
    size = path.stat().st_size
    if size > max_bytes:
        raise too_large(str(path), size, max_bytes)
    match = _FRONT.match(path.read_text(encoding="utf-8", errors="replace"))
    if not match:
        raise SchemaError(str(path), "no YAML front matter", hint="a model card begins with a block between lines ---")
    try:
        document = yaml.safe_load(match.group(1))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 2, mark.column + 1) if mark else (None, None)
        raise SchemaError(str(path), f"not YAML: {getattr(error, 'problem', error)}", line, column) from error
    if not isinstance(document, dict):
        raise SchemaError(str(path), "the front matter is no mapping")
    return document


def _read(path: Path, options: Options) -> ImportResult:
    result = ImportResult()
    card = front_matter(path, options.max_bytes)
    index = card.get("model-index")
    if not isinstance(index, list) or not index:
        result.fail(str(path), "model-index", "the card reports no results", rows=0)
        return result
    for position, model in enumerate(index):
        if not isinstance(model, dict):
            result.fail(str(path), f"model-index[{position}]", "not a mapping", rows=0)
            continue
        name = str(model.get("name") or "not reported")
        by_source: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for number, entry in enumerate(common.listed(model.get("results"))):
            where = f"model-index[{position}].results[{number}]"
            _entry(entry, where, path, result, by_source)
        for (source, url), lines in by_source.items():
            result.logs.append(_log(card, name, source, url, lines, path, options))
        if by_source:
            result.models.append(_meta(card, options.model_id or name))
    return result


def _entry(
    entry: Any, where: str, path: Path, result: ImportResult, by_source: dict[tuple[str, str], list[dict[str, Any]]]
) -> None:
    if not isinstance(entry, dict):
        result.fail(str(path), where, "not a mapping", rows=0)
        return
    source = mapping(entry.get("source"))
    key = (str(source.get("name") or ""), str(source.get("url") or ""))
    for number, metric in enumerate(common.listed(entry.get("metrics"))):
        result.found += 1
        place = f"{where}.metrics[{number}]"
        value, unit = _value(metric.get("value") if isinstance(metric, dict) else None)
        if value is None:
            given = metric.get("value") if isinstance(metric, dict) else metric
            result.fail(str(path), place, common.why_not_a_score(given))
            continue
        by_source.setdefault(key, []).append(_result(entry, metric, value, unit))


def _value(given: Any) -> tuple[float | int | None, str | None]:
    if isinstance(given, str) and (match := _NUMBER.fullmatch(given.strip())):
        number = float(match.group(1))
        return (number if math.isfinite(number) else None), ("percent" if match.group(2) else None)
    return finite(given), None


def _result(entry: dict[str, Any], metric: dict[str, Any], value: float | int, unit: str | None) -> dict[str, Any]:
    dataset, task = mapping(entry.get("dataset")), mapping(entry.get("task"))
    # The hub's form offers "unknown" as a type; what was measured is then in the name.
    kind = str(next((said for said in (metric.get("type"), metric.get("name")) if said and said != "unknown"), "score"))
    shots = mapping(dataset.get("args")).get("num_few_shot")
    name = str(dataset.get("name") or dataset.get("type") or task.get("name") or "not reported")
    return {
        "evaluation_name": name,
        "source_data": {
            "dataset_name": name,
            "source_type": "hf_dataset" if dataset.get("type") else "other",
            **without_none(hf_repo=text_of(dataset.get("type")), hf_split=text_of(dataset.get("split"))),
        },
        "metric_config": {
            "metric_id": kind,
            "metric_name": str(metric.get("name") or kind),
            "lower_is_better": _LOWER.fullmatch(kind) is not None,
            **without_none(metric_unit=unit),
            "additional_details": strings(
                slice=text_of(dataset.get("config")) if dataset.get("config") not in (None, "default") else None,
                split=text_of(dataset.get("split")),
                num_fewshot=shots,
                direction="not reported",
            ),
        },
        "score_details": {"score": value},
        "generation_config": {
            "generation_args": {},
            "additional_details": strings(
                task_type=text_of(task.get("type")),
                dataset_revision=text_of(dataset.get("revision")),
                verified=metric.get("verified"),
                metric_config=text_of(metric.get("config")),
            ),
        },
    }


def _log(
    card: dict[str, Any], name: str, source: str, url: str, lines: list[dict[str, Any]], path: Path, options: Options
) -> Any:
    model = options.model_id or name
    developer = model.partition("/")[0] if "/" in model else ""
    log = common.make_log(
        evaluation_id=f"model-card/{model}/{source or 'self-reported'}",
        retrieved=common.file_time(path),
        evaluated=None,
        model=name,
        model_details=strings(licence=text_of(card.get("license")), base_model=text_of(card.get("base_model"))),
        library=("unknown", None),
        source_kind="documentation",
        options=options,
        results=lines,
        path=path,
        source_name=source or "model card",
        organisation=source or developer,
        relationship="third_party" if source else "first_party",
    )
    if url:
        log.document["source_metadata"]["source_organization_url"] = url
    return log


def _meta(card: dict[str, Any], model: str) -> ModelMeta:
    date = card.get("date") or card.get("release_date")
    released = date.isoformat() if isinstance(date, datetime.date) else text_of(date)
    return ModelMeta(
        id=model,
        name=model.rpartition("/")[2],
        developer=model.partition("/")[0] if "/" in model else None,
        licence=text_of(card.get("license")),
        released=released,
    )

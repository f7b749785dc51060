"""Leaderboards as CSV, by a mapping that says what its columns are.

The mapping is a mapping or a YAML or JSON file::

    model: Model                      # the column of model ids
    organisation: {value: Example Org}  # a constant, or a column: {column: Tested by}
    relationship: {value: third_party}
    scores:                           # wide: one column per score
      - {column: MMLU (5-shot), benchmark: MMLU, metric: accuracy, unit: percent, protocol: 5-shot}
      - {column: WER, benchmark: LibriSpeech, metric: wer, lower_is_better: true}
    generation_args: {temperature: {column: T}}

or, for one row per score (long), ``benchmark``, ``metric``, ``score``, ``unit`` ... as columns instead of ``scores``.
Cells are told apart by commas unless the mapping has another ``delimiter``. An empty cell is "not reported"; a cell
that is no number is a failure, and so is a line that has more or fewer cells than there are columns.
"""

from __future__ import annotations

import csv as csv_reader
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from evalcards.errors import InputError, SchemaError
from evalcards.importers import common
from evalcards.importers.common import ImportResult, Options, finite, strings, without_none
from evalcards.strict_json import too_large

_KEYS = {
    "model", "organisation", "relationship", "scores", "generation_args", "benchmark", "metric", "score", "unit",
    "lower_is_better", "min_score", "max_score", "protocol", "slice", "split", "standard_error", "samples", "library",
    "library_version", "evaluated", "source_name", "delimiter",
}  # fmt: skip
_MORE = "more cells than columns"
_ABSENT = {"", "-", "–", "—", "n/a", "na", "null", "none"}


def csv(path: str | Path, mapping: Mapping[str, Any] | str | Path, options: Options | None = None) -> ImportResult:
    """Read a leaderboard.

    Parameters
    ----------
    path
        The CSV file, UTF-8, with a header.
    mapping
        What the columns are; see the module.
    options
        What neither says.

    Returns
    -------
    ImportResult

    Raises
    ------
    InputError
        The mapping is not one, or names a column that is not there.
    """
    chosen = options or Options()
    found = common.existing(path)
    plan = read_mapping(mapping)
    if found.stat().st_size > chosen.max_bytes:
        raise too_large(str(path), found.stat().st_size, chosen.max_bytes)
    try:
        text = found.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError(str(path), f"not UTF-8 at byte {error.start}", hint="save it as UTF-8") from error
    lines = io.StringIO(text, newline="")
    reader = csv_reader.DictReader(lines, restkey=_MORE, strict=True, delimiter=str(plan.get("delimiter", ",")))
    result = ImportResult()
    try:
        _check_columns(plan, list(reader.fieldnames or []), str(path))
        for line in reader:
            more: Any = line.pop(_MORE, ())  # spreadsheets pad lines with empty cells
            if any(cell.strip() for cell in more) or None in line.values():
                cells = sum(value is not None for value in line.values()) + len(more)
                reason = f"{cells} of {len(reader.fieldnames or ())} cells"
                result.found += 1
                result.fail(str(path), f"line {reader.line_num}", reason)
                continue
            _line(line, reader.line_num, plan, found, chosen, result)
    except csv_reader.Error as error:
        result.fail(str(path), f"line {reader.line_num}", f"not CSV: {error}", rows=0)
    return result


def read_mapping(mapping: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Return what the columns of a CSV are; see the module.

    Parameters
    ----------
    mapping
        The mapping itself, or its YAML or JSON file.

    Raises
    ------
    InputError
        There is no such file, or it is no such mapping.
    """
    if isinstance(mapping, Mapping):
        plan = dict(mapping)
    else:
        try:
            plan = yaml.safe_load(Path(mapping).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"mapping {mapping}: {(error.strerror or str(error)).lower()}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"mapping {mapping}: not UTF-8 at byte {error.start}") from error
        except yaml.YAMLError as error:
            mark, said = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
            raise InputError(f"mapping {mapping}{place}: not YAML: {said or error}") from error
    if not isinstance(plan, dict) or "model" not in plan or not ({"scores", "score"} & plan.keys()):
        raise InputError(
            "a CSV mapping needs 'model', and 'scores' or 'score'", hint="see evalcards.importers.csv_table"
        )
    scores = plan.get("scores", [])
    if not isinstance(scores, list) or not all(isinstance(s, Mapping) and "column" in s for s in scores):
        raise InputError("CSV mapping, scores: want a list of mappings with 'column'")
    if not isinstance(plan.get("generation_args") or {}, Mapping):
        raise InputError("CSV mapping, generation_args: want a mapping of settings to columns")
    delimiter = plan.get("delimiter", ",")
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise InputError(f"CSV mapping, delimiter {delimiter!r}: want one character")
    unknown = sorted(set(plan) - _KEYS)
    if unknown:
        raise InputError(
            f"CSV mapping: unknown {', '.join(map(str, unknown))}", hint=f"known: {', '.join(sorted(_KEYS))}"
        )
    return plan


def _column(entry: Any) -> str | None:
    """Return the column that an entry of the mapping names, or None for a constant."""
    if isinstance(entry, Mapping):
        return str(entry["column"]) if "column" in entry else None
    return str(entry)


def _check_columns(plan: dict[str, Any], columns: list[str], path: str) -> None:
    entries = [(key, entry) for key, entry in plan.items() if key not in ("scores", "generation_args", "delimiter")]
    entries += [("scores", {"column": score.get("column")}) for score in plan.get("scores") or []]
    entries += [("generation_args", entry) for entry in (plan.get("generation_args") or {}).values()]
    for key, entry in entries:
        name = _column(entry)
        if name is None:
            continue
        if columns.count(name) > 1:
            raise InputError(f"{path}: {columns.count(name)} columns {name!r}, which the mapping names for {key}")
        if name not in columns:
            hint = f"columns: {', '.join(columns)}"
            if len(columns) == 1 and (other := next((mark for mark in ";\t|" if mark in columns[0]), None)):
                hint = f"the mapping's delimiter may be {other!r}"
            raise InputError(f"{path}: no column {name!r}, which the mapping names for {key}", hint=hint)


def _cell(line: Mapping[str, Any], entry: Any) -> Any:
    """Return a cell's text, or the constant; None if nothing is reported."""
    if entry is None:
        return None
    name = _column(entry)
    if name is None:
        return entry.get("value")
    text = (line.get(name) or "").strip()
    return None if text.lower() in _ABSENT else text


def _plain(value: Any) -> Any:
    """Read a cell as JSON where it is some, so that 0.7, true and null are what they look like."""
    if not isinstance(value, str):
        return value
    try:
        read = json.loads(value)
    except ValueError:
        return value
    return value if isinstance(read, float) and finite(read) is None else read


def _line(
    line: Mapping[str, Any], number: int, plan: dict[str, Any], path: Path, options: Options, result: ImportResult
) -> None:
    wide = "scores" in plan
    scores = plan["scores"] if wide else [{}]
    cells = []
    for score in scores:
        given = _cell(line, {"column": score["column"]} if wide else plan["score"])
        if given is not None:
            cells.append((score, given))
    result.found += len(cells)
    model = _cell(line, plan["model"])
    if model is None:
        if cells:
            result.fail(str(path), f"line {number}", "no model", rows=len(cells))
        return
    lines = []
    for score, given in cells:
        text = str(given).removesuffix("%").strip()
        value = finite(_plain(text))
        if value is None:
            where = f"line {number}, column {score.get('column') or _column(plan['score'])}"
            result.fail(str(path), where, f"{given!r} is not a number")
            continue
        percent = "percent" if str(given).endswith("%") else None
        lines.append(_result(line, score, value, percent, plan))
    if lines:
        try:
            result.logs.append(_log(line, number, str(model), lines, plan, path, options))
        except SchemaError as error:
            result.fail(str(path), f"line {number}", error.reason, rows=len(lines))


def _result(
    line: Mapping[str, Any], score: Mapping[str, Any], value: float | int, percent: str | None, plan: dict[str, Any]
) -> dict[str, Any]:
    def said(key: str) -> Any:
        return score[key] if key in score else _cell(line, plan.get(key))

    benchmark = str(said("benchmark") or score.get("column") or "not reported")
    uncertainty = without_none(num_samples=finite(_plain(said("samples"))))
    error = finite(_plain(said("standard_error")))
    if error is not None:
        uncertainty["standard_error"] = {"value": error}
    arguments = {key: _plain(_cell(line, entry)) for key, entry in (plan.get("generation_args") or {}).items()}
    lower = _plain(said("lower_is_better"))
    return {
        "evaluation_name": benchmark,
        "source_data": {
            "dataset_name": benchmark,
            "source_type": "other",
            **without_none(hf_split=said("split")),
        },
        "metric_config": {
            **without_none(metric_id=said("metric"), metric_name=said("metric"), metric_unit=said("unit") or percent,
                           min_score=_plain(said("min_score")), max_score=_plain(said("max_score"))),
            "lower_is_better": lower is True,
            "additional_details": strings(
                protocol=said("protocol"), slice=said("slice"), split=said("split"),
                direction=None if isinstance(lower, bool) else "not reported",
            ),
        },
        "score_details": {"score": value, **({"uncertainty": uncertainty} if uncertainty else {})},
        "generation_config": {"generation_args": without_none(**arguments)},
    }  # fmt: skip


def _log(
    line: Mapping[str, Any], number: int, model: str, lines: list[dict[str, Any]], plan: dict[str, Any], path: Path,
    options: Options,
) -> Any:  # fmt: skip
    evaluated = _cell(line, plan.get("evaluated"))
    return common.make_log(
        evaluation_id=f"csv/{path.stem}/{model}/{number}",
        retrieved=common.file_time(path),
        evaluated=None if evaluated is None else str(evaluated),
        model=model,
        model_details={},
        library=(str(_cell(line, plan.get("library")) or "unknown"), _cell(line, plan.get("library_version"))),
        source_kind="documentation",
        options=options,
        results=lines,
        path=path,
        source_name=_cell(line, plan.get("source_name")) or path.stem,
        organisation=_cell(line, plan.get("organisation")),
        relationship=_cell(line, plan.get("relationship")),
    )

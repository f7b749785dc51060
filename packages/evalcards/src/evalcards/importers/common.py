"""What all importers share: their result, the caller's options, and the making of an EEE log."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from evalcards.errors import ImportFailure, InputError, SchemaError
from evalcards.schema import NOT_REPORTED, SCHEMA_VERSION, EvalLog, ModelMeta, read_log
from evalcards.semantics import timestamp
from evalcards.signals.comparability import number
from evalcards.strict_json import MAX_BYTES

_MOST_TEXT = 4000
"""Characters kept of a sample's input; of each answer, half."""


@dataclasses.dataclass(frozen=True)
class Options:
    """What the caller knows and the file does not say.

    Attributes
    ----------
    model_id
        Replaces the file's own model id; both are recorded.
    organisation, relationship
        Who ran it, and ``first_party``, ``third_party``, ``collaborative`` or ``other``; None is not reported.
    max_bytes
        The most that is read from one file, or unpacked from one member of an archive.
    """

    model_id: str | None = None
    organisation: str | None = None
    relationship: str | None = None
    max_bytes: int = MAX_BYTES


@dataclasses.dataclass
class ImportResult:
    """What was read.

    Attributes
    ----------
    logs : list of EvalLog
        The records.
    failures : list of ImportFailure
        Results, and whole files, that did not become rows.
    found : int
        Results met in the files; always ``rows + failed``.
    instances : dict
        Evaluation id to instance records.
    models : list of ModelMeta
        What the files say of models.
    notices : list of str
        How something was read, and what was no result.
    """

    logs: list[EvalLog] = dataclasses.field(default_factory=list)
    failures: list[ImportFailure] = dataclasses.field(default_factory=list)
    found: int = 0
    instances: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    models: list[ModelMeta] = dataclasses.field(default_factory=list)
    notices: list[str] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        """Results that became rows."""
        return sum(len(log.evaluation_results) for log in self.logs)

    @property
    def failed(self) -> int:
        """Results that did not."""
        return sum(failure.rows for failure in self.failures)

    def fail(self, path: str, where: str, reason: str, rows: int = 1) -> None:
        """Note that a result, or with ``rows=0`` a file without results, did not become a row."""
        self.failures.append(ImportFailure(path, where, reason, rows))

    def extend(self, other: ImportResult) -> None:
        """Add what another file gave."""
        self.logs += other.logs
        self.failures += other.failures
        self.found += other.found
        for evaluation, samples in other.instances.items():
            self.instances.setdefault(evaluation, []).extend(samples)
        self.models += other.models
        self.notices += other.notices


def each_file(paths: Iterable[Path], read: Callable[[Path], ImportResult]) -> ImportResult:
    """Read files one after another; one that cannot be read is a failure, not the end."""
    result = ImportResult()
    for path in paths:
        try:
            result.extend(read(path))
        except SchemaError as error:
            refuse(result, path, error)
    return result


def refuse(result: ImportResult, path: Path, error: SchemaError, where: str = "") -> None:
    """Note that a file, or a place in it, cannot be read."""
    place = where or ("" if error.line is None else f"line {error.line}, column {error.column}")
    result.fail(str(path), place, error.reason + (f"; {error.hint}" if error.hint else ""), rows=0)


def read_tree(path: str | Path, patterns: tuple[str, ...], read: Callable[[Path], ImportResult]) -> ImportResult:
    """Read one file, or every file below a folder that matches one of the patterns.

    Raises
    ------
    InputError
        There is no such file or folder.
    """
    found = existing(path)
    files = {file for pattern in patterns for file in found.rglob(pattern)} if found.is_dir() else {found}
    return each_file(sorted(files), read)


def finite(value: Any) -> float | int | None:
    """Return a number as it is; None for what is none: text, bool, NaN, infinities."""
    return None if number(value) is None else value


def why_not_a_score(value: Any) -> str:
    """Say why a value is no score."""
    if value is None:
        return "no value"
    if isinstance(value, float):
        return f"the value is {value}"
    return f"the value is {str(value)[:60]!r}, not a number"


def mapping(value: Any) -> dict[str, Any]:
    """Return a value if it is an object; an empty one if it is anything else."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """Return a value if it is an array; an empty one if it is anything else."""
    return value if isinstance(value, list) else []


def text_of(value: Any) -> str | None:
    """Return a value if it is a text that says something."""
    return value if isinstance(value, str) and value else None


def without_none(**values: Any) -> dict[str, Any]:
    """Return the values that are there: what is not reported stays out of the record."""
    return {key: value for key, value in values.items() if value is not None}


def strings(**values: Any) -> dict[str, str]:
    """Return values as the strings that ``additional_details`` wants, without those that are not there."""
    found = {}
    for key, value in values.items():
        if value is not None:
            found[key] = (
                value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
            )
    return found


def iso(seconds: float | int | None) -> str | None:
    """Return Unix seconds as ISO 8601 in UTC; None for none, or for seconds in no year of the calendar."""
    try:
        return (
            None
            if seconds is None
            else datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
        )
    except (OverflowError, ValueError, OSError):
        return None


def file_time(path: Path) -> str:
    """Return the file's time, the only one a file without dates has, as Unix seconds."""
    return str(int(path.stat().st_mtime))


def looks_local(model: str) -> bool:
    """Tell whether a model id is a path on somebody's disk."""
    return model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1


def make_log(
    *,
    evaluation_id: str,
    retrieved: str,
    evaluated: str | None,
    model: str,
    model_details: dict[str, str],
    library: tuple[str, str | None],
    source_kind: str,
    options: Options,
    results: list[dict[str, Any]],
    path: Path,
    source_name: str | None = None,
    organisation: str | None = None,
    relationship: str | None = None,
    more: dict[str, Any] | None = None,
) -> EvalLog:
    """Put an EEE log together and check it.

    What the caller says of model and organisation goes before what the file says; the file's own model id is kept. The
    record counts as made when the run was, so that a copied file with a new date gives the same record.
    """
    moment, _ = timestamp(evaluated)
    details = {"deployment_type": "unknown", "model_availability": "unknown", **model_details}
    chosen = options.model_id or model
    if options.model_id:
        details["reported_id"] = model
    party = options.organisation or organisation
    relation = options.relationship if options.organisation or not relationship else relationship
    # The schema wants both; what it makes us write in their place must not count as reported.
    stated = {"source_organization_name": party, "evaluator_relationship": relation}
    unstated = ", ".join(key for key, value in stated.items() if not value)
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": evaluation_id,
        **without_none(evaluation_timestamp=evaluated),
        "retrieved_timestamp": retrieved if moment is None else str(int(moment.timestamp())),
        "source_metadata": {
            **without_none(source_name=source_name),
            "source_type": source_kind,
            "source_organization_name": party or "",
            "evaluator_relationship": relation or "other",
            **({"additional_details": {NOT_REPORTED: unstated}} if unstated else {}),
        },
        "model_info": {
            "name": chosen.rpartition("/")[2] or chosen,
            "id": chosen,
            **without_none(developer=chosen.partition("/")[0] if "/" in chosen and not looks_local(chosen) else None),
            "additional_details": details,
        },
        "eval_library": {"name": library[0], "version": library[1] or "unknown"},
        "evaluation_results": results,
        **(more or {}),
    }
    return read_log(document, str(path))


def instance_record(
    evaluation: str,
    model: str,
    name: str,
    sample: Any,
    *,
    prompt: Any,
    references: Iterable[Any],
    answers: Iterable[Any],
    score: float | int | None,
    turns: str = "single_turn",
    sample_hash: Any = None,
    **judged: Any,
) -> dict[str, Any]:
    """Put an instance record of the EEE schema together; long texts are cut, they are for looking at."""
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": evaluation,
        "model_id": model,
        "evaluation_name": name,
        "sample_id": str(sample),
        "sample_hash": text_of(sample_hash),
        "interaction_type": turns,
        "input": {"raw": str(prompt or "")[:_MOST_TEXT], "reference": [str(r)[:_MOST_TEXT] for r in references]},
        "output": {"raw": [str(answer)[: _MOST_TEXT // 2] for answer in answers]},
        "answer_attribution": [],
        "evaluation": {"score": score, "is_correct": None if score is None else score == 1, **judged},
    }


def need_mapping(document: Any, path: Path, what: str) -> dict[str, Any]:
    """Return the document if it is an object.

    Raises
    ------
    SchemaError
        It is something else.
    """
    if not isinstance(document, dict):
        raise SchemaError(str(path), f"not {what}: want a JSON object")
    return document


def existing(path: str | Path) -> Path:
    """Return the path of something that is there.

    Raises
    ------
    InputError
        There is no such file or folder.
    """
    found = Path(path)
    if not found.exists():
        raise InputError(f"{path}: no such file or folder")
    return found

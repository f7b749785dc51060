"""The records: Every Eval Ever logs, benchmark cards, model metadata, and what is wrong with them.

The models check the keys that the schema requires and leave all others as they are, so that unknown keys survive a
round trip; the document itself is kept beside the checked form and is what is stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
)

from evalcards.errors import SchemaError

SCHEMA_VERSION = "0.3.0"
NOT_REPORTED = "not_reported"
"""In ``source_metadata.additional_details``: the required keys that an importer had to fill without being told."""

_KNOWN = re.compile(r"0\.(?:2\.\d+|3\.0)")

Number = StrictInt | StrictFloat
Bound = Number | Literal["Infinity", "-Infinity"] | None


class Issue(NamedTuple):
    """Something to tell about a record.

    Attributes
    ----------
    level : str
        ``error``: refused; ``warning``: kept and flagged; ``notice``: how something was read.
    path : str
        The place, for example ``evaluation_results[3].score_details.score``.
    message : str
        What is the matter.
    """

    level: str
    path: str
    message: str


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class SourceMetadata(_Open):
    """Who provides the data and how they relate to the model."""

    source_type: Literal["documentation", "evaluation_run"]
    source_organization_name: StrictStr | None
    evaluator_relationship: Literal["first_party", "third_party", "collaborative", "other"] | None
    additional_details: dict[str, Any] | None = None


class ModelInfo(_Open):
    """The model as the source names it."""

    name: StrictStr
    id: Annotated[StrictStr, Field(min_length=1)]
    developer: StrictStr | None = None
    additional_details: dict[str, Any] | None = None


class EvalLibrary(_Open):
    """The harness."""

    name: StrictStr
    version: StrictStr


class SourceData(_Open):
    """The data set."""

    dataset_name: StrictStr
    source_type: StrictStr
    hf_split: StrictStr | None = None


class MetricConfig(_Open):
    """The metric: unit, direction and bounds."""

    lower_is_better: StrictBool
    metric_id: StrictStr | None = None
    metric_name: StrictStr | None = None
    metric_unit: StrictStr | None = None
    score_type: Literal["binary", "continuous", "levels"] | None = None
    min_score: Bound = None
    max_score: Bound = None
    additional_details: dict[str, Any] | None = None


class ScoreDetails(_Open):
    """The score and how certain it is."""

    score: Number
    uncertainty: dict[str, Any] | None = None


class GenerationConfig(_Open):
    """The settings of the run."""

    generation_args: dict[str, Any] | None = None
    additional_details: dict[str, Any] | None = None


class EvalResult(_Open):
    """One metric of one benchmark: a row."""

    evaluation_name: Annotated[StrictStr, Field(min_length=1)]
    source_data: SourceData
    metric_config: MetricConfig
    score_details: ScoreDetails
    generation_config: GenerationConfig | None = None


class EvalLog(_Open):
    """One run or one leaderboard entry in the Every Eval Ever schema, 0.2.x or 0.3.0.

    `document` gives the JSON it was made from, unknown keys and all.
    """

    schema_version: StrictStr
    evaluation_id: Annotated[StrictStr, Field(min_length=1)]
    retrieved_timestamp: StrictStr
    source_metadata: SourceMetadata
    model_info: ModelInfo
    eval_library: EvalLibrary | None = None
    evaluation_results: list[EvalResult]
    _document: dict[str, Any] = PrivateAttr(default_factory=dict)
    _issues: tuple[Issue, ...] = PrivateAttr(default=())

    @property
    def document(self) -> dict[str, Any]:
        """The record as it is stored and exported."""
        return self._document or self.model_dump(exclude_unset=True)

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What reading it had to tell."""
        return self._issues


class BenchmarkCard(_Open):
    """A benchmark's card, in the sections of Auto-BenchmarkCard; aliases say under which names harnesses run it."""

    benchmark_details: dict[str, Any]
    purpose_and_intended_users: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    methodology: dict[str, Any] | None = None
    ethical_and_legal_considerations: dict[str, Any] | None = None
    possible_risks: Any = None
    family: StrictStr | None = None
    category: StrictStr | None = None
    aliases: list[StrictStr] = []
    evalcards: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return str(self.benchmark_details["name"])


class ModelMeta(_Open):
    """What is known of a model apart from its scores; a field that is not set is not reported."""

    id: Annotated[StrictStr, Field(min_length=1)]
    name: StrictStr | None = None
    developer: StrictStr | None = None
    released: StrictStr | None = None
    parameters: StrictStr | None = None
    licence: StrictStr | None = None
    weights: Literal["open", "closed"] | None = None
    url: StrictStr | None = None
    aliases: list[StrictStr] = []


class Triple(NamedTuple):
    """A result triple: canonical model, metric path, metric; the rows of one triple may be compared.

    Attributes
    ----------
    model : str
        Canonical id.
    path : str
        ``family/composite/benchmark/slice@split/protocol``; empty levels are ``-``.
    metric : str
        Metric and unit, for example ``accuracy:proportion``.
    benchmark : str
        Slug of the benchmark.
    rows : int
        How many results report it.
    """

    model: str
    path: str
    metric: str
    benchmark: str
    rows: int


def _describe(error: ValidationError) -> Iterator[Issue]:
    """Yield each fault once: a value that may be of several kinds is refused once by pydantic for each of them."""
    told: set[str] = set()
    for entry in error.errors(include_url=False):
        path = ""
        for part in entry["loc"]:
            if isinstance(part, int):
                path += f"[{part}]"
            elif not re.fullmatch(r"(?:int|float|literal\[.*\]|none|str)", str(part)):
                path += f".{part}" if path else str(part)
        if path in told:
            continue
        told.add(path)
        message = "required, but missing" if entry["type"] == "missing" else entry["msg"]
        if entry["type"] in ("int_type", "float_type"):
            given = entry["input"]
            message = f"want a number, not {'null' if given is None else json.dumps(given, default=str)[:40]}"
        yield Issue("error", path, message)


def _string_details(value: Any, path: str, issues: list[Issue]) -> Any:
    """Make the values of ``additional_details`` the strings that the schema wants, and say so."""
    if isinstance(value, str) or value is None:
        return value
    issues.append(Issue("warning", path, f"{type(value).__name__} where a string is due, stored as its JSON"))
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _holders(document: Mapping[str, Any]) -> Iterator[tuple[Any, str, str]]:
    """Yield (holder, key, path) of each mapping whose values the schema wants as strings."""
    for part in ("source_metadata", "eval_library", "model_info"):
        yield document.get(part), "additional_details", part
    results = document.get("evaluation_results")
    for index, result in enumerate(results if isinstance(results, list) else []):
        if isinstance(result, dict):
            for part in ("source_data", "metric_config", "generation_config"):
                yield result.get(part), "additional_details", f"evaluation_results[{index}].{part}"
            yield result.get("score_details"), "details", f"evaluation_results[{index}].score_details"


def _coerce(document: dict[str, Any], issues: list[Issue]) -> dict[str, Any]:
    """Return the document with string details; a copy if anything had to change."""
    wrong = False
    for holder, key, _ in _holders(document):
        details = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(details, dict) and any(not isinstance(v, str) and v is not None for v in details.values()):
            wrong = True
            break
    if not wrong:
        return document
    document = json.loads(json.dumps(document))
    for holder, key, path in _holders(document):
        details = holder.get(key) if isinstance(holder, dict) else None
        if isinstance(details, dict):
            holder[key] = {
                name: _string_details(value, f"{path}.{key}.{name}", issues) for name, value in details.items()
            }
    return document


def read_log(document: Any, path: str = "<record>") -> EvalLog:
    """Check a log and keep its document.

    Parameters
    ----------
    document
        Parsed JSON.
    path
        The file's name, for errors.

    Returns
    -------
    EvalLog
        Its `issues` say what was coerced or assumed.

    Raises
    ------
    SchemaError
        A required key is missing or of the wrong kind; the first fault is named, and how many more there are.
    """
    if not isinstance(document, dict):
        raise SchemaError(path, "want a JSON object")
    issues: list[Issue] = []
    version = document.get("schema_version")
    if isinstance(version, str) and not _KNOWN.fullmatch(version):
        issues.append(Issue("notice", "schema_version", f"unknown version {version!r}, read as {SCHEMA_VERSION}"))
    document = _coerce(document, issues)
    try:
        log = EvalLog.model_validate(document)
    except ValidationError as error:
        faults = list(_describe(error))
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        raise SchemaError(path, f"{faults[0].path}: {faults[0].message}{more}") from error
    for key, value in (
        ("eval_library", log.eval_library),
        ("model_info.additional_details", log.model_info.additional_details),
    ):
        if value is None:
            # The first records of 0.2 were written before these were required.
            if not str(version).startswith("0.2"):
                raise SchemaError(path, f"{key}: required, but missing")
            issues.append(Issue("notice", key, "not reported"))
    log._document, log._issues = document, tuple(issues)
    return log


def validate(obj: Any, semantic: bool = True) -> list[Issue]:
    """List what is wrong with a log.

    Parameters
    ----------
    obj
        Parsed JSON, or a path to a JSON file.
    semantic
        Also look at what well-formed values say: scores outside their bounds, times without zone.

    Returns
    -------
    list of Issue
        Empty for a clean record. Issues of level ``error`` mean that it would be refused.

    Raises
    ------
    SchemaError
        A path whose file is no JSON.
    """
    from evalcards import semantics, strict_json

    if isinstance(obj, (str, Path)):
        obj = strict_json.read(Path(obj))
    try:
        log = read_log(obj)
    except SchemaError as error:
        cause = error.__cause__
        if isinstance(cause, ValidationError):
            return list(_describe(cause))
        return [Issue("error", "", error.reason)]
    return [*log.issues, *(semantics.semantic_issues(log) if semantic else ())]

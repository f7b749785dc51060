"""Turn a log into the rows of the store: one row per result, in columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from evalcards.evidence import evidence_of
from evalcards.hierarchy import BenchmarkIndex, Place
from evalcards.identity import ModelIndex
from evalcards.schema import NOT_REPORTED, BenchmarkCard, EvalLog, Issue
from evalcards.semantics import log_issues, result_issues, standard_error
from evalcards.signals.comparability import SETUP_FIELDS, canonical_setting, number, threshold
from evalcards.signals.provenance import organisation, source_type
from evalcards.signals.reproducibility import BIT, agentic_card, agentic_name
from evalcards.signals.slots import SLOTS, SlotReport, reproducibility_slots
from evalcards.strict_json import canonical

_TEXT, _FLOAT, _INT, _BOOL = pa.string(), pa.float64(), pa.int32(), pa.bool_()

LOG_COLUMNS = {
    "log_id": _TEXT, "evaluation_id": _TEXT, "document": _TEXT, "raw_model": _TEXT, "model_name": _TEXT,
    "organisation_name": _TEXT, "organisation_url": _TEXT, "relationship": _TEXT, "source_kind": _TEXT,
    "library": _TEXT, "library_version": _TEXT, "evaluated": _TEXT, "origin": _TEXT, "issues": _TEXT,
}  # fmt: skip
"""Columns of ``logs``; the document is the whole record."""

ROW_COLUMNS = {
    "row_id": _TEXT, "log_id": _TEXT, "result_index": _INT, "group_id": _INT, "evaluation_id": _TEXT,
    "score": _FLOAT, "unit": _TEXT, "min_score": _FLOAT, "max_score": _FLOAT, "lower_is_better": _BOOL,
    "tau": _FLOAT, "basis": _TEXT, "standard_error": _FLOAT, "samples": pa.int64(),
    "source_type": _TEXT, "organisation": _INT, "agentic": _BOOL, "populated": _INT,
    **{f"setup_{field}": _INT for field in SETUP_FIELDS},
    "args": _TEXT, "slots": _TEXT, "slots_disclosed": _INT, "slots_applicable": _INT, "flags": _TEXT,
}  # fmt: skip
"""Columns of ``results``: a setup column holds the code of the setting's canonical JSON."""

GROUP_COLUMNS = {
    "group_id": _INT, "link": _TEXT, "model_id": _TEXT, "resolution": _TEXT, "family": _TEXT, "composite": _TEXT,
    "benchmark": _TEXT, "slice": _TEXT, "split": _TEXT, "protocol": _TEXT, "metric": _TEXT, "path": _TEXT,
    "benchmark_name": _TEXT, "slice_name": _TEXT, "protocol_name": _TEXT, "metric_name": _TEXT, "category": _TEXT,
}  # fmt: skip
"""Columns of ``groups``: one line per result triple."""


def log_id(document: Mapping[str, Any]) -> str:
    """Return the identity of a record: the SHA-256 of its canonical JSON, so that importing it again adds nothing."""
    return hashlib.sha256(canonical(document).encode()).hexdigest()


class Codes:
    """Small integers for texts, in order of first appearance; what is new since the last `take_new` can be stored."""

    def __init__(self, known: Iterable[tuple[int, str]] = ()) -> None:
        self._code = {text: code for code, text in known}
        self._new: list[tuple[int, str]] = []

    def __getitem__(self, text: str) -> int:
        code = self._code.get(text)
        if code is None:
            code = self._code[text] = len(self._code)
            self._new.append((code, text))
        return code

    def take_new(self) -> list[tuple[int, str]]:
        """Return (code, text) of what was added, and forget that it is new."""
        new, self._new = self._new, []
        return new


class Encoder:
    """Make the store's rows from logs, with the dictionaries that all rows share.

    Parameters
    ----------
    models, cards
        What names are resolved against.
    settings, organisations
        Codes of setup values and of organisations' names.
    groups
        Known triples: (model, path, metric) to group id.
    """

    def __init__(
        self,
        models: ModelIndex,
        cards: Mapping[str, BenchmarkCard],
        settings: Codes,
        organisations: Codes,
        groups: Mapping[tuple[str, str, str], int],
    ) -> None:
        self.models, self.settings, self.organisations = models, settings, organisations
        self.benchmarks = BenchmarkIndex(cards.values())
        self._cards = {card.name: card for card in cards.values()}
        self._groups = dict(groups)
        self._agentic: dict[str, bool] = {}
        self._reports: dict[str, SlotReport] = {}
        self._null = settings["null"]
        self.start()

    def start(self) -> None:
        """Begin a new batch."""
        self._reports.clear()
        self.logs: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []

    def add(self, log: EvalLog, identity: str, origin: str = "") -> int:
        """Encode one log and return how many rows it has."""
        document = log.document
        source = _reported(document["source_metadata"])
        library = document.get("eval_library") or {}
        model, resolution = self.models.resolve(log.model_info.id)
        party = organisation(source.get("source_organization_name"))
        shared = {
            "log_id": identity,
            "evaluation_id": log.evaluation_id,
            "source_type": source_type(source.get("evaluator_relationship")),
            "organisation": None if party is None else self.organisations[party],
        }
        issues = [*log.issues, *log_issues(log)]
        for index, result in enumerate(log.evaluation_results):
            raw = document["evaluation_results"][index]
            place = self.benchmarks.place(raw)
            found = list(result_issues(result, f"evaluation_results[{index}]"))
            issues += found
            self.rows.append(
                {
                    **shared,
                    "row_id": f"{identity[:16]}-{index}",
                    "result_index": index,
                    "group_id": self._group(model, resolution, place),
                    **self._measured(result, found),
                    **self._settings(raw, document, place),
                }
            )
        self.logs.append(
            {
                "log_id": identity,
                "evaluation_id": log.evaluation_id,
                "document": json.dumps(document, ensure_ascii=False),
                "raw_model": log.model_info.id,
                "model_name": log.model_info.name,
                "organisation_name": source.get("source_organization_name"),
                "organisation_url": _text(source.get("source_organization_url")),
                "relationship": source.get("evaluator_relationship"),
                "source_kind": source.get("source_type"),
                "library": library.get("name"),
                "library_version": library.get("version"),
                "evaluated": _text(document.get("evaluation_timestamp")),
                "origin": origin,
                "issues": canonical([issue._asdict() for issue in issues]) if issues else None,
            }
        )
        return len(log.evaluation_results)

    def _measured(self, result: Any, issues: list[Issue]) -> dict[str, Any]:
        metric = result.metric_config
        tau, basis = threshold(metric)
        uncertainty = result.score_details.uncertainty or {}
        return {
            "score": number(result.score_details.score),
            "unit": metric.metric_unit,
            "min_score": number(metric.min_score),
            "max_score": number(metric.max_score),
            "lower_is_better": metric.lower_is_better,
            "tau": tau,
            "basis": basis,
            "standard_error": standard_error(result),
            "samples": _count(uncertainty.get("num_samples")),
            "flags": "; ".join(issue.message for issue in issues) or None,
        }

    def _slots(self, raw: Mapping[str, Any], document: Mapping[str, Any]) -> SlotReport:
        """Return the row's slots; rows of a run mostly disclose the same, so answers are kept by what they rest on."""
        source, metric = raw.get("source_data") or {}, raw["metric_config"].get("additional_details") or {}
        uncertainty = raw["score_details"].get("uncertainty") or {}
        rests_on = [raw.get(name) for name in ("generation_config", "protocol", "scoring_mode")]
        rests_on += [source.get("samples_number"), source.get("hf_split"), metric.get("split")]
        key = canonical_setting([*rests_on, document.get("eval_library"), uncertainty.get("num_samples")])
        found = self._reports.get(key)
        if found is None:
            found = self._reports[key] = reproducibility_slots(evidence_of(raw, document))
        return found

    def _settings(self, raw: Mapping[str, Any], document: Mapping[str, Any], place: Place) -> dict[str, Any]:
        arguments = (raw.get("generation_config") or {}).get("generation_args") or {}
        report = self._slots(raw, document)
        name = place.benchmark_name
        if name not in self._agentic:
            card = self._cards.get(name)
            self._agentic[name] = agentic_name(name) or agentic_card(card.model_dump() if card else None)
        setup = {
            f"setup_{field}": self._null if (value := arguments.get(field)) is None
            else self.settings[canonical_setting(value)]
            for field in SETUP_FIELDS
        }  # fmt: skip
        return {
            "agentic": self._agentic[name] or arguments.get("agentic_eval_config") is not None,
            "populated": sum(bit for field, bit in BIT.items() if arguments.get(field) is not None),
            **setup,
            "args": canonical_setting(arguments),
            "slots": "".join(report.slots[slot][0] for slot in SLOTS),
            "slots_disclosed": report.disclosed,
            "slots_applicable": report.applicable,
        }

    def _group(self, model: str, resolution: str, place: Place) -> int:
        key = (model, place.path, place.metric)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = len(self._groups)
            card = self._cards.get(place.benchmark_name)
            self.groups.append(
                {
                    **{name: value for name, value in place._asdict().items() if name in GROUP_COLUMNS},
                    "group_id": group,
                    "link": hashlib.blake2b(canonical(key).encode(), digest_size=8).hexdigest(),
                    "model_id": model,
                    "resolution": resolution,
                    "path": place.path,
                    "category": (card.category if card else None) or "uncategorised",
                }
            )
        return group

    def tables(self) -> dict[str, pa.Table]:
        """Return the batch as Arrow tables by the name of the store's table."""
        batch = {
            "logs": (self.logs, LOG_COLUMNS),
            "results": (self.rows, ROW_COLUMNS),
            "groups": (self.groups, GROUP_COLUMNS),
        }
        return {
            table: pa.table({name: pa.array([line[name] for line in lines], kind) for name, kind in columns.items()})
            for table, (lines, columns) in batch.items()
        }


def _reported(source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the source's metadata without what an importer had to write in the place of something unknown."""
    unstated = str((source.get("additional_details") or {}).get(NOT_REPORTED, "")).split(", ")
    return {key: value for key, value in source.items() if key not in unstated}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**62
    return value if good else None

"""May these two scores be compared? For two models on one benchmark: yes, or what stands in the way, with the rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcards.errors import UnitMismatch, UnknownModel
from evalcards.signals.comparability import SETUP_FIELDS, canonical_setting
from evalcards.signals.slots import SLOTS
from evalcards.significance import error_of, z_test

if TYPE_CHECKING:
    from evalcards.store import Store

VERDICTS = ("comparable", "differs in setup", "insufficient disclosure", "unit mismatch")
"""From best to worst."""


class Comparison(NamedTuple):
    """Two rows side by side.

    Attributes
    ----------
    verdict : str
        One of `VERDICTS`.
    metric : str
        The metric's name.
    differences : dict
        What differs: setup fields, protocol, few-shot count, prompt, chat template, harness, to the two values.
    undisclosed : tuple of str
        What one or both rows do not disclose and would have to.
    a, b : dict
        The rows.
    difference : float or None
        a - b where the units agree.
    p : float or None
        Two-sided p-value of the difference where standard errors are known.
    """

    verdict: str
    metric: str
    differences: dict[str, tuple[Any, Any]]
    undisclosed: tuple[str, ...]
    a: dict[str, Any]
    b: dict[str, Any]
    difference: float | None
    p: float | None


def score_difference(a: dict[str, Any], b: dict[str, Any]) -> float | None:
    """Return the difference of two rows' scores; None if one has no score.

    Raises
    ------
    UnitMismatch
        The rows state different units; nothing is ever rescaled.
    """
    if a["unit"] != b["unit"]:
        ours, theirs = (unit or "no unit" for unit in (a["unit"], b["unit"]))
        scores = ["no number" if row["score"] is None else f"{row['score']:g}" for row in (a, b)]
        raise UnitMismatch(f"{scores[0]} ({ours}) and {scores[1]} ({theirs}) have no difference",
                           hint="scores are never rescaled; find both in one unit")  # fmt: skip
    return None if a["score"] is None or b["score"] is None else a["score"] - b["score"]


def _rows(store: Store, model: str, benchmark: str) -> list[dict[str, Any]]:
    lines = store.records(
        """SELECT results.row_id, link, model_id, benchmark_name, slice, slice_name, split, protocol, protocol_name,
        metric, metric_name, score, unit, standard_error, samples, args, slots, lower_is_better, organisation_name,
        relationship, library, library_version, logs.document, result_index
        FROM results JOIN groups USING (group_id) JOIN logs USING (log_id)
        WHERE model_id = ? AND benchmark = ? ORDER BY path, metric, row_id""",
        [model, benchmark],
    )
    for line in lines:
        line["args"] = json.loads(line["args"])
        result = json.loads(line.pop("document"))["evaluation_results"][line["result_index"]]
        line["details"] = (result.get("generation_config") or {}).get("additional_details") or {}
    return lines


_DETAILS = {
    "few-shot examples": "num_fewshot",
    "chat template": "chat_template_sha",
    "task version": "task_version",
    "method": "method",
    "samples": "n_samples",
    "reasoning effort": "reasoning_effort",
}


def _differences(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    found: dict[str, tuple[Any, Any]] = {}
    for field in SETUP_FIELDS:
        pair = a["args"].get(field), b["args"].get(field)
        if canonical_setting(pair[0]) != canonical_setting(pair[1]):
            found[field] = pair
    for name, key in (("protocol", "protocol_name"), ("split", "split")):
        if a[key] != b[key]:
            found[name] = a[key], b[key]
    for name, key in _DETAILS.items():
        pair = a["details"].get(key), b["details"].get(key)
        if pair[0] != pair[1]:
            found[name] = pair
    harness = tuple(f"{row['library']} {row['library_version']}" for row in (a, b))
    if harness[0] != harness[1]:
        found["harness"] = harness  # ty: ignore[invalid-assignment]
    return found


def _undisclosed(row: dict[str, Any]) -> list[str]:
    """Return the slots that apply to a row and are missing, without those about the harness's version."""
    return [slot for slot, state in zip(SLOTS, row["slots"], strict=True) if state == "m"]


def _pair(a: dict[str, Any], b: dict[str, Any]) -> Comparison:
    differences = _differences(a, b)
    missing = tuple(slot for slot in SLOTS if slot in {*_undisclosed(a), *_undisclosed(b)})
    p = None
    try:
        difference = score_difference(a, b)
    except UnitMismatch:
        verdict, difference = "unit mismatch", None
    else:
        errors = [error_of(row["score"], row["standard_error"], row["samples"], row["unit"]) for row in (a, b)]
        if difference is not None and errors[0] is not None and errors[1] is not None:
            p = z_test(a["score"], errors[0], b["score"], errors[1])[1]
        verdict = "comparable"
        telling = {name: pair for name, pair in differences.items() if name not in ("harness", "samples")}
        if any(x is not None and y is not None for x, y in telling.values()):
            verdict = "differs in setup"
        elif telling or {"decoding", "length"} & set(missing):
            # What only one of them reports may or may not be the same.
            verdict = "insufficient disclosure"
    return Comparison(verdict, a["metric_name"], differences, missing, a, b, difference, p)


def compare(store: Store, a: str, b: str, on: str) -> list[Comparison]:
    """Set the results of two models on one benchmark side by side.

    Parameters
    ----------
    store
        The store.
    a, b
        Models; names are resolved as on import.
    on
        The benchmark.

    Returns
    -------
    list of Comparison
        For each pair of rows of the same slice and metric, the best verdict first; of pairs with the same verdict those
        with fewer differences first.

    Raises
    ------
    UnknownModel
        No such model or benchmark, or one of the models has no result on it.
    """
    first, second = store.find_model(a), store.find_model(b)
    benchmark = store.find_benchmark(on)
    ours, theirs = _rows(store, first, benchmark), _rows(store, second, benchmark)
    for model, rows in ((first, ours), (second, theirs)):
        if not rows:
            raise UnknownModel(f"{model} has no result on {on}", hint="evalcards monitor shows what it has")
    pairs = [
        _pair(x, y) for x in ours for y in theirs if x["slice"] == y["slice"] and x["metric_name"] == y["metric_name"]
    ]
    if not pairs:
        raise UnknownModel(f"{first} and {second} share no slice and metric of {on}")
    return sorted(pairs, key=lambda c: (VERDICTS.index(c.verdict), len(c.differences), c.a["row_id"], c.b["row_id"]))

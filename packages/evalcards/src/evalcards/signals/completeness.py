r"""Signal 2: how much of what a reader needs to know about a benchmark is written down.

Each of the 28 fields scores 1 if it is populated and 0 if not; a field with sub-items scores the share of them that is
populated. For a benchmark :math:`b`,

.. math:: C(b) = \frac{1}{28} \sum_f s_f(b).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from evalcards import strict_json
from evalcards.errors import SchemaError

COVERAGES = ("full", "partial", "reserved")
_EMPTY_WORDS = {
    "", "not specified", "not reported", "not available", "not applicable", "not stated", "unspecified", "unknown",
    "none", "n/a", "na", "tbd", "-",
}  # fmt: skip


class Field(NamedTuple):
    """One field of the reporting schema: its dotted path, coverage and, if partial, its sub-items."""

    path: str
    coverage: str
    items: tuple[str, ...] = ()


class PartialField(NamedTuple):
    """A field of which some sub-items are populated and some are not."""

    path: str
    populated: int
    total: int


class Completeness(NamedTuple):
    """What a benchmark's record reports.

    Attributes
    ----------
    score : float
        C(b), in [0, 1].
    strict_score : float
        The same, where empty strings, lists and mappings and words such as "Not specified" count as missing.
    missing_required_fields : tuple of str
        Paths of the fields that score 0.
    partial_fields : tuple of PartialField
        Fields that score neither 0 nor 1.
    field_scores : dict
        Path to score.
    """

    score: float
    strict_score: float
    missing_required_fields: tuple[str, ...]
    partial_fields: tuple[PartialField, ...]
    field_scores: dict[str, float]


def _parse(document: Any, path: str) -> tuple[Field, ...]:
    listed = document.get("fields") if isinstance(document, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise SchemaError(path, 'want {"fields": [...]} with at least one field')
    fields = []
    for number, entry in enumerate(listed):
        given = entry if isinstance(entry, Mapping) else {}
        name, coverage, items = given.get("path"), given.get("coverage"), given.get("items", [])
        if not isinstance(name, str) or coverage not in COVERAGES or not isinstance(items, list):
            raise SchemaError(path, f"fields[{number}]: want path, coverage ({', '.join(COVERAGES)}) and items")
        if (coverage == "partial") != bool(items):
            raise SchemaError(path, f"fields[{number}]: a partial field, and no other, lists its items")
        fields.append(Field(name, coverage, tuple(str(item) for item in items)))
    if len({field.path for field in fields}) != len(fields):
        raise SchemaError(path, "a path occurs twice")
    return tuple(fields)


@functools.cache
def _default_fields() -> tuple[Field, ...]:
    text = files("evalcards").joinpath("assets/completeness_fields.json").read_text(encoding="utf-8")
    return _parse(json.loads(text), "completeness_fields.json")


def field_set(path: str | Path | None = None) -> tuple[Field, ...]:
    """Return the reporting schema: the paper's 28 fields, or those of a file.

    Parameters
    ----------
    path
        A JSON file ``{"fields": [{"path", "coverage", "items"?}]}``. Paths begin with ``benchmark_card.``, ``eee.`` or
        ``evalcards.``.

    Raises
    ------
    SchemaError
        The file is no such list.
    """
    return _default_fields() if path is None else _parse(strict_json.read(Path(path)), str(path))


def says_something(value: Any) -> bool:
    """Tell whether a value is more than an empty shell: the strict reading of "populated"."""
    if value is None:
        return False
    if isinstance(value, str):
        return value.strip().strip(".").lower() not in _EMPTY_WORDS
    if isinstance(value, Mapping):
        return any(says_something(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(says_something(item) for item in value)
    return True


def _scores(record: Any, fields: Sequence[Field]) -> tuple[dict[str, float], dict[str, float]]:
    """Return each field's score, plainly and strictly read."""
    plain, strict = {}, {}
    for field in fields:
        holder = record
        spaces = field.path.split(".")
        # The last space of a full field is the value itself; a partial field holds its items.
        for space in spaces if field.items else spaces[:-1]:
            holder = holder.get(space) if isinstance(holder, Mapping) else None
        keys = field.items or spaces[-1:]
        values = [holder.get(key) for key in keys] if isinstance(holder, Mapping) else []
        there = [value for value in values if value is not None]
        plain[field.path] = len(there) / len(keys)
        strict[field.path] = sum(says_something(value) for value in there) / len(keys)
    return plain, strict


def completeness(
    record: Mapping[str, Any], field_set: Sequence[Field] | None = None, strict_empty: bool = False
) -> Completeness:
    """Score a benchmark's record against the reporting schema.

    Parameters
    ----------
    record
        ``{"benchmark_card": ..., "eee": {"source_metadata": ...}, "evalcards": ...}``; each part may be absent.
    field_set
        The fields; by default the paper's 28.
    strict_empty
        Let lists of missing and partial fields follow the strict reading too. Both scores are always returned.

    Returns
    -------
    Completeness

    References
    ----------
    arXiv 2606.09809, signal "reporting completeness".
    """
    fields = _default_fields() if field_set is None else tuple(field_set)
    plain, strict = _scores(record, fields)
    scores = strict if strict_empty else plain
    partial = tuple(
        PartialField(field.path, round(scores[field.path] * len(field.items)), len(field.items))
        for field in fields
        if 0 < scores[field.path] < 1
    )
    missing = tuple(path for path, score in scores.items() if score == 0)
    return Completeness(sum(plain.values()) / len(fields), sum(strict.values()) / len(fields), missing, partial, scores)

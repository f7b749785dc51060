"""Claims as tables: Markdown for a README, columns for a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from papers_shared._table import significant
from papers_shared._text import read_json
from papers_shared.errors import InputError

_MOST_ITEMS = 8
_MOST_VALUES = 6


def render_table(claims: Mapping[str, Any] | str | os.PathLike[str]) -> str:
    """Render claims.json as a Markdown table: claim, the paper's figure, ours, held or not.

    Parameters
    ----------
    claims
        The contents of claims.json, or its path.

    Returns
    -------
    str
        Ends in a newline. Claims that were not run are listed as such.

    Raises
    ------
    InputError
        The file is missing or not a claims.json.
    """
    lines = ["| | Claim | Paper | Ours | Held |", "|---|---|---|---|---|"]
    for row in table_rows(claims):
        held = f"**{row['held']}**" if row["held"] in ("not held", "error") else row["held"]
        cells = [row["id"], row["claim"], row["paper"], row["ours"], held]
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def table_rows(claims: Mapping[str, Any] | str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return one row a claim with the texts ``id, claim, paper, ours, held``."""
    loaded = _load(claims)
    rows = [
        {
            "id": entry["id"],
            "claim": entry["statement"],
            "paper": entry["paper"],
            "ours": compact(entry["measured"]),
            "held": verdict(entry),
        }
        for entry in loaded["claims"]
    ]
    missing = loaded.get("provenance", {}).get("not_run", [])
    rows += [{"id": name, "claim": "", "paper": "", "ours": "", "held": "not run"} for name in missing]
    return rows


def verdict(entry: Mapping[str, Any]) -> str:
    """Say in words how one claim came out: held, not held, report only, error."""
    if is_error(entry["measured"]):
        return "error"
    if entry["holds"] is None:
        return "report only"
    return "held" if entry["holds"] else "not held"


def is_error(measured: Mapping[str, Any]) -> bool:
    """Tell whether a claim's function raised: then a message is all that was measured."""
    return set(measured) == {"error"} and isinstance(measured["error"], str)


def summary(claims: Mapping[str, Any] | str | os.PathLike[str]) -> str:
    """Count the verdicts in one line, for example ``5 held, 1 not held (B3), 2 report only``."""
    groups: dict[str, list[str]] = {}
    for row in table_rows(claims):
        groups.setdefault(row["held"], []).append(row["id"])
    order = ("held", "not held", "report only", "error", "not run")
    named = ("not held", "error", "not run")
    parts = [(kind, groups[kind]) for kind in order if kind in groups]
    return ", ".join(f"{len(ids)} {kind}" + (f" ({', '.join(ids)})" if kind in named else "") for kind, ids in parts)


def _load(claims: Mapping[str, Any] | str | os.PathLike[str]) -> Mapping[str, Any]:
    loaded = claims if isinstance(claims, Mapping) else read_json(claims)
    if not isinstance(loaded, Mapping) or not isinstance(loaded.get("claims"), list):
        raise InputError(f"{claims if not isinstance(claims, Mapping) else 'the mapping'} is not a claims.json")
    return loaded


def compact(measured: Any) -> str:
    """Format what was measured in a few words: numbers to three significant digits, intervals as ``[low, high]``.

    A value and its interval are shown together, whether given as ``{"x": 1, "x_ci": [0, 2]}``, as
    ``{"x": {"value": 1, "low": 0, "high": 2}}`` or as ``{"x": {"mean": 1, "ci": [0, 2]}}``. Of more than eight
    items the rest is counted.
    """
    if not isinstance(measured, Mapping):
        return _value(measured)
    if is_error(measured):
        return measured["error"]
    intervals = {key: _interval_of(measured, key) for key in measured}
    absorbed = {name for found in intervals.values() if found for name in [found]}
    parts = []
    for key, value in measured.items():
        if key in absorbed:
            continue
        text = _value(value)
        interval = intervals[key]
        if interval:
            text += f" {_value(measured[interval])}"
        parts.append(f"{key.replace('_', ' ')} {text}")
    if len(parts) > _MOST_ITEMS:
        parts = [*parts[:_MOST_ITEMS], f"and {len(parts) - _MOST_ITEMS} more in claims.json"]
    return "; ".join(parts)


def _interval_of(measured: Mapping[str, Any], key: str) -> str | None:
    """Return the key under which the interval of ``measured[key]`` stands."""
    for suffix in ("_ci", "_ci95", "_interval"):
        name = f"{key}{suffix}"
        if name in measured and _is_pair(measured[name]):
            return name
    return None


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2 and all(map(_is_number, value))
    )


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return significant(value, 3)
    if isinstance(value, Mapping):
        return _mapping(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = [_value(item) for item in value[:_MOST_VALUES]]
        rest = [f"... {len(value)} in all"] if len(value) > _MOST_VALUES else []
        return f"[{', '.join(shown + rest)}]"
    return str(value)


def _mapping(value: Mapping[str, Any]) -> str:
    """Format an estimate with its interval, or the items of a mapping in brackets."""
    keys = set(value)
    estimate = next((key for key in ("value", "mean", "estimate") if key in keys), None)
    if estimate and keys == {estimate, "low", "high"}:
        return f"{_value(value[estimate])} {_value([value['low'], value['high']])}"
    if estimate and keys == {estimate, "ci"}:
        return f"{_value(value[estimate])} {_value(value['ci'])}"
    items = list(value.items())
    shown = [f"{key} {_value(item)}" for key, item in items[:_MOST_VALUES]]
    rest = [f"... {len(items)} in all"] if len(items) > _MOST_VALUES else []
    return f"({', '.join(shown + rest)})"


def _cell(text: str) -> str:
    return " ".join(str(text).split()).replace("|", "\\|")

"""The signals in plain words, for readers who decide on rules rather than on runs; and how numbers are written."""

from __future__ import annotations

import json
from typing import Any

GLOSSARY: dict[str, str] = {
    "Result": "One score of one model on one benchmark with one metric, as one source reported it.",
    "Triple": (
        "Model, metric path and metric together. Only results of one triple are measured the same "
        "way, and even they may differ in settings."
    ),
    "Reproducibility gap": (
        "At least one setting that somebody would need to run the evaluation again is not reported."
    ),
    "Completeness": (
        "The share of the fields about a benchmark (what it is for, where its data come from, its "
        "limits and risks) that anybody has filled in."
    ),
    "First party": "The organisation that made the model measured it.",
    "Third party": "Somebody without a part in making the model measured it.",
    "Multi-source": "More than one named organisation reports the same triple.",
    "Divergence": (
        "Scores of one triple lie further apart than its threshold: 0.05 for proportions, 5 "
        "points for percentages, 5% of the range otherwise."
    ),
    "Eligible": (
        "A triple whose results can be checked for divergence: at least two scores with different "
        "settings, or from different organisations."
    ),
    "Not reported": "The source does not say. Nothing is filled in here, ever.",
    "Risk domain": (
        "A group of possible harms that a benchmark's card says it speaks to. Silent means that "
        "no benchmark here speaks to it."
    ),
}
"""Words that the pages use."""


def percent(rate: dict[str, Any]) -> str:
    """Write a rate as a percentage; small and large ones without hiding that they are not 0 or 100."""
    value = rate["rate"]
    if value is None:
        return "not known"
    if 0 < value < 0.005:
        return "under 1%"
    if 0.995 < value < 1:
        return "over 99%"
    return f"{100 * value:.0f}%"


def score_text(value: float | None, unit: str | None) -> str:
    """Write a score in its unit with four significant digits, or two decimals if it is large; never rescaled."""
    if value is None:
        return "not a number"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if 100 <= abs(value) < 1e15 else f"{value:.4g}"
    return f"{text}%" if unit == "percent" else text


def difference_text(value: float, unit: str | None) -> str:
    """Write a difference of two scores; of percentages in points, for it is no share of either."""
    return f"{score_text(value, None)} points" if unit == "percent" else score_text(value, unit)


def p_text(p: float) -> str:
    """Write a p-value; one too small for a float is no 0."""
    return f"p = {p:.2g}" if p > 0 else "p < 1e-300"


def setting_text(value: Any) -> str:
    """Write a setting's value shortly."""
    if value is None:
        return "not reported"
    if value == "":
        return "empty"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:157]}..."


def many(count: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun, as in 1 card and 1,000 cards."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def reproducibility(summary: dict[str, Any]) -> str:
    """Say how many results could be run again from what is reported."""
    gap = summary["gap"]
    if not gap["of"]:
        return "No result is reported."
    full = gap["of"] - gap["count"]
    if not gap["count"]:
        return f"All {many(gap['of'], 'result')} report the settings needed to run them again."
    missing = ", ".join(field.replace("_", " ") for field in list(summary["missing"])[:3])
    told = f"{full:,} of {many(gap['of'], 'result')} report the settings needed to run them again"
    return f"{told}; missing most often: {missing}."


def completeness(found: dict[str, Any]) -> str:
    """Say how much is written down about the benchmarks."""
    if found["mean"] is None:
        return "No benchmark is described."
    about = (
        "This benchmark's record fills"
        if found["of"] == 1
        else f"Records of {found['of']:,} benchmarks fill on average"
    )
    strict = ""
    if abs(found["mean"] - found["strict"]) > 0.005:
        strict = f" ({100 * found['strict']:.0f}% without empty words)"
    return f"{about} {100 * found['mean']:.0f}%{strict} of the {found['fields']} fields that a reader needs."


def provenance(summary: dict[str, Any]) -> str:
    """Say who measured."""
    kinds = summary["source_types"]
    multi, first = summary["multi_source"], summary["first_party_only"]
    if not multi["of"]:
        return "Nobody has measured."
    parts = [
        f"{percent(kinds[kind])} {name}"
        for kind, name in (
            ("third_party", "by third parties"),
            ("first_party", "by the model's maker"),
            ("collaborative", "by both together"),
            ("unspecified", "by somebody whose relation to the model is not stated"),
        )
        if kinds[kind]["count"]
    ]
    text = f"Measured {', '.join(parts)}. "
    text += f"{many(multi['count'], 'triple')} of {multi['of']:,} reported by more than one organisation"
    return text + (f"; {first['count']:,} only by the model's maker." if first["count"] else ".")


def comparability(summary: dict[str, Any]) -> str:
    """Say whether scores of the same thing agree."""
    variant, cross = summary["variant"], summary["cross"]
    if not variant["of"] and not cross["of"]:
        return "No score can be checked against another one: each is reported once, or with the same settings."
    parts = []
    if variant["of"]:
        moves = "changes" if variant["count"] == 1 else "change"
        checked = many(variant["of"], "triple")
        parts.append(f"{variant['count']:,} of {checked} {moves} by more than the threshold with the settings")
    if cross["of"]:
        parts.append(f"{cross['count']:,} of {many(cross['of'], 'triple')} with the organisation that measured")
    return "; ".join(parts) + "."


def risks(found: list[dict[str, Any]]) -> str:
    """Say which risk domains the benchmarks speak to."""
    covered = [entry["domain"] for entry in found if entry["benchmarks"]]
    silent = [entry["domain"] for entry in found if not entry["benchmarks"]]
    if not covered:
        return "No benchmark here says which risks it speaks to."
    return f"Speaks to {', '.join(covered)}." + (f" Silent on {', '.join(silent)}." if silent else "")


def all_sentences(view: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (signal id, name, sentence) of a card's view."""
    return [
        ("reproducibility", "Reproducibility", reproducibility(view["summary"])),
        ("completeness", "Completeness", completeness(view["completeness"])),
        ("provenance", "Provenance", provenance(view["summary"])),
        ("comparability", "Comparability", comparability(view["summary"])),
    ]

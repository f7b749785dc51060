"""The signals of a corpus: each rate with its numerator and denominator, overall and by category."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from evalcards import warehouse
from evalcards.signals.completeness import Completeness
from evalcards.signals.provenance import SOURCE_TYPES

if TYPE_CHECKING:
    from evalcards.store import Store


def rate(count: int, of: int) -> dict[str, Any]:
    """Return a rate with what it is made of; null when there is nothing to count."""
    return {"count": int(count), "of": int(of), "rate": count / of if of else None}


def _reproducibility(line: dict[str, Any], profile: str) -> dict[str, Any]:
    fields = {
        field: rate(line[f"missing_{field}"], line[f"asked_{field}"]) for field in warehouse.profile_bits(profile)
    }
    return {
        "gap": rate(line["gap"], line["n"]),
        "fully_documented": rate(line["n"] - line["gap"], line["n"]),
        "agentic_rows": line["agentic"],
        "missing": fields,
        "slots": {"disclosed": int(line["disclosed"] or 0), "applicable": int(line["applicable"] or 0)},
    }


def _completeness(found: list[Completeness]) -> dict[str, Any]:
    scores = [c.score for c in found]
    strict = [c.strict_score for c in found]
    fields: dict[str, Any] = {}
    for path in found[0].field_scores if found else ():
        values = [c.field_scores[path] for c in found]
        fields[path] = {
            "mean": sum(values) / len(values),
            "populated": rate(sum(v > 0 for v in values), len(values)),
            "fully_populated": rate(sum(v == 1 for v in values), len(values)),
        }
    return {
        "benchmarks": len(found),
        "mean": sum(scores) / len(scores) if scores else None,
        "median": statistics.median(scores) if scores else None,
        "strict_mean": sum(strict) / len(strict) if strict else None,
        "fields": fields,
    }


def _summary(rows: dict[str, Any], groups: dict[str, Any], found: list[Completeness], profile: str) -> dict[str, Any]:
    return {
        "rows": rows["n"],
        "triples": groups["n"],
        "reproducibility": _reproducibility(rows, profile),
        "completeness": _completeness(found),
        "provenance": {
            "source_types": {kind: rate(rows[kind], rows["n"]) for kind in SOURCE_TYPES},
            "multi_source": rate(groups["multi"], groups["n"]),
            "first_party_only": rate(groups["first_only"], groups["n"]),
        },
        "comparability": {
            "variant_divergence": rate(groups["variant"], groups["variant_eligible"]),
            "cross_party_divergence": rate(groups["crossed"], groups["cross_eligible"]),
            "score_scale_anomalies": groups["anomalies"],
        },
    }


def rollup(store: Store, *, profile: str = "paper", factor: float = 1.0) -> dict[str, Any]:
    """Sum the signals over a store.

    Parameters
    ----------
    store
        The store; its signals are brought up to date.
    profile
        Reproducibility profile ``paper``, ``paper-h1``, ``spec4`` or ``slots``.
    factor
        Multiplies all thresholds.

    Returns
    -------
    dict
        ``overall`` and ``by_category``, each with ``rows``, ``triples``, ``reproducibility``, ``completeness``,
        ``provenance``, ``comparability``. Every rate is ``{"count", "of", "rate"}``; multi-source and first-party-only
        rates are over triples, comparability rates over eligible triples only, and a missing field's or slot's rate
        over the rows that have to report it: agentic fields over agentic rows only.
    """
    settings = store.signals(profile, factor)
    fields = ", ".join(
        f"count(*) FILTER (missing & {bit} <> 0) AS missing_{field}, count(*) FILTER (required & {bit} <> 0) AS "
        f"asked_{field}"
        for field, bit in warehouse.profile_bits(profile).items()
    )
    kinds = ", ".join(f"count(*) FILTER (row_signals.source_type = '{kind}') AS {kind}" for kind in SOURCE_TYPES)
    grouping = "GROUP BY GROUPING SETS ((), (category)) ORDER BY category NULLS FIRST"
    rows = store.records(
        f"""SELECT CASE WHEN grouping(category) = 0 THEN category END AS category, count(*) AS n,
        count(*) FILTER (has_reproducibility_gap) AS gap, count(*) FILTER (row_signals.agentic) AS agentic, {fields},
        {kinds}, sum(slots_disclosed) AS disclosed, sum(slots_applicable) AS applicable
        FROM row_signals JOIN results USING (row_id) JOIN groups ON groups.group_id = row_signals.group_id {grouping}"""
    )
    groups = store.records(
        f"""SELECT CASE WHEN grouping(category) = 0 THEN category END AS category, count(*) AS n,
        count(*) FILTER (is_multi_source) AS multi, count(*) FILTER (first_party_only) AS first_only,
        count(*) FILTER (variant_eligible) AS variant_eligible, count(*) FILTER (has_variant_divergence) AS variant,
        count(*) FILTER (cross_eligible) AS cross_eligible, count(*) FILTER (has_cross_party_divergence) AS crossed,
        count(*) FILTER (score_scale_anomaly) AS anomalies
        FROM group_signals JOIN groups USING (group_id) {grouping}"""
    )
    category = dict(store.fetch("SELECT DISTINCT benchmark, category FROM groups"))
    complete = store.completeness()
    by_group = {line["category"]: line for line in groups}
    overall = {}
    by_category = {}
    for line in rows:
        name = line["category"]
        # A card without a result says nothing about the corpus.
        chosen = [c for b, c in complete.items() if b in category and name in (None, category[b])]
        summary = _summary(line, by_group[name], chosen, profile)
        if name is None:
            overall = summary
        else:
            by_category[name] = summary
    return {"settings": settings, "overall": overall, "by_category": by_category}

"""What a page or a card shows, as plain data: the same for both reader modes and for every output format."""

from __future__ import annotations

import collections
import json
from typing import TYPE_CHECKING, Any

from evalcards import warehouse
from evalcards.errors import UnknownModel
from evalcards.hierarchy import tell_apart
from evalcards.identity import parse_model, route_id
from evalcards.sentences import score_text
from evalcards.signals.provenance import SOURCE_TYPES
from evalcards.signals.risk import OTHER, RISK_DOMAINS, risk_domains
from evalcards.signals.rollup import rate
from evalcards.signals.slots import SLOTS

if TYPE_CHECKING:
    from evalcards.store import Store

STATES = {"d": "disclosed", "m": "missing", "n": "not_applicable", "u": "unknown"}

_RESULTS = """
SELECT r.row_id, r.group_id, g.link, g.model_id, g.benchmark, g.benchmark_name, g.slice_name, g.split, g.protocol_name,
       g.metric_name, g.category, g.path, g.metric, r.score, r.unit, r.min_score, r.max_score, r.lower_is_better,
       r.standard_error, r.samples, r.source_type, r.flags, r.slots, r.slots_disclosed, r.slots_applicable, r.args,
       r.agentic, s.missing, s.required, s.has_reproducibility_gap, s.is_multi_source, s.first_party_only, s.n_parties,
       q.variant_eligible, q.has_variant_divergence, q.variant_spread, q.variant_differs, q.cross_eligible,
       q.has_cross_party_divergence, q.cross_spread, q.cross_differs, q.threshold, q.threshold_basis,
       q.score_scale_anomaly, q.n_rows, l.organisation_name, l.library, l.library_version, l.evaluated, l.evaluation_id
FROM results r JOIN groups g USING (group_id) JOIN row_signals s USING (row_id) JOIN group_signals q ON q.group_id =
r.group_id
JOIN logs l ON l.log_id = r.log_id
"""


def result_rows(store: Store, where: str, values: list[Any]) -> list[dict[str, Any]]:
    """Return results with their signals, ordered by benchmark, slice, metric and source; never by score.

    Parameters
    ----------
    store
        The store; its signals must be up to date.
    where
        A condition of ours on the aliases r, g, s, q, l.
    values
        Its parameters.
    """
    profile = store.signals_settings()["profile"]
    rows = store.records(
        f"""{_RESULTS} WHERE {where}
        ORDER BY g.benchmark_name, g.path, g.metric, g.model_id, l.organisation_name, r.row_id""",
        values,
    )
    for row in rows:
        row["missing_fields"] = warehouse.named(row["missing"], profile)
        row["required_fields"] = warehouse.named(row["required"], profile)
        row["variant_fields"] = warehouse.fields_of(row["variant_differs"])
        row["cross_fields"] = warehouse.fields_of(row["cross_differs"])
        row["agreement"] = _agreement(row)
    tell_apart(rows)
    return rows


def _agreement(row: dict[str, Any]) -> list[str]:
    """Say in words whether a row's triple agrees, and whether its value needs a look."""
    told = []
    if row["has_variant_divergence"]:
        told.append(f"settings apart by {score_text(row['variant_spread'], row['unit'])}")
    if row["has_cross_party_divergence"]:
        told.append(f"parties apart by {score_text(row['cross_spread'], row['unit'])}")
    if row["score_scale_anomaly"]:
        told.append("a score of the triple is outside 0 to 1")
    if row["flags"]:
        told.append(f"check the value {row['flags']}")
    eligible = row["variant_eligible"] or row["cross_eligible"]
    return told or ["agree" if eligible else "nothing to check"]


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the signals of some rows: each rate with what it is made of."""
    groups = {row["group_id"]: row for row in rows}
    missing = collections.Counter(field for row in rows for field in row["missing_fields"])
    asked = collections.Counter(field for row in rows for field in row["required_fields"])
    variant = [row for row in groups.values() if row["variant_eligible"]]
    cross = [row for row in groups.values() if row["cross_eligible"]]
    first_only: dict[int, bool] = {}
    for row in rows:
        first_only[row["group_id"]] = first_only.get(row["group_id"], True) and row["first_party_only"]
    return {
        "rows": len(rows),
        "triples": len(groups),
        "benchmarks": len({row["benchmark"] for row in rows}),
        "models": len({row["model_id"] for row in rows}),
        "organisations": len({row["organisation_name"] for row in rows if row["organisation_name"]}),
        "gap": rate(sum(row["has_reproducibility_gap"] for row in rows), len(rows)),
        "missing": {field: rate(count, asked[field]) for field, count in missing.most_common()},
        "slots": (sum(row["slots_disclosed"] for row in rows), sum(row["slots_applicable"] for row in rows)),
        "source_types": {
            kind: rate(sum(row["source_type"] == kind for row in rows), len(rows)) for kind in SOURCE_TYPES
        },
        "multi_source": rate(sum(row["is_multi_source"] for row in groups.values()), len(groups)),
        "first_party_only": rate(sum(first_only.values()), len(groups)),
        "variant": rate(sum(row["has_variant_divergence"] for row in variant), len(variant)),
        "cross": rate(sum(row["has_cross_party_divergence"] for row in cross), len(cross)),
        "anomalies": sum(row["score_scale_anomaly"] for row in groups.values()),
        "flagged": sum(row["flags"] is not None for row in rows),
        "names": sorted(collections.Counter(row["organisation_name"] or "not named" for row in rows).items()),
        "diverging": [
            row for row in groups.values() if row["has_variant_divergence"] or row["has_cross_party_divergence"]
        ],
    }


def risk_rollup(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each risk domain with the benchmarks that speak to it and the share of third-party rows among them."""
    per_benchmark: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        per_benchmark.setdefault(row["benchmark"], []).append(row)
    domains: dict[str, list[str]] = {domain: [] for domain in (*RISK_DOMAINS, OTHER)}
    for benchmark in sorted(per_benchmark):
        card = store.cards.get(benchmark)
        for domain in risk_domains(card.model_dump() if card else None):
            domains[domain].append(benchmark)
    found = []
    for domain, benchmarks in domains.items():
        own = [row for benchmark in benchmarks for row in per_benchmark[benchmark]]
        third = sum(row["source_type"] == "third_party" for row in own)
        if benchmarks or domain != OTHER:
            found.append({"domain": domain, "benchmarks": benchmarks, "third_party": rate(third, len(own))})
    return found


def _completeness(store: Store, benchmarks: list[str]) -> dict[str, Any]:
    known = store.completeness()
    scores = {name: known[name] for name in benchmarks if name in known}
    values = [c.score for c in scores.values()]
    return {
        "mean": sum(values) / len(values) if values else None,
        "strict": sum(c.strict_score for c in scores.values()) / len(values) if values else None,
        "of": len(values),
        "fields": max((len(c.field_scores) for c in scores.values()), default=0),
        "benchmarks": scores,
    }


def model_view(store: Store, name: str) -> dict[str, Any]:
    """Return everything about one model.

    Raises
    ------
    UnknownModel
        No result is of this model.
    """
    store.signals_settings()
    found = store.find_model(name)
    rows = result_rows(store, "g.model_id = ?", [found])
    reported = store.fetch(
        "SELECT DISTINCT raw_model, resolution FROM logs JOIN results USING (log_id) JOIN groups USING (group_id)"
        " WHERE model_id = ? ORDER BY 1",
        [found],
    )
    return {
        "kind": "model",
        "id": found,
        "title": found,
        "route": route_id(found),
        "name": parse_model(found),
        "meta": store.model_meta(found),
        "reported_as": reported,
        "rows": rows,
        "summary": summarise(rows),
        "completeness": _completeness(store, sorted({row["benchmark"] for row in rows})),
        "risks": risk_rollup(store, rows),
        "settings": store.signals_settings(),
    }


def benchmark_view(store: Store, name: str) -> dict[str, Any]:
    """Return everything about one benchmark.

    Raises
    ------
    UnknownModel
        There is neither a card nor a result.
    """
    store.signals_settings()
    found = store.find_benchmark(name)
    rows = result_rows(store, "g.benchmark = ?", [found])
    card = store.cards.get(found)
    title = card.name if card else rows[0]["benchmark_name"]
    return {
        "kind": "benchmark",
        "id": found,
        "title": title,
        "route": found,
        "card": card.model_dump(exclude_unset=True) if card else None,
        "rows": rows,
        "summary": summarise(rows),
        "completeness": _completeness(store, [found]),
        "risks": risk_rollup(store, rows),
        "distributions": distributions(rows),
        "settings": store.signals_settings(),
    }


def pair_view(store: Store, model: str, benchmark: str) -> dict[str, Any]:
    """Return everything about one model on one benchmark."""
    whole = model_view(store, model)
    key = store.find_benchmark(benchmark)
    rows = [row for row in whole["rows"] if row["benchmark"] == key]
    if not rows:
        raise UnknownModel(f"{whole['id']} has no result on {benchmark}")
    return whole | {
        "kind": "pair",
        "title": f"{whole['id']} on {rows[0]['benchmark_name']}",
        "rows": rows,
        "summary": summarise(rows),
        "completeness": _completeness(store, [key]),
        "risks": risk_rollup(store, rows),
    }


def distributions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the scores of a benchmark by slice and metric, each on its own scale, with who reported them."""
    found: dict[tuple[str, str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["score"] is not None:
            key = (row["slice_name"], row["protocol_name"], row["metric_name"], row["unit"] or "")
            found.setdefault(key, []).append(row)
    result = []
    for (part, protocol, metric, unit), own in sorted(found.items(), key=lambda item: -len(item[1])):
        scores = [row["score"] for row in own]
        bounds = [(row["min_score"], row["max_score"]) for row in own]
        low = min((b[0] for b in bounds if b[0] is not None), default=min(scores))
        high = max((b[1] for b in bounds if b[1] is not None), default=max(scores))
        low, high = min(low, *scores), max(high, *scores)
        result.append(
            {"slice": part, "protocol": protocol, "metric": metric, "unit": unit, "low": low, "high": high, "rows": own}
        )
    return result


def row_view(store: Store, row_id: str) -> dict[str, Any]:
    """Return one result with all that its source says, its samples, and the other rows of its triple.

    Raises
    ------
    UnknownModel
        There is no such result.
    """
    store.signals_settings()
    rows = result_rows(store, "r.row_id = ?", [row_id])
    if not rows:
        raise UnknownModel(f"no result {row_id!r}", hint="results keep their ids; the link may be from another store")
    row = rows[0]
    log_id, index, document, origin, issues, raw = store.fetch(
        """SELECT log_id, result_index, document, origin, logs.issues, raw_model FROM results JOIN logs USING (log_id)
        WHERE row_id = ?""",
        [row_id],
    )[0]
    log = json.loads(document)
    result = log["evaluation_results"][index]
    own = f"evaluation_results[{index}]"
    told = [i for i in json.loads(issues or "[]") if i["path"].startswith(own) or "evaluation_results" not in i["path"]]
    samples = store.records(
        """SELECT sample_id, score, is_correct, document FROM instances WHERE log_id = ? AND evaluation_name = ?
        ORDER BY sample_id LIMIT 50""",
        [log_id, result["evaluation_name"]],
    )
    count = store.fetch(
        "SELECT count(*) FROM instances WHERE log_id = ? AND evaluation_name = ?", [log_id, result["evaluation_name"]]
    )[0][0]
    return {
        "kind": "row",
        "title": f"{row['metric_name']} of {row['model_id']} on {row['benchmark_name']}",
        "row": row,
        "siblings": result_rows(store, "r.group_id = ?", [row["group_id"]]),
        "slots": [(slot, STATES[state], SLOTS[slot][1]) for slot, state in zip(SLOTS, row["slots"], strict=True)],
        "arguments": json.loads(row["args"]),
        "details": (result.get("generation_config") or {}).get("additional_details") or {},
        "metric_config": result["metric_config"],
        "result": result,
        "log": {key: value for key, value in log.items() if key != "evaluation_results"},
        "log_id": log_id,
        "origin": origin,
        "reported_model": raw,
        "issues": told,
        "samples": [_sample(line) for line in samples],
        "sample_count": count,
        "settings": store.signals_settings(),
    }


def _sample(line: dict[str, Any]) -> dict[str, Any]:
    """Return a sample as texts, whatever its source wrote in their places."""
    record = json.loads(line["document"])
    given, output = record.get("input"), record.get("output")

    def texts(value: Any) -> list[str]:
        return [v if isinstance(v, str) else json.dumps(v) for v in (value if isinstance(value, list) else [value])]

    asked = given if isinstance(given, dict) else {"raw": given}
    answered = output if isinstance(output, dict) else {"raw": output}
    return {
        "sample_id": line["sample_id"],
        "score": line["score"],
        "input": " ".join(texts(asked.get("raw") or "")),
        "reference": ", ".join(texts(asked.get("reference") or [])),
        "output": " ".join(texts(answered.get("raw") or [])),
    }


def models_list(store: Store) -> list[dict[str, Any]]:
    """Return all models with their counts, by name."""
    store.signals_settings()
    return store.records(
        """SELECT g.model_id AS id, any_value(g.resolution) AS resolution, count(*) AS rows,
        count(DISTINCT g.benchmark) AS benchmarks, avg(s.has_reproducibility_gap::INT) AS gap,
        avg((s.source_type = 'third_party')::INT) AS third_party, count(DISTINCT CASE WHEN s.is_multi_source THEN
        s.group_id END) AS multi_source, count(DISTINCT CASE WHEN q.has_variant_divergence OR
        q.has_cross_party_divergence THEN q.group_id END) AS diverging FROM row_signals s JOIN groups g USING
        (group_id) JOIN group_signals q USING (group_id)
        GROUP BY g.model_id ORDER BY lower(g.model_id)"""
    )


def benchmarks_list(store: Store) -> list[dict[str, Any]]:
    """Return all benchmarks with their counts, by name; those with a card but without results too."""
    store.signals_settings()
    lines = store.records(
        """SELECT g.benchmark AS id, any_value(g.benchmark_name) AS name, any_value(g.category) AS category, count(*)
        AS rows, count(DISTINCT g.model_id) AS models, avg(s.has_reproducibility_gap::INT) AS gap,
        avg((s.source_type = 'third_party')::INT) AS third_party,
        count(DISTINCT CASE WHEN q.has_variant_divergence OR q.has_cross_party_divergence THEN q.group_id END) AS
        diverging
        FROM row_signals s JOIN groups g USING (group_id) JOIN group_signals q USING (group_id) GROUP BY g.benchmark"""
    )
    scores = store.completeness()
    seen = {line["id"] for line in lines}
    empty = {"rows": 0, "models": 0, "gap": None, "third_party": None, "diverging": 0}
    for name, card in store.cards.items():
        if name not in seen:
            lines.append({"id": name, "name": card.name, "category": card.category or "uncategorised", **empty})
    for line in lines:
        line["completeness"] = scores[line["id"]].score if line["id"] in scores else None
        line["has_card"] = line["id"] in store.cards
    return sorted(lines, key=lambda line: str(line["name"]).lower())


def triple_link(store: Store, link: str) -> list[dict[str, Any]]:
    """Return the rows of the triple with this permanent link."""
    store.signals_settings()
    rows = result_rows(store, "g.link = ?", [link])
    if not rows:
        raise UnknownModel(f"no triple {link!r}", hint="triples keep their links unless models or cards were renamed")
    return rows

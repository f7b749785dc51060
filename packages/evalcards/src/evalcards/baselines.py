"""What the method is compared with: a loop like the published code, pandas, a leaderboard of bare scores."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evalcards.signals import (
    SETUP_FIELDS,
    cross_party_divergence,
    group_metric_config,
    provenance,
    reproducibility,
    variant_divergence,
)
from evalcards.signals.comparability import SLACK, canonical_setting

if TYPE_CHECKING:
    from evalcards.store import Store


class GroupFlags(NamedTuple):
    """The signals of one triple, as the loop and pandas give them; None where the triple is not eligible."""

    variant: bool | None
    variant_spread: float | None
    variant_fields: tuple[str, ...]
    cross: bool | None
    cross_spread: float | None
    cross_fields: tuple[str, ...]
    parties: int


def rows_of(store: Store) -> list[dict[str, Any]]:
    """Return all rows of a store as the loop takes them: mappings with parsed settings."""
    lines = store.fetch(
        """SELECT row_id, group_id, evaluation_id, score, args, agentic, organisation_name, relationship, unit,
        min_score, max_score FROM results JOIN logs USING (log_id, evaluation_id) ORDER BY results.rowid"""
    )
    parsed: dict[str, Any] = {}
    rows = []
    for row, group, evaluation, score, arguments, agentic, name, relationship, unit, low, high in lines:
        if arguments not in parsed:
            parsed[arguments] = json.loads(arguments)
        rows.append(
            {
                "row_id": row,
                "group_id": group,
                "evaluation_id": evaluation,
                "score": score,
                "generation_args": parsed[arguments],
                "agentic": agentic,
                "source_metadata": {"source_organization_name": name, "evaluator_relationship": relationship},
                "metric_config": {"metric_unit": unit, "min_score": low, "max_score": high},
            }
        )
    return rows


def loop_signals(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[int, GroupFlags]]:
    """Compute all signals with one Python loop over rows and one over groups, as the published code does.

    Returns
    -------
    tuple
        Row id to `Reproducibility`, and group id to `GroupFlags`.
    """
    gaps = {row["row_id"]: reproducibility(row["generation_args"], row["agentic"]) for row in rows}
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group_id"], []).append(row)
    flags = {}
    for group, own in groups.items():
        metric = group_metric_config([row["metric_config"] for row in own])
        variant, cross = variant_divergence(own, metric), cross_party_divergence(own, metric)
        sources = provenance(own)
        flags[group] = GroupFlags(
            variant.has_variant_divergence if variant else None,
            variant.divergence_magnitude if variant else None,
            tuple(d.field for d in variant.differing_setup_fields) if variant else (),
            cross.has_cross_party_divergence if cross else None,
            cross.divergence_magnitude if cross else None,
            tuple(d.field for d in cross.differing_setup_fields) if cross else (),
            sources[0].distinct_organisations,
        )
    return gaps, flags


def pandas_signals(store: Store) -> Any:
    """Compute the comparability signals with pandas group-bys, from the same rows.

    Returns
    -------
    pandas.DataFrame
        Indexed by group id: ``variant``, ``variant_spread``, ``cross``, ``cross_spread``, ``parties``. Spreads are NaN
        where the triple is not eligible.
    """
    import pandas as pd

    frame = pd.DataFrame(rows_of(store))
    source = pd.DataFrame(frame["source_metadata"].tolist())
    party = source["source_organization_name"].fillna("").str.replace(r"\s+", " ", regex=True).str.strip().str.lower()
    frame["party"] = party.where(party != "")
    for field in SETUP_FIELDS:
        frame[field] = [canonical_setting(arguments.get(field)) for arguments in frame["generation_args"]]
    by_group = frame.groupby("group_id")
    found = pd.DataFrame(
        {"n": by_group.size(), "scores": by_group["score"].count(), "parties": by_group["party"].nunique()}
    )
    differs = by_group[list(SETUP_FIELDS)].nunique().gt(1)
    spread = by_group["score"].max() - by_group["score"].min()
    eligible = (found["n"] > 1) & (found["scores"] > 1) & differs.any(axis=1)
    tau = pd.Series(_thresholds(frame), name="tau")
    found["variant_spread"] = spread.where(eligible)
    found["variant"] = found["variant_spread"] > tau * SLACK
    medians = frame.dropna(subset=["party", "score"]).groupby(["group_id", "party"])["score"].median()
    across = medians.groupby("group_id").agg(["min", "max", "size"])
    wide = (across["max"] - across["min"]).where(across["size"] > 1)
    found["cross_spread"] = wide.reindex(found.index)
    found["cross"] = found["cross_spread"] > tau * SLACK
    return found


def _thresholds(frame: Any) -> dict[int, float]:
    from evalcards.signals import threshold

    return {
        int(group): threshold(group_metric_config(own["metric_config"].tolist()))[0]
        for group, own in frame.groupby("group_id")
    }


class TopChange(NamedTuple):
    """How often a leaderboard's first place changes when incomparable scores go.

    Attributes
    ----------
    benchmarks : int
        Leaderboards with at least two models before and after.
    changed : int
        Those whose first model changes.
    examples : list of dict
        ``benchmark``, ``before``, ``after`` and the scores.
    """

    benchmarks: int
    changed: int
    examples: list[dict[str, Any]]


def bare_leaderboard(rows: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Rank the models of one benchmark and metric by their best reported score, whoever reported it and however.

    Parameters
    ----------
    rows
        Mappings with ``model_id``, ``score``, ``lower_is_better``.
    """
    best: dict[str, float] = {}
    sign = -1.0 if rows and rows[0]["lower_is_better"] else 1.0
    for row in rows:
        if row["score"] is not None:
            value = sign * row["score"]
            best[row["model_id"]] = max(best.get(row["model_id"], -np.inf), value)
    return sorted(((model, sign * value) for model, value in best.items()), key=lambda x: (-sign * x[1], x[0]))


def top_changes(store: Store) -> TopChange:
    """Count the leaderboards whose first place changes when the scores of diverging triples are left out."""
    store.signals_settings()
    rows = store.records(
        """SELECT g.benchmark_name, g.metric, g.path, g.model_id, r.score, r.lower_is_better,
        q.has_variant_divergence OR q.has_cross_party_divergence AS diverging
        FROM results r JOIN groups g USING (group_id) JOIN group_signals q USING (group_id) ORDER BY r.row_id"""
    )
    boards: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        boards.setdefault((row["benchmark_name"], row["path"], row["metric"]), []).append(row)
    compared, examples = 0, []
    for (benchmark, _, metric), own in sorted(boards.items()):
        before = bare_leaderboard(own)
        after = bare_leaderboard([row for row in own if not row["diverging"]])
        if len(before) < 2 or len(after) < 2:
            continue
        compared += 1
        if before[0][0] != after[0][0]:
            examples.append({"benchmark": benchmark, "metric": metric, "before": before[0], "after": after[0]})
    return TopChange(compared, len(examples), examples)

"""Find what a user names in a store: models by id, alias or route, benchmarks by any name that a card claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalcards.errors import UnknownModel
from evalcards.identity import near_names, route_id, slug
from papers_shared.cli import visible

if TYPE_CHECKING:
    from evalcards.store import Store


def _unknown(kind: str, name: str, known: list[str]) -> UnknownModel:
    near = near_names(name, known)
    hint = f"did you mean {visible(', '.join(near))}?" if near else f"evalcards monitor lists the {kind}s"
    return UnknownModel(f"no results of a {kind} {name!r}", hint)


def find_model(store: Store, name: str) -> str:
    """Return the canonical id of a model with results; see `Store.find_model`."""
    canonical, _ = store.models.resolve(name)
    if store.fetch("SELECT 1 FROM groups WHERE model_id = ? LIMIT 1", [canonical]):
        return canonical
    known = [model for (model,) in store.fetch("SELECT DISTINCT model_id FROM groups ORDER BY 1")]
    by_route = {route_id(model): model for model in known}
    if name in by_route:
        return by_route[name]
    raise _unknown("model", name, known)


def find_benchmark(store: Store, name: str) -> str:
    """Return the slug of a benchmark that has a card or a result; see `Store.find_benchmark`."""
    found = store.benchmarks.find(name)
    key = slug(found[0]) if found else slug(name)
    if key in store.cards or store.fetch("SELECT 1 FROM groups WHERE benchmark = ? LIMIT 1", [key]):
        return key
    known = {benchmark for (benchmark,) in store.fetch("SELECT DISTINCT benchmark FROM groups")} | set(store.cards)
    raise _unknown("benchmark", name, sorted(known))


_SOURCE_KEYS = ("source_type", "source_organization_name", "source_organization_url", "evaluator_relationship")


def benchmark_records(store: Store) -> dict[str, dict[str, Any]]:
    """Join each benchmark's card with what its results' sources state: an item counts if any source states it.

    Of several statements the greatest text is taken: it is never the empty one, whatever the order of import.
    """
    sources = store.fetch(
        """SELECT benchmark, max(source_kind), max(organisation_name), max(organisation_url), max(relationship)
        FROM results JOIN groups USING (group_id) JOIN logs USING (log_id) GROUP BY benchmark
        ORDER BY benchmark"""
    )
    records: dict[str, dict[str, Any]] = {name: {} for name in store.cards}
    for name, *values in sources:
        records.setdefault(name, {})["eee"] = {"source_metadata": dict(zip(_SOURCE_KEYS, values, strict=True))}
    for name, card in store.cards.items():
        document = card.model_dump(exclude_unset=True)
        records[name] |= {"benchmark_card": document, "evalcards": document.get("evalcards")}
    return records

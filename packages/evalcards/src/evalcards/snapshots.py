"""Snapshots: what a store said on a day, and what has changed since. A snapshot never changes."""

from __future__ import annotations

import datetime
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcards.errors import InputError, SnapshotExists, UnknownModel
from evalcards.signals import rollup

if TYPE_CHECKING:
    from evalcards.store import Store

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class SnapshotDiff(NamedTuple):
    """What differs between two snapshots.

    Attributes
    ----------
    added, removed : list of dict
        Rows that only the second, or only the first, has.
    signals : list of dict
        Triples whose flags or number of parties differ.
    rates : dict
        Rate to its two values, for those that differ.
    """

    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    signals: list[dict[str, Any]]
    rates: dict[str, tuple[float | None, float | None]]


def take(store: Store, name: str) -> dict[str, Any]:
    """Record the present rows, signals and rates under a name.

    Raises
    ------
    SnapshotExists
        The name is taken.
    InputError
        The name is not of ``[a-z0-9_-]``.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"snapshot {name!r}: want a name of a-z, 0-9, - and _, at most 64 long")
    if store.fetch("SELECT 1 FROM snapshots WHERE name = ?", [name]):
        raise SnapshotExists(f"snapshot {name!r} exists", hint="snapshots never change; choose another name")
    summary = rollup(store)["overall"]
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with store.transaction() as connection:
        connection.execute("INSERT INTO snapshots VALUES (?, ?, ?)", [name, created, json.dumps(summary)])
        connection.execute(
            "INSERT INTO snapshot_rows SELECT ?, row_id, link, score FROM results JOIN groups USING (group_id)", [name]
        )
        connection.execute(
            """INSERT INTO snapshot_groups SELECT ?, link, model_id, benchmark, path, metric, n_rows, n_parties,
            has_variant_divergence, has_cross_party_divergence FROM group_signals JOIN groups USING (group_id)""",
            [name],
        )
    return {"name": name, "created": created, "rows": summary["rows"], "triples": summary["triples"]}


def listed(store: Store) -> list[dict[str, Any]]:
    """Return all snapshots, the oldest first."""
    found = store.fetch("SELECT name, created, summary FROM snapshots ORDER BY created, name")
    return [{"name": name, "created": created, "summary": json.loads(text)} for name, created, text in found]


def _flat(summary: dict[str, Any], prefix: str = "") -> dict[str, float | None]:
    rates: dict[str, float | None] = {}
    for key, value in summary.items():
        if isinstance(value, dict):
            if "rate" in value:
                rates[f"{prefix}{key}"] = value["rate"]
            else:
                rates |= _flat(value, f"{prefix}{key}.")
    return rates


def diff(store: Store, first: str, second: str) -> SnapshotDiff:
    """Compare two snapshots.

    Raises
    ------
    UnknownModel
        There is no such snapshot.
    """
    known = {entry["name"]: entry for entry in listed(store)}
    for name in (first, second):
        if name not in known:
            raise UnknownModel(f"no snapshot {name!r}", hint=f"there are {', '.join(list(known)[:20]) or 'none'}")

    def only(one: str, other: str) -> list[dict[str, Any]]:
        """Return the rows of one snapshot that the other lacks."""
        return store.records(
            """SELECT row_id, link, model_id, benchmark, path, metric, score FROM snapshot_rows
            LEFT JOIN (SELECT DISTINCT link, model_id, benchmark, path, metric FROM snapshot_groups) USING (link)
            WHERE name = ? AND row_id NOT IN (SELECT row_id FROM snapshot_rows WHERE name = ?) ORDER BY row_id""",
            [one, other],
        )

    signals = store.records(
        """SELECT link, b.model_id, b.benchmark, b.path, b.metric, a.variant AS variant_before, b.variant AS
        variant_after, a.crossed AS crossed_before, b.crossed AS crossed_after, a.n_parties AS parties_before,
        b.n_parties AS parties_after
        FROM (SELECT * FROM snapshot_groups WHERE name = ?) a JOIN (SELECT * FROM snapshot_groups WHERE name = ?) b
        USING (link) WHERE (a.variant, a.crossed, a.n_parties) IS DISTINCT FROM (b.variant, b.crossed, b.n_parties)
        ORDER BY b.model_id, b.path, b.metric""",
        [first, second],
    )
    before, after = _flat(known[first]["summary"]), _flat(known[second]["summary"])
    rates = {k: (before.get(k), after.get(k)) for k in {**before, **after} if before.get(k) != after.get(k)}
    return SnapshotDiff(only(second, first), only(first, second), signals, rates)

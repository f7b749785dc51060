"""A store's tables as Parquet: one file each, or split so that many machines can work on them at once.

No signal crosses a triple, so rows of one triple always stand in the same part, and what `evalcards.warehouse` computes
on each part is what it computes on the whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from evalcards.errors import InputError
from papers_shared.artifacts import atomic_path

if TYPE_CHECKING:
    from evalcards.store import Store

TABLES = ("logs", "results", "groups", "cards", "models", "row_signals", "group_signals", "settings", "organisations")
"""The tables that are written."""

SPLIT = ("results", "groups", "row_signals", "group_signals")
"""Those that are split: they have a triple's number in each line."""


def export_parquet(
    store: Store, folder: str | os.PathLike[str], *, parts: int | None = None, force: bool = False
) -> list[Path]:
    """Write the tables into a folder; see `Store.export`."""
    if parts is not None and not 1 <= parts <= 10_000:
        raise InputError(f"{parts} parts: want 1 to 10,000")
    target = Path(folder)
    chosen: list[tuple[Path, str]] = []
    for table in TABLES:
        if parts is None or table not in SPLIT:
            chosen.append((target / f"{table}.parquet", f"SELECT * FROM {table}"))
        else:
            chosen += [
                (
                    target / table / f"part={part}" / f"{table}.parquet",
                    f"SELECT * FROM {table} WHERE group_id % {parts} = {part}",
                )
                for part in range(parts)
            ]
    for path, query in chosen:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path, force=force) as temporary:
            quoted = str(temporary).replace("'", "''")
            store.cursor().execute(f"COPY ({query}) TO '{quoted}' (FORMAT parquet)")
    return [path for path, _ in chosen]

"""PIE-Bench: its files, its masks, and its metrics from local networks, in one reproducible evaluator.

The benchmark has 700 images of 512 x 512 pixels with a source prompt, a target prompt whose changed words
stand in brackets, and an edit mask. An edit is scored by what it keeps outside the mask and by how well it
shows the target prompt. Every row says which mask was used; rows whose mask leaves no outside are NaN there
and counted.

References
----------
Ju et al., "PnP Inversion: Boosting Diffusion-based Editing with 3 Lines of Code", arXiv 2310.01506, section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from bitresedit.piebench_files import EDITING_TYPES, SIZE, Item, decode_rle, load, strip_brackets
from bitresedit.piebench_metrics import COLUMNS, Metrics, Pair

__all__ = [
    "COLUMNS",
    "EDITING_TYPES",
    "SIZE",
    "Item",
    "Metrics",
    "Pair",
    "decode_rle",
    "evaluate",
    "frame",
    "load",
    "strip_brackets",
    "summarise",
]


def evaluate(pairs: Iterable[tuple[Item, Any] | tuple[Item, Any, Any]], metrics: Metrics | None = None) -> pd.DataFrame:
    """Score edits.

    Parameters
    ----------
    pairs
        :class:`Pair`, or plain ``(item, edited)`` or ``(item, edited, mask)``: the edited image as path,
        PIL image or array.
    metrics
        Networks; without, only the columns that need none.

    Returns
    -------
    pandas.DataFrame
        A row an edit. ``attrs["skipped"]`` names the columns without a network and
        ``attrs["empty_complement"]`` counts the rows whose mask selects everything.
    """
    metrics = metrics or Metrics()
    return frame([metrics.row(Pair(*pair)) for pair in pairs], metrics)


def frame(rows: Sequence[Mapping[str, Any]], metrics: Metrics) -> pd.DataFrame:
    """Put rows of :meth:`Metrics.row`, some of them perhaps from an earlier run, into a table."""
    table = pd.DataFrame(list(rows))
    table.attrs["skipped"] = dict(metrics.skipped)
    table.attrs["empty_complement"] = int((table["mask_fraction"] == 1).sum()) if len(table) else 0
    return table


def summarise(table: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """Average the metrics, leaving out NaN and counting it.

    Parameters
    ----------
    table
        From :func:`evaluate`.
    by
        Group by this column too, ``"editing_type"`` say.

    Returns
    -------
    pandas.DataFrame
        One row a metric (and group) with ``mean``, ``n`` values and ``nan`` left out.
    """
    names = [name for name in COLUMNS if name in table]
    groups = [("all", table)] if by is None else list(table.groupby(by, sort=False))
    records = [
        {
            **({} if by is None else {by: group}),
            "metric": name,
            "mean": part[name].mean(),
            "n": int(part[name].notna().sum()),
            "nan": int(part[name].isna().sum()),
        }
        for group, part in groups
        for name in names
    ]
    return pd.DataFrame(records)

"""The two pictures of a run: distance with its certificate, and time per update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papers_shared.artifacts import PALETTE, figure_style, write_figure


def draw_cost(path: Path, rows: list[dict[str, Any]], title: str, unit: str, force: bool) -> Path:
    """Draw the running distance and the lower bound that certifies it; below, the sizes of both sides."""
    import matplotlib.pyplot as plt

    x = [row["update"] for row in rows]
    cost = np.array([row["cost"] for row in rows])
    bound = np.array([np.nan if row["lower_bound"] is None else row["lower_bound"] for row in rows], dtype=float)
    with figure_style(figure_figsize=(7, 4.6)):
        fig, (top, low) = plt.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        top.plot(x, cost, color=PALETTE[0], label="distance")
        note = "No certificate was asked for."
        if np.isfinite(bound).any():
            top.plot(x, bound, color=PALETTE[1], linestyle="--", label="certified lower bound")
            top.fill_between(x, bound, cost, color=PALETTE[0], alpha=0.12)
            ratio = cost[bound > 0] / bound[bound > 0]
            note = (
                f"Distance over its certificate: {ratio.mean():.3f} on average, {ratio.max():.3f} at most."
                if len(ratio)
                else ""
            )
        top.set(ylabel=f"W ({unit})", title=title)
        top.set_ylim(bottom=0)
        top.legend(loc="best")
        low.plot(x, [row["n_a"] for row in rows], color=PALETTE[2], label="A")
        low.plot(x, [row["n_b"] for row in rows], color=PALETTE[3], label="B")
        low.set(xlabel="update", ylabel="points")
        low.set_ylim(bottom=0)
        low.legend(loc="lower right", ncols=2)
        caption = f"The distance between the points present on the two sides, after each update. {note}"
        return write_figure(path, fig, caption, force=force)


def draw_latency(path: Path, rows: list[dict[str, Any]], method: str, force: bool) -> Path:
    """Draw the median and 95th percentile of the time per update, and of the certificate beside it."""
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row["ms"] > 0]
    x = [row["update"] for row in rows]
    with figure_style(figure_figsize=(7, 3.6)):
        fig, ax = plt.subplots()
        ax.plot(x, [row["ms"] for row in rows], color=PALETTE[0], label=f"{method}, median")
        ax.fill_between(
            x,
            [row["ms"] for row in rows],
            [row["ms_p95"] for row in rows],
            color=PALETTE[0],
            alpha=0.2,
            label="to the 95th percentile",
        )
        certified = [row["certificate_ms"] for row in rows]
        if any(v is not None for v in certified):
            ax.plot(
                x,
                [np.nan if v is None else v for v in certified],
                color=PALETTE[1],
                linestyle="--",
                label="exact certificate, median",
            )
        ax.set(xlabel="update", ylabel="time per update (ms)", yscale="log")
        ax.legend(loc="best")
        caption = (
            "Time to keep the matching through one insertion or deletion, over the updates of each row of the table."
        )
        return write_figure(path, fig, caption, force=force)

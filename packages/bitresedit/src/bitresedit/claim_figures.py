"""Figures of the claims: each takes the table of edits that its claim was measured on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bitresedit.claim_edits import mean_interval
from papers_shared.artifacts import PALETTE, figure_style
from papers_shared.claims import Context
from papers_shared.metrics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "bitresedit": "BitResEdit",
    "aredit_mask": "AREdit (mask)",
    "aredit": "AREdit",
    "editinfinity_blend": "EditInfinity blend",
    "inpaint": "no BitEdit (η=0)",
    "bitedit_only": "no ResEdit (g=1)",
    "regenerate": "regenerate",
}
"""Methods in the order of the figures."""

_SCENES = {
    "target_correct": "edits that show what was asked\n(probe, inside the mask)",
    "target_probability": "asked look\n(probe's probability)",
    "source_probability": "source leakage\n(probe's probability of the old look)",
    "background_psnr": "background PSNR\noutside the mask (dB)",
    "edge_distance": "edge-map distance\nto the source",
}
_PIEBENCH = _SCENES | {
    "target_correct": "CLIP score of the edited part\nwith the target prompt",
    "target_probability": "CLIP score of the edited part\nwith the target prompt",
    "source_probability": "CLIP score of the edited part\nwith the source prompt",
    "edge_distance": "structure distance\nto the source",
}


def bars(
    ctx: Context, name: str, table: pd.DataFrame, methods: Iterable[str], columns: Sequence[str], what: str
) -> str:
    """Draw one horizontal bar a method, side by side for several columns, with 95% intervals."""
    chosen = list(methods)
    with figure_style(figure_figsize=(2.6 + 3.1 * len(columns), 0.9 + 0.38 * len(chosen))):
        fig, axes = _axes(len(columns))
        for ax, column in zip(axes, columns, strict=True):
            values = [mean_interval(table[table.method == method], column) for method in chosen]
            places = np.arange(len(chosen))[::-1]
            colours = [PALETTE[0], *["#9db8c9"] * (len(chosen) - 1)]
            arms = np.concatenate([_arms(v) for v in values], axis=1)
            ax.barh(places, [v.value for v in values], xerr=arms, color=colours, height=0.7, ecolor="#333333")
            ax.set_yticks(places, [LABELS[method] for method in chosen] if ax is axes[0] else [""] * len(chosen))
            ax.grid(axis="y", visible=False)
            ax.locator_params(axis="x", nbins=5)
            ax.set_xlabel(_label(ctx, column))
    return ctx.figure(name, fig, _caption(ctx, table, what))


def scatter(ctx: Context, name: str, table: pd.DataFrame, x: str, y: str, what: str) -> str:
    """Draw one point a method, with 95% intervals along both axes."""
    with figure_style(figure_figsize=(6.6, 3.9)):
        fig, (ax,) = _axes(1)
        for colour, (method, label) in zip([*PALETTE[:6], "#888888"], LABELS.items(), strict=True):
            rows = table[table.method == method]
            across, up = mean_interval(rows, x), mean_interval(rows, y)
            ax.errorbar(across.value, up.value, xerr=_arms(across), yerr=_arms(up), fmt="o", color=colour, label=label)
        ax.set_xlabel(_label(ctx, x).replace("\n", " "))
        ax.set_ylabel(_label(ctx, y))
        # Beside the axes: the points may lie anywhere.
        fig.legend(loc="outside right center")
    return ctx.figure(name, fig, _caption(ctx, table, what))


def sweep(
    ctx: Context, name: str, runs: Mapping[tuple[float, float], pd.DataFrame], columns: Sequence[str], what: str
) -> str:
    """Draw columns against the tilt (first key, in units of the default), one line a trust region (second key)."""
    deltas = sorted({delta for _, delta in runs})
    factors = sorted({factor for factor, _ in runs})
    with figure_style(figure_figsize=(1.2 + 3.4 * len(columns), 3.6)):
        fig, axes = _axes(len(columns))
        for ax, column in zip(axes, columns, strict=True):
            for i, (colour, delta) in enumerate(zip(PALETTE, deltas, strict=False)):
                points = [(factor, mean_interval(runs[factor, d], column)) for factor, d in runs if d == delta]
                # Side by side, so that equal values can be told apart.
                x = [factor * (1 + 0.03 * (i - (len(deltas) - 1) / 2)) for factor, _ in points]
                arms = np.concatenate([_arms(p) for _, p in points], axis=1)
                label = "no limit" if delta == float("inf") else f"δ = {delta:g} nats"
                ax.errorbar(x, [p.value for _, p in points], yerr=arms, fmt="o-", color=colour, label=label)
            ax.set_xscale("log", base=2)
            ax.set_xticks(factors, [f"{factor:g}" for factor in factors])
            ax.set_xlabel("tilt η, in units of the default")
            ax.set_ylabel(_label(ctx, column))
        fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", title="trust region")
    return ctx.figure(name, fig, _caption(ctx, next(iter(runs.values())), what))


def maps(ctx: Context, name: str, pictures: Mapping[str, np.ndarray], table: pd.DataFrame, what: str) -> str:
    """Draw grids of numbers as colours; cells that are exactly 0 stay grey."""
    with figure_style(figure_figsize=(7.2, 2.9), axes_grid=False):
        fig, axes = _axes(len(pictures))
        for ax, (title, values) in zip(axes, pictures.items(), strict=True):
            shown = np.ma.masked_equal(values, 0)
            picture = ax.imshow(shown, cmap="viridis", interpolation="nearest", vmin=0)
            ax.set_facecolor("#eeeeee")
            ax.set_title(title)
            ax.set_xticks([])
            ax.set_yticks([])
            fig.colorbar(picture, ax=ax, shrink=0.85)
    return ctx.figure(name, fig, _caption(ctx, table, what))


def pairs(ctx: Context, name: str, runs: Mapping[str, pd.DataFrame], columns: Sequence[str], what: str) -> str:
    """Draw each picture's value in every run as a thin line, and the means with 95% intervals."""
    both = pd.concat([rows.assign(run=run) for run, rows in runs.items()])
    with figure_style(figure_figsize=(1 + 3.0 * len(columns), 3.4)):
        fig, axes = _axes(len(columns))
        for ax, column in zip(axes, columns, strict=True):
            means = both.groupby(["id", "run"])[column].mean().unstack()
            ax.plot(range(len(runs)), means[list(runs)].to_numpy().T, color="#bbbbbb", linewidth=0.8)
            for place, rows in enumerate(runs.values()):
                value = mean_interval(rows, column)
                ax.errorbar(place, value.value, yerr=_arms(value), fmt="o", color=PALETTE[place], markersize=7)
            ax.set_xticks(range(len(runs)), list(runs))
            ax.set_xlim(-0.3, len(runs) - 0.7)
            ax.set_ylabel(_label(ctx, column))
    return ctx.figure(name, fig, _caption(ctx, both, what))


def _axes(columns: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    fig = Figure(layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.04))
    return fig, list(fig.subplots(1, columns, squeeze=False)[0])


def _arms(interval: Interval) -> np.ndarray:
    return np.array([[interval.value - interval.low], [interval.high - interval.value]]).clip(min=0)


def _label(ctx: Context, column: str) -> str:
    return (_PIEBENCH if ctx.scale == "paper" else _SCENES)[column]


def _caption(ctx: Context, table: pd.DataFrame, what: str) -> str:
    data: Any = "PIE-Bench pictures, Infinity" if ctx.scale == "paper" else "rendered scenes, bundled 96-pixel model"
    seeds = len(ctx.seeds)
    return f"{what}. {table['id'].nunique()} {data}, {seeds} seed{'s' if seeds > 1 else ''}."

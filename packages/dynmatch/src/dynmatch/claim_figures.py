"""The claims' figures: each takes what an experiment found, and returns a figure; nothing is measured here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dynmatch.costs import Real
from dynmatch.experiments import EPS
from papers_shared.artifacts import PALETTE, figure_style

WIDE = (7.6, 3.7)


def _sizes_axis(ax: Axes, sizes: Sequence[Real], label: str) -> None:
    """Name every size on a logarithmic axis, and nothing between them."""
    ax.set_xscale("log")
    ax.set_xticks(list(sizes), [f"{v:,}".replace(",", " ") for v in sizes])
    ax.minorticks_off()
    ax.set_xlabel(label)


def ratio_by_dimension(ratios: dict[str, list[float]], dims: Sequence[int], norms: Sequence[Real]) -> Figure:
    """Mean and 5-95% range of the grid's ratio over dimensions, by eps, for exact and rounded searches."""
    with figure_style(figure_figsize=WIDE):
        fig, axes = plt.subplots(1, 2, sharey=True)
        for ax, rounded in zip(axes, (False, True), strict=True):
            for shift, (colour, eps) in enumerate(zip(PALETTE, EPS, strict=False)):
                lines = [[v for norm in norms for v in ratios[f"{d} {norm} {eps} {rounded}"]] for d in dims]
                middle = np.array([np.mean(v) for v in lines])
                low, high = (np.array([np.quantile(v, q) for v in lines]) for q in (0.05, 0.95))
                ends = [np.maximum(0, middle - low), np.maximum(0, high - middle)]
                x = np.array(dims) * 1.05 ** (shift - 1)  # beside each other, not on top
                ax.errorbar(x, middle, yerr=ends, color=colour, marker="o", markersize=4, label=f"ε = {eps}")
            _sizes_axis(ax, dims, "dimension")
            ax.set_title("rounded search" if rounded else "exact search")
        axes[0].set_ylabel("grid W₁ / exact W₁")
        axes[0].legend()
    return fig


def ratio_by_size(ratios: dict[str, list[list[float]]], sizes: Sequence[int]) -> Figure:
    """Mean and standard deviation of each method's ratio over the number of points."""
    with figure_style():
        fig, ax = plt.subplots()
        for name, rows in ratios.items():
            ax.errorbar(sizes, [np.mean(r) for r in rows], yerr=[np.std(r) for r in rows], marker="o", label=name)
        _sizes_axis(ax, sizes, "points in all")
        ax.set(ylabel="W₁ / exact W₁")
        ax.set_ylim(bottom=1)
        ax.legend()
    return fig


def grid_scaling(found: dict[str, dict[str, list[float]]], sizes: dict[str, tuple[int, ...]], slopes: dict) -> Figure:
    """Time and pairs seen per update over the number of points: a line for each engine and stream."""
    colours = {"dense": PALETTE[0], "aggregate": PALETTE[1], "exact matcher": PALETTE[2]}
    with figure_style(figure_figsize=(8.6, 4.2)):
        fig, axes = plt.subplots(1, 2)
        for ax, what, factor, label in (
            (axes[0], "seconds", 1e3, "median ms per update"),
            (axes[1], "pairs", 1.0, "mean pairs seen per update"),
        ):
            for name, values in found.items():
                engine, law = name.split(", ")
                line = "-" if law == "shifted" else "--"
                ax.plot(
                    sizes[engine],
                    factor * np.array(values[what]),
                    color=colours[engine],
                    linestyle=line,
                    marker="o",
                    markersize=4,
                    label=f"{name}: slope {slopes[name][what]:.2f}",
                )
            ax.set(xscale="log", yscale="log", xlabel="points in all", ylabel=label)
            ax.set_ylim(top=40 * ax.get_ylim()[1])  # room for the legend
            ax.legend(fontsize=7, loc="upper left")
    return fig


def hub_ratios(ratios: dict[str, list[float]], eps: float) -> Figure:
    """Range and mean of the hub's ratio for each metric, k and p, with the bound."""
    names = list(ratios)
    with figure_style(figure_figsize=(8, 3.8)):
        fig, ax = plt.subplots()
        for i, name in enumerate(names):
            k = int(name.split("|")[1])
            colour = PALETTE[k - 1]
            ax.plot([i, i], [min(ratios[name]), max(ratios[name])], color=colour, linewidth=2)
            ax.plot(i, float(np.mean(ratios[name])), "o", color=colour)
            ax.plot(i, 2 * k * (1 + eps), "_", color=colour, markersize=12)
        ax.set(ylabel="hub W_p / exact W_p")
        labels = ["{}, k={}, p={}".format(*name.split("|")) for name in names]
        ax.set_xticks(range(len(names)), labels, rotation=90, fontsize=7)
    return fig


def hub_scaling(found: dict[str, dict[str, list[list[float]]]], sizes: Sequence[int]) -> Figure:
    """Attachments, relaxed arcs and time of hubs over the number of points: mean and range over draws."""
    with figure_style(figure_figsize=(9.6, 3.6)):
        fig, axes = plt.subplots(1, 3)
        for ax, what, factor, label in (
            (axes[0], "attachments", 1.0, "attachments"),
            (axes[1], "work", 1.0, "mean arcs relaxed per update"),
            (axes[2], "seconds", 1e3, "ms per update, median draw"),
        ):
            for colour, (name, values) in zip(PALETTE, found.items(), strict=False):
                if name != "exact" or what == "seconds":
                    draws = factor * np.array(values[what])
                    middle = np.median(draws, axis=1) if what == "seconds" else draws.mean(axis=1)
                    ax.plot(sizes, middle, color=colour, marker="o", markersize=4, label=name)
                    if what != "seconds":  # the first draw of all has waited for the compiler
                        ax.fill_between(sizes, draws.min(axis=1), draws.max(axis=1), color=colour, alpha=0.15)
                if name != "exact" and what != "seconds":
                    k = int(name[-1])
                    ax.plot(sizes, [k * n ** (1 + 1 / k) for n in sizes], color=colour, linestyle=":")
            ax.set_yscale("log")
            _sizes_axis(ax, sizes, "points in all")
            ax.set_ylabel(label)
            title = None if what == "seconds" else "dotted: k n^(1+1/k)"
            ax.legend(title=title, fontsize=8, title_fontsize=8)
    return fig


def deletions(found: dict[str, dict[str, list[float]]]) -> Figure:
    """Cost after a stream over that of a fresh build, a dot a seed."""
    with figure_style():
        fig, ax = plt.subplots()
        for i, entry in enumerate(found.values()):
            ax.plot([i] * len(entry["fresh"]), entry["fresh"], ".", color=PALETTE[0])
            ax.plot(i, np.mean(entry["fresh"]), "D", color=PALETTE[1])
        ax.axhspan(0.9, 1.1, color="#dddddd", zorder=0)
        ax.set_xticks(range(len(found)), [name.replace(", ", "\n") for name in found])
        ax.set(ylabel="cost after the stream / fresh build", xlim=(-0.5, len(found) - 0.5))
    return fig


def drift(found: dict[str, list[float]], thresholds: dict[str, float], window: int, change: int) -> Figure:
    """The monitors' distances over the stream, their thresholds, and the moment of change."""
    with figure_style():
        fig, ax = plt.subplots()
        for colour, (name, values) in zip(PALETTE, found.items(), strict=False):
            style: Any = {"linewidth": 3, "alpha": 0.5} if name == "exact" else {"linestyle": "-", "linewidth": 1.2}
            ax.plot(np.arange(window, len(values) + 1), values[window - 1 :], color=colour, label=name, **style)
            ax.axhline(thresholds[name], color=colour, linestyle=":", linewidth=1)
        ax.axvline(change, color="#444444", linestyle="--", linewidth=1)
        ax.set(xlabel="points seen", ylabel="W₁ per point")
        ax.legend(title="dotted: threshold")
    return fig

"""The pictures of the claims."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from evalcards import render
from evalcards.figures import wilson
from papers_shared.artifacts import PALETTE, figure_style

FIELD = re.compile(r'data-field="([a-z]+)"')


def draw_sankey(counts: dict[str, tuple[int, int, int]]) -> Any:
    """Draw results by format (results, rows, failed) and where they end."""
    total = sum(results for results, _, _ in counts.values())
    gap = 0.6
    with figure_style(figure_figsize=(7.6, 4.4), axes_grid=False):
        fig, ax = plt.subplots()
        ends = {"rows": 0.0, "failed": sum(rows for _, rows, _ in counts.values()) + 4 * gap}
        left = 0.0
        for number, (name, (results, rows, failed)) in enumerate(counts.items()):
            colour = PALETTE[number % 7]
            ax.barh(left + results / 2, 0.05, height=results, left=0, color=colour)
            ax.text(-0.02, left + results / 2, f"{name}  {results}", ha="right", va="center", fontsize=9)
            inner = left
            for end, size in (("rows", rows), ("failed", failed)):
                if size:
                    x = np.linspace(0.05, 0.95, 60)
                    bend = 1 / (1 + np.exp(-10 * (x - 0.5)))
                    low = inner + (ends[end] - inner) * bend
                    ax.fill_between(x, low, low + size, color=colour, alpha=0.35, linewidth=0)
                    inner += size
                    ends[end] += size
            left += results + gap
        rows = sum(r for _, r, _ in counts.values())
        failed = total - rows
        ax.barh(rows / 2, 0.05, height=rows, left=0.95, color="#333333")
        ax.barh(rows + 4 * gap + failed / 2, 0.05, height=failed, left=0.95, color="#b3450a")
        ax.text(1.02, rows / 2, f"rows in triples  {rows}", va="center", fontsize=9)
        ax.text(1.02, rows + 4 * gap + failed / 2, f"failure report  {failed}", va="center", fontsize=9)
        ax.set(xlim=(-0.35, 1.4), xticks=[], yticks=[])
        ax.invert_yaxis()
        for spine in ax.spines.values():
            spine.set_visible(False)
    return fig


def draw_confusion(total: dict[str, dict[str, int]]) -> Any:
    """Draw planted against found flags: a row per signal, with TP, FN, FP and TN; a wrong one is left white."""
    names = sorted(total)
    counts = np.array([[total[name][key] for key in ("TP", "FN", "FP", "TN")] for name in names], float)
    shares = counts / counts.sum(axis=1, keepdims=True)
    wrong = np.zeros(counts.shape, bool)
    wrong[:, 1:3] = counts[:, 1:3] > 0
    with figure_style(figure_figsize=(7.4, 4.4), axes_grid=False):
        fig, ax = plt.subplots()
        ax.imshow(np.where(wrong, -1, shares), cmap="PuBu", vmin=0, vmax=1.6, aspect="auto")
        for i, j in np.ndindex(*counts.shape):
            ax.text(j, i, f"{int(counts[i, j]):,}", ha="center", va="center", fontsize=9)
        ends = ("planted\nflagged", "planted\nnot flagged", "not planted\nflagged", "not planted\nnot flagged")
        ax.set(xticks=range(4), xticklabels=ends, yticks=range(len(names)), yticklabels=names)
    return fig


def _with_errors(rates: list[dict[str, Any]]) -> tuple[list[float], list[list[float]]]:
    """Return rates in per cent and the lengths of their Wilson bars; a rate of nothing has none."""
    values = [100 * float(rate["rate"] or 0) for rate in rates]
    ends = [wilson(rate["count"], rate["of"]) if rate["of"] else (0.0, 0.0) for rate in rates]
    below = [max(0.0, value - 100 * low) for value, (low, _) in zip(values, ends, strict=True)]
    above = [max(0.0, 100 * high - value) for value, (_, high) in zip(values, ends, strict=True)]
    return values, [below, above]


def draw_rates(corpora: dict[str, dict[str, dict[str, Any]]]) -> Any:
    """Draw the rates of two corpora side by side."""
    with figure_style(figure_figsize=(7.4, 4.4)):
        fig, ax = plt.subplots()
        names = list(next(iter(corpora.values())))
        for shift, (label, rates), colour in zip((-0.2, 0.2), corpora.items(), PALETTE, strict=False):
            values, errors = _with_errors([rates[name] for name in names])
            ax.barh(np.arange(len(names)) + shift, values, 0.38, xerr=errors, color=colour, label=label)
        labels = [name.replace("_", " ") for name in names]
        ax.set(yticks=range(len(names)), yticklabels=labels, xlabel="% (95% Wilson interval)")
        ax.invert_yaxis()
        ax.legend()
    return fig


def draw_sweep(factors: tuple[float, ...], rates: dict[str, list[dict[str, Any]]]) -> Any:
    """Draw the share of flagged triples against the threshold."""
    with figure_style():
        fig, ax = plt.subplots()
        for (name, found), colour in zip(rates.items(), PALETTE, strict=False):
            values, errors = _with_errors(found)
            ax.errorbar(factors, values, errors, marker="o", color=colour, label=name.replace("_", " "))
        ax.set(
            xlabel="threshold, in multiples of the paper's", ylabel="% of eligible triples flagged", xticks=factors,
            ylim=(0, 105),
        )  # fmt: skip
        ax.legend()
    return fig


def draw_latency(latencies: np.ndarray) -> Any:
    """Draw the share of pages that answer within a time."""
    with figure_style():
        fig, ax = plt.subplots()
        ax.plot(latencies, np.arange(1, len(latencies) + 1) / len(latencies), drawstyle="steps-post")
        ax.axvline(300, linestyle="--", color="#444444", label="300 ms")
        ax.axhline(0.95, linestyle=":", color="#444444", label="95%")
        ax.set(xlabel="time of a page, ms", ylabel="share of pages", xscale="log", ylim=(0, 1.02))
        ax.legend()
    return fig


def draw_leaders(examples: list[dict[str, Any]]) -> Any:
    """Draw the leader's score of each board before and after incomparable scores are left out.

    Boards whose bare leader is a mistaken unit, a hundred times too large, would flatten the others: they stand apart.
    A leader whose bare score is 0 has no per cent of it, so that such a board is counted but not drawn.
    """
    kept = [example["after"][1] / example["before"][1] for example in examples if example["before"][1]]
    panels = {
        "leader's score fell a little": [share for share in kept if 0.5 < share < 2],
        "bare leader was in another unit": [share for share in kept if not 0.5 < share < 2],
    }
    with figure_style(figure_figsize=(8.4, 4.4)):
        fig, axes = plt.subplots(1, 2)
        for ax, (title, shares) in zip(axes, panels.items(), strict=True):
            for number, share in enumerate(shares):
                ax.plot([0, 1], [100, 100 * share], "o-", color=PALETTE[number % 7], alpha=0.8)
            ax.set(title=f"{title} ({len(shares)})", xticks=[0, 1], xticklabels=["bare scores", "comparable only"],
                   xlim=(-0.3, 1.3))  # fmt: skip
        axes[0].set(ylabel="leader's score, % of the bare leader's")
        axes[1].set(ylim=(0, 105))
        if len(kept) < len(examples):
            axes[1].text(0.5, 0.02, f"not drawn: {len(examples) - len(kept)} with a bare leader at 0", ha="center",
                         transform=axes[1].transAxes, fontsize=8)  # fmt: skip
    return fig


def draw_modes(pages: dict[str, str]) -> Any:
    """Show both pages as a browser does, or, without one, their sections in order."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    with figure_style(figure_figsize=(9.6, 6.6), axes_grid=False, figure_constrained_layout_use=True):
        fig, axes = plt.subplots(1, 2)
        for ax, (mode, page) in zip(axes, pages.items(), strict=True):
            image = _screenshot(browser, page) if browser else None
            if image is None:
                order = [render.TITLES[name] for name in FIELD.findall(page)]
                for place, title in enumerate(order):
                    ax.text(
                        0.03,
                        1 - (place + 0.5) / len(order),
                        f"{place + 1}  {title}",
                        va="center",
                        transform=ax.transAxes,
                    )
            else:
                ax.imshow(image)
            ax.set(title=mode, xticks=[], yticks=[])
    return fig


def _screenshot(browser: str, page: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "card.html", Path(folder) / "card.png"
        source.write_text(page, encoding="utf-8")
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1000,1350",
            f"--user-data-dir={folder}/profile",
            f"--screenshot={target}",
            source.as_uri(),
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (subprocess.SubprocessError, OSError):
            return None
        return plt.imread(target) if target.exists() else None

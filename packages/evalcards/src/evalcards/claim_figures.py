"""Two pictures of the claims that take more than a plot: a Sankey diagram, and pages as a browser shows them."""

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

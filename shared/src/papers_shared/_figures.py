"""One look for all figures: sizes, a palette safe for colour-blind readers, a caption line, reproducible bytes."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers_shared._atomic import atomic_path
from papers_shared.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's eight colours, ordered so that the first ones differ most in lightness."""

_STYLE: dict[str, Any] = {
    "figure.dpi": 120,
    "savefig.dpi": 150,
    "figure.figsize": (6.4, 4.0),
    "figure.constrained_layout.use": True,
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "errorbar.capsize": 3,
    "image.interpolation": "nearest",
}
# Without these the formats carry the date and the library's version, and a figure in git changes at every run.
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
}


@contextlib.contextmanager
def figure_style(**overrides: Any) -> Generator[None, None, None]:
    """Draw in the workspace's common style; also usable as a decorator, ``@figure_style()``.

    Parameters
    ----------
    **overrides
        Matplotlib rc settings with ``_`` for ``.``, for example ``figure_figsize=(8, 3)``.

    Examples
    --------
    >>> with figure_style():
    ...     fig, ax = plt.subplots()
    ...     ax.plot(steps, loss)
    """
    import matplotlib as mpl
    from cycler import cycler

    known: dict[str, Any] = {name.replace(".", "_"): name for name in mpl.rcParams}
    unknown = sorted(set(overrides) - set(known))
    if unknown:
        raise TypeError(f"no such figure setting: {', '.join(unknown)}")
    settings: Any = _STYLE | {"axes.prop_cycle": cycler(color=PALETTE)}
    settings |= {known[name]: value for name, value in overrides.items()}
    with mpl.rc_context(settings):
        yield


def write_figure(
    path: str | os.PathLike[str],
    fig: Figure,
    caption: str | None = None,
    *,
    dpi: int = 150,
    force: bool = True,
) -> Path:
    """Save a matplotlib figure atomically, with the same bytes for the same figure, and close it.

    Parameters
    ----------
    path
        ``.png``, ``.svg`` or ``.pdf``.
    fig
        The figure; draw it inside `figure_style`.
    caption
        A line set under the picture, wrapped to its width: what is shown, of what data, what the bars mean.
    dpi
        Dots per inch of a png.
    force
        False refuses to replace an existing file.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        Another suffix, an existing file without ``force``, a folder that cannot be written.
    """
    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in _METADATA:
        raise InputError(
            f"{target}: unknown figure format {target.suffix!r}", hint="end the name in .png, .svg or .pdf"
        )
    import matplotlib as mpl

    label = None
    if caption:
        width = max(30, int(fig.get_figwidth() * 14.5))
        text = textwrap.fill(caption, width)
        label = fig.text(0.01, -0.015, text, ha="left", va="top", fontsize=8.5, color="#444444")
    try:
        with (
            atomic_path(target, force=force) as temporary,
            mpl.rc_context({"svg.hashsalt": target.name, "svg.fonttype": "path"}),
        ):
            fig.savefig(temporary, format=kind, dpi=dpi, bbox_inches="tight", pad_inches=0.08, metadata=_METADATA[kind])
    finally:
        if label is not None:
            label.remove()
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close(fig)
    return target

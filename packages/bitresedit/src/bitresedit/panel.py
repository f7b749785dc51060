"""One picture that tells an edit: source, mask and gate, edit, ground truth if known, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as nnf
from PIL import Image
from scipy.ndimage import gaussian_filter

from bitresedit.editor import EditResult
from papers_shared.artifacts import figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAIN = 4
_OUTLINE = "#ff8c00"
_INCH = 2.1


def draw_panel(result: EditResult, truth: Image.Image | None = None) -> Figure:
    """Draw the panel of one edit.

    Parameters
    ----------
    result
        The edit.
    truth
        What the edit should look like, if known (rendered scenes); of any size.

    Returns
    -------
    matplotlib.figure.Figure
        From left to right: source, mask (outline) and gate (colour), edit, ground truth if given, and the mean
        absolute difference of edit and source times 4 (black: none). Save it with
        ``papers_shared.artifacts.write_figure``.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    source, edited = np.asarray(result.original), np.asarray(result.image)
    columns = [("source", source), ("mask and gate", _gated(source, result)), ("edit", edited)]
    if truth is not None:
        columns.append(("ground truth", np.asarray(truth.convert("RGB"))))
    columns.append((f"difference × {_GAIN}", _difference(source, edited)))
    shape = source.shape[0] / source.shape[1]
    with figure_style(axes_grid=False, axes_titlesize=11):
        layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.02)
        figure = Figure(figsize=(_INCH * len(columns), _INCH * shape + 0.35), layout=layout)
        axes = figure.subplots(1, len(columns))
        for place, (title, picture) in zip(axes, columns, strict=True):
            _show(place, title, picture)
        _outline(axes[1], result)
    return figure


def _show(axes: Axes, title: str, picture: np.ndarray) -> None:
    height, width = picture.shape[:2]
    axes.imshow(picture, cmap="magma", vmin=0, vmax=255, interpolation="bicubic", extent=(0, 1, 1, 0))
    axes.set(aspect=height / width, anchor="S", xticks=[], yticks=[])
    axes.set_title(title, pad=4)
    for spine in axes.spines.values():
        spine.set(visible=True, color="#bbbbbb", linewidth=0.6)


def _difference(source: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Give the mean absolute difference of the channels, times the gain, cut at 255."""
    change = np.abs(edited.astype(np.float32) - source).mean(-1) * _GAIN
    return np.rint(change).clip(0, 255).astype(np.uint8)


def _gated(source: np.ndarray, result: EditResult) -> np.ndarray:
    """Fade the source to pale grey where the gate is closed."""
    size = source.shape[:2]
    weight = nnf.interpolate(result.gate, size=size, mode="bilinear", align_corners=False)[0, 0].numpy()[..., None]
    grey = source.mean(axis=-1, keepdims=True)
    faded = 0.35 * grey + 0.65 * 245
    return np.rint(weight * source + (1 - weight) * faded).astype(np.uint8)


def _outline(axes: Axes, result: EditResult) -> None:
    """Draw the mask's border, without the teeth and specks of single pixels that a shadow's soft edge leaves in it."""
    mask = np.pad(result.mask.numpy().astype(np.float32), 1, mode="edge")
    smooth = gaussian_filter(mask, sigma=max(1.0, min(result.mask.shape) / 64), mode="nearest")
    shown = smooth if (smooth > 0.5).any() else mask  # a thin mask keeps its own line
    if mask.min() == mask.max():
        return
    rows, columns = ((np.arange(n + 2) - 0.5) / n for n in result.mask.shape)
    axes.contour(columns, rows, shown, levels=[0.5], colors=[_OUTLINE], linewidths=1.4)
    axes.set(xlim=(0, 1), ylim=(1, 0))

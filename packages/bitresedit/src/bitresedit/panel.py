"""One picture that tells an edit: source, mask and gate, edit, ground truth if known, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as nnf
from PIL import Image

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
        From left to right: source, mask (outline) and gate (brightness), edit, ground truth if given, and the
        absolute difference of edit and source times 4. Save it with ``papers_shared.artifacts.write_figure``.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    source = np.asarray(result.original)
    edited = np.asarray(result.image)
    change = np.abs(edited.astype(np.float32) - source.astype(np.float32)) * _GAIN
    columns: list[tuple[str, np.ndarray]] = [
        ("source", source),
        ("mask and gate", _gated(source, result)),
        ("edit", edited),
        ("|edit − source| × 4", np.clip(change, 0, 255).astype(np.uint8)),
    ]
    if truth is not None:
        columns.insert(3, ("ground truth", np.asarray(truth.convert("RGB"))))
    shape = source.shape[0] / source.shape[1]
    with figure_style(axes_grid=False, axes_titlesize=11):
        layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.02)
        figure = Figure(figsize=(_INCH * len(columns), _INCH * shape + 0.35), layout=layout)
        axes = figure.subplots(1, len(columns))
        for place, (title, picture) in zip(axes, columns, strict=True):
            _show(place, title, picture)
        _outline(axes[1], result, source.shape[:2])
    return figure


def _show(axes: Axes, title: str, picture: np.ndarray) -> None:
    axes.imshow(picture, interpolation="bicubic", extent=(0, 1, 1, 0), aspect=picture.shape[0] / picture.shape[1])
    axes.set_title(title, pad=4)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, color="#bbbbbb", linewidth=0.6)


def _gated(source: np.ndarray, result: EditResult) -> np.ndarray:
    """Fade the source to pale grey where the gate is closed."""
    size = source.shape[:2]
    weight = nnf.interpolate(result.gate, size=size, mode="bilinear", align_corners=False)[0, 0].numpy()[..., None]
    grey = source.mean(axis=-1, keepdims=True)
    faded = 0.35 * grey + 0.65 * 245
    return np.rint(weight * source + (1 - weight) * faded).astype(np.uint8)


def _outline(axes: Axes, result: EditResult, size: tuple[int, int]) -> None:
    """Draw the mask's border along its pixels' edges."""
    mask = nnf.interpolate(result.mask[None, None].float(), size=size, mode="nearest")[0, 0].numpy()
    if mask.min() == mask.max():
        return
    rows, columns = (np.arange(n) / n + 0.5 / n for n in size)
    axes.contour(columns, rows, mask, levels=[0.5], colors=[_OUTLINE], linewidths=1.4)
    axes.set_xlim(0, 1)
    axes.set_ylim(1, 0)

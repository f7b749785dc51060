"""Where to edit: masks, the soft gate on the latent's grid, and masks found from the prompts themselves."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Float
from torch import Tensor

from bitresedit.backbones import Backbone, Cond
from bitresedit.bsq import upsample
from bitresedit.errors import MaskError
from bitresedit.rollout import teacher_forced
from papers_shared.images import open_image

MaskLike = str | Path | Sequence[int | float] | np.ndarray | Tensor
"""``"auto"``, a picture's path, a box ``x0,y0,x1,y1`` in pixels, or an array (not zero, above 0.5 = edit)."""

_BOX = re.compile(r"\s*(-?\d+(?:\.\d+)?)" + r"\s*,\s*(-?\d+(?:\.\d+)?)" * 3 + r"\s*")
_SMALL_GRID = 24
_KINDS = "give a picture, a box x0,y0,x1,y1, or auto"
_BOX_HINT = "give a box instead: --mask x0,y0,x1,y1"


def edit_gate(
    mask: Bool[Tensor, "H W"] | Float[Tensor, "H W"],
    grid: tuple[int, int],
    dilate: int = 7,
    blur: int = 5,
    sigma: float = 2.0,
) -> Float[Tensor, "1 1 h w"]:
    """Turn a pixel mask into the soft gate ``g`` on the latent's grid.

    Max-pool dilation (stride 1), bilinear resampling to the grid, Gaussian blur with zero padding, division by the
    maximum, clamp to [0, 1]. Two rules keep small things working: if the mask falls between the samples of the
    bilinear step and vanishes, every cell that it touches is kept (max pooling); and on grids of fewer than 24 cells
    a side the blur is at most 3x3 with sigma 0.7, since 5x5 would cover the picture.

    Parameters
    ----------
    mask
        ``[H, W]`` at image resolution, 1 (or True) where the picture is to change.
    grid
        ``(rows, columns)`` of the latent.
    dilate, blur
        Odd widths in pixels and in cells.
    sigma
        Of the blur, in cells.

    Returns
    -------
    Tensor
        ``[1, 1, rows, columns]`` float32 in [0, 1], with maximum 1.

    Raises
    ------
    MaskError
        If the mask selects no pixel.

    References
    ----------
    Paper, section 4.2 (localisation gate).
    """
    pixels = mask.float()[None, None]
    if not bool((pixels > 0).any()):
        raise MaskError("mask selects no pixel", "paint the part to edit white")
    pixels = nnf.max_pool2d(pixels, dilate, stride=1, padding=dilate // 2)
    gate = nnf.interpolate(pixels, size=grid, mode="bilinear", align_corners=False)
    if not bool((gate > 0).any()):
        gate = nnf.adaptive_max_pool2d(pixels, grid)
    if min(grid) < _SMALL_GRID:
        blur, sigma = min(blur, 3), min(sigma, 0.7)
    gate = nnf.conv2d(gate, _gaussian(blur, sigma).to(gate.device), padding=blur // 2)
    return (gate / gate.max()).clamp(0.0, 1.0)


def region(gate: Float[Tensor, "b 1 h w"], grid: tuple[int, int]) -> Bool[Tensor, "b rows columns"]:
    """Give the cells of a scale's grid that the gate reaches: ``1[bilinear(g) > 0]``."""
    return upsample(gate, grid)[:, 0] > 0


def _gaussian(width: int, sigma: float) -> Tensor:
    offset = torch.arange(width, dtype=torch.float32) - width // 2
    line = torch.exp(-offset.square() / (2 * sigma**2))
    kernel = torch.outer(line, line)
    return (kernel / kernel.sum())[None, None]


def read_mask(mask: MaskLike, size: tuple[int, int]) -> Bool[Tensor, "H W"]:
    """Read a mask and lay it over a picture.

    Parameters
    ----------
    mask
        A picture's path, a box ``x0,y0,x1,y1`` in pixels (text or numbers; cut at the picture's border), or an array
        ``[H, W]``. What is not binary is cut at half. Another size than the picture's is resized (nearest), with a
        warning.
    size
        ``(height, width)`` of the picture.

    Returns
    -------
    Tensor
        Bool ``[H, W]``, True where the picture is to change.

    Raises
    ------
    MaskError
        If it cannot be read as a mask, or selects no pixel.
    """
    selected = _selected(mask, size)
    if not bool(selected.any()):
        raise MaskError("mask selects no pixel", "paint the part to edit white, or give a box x0,y0,x1,y1")
    return selected


def _selected(mask: MaskLike, size: tuple[int, int]) -> Tensor:
    if isinstance(mask, str) and (numbers := _BOX.fullmatch(mask)):
        return _box([float(x) for x in numbers.groups()], size)
    if isinstance(mask, str | Path):
        return _resized(_painted(mask), size)
    if isinstance(mask, np.ndarray | Tensor):
        return _resized(_binary(torch.as_tensor(mask)), size)
    try:
        numbers = [float(x) for x in mask]
    except (TypeError, ValueError):
        raise MaskError(f"cannot read the mask {mask!r}", _KINDS) from None
    if len(numbers) != 4:
        raise MaskError(f"a box has four numbers x0,y0,x1,y1, got {len(numbers)}")
    return _box(numbers, size)


def _painted(path: str | Path) -> Tensor:
    if not str(path) or not Path(path).is_file():
        raise MaskError(f"cannot read the mask '{path}'", _KINDS)
    grey = np.array(open_image(path, mode="L"))
    if grey.max() == 1:
        warnings.warn(f"{path} holds 0 and 1 only, not black and white: 1 is taken for white", stacklevel=4)
        return torch.from_numpy(grey == 1)
    return torch.from_numpy(grey > 127)


def _binary(mask: Tensor) -> Tensor:
    mask = mask.squeeze()
    if mask.ndim != 2:
        raise MaskError(f"a mask array has two axes, got shape {list(mask.shape)}")
    if mask.dtype == torch.bool:
        return mask
    if bool(torch.isnan(mask.float()).any()):
        raise MaskError("the mask holds values that are not numbers")
    # 0 and 255 as pictures have them, or 0 and 1 as arrays have them.
    top = 255.0 if not mask.is_floating_point() and int(mask.max()) > 1 else 1.0
    return mask.float() / top > 0.5


def _box(numbers: Sequence[int | float], size: tuple[int, int]) -> Tensor:
    height, width = size
    finite = all(math.isfinite(number) for number in numbers)
    x0, y0, x1, y1 = (round(number) for number in numbers) if finite else (0, 0, 0, 0)
    if x1 <= x0 or y1 <= y0 or x0 >= width or y0 >= height or x1 <= 0 or y1 <= 0:
        raise MaskError(
            f"the box {','.join(f'{number:g}' for number in numbers)} selects no pixel of the {width}x{height} picture",
            "a box is x0,y0,x1,y1 in pixels from the top left",
        )
    selected = torch.zeros(height, width, dtype=torch.bool)
    selected[max(0, y0) : y1, max(0, x0) : x1] = True
    return selected


def _resized(mask: Tensor, size: tuple[int, int]) -> Tensor:
    if tuple(mask.shape) == tuple(size):
        return mask
    warnings.warn(
        f"the mask is {mask.shape[1]}x{mask.shape[0]} and the picture {size[1]}x{size[0]}: the mask is resized",
        stacklevel=2,
    )
    return nnf.interpolate(mask[None, None].float(), size=size, mode="nearest")[0, 0] > 0.5


@torch.no_grad()
def auto_mask(backbone: Backbone, image: Float[Tensor, "1 3 H W"], source: str, target: str) -> Bool[Tensor, "H W"]:
    """Find where the two prompts disagree about a picture.

    The source's own bits are fed scale by scale under both prompts. Per token
    ``A_k = mean over bits |sigma(d_T) - sigma(d_S)|``; the maps of the scales with ``4 <= h_k <= 16`` are upsampled
    and averaged, cut at Otsu's threshold, and the largest component is kept with its holes filled.

    Parameters
    ----------
    backbone
        The model.
    image
        ``[1, 3, H, W]`` in [-1, 1], of the backbone's size.
    source, target
        Prompts without brackets.

    Returns
    -------
    Tensor
        Bool ``[H, W]``.

    Raises
    ------
    MaskError
        If the prompts make no difference.
    """
    difference = disagreement(backbone, image, source, target).cpu().numpy()
    if not difference.max() > difference.min():
        raise MaskError("mask selects no pixel: the two prompts make no difference to the model", _BOX_HINT)
    from scipy.ndimage import binary_fill_holes
    from skimage.filters import threshold_otsu
    from skimage.measure import label

    parts = label(difference > threshold_otsu(difference))
    sizes = np.bincount(parts.ravel())[1:]
    if not sizes.size:
        raise MaskError("mask selects no pixel: the prompts differ nowhere in particular", _BOX_HINT)
    largest = parts == 1 + int(sizes.argmax())
    return torch.from_numpy(binary_fill_holes(largest)).to(image.device)


@torch.no_grad()
def disagreement(backbone: Backbone, image: Float[Tensor, "1 3 H W"], source: str, target: str) -> Float[Tensor, "H W"]:
    """Average over the middle scales how far two prompts move the probabilities of the source's bits.

    Parameters and references as in :func:`auto_mask`; this is its map before the threshold.
    """
    bits = backbone.encode_image(image)
    wanted = [k for k, (h, _) in enumerate(backbone.schedule) if 4 <= h <= 16]
    if not wanted:
        raise MaskError("the backbone has no scale between 4 and 16 rows to look at", _BOX_HINT)
    cond = Cond.cat([backbone.text([target]), backbone.text([source])])
    size = (image.shape[-2], image.shape[-1])
    total = torch.zeros(size, device=image.device)
    for k, d in teacher_forced(backbone, bits[: wanted[-1] + 1], cond, backbone.cache()):
        if k in wanted:
            p_target, p_source = torch.sigmoid(d).chunk(2)
            moved = (p_target - p_source).abs().mean(-1)
            total += upsample(moved[:, None], size)[0, 0]
    return total / len(wanted)

"""Fit a picture of any size to a backbone's size, and the result back to the picture."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from bitresedit.backbones import Backbone
from bitresedit.errors import BitResEditError, MaskError
from papers_shared.images import open_image

ImageLike = str | os.PathLike[str] | Image.Image | np.ndarray | Tensor


@dataclass(frozen=True)
class Frame:
    """The centred crop of a picture that a backbone sees, and the size at which it sees it.

    Attributes
    ----------
    box
        ``(left, top, right, bottom)`` of the crop in the picture's pixels.
    size
        ``(height, width)`` of the backbone's images.
    """

    box: tuple[int, int, int, int]
    size: tuple[int, int]

    @classmethod
    def fit(cls, picture: tuple[int, int], size: tuple[int, int]) -> Frame:
        """Take the largest centred crop of a ``(height, width)`` picture with the shape of ``size``."""
        height, width = picture
        scale = min(height / size[0], width / size[1])
        rows, columns = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
        top, left = (height - rows) // 2, (width - columns) // 2
        return cls((left, top, left + columns, top + rows), size)

    def pixels(self, picture: Image.Image) -> Float[Tensor, "1 3 H W"]:
        """Crop, resize (Lanczos; not at all if the size fits) and map RGB to [-1, 1]."""
        crop = picture.crop(self.box)
        if crop.size != self.size[::-1]:
            crop = crop.resize(self.size[::-1], Image.Resampling.LANCZOS)
        values = torch.from_numpy(np.array(crop, dtype=np.float32))
        return (values / 127.5 - 1.0).permute(2, 0, 1)[None]

    def mask(self, mask: Bool[Tensor, "rows columns"]) -> Bool[Tensor, "H W"]:
        """Crop a mask and resize it; a pixel of the result is selected if any part of it was.

        Raises
        ------
        MaskError
            If nothing is selected inside the crop.
        """
        left, top, right, bottom = self.box
        crop = mask[top:bottom, left:right]
        if not bool(crop.any()):
            raise MaskError(
                "mask selects no pixel of the part that the model sees, a centred crop",
                f"that part is the box {left},{top},{right},{bottom} of the picture",
            )
        return nnf.adaptive_max_pool2d(crop[None, None].float(), self.size)[0, 0] > 0

    def unmask(self, mask: Bool[Tensor, "H W"], size: tuple[int, int]) -> Image.Image:
        """Lay a mask back over the whole picture of ``(width, height)``: grey, 255 where selected."""
        left, top, right, bottom = self.box
        found = Image.fromarray(mask.cpu().numpy().astype(np.uint8) * 255)
        whole = Image.new("L", size)
        whole.paste(found.resize((right - left, bottom - top), Image.Resampling.NEAREST), (left, top))
        return whole

    def picture(self, pixels: Float[Tensor, "3 H W"]) -> Image.Image:
        """Map [-1, 1] to RGB at the crop's own size (Lanczos)."""
        image = to_picture(pixels)
        left, top, right, bottom = self.box
        size = (right - left, bottom - top)
        return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)


def fitted(backbone: Backbone, picture: Image.Image) -> Frame:
    """Give the frame of a picture in a backbone, which takes the picture's shape if it can adapt to it."""
    fit = getattr(backbone, "fit", None)
    if fit is not None:
        fit(picture.height, picture.width)
    return Frame.fit((picture.height, picture.width), backbone.image_size)


def to_picture(pixels: Float[Tensor, "3 H W"]) -> Image.Image:
    """Map [-1, 1] to RGB, pixel by pixel."""
    values = ((pixels.float().cpu().clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return Image.fromarray(values.permute(1, 2, 0).numpy())


def as_picture(image: ImageLike) -> Image.Image:
    """Turn what a caller may hold into an upright RGB image.

    Parameters
    ----------
    image
        Path; PIL image of any mode; array ``(h, w)``, ``(h, w, 3)`` or ``(h, w, 4)``, uint8 or [0, 1]; or a tensor
        ``[3, h, w]`` or ``[1, 3, h, w]``, uint8 or in [-1, 1] as backbones use.

    Raises
    ------
    BitResEditError
        If a tensor has another shape or range. Pictures raise what ``papers_shared.images.open_image`` raises.
    """
    if not isinstance(image, Tensor):
        return open_image(image)
    pixels = image.detach().float().cpu()
    if image.dtype == torch.uint8:
        pixels = pixels / 127.5 - 1
    pixels = pixels[0] if pixels.ndim == 4 and pixels.shape[0] == 1 else pixels
    if pixels.ndim != 3 or pixels.shape[0] != 3:
        raise BitResEditError(f"an image tensor is [3, h, w] or [1, 3, h, w], got {list(image.shape)}")
    if not bool((pixels.abs() <= 1 + 1e-4).all()):
        raise BitResEditError("an image tensor must lie in [-1, 1], or be uint8")
    return to_picture(pixels)


def psnr(
    image: Float[Tensor, "3 H W"], reference: Float[Tensor, "3 H W"], where: Bool[Tensor, "H W"] | None = None
) -> float:
    """Give the peak signal-to-noise ratio in dB of two images in [-1, 1], over the pixels selected.

    NaN when no pixel is selected, infinity when the pixels agree.
    """
    error = (image.clamp(-1, 1) - reference).square().mean(0)
    if where is not None:
        error = error[where]
    if error.numel() == 0:
        return math.nan
    mean = float(error.double().mean())
    return math.inf if mean == 0 else 10 * math.log10(4 / mean)

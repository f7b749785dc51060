"""Edit pictures: from a picture, two prompts and a mask to the edited picture and what happened on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from bitresedit.backbones import Backbone
from bitresedit.config import EditConfig
from bitresedit.errors import BitResEditError
from bitresedit.frames import Frame, ImageLike, as_picture, fitted, psnr
from bitresedit.gate import MaskLike, auto_mask, edit_gate, read_mask
from bitresedit.prompts import checked_prompts, warn_if_same
from bitresedit.resedit import EditBatch, Outcome, ScaleTrace, edit_codes

Method = Callable[[Backbone, EditConfig, EditBatch], Outcome]
"""How codes are edited: :func:`bitresedit.resedit.edit_codes` or one of :mod:`bitresedit.baselines`."""


@dataclass(frozen=True)
class EditItem:
    """One edit to make.

    Attributes
    ----------
    image
        Path, PIL image, array or tensor; see :func:`bitresedit.frames.as_picture`.
    source, target
        Prompts for the picture as it is and as it should become; square brackets may mark what differs.
    mask
        ``"auto"``, a picture's path, a box ``x0,y0,x1,y1`` in pixels, or an array.
    seed
        Of the sampler.
    """

    image: ImageLike
    source: str
    target: str
    mask: MaskLike = "auto"
    seed: int = 42


@dataclass(frozen=True)
class EditResult:
    """An edited picture and how it came about.

    Attributes
    ----------
    image, reconstruction
        The edit, and what the codes alone make of the source; both at the size of the centred crop.
    original
        That crop of the source.
    frame
        The crop and the backbone's size.
    mask
        Bool ``[H, W]`` at the backbone's size.
    gate
        ``[1, 1, h, w]``: the soft gate on the latent's grid.
    trace
        One entry a scale.
    latent, source_latent
        ``[1, d, h, w]``; equal bit by bit wherever the gate is 0 (unless a method composes without it).
    bits
        Drawn bits, one bool tensor ``[1, h_k, w_k, d]`` a scale.
    pixels, source_pixels
        ``[3, H, W]`` in [-1, 1] at the backbone's size: the edit and the source.
    seed
        The seed used.
    """

    image: Image.Image
    reconstruction: Image.Image
    original: Image.Image
    frame: Frame
    mask: Bool[Tensor, "H W"]
    gate: Float[Tensor, "1 1 h w"]
    trace: list[ScaleTrace]
    latent: Float[Tensor, "1 d h w"]
    source_latent: Float[Tensor, "1 d h w"]
    bits: list[Tensor]
    pixels: Float[Tensor, "3 H W"]
    source_pixels: Float[Tensor, "3 H W"]
    reconstruction_psnr: float
    background_psnr: float
    seed: int

    def summary(self) -> dict[str, Any]:
        """Give the numbers of the edit as plain values, for JSON."""
        return {
            "seed": self.seed,
            "mask_share": float(self.mask.float().mean()),
            "reconstruction_psnr": self.reconstruction_psnr,
            "background_psnr": self.background_psnr,
            "kept_share": float((self.gate == 0).float().mean()),
            "kept_codes_differ_by": self.kept_difference(),
            "seconds": sum(row.seconds for row in self.trace),
            "trace": [dataclasses.asdict(row) for row in self.trace],
        }

    def kept_difference(self) -> float:
        """Give the largest difference between edited and source codes where the gate is 0 (0.0 if it never is)."""
        kept = (self.gate == 0).expand_as(self.latent)
        return float((self.latent - self.source_latent)[kept].abs().max()) if bool(kept.any()) else 0.0


class Editor:
    """Edit pictures with one backbone and one configuration.

    Parameters
    ----------
    backbone
        :class:`bitresedit.SceneVAR`, :class:`bitresedit.Infinity` or anything with their interface.
    config
        Strengths; by default the paper's, with the backbone's own guidance and temperature where it names them
        (``backbone.default_config``).
    method
        What edits the codes; BitEdit and ResEdit by default.

    Examples
    --------
    >>> editor = Editor(SceneVAR.load_default())
    >>> result = editor.edit(photo, "a red metal ball on sand", "a blue glass cube on sand", mask=(20, 20, 70, 80))
    >>> result.image.save("edited.png")
    """

    def __init__(self, backbone: Backbone, config: EditConfig | None = None, method: Method = edit_codes) -> None:
        self.backbone = backbone
        self.config = default_config(backbone) if config is None else config
        self.method = method

    def edit(self, image: ImageLike, source: str, target: str, mask: MaskLike = "auto", seed: int = 42) -> EditResult:
        """Edit one picture.

        Parameters
        ----------
        image
            The picture, any size; the model sees its largest centred crop of the right shape.
        source, target
            Prompts for the picture as it is and as it should become.
        mask
            Where to edit: ``"auto"``, a path, a box ``x0,y0,x1,y1`` in pixels, or an array of the picture's size.
        seed
            Of the sampler; the same seed gives the same edit on the same machine.

        Returns
        -------
        EditResult

        Raises
        ------
        MaskError, PromptError, VocabularyError, BitResEditError
            If the input cannot be used; the message says why.
        """
        return self.edit_batch([EditItem(image, source, target, mask, seed)])[0]

    @torch.no_grad()
    def edit_batch(self, items: Sequence[EditItem]) -> list[EditResult]:
        """Edit several pictures at once; each result is what :meth:`edit` gives for the item alone.

        With a backbone that adapts its shape to the picture (:class:`bitresedit.Infinity`), pictures of one shape go
        through it together.

        Parameters
        ----------
        items
            At least one.

        Returns
        -------
        list of EditResult
            In the order of the items.
        """
        # Prompts first: they are cheap to check, and a wrong one should not wait for an encoder.
        for item in items:
            checked_prompts(item.source, item.target)
            if not isinstance(item.seed, int | np.integer):
                raise BitResEditError(f"the seed is {item.seed!r}, not a whole number")
        for source, target in dict.fromkeys((item.source, item.target) for item in items):
            warn_if_same(source, target)
        pictures = [as_picture(item.image) for item in items]
        groups: dict[tuple[int, int], list[int]] = {}
        for i, picture in enumerate(pictures):
            groups.setdefault(fitted(self.backbone, picture).size, []).append(i)
        results: dict[int, EditResult] = {}
        for group in groups.values():
            fitted(self.backbone, pictures[group[0]])
            done = self._edit_alike([items[i] for i in group], [pictures[i] for i in group])
            results |= zip(group, done, strict=True)
        return [results[i] for i in range(len(items))]

    def _edit_alike(self, items: Sequence[EditItem], pictures: Sequence[Image.Image]) -> list[EditResult]:
        prepared = [self._prepare(item, picture) for item, picture in zip(items, pictures, strict=True)]
        batch = EditBatch(
            source_bits=[torch.cat(scale) for scale in zip(*(p.bits for p in prepared), strict=True)],
            gate=torch.cat([p.gate for p in prepared]),
            coverage=torch.stack([p.mask.float().mean() for p in prepared]),
            sources=[item.source for item in items],
            targets=[item.target for item in items],
            generators=[torch.Generator().manual_seed(int(item.seed)) for item in items],
        )
        outcome = self.method(self.backbone, self.config, batch)
        pictures_out = self.backbone.decode(torch.cat([outcome.latent, outcome.source_latent])).cpu()
        return [
            self._result(i, item, prepared[i], outcome, pictures_out[i], pictures_out[len(items) + i])
            for i, item in enumerate(items)
        ]

    def _prepare(self, item: EditItem, picture: Image.Image) -> _Prepared:
        frame = Frame.fit((picture.height, picture.width), self.backbone.image_size)
        pixels = frame.pixels(picture).to(self.backbone.device)
        if isinstance(item.mask, str) and item.mask == "auto":
            mask = auto_mask(self.backbone, pixels, *checked_prompts(item.source, item.target))
        else:
            mask = frame.mask(read_mask(item.mask, (picture.height, picture.width))).to(pixels.device)
        gate = edit_gate(mask, self.backbone.schedule[-1])
        return _Prepared(picture.crop(frame.box), frame, pixels, mask, gate, self.backbone.encode_image(pixels))

    def _result(
        self, i: int, item: EditItem, prepared: _Prepared, outcome: Outcome, edited: Tensor, rebuilt: Tensor
    ) -> EditResult:
        frame, source = prepared.frame, prepared.pixels[0].cpu()
        mask, gate = prepared.mask.cpu(), prepared.gate.cpu()
        image = frame.picture(edited)
        if self.config.composite == "pixel":
            image = blend(prepared.crop, image, gate)
            small = nnf.interpolate(gate, size=frame.size, mode="bilinear", align_corners=False)[0]
            edited = torch.lerp(source, edited, small)
        return EditResult(
            image=image,
            reconstruction=frame.picture(rebuilt),
            original=prepared.crop,
            frame=frame,
            mask=mask,
            gate=gate,
            trace=outcome.trace[i],
            latent=outcome.latent[i : i + 1].cpu(),
            source_latent=outcome.source_latent[i : i + 1].cpu(),
            bits=[scale[i : i + 1].cpu() for scale in outcome.bits],
            pixels=edited,
            source_pixels=source,
            reconstruction_psnr=psnr(rebuilt, source),
            background_psnr=psnr(edited, source, ~mask),
            seed=item.seed,
        )


@dataclass(frozen=True)
class _Prepared:
    """A picture cropped, resized, masked and encoded."""

    crop: Image.Image
    frame: Frame
    pixels: Tensor
    mask: Tensor
    gate: Tensor
    bits: list[Tensor]


def default_config(backbone: Backbone) -> EditConfig:
    """Give the paper's settings, with those that the backbone names for itself."""
    return EditConfig(**backbone.default_config)


def blend(source: Image.Image, edited: Image.Image, gate: Float[Tensor, "1 1 h w"]) -> Image.Image:
    """Lay an edit over its source through the upsampled gate, so that pixels far outside it are the source's own."""
    size = (source.height, source.width)
    weight = nnf.interpolate(gate, size=size, mode="bilinear", align_corners=False)[0, 0].numpy()[..., None]
    under, over = np.asarray(source, dtype=np.float32), np.asarray(edited, dtype=np.float32)
    return Image.fromarray(np.rint(under + weight * (over - under)).astype(np.uint8))

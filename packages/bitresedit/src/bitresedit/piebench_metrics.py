"""PIE-Bench's metrics of one edit: what it keeps outside the mask, and how well it shows the target prompt."""

from __future__ import annotations

import logging
import math
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from bitresedit.errors import BitResEditError, MaskError
from bitresedit.piebench_files import SIZE, Item, strip_brackets
from bitresedit.piebench_networks import Clip, Lpips, StructureDistance
from papers_shared.images import open_image

COLUMNS = ("structure", "psnr", "lpips", "mse", "ssim", "clip", "clip_edit")

_log = logging.getLogger(__name__)


class Pair(NamedTuple):
    """An edit to score: the task, the edited image, and the mask if not the annotation's."""

    item: Item
    edited: Any
    mask: Any = None


class Metrics:
    """The benchmark's metrics; networks come from local folders, and a column without its network is skipped.

    Parameters
    ----------
    clip
        Folder of ``openai/clip-vit-large-patch14`` in the transformers format, or of an open_clip model.
    lpips
        Folder with torchvision's ``squeezenet1_1-*.pth``.
    dino
        Folder of ``facebook/dino-vitb8`` in the transformers format.
    device
        Where the networks run.

    Attributes
    ----------
    columns
        Names of what :meth:`measure` gives.
    skipped
        Column to the reason why it is not measured.

    Raises
    ------
    BitResEditError
        If a folder is named and not there or not that network, or if the extra it needs is not installed.
    """

    def __init__(
        self,
        clip: str | Path | None = None,
        lpips: str | Path | None = None,
        dino: str | Path | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.clip = None if clip is None else Clip(clip, device)
        self.lpips = None if lpips is None else Lpips(lpips, device)
        self.structure = None if dino is None else StructureDistance(dino, device)
        networks = {
            "structure": ("dino", self.structure),
            "lpips": ("lpips", self.lpips),
            "clip": ("clip", self.clip),
            "clip_edit": ("clip", self.clip),
        }
        self.skipped = {
            name: f"no {option} folder given" for name, (option, network) in networks.items() if network is None
        }
        self.columns = tuple(name for name in COLUMNS if name not in self.skipped)
        for name, reason in self.skipped.items():
            _log.warning("PIE-Bench column %s is skipped: %s", name, reason)

    def measure(
        self,
        source: Image.Image,
        edited: Image.Image,
        mask: Bool[np.ndarray, "h w"],
        target: str,
        columns: Sequence[str] = COLUMNS,
    ) -> dict[str, float]:
        """Score one edit.

        With ``m`` the mask and images in [0, 1], ``psnr``, ``lpips``, ``mse`` and ``ssim`` compare ``I (1 -
        m)`` with ``I' (1 - m)`` over the whole frame, so pixels inside the mask count as equal zeros; they
        are NaN where the mask leaves nothing. ``structure`` compares the whole images, ``clip`` the whole
        edited image with the target prompt, ``clip_edit`` its part ``I' m``.

        Parameters
        ----------
        source, edited
            RGB images of one size.
        mask
            Bool, True where the edit may happen.
        target
            Target prompt; brackets are removed.
        columns
            Those wanted; others cost nothing.

        Returns
        -------
        dict
            A float for each of :attr:`columns` that is wanted.
        """
        before, after = np.array(source), np.array(edited)
        if before.shape != after.shape or before.shape[:2] != mask.shape:
            raise BitResEditError(f"source {before.shape[:2]}, edit {after.shape[:2]} and mask {mask.shape} differ")
        prompt = strip_brackets(target)
        values: dict[str, float] = {name: math.nan for name in self.columns if name in columns}
        if not mask.all():
            kept, keeps = (_unit(image) * torch.from_numpy(~mask) for image in (before, after))
            values |= _pixel_scores(kept, keeps, values)
            if self.lpips is not None and "lpips" in values:
                values["lpips"] = self.lpips(kept * 2 - 1, keeps * 2 - 1)
        if self.structure is not None and "structure" in values:
            values["structure"] = self.structure(before, after)
        if self.clip is not None and "clip" in values:
            values["clip"] = self.clip(after, prompt)
        if self.clip is not None and "clip_edit" in values and mask.any():
            values["clip_edit"] = self.clip(after * mask[..., None], prompt)
        return values

    def row(self, pair: Pair) -> dict[str, Any]:
        """Score one pair as a flat record: identity, mask facts, and the metrics.

        An edit of another size is scaled to 512 x 512 (Lanczos) and marked ``resized``. ``mask_used`` is
        ``"annotation"`` or ``"given"``; ``mask_fraction`` is the share of selected pixels.
        """
        item = pair.item
        source, edited = _framed(item.image()), open_image(pair.edited)
        mask = item.mask if pair.mask is None else np.asarray(pair.mask)
        if mask.shape != SIZE:
            raise MaskError(f"the mask given for {item.id} is {mask.shape}, expected {SIZE}")
        mask = mask.astype(bool)
        return {
            "id": item.id,
            "editing_type_id": item.editing_type_id,
            "editing_type": item.editing_type,
            "target": item.target,
            "mask_used": "annotation" if pair.mask is None else "given",
            "mask_fraction": float(mask.mean()),
            "resized": edited.size != SIZE[::-1],
            **self.measure(source, _framed(edited), mask, item.target),
        }


def _pixel_scores(kept: Tensor, keeps: Tensor, wanted: Container[str]) -> dict[str, float]:
    # Imported here: the library takes seconds, and everything else of this module does without it.
    from torchmetrics.functional import mean_squared_error
    from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

    scores = {
        "psnr": lambda: peak_signal_noise_ratio(keeps, kept, data_range=1.0),
        "mse": lambda: mean_squared_error(keeps.contiguous(), kept.contiguous()),
        "ssim": lambda: torch.as_tensor(structural_similarity_index_measure(keeps, kept, data_range=1.0)),
    }
    return {name: float(score()) for name, score in scores.items() if name in wanted}


def _unit(image: np.ndarray) -> Float[Tensor, "1 3 h w"]:
    return torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1)[None]


def _framed(image: Image.Image) -> Image.Image:
    size = SIZE[::-1]
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)

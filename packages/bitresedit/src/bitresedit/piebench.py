"""PIE-Bench: its files, its masks, and its metrics from local networks, in one reproducible evaluator.

The benchmark has 700 images of 512 x 512 pixels with a source prompt, a target prompt whose changed words
stand in brackets, and an edit mask. An edit is scored by what it keeps outside the mask and by how well it
shows the target prompt. Every row says which mask was used; rows whose mask leaves no outside are NaN there
and counted.

References ---------- Ju et al., "PnP Inversion: Boosting Diffusion-based Editing with 3 Lines of Code",
arXiv 2310.01506, section 5.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from bitresedit.errors import BitResEditError, MaskError
from bitresedit.piebench_networks import Clip, Lpips, StructureDistance
from papers_shared.images import open_image

SIZE = (512, 512)
EDITING_TYPES = (
    "random",
    "change object",
    "add object",
    "delete object",
    "change content",
    "change pose",
    "change colour",
    "change material",
    "change background",
    "change style",
)
"""Names of ``editing_type_id`` 0 to 9."""

_log = logging.getLogger(__name__)
_FIELDS = ("image_path", "original_prompt", "editing_prompt", "editing_type_id", "mask")


def decode_rle(pairs: Sequence[int], shape: tuple[int, int] = SIZE, border: bool = True) -> Bool[np.ndarray, "h w"]:
    """Decode a run-length mask.

    Parameters
    ----------
    pairs
        ``start, length, start, length, ...`` over the row-major pixels; a run that passes the end is cut.
    shape
        ``(height, width)``.
    border
        Also select the outermost row and column on each side: the benchmark's rule against annotation
        errors at the border.

    Returns
    -------
    numpy.ndarray
        Bool ``[height, width]``, True where the edit may happen.

    Raises
    ------
    MaskError
        If the list has an odd length, or a run is negative or starts outside the image.
    """
    runs = np.asarray(pairs, dtype=np.int64)
    if runs.ndim != 1 or runs.size % 2:
        raise MaskError(f"a run-length mask is a list of start, length pairs; this one has {runs.size} numbers")
    starts, lengths = runs[::2], runs[1::2]
    pixels = shape[0] * shape[1]
    if (bad := (starts < 0) | (starts >= pixels) | (lengths < 0)).any():
        i = int(bad.argmax())
        raise MaskError(f"run {i} of the mask ({starts[i]}, {lengths[i]}) lies outside {shape[1]} x {shape[0]} pixels")
    edges = np.zeros(pixels + 1, dtype=np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, np.minimum(starts + lengths, pixels), -1)
    mask = (edges.cumsum()[:-1] > 0).reshape(shape)
    if border:
        mask[[0, -1], :] = mask[:, [0, -1]] = True
    return mask


def strip_brackets(prompt: str) -> str:
    """Remove the brackets that mark a prompt's changed words."""
    return prompt.replace("[", "").replace("]", "")


@dataclass(frozen=True, eq=False)
class Item:
    """One task of the benchmark.

    Parameters
    ----------
    id
        Key in the mapping file.
    image_path
        The source image.
    original_prompt, editing_prompt
        As written, with brackets.
    editing_instruction
        The edit as an order; empty if the file has none.
    editing_type_id
        0 to 9, see :data:`EDITING_TYPES`.
    blended_word
        The source and target word of prompt-to-prompt editors; empty if the file has none.
    mask
        Bool ``[512, 512]`` after the border rule.
    """

    id: str
    image_path: Path
    original_prompt: str
    editing_prompt: str
    editing_instruction: str
    editing_type_id: int
    blended_word: str
    mask: Bool[np.ndarray, "512 512"]

    @property
    def source(self) -> str:
        """Source prompt without brackets."""
        return strip_brackets(self.original_prompt)

    @property
    def target(self) -> str:
        """Target prompt without brackets."""
        return strip_brackets(self.editing_prompt)

    @property
    def editing_type(self) -> str:
        """Name of the kind of edit."""
        return EDITING_TYPES[self.editing_type_id]

    def image(self) -> Image.Image:
        """Open the source image as RGB."""
        return open_image(self.image_path)


def load(mapping_file: str | Path, root: str | Path | None = None) -> list[Item]:
    """Read the benchmark's mapping file.

    Parameters
    ----------
    mapping_file
        ``mapping_file.json``.
    root
        Folder that holds ``annotation_images``, or that folder itself; the mapping file's own folder by
        default.

    Returns
    -------
    list of Item
        In the file's order.

    Raises
    ------
    BitResEditError
        If the file is not a mapping, an entry lacks a field, or images are missing; the message names them.
    """
    mapping_file = Path(mapping_file)
    root = mapping_file.parent if root is None else Path(root)
    try:
        entries = json.loads(mapping_file.read_text())
    except OSError as error:
        raise BitResEditError(f"cannot read {mapping_file}: {error.strerror}") from error
    except ValueError as error:
        raise BitResEditError(f"{mapping_file} is not JSON: {error}") from error
    if not isinstance(entries, Mapping) or not entries:
        raise BitResEditError(f"{mapping_file} holds no entries", "expected an object of id -> entry")
    items = [_item(key, entry, root, mapping_file) for key, entry in entries.items()]
    if absent := [str(item.image_path) for item in items if not item.image_path.is_file()]:
        raise BitResEditError(
            f"{len(absent)} of {len(items)} images are missing, first {absent[0]}",
            "root is the folder that holds annotation_images",
        )
    return items


def _item(key: str, entry: Any, root: Path, mapping_file: Path) -> Item:
    where = f"entry {key} of {mapping_file}"
    if not isinstance(entry, Mapping) or (lacking := [field for field in _FIELDS if field not in entry]):
        what = f"lacks {', '.join(lacking)}" if isinstance(entry, Mapping) else "is not an object"
        raise BitResEditError(f"{where} {what}")
    kind = str(entry["editing_type_id"])
    if not kind.isdecimal() or int(kind) >= len(EDITING_TYPES):
        raise BitResEditError(f"{where}: editing_type_id {kind} is not 0 to {len(EDITING_TYPES) - 1}")
    try:
        mask = decode_rle(entry["mask"])
    except (MaskError, TypeError, ValueError) as error:
        raise MaskError(f"{where}: {error}") from error
    candidates = (root / entry["image_path"], root / "annotation_images" / entry["image_path"])
    return Item(
        id=key,
        image_path=next((path for path in candidates if path.is_file()), candidates[-1]),
        original_prompt=entry["original_prompt"],
        editing_prompt=entry["editing_prompt"],
        editing_instruction=entry.get("editing_instruction", ""),
        editing_type_id=int(kind),
        blended_word=entry.get("blended_word", ""),
        mask=mask,
    )


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
            "psnr": ("", True),
            "lpips": ("lpips", self.lpips),
            "mse": ("", True),
            "ssim": ("", True),
            "clip": ("clip", self.clip),
            "clip_edit": ("clip", self.clip),
        }
        self.columns = tuple(name for name, (_, network) in networks.items() if network is not None)
        self.skipped = {
            name: f"no {option} folder given" for name, (option, network) in networks.items() if network is None
        }
        for name, reason in self.skipped.items():
            _log.warning("PIE-Bench column %s is skipped: %s", name, reason)

    def measure(
        self, source: Image.Image, edited: Image.Image, mask: Bool[np.ndarray, "h w"], target: str
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

        Returns
        -------
        dict
            A float for each of :attr:`columns`.
        """
        before, after = np.array(source), np.array(edited)
        if before.shape != after.shape or before.shape[:2] != mask.shape:
            raise BitResEditError(f"source {before.shape[:2]}, edit {after.shape[:2]} and mask {mask.shape} differ")
        outside, inside, prompt = ~mask, mask, strip_brackets(target)
        values: dict[str, float] = dict.fromkeys(self.columns, math.nan)
        if outside.any():
            kept, keeps = (_unit(image) * torch.from_numpy(outside) for image in (before, after))
            values |= _pixel_scores(kept, keeps)
            if self.lpips is not None:
                values["lpips"] = self.lpips(kept * 2 - 1, keeps * 2 - 1)
        if self.structure is not None:
            values["structure"] = self.structure(before, after)
        if self.clip is not None:
            values["clip"] = self.clip(after, prompt)
            if inside.any():
                values["clip_edit"] = self.clip(after * inside[..., None], prompt)
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


def _pixel_scores(kept: Tensor, keeps: Tensor) -> dict[str, float]:
    # Imported here: the library takes seconds, and everything else of this module does without it.
    from torchmetrics.functional import mean_squared_error
    from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

    return {
        "psnr": float(peak_signal_noise_ratio(keeps, kept, data_range=1.0)),
        "mse": float(mean_squared_error(keeps.contiguous(), kept.contiguous())),
        "ssim": float(torch.as_tensor(structural_similarity_index_measure(keeps, kept, data_range=1.0))),
    }


def _unit(image: np.ndarray) -> Float[Tensor, "1 3 h w"]:
    return torch.from_numpy(image.astype(np.float32) / 255).permute(2, 0, 1)[None]


def _framed(image: Image.Image) -> Image.Image:
    size = SIZE[::-1]
    return image if image.size == size else image.resize(size, Image.Resampling.LANCZOS)


def evaluate(pairs: Iterable[tuple[Item, Any] | tuple[Item, Any, Any]], metrics: Metrics | None = None) -> pd.DataFrame:
    """Score edits.

    Parameters
    ----------
    pairs
        :class:`Pair`, or plain ``(item, edited)`` or ``(item, edited, mask)``: the edited image as path,
        PIL image or array.
    metrics
        Networks; without, only the columns that need none.

    Returns
    -------
    pandas.DataFrame
        A row an edit. ``attrs["skipped"]`` names the columns without a network and
        ``attrs["empty_complement"]`` counts the rows whose mask selects everything.
    """
    metrics = metrics or Metrics()
    return frame([metrics.row(Pair(*pair)) for pair in pairs], metrics)


def frame(rows: Sequence[Mapping[str, Any]], metrics: Metrics) -> pd.DataFrame:
    """Put rows of :meth:`Metrics.row`, some of them perhaps from an earlier run, into a table."""
    table = pd.DataFrame(list(rows))
    table.attrs["skipped"] = dict(metrics.skipped)
    table.attrs["empty_complement"] = int((table["mask_fraction"] == 1).sum()) if len(table) else 0
    return table


def summarise(table: pd.DataFrame, by: str | None = None) -> pd.DataFrame:
    """Average the metrics, leaving out NaN and counting it.

    Parameters
    ----------
    table
        From :func:`evaluate`.
    by
        Group by this column too, ``"editing_type"`` say.

    Returns
    -------
    pandas.DataFrame
        One row a metric (and group) with ``mean``, ``n`` values and ``nan`` left out.
    """
    names = [name for name in ("structure", "psnr", "lpips", "mse", "ssim", "clip", "clip_edit") if name in table]
    groups = [("all", table)] if by is None else list(table.groupby(by, sort=False))
    records = [
        {
            **({} if by is None else {by: group}),
            "metric": name,
            "mean": part[name].mean(),
            "n": int(part[name].notna().sum()),
            "nan": int(part[name].isna().sum()),
        }
        for group, part in groups
        for name in names
    ]
    return pd.DataFrame(records)

"""PIE-Bench's files: the mapping file, run-length masks, and the images that entries name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool
from PIL import Image

from bitresedit.errors import BitResEditError, MaskError
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

_FIELDS = ("image_path", "original_prompt", "editing_prompt", "editing_type_id", "mask")
_TEXTS = ("image_path", "original_prompt", "editing_prompt", "editing_instruction", "blended_word")


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
        entries = json.loads(mapping_file.read_text(encoding="utf-8-sig"))
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
    except MaskError as error:
        raise MaskError(f"{where}: {error}") from error
    except (TypeError, ValueError, OverflowError):
        raise MaskError(f"{where}: the mask is not a list of whole numbers") from None
    for field in _TEXTS:
        if not isinstance(entry.get(field, ""), str):
            raise BitResEditError(f"{where}: {field} is {entry[field]!r}, not text")
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

"""Files that appear whole or not at all, folders that hold one run, and where a result comes from.

Every writer goes through a temporary file in the same folder, fsync and a rename, so that a reader (and the next run,
after ``kill -9``) finds the old file or the complete new one. All return the path; all take ``force=False`` to refuse
to replace an existing file, and turn a missing folder, a missing permission or a full disk into `InputError`.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers_shared._atomic import atomic_path, refuse_existing
from papers_shared._figures import PALETTE, figure_style, write_figure
from papers_shared._json import dumps, jsonable
from papers_shared._provenance import provenance
from papers_shared._rundir import RunDir, free_folder, refuse_used_folder
from papers_shared._text import (
    append_jsonl,
    read_json,
    read_jsonl,
    write_bytes,
    write_json,
    write_jsonl,
    write_text,
)
from papers_shared.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

PathLike = str | os.PathLike[str]

__all__ = [
    "PALETTE",
    "RunDir",
    "append_jsonl",
    "atomic_path",
    "dumps",
    "figure_style",
    "free_folder",
    "jsonable",
    "provenance",
    "read_json",
    "read_jsonl",
    "refuse_existing",
    "refuse_used_folder",
    "write_bytes",
    "write_csv",
    "write_figure",
    "write_gif",
    "write_json",
    "write_jsonl",
    "write_npz",
    "write_png",
    "write_safetensors",
    "write_text",
]


def write_csv(
    path: PathLike,
    rows: Iterable[Mapping[str, Any] | Sequence[Any]],
    columns: Sequence[str] | None = None,
    *,
    force: bool = True,
) -> Path:
    """Write a CSV file with a header, atomically.

    Parameters
    ----------
    path
        The file.
    rows
        Mappings, or sequences in the order of ``columns``. None is an empty cell; a missing key too.
    columns
        The header; by default the keys in order of first appearance.
    force
        False refuses to replace an existing file.

    Raises
    ------
    ValueError
        Sequences without ``columns``, a row of another length, or a key that is not among ``columns``.
    """
    table = list(rows)
    if columns is None:
        if not all(isinstance(row, Mapping) for row in table):
            raise ValueError("rows that are not mappings need `columns`")
        columns = list(dict.fromkeys(key for row in table for key in row))
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for number, row in enumerate(table, 1):
        if isinstance(row, Mapping):
            extra = [key for key in row if key not in columns]
            if extra:
                raise ValueError(f"row {number} has keys that are not columns: {extra}")
            writer.writerow([row.get(name) for name in columns])
        else:
            if len(row) != len(columns):
                raise ValueError(f"row {number} has {len(row)} cells for {len(columns)} columns")
            writer.writerow(row)
    return write_text(path, text.getvalue(), force=force)


def write_npz(path: PathLike, arrays: Mapping[str, Any], *, force: bool = True) -> Path:
    """Write numpy arrays as compressed ``.npz`` atomically; the same arrays give the same bytes.

    Raises
    ------
    TypeError
        An array of Python objects, which would need pickle.
    """
    import numpy as np

    plain: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in plain.items():
        if array.dtype.hasobject:
            raise TypeError(f"array {name!r} holds Python objects; give it a numeric or string dtype")
    with atomic_path(path, force=force) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **plain)
    return Path(path)


def write_safetensors(
    path: PathLike,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    *,
    force: bool = True,
) -> Path:
    """Write torch tensors, or numpy or jax arrays, as safetensors atomically.

    Parameters
    ----------
    path
        The file.
    tensors
        Name to tensor, all torch or none. Tensors of any device and layout are stored contiguous.
    metadata
        String to string, kept in the header.
    force
        False refuses to replace an existing file.

    Raises
    ------
    RuntimeError
        Torch tensors that share memory (tied weights): leave one out.
    """
    torch = sys.modules.get("torch")
    notes = dict(metadata or {}) or None
    # As bytes, not with save_file: that one puts another file, for the owner's eyes only, in the place of ours.
    if torch is not None and any(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        from safetensors.torch import save

        data = save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, notes)
    else:
        import numpy as np
        from safetensors.numpy import save as save_arrays

        arrays = {name: np.ascontiguousarray(np.asarray(tensor)) for name, tensor in tensors.items()}
        data = save_arrays({name: a.reshape(np.shape(tensors[name])) for name, a in arrays.items()}, notes)
    return write_bytes(path, _sort_metadata(data) if notes else data, force=force)


def _sort_metadata(data: bytes) -> bytes:
    """Order the header's metadata, which safetensors writes in random order, so that equal files are equal bytes."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    if len(text) > length:  # a future version may write JSON more tightly: leave it as it is
        return data
    return data[:8] + text.ljust(length) + data[8 + length :]


def write_png(path: PathLike, image: Image.Image | np.ndarray, *, force: bool = True) -> Path:
    """Write a PIL image or an array (see `papers_shared.images.to_image`) as PNG atomically."""
    from papers_shared.images import save_image

    if Path(path).suffix.lower() != ".png":
        raise InputError(f"{os.fspath(path)}: the name of a PNG must end in .png")
    return save_image(path, image, force=force)


def write_gif(
    path: PathLike, frames: Iterable[Image.Image | np.ndarray], *, fps: float = 10, force: bool = True
) -> Path:
    """Write frames of one size as a looping GIF atomically.

    Raises
    ------
    InputError
        The name does not end in ``.gif``.
    ValueError
        No frames, or frames of different sizes.
    """
    from papers_shared.images import to_image

    if Path(path).suffix.lower() != ".gif":
        raise InputError(f"{os.fspath(path)}: the name of a GIF must end in .gif")
    pictures = [to_image(frame).convert("RGB") for frame in frames]
    if len({picture.size for picture in pictures}) != 1:
        raise ValueError(f"a GIF needs frames of one size, got {sorted({p.size for p in pictures})}")
    with atomic_path(path, force=force) as temporary:
        pictures[0].save(
            temporary, "GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / fps), loop=0
        )
    return Path(path)

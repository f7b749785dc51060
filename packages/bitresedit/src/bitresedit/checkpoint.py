"""Open checkpoint files without running anything in them, and say what they hold.

Files may be ``.pth`` (zip or legacy format), ``.safetensors``, or a folder of shards with an index; the
weights may be nested as a training run leaves them. Pickled code is refused: only tensors and plain
containers are read.
"""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bitresedit.errors import CheckpointError

_NESTS = (("trainer", "gpt_fsdp"), ("vae",))
_SUFFIXES = {".pth", ".pt", ".bin", ".safetensors"}


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of a checkpoint by name.

    Parameters
    ----------
    path
        Where they came from.
    tensors
        Name to CPU tensor, memory-mapped where the format allows.
    layout
        ``"pth"``, ``"safetensors"``, or either with ``"sharded "`` before it.
    nested
        The keys that lead to the tensors inside the file, ``"trainer.gpt_fsdp"`` say, or an empty string.
    """

    path: Path
    tensors: dict[str, Tensor]
    layout: str
    nested: str = ""


def read(path: str | Path) -> Checkpoint:
    """Open a checkpoint file or folder of shards.

    Parameters
    ----------
    path
        ``.pth`` / ``.pt`` / ``.bin`` file, ``.safetensors`` file, or folder with a ``*.index.json`` and its
        shards (or with shards alone).

    Returns
    -------
    Checkpoint

    Raises
    ------
    CheckpointError
        If nothing is there, the file is damaged, or it holds pickled code.
    """
    path = Path(path)
    if path.is_dir():
        return _read_shards(path)
    if not path.is_file():
        raise CheckpointError(f"no checkpoint at {path}")
    if path.suffix == ".safetensors":
        return Checkpoint(path, _read_safetensors(path), "safetensors")
    tensors, nested = _unnest(_read_pickle(path), path)
    return Checkpoint(path, tensors, "pth", nested)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from error


def _read_pickle(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        if code := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise CheckpointError(
                f"{path} holds pickled code ({code[1]}), which is not run",
                "save the tensors alone, best as .safetensors",
            ) from error
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged") from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is damaged: {str(error).splitlines()[0]}") from error


def _unnest(content: Any, path: Path) -> tuple[dict[str, Tensor], str]:
    nested = ""
    for nest in _NESTS:
        inner = content
        for key in nest:
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        if isinstance(inner, Mapping):
            content, nested = inner, ".".join(nest)
            break
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, Mapping) else {}
    if not tensors:
        outer = f" (its keys: {', '.join(map(str, content))})" if isinstance(content, Mapping) else ""
        raise CheckpointError(
            f"{path} holds no named tensors{outer}",
            "expected a state dict, or one under trainer.gpt_fsdp or vae",
        )
    return tensors, nested


def _read_shards(folder: Path) -> Checkpoint:
    if index := next(iter(sorted(folder.glob("*.index.json"))), None):
        try:
            weight_map = json.loads(index.read_text())["weight_map"]
            shards = [folder / Path(name).name for name in sorted(set(weight_map.values()))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{index} is not an index of shards") from error
    else:
        weight_map = {}
        shards = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    if not shards:
        raise CheckpointError(f"{folder} holds no weights", f"expected {', '.join(sorted(_SUFFIXES))} files")
    if absent := [shard.name for shard in shards if not shard.is_file()]:
        raise CheckpointError(f"{folder} lacks shards that its index names: {', '.join(absent)}")
    tensors: dict[str, Tensor] = {}
    for shard in shards:
        tensors |= read(shard).tensors
    if absent := [key for key in weight_map if key not in tensors]:
        raise CheckpointError(f"the shards of {folder} lack tensors that its index names: {', '.join(absent[:6])}")
    kind = "safetensors" if shards[0].suffix == ".safetensors" else "pth"
    return Checkpoint(folder, tensors, f"sharded {kind}")


def describe(path: str | Path) -> dict[str, Any]:
    """Say what a checkpoint holds.

    Parameters
    ----------
    path
        File or folder, as for :func:`read`.

    Returns
    -------
    dict
        ``kind`` (``"infinity-transformer"``, ``"infinity-vae"``, ``"scene-var"`` or ``"unknown"``),
        ``layout``, ``nested``, ``dtype``, ``tensors``, ``parameters`` and ``bytes``; for the known kinds
        also their sizes (``model``, ``depth``, ``width``, ``heads``, ``d``, ...), the ``missing`` keys, the
        ``misshapen`` ones with both shapes, and the ``unexpected`` ones (only ``missing`` where the sizes
        themselves cannot be read). A scene model that does not load has a ``problem`` instead.

    Raises
    ------
    CheckpointError
        If the file cannot be read.
    """
    # The backbones read their files through this module, so it cannot need them to be imported first.
    from bitresedit.backbones.infinity_weights import describe_transformer, describe_vae

    checkpoint = read(path)
    tensors = checkpoint.tensors
    if "pos_start" in tensors or any(key.startswith("block_chunks.") for key in tensors):
        kind, details = "infinity-transformer", describe_transformer(tensors)
    elif any(key.startswith("encoder.conv_in.") for key in tensors):
        kind, details = "infinity-vae", describe_vae(tensors)
    elif {key.partition(".")[0] for key in tensors} == {"tokenizer", "model"}:
        kind, details = "scene-var", _describe_scene(Path(path))
    else:
        kind, details = "unknown", {}
    return {
        "path": str(path),
        "kind": kind,
        "layout": checkpoint.layout,
        "nested": checkpoint.nested,
        "dtype": "+".join(sorted({str(t.dtype).removeprefix("torch.") for t in tensors.values()})),
        "tensors": len(tensors),
        "parameters": sum(t.numel() for t in tensors.values()),
        "bytes": sum(t.numel() * t.element_size() for t in tensors.values()),
        **details,
    }


def _describe_scene(path: Path) -> dict[str, Any]:
    from bitresedit.backbones.scene_var import SceneVAR

    try:
        config = SceneVAR.load(path).model.var.config
    except CheckpointError as error:
        return {"model": "scene", "problem": str(error)}
    sizes = ("depth", "width", "heads", "d", "text_dim", "levels")
    return {"model": "scene", **{name: getattr(config, name) for name in sizes}}

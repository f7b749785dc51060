"""Nested plain state (dicts, lists, numbers, text, numpy arrays) as one file, without pickle.

All arrays of one dtype are laid end to end, so that a grid of ten thousand small cells is a handful of zip members.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from papers_shared.artifacts import write_bytes
from papers_shared.errors import InputError

FORMAT = "dynmatch snapshot 1"


def dumps(state: Any) -> bytes:
    """Pack a state into the bytes of an ``.npz`` archive.

    Raises
    ------
    TypeError
        A value that is neither plain nor a numeric array.
    """
    parts: dict[str, list[np.ndarray]] = {}
    length: dict[str, int] = {}

    def plain(value: Any) -> Any:
        """Give a value as JSON can hold it; arrays go to `parts` and leave a note of where they lie."""
        if isinstance(value, np.ndarray):
            kind = value.dtype.str
            if value.dtype.hasobject:
                raise TypeError("arrays of Python objects cannot be saved")
            start = length.get(kind, 0)
            parts.setdefault(kind, []).append(np.ascontiguousarray(value).reshape(-1))
            length[kind] = start + value.size
            return {"$array": [kind, start, list(value.shape)]}
        if isinstance(value, dict):
            return {"$dict": [[plain(k), plain(v)] for k, v in value.items()]}
        if isinstance(value, tuple):
            return {"$tuple": [plain(v) for v in value]}
        if isinstance(value, list):
            return [plain(v) for v in value]
        if isinstance(value, np.generic):
            return plain(value.item())
        if isinstance(value, float) and not math.isfinite(value):
            return {"$float": repr(value)}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"{type(value).__name__} cannot be saved")

    text = json.dumps({"format": FORMAT, "state": plain(state)})
    arrays: dict[str, Any] = {"skeleton": np.frombuffer(text.encode(), np.uint8)}
    arrays |= {f"data{kind[1:]}": np.concatenate(found) for kind, found in parts.items()}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def loads(data: bytes) -> Any:
    """Read back what `dumps` packed.

    Raises
    ------
    InputError
        The bytes are no such snapshot.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            document = json.loads(archive["skeleton"].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != "skeleton"}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"not a snapshot of dynmatch: {error}") from error
    if document.get("format") != FORMAT:
        raise InputError(f"snapshot format {document.get('format')!r}, want {FORMAT!r}")

    def value(node: Any) -> Any:
        """Undo `plain`."""
        if isinstance(node, list):
            return [value(v) for v in node]
        if not isinstance(node, dict):
            return node
        ((name, body),) = node.items()
        if name == "$array":
            kind, start, shape = body
            return arrays[f"data{kind[1:]}"][start : start + math.prod(shape)].reshape(shape).copy()
        if name == "$dict":
            return {value(k): value(v) for k, v in body}
        if name == "$tuple":
            return tuple(value(v) for v in body)
        return float(body)

    return value(document["state"])


def write(path: Path, state: Any, force: bool = True) -> Path:
    """Write a state atomically."""
    return write_bytes(path, dumps(state), force=force)


def read(path: Path) -> Any:
    """Read a state.

    Raises
    ------
    InputError
        The file is missing or no snapshot.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    return loads(data)

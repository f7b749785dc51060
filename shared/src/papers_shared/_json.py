"""Strict JSON for results: NaN becomes null, numpy and tensors become numbers, short lists stay on one line."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import os
from collections.abc import Mapping
from typing import Any


def jsonable(value: Any) -> Any:
    """Convert a value to what strict JSON can hold.

    Parameters
    ----------
    value
        Numbers, strings, None; mappings (keys become strings), lists, tuples, sets (sorted); named tuples and
        dataclasses (objects with their field names); enums, paths, dates; anything with ``tolist()``: numpy
        arrays and scalars, torch and jax tensors.

    Returns
    -------
    object
        Only dict, list, str, int, float, bool and None. NaN and infinities become None.

    Raises
    ------
    TypeError
        A value of another type.
    ValueError
        Two keys that become the same string.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return jsonable(value.value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        result = {_key(key): jsonable(item) for key, item in value.items()}
        if len(result) != len(value):
            raise ValueError(f"two keys become the same JSON string: {list(value)[:10]}")
        return result
    if hasattr(value, "_asdict"):
        return jsonable(value._asdict())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: jsonable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((jsonable(item) for item in value), key=lambda item: (str(type(item)), item))
    if isinstance(value, os.PathLike):
        return os.fspath(value).replace(os.sep, "/")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return jsonable(value.tolist())
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r:.80}")


def _key(key: Any) -> str:
    plain = jsonable(key)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, (dict, list)):
        raise TypeError(f"a JSON key must be a string or number, not {key!r}")
    return json.dumps(plain)


def loads(text: str | bytes) -> Any:
    """Parse JSON that someone else has written, perhaps a language model.

    Raises
    ------
    ValueError
        It is not JSON, or nested so deeply that no parser of ours would ever finish with it.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def dumps(value: Any, *, sort_keys: bool = False) -> str:
    """Render a value as readable strict JSON without a trailing newline; lists of plain values stay on one line."""
    return _render(jsonable(value), "", sort_keys)


def dumps_line(value: Any) -> str:
    """Render a value as strict JSON on one line."""
    return _plain(jsonable(value))


def _plain(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as language models emit: keep it as an escape
        text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text


def _render(value: Any, indent: str, sort_keys: bool) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = sorted(value.items()) if sort_keys else value.items()
        lines = [f"{inner}{_plain(key)}: {_render(item, inner, sort_keys)}" for key, item in items]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        lines = [f"{inner}{_render(item, inner, sort_keys)}" for item in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return _plain(value)

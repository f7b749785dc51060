"""A digest of the code that a function depends on, so that a result made by other code is not taken for its own."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

from papers_shared._json import dumps_line


@functools.lru_cache(maxsize=256)
def source_digest(function: Callable[..., Any]) -> str:
    """Hash a function's source with that of everything it reaches inside its own package.

    Followed are the global names that its code mentions, and theirs: functions, classes, attributes of the package's
    modules, and constants of plain type. Other packages are not followed; their versions are part of the provenance.
    """
    root = (inspect.unwrap(function).__module__ or "").partition(".")[0]
    found: dict[str, str] = {}
    waiting: list[Any] = [function]
    while waiting:
        item = inspect.unwrap(waiting.pop())
        key = f"{item.__module__}.{item.__qualname__}"
        if key in found:
            continue
        found[key] = _source(item)
        for name, value in _mentioned(item, root):
            if _is_ours(value, root):
                waiting.append(value)
            elif dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_ours(type(value), root):
                waiting.append(type(value))
                found[f"{key}:{name}"] = repr(value)
            elif isinstance(value, (bool, int, float, str, tuple, list, dict, set, frozenset)):
                found[f"{key}:{name}"] = _constant(value)
    text = "\0".join(f"{key}\0{source}" for key, source in sorted(found.items()))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _is_ours(value: Any, root: str) -> bool:
    if not callable(value) or not hasattr(value, "__qualname__"):
        return False
    return (getattr(inspect.unwrap(value), "__module__", None) or "").partition(".")[0] == root


@functools.lru_cache(maxsize=8192)
def _source(item: Any) -> str:
    # Kept: claims of one package reach the same code, and finding a class's source parses its whole module each time.
    try:
        return inspect.getsource(item)
    except (OSError, TypeError):  # typed in a shell, or compiled
        return "".join(repr((code.co_code, code.co_names)) for code in _codes(item))


def _constant(value: Any) -> str:
    try:
        return dumps_line(value)
    except (TypeError, ValueError):
        return type(value).__name__


def _codes(item: Any) -> Iterator[types.CodeType]:
    """Yield the code objects of a function or of a class's methods, with those nested in them."""
    if isinstance(item, type):
        members = [inspect.unwrap(getattr(member, "__func__", member)) for member in vars(item).values()]
        members += [member.fget for member in vars(item).values() if isinstance(member, property) and member.fget]
    else:
        members = [item]
    waiting = [member.__code__ for member in members if hasattr(member, "__code__")]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]


def _mentioned(item: Any, root: str) -> Iterator[tuple[str, Any]]:
    """Yield the globals, enclosing variables and attributes of our modules that the item's code names."""
    names = {name for code in _codes(item) for name in code.co_names}
    scope = dict(vars(inspect.getmodule(item) or object())) if not hasattr(item, "__globals__") else item.__globals__
    cells = (
        dict(zip(item.__code__.co_freevars, item.__closure__ or (), strict=False)) if hasattr(item, "__code__") else {}
    )
    for name in sorted(names):
        if name not in scope:
            continue
        value = scope[name]
        yield name, value
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] == root:
            yield from ((f"{name}.{inner}", vars(value)[inner]) for inner in sorted(names & set(vars(value))))
    for name, cell in sorted(cells.items()):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    if isinstance(item, type):
        yield from ((base.__qualname__, base) for base in item.__bases__)

"""Match records of sanctions lists: production rules, a learned matcher and language models on the same pairs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sanctionspairs.errors import (
    LLMParseError,
    PairFormatError,
    PromptRegistryError,
    SanctionsPairsError,
    UnknownSchemaError,
)

if TYPE_CHECKING:
    from sanctionspairs.matchers import Matcher, get
    from sanctionspairs.records import Pair

__all__ = [
    "LLMParseError",
    "Matcher",
    "Pair",
    "PairFormatError",
    "PromptRegistryError",
    "SanctionsPairsError",
    "UnknownSchemaError",
    "get",
]
_LAZY = {"Matcher": "matchers", "get": "matchers", "Pair": "records"}


def __getattr__(name: str) -> Any:
    """Import the libraries behind matchers and records when they are first used: they take seconds."""
    if name in _LAZY:
        return getattr(import_module(f"sanctionspairs.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'sanctionspairs' has no attribute {name!r}")

"""Match records of sanctions lists: production rules, a learned matcher and language models on the same pairs."""

from sanctionspairs.errors import (
    LLMParseError,
    PairFormatError,
    PromptRegistryError,
    SanctionsPairsError,
    UnknownSchemaError,
)
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

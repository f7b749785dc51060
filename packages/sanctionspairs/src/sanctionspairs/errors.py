"""What can be wrong with the user's input, each with its own name."""

from __future__ import annotations

from papers_shared.errors import InputError


class SanctionsPairsError(InputError):
    """Base of everything that this package finds wrong with its input."""


class PairFormatError(SanctionsPairsError):
    """A line or a file that does not hold pairs (or entities) in the public format.

    Attributes
    ----------
    line : int
        Where, from 1; 0 for the file as a whole.
    reason : str
        What is wrong there.
    """

    def __init__(self, line: int, reason: str, hint: str | None = None) -> None:
        super().__init__(f"line {line}: {reason}" if line else reason, hint)
        self.line = line
        self.reason = reason


class UnknownSchemaError(SanctionsPairsError):
    """An entity of a schema that FollowTheMoney does not know."""

    def __init__(self, entity_id: str, schema: str) -> None:
        super().__init__(f"entity {entity_id!r} has unknown schema {schema!r}", "use a FollowTheMoney schema")
        self.entity_id = entity_id
        self.schema = schema


class LLMParseError(SanctionsPairsError):
    """A model's answer that holds no judgement in the format asked for."""


class PromptRegistryError(SanctionsPairsError):
    """A saved prompt that is missing or damaged."""


class ThresholdError(SanctionsPairsError):
    """Labels from which no threshold can be tuned."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"threshold cannot be tuned: {reason}", "give dev pairs of both judgements")

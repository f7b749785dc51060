"""Records and pairs: FollowTheMoney entities as published, coerced so that the library reads them rightly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from followthemoney import EntityProxy, model
from followthemoney.exc import InvalidData

from sanctionspairs.errors import SanctionsPairsError, UnknownSchemaError

POSITIVE, NEGATIVE = "positive", "negative"
JUDGEMENTS = (POSITIVE, NEGATIVE, "unsure", "no_judgement")
"""The four judgements of the format; only the first two are scored."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two records and what a person judged about them.

    Attributes
    ----------
    left, right
        The records.
    judgement
        One of ``positive``, ``negative``, ``unsure``, ``no_judgement``.
    """

    left: EntityProxy
    right: EntityProxy
    judgement: str = "no_judgement"

    @property
    def scored(self) -> bool:
        """Whether the judgement counts in figures: it says yes or no."""
        return self.judgement in (POSITIVE, NEGATIVE)

    @property
    def label(self) -> int:
        """1 for a positive judgement, else 0."""
        return int(self.judgement == POSITIVE)

    @property
    def id(self) -> str:
        """Both records' ids, for reports."""
        return f"{self.left.id}|{self.right.id}"

    def to_dict(self) -> dict[str, Any]:
        """Return the pair in the public format."""
        return {"judgement": self.judgement, "left": self.left.to_dict(), "right": self.right.to_dict()}


def coerce_properties(raw: Any) -> tuple[dict[str, list[str]], int]:
    """Turn whatever stands in ``properties`` into lists of strings, and count what had to be changed.

    The library splits a bare string into letters and fails on null; numbers become their decimal text, null and empty
    values are dropped.

    Raises
    ------
    SanctionsPairsError
        ``raw`` is not a mapping, or a value is an object.
    """
    if raw is None:
        return {}, 0
    if not isinstance(raw, Mapping):
        raise SanctionsPairsError(f"properties is {type(raw).__name__}, not an object")
    clean: dict[str, list[str]] = {}
    changed = 0
    for name, value in raw.items():
        values = value if isinstance(value, list) else [value]
        changed += not isinstance(value, list)
        kept = []
        for item in values:
            if isinstance(item, str):
                if item:
                    kept.append(item)
            elif item is None:
                changed += isinstance(value, list)
            elif isinstance(item, bool | int | float):
                kept.append(_number_text(item))
                changed += 1
            elif isinstance(item, Mapping) and isinstance(item.get("id"), str):
                kept.append(item["id"])  # a nested entity, as search APIs give them
                changed += 1
            else:
                raise SanctionsPairsError(f"property {name!r} holds {type(item).__name__}")
        if kept:
            clean[str(name)] = kept
    return clean, changed


def _number_text(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def make_entity(data: Any) -> tuple[EntityProxy, int]:
    """Build an entity from its JSON object; also return how many values had to be coerced.

    Raises
    ------
    SanctionsPairsError
        Not an object, without id or schema, or with properties that are no lists of text.
    UnknownSchemaError
        FollowTheMoney has no such schema.
    """
    if not isinstance(data, Mapping):
        raise SanctionsPairsError(f"an entity is {type(data).__name__}, not an object")
    name, given = data.get("id"), data.get("schema")
    if name is None or name == "":
        raise SanctionsPairsError("an entity has no id")
    if given is None:
        raise SanctionsPairsError(f"entity {name!r} has no schema")
    if not isinstance(given, str) or model.get(given) is None:
        raise UnknownSchemaError(str(name), str(given))
    properties, changed = coerce_properties(data.get("properties"))
    try:
        proxy = EntityProxy.from_dict({**data, "id": str(name), "properties": properties})
    except InvalidData as error:
        raise SanctionsPairsError(f"entity {name!r}: {error}") from error
    return proxy, changed


def entity(data: Mapping[str, Any]) -> EntityProxy:
    """Build an entity from its JSON object; as `make_entity`, without the count."""
    return make_entity(data)[0]


def caption(entity: EntityProxy) -> str:
    """Return what the source shows as the record's name."""
    given = entity.context.get("caption")
    return given if isinstance(given, str) and given else entity.caption


def sources(entity: EntityProxy) -> tuple[str, ...]:
    """Return the data sets that the record comes from, sorted."""
    given = entity.context.get("datasets") or ()
    return tuple(sorted(str(name) for name in given))


def field_count(entity: EntityProxy) -> int:
    """Return how many properties the record fills."""
    return len(entity.properties)


@lru_cache(maxsize=4096)
def _common(left: str, right: str) -> str | None:
    first, second = model.get(left), model.get(right)
    if first is None or second is None:
        return None
    try:
        return model.common_schema(first, second).name
    except InvalidData:
        return None


def common_schema(left: EntityProxy, right: EntityProxy) -> str | None:
    """Return the more specific schema of two records, or None where they can never be one entity."""
    return _common(left.schema.name, right.schema.name)


def decided_by_form(pair: Pair) -> str | None:
    """Return ``incompatible`` or ``self_pair`` for pairs that no matcher is asked about, else None.

    A Person and a Vessel are never one entity (score 0); a record and itself always are, and teach nothing.
    """
    if pair.left.id == pair.right.id:
        return "self_pair"
    if common_schema(pair.left, pair.right) is None:
        return "incompatible"
    return None

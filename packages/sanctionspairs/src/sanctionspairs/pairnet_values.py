"""What PairNet reads of a pair: values by property group, their hashed 3-grams, and which of them are compared."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from followthemoney import EntityProxy
from followthemoney.types import registry
from jaxtyping import Float, Int

from sanctionspairs.features import Encoder
from sanctionspairs.records import Pair
from sanctionspairs.tags import dates_agree
from sanctionspairs.text import bare_identifier, latin

BUCKETS = 2**15
"""Rows of the embedding."""
MOST_VALUES = 8
"""Values of one group that are looked at."""

_PROPERTIES: dict[str, tuple[str, ...]] = {
    "name": ("name",),
    "any name": ("name", "alias", "previousName", "weakAlias", "abbreviation"),
    "first name": ("firstName", "secondName", "middleName"),
    "last name": ("lastName",),
    "birth date": ("birthDate",),
    "birth place": ("birthPlace",),
    "gender": ("gender",),
    "position": ("position",),
    "start date": ("startDate", "periodStart"),
    "end date": ("endDate", "periodEnd"),
    "holder": ("holder",),
    "post": ("post",),
    "other date": (
        "incorporationDate",
        "buildDate",
        "inceptionDate",
        "registrationDate",
        "dissolutionDate",
        "deathDate",
    ),
    "other text": (
        "type",
        "politicalGroup",
        "constituency",
        "subnationalArea",
        "city",
        "postalCode",
        "grossRegisteredTonnage",
    ),
}
_TYPES = {
    "country": (registry.country,),
    "address": (registry.address,),
    "identifier": (registry.identifier,),
    "contact": (registry.phone, registry.email, registry.url),
}
GROUPS: tuple[str, ...] = (*_PROPERTIES, *_TYPES)
"""Groups of properties that are compared with each other."""
_DATES = frozenset(("birth date", "start date", "end date", "other date"))
_ADDRESS_PROPERTIES = ("full", "street")


@dataclass(frozen=True)
class Encoded:
    """Pairs as arrays.

    Attributes
    ----------
    grams
        int64 ``(g,)`` embedding rows of all values, one after the other.
    starts
        int64 ``(v,)`` where each value's rows begin.
    left, right, slot
        int64 ``(c,)``: each comparison's two values and its place ``pair * groups + group``.
    flags
        float32 ``(n, 2 groups)``: both sides filled; some value equal.
    features
        float64 ``(n, 18)`` of the production model.
    """

    grams: Int[np.ndarray, " g"]
    starts: Int[np.ndarray, " v"]
    left: Int[np.ndarray, " c"]
    right: Int[np.ndarray, " c"]
    slot: Int[np.ndarray, " c"]
    flags: Float[np.ndarray, "n f"]
    features: Float[np.ndarray, "n 18"]


def value_grams(text: str) -> list[int]:
    """Return the embedding rows of a value: the 3-grams of its own letters and of its transliteration, hashed."""
    own = f"^{text.casefold()}$"
    plain = f"^{latin(text)}$"
    grams = {f"r{own[i : i + 3]}" for i in range(max(1, len(own) - 2))}
    grams |= {f"l{plain[i : i + 3]}" for i in range(max(1, len(plain) - 2))}
    return sorted(zlib.crc32(gram.encode()) % BUCKETS for gram in grams)


def group_values(entity: EntityProxy) -> dict[str, list[str]]:
    """Return a record's values by group, at most `MOST_VALUES` each; groups that are empty are left out."""
    found: dict[str, list[str]] = {}
    for group, properties in _PROPERTIES.items():
        values = [v for name in properties if name in entity.schema.properties for v in entity.get(name, quiet=True)]
        if values:
            found[group] = list(dict.fromkeys(values))[:MOST_VALUES]
    for group, types in _TYPES.items():
        values = [v for kind in types for v in entity.get_type_values(kind, matchable=True)]
        if group == "contact":
            values = [v for v in values if not v.startswith("http")]
        if group == "address":
            values += [v for name in _ADDRESS_PROPERTIES for v in entity.get(name, quiet=True)]
        if values:
            found[group] = sorted(set(values))[:MOST_VALUES]
    return found


def encode(pairs: Sequence[Pair], encoder: Encoder) -> Encoded:
    """Turn pairs into arrays; each distinct value is hashed once."""
    places: dict[str, int] = {}
    grams: list[list[int]] = []
    records: dict[int, dict[str, list[str]]] = {}
    left, right, slot = [], [], []
    flags = np.zeros((len(pairs), 2 * len(GROUPS)), dtype=np.float32)

    def place(value: str) -> int:
        if value not in places:
            places[value] = len(grams)
            grams.append(value_grams(value))
        return places[value]

    def values_of(entity: EntityProxy) -> dict[str, list[str]]:
        if id(entity) not in records:
            records[id(entity)] = group_values(entity)
        return records[id(entity)]

    for number, pair in enumerate(pairs):
        a, b = values_of(pair.left), values_of(pair.right)
        for index, group in enumerate(GROUPS):
            ours, theirs = a.get(group), b.get(group)
            if not ours or not theirs:
                continue
            flags[number, index] = 1.0
            flags[number, len(GROUPS) + index] = _equal(group, ours, theirs)
            for x in ours:
                for y in theirs:
                    left.append(place(x))
                    right.append(place(y))
                    slot.append(number * len(GROUPS) + index)
    lengths = np.array([len(rows) for rows in grams], dtype=np.int64)
    flat = np.array([row for rows in grams for row in rows], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    ints = [np.array(values, dtype=np.int64) for values in (left, right, slot)]
    return Encoded(flat, starts, *ints, flags=flags, features=encoder.encode(pairs))


def _equal(group: str, left: list[str], right: list[str]) -> float:
    if group in _DATES:
        return float(dates_agree(left, right) or 0)
    if group in ("holder", "post"):
        return float(not set(left).isdisjoint(right))
    return float(not {bare_identifier(v) for v in left}.isdisjoint(bare_identifier(v) for v in right))

"""The production matcher's 18 features for many pairs at once: each record and each text is normalised once.

Same values as ``RegressionV1.encode_pair``, feature for feature; the library's own normalisers are used, so that only
the order of the work differs. Where the library would fail on a malformed date, the date counts as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
from followthemoney import EntityProxy, model
from followthemoney.types import registry
from jaxtyping import Float
from nomenklatura.matching.compare.util import extract_numbers
from nomenklatura.matching.compat import clean_name_ascii, fingerprint_name
from nomenklatura.matching.regression_v1.model import RegressionV1
from nomenklatura.matching.regression_v1.util import compare_levenshtein

from sanctionspairs.records import Pair, common_schema

_FUNCTIONS: Any = RegressionV1.FEATURES
FEATURES: tuple[str, ...] = tuple(function.__name__ for function in _FUNCTIONS)
"""Their names, in the order of the columns."""
ADDRESS_NUMBERS = FEATURES.index("address_numbers")
"""The one feature that depends on the order of the pair."""
V = TypeVar("V")

_REMEMBERED = 200_000
"""Records and texts kept; beyond it the memory is emptied, so that a stream of any length fits."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What of one record the features look at, normalised."""

    fingerprints: frozenset[str]
    name_tokens: frozenset[str]
    name_numbers: frozenset[str]
    phones: frozenset[str]
    emails: frozenset[str]
    identifiers: frozenset[str]
    birth_days: frozenset[str]
    birth_years: frozenset[str]
    has_birth: bool
    first_names: frozenset[str]
    last_names: frozenset[str]
    birth_places: frozenset[str]
    genders: frozenset[str]
    countries: frozenset[str]
    addresses: tuple[str, ...]
    address_numbers: frozenset[str]


class Encoder:
    """Turns pairs into rows of the 18 features and remembers what it has normalised.

    Examples
    --------
    >>> rows = Encoder().encode(pairs)          # (n, 18)
    """

    def __init__(self) -> None:
        self._profiles: dict[str, tuple[EntityProxy, Profile]] = {}
        self._fingerprints: dict[str, str | None] = {}
        self._clean: dict[str, str | None] = {}
        self._tokens: dict[str, frozenset[str]] = {}
        self._distances: dict[tuple[str, str], float] = {}

    def encode(self, pairs: Sequence[Pair]) -> Float[np.ndarray, "n 18"]:
        """Return the features of each pair, float64 ``(n, 18)``, columns as in `FEATURES`."""
        rows = np.empty((len(pairs), len(FEATURES)))
        for number, pair in enumerate(pairs):
            rows[number] = self.encode_pair(pair.left, pair.right)
        return rows

    def encode_pair(self, left: EntityProxy, right: EntityProxy) -> list[float]:
        """Return the features of two records."""
        a, b = self.profile(left), self.profile(right)
        common = common_schema(left, right)
        organization = common is not None and model[common].is_a("Organization")
        same_name = bool(a.fingerprints and not a.fingerprints.isdisjoint(b.fingerprints))
        same_id = 1.0 if not a.identifiers.isdisjoint(b.identifiers) else 0.0
        same_year = not a.birth_years.isdisjoint(b.birth_years)
        return [
            1.0 if same_name else 0.0,
            _overlap(a.name_tokens, b.name_tokens),
            _disjoint(a.name_numbers, b.name_numbers),
            1.0 if same_name else self._closest(a.fingerprints, b.fingerprints),
            1.0 if not a.phones.isdisjoint(b.phones) else 0.0,
            1.0 if not a.emails.isdisjoint(b.emails) else 0.0,
            0.0 if organization else same_id,
            _same_day(a, b),
            1.0 if same_year else 0.0,
            1.0 if a.birth_years and b.birth_years and not same_year else 0.0,
            1.0 if not a.first_names.isdisjoint(b.first_names) else 0.0,
            1.0 if not a.last_names.isdisjoint(b.last_names) else 0.0,
            _overlap(a.birth_places, b.birth_places),
            _disjoint(a.genders, b.genders),
            _disjoint(a.countries, b.countries),
            same_id if organization else 0.0,
            self._closest(a.addresses, b.addresses),
            address_numbers(a, b),
        ]

    def profile(self, entity: EntityProxy) -> Profile:
        """Return a record's normalised values; the same record is normalised once."""
        key = str(entity.id)
        known = self._profiles.get(key)
        if known is not None and (known[0] is entity or _same_record(known[0], entity)):
            return known[1]
        made = self._make(entity)
        if len(self._profiles) >= _REMEMBERED:
            self._profiles.clear()
        self._profiles[key] = (entity, made)
        return made

    def _make(self, entity: EntityProxy) -> Profile:
        names = entity.get_type_values(registry.name, matchable=True)
        births = _values(entity, "birthDate")
        addresses = entity.get_type_values(registry.address, matchable=True)
        prints = (_remember(self._fingerprints, name, fingerprint_name) for name in names)
        cleaned = (_remember(self._clean, text, clean_name_ascii) for text in addresses)
        return Profile(
            fingerprints=frozenset(text[:128] for text in prints if text is not None),
            name_tokens=self._words(names),
            name_numbers=frozenset(extract_numbers(names)),
            phones=frozenset(entity.get_type_values(registry.phone, matchable=True)),
            emails=frozenset(entity.get_type_values(registry.email, matchable=True)),
            identifiers=frozenset(entity.get_type_values(registry.identifier, matchable=True)),
            birth_days=frozenset(date[:10] for date in births if len(date) >= 10),
            birth_years=frozenset(date[:4] for date in births if len(date) >= 4),
            has_birth=bool(births),
            first_names=self._words(_values(entity, "firstName")),
            last_names=self._words(_values(entity, "lastName")),
            birth_places=self._words(_values(entity, "birthPlace")),
            genders=frozenset(_values(entity, "gender")),
            countries=frozenset(entity.get_type_values(registry.country, matchable=True)),
            addresses=tuple({text: None for text in cleaned if text is not None}),
            address_numbers=frozenset(extract_numbers(addresses)),
        )

    def _words(self, texts: Iterable[str]) -> frozenset[str]:
        found = [_remember(self._tokens, text, self._split) for text in texts]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    def _split(self, text: str) -> frozenset[str]:
        cleaned = _remember(self._clean, text, clean_name_ascii)
        return frozenset(word for word in (cleaned or "").split() if len(word) > 2)

    def _closest(self, left: Iterable[str], right: Iterable[str]) -> float:
        best = 0.0
        for a, b in product(left, right):
            if a == b:
                return 1.0
            # Edits are at least the difference in length: most pairs of names cannot beat the best one so far.
            longest = max(len(a), len(b))
            if 1.0 - abs(len(a) - len(b)) / longest <= best:
                continue
            key = (a, b)
            value = self._distances.get(key)
            if value is None:
                value = compare_levenshtein(a, b)
                if len(self._distances) >= _REMEMBERED:
                    self._distances.clear()
                self._distances[key] = value
            best = max(best, value)
        return best


def address_numbers(left: Profile, right: Profile) -> float:
    """Return the library's address feature: common numbers minus those of the left record only, so not symmetric."""
    if not left.address_numbers or not right.address_numbers:
        return 0.0
    common = len(left.address_numbers & right.address_numbers)
    return float(common - (len(left.address_numbers) - common))


def swap_address_numbers(
    encoder: Encoder, pairs: Sequence[Pair], rows: Float[np.ndarray, "n 18"]
) -> Float[np.ndarray, "n 18"]:
    """Return the rows that the pairs have in the other order; only one column differs."""
    swapped = rows.copy()
    swapped[:, ADDRESS_NUMBERS] = [
        address_numbers(encoder.profile(pair.right), encoder.profile(pair.left)) for pair in pairs
    ]
    return swapped


def _remember(memory: dict[str, V], text: str, compute: Callable[[str], V]) -> V:
    try:
        return memory[text]
    except KeyError:
        if len(memory) >= _REMEMBERED:
            memory.clear()
        found = memory[text] = compute(text)
        return found


def _same_record(one: EntityProxy, other: EntityProxy) -> bool:
    return one.schema is other.schema and one.properties == other.properties


def _values(entity: EntityProxy, prop: str) -> list[str]:
    return entity.get(prop, quiet=True) if prop in entity.schema.properties else []


def _overlap(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / max(2.0, min(len(left), len(right))) if left and right else 0.0


def _disjoint(left: frozenset[Any], right: frozenset[Any]) -> float:
    return 1.0 if left and right and left.isdisjoint(right) else 0.0


def _same_day(left: Profile, right: Profile) -> float:
    if not left.has_birth or not right.has_birth:
        return 0.0
    if not left.birth_days.isdisjoint(right.birth_days):
        return 1.0
    flipped = set()
    for date in left.birth_days:
        parts = date.split("-", 2)
        if len(parts) == 3:  # the library fails on a date of ten other characters
            flipped.add(f"{parts[0]}-{parts[2]}-{parts[1]}")
    return 0.5 if not flipped.isdisjoint(right.birth_days) else 0.0

"""The sources of SanctionsSim: how each writes names, dates and identifiers, and what it leaves out."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from sanctionspairs.sim_families import Truth
from sanctionspairs.sim_names import FAMILY_FIRST, NON_LATIN, respell, romanise, typo

_PLACES = [
    "us",
    "eu",
    "gb",
    "ch",
    "un",
    "ua",
    "jp",
    "au",
    "ca",
    "fr",
    "pl",
    "be",
    "nz",
    "za",
    "il",
    "in",
    "sg",
    "kr",
    "ar",
    "br",
    "mx",
    "tr",
    "ae",
    "kz",
    "md",
    "rs",
    "lt",
    "lv",
    "ee",
    "cz",
    "sk",
    "hu",
    "ro",
    "bg",
    "gr",
    "es",
    "it",
    "nl",
    "se",
    "no",
]
_KINDS = ("sanctions", "fsf", "peps", "registry", "wanted")
_DATES = ("birthDate", "incorporationDate", "startDate", "endDate", "buildDate", "inceptionDate")
_IDS = ("idNumber", "passportNumber", "registrationNumber", "taxNumber")
_KEEP = {
    "birthDate": 0.74,
    "nationality": 0.5,
    "country": 0.68,
    "gender": 0.5,
    "birthPlace": 0.3,
    "address": 0.27,
    "idNumber": 0.12,
    "passportNumber": 0.1,
    "position": 0.3,
    "registrationNumber": 0.42,
    "taxNumber": 0.24,
    "jurisdiction": 0.45,
    "incorporationDate": 0.3,
    "phone": 0.09,
    "email": 0.07,
    "imoNumber": 0.72,
    "mmsi": 0.3,
    "callSign": 0.25,
    "flag": 0.7,
    "type": 0.6,
    "buildDate": 0.5,
    "grossRegisteredTonnage": 0.35,
    "holder": 2.0,
    "post": 2.0,
    "startDate": 0.95,
    "endDate": 0.66,
    "status": 0.75,
    "politicalGroup": 0.4,
    "constituency": 0.4,
    "subnationalArea": 0.6,
    "inceptionDate": 0.3,
    "street": 0.6,
    "city": 0.7,
    "postalCode": 0.5,
}
"""How often a source that writes an average record gives a property."""
_PAPERWORK = {
    "topics": (0.45, ("sanction", "role.pep", "corp.offshore", "debarment", "wanted", "poi")),
    "sourceUrl": (0.4, ("https://list.example/entry", "https://registry.example/record", "https://data.example/show")),
    "summary": (0.2, ("Listed under the current programme.", "See the annex of the decision.", "Entry under review.")),
    "publisher": (0.15, ("Official Gazette", "Ministry of Justice", "Commercial Register")),
    "modifiedAt": (0.3, ("2024-02-11", "2025-06-30", "2025-11-03", "2023-09-19")),
}
"""What lists add that says nothing of who is meant: how often, and what."""


@dataclass(frozen=True)
class Source:
    """A list's habits.

    Attributes
    ----------
    name
        Of the data set.
    order
        ``given`` (First Last), ``comma`` (LAST, First) or ``family`` (Last First).
    upper
        Writes last names or whole names in capitals.
    scheme
        Which transliteration habit it has.
    respells
        How often it applies that habit.
    dates
        How often it gives only the year.
    ids
        How it writes identifiers: ``plain``, ``dashed``, ``spaced`` or ``prefixed``.
    richness
        Factor on how often it gives each property.
    splits
        Gives first and last name as properties too.
    aliases
        How often it gives another name where there is one or makes one of another spelling.
    """

    name: str
    order: str
    upper: bool
    scheme: int
    respells: float
    dates: float
    ids: str
    richness: float
    splits: bool
    aliases: float


def make_sources(rng: random.Random, count: int = 60) -> list[Source]:
    """Draw the lists."""
    names = [f"{place}_{kind}" for place in _PLACES for kind in _KINDS]
    return [
        Source(
            name=name,
            order=rng.choices(("given", "comma", "family"), (6, 2, 2))[0],
            upper=rng.random() < 0.25,
            scheme=rng.randrange(4),
            respells=rng.choice((0.0, 0.1, 0.3, 0.5)),
            dates=rng.choice((0.03, 0.1, 0.35)),
            ids=rng.choice(("plain", "plain", "dashed", "spaced", "prefixed")),
            richness=rng.choice((0.5, 0.68, 0.85, 1.25, 1.95)),
            splits=rng.random() < 0.3,
            aliases=rng.choice((0.02, 0.1, 0.3, 0.5)),
        )
        for name in rng.sample(names, count)
    ]


def write_record(truth: Truth, source: Source, rng: random.Random, native: bool) -> dict[str, Any]:
    """Write an entity as a source does; the id is the caller's to give."""
    native = native and truth.language in NON_LATIN
    properties: dict[str, list[str]] = {}
    title = _write_names(truth, source, rng, native, properties)
    for name, value in truth.facts.items():
        if name not in properties and rng.random() < min(1.0, _KEEP[name] * source.richness):
            properties[name] = [_write_value(name, value, source, rng, native)]
    for name, (share, values) in _PAPERWORK.items():
        if rng.random() < share * source.richness and name not in ("topics",) * (truth.schema == "Occupancy"):
            properties[name] = [rng.choice(values)]
    if truth.schema == "Occupancy" and not {"startDate", "endDate"} & properties.keys():
        properties["startDate"] = [truth.facts["startDate"][:4]]
    schema = truth.schema
    if schema in ("Company", "Organization") and rng.random() < 0.04:
        schema = "LegalEntity"
        properties = {
            name: values for name, values in properties.items() if name != "jurisdiction" or truth.schema == "Company"
        }
    return {"caption": title, "schema": schema, "datasets": [source.name], "properties": properties}


def _write_names(
    truth: Truth, source: Source, rng: random.Random, native: bool, properties: dict[str, list[str]]
) -> str:
    """Put names into the properties and return the caption."""
    if truth.schema == "Occupancy":
        return "Occupancy"
    if truth.schema == "Address":
        full = truth.name if native else romanise(truth.name)
        number, _, street = full.partition(" ")
        shown = f"{street} {number}" if source.order == "family" else full
        properties["full"] = [typo(shown, rng) if rng.random() < 0.04 else shown]
        return properties["full"][0]
    name = (
        _person_name(truth, source, rng, native, properties)
        if truth.person
        else _thing_name(truth, source, rng, native)
    )
    properties["name"] = [name]
    other = [text if native else romanise(text) for text in truth.other_names]
    if other and rng.random() < source.aliases * 2.2:
        properties["alias" if truth.person or rng.random() < 0.5 else "previousName"] = other[:1]
    elif (
        truth.language in NON_LATIN
        and truth.schema not in ("Vessel", "Position")
        and rng.random() < source.aliases * 0.8
    ):
        plain = _person_name(truth, source, rng, False, {}) if truth.person else _thing_name(truth, source, rng, False)
        again = plain if native else " ".join(respell(word, source.scheme + 1) for word in name.split())
        if again != name:
            properties["alias"] = [again]
    if other and rng.random() < 0.03:
        properties["name"] = other[:1]
        properties["alias"] = [name]
    return properties["name"][0]


def _person_name(
    truth: Truth, source: Source, rng: random.Random, native: bool, properties: dict[str, list[str]]
) -> str:
    assert truth.person is not None
    first, middle, last = truth.person.parts(native)
    if not native:
        if truth.language in NON_LATIN and rng.random() < source.respells:
            first, middle, last = (respell(part, source.scheme) for part in (first, middle, last))
        if rng.random() < 0.035:
            last = typo(last, rng)
    if source.splits:
        properties["firstName"], properties["lastName"] = [first], [last]
    middle = middle if rng.random() < 0.6 else ""
    draw = rng.random()
    if draw < 0.03 and len(first) > 1:
        first, middle = first[0] + ".", middle[:1] + "." if middle else ""
    elif draw < 0.06:
        first = f"{rng.choice(('Mr.', 'Dr.', 'Gen.', 'Sheikh', 'Haji', 'Col.'))} {first}" if not native else first
    given = " ".join(part for part in (first, middle) if part)
    if source.upper and not native:
        last = last.upper()
    if source.order == "comma" and not native:
        return f"{last}, {given}"
    family_first = source.order == "family" or (native and truth.language in FAMILY_FIRST)
    joint = "" if native and truth.language in ("zh", "ja", "ko") else " "
    return f"{last}{joint}{given}" if family_first else f"{given} {last}"


def _thing_name(truth: Truth, source: Source, rng: random.Random, native: bool) -> str:
    name = truth.name if native else romanise(truth.name)
    if truth.schema == "Vessel":
        return f"M/V {name}" if rng.random() < 0.06 else (name.title() if rng.random() < 0.25 else name)
    if rng.random() < 0.035:
        name = typo(name, rng)
    if not truth.forms or truth.schema == "Position":
        return name
    form = truth.forms[0] if native else romanise(truth.forms[rng.randrange(len(truth.forms))])
    if rng.random() < 0.18:
        return name.upper() if source.upper else name
    before = truth.language in ("ru", "uk") and rng.random() < 0.6
    whole = f'{form} "{name}"' if before else f"{name} {form}"
    return whole.upper() if source.upper and not native else whole


def _write_value(name: str, value: str, source: Source, rng: random.Random, native: bool) -> str:
    if name in _DATES:
        return _write_date(value, source, rng)
    if name in _IDS:
        return _write_identifier(value, source, rng)
    if name == "imoNumber":
        return value if rng.random() < 0.6 else value.removeprefix("IMO")
    if name in ("nationality", "country", "flag", "jurisdiction"):
        return value if rng.random() < 0.975 else rng.choice(("ru", "ae", "cy", "tr", "gb"))
    if name in ("address", "birthPlace", "constituency", "subnationalArea", "street", "city"):
        text = value if native else romanise(value)
        if name == "address" and rng.random() < 0.3:
            number, _, rest = text.partition(" ")
            return f"{rest}, {number}"
        return text
    return value


def _write_date(value: str, source: Source, rng: random.Random) -> str:
    if len(value) < 10:
        return value
    draw = rng.random()
    if draw < source.dates:
        return value[:4]
    if draw < source.dates + 0.03:
        return value[:7]
    if draw < source.dates + 0.05 and int(value[8:]) <= 12:
        return f"{value[:4]}-{value[8:]}-{value[5:7]}"
    if draw < source.dates + 0.065:
        return f"{int(value[:4]) + rng.choice((-1, 1))}{value[4:]}"
    return value


def _write_identifier(value: str, source: Source, rng: random.Random) -> str:
    if rng.random() < 0.015:
        value = typo(value, rng)
    if source.ids == "dashed":
        return f"{value[:2]}-{value[2:6]}-{value[6:]}"
    if source.ids == "spaced":
        return f"{value[:4]} {value[4:]}"
    return f"No. {value}" if source.ids == "prefixed" else value

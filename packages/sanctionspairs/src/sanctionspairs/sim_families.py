"""The entities behind SanctionsSim: families of those that are easily confused."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sanctionspairs.sim_names import LOCALES, Person, Pool, company, imo_number, person, vessel


@dataclass(frozen=True)
class Truth:
    """One entity as it is, before any source writes it down.

    Attributes
    ----------
    schema
        Of the entity.
    language
        Whose script its names have.
    person
        The name of a Person.
    name
        The name of anything else, native.
    forms
        Spellings of a company's legal form.
    facts
        Other properties: property to value; dates in full.
    other_names
        Former names and noms de guerre, native.
    """

    schema: str
    language: str
    person: Person | None = None
    name: str = ""
    forms: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    other_names: tuple[str, ...] = ()


_FOREIGN = [country for _, country in LOCALES.values()]
_POSTS = (
    "Member of Parliament",
    "Minister of Defence",
    "Governor",
    "Deputy Minister of Finance",
    "Judge of the Supreme Court",
    "Mayor",
    "Chief of General Staff",
    "Director of the Central Bank",
    "Member of the Regional Council",
    "Ambassador",
    "Prosecutor General",
    "Senator",
)
_PARTIES = ("United List", "People's Front", "National Union", "Labour", "Green Alternative", "Independent")


def _date(rng: random.Random, low: int, high: int) -> str:
    return f"{rng.randint(low, high)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


def _number(rng: random.Random, digits: int) -> str:
    return "".join(str(rng.randint(1 if place == 0 else 0, 9)) for place in range(digits))


def _address(pool: Pool, rng: random.Random) -> str:
    return f"{rng.randint(1, 180)} {rng.choice(pool.streets)}, {rng.choice(pool.cities)}"


def _human(pool: Pool, rng: random.Random, name: Person | None = None, **fixed: str) -> Truth:
    who = name or person(pool, rng)
    country = pool.country if rng.random() < 0.9 else rng.choice(_FOREIGN)
    facts = {
        "birthDate": _date(rng, 1935, 1998),
        "nationality": country,
        "country": country,
        "gender": who.gender,
        "birthPlace": rng.choice(pool.cities),
        "address": _address(pool, rng),
        "idNumber": _number(rng, 10),
        "passportNumber": rng.choice("ABCDEKLMNP") + _number(rng, 8),
        "position": rng.choice(_POSTS),
    }
    other = ()
    if rng.random() < 0.25:
        other = (rng.choice(pool.male if who.gender == "male" else pool.female) + " " + who.last,)
    return Truth("Person", pool.language, person=who, facts=facts | fixed, other_names=other)


def _namesakes(pool: Pool, rng: random.Random) -> list[Truth]:
    """Two to four people of one name; some lists tell them apart by birth date only."""
    first = _human(pool, rng)
    people = [first]
    for _ in range(rng.randint(1, 3)):
        assert first.person is not None
        name = first.person if rng.random() < 0.75 else replace(first.person, middle=rng.choice(pool.male))
        same_country = {"country": first.facts["country"], "nationality": first.facts["nationality"]}
        people.append(_human(pool, rng, name, **(same_country if rng.random() < 0.7 else {})))
    return people


def _father_and_son(pool: Pool, rng: random.Random) -> list[Truth]:
    """A father and one or two children: last name, country and often the address are shared."""
    father = _human(pool, rng, birthDate=_date(rng, 1935, 1960))
    assert father.person is not None
    people = [father]
    for _ in range(rng.randint(1, 2)):
        first = father.person.first if rng.random() < 0.3 else rng.choice(pool.male)
        name = Person(
            pool.language, first, father.person.first if rng.random() < 0.6 else "", father.person.last, "male"
        )
        shared = {key: father.facts[key] for key in ("country", "nationality")}
        if rng.random() < 0.6:
            shared["address"] = father.facts["address"]
        people.append(_human(pool, rng, name, birthDate=_date(rng, 1962, 1990), **shared))
    return people


def _firm(
    pool: Pool, rng: random.Random, schema: str, name: str = "", forms: tuple[str, ...] = (), **fixed: str
) -> Truth:
    drawn, drawn_forms = company(pool, rng)
    country = pool.country if rng.random() < 0.85 else rng.choice(_FOREIGN)
    facts = {
        "registrationNumber": _number(rng, 9),
        "taxNumber": _number(rng, 10),
        "country": country,
        "jurisdiction": country,
        "address": _address(pool, rng),
        "incorporationDate": _date(rng, 1991, 2021),
        "phone": "+" + _number(rng, 11),
        "email": f"info@{_number(rng, 5)}.example",
    }
    if schema != "Company":
        facts.pop("jurisdiction")
    if schema == "Organization" and rng.random() < 0.5:
        facts.pop("taxNumber")
    former = (company(pool, rng)[0],) if rng.random() < 0.2 else ()
    return Truth(
        schema, pool.language, name=name or drawn, forms=forms or drawn_forms, facts=facts | fixed, other_names=former
    )


def _numbered(pool: Pool, rng: random.Random, schema: str) -> list[Truth]:
    """Companies that differ by a number."""
    base = _firm(pool, rng, schema)
    shared = {key: base.facts[key] for key in ("country", "jurisdiction") if key in base.facts}
    start, roman = rng.randint(1, 5), rng.random() < 0.2
    numerals = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")
    return [
        _firm(pool, rng, schema, f"{base.name} {numerals[k] if roman else k}", base.forms, **shared)
        for k in range(start, start + rng.randint(2, 4))
    ]


def _parent_and_subsidiary(pool: Pool, rng: random.Random, schema: str) -> list[Truth]:
    """A group and its daughters, often at one address."""
    parent = _firm(pool, rng, schema)
    firms = [parent]
    for suffix in rng.sample(
        ("Trading", "Invest", "Logistics", "Finance", "International", "Capital"), rng.randint(1, 2)
    ):
        shared = {key: parent.facts[key] for key in ("country", "jurisdiction", "phone") if key in parent.facts}
        if rng.random() < 0.7:
            shared["address"] = parent.facts["address"]
        firms.append(_firm(pool, rng, schema, f"{parent.name} {suffix}", parent.forms, **shared))
    return firms


def _neighbours(pool: Pool, rng: random.Random, schema: str) -> list[Truth]:
    """Unrelated companies at one address of a registration agent."""
    first = _firm(pool, rng, schema)
    shared = {key: first.facts[key] for key in ("address", "country", "jurisdiction") if key in first.facts}
    return [first, *(_firm(pool, rng, schema, "", (), **shared) for _ in range(rng.randint(1, 3)))]


def _firms(schema: str) -> tuple[tuple[Callable[[Pool, random.Random], list[Truth]], float], ...]:
    return (
        (lambda pool, rng: [_firm(pool, rng, schema)], 0.45),
        (lambda pool, rng: _numbered(pool, rng, schema), 0.2),
        (lambda pool, rng: _parent_and_subsidiary(pool, rng, schema), 0.2),
        (lambda pool, rng: _neighbours(pool, rng, schema), 0.15),
    )


def _ship(pool: Pool, rng: random.Random, name: str = "", **fixed: str) -> Truth:
    facts = {
        "imoNumber": imo_number(rng),
        "mmsi": _number(rng, 9),
        "callSign": "".join(rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ") for _ in range(4)) + _number(rng, 1),
        "flag": rng.choice(("ru", "pa", "lr", "ir", "kp", "cm", "gy")),
        "type": rng.choice(("Crude Oil Tanker", "Bulk Carrier", "General Cargo", "Products Tanker")),
        "buildDate": str(rng.randint(1985, 2020)),
        "grossRegisteredTonnage": str(rng.randint(20, 900) * 100),
    }
    former = (vessel(rng),) if rng.random() < 0.35 else ()
    return Truth("Vessel", pool.language, name=name or vessel(rng), facts=facts | fixed, other_names=former)


def _sister_ships(pool: Pool, rng: random.Random) -> list[Truth]:
    """Ships of one series: names differ by a number, type, flag and year are the same."""
    first = _ship(pool, rng)
    shared = {key: first.facts[key] for key in ("flag", "type", "buildDate", "grossRegisteredTonnage")}
    start = rng.randint(1, 6)
    return [_ship(pool, rng, f"{first.name} {k}", **shared) for k in range(start, start + rng.randint(2, 4))]


def _terms(pool: Pool, rng: random.Random) -> list[Truth]:
    """One person's terms in office, a colleague's term, or another office of the same person."""
    holder, post = f"Q{_number(rng, 7)}", f"Q{_number(rng, 8)}"
    start = rng.randint(1990, 2014)
    found = []
    for term in range(rng.randint(1, 4)):
        kind = rng.random() if term else 0.0
        began, years = start + 4 * term + rng.randint(0, 1), rng.randint(2, 5)
        facts = {
            "holder": holder if kind < 0.8 else f"Q{_number(rng, 7)}",
            "post": post if kind < 0.6 else f"Q{_number(rng, 8)}",
            "startDate": _date(rng, began, began),
            "endDate": _date(rng, began + years, began + years),
            "status": rng.choice(("current", "ended", "unknown")),
            "politicalGroup": rng.choice(_PARTIES),
            "constituency": rng.choice(pool.cities),
        }
        found.append(Truth("Occupancy", pool.language, facts=facts))
    return found


def _offices(pool: Pool, rng: random.Random) -> list[Truth]:
    """Offices whose names share most words."""
    post = rng.choice(_POSTS)
    places = rng.sample(pool.cities, min(len(set(pool.cities)), rng.randint(1, 3)))
    return [
        Truth(
            "Position",
            pool.language,
            name=f"{post} of {place}",
            facts={"country": pool.country, "subnationalArea": place, "inceptionDate": _date(rng, 1945, 2000)},
        )
        for place in dict.fromkeys(places)
    ]


def _houses(pool: Pool, rng: random.Random) -> list[Truth]:
    """Addresses of one street."""
    street, city, code = rng.choice(pool.streets), rng.choice(pool.cities), _number(rng, 5)
    houses = rng.sample(range(1, 180), rng.randint(1, 3))
    return [
        Truth(
            "Address",
            pool.language,
            name=f"{house} {street}, {city}",
            facts={"street": f"{house} {street}", "city": city, "postalCode": code, "country": pool.country},
        )
        for house in houses
    ]


FAMILIES: dict[str, tuple[tuple[Callable[[Pool, random.Random], list[Truth]], float], ...]] = {
    "Person": (
        (lambda pool, rng: [_human(pool, rng)], 0.45),
        (_namesakes, 0.3),
        (_father_and_son, 0.25),
    ),
    "Company": _firms("Company"),
    "Organization": _firms("Organization"),
    "LegalEntity": _firms("LegalEntity"),
    "Vessel": ((lambda pool, rng: [_ship(pool, rng)], 0.5), (_sister_ships, 0.5)),
    "Occupancy": ((_terms, 1.0),),
    "Position": ((_offices, 1.0),),
    "Address": ((_houses, 1.0),),
}
"""Kinds of family by schema, with their shares."""


def make_family(schema: str, pool: Pool, rng: random.Random, key: str) -> list[Truth]:
    """Draw a family of at most eight entities of one schema."""
    kinds = FAMILIES[schema]
    kind = rng.choices([kind for kind, _ in kinds], [share for _, share in kinds])[0]
    return kind(pool, random.Random(f"{rng.getrandbits(64)}-{key}"))[:8]

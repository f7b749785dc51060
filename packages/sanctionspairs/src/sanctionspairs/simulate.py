"""SanctionsSim: judged pairs of made-up records with a known truth, after the paper's facts about its corpus.

A family is a few entities that are easily confused (namesakes, father and son, numbered companies, parent and
subsidiary, sister ships, terms of one office). Each entity is written by two to six sources, each with its own habits.
Positives are two records of one entity, negatives two records of one family; nothing links two families, so that pairs
fall into small components and entity-disjoint splits exist.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from followthemoney import EntityProxy

from sanctionspairs.records import NEGATIVE, POSITIVE, Pair, entity
from sanctionspairs.sim_families import Truth, make_family
from sanctionspairs.sim_names import LOCALES, WEIGHTS, make_pool
from sanctionspairs.sim_sources import Source, make_sources, write_record

FACTS = {
    "positive share": 0.7692,
    "captions in different scripts": 0.0383,
    "any caption not Latin": 0.0687,
    "negatives of one source": 0.929,
    "positives across sources": 0.820,
    "fields per entity, mean": 6.06,
    "fields per entity, median": 5.0,
    "entities with an alias": 0.138,
    "Person": 0.377,
    "Occupancy": 0.283,
    "Company": 0.094,
}
"""What the paper states of 755,540 pairs, 1,002,093 entities, 293 sources, 45 jurisdictions."""
SCHEMATA = {
    "Person": 0.377,
    "Occupancy": 0.283,
    "Company": 0.094,
    "Organization": 0.080,
    "LegalEntity": 0.050,
    "Vessel": 0.045,
    "Position": 0.040,
    "Address": 0.031,
}
"""Share of the pairs by schema; those after Company are not stated by the paper."""
PAIRS_PER_RECORD = 755_540 / 1_002_093
MOST_PAIRS = 200
"""No component has more pairs than this."""


@dataclass(frozen=True)
class Simulated:
    """Simulated pairs and what they are about.

    Attributes
    ----------
    pairs
        In random order.
    truth
        Which entity each record describes: record id to entity id.
    """

    pairs: list[Pair]
    truth: dict[str, str]

    @property
    def entities(self) -> list[EntityProxy]:
        """Every record once, in order of first appearance."""
        found: dict[str, EntityProxy] = {}
        for pair in self.pairs:
            found.setdefault(str(pair.left.id), pair.left)
            found.setdefault(str(pair.right.id), pair.right)
        return list(found.values())


@dataclass(frozen=True)
class _Written:
    proxy: EntityProxy
    truth: str
    source: str


Kind = tuple[str, bool]
"""Judgement, and whether both records come from one source."""


def simulate(n: int = 20_000, seed: int = 2026) -> Simulated:
    """Make ``n`` judged pairs.

    Parameters
    ----------
    n
        Number of pairs; labels, sources and schemata are filled up to their shares exactly, the rest in expectation.
    seed
        Of everything.

    Returns
    -------
    Simulated
        Pairs and truth.
    """
    rng = random.Random(f"sanctions-sim-{seed}")
    pools = {language: make_pool(language, seed) for language in LOCALES}
    sources = make_sources(rng)
    languages = list(LOCALES)
    weights = [WEIGHTS.get(language, 1) for language in languages]
    pairs: list[Pair] = []
    truth: dict[str, str] = {}
    for schema, share in SCHEMATA.items():
        quota = _quota(round(n * share))
        number = 0
        while any(quota.values()):
            number += 1
            language = rng.choices(languages, weights)[0]
            family = make_family(schema, pools[language], rng, f"{schema}-{number}")
            written = list(_write(family, language, sources, rng, f"{seed}-{schema}-{number}"))
            for pair in _draw_pairs(written, quota, rng):
                pairs.append(pair)
                for side in (pair.left, pair.right):
                    truth[str(side.id)] = next(w.truth for w in written if w.proxy.id == side.id)
    rng.shuffle(pairs)
    return Simulated(pairs, truth)


def simulate_records(n: int, seed: int = 2026) -> tuple[list[EntityProxy], list[str]]:
    """Make a list of ``n`` records without judgements, and which entity each describes; for blocking and scale."""
    rng = random.Random(f"sanctions-sim-records-{seed}")
    pools = {language: make_pool(language, seed) for language in LOCALES}
    sources = make_sources(rng)
    languages = list(LOCALES)
    weights = [WEIGHTS.get(language, 1) for language in languages]
    records: list[EntityProxy] = []
    truth: list[str] = []
    number = 0
    while len(records) < n:
        number += 1
        schema = rng.choices(list(SCHEMATA), list(SCHEMATA.values()))[0]
        language = rng.choices(languages, weights)[0]
        family = make_family(schema, pools[language], rng, f"{schema}-{number}")
        for written in _write(family, language, sources, rng, f"{seed}-records-{number}"):
            records.append(written.proxy)
            truth.append(written.truth)
    return records[:n], truth[:n]


def _quota(n: int) -> dict[Kind, int]:
    """Split a schema's pairs by judgement and sources as the paper states them."""
    positives = round(n * FACTS["positive share"])
    negatives = n - positives
    across, within = (
        round(positives * FACTS["positives across sources"]),
        round(negatives * FACTS["negatives of one source"]),
    )
    return {
        (POSITIVE, False): across,
        (POSITIVE, True): positives - across,
        (NEGATIVE, True): within,
        (NEGATIVE, False): negatives - within,
    }


def _write(
    family: list[Truth], language: str, sources: list[Source], rng: random.Random, key: str
) -> Iterator[_Written]:
    """Let two to six sources describe each entity of a family, some of them twice."""
    chosen = rng.sample(sources, rng.randint(2, 6))
    # Lists either keep a region's names in its own script or not: scripts agree within a family more than by chance.
    native_family = rng.random() < 0.115
    native = {source.name: rng.random() < (0.68 if native_family else 0.06) for source in chosen}
    for who, identity in enumerate(family):
        writing = [source for source in chosen if rng.random() < 0.8] or chosen[:1]
        twice = [source for source in writing if rng.random() < 0.35]
        for number, source in enumerate([*writing, *twice]):
            data = write_record(identity, source, rng, native=native[source.name])
            tag = f"{random.Random(f'{key}-{who}-{number}').getrandbits(48):012x}"
            yield _Written(entity({**data, "id": f"sim-{source.name}-{tag}"}), f"{key}-{who}", source.name)


def _draw_pairs(written: list[_Written], quota: dict[Kind, int], rng: random.Random) -> Iterator[Pair]:
    """Take about as many pairs of a family as the corpus has per record, from the kinds that are still lacking."""
    options: dict[Kind, list[tuple[_Written, _Written]]] = defaultdict(list)
    for i, left in enumerate(written):
        for right in written[i + 1 :]:
            judgement = POSITIVE if left.truth == right.truth else NEGATIVE
            options[judgement, left.source == right.source].append((left, right))
    wanted = min(MOST_PAIRS, max(1, round(len(written) * PAIRS_PER_RECORD)))
    for found in options.values():
        rng.shuffle(found)
    for _ in range(wanted):
        open_kinds = [kind for kind, found in options.items() if found and quota[kind] > 0]
        if not open_kinds:
            return
        kind = rng.choices(open_kinds, [quota[kind] for kind in open_kinds])[0]
        left, right = options[kind].pop()
        quota[kind] -= 1
        if rng.random() < 0.5:
            left, right = right, left
        yield Pair(left.proxy, right.proxy, kind[0])

"""Blocking by the letter: weigh every pair of every block in dictionaries. Tests hold ``blocking`` to it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

from followthemoney import EntityProxy

from sanctionspairs.blocking import make_blocks
from sanctionspairs.records import common_schema


def literal_candidates(entities: Sequence[EntityProxy], k: int = 50, max_block: int = 200) -> list[tuple[int, int]]:
    """Return the same pairs as `blocking.candidates`, one pair at a time."""
    n = len(entities)
    weight: dict[tuple[int, int], float] = defaultdict(float)
    for members, size in zip(*make_blocks(entities, max_block), strict=True):
        for i, j in combinations(sorted(members), 2):
            if common_schema(entities[i], entities[j]) is not None:
                weight[i, j] += math.log(n / size) + 1e-9
    partners: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (i, j), heavy in weight.items():
        partners[i].append((-round(heavy, 9), j))
        partners[j].append((-round(heavy, 9), i))
    kept = {(min(i, j), max(i, j)) for i, found in partners.items() for _, j in sorted(found)[:k]}
    return sorted(kept)

"""Contribution bounding read off the page: slow, and right by inspection. Tests hold the fast versions to it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence


def sequential_greedy(lists: Sequence[Sequence[int]], k: int, order: Sequence[int]) -> list[int]:
    """Go through the examples in ``order``; add one if each of its users has fewer than ``k``. Ascending numbers."""
    degree: dict[int, int] = {}
    selected = []
    for e in order:
        if all(degree.get(v, 0) < k for v in lists[e]):
            selected.append(e)
            for v in lists[e]:
                degree[v] = degree.get(v, 0) + 1
    return sorted(selected)


def largest_by_enumeration(
    lists: Sequence[Sequence[int]], k: int, weights: Sequence[float] | None = None
) -> tuple[float, list[int]]:
    """Try every subset of the examples; return the largest weight of a ``k``-bounded one, and one that has it."""
    value = [1.0] * len(lists) if weights is None else list(weights)
    best: tuple[float, list[int]] = (0.0, [])
    for chosen in itertools.product((False, True), repeat=len(lists)):
        subset = [e for e, taken in enumerate(chosen) if taken]
        users = [v for e in subset for v in lists[e]]
        total = sum(value[e] for e in subset)
        if total > best[0] and all(users.count(v) <= k for v in set(users)):
            best = total, subset
    return best

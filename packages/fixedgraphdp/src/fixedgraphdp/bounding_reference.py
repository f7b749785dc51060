"""Contribution bounding read off the page: slow, and right by inspection. Tests hold the fast versions to it."""

from __future__ import annotations

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
    """Try every ``k``-bounded subset of the examples; return the largest weight of one, and one that has it."""
    value = [1.0] * len(lists) if weights is None else list(weights)

    def best(first: int, degree: dict[int, int]) -> tuple[float, list[int]]:
        """Return the best of the examples from ``first`` on, given each user's examples among those before."""
        if first == len(lists):
            return 0.0, []
        found = best(first + 1, degree)
        if all(degree.get(v, 0) < k for v in lists[first]):
            total, subset = best(first + 1, degree | {v: degree.get(v, 0) + 1 for v in lists[first]})
            found = max(found, (total + value[first], [first, *subset]))
        return found

    return best(0, {})

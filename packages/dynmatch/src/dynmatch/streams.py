"""Update streams made on the spot: a procedural city, digits with a class change, a graph, adversarial deletions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from dynmatch.costs import Real
from dynmatch.protocol import Side, Update
from papers_shared.errors import InputError

KINDS = ("city", "digits", "graph", "gaussian", "deletions", "adversarial")


def city(updates: int = 3000, live: int = 500, seed: int = 0) -> list[Update]:
    """Requests (A) and cars (B) of a city in km: Gaussian-mixture demand that moves from the suburbs to the centre.

    A request or car stays for about ``2 * live`` updates; sizes of the two sides wander apart and together.
    """
    rng = np.random.default_rng(seed)
    homes, offices = rng.normal(0, 6, (6, 2)), rng.normal(0, 1.5, (3, 2))
    present: list[list[int]] = [[], []]
    found = []
    for number in range(updates):
        hour = number / max(1, updates)
        s = int(rng.random() < 0.5)
        if len(present[s]) < live * (1 + 0.2 * np.sin(6 * hour + s)) and (len(present[s]) < 3 or rng.random() < 0.75):
            morning = rng.random() < (1 - hour if s == 0 else hour)
            centres = homes if morning else offices
            x = centres[rng.integers(len(centres))] + rng.normal(0, 0.8, 2)
            found.append(Update("insert", ("A", "B")[s], number, tuple(x.tolist())))
            present[s].append(number)
        else:
            s = s if present[s] else 1 - s
            if not present[s]:
                found.append(Update("insert", ("A", "B")[s], number, tuple(rng.normal(0, 6, 2).tolist())))
                present[s].append(number)
                continue
            found.append(Update("delete", None, present[s].pop(int(rng.integers(len(present[s]) // 2 + 1)))))
    return found


def digits(first: tuple[int, ...] = (0, 1, 2, 3, 4), then: tuple[int, ...] = (5, 6, 7, 8, 9), seed: int = 0):
    """Return scikit-learn's digits as 64-d points in [0, 1]: those of ``first``, and those of ``then``, shuffled."""
    from sklearn.datasets import load_digits

    data = load_digits()
    rng = np.random.default_rng(seed)
    points = np.ascontiguousarray(data.data, dtype=np.float64) / 16
    sets = [points[np.isin(data.target, classes)] for classes in (first, then)]
    return rng.permutation(sets[0]), rng.permutation(sets[1])


def digit_drift(window: int = 150, seed: int = 0) -> list[Update]:
    """Reference of digits 0 to 4 (A), then a sliding window (B) whose digits change abruptly to 5 to 9."""
    before, after = digits(seed=seed)
    found = [Update("insert", "A", f"r{i}", tuple(x.tolist())) for i, x in enumerate(before[:window])]
    stream = np.concatenate([before[window : 4 * window], after[: 2 * window]])
    for i, x in enumerate(stream):
        found.append(Update("insert", "B", f"w{i}", tuple(x.tolist())))
        if i >= window:
            found.append(Update("delete", None, f"w{i - window}"))
    return found


def graph(updates: int = 600, live: int = 40, seed: int = 0) -> tuple[list[Update], Float[np.ndarray, "n n"]]:
    """Two groups wandering over the characters of Les Misérables; returns the updates and shortest-path distances."""
    import networkx as nx

    from dynmatch.costs import graph_metric

    network = nx.les_miserables_graph()
    for _, _, attributes in network.edges(data=True):
        attributes["length"] = 1.0 / attributes["weight"]
    matrix, nodes = graph_metric(network, weight="length")
    rng = np.random.default_rng(seed)
    places = iter(rng.integers(len(nodes), size=updates).astype(float)[:, None])
    return list(churn(places, updates, live, rng)), matrix


def gaussian(updates: int, live: int, dim: int, seed: int = 0, delete: Real = 0.45) -> list[Update]:
    """Two unequal Gaussian clouds (B shifted and wider), with random deletions after ``live`` points a side."""
    rng = np.random.default_rng(seed)
    points = iter(rng.normal(size=(updates, dim)))
    shifted = {"A": (0.0, 1.0), "B": (0.5, 1.2)}
    found = []
    for update in churn(points, updates, live, rng, delete):
        if update.point is not None and update.side is not None:
            shift, width = shifted[update.side]
            update = Update("insert", update.side, update.id, tuple(shift + width * v for v in update.point))
        found.append(update)
    return found


def deletions(updates: int = 600, live: int = 80, dim: int = 2, seed: int = 0) -> list[Update]:
    """Build up, then delete three points for each one inserted, oldest and newest alike."""
    build = gaussian(2 * live, live, dim, seed, delete=0.0)
    rng = np.random.default_rng(seed + 1)
    present = [u.id for u in build]
    found = list(build)
    number = len(build)
    while len(found) < updates and present:
        if rng.random() < 0.25:
            side: Side = "A" if rng.random() < 0.5 else "B"
            found.append(Update("insert", side, number, tuple(rng.normal(size=dim).tolist())))
            present.append(number)
            number += 1
        else:
            found.append(Update("delete", None, present.pop(int(rng.integers(len(present))))))
    return found


def adversarial(updates: int = 600, live: int = 60, dim: int = 2, seed: int = 0, far: Real = 100.0) -> list[Update]:
    """Outliers come in on one side and leave just after the matching has bent to them, again and again."""
    rng = np.random.default_rng(seed)
    found = gaussian(2 * live, live, dim, seed, delete=0.0)
    number = len(found)
    while len(found) < updates:
        side: Side = "A" if rng.random() < 0.5 else "B"
        other: Side = "B" if side == "A" else "A"
        spot = far * rng.normal(size=dim)
        added = []
        for s, x in ((side, spot), (other, rng.normal(size=dim)), (side, spot + rng.normal(size=dim)), (other, -spot)):
            found.append(Update("insert", s, number, tuple(x.tolist())))
            added.append(number)
            number += 1
        found += [Update("delete", None, i) for i in rng.permutation(added).tolist()]
    return found[:updates]


def churn(
    points: Iterator[np.ndarray], updates: int, live: int, rng: np.random.Generator, delete: Real = 0.45
) -> Iterator[Update]:
    """Yield insertions of the points on random sides and deletions of random points, ``live`` points a side about."""
    present: list[int] = []
    for number in range(updates):
        if len(present) < 2 or (len(present) < 2 * live and rng.random() >= delete):
            side: Side = "A" if rng.random() < 0.5 else "B"
            yield Update("insert", side, number, tuple(next(points).tolist()))
            present.append(number)
        else:
            yield Update("delete", None, present.pop(int(rng.integers(len(present)))))


def make(kind: str, updates: int, live: int, dim: int, seed: int) -> list[Update]:
    """Make a stream by name, as ``dynmatch gen`` does."""
    if kind == "city":
        return city(updates, live, seed)
    if kind == "digits":
        return digit_drift(min(live, 150), seed)[:updates]
    if kind == "graph":
        return graph(updates, live, seed)[0]
    if kind == "gaussian":
        return gaussian(updates, live, dim, seed)
    if kind == "deletions":
        return deletions(updates, live, dim, seed)
    if kind == "adversarial":
        return adversarial(updates, live, dim, seed)
    raise InputError(f"no stream {kind!r}", hint=f"use {', '.join(KINDS)}")


def window_clouds(size: int, updates: int, seed: int = 0, dim: int = 2) -> list[Update]:
    """Two sliding windows of one size over drifting Gaussian clouds; equal sizes after every second update."""
    rng = np.random.default_rng(seed)
    found: list[Update] = []
    for number in range(size + updates // 4):
        for side, shift in (("A", 0.0), ("B", 0.5)):
            x = rng.normal(size=dim) + shift * (1 + number / size)
            found.append(Update("insert", "A" if side == "A" else "B", f"{side}{number}", tuple(x.tolist())))
        if number >= size:
            found += [Update("delete", None, f"A{number - size}"), Update("delete", None, f"B{number - size}")]
    return found

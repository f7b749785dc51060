"""From pairwise log-odds to entities: components, average linkage, correlation clustering; and how good they are."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from sanctionspairs.errors import SanctionsPairsError

EXACT = 10
"""Components of at most so many nodes are solved exactly."""
METHODS = ("correlation", "components", "average")
_GAIN = 1e-12
Graph = list[dict[int, float]]


def log_odds(probability: Float[np.ndarray, " m"], limit: float = 12.0) -> Float[np.ndarray, " m"]:
    r"""Return :math:`\\log p / (1 - p)`, cut off at ``limit`` either way."""
    p = np.clip(np.asarray(probability, float), 1e-12, 1 - 1e-12)
    return np.clip(np.log(p) - np.log1p(-p), -limit, limit)


def cluster(
    n: int,
    edges: Int[np.ndarray, "m 2"],
    logodds: Float[np.ndarray, " m"],
    cannot: Int[np.ndarray, "c 2"] | None = None,
    method: str = "correlation",
) -> Int[np.ndarray, " n"]:
    r"""Group records into entities.

    Parameters
    ----------
    n
        Number of records.
    edges
        int64 ``(m, 2)`` judged or scored pairs.
    logodds
        ``(m,)`` evidence for each, :math:`w_{ij} = \log p / (1 - p)`; to cut at another probability than 1/2, subtract
        its log-odds. Pairs that are not given count 0.
    cannot
        ``(c, 2)`` pairs that must not end up together (judged negatives).
    method
        ``correlation`` maximises :math:`\sum_{i, j \text{ together}} w_{ij}`, exactly in components of at most ten
        records, else from a pivot start by moves and merges; ``components`` joins whatever positive evidence links;
        ``average`` merges the two clusters of largest mean evidence while it is positive. The first and the last obey
        ``cannot``; ``components`` cannot, see `violations`.

    Returns
    -------
    ndarray
        int64 ``(n,)`` cluster numbers in order of first appearance.

    Raises
    ------
    SanctionsPairsError
        An unknown method, an edge outside the records, or a record that must not be with itself.

    References
    ----------
    Bansal, Blum, Chawla, "Correlation clustering", 2004; Ailon, Charikar, Newman, "Aggregating inconsistent
    information", 2008 (pivot).
    """
    if method not in METHODS:
        raise SanctionsPairsError(f"no clustering method {method!r}", f"choose one of {', '.join(METHODS)}")
    graph = _graph(n, edges, logodds)
    apart = _apart(n, cannot)
    label = np.arange(n)
    for members in _components(graph, range(n), positive=True):
        if len(members) == 1 or method == "components":
            parts = [members]
        elif method == "average":
            parts = average_linkage(members, graph, apart)
        elif len(members) <= EXACT:
            parts = exact_partition(members, graph, apart)
        else:
            parts = local_search(pivot_start(members, graph, apart), graph, apart)
        for part in parts:
            label[part] = min(part)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[inverse].astype(np.int64)


def _graph(n: int, edges: Int[np.ndarray, "m 2"], logodds: Float[np.ndarray, " m"]) -> Graph:
    graph: Graph = [{} for _ in range(n)]
    if len(edges) and (edges.min() < 0 or edges.max() >= n):
        raise SanctionsPairsError(f"an edge names record {int(edges.max())} of {n}")
    for (i, j), weight in zip(edges.tolist(), logodds.tolist(), strict=True):
        if i != j:
            graph[i][j] = graph[i].get(j, 0.0) + weight
            graph[j][i] = graph[i][j]
    return graph


def _apart(n: int, cannot: Int[np.ndarray, "c 2"] | None) -> list[set[int]]:
    apart: list[set[int]] = [set() for _ in range(n)]
    for i, j in [] if cannot is None else np.asarray(cannot).tolist():
        if i == j:
            raise SanctionsPairsError(f"record {i} cannot be kept apart from itself")
        apart[i].add(j)
        apart[j].add(i)
    return apart


def _components(graph: Graph, nodes: Sequence[int] | range, positive: bool) -> list[list[int]]:
    """Return connected components; joining across those of positive edges never helps."""
    seen: set[int] = set()
    found = []
    for root in nodes:
        if root in seen:
            continue
        seen.add(root)
        stack, members = [root], []
        while stack:
            node = stack.pop()
            members.append(node)
            for other, weight in graph[node].items():
                if other not in seen and (weight > 0 or not positive):
                    seen.add(other)
                    stack.append(other)
        found.append(sorted(members))
    return found


def exact_partition(members: Sequence[int], graph: Graph, apart: Sequence[set[int]]) -> list[list[int]]:
    r"""Return the partition of a few records with the largest sum of evidence inside clusters.

    Dynamic programming over subsets: :math:`f(S) = \max_{T \ni \min S} v(T) + f(S \setminus T)` with :math:`v(T)` the
    evidence inside T, or minus infinity if T holds a pair that must be apart; :math:`O(3^n)`.
    """
    n = len(members)
    place = {node: index for index, node in enumerate(members)}
    pull = np.zeros((n, n))
    forbidden = [0] * n
    for node, index in place.items():
        for other, weight in graph[node].items():
            if other in place:
                pull[index, place[other]] = weight
        for other in apart[node]:
            if other in place:
                forbidden[index] |= 1 << place[other]
    value = [0.0] * (1 << n)
    for subset in range(1, 1 << n):
        top = subset.bit_length() - 1
        rest = subset ^ (1 << top)
        if value[rest] == -np.inf or forbidden[top] & rest:
            value[subset] = -np.inf
        else:
            value[subset] = value[rest] + sum(pull[top, k] for k in range(top) if rest >> k & 1)
    best, choice = [0.0] * (1 << n), [0] * (1 << n)
    for subset in range(1, 1 << n):
        low = subset & -subset
        rest = subset ^ low
        part, found, taken = rest, -np.inf, low
        while True:
            total = value[part | low] + best[rest ^ part]
            if total > found + _GAIN:
                found, taken = total, part | low
            if part == 0:
                break
            part = (part - 1) & rest
        best[subset], choice[subset] = found, taken
    parts, left = [], (1 << n) - 1
    while left:
        taken = choice[left]
        parts.append([members[k] for k in range(n) if taken >> k & 1])
        left ^= taken
    return parts


def pivot_start(members: Sequence[int], graph: Graph, apart: Sequence[set[int]]) -> list[list[int]]:
    """Cluster greedily: the record with most positive evidence takes all free records that it has evidence for."""
    strength = {node: sum(w for w in graph[node].values() if w > 0) for node in members}
    free = set(members)
    parts = []
    for pivot in sorted(members, key=lambda node: (-strength[node], node)):
        if pivot not in free:
            continue
        part = [pivot]
        free.discard(pivot)
        for other, weight in sorted(graph[pivot].items(), key=lambda item: (-item[1], item[0])):
            if weight > 0 and other in free and apart[other].isdisjoint(part):
                part.append(other)
                free.discard(other)
        parts.append(part)
    return parts


def objective(parts: Sequence[Sequence[int]], graph: Graph) -> float:
    """Return the evidence inside the clusters."""
    total = 0.0
    for part in parts:
        inside = set(part)
        total += sum(w for node in part for other, w in graph[node].items() if other in inside and other > node)
    return total


def local_search(parts: Sequence[Sequence[int]], graph: Graph, apart: Sequence[set[int]]) -> list[list[int]]:
    """Improve a partition by best moves and best merges until neither gains; it never ends below its start."""
    home = {node: number for number, part in enumerate(parts) for node in part}
    groups: dict[int, set[int]] = {number: set(part) for number, part in enumerate(parts)}
    fresh = len(groups)
    while True:
        moved = True
        while moved:
            moved = False
            for node in sorted(home):
                target, gain = _best_move(node, home, groups, graph, apart)
                if gain <= _GAIN:
                    continue
                if target is None:
                    target, fresh = fresh, fresh + 1
                    groups[target] = set()
                groups[home[node]].discard(node)
                if not groups[home[node]]:
                    del groups[home[node]]
                groups[target].add(node)
                home[node] = target
                moved = True
        if not _merge_pass(home, groups, graph, apart):
            return [sorted(group) for group in groups.values()]


def _best_move(
    node: int, home: dict[int, int], groups: dict[int, set[int]], graph: Graph, apart: Sequence[set[int]]
) -> tuple[int | None, float]:
    """Return where a record gains most (None: a cluster of its own) and how much."""
    pull: dict[int, float] = defaultdict(float)
    for other, weight in graph[node].items():
        if other in home:
            pull[home[other]] += weight
    here = pull.pop(home[node], 0.0)
    best: tuple[int | None, float] = (None, -here if len(groups[home[node]]) > 1 else 0.0)
    for number, total in sorted(pull.items()):
        if total - here > best[1] + _GAIN and apart[node].isdisjoint(groups[number]):
            best = (number, total - here)
    return best


def _merge_pass(home: dict[int, int], groups: dict[int, set[int]], graph: Graph, apart: Sequence[set[int]]) -> bool:
    """Merge clusters that gain by it, best first, each at most once; tell whether any were."""
    between: dict[tuple[int, int], float] = defaultdict(float)
    for node, number in home.items():
        for other, weight in graph[node].items():
            if other in home and node < other and home[other] != number:
                between[min(number, home[other]), max(number, home[other])] += weight
    touched: set[int] = set()
    for (a, b), gain in sorted(between.items(), key=lambda item: (-item[1], item[0])):
        if gain <= _GAIN:
            break
        if a in touched or b in touched or any(not apart[node].isdisjoint(groups[b]) for node in groups[a]):
            continue
        touched |= {a, b}
        for node in groups.pop(b):
            groups[a].add(node)
            home[node] = a
    return bool(touched)


def average_linkage(members: Sequence[int], graph: Graph, apart: Sequence[set[int]]) -> list[list[int]]:
    """Merge the clusters with the largest mean evidence (missing pairs count 0) while it is positive and allowed."""
    groups: dict[int, set[int]] = {node: {node} for node in members}
    links: dict[int, dict[int, float]] = {
        node: {other: w for other, w in graph[node].items() if other in groups} for node in members
    }
    heap = [(-w, a, b) for a, found in links.items() for b, w in found.items() if a < b and w > 0]
    heapq.heapify(heap)
    fresh = max(members) + 1
    while heap:
        _, a, b = heapq.heappop(heap)
        if a not in groups or b not in groups:
            continue
        if any(not apart[node].isdisjoint(groups[b]) for node in groups[a]):
            continue
        groups[fresh] = groups.pop(a) | groups.pop(b)
        joint: dict[int, float] = defaultdict(float)
        for old in (a, b):
            for other, weight in links.pop(old).items():
                if other in groups:
                    joint[other] += weight
        links[fresh] = dict(joint)
        for other, weight in joint.items():
            links[other].pop(a, None)
            links[other].pop(b, None)
            links[other][fresh] = weight
            if weight > 0:
                heapq.heappush(heap, (-weight / (len(groups[fresh]) * len(groups[other])), other, fresh))
        fresh += 1
    return [sorted(group) for group in groups.values()]


def bcubed(pred: Int[np.ndarray, " n"], true: Int[np.ndarray, " n"]) -> tuple[float, float, float]:
    r"""Return B-cubed precision, recall and F1.

    .. math:: P = \frac1n \sum_i \frac{|C_i \cap E_i|}{|C_i|}, \qquad R = \frac1n \sum_i \frac{|C_i \cap E_i|}{|E_i|}

    with :math:`C_i` the cluster and :math:`E_i` the entity of record i.

    References
    ----------
    Bagga, Baldwin, "Entity-based cross-document coreferencing using the vector space model", 1998.
    """
    both = _joint_sizes(pred, true)
    precision = float(np.mean(both / _sizes(pred)))
    recall = float(np.mean(both / _sizes(true)))
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def pairwise(pred: Int[np.ndarray, " n"], true: Int[np.ndarray, " n"]) -> tuple[float, float, float]:
    """Return precision, recall and F1 over pairs of records."""
    found, wanted = (float((_sizes(labels) - 1).sum() / 2) for labels in (pred, true))
    hit = float((_joint_sizes(pred, true) - 1).sum() / 2)
    precision = hit / found if found else 1.0
    recall = hit / wanted if wanted else 1.0
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def violations(pred: Int[np.ndarray, " n"], cannot: Int[np.ndarray, "c 2"]) -> int:
    """Return how many pairs that must be apart are together."""
    return int((pred[cannot[:, 0]] == pred[cannot[:, 1]]).sum()) if len(cannot) else 0


def largest(pred: Int[np.ndarray, " n"]) -> int:
    """Return the number of records in the largest cluster."""
    return int(np.bincount(np.unique(pred, return_inverse=True)[1]).max(initial=0))


def _sizes(labels: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return counts[place]


def _joint_sizes(pred: Int[np.ndarray, " n"], true: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    first, second = np.unique(pred, return_inverse=True)[1], np.unique(true, return_inverse=True)[1]
    return _sizes(first * (int(second.max(initial=0)) + 1) + second)

r"""The compiled half of the hub matcher: min-cost flow on chains of distance levels around landmarks.

A point of side s enters hub w at the level of its distance, on copy s of the level. From there flow runs up copy s,
pays :math:`(2 r_j)^p` to cross to copy 1 - s, and runs down to where the partner is attached. The network is its own
mirror image, so one search serves both sides: with ``sign`` +1 (A, along the arcs) or -1 (B, against them).

``points (P, 7)`` side, weight, free, first attachment, attachments, first direct arc, matched units;
``attach (E, 5)`` point, level, flow, next, previous in the level's list; ``levels (L, 9)`` hub, up, down, first
attachment of A, of B, chain flow to ``up`` on copy 0, on copy 1, pay flow, exponent j; ``level_pi (L, 3)`` potentials
of the two copies, pay cost; ``direct (D, 7)`` a, b, flow, next and previous of a, of b. Node numbers of the search: a
point's own; P + 2 l + s for copy s of level l.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from dynmatch.augment import add_exactly

ATTACH, CHAIN, PAY, DIRECT = 0, 1, 2, 3


@njit(cache=True)
@no_type_check
def _sift_up(heap, place, dist, i):
    node = heap[i]
    while i > 0:
        parent = (i - 1) >> 1
        if dist[heap[parent]] <= dist[node]:
            break
        heap[i] = heap[parent]
        place[heap[i]] = i
        i = parent
    heap[i] = node
    place[node] = i


@njit(cache=True)
@no_type_check
def _pop(heap, place, dist, size):
    first, node = heap[0], heap[size - 1]
    size -= 1
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and dist[heap[child + 1]] < dist[heap[child]]:
            child += 1
        if dist[heap[child]] >= dist[node]:
            break
        heap[i] = heap[child]
        place[heap[i]] = i
        i = child
    if size > 0:
        heap[i] = node
        place[node] = i
    place[first] = -2
    return first


@njit(cache=True)
@no_type_check
def _offer(node, value, kind, index, step, came, dist, parent, heap, place, touched, sizes):
    """Lower the tentative distance of a node; ``sizes`` counts the heap, the touched nodes and the relaxed arcs."""
    sizes[2] += 1
    if value >= dist[node]:
        return
    if dist[node] == np.inf:
        touched[sizes[1]] = node
        sizes[1] += 1
        heap[sizes[0]] = node
        place[node] = sizes[0]
        sizes[0] += 1
    dist[node] = value
    parent[node, 0], parent[node, 1], parent[node, 2], parent[node, 3] = kind, index, step, came
    _sift_up(heap, place, dist, place[node])


@njit(cache=True)
@no_type_check
def level_free(points, pi, n, sign, s, free_units):
    """Raise sign * pi of the free points of side s to the least among its matched ones, and return that."""
    top = np.inf
    for q in range(n):
        if points[q, 0] == s and points[q, 6] > 0:
            top = min(top, sign * pi[q])
    if free_units > 0:
        for q in range(n):
            if points[q, 0] == s and points[q, 2] > 0:
                if top == np.inf:
                    return sign * pi[q]
                if points[q, 6] == 0:
                    pi[q] = sign * top
    return top


@njit(cache=True)
@no_type_check
def _move(attach, levels, level_pi, direct, direct_cost, dirty, totals, kind, index, units):
    """Change the flow of one arc."""
    if kind == ATTACH:
        attach[index, 2] += units
        dirty[levels[attach[index, 1], 0]] = 1
    elif kind == CHAIN:
        level, copy = index >> 1, index & 1
        levels[level, 5 + copy] += units
        dirty[levels[level, 0]] = 1
    elif kind == PAY:
        levels[index, 7] += units
        dirty[levels[index, 0]] = 1
        add_exactly(totals[0], level_pi[index, 2] * units)
    else:
        direct[index, 2] += units
        add_exactly(totals[1], direct_cost[index] * units)


@njit(cache=True)
@no_type_check
def _flow_of(attach, levels, direct, kind, index):
    if kind == ATTACH:
        return attach[index, 2]
    if kind == CHAIN:
        return levels[index >> 1, 5 + (index & 1)]
    if kind == PAY:
        return levels[index, 7]
    return direct[index, 2]


@njit(cache=True)
@no_type_check
def _from_point(
    q, d, s, sign, points, pi, attach, level_pi, direct, direct_cost, dist, parent, heap, place, touched, sizes
):  # fmt: skip
    offset = len(points)
    mine = points[q, 0] == s
    copy = points[q, 0]
    start = points[q, 3]
    for e in range(start, start + points[q, 4]):
        if mine or attach[e, 2] > 0:
            level = attach[e, 1]
            reduced = max(0.0, sign * (pi[q] - level_pi[level, copy]))
            _offer(offset + 2 * level + copy, d + reduced, ATTACH, e, 1 if mine else -1, q,
                   dist, parent, heap, place, touched, sizes)  # fmt: skip
    e = points[q, 5]
    while e >= 0:
        if mine or direct[e, 2] > 0:
            other = direct[e, 1 - copy]
            cost = direct_cost[e] if mine else -direct_cost[e]
            reduced = max(0.0, cost + sign * (pi[q] - pi[other]))
            _offer(other, d + reduced, DIRECT, e, 1 if mine else -1, q, dist, parent, heap, place, touched, sizes)
        e = direct[e, 3 + 2 * copy]


@njit(cache=True)
@no_type_check
def _from_level(
    level, copy, d, s, sign, points, pi, attach, levels, level_pi, dist, parent, heap, place, touched, sizes
):  # fmt: skip
    offset = len(points)
    node = offset + 2 * level + copy
    mine, here = copy == s, level_pi[level, copy]
    up, down = levels[level, 1], levels[level, 2]
    if up >= 0 and (mine or levels[level, 5 + copy] > 0):
        reduced = max(0.0, sign * (here - level_pi[up, copy]))
        _offer(offset + 2 * up + copy, d + reduced, CHAIN, 2 * level + copy, 1 if mine else -1, node,
               dist, parent, heap, place, touched, sizes)  # fmt: skip
    if down >= 0 and (not mine or levels[down, 5 + copy] > 0):
        reduced = max(0.0, sign * (here - level_pi[down, copy]))
        _offer(offset + 2 * down + copy, d + reduced, CHAIN, 2 * down + copy, -1 if mine else 1, node,
               dist, parent, heap, place, touched, sizes)  # fmt: skip
    if mine or levels[level, 7] > 0:
        pay = level_pi[level, 2] if mine else -level_pi[level, 2]
        reduced = max(0.0, pay + sign * (here - level_pi[level, 1 - copy]))
        _offer(offset + 2 * level + 1 - copy, d + reduced, PAY, level, 1 if mine else -1, node,
               dist, parent, heap, place, touched, sizes)  # fmt: skip
    e = levels[level, 3 + copy]
    while e >= 0:
        if not mine or attach[e, 2] > 0:
            q = attach[e, 0]
            reduced = max(0.0, sign * (here - pi[q]))
            _offer(q, d + reduced, ATTACH, e, -1 if mine else 1, node, dist, parent, heap, place, touched, sizes)
        e = attach[e, 3]


@njit(cache=True)
@no_type_check
def search(
    points, pi, n, attach, levels, level_pi, direct, direct_cost, dirty, totals, count,
    dist, parent, heap, place, touched, s, source, pending,
):  # fmt: skip
    """Send ``pending`` units from ``source`` along a shortest path; as `augment.search`, on the hub network.

    ``count`` holds the free units of A and B, the relaxed arcs and the searches.
    """
    sign = 1.0 if s == 0 else -1.0
    o = 1 - s
    offset = len(points)
    level_free(points, pi, n, -sign, o, count[o])
    own = count[o] == 0
    top = level_free(points, pi, n, sign, s, count[s])
    if own and (top == np.inf or sign * pi[source] < top):
        if top == np.inf or points[source, 6] > 0:
            top = sign * pi[source]
        else:
            pi[source] = sign * top
    sizes = np.zeros(3, np.int64)
    _offer(source, 0.0, ATTACH, -1, 0, -1, dist, parent, heap, place, touched, sizes)
    end, limit = -1, np.inf
    while sizes[0] > 0:
        node = heap[0]
        d = dist[node]
        if d >= limit:
            break
        _pop(heap, place, dist, sizes[0])
        sizes[0] -= 1
        if node < offset:
            if points[node, 0] == s:
                if own and d + max(0.0, sign * pi[node] - top) < limit:
                    end, limit = node, d + max(0.0, sign * pi[node] - top)
                    if limit <= d:
                        break
            elif not own and points[node, 2] > 0:
                end, limit = node, d
                break
            _from_point(node, d, s, sign, points, pi, attach, level_pi, direct, direct_cost,
                        dist, parent, heap, place, touched, sizes)  # fmt: skip
        else:
            _from_level((node - offset) >> 1, (node - offset) & 1, d, s, sign, points, pi, attach, levels, level_pi,
                        dist, parent, heap, place, touched, sizes)  # fmt: skip
    units = pending if own else min(pending, points[end, 2])
    node = end
    while parent[node, 3] >= 0:
        if parent[node, 2] < 0:
            units = min(units, _flow_of(attach, levels, direct, parent[node, 0], parent[node, 1]))
        node = parent[node, 3]
    node = end
    while parent[node, 3] >= 0:
        _move(attach, levels, level_pi, direct, direct_cost, dirty, totals,
              parent[node, 0], parent[node, 1], units * parent[node, 2])  # fmt: skip
        node = parent[node, 3]
    if own:
        points[end, 2] += units
        count[s] += units
        points[end, 6] -= units
        points[source, 6] += units
    else:
        points[end, 2] -= units
        count[o] -= units
        points[end, 6] += units
        points[source, 6] += units
    for k in range(sizes[1]):
        node = touched[k]
        if dist[node] < limit:
            shift = sign * (limit - dist[node])
            if node < offset:
                pi[node] -= shift
            else:
                level_pi[(node - offset) >> 1, (node - offset) & 1] -= shift
        dist[node] = np.inf
        place[node] = -1
    count[2] += sizes[2]
    count[3] += 1
    return own, end, units


@njit(cache=True)
@no_type_check
def cancel(
    points, attach, levels, level_pi, direct, direct_cost, dirty, totals, s, q, wanted, path
):  # fmt: skip
    """Take up to ``wanted`` matched units off point q by undoing one path of flow; return the partner and the units.

    Pay before going up, exit before going down; conservation on both chains makes that always possible.
    """
    length = 0
    e = points[q, 5]
    while e >= 0:
        if direct[e, 2] > 0:
            units = min(wanted, direct[e, 2])
            _move(attach, levels, level_pi, direct, direct_cost, dirty, totals, DIRECT, e, -units)
            other = direct[e, 1 - s]
            points[q, 6] -= units
            points[other, 6] -= units
            return other, units
        e = direct[e, 3 + 2 * s]
    e = points[q, 3]
    while attach[e, 2] == 0:
        e += 1
    level = attach[e, 1]
    path[0, 0], path[0, 1] = ATTACH, e
    length = 1
    while levels[level, 7] == 0:
        path[length, 0], path[length, 1] = CHAIN, 2 * level + s
        length += 1
        level = levels[level, 1]
    path[length, 0], path[length, 1] = PAY, level
    length += 1
    while True:
        e = levels[level, 4 - s]
        while e >= 0 and attach[e, 2] == 0:
            e = attach[e, 3]
        if e >= 0:
            break
        level = levels[level, 2]
        path[length, 0], path[length, 1] = CHAIN, 2 * level + 1 - s
        length += 1
    path[length, 0], path[length, 1] = ATTACH, e
    length += 1
    units = wanted
    for k in range(length):
        units = min(units, _flow_of(attach, levels, direct, path[k, 0], path[k, 1]))
    for k in range(length):
        _move(attach, levels, level_pi, direct, direct_cost, dirty, totals, path[k, 0], path[k, 1], -units)
    other = attach[e, 0]
    points[q, 6] -= units
    points[other, 6] -= units
    return other, units

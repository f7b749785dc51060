r"""The compiled half of the primal-dual kernel: one augmenting search per update.

For the smaller side every unit is matched; the free (unmatched) units of the larger side share its largest dual U.
Duals u (side A) and v (side B) keep, for all pairs, :math:`c(a, b) - u_a - v_b \ge 0`, with equality where flow runs.

Arrays of one kernel, all preallocated and indexed by side s:

``nodes (2, cap, 4)`` weight, free units, first flow record, caller's key; ``duals (2, cap)``; ``coords (2, cap, d)``;
``flows (ecap, 7)`` a, b, units, next and previous record of a, next and previous record of b; ``flow_cost (ecap,)``;
``count (8,)`` number of nodes (A, B), free units (A, B), first unused record, live records, scanned pairs, searches;
``total (3,)`` cost as a double-double (high, low) and the largest magnitude that has entered a dual.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit

from dynmatch.costs import cost_row, true_cost


@njit(cache=True)
@no_type_check
def add_exactly(total, value):
    """Add to a double-double, so that what is added and later subtracted leaves no trace."""
    high, low = total[0], total[1]
    s = high + value
    b = s - high
    low += (high - (s - b)) + (value - b)
    total[0] = s + low
    total[1] = low - (total[0] - s)


@njit(cache=True)
@no_type_check
def _unlink(nodes, flows, e):
    for s in range(2):
        node, after, before = flows[e, s], flows[e, 3 + 2 * s], flows[e, 4 + 2 * s]
        if before >= 0:
            flows[before, 3 + 2 * s] = after
        else:
            nodes[s, node, 2] = after
        if after >= 0:
            flows[after, 4 + 2 * s] = before


@njit(cache=True)
@no_type_check
def lessen(nodes, flows, flow_cost, count, total, e, units):
    """Take units off a flow record; drop the record when none are left."""
    add_exactly(total, -flow_cost[e] * units)
    flows[e, 2] -= units
    if flows[e, 2] == 0:
        _unlink(nodes, flows, e)
        flows[e, 3] = count[4]
        count[4] = e
        count[5] -= 1
        if count[5] == 0:
            total[0] = 0.0
            total[1] = 0.0


@njit(cache=True)
@no_type_check
def add_flow(nodes, flows, flow_cost, count, total, a, b, units, cost):
    """Put units on the pair (a, b), on its record if there is one."""
    add_exactly(total, cost * units)
    e, f = nodes[0, a, 2], nodes[1, b, 2]
    while e >= 0 and f >= 0:  # walk the two lists in step: the shorter one decides
        if flows[e, 1] == b:
            flows[e, 2] += units
            return
        if flows[f, 0] == a:
            flows[f, 2] += units
            return
        e, f = flows[e, 3], flows[f, 5]
    e = count[4]
    count[4] = flows[e, 3]
    count[5] += 1
    flows[e, 0], flows[e, 1], flows[e, 2] = a, b, units
    flow_cost[e] = cost
    for s in range(2):
        node = flows[e, s]
        after = nodes[s, node, 2]
        flows[e, 3 + 2 * s], flows[e, 4 + 2 * s] = after, -1
        if after >= 0:
            flows[after, 4 + 2 * s] = e
        nodes[s, node, 2] = e


@njit(cache=True)
@no_type_check
def level_free(nodes, duals, count, s):
    """Lower the free points of side s to the largest dual among matched ones, and return it (-inf if none)."""
    top = -np.inf
    for i in range(count[s]):
        if nodes[s, i, 2] >= 0 and duals[s, i] > top:
            top = duals[s, i]
    if count[2 + s] > 0:
        if top == -np.inf:
            for i in range(count[s]):
                if nodes[s, i, 1] > 0:
                    return duals[s, i]
        for i in range(count[s]):
            if nodes[s, i, 1] > 0:
                duals[s, i] = top
    return top


@njit(cache=True)
@no_type_check
def relax(start, u, row, potential, key, best, via, x, n):
    """Lower the tentative distances ``key`` of the other side by what x (at distance ``start``, dual u) offers."""
    for j in range(n):
        reduced = row[j] - u - potential[j]
        if reduced < 0.0:
            reduced = 0.0
        t = start + reduced
        if t < key[j]:
            key[j] = t
            via[j] = x
            best[j] = row[j]


@njit(cache=True)
@no_type_check
def _join(nodes, flows, flow_cost, count, total, coords, law, s, y, via, best, record, units):
    """Match y with the point that reached it; return the record over which that one was reached, -1 at the source."""
    o = 1 - s
    x = via[y]
    cost = best[y] if law[6] == 0 and law[3] == 0 else true_cost(coords[s, x], coords[o, y], law)
    e = record[x]
    if s == 0:
        add_flow(nodes, flows, flow_cost, count, total, x, y, units, cost)
    else:
        add_flow(nodes, flows, flow_cost, count, total, y, x, units, cost)
    return e


@njit(cache=True)
@no_type_check
def finish(
    nodes, duals, coords, flows, flow_cost, count, total, law,
    s, own, target, limit, pending, scanned, n_scanned, reach, record, done, dist, best, via,
):  # fmt: skip
    """Move the duals by the search's distances and augment along its path; return the units moved.

    ``own``: the path ends at ``target`` of side s, which gives up a mate (or stays free); else at a free ``target`` of
    the other side. ``limit`` is the length D of the path.
    """
    o = 1 - s
    peak = max(total[2], abs(limit))
    for k in range(n_scanned):
        x = scanned[k]
        if reach[x] < limit:
            duals[s, x] += limit - reach[x]
            peak = max(peak, abs(duals[s, x]))
    for j in range(count[o]):
        if done[j] and dist[j] < limit:
            duals[o, j] -= limit - dist[j]
            peak = max(peak, abs(duals[o, j]))
    total[2] = peak
    units = pending if own else min(pending, nodes[o, target, 1])
    x = target if own else via[target]
    while record[x] >= 0:
        units = min(units, flows[record[x], 2])
        x = via[flows[record[x], o]]
    if own:
        nodes[s, target, 1] += units
        count[2 + s] += units
        e = record[target]
    else:
        nodes[o, target, 1] -= units
        count[2 + o] -= units
        e = _join(nodes, flows, flow_cost, count, total, coords, law, s, target, via, best, record, units)
    while e >= 0:
        y = flows[e, o]
        lessen(nodes, flows, flow_cost, count, total, e, units)
        e = _join(nodes, flows, flow_cost, count, total, coords, law, s, y, via, best, record, units)
    count[7] += 1
    return units


@njit(cache=True)
@no_type_check
def begin(nodes, duals, count, s, source, row, fresh):
    """Level both sides' free points, and give a fresh source its largest feasible dual: min of c - v, at most U.

    Returns
    -------
    own, top
        Whether the path may end on the source's own side (the other has no free unit), and U.
    """
    o = 1 - s
    level_free(nodes, duals, count, o)
    own = count[2 + o] == 0
    top = level_free(nodes, duals, count, s)
    if fresh:
        low = top if own and top > -np.inf else np.inf
        for j in range(count[o]):
            low = min(low, row[j] - duals[o, j])
        duals[s, source] = low if low < np.inf else 0.0
    if own and (top == -np.inf or duals[s, source] > top):
        if top == -np.inf or nodes[s, source, 2] >= 0:
            top = duals[s, source]
        else:
            duals[s, source] = top
    return own, top


@njit(cache=True)
@no_type_check
def search(
    nodes, duals, coords, flows, flow_cost, count, total, matrix, law, s, source, pending, fresh
):  # fmt: skip
    """Find a shortest augmenting path for ``pending`` units at ``source`` of side s and use it.

    Returns
    -------
    own, target, units
        Whether the path ended on the source's own side, at which node, and how many units it moved.
    """
    o = 1 - s
    n, m = count[s], count[o]
    row = np.empty(m)
    if fresh:
        cost_row(coords[s, source], coords[o], s, matrix, law, row)
    own, top = begin(nodes, duals, count, s, source, row, fresh)
    key = np.full(m, np.inf)
    dist, best = np.empty(m), np.empty(m)
    potential = duals[o, :m].copy()
    via = np.full(m, -1)
    done = np.zeros(m, np.bool_)
    reach, record = np.empty(n), np.full(n, -2)
    scanned, waiting = np.empty(n, np.int64), np.empty(n, np.int64)
    reach[source], record[source] = 0.0, -1
    waiting[0] = source
    n_waiting, n_scanned, level = 1, 0, 0.0
    end, limit = -1, np.inf
    while True:
        while n_waiting > 0:
            n_waiting -= 1
            x = waiting[n_waiting]
            scanned[n_scanned] = x
            n_scanned += 1
            if own and level + max(0.0, top - duals[s, x]) < limit:
                end, limit = x, level + max(0.0, top - duals[s, x])
            if limit <= level:
                continue
            if not (fresh and x == source):
                cost_row(coords[s, x], coords[o], s, matrix, law, row)
            count[6] += m
            relax(level, duals[s, x], row, potential, key, best, via, x, m)
        y = -1
        if limit > level and m > 0:
            y = np.argmin(key)
            if key[y] == np.inf:
                y = -1
        if y < 0 or limit <= key[y]:
            break
        level = key[y]
        dist[y] = level
        done[y] = True
        key[y] = np.inf
        potential[y] = -np.inf
        if not own and nodes[o, y, 1] > 0:
            end, limit = y, level
            break
        e = nodes[o, y, 2]
        while e >= 0:
            x = flows[e, s]
            if record[x] == -2:
                reach[x], record[x] = level, e
                waiting[n_waiting] = x
                n_waiting += 1
            e = flows[e, 5 if s == 0 else 3]
    units = finish(
        nodes, duals, coords, flows, flow_cost, count, total, law,
        s, own, end, limit, pending, scanned, n_scanned, reach, record, done, dist, best, via,
    )  # fmt: skip
    return own, end, units


@njit(cache=True)
@no_type_check
def drop_node(nodes, duals, coords, flows, count, s, i):
    """Remove node i of side s, which has no flow; the last node takes its place. Returns that node's key, or -1."""
    last = count[s] - 1
    count[s] = last
    if i == last:
        return -1
    nodes[s, i] = nodes[s, last]
    duals[s, i] = duals[s, last]
    coords[s, i] = coords[s, last]
    e = nodes[s, i, 2]
    while e >= 0:
        flows[e, s] = i
        e = flows[e, 3 + 2 * s]
    return nodes[s, i, 3]

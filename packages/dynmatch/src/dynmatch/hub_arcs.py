r"""The hub network's compiled bookkeeping: levels and arcs of points that come and go, and flow taken apart into pairs.

The arrays are those of `dynmatch.hub_flow`.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np
from numba import njit


@njit(cache=True)
@no_type_check
def find_level(levels, level_pi, hub_low, hub, j, pay, used):
    """Return the level of exponent j of a hub, made if missing (as number ``used``) with feasible potentials."""
    below, above = -1, hub_low[hub]
    while above >= 0 and levels[above, 8] < j:
        below, above = above, levels[above, 1]
    if above >= 0 and levels[above, 8] == j:
        return above
    new = used
    levels[new, 0], levels[new, 1], levels[new, 2] = hub, above, below
    levels[new, 3], levels[new, 4], levels[new, 7], levels[new, 8] = -1, -1, 0, j
    level_pi[new, 2] = pay
    for copy in range(2):
        levels[new, 5 + copy] = levels[below, 5 + copy] if below >= 0 else 0
    if below >= 0:
        level_pi[new, 0], level_pi[new, 1] = level_pi[below, 0], level_pi[below, 1]
        levels[below, 1] = new
    else:
        hub_low[hub] = new
        if above >= 0:
            level_pi[new, 0] = level_pi[above, 0]
            level_pi[new, 1] = min(level_pi[above, 1], level_pi[new, 0] + pay)
        else:
            level_pi[new, 0] = np.nan  # a fresh hub: set from the point that makes it
    if above >= 0:
        levels[above, 2] = new
    return new


@njit(cache=True)
@no_type_check
def join(
    points, pi, attach, levels, level_pi, hub_low, direct, direct_cost, sizes, q, hubs, exponents, pays, others, costs
):  # fmt: skip
    """Attach a new point to its hubs and give it direct arcs, with the tightest feasible potential.

    ``sizes`` counts levels, attachments and direct arcs in use.
    """
    s = points[q, 0]
    sign = 1.0 if s == 0 else -1.0
    start = sizes[1]
    points[q, 3], points[q, 4] = start, len(hubs)
    best = -np.inf
    for k in range(len(hubs)):
        level = find_level(levels, level_pi, hub_low, hubs[k], exponents[k], pays[k], sizes[0])
        if level == sizes[0]:
            sizes[0] += 1
        e = start + k
        head = levels[level, 3 + s]
        attach[e, 0], attach[e, 1], attach[e, 2], attach[e, 3], attach[e, 4] = q, level, 0, head, -1
        if head >= 0:
            attach[head, 4] = e
        levels[level, 3 + s] = e
        if not np.isnan(level_pi[level, 0]):
            best = max(best, sign * level_pi[level, s])
    sizes[1] += len(hubs)
    for k in range(len(others)):
        other = others[k]
        e = sizes[2]
        sizes[2] += 1
        direct[e, s], direct[e, 1 - s], direct[e, 2] = q, other, 0
        direct_cost[e] = costs[k]
        for side, node in ((s, q), (1 - s, other)):
            after = points[node, 5]
            direct[e, 3 + 2 * side], direct[e, 4 + 2 * side] = after, -1
            if after >= 0:
                direct[after, 4 + 2 * side] = e
            points[node, 5] = e
        best = max(best, sign * pi[other] - costs[k])
    pi[q] = sign * best if best > -np.inf else 0.0
    for k in range(len(hubs)):
        level = attach[start + k, 1]
        if np.isnan(level_pi[level, 0]):
            level_pi[level, s] = pi[q]
            level_pi[level, 1 - s] = pi[q] + sign * level_pi[level, 2]


@njit(cache=True)
@no_type_check
def part(points, attach, levels, direct, q):
    """Take a point without flow out of all lists; its own hub stays as a ghost. Returns the direct arcs freed."""
    s = points[q, 0]
    for e in range(points[q, 3], points[q, 3] + points[q, 4]):
        after, before = attach[e, 3], attach[e, 4]
        if before >= 0:
            attach[before, 3] = after
        else:
            levels[attach[e, 1], 3 + s] = after
        if after >= 0:
            attach[after, 4] = before
        attach[e, 0] = -1
    gone = 0
    e = points[q, 5]
    while e >= 0:
        gone += 1
        other = direct[e, 1 - s]
        after, before = direct[e, 5 - 2 * s], direct[e, 6 - 2 * s]
        if before >= 0:
            direct[before, 5 - 2 * s] = after
        else:
            points[other, 5] = after
        if after >= 0:
            direct[after, 6 - 2 * s] = before
        following = direct[e, 3 + 2 * s]
        direct[e, 0] = -1
        e = following
    points[q, 0], points[q, 1], points[q, 5] = -1, 0, -1
    return gone


@njit(cache=True)
@no_type_check
def pair_hub(levels, attach, hub_low, hub):
    """Decompose a hub's flow: levels ascending, pair each unit paid with an unpaired a and b at levels up to there."""
    total = 0
    level = hub_low[hub]
    while level >= 0:
        for side in range(2):
            e = levels[level, 3 + side]
            while e >= 0:
                total += attach[e, 2] > 0
                e = attach[e, 3]
        level = levels[level, 1]
    stack = np.empty((2, total, 2), np.int64)
    size = np.zeros(2, np.int64)
    out = np.empty((total, 3), np.int64)
    found = 0
    level = hub_low[hub]
    while level >= 0:
        for side in range(2):
            e = levels[level, 3 + side]
            while e >= 0:
                if attach[e, 2] > 0:
                    stack[side, size[side], 0], stack[side, size[side], 1] = attach[e, 0], attach[e, 2]
                    size[side] += 1
                e = attach[e, 3]
        left = levels[level, 7]
        while left > 0:
            i, j = size[0] - 1, size[1] - 1
            units = min(left, min(stack[0, i, 1], stack[1, j, 1]))
            out[found, 0], out[found, 1], out[found, 2] = stack[0, i, 0], stack[1, j, 0], units
            found += 1
            left -= units
            stack[0, i, 1] -= units
            stack[1, j, 1] -= units
            size[0] -= stack[0, i, 1] == 0
            size[1] -= stack[1, j, 1] == 0
        level = levels[level, 1]
    return out[:found]


@njit(cache=True)
@no_type_check
def attached(levels, attach, hub_low, hub, side):
    """Return the points of one side that are attached to a hub."""
    total = 0
    out = np.empty(0, np.int64)
    for counted in (False, True):
        if counted:
            out = np.empty(total, np.int64)
        level = hub_low[hub]
        while level >= 0:
            e = levels[level, 3 + side]
            while e >= 0:
                total += -1 if counted else 1
                if counted:
                    out[total] = attach[e, 0]
                e = attach[e, 3]
            level = levels[level, 1]
    return out

"""The augmenting search for metrics that only Python can call: one call a scanned point, the rest compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dynmatch import augment

if TYPE_CHECKING:
    from dynmatch.primal_dual import DenseKernel


def search_by_rows(kernel: DenseKernel, s: int, source: int, pending: int, fresh: bool) -> tuple[bool, int, int]:
    """Take the steps of `augment.search`; should the metric raise, the kernel is as it was."""
    o = 1 - s
    nodes, duals, flows, count = kernel.nodes, kernel.duals, kernel.flows, kernel.count
    n, m = int(count[s]), int(count[o])
    row = kernel.costs_from(s, source)
    own, top = augment.begin(nodes, duals, count, s, source, row, fresh)
    key, dist, best = np.full(m, np.inf), np.empty(m), np.empty(m)
    potential, via, done = duals[o, :m].copy(), np.full(m, -1), np.zeros(m, np.bool_)
    reach, record, scanned = np.empty(n), np.full(n, -2), np.empty(n, np.int64)
    reach[source], record[source] = 0.0, -1
    waiting, n_scanned, level, end, limit = [source], 0, 0.0, -1, np.inf
    while True:
        while waiting:
            x = waiting.pop()
            scanned[n_scanned] = x
            n_scanned += 1
            if own and level + max(0.0, top - duals[s, x]) < limit:
                end, limit = x, level + max(0.0, top - duals[s, x])
            if limit > level:
                row = row if x == source else kernel.costs_from(s, x)
                count[6] += m
                augment.relax(level, duals[s, x], row, potential, key, best, via, x, m)
        y = int(np.argmin(key)) if limit > level and m else -1
        if y < 0 or limit <= key[y] or key[y] == np.inf:
            break
        level = float(key[y])
        dist[y], done[y], key[y], potential[y] = level, True, np.inf, -np.inf
        if not own and nodes[o, y, 1] > 0:
            end, limit = y, level
            break
        e = nodes[o, y, 2]
        while e >= 0:
            x = int(flows[e, s])
            if record[x] == -2:
                reach[x], record[x] = level, e
                waiting.append(x)
            e = flows[e, 5 if s == 0 else 3]
    path = (s, own, end, limit, pending, scanned, n_scanned, reach, record, done, dist, best, via)
    store = (nodes, duals, kernel.coords, flows, kernel.flow_cost, count, kernel.total, kernel.law)
    units = augment.finish(*store, *path)
    return bool(own), int(end), int(units)

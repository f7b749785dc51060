"""The hub matcher: any metric, any W_p, within 2k(1 + eps) at every query."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from dynmatch import hub_arcs, landmarks
from dynmatch.costs import CALLABLE, PRECOMPUTED, Real, check_metric, make_metric
from dynmatch.errors import CapacityError
from dynmatch.hub_network import HubNetwork
from dynmatch.hub_pairs import HubPairs
from dynmatch.matcher import BaseMatcher, Entry

_LOG = logging.getLogger(__name__)


class HubMatcher(BaseMatcher):
    r"""Approximate :math:`W_p` in a general metric through a landmark hierarchy; ratio :math:`2k(1+\epsilon)`.

    Every pair of points shares a landmark within k times its distance, and flow between them pays
    :math:`(2 r)^p` at the landmark's distance level r, so that the min-cost flow on O(k n^{1+1/k}) arcs costs between
    the matching's and :math:`(2k(1+\epsilon))^p` times the best one's :math:`\sum d^p`.

    Parameters
    ----------
    metric
        As for `ExactMatcher`, but a metric: symmetric, with the triangle inequality. A matrix is an ambient space: its
        hierarchy is built once on all its points.
    p
        The exponent of W_p.
    k
        Levels of the hierarchy: more means fewer arcs and a weaker guarantee.
    eps
        Ratio of successive distance levels.
    ambient
        ``(N, d)`` points of a known finite space; points are then given as row numbers.
    direct
        Add an arc a -> b of cost d^p where one lies in the other's bunch; never weakens the bound.
    swap
        After re-pairing a hub of at most 24 pairs, exchange partners while that shortens.
    check
        ``"sample"`` tests symmetry and triangles of matrices and callables at each build; ``"off"`` trusts.
    max_arcs
        Refuse to grow beyond this many attachments.
    seed
        Of the hierarchy.

    References
    ----------
    Landmarks: Thorup and Zwick (2005). The network and its dynamics are this package's reconstruction.
    """

    built = True

    def __init__(
        self,
        metric: Any = "euclidean",
        p: Real = 1.0,
        k: int = 2,
        eps: Real = 0.1,
        ambient: Any = None,
        matrix: Any = None,
        norm: Real = 2.0,
        direct: bool = True,
        swap: bool = True,
        check: str = "sample",
        max_arcs: int = 50_000_000,
        seed: int = 0,
    ) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        if not 0 < eps <= 1:
            raise ValueError(f"eps must lie in (0, 1], not {eps}")
        self.metric = make_metric(metric, matrix, norm)
        config: dict[str, Any] = {
            "metric": metric,
            "p": float(p),
            "k": int(k),
            "eps": float(eps),
            "norm": float(norm),
            "direct": direct,
            "swap": swap,
            "check": check,
            "max_arcs": int(max_arcs),
            "seed": int(seed),
        }
        if self.metric.kind == CALLABLE:
            config["metric"] = "callable"
        if self.metric.kind == PRECOMPUTED:
            config |= {"metric": "precomputed", "matrix": self.metric.matrix}
            ambient = np.arange(len(self.metric.matrix), dtype=np.float64)[:, None]
        elif ambient is not None:
            ambient = np.ascontiguousarray(ambient, dtype=np.float64)
            config["ambient"] = ambient
        self.ambient: np.ndarray | None = ambient
        super().__init__(p, config, None if ambient is None else 1)
        self.k, self.eps, self.seed = int(k), float(eps), int(seed)
        self.direct, self.swap, self.checking, self.max_arcs = direct, swap, check, int(max_arcs)
        self.epoch, self.rebuilds, self.scale = 0, 0, 1.0
        self.since = 0
        if ambient is not None and check != "off":
            check_metric(self.metric, ambient, np.random.default_rng([self.seed, 3]))
        self._start([])

    # -- landmarks -----------------------------------------------------------------------------------------------

    def _start(self, entries: list[Entry]) -> None:
        """Draw a hierarchy over the given points (or the ambient space), with an empty network."""
        rng = np.random.default_rng([self.seed, self.epoch])
        if self.ambient is not None:
            self.sites = self.ambient
            if not self.epoch:
                self.levels = landmarks.sample_levels(len(self.sites), self.k, rng)
            self.here = np.ones(len(self.sites), np.bool_)
            n = len(self.sites)
        else:
            self.sites = np.array([e.point for e in entries]).reshape(len(entries), self.dim or 1)
            self.levels = landmarks.sample_levels(len(entries), self.k, rng)
            self.here = np.zeros(len(entries), np.bool_)
            n = len(entries)
        self.n_sites = n
        self.built_for = len(entries)
        self.limit = 4 * (self.k * max(n, 1) ** (1 + 1 / self.k) + self.k * max(n, 1))
        self.since = 0
        self.network = HubNetwork(max(16, 2 * len(entries)), max(16, n))
        self.slots: dict[int, int] = {}
        self.keys: dict[int, int] = {}
        self.site_of: dict[int, int] = {}
        self.at_site: dict[int, dict[int, None]] = {}
        self.hub_pairs = HubPairs(self.metric, self.p, self._point, self.swap)

    def _new_site(self, x: np.ndarray) -> None:
        """Make a new point a landmark of level 0."""
        if self.n_sites == len(self.sites):
            room = max(16, len(self.sites))
            self.sites = np.concatenate([self.sites, np.empty((room, len(x)))])
            self.levels = np.concatenate([self.levels, np.full(room, -1)])
            self.here = np.concatenate([self.here, np.zeros(room, np.bool_)])
        self.sites[self.n_sites], self.levels[self.n_sites], self.here[self.n_sites] = x, 0, True
        self.n_sites += 1

    def _build(self) -> None:
        """Draw a fresh hierarchy and solve again from it; the larger side first, so that searches end early."""
        entries = sorted(self.entries.values(), key=lambda e: e.side != (self.weights[1] > self.weights[0]))
        if self.ambient is None and self.checking != "off" and entries:
            rng = np.random.default_rng([self.seed, self.epoch + 1, 3])
            check_metric(self.metric, np.array([e.point for e in entries]), rng)
        before = dict(vars(self))
        self.epoch += 1
        self.rebuilds += 1
        try:
            self._start(entries)
            self.network.count[2:] = before["network"].count[2:]
            for number, entry in enumerate(entries):  # the sites are the entries, in this order, unless known before
                known = None if self.ambient is not None else number
                self._enter(entry.key, entry.side, entry.point, entry.weight, known)
        except Exception:
            vars(self).update(before)
            raise

    def _first_point(self, dim: int) -> None:
        self.dim = dim
        self.sites = np.empty((len(self.sites), dim))

    # -- updates -------------------------------------------------------------------------------------------------

    def _validate(self, side: int, point: Any, row: int | None, id: Any, dim: int | None = None) -> np.ndarray:
        x = super()._validate(side, point, row, id, dim)
        if self.ambient is not None and (x[0] != int(x[0]) or not 0 <= x[0] < len(self.ambient)):
            where = "" if row is None else f"row {row}: "
            raise ValueError(
                f"{where}point {id!r}: {x[0]:g} is not a row of the ambient space, 0 to {len(self.ambient) - 1}"
            )
        return x

    def _add(self, key: int, side: int, x: np.ndarray, weight: int) -> None:
        self._enter(key, side, x, weight, None)

    def _enter(self, key: int, side: int, x: np.ndarray, weight: int, known: int | None) -> None:
        row = self._distances(x, known)
        if self.p > 1 and len(row) and row.max() > 0:
            self._fit_scale(2 * float(row.max()))
        net = self.network
        fresh = self.ambient is None and known is None  # a new site, the last one
        site = self.n_sites if fresh else int(x[0]) if known is None else known
        row = np.append(row, 0.0) if fresh else row
        levels = np.append(self.levels[: self.n_sites], 0) if fresh else self.levels[: self.n_sites]
        here = np.append(self.here[: self.n_sites], True) if fresh else self.here[: self.n_sites]
        here[site] = True
        chosen = landmarks.bunch(row, levels, self.k, here)
        if net.sizes[1] + len(chosen) > self.max_arcs:
            raise CapacityError(f"more than {self.max_arcs} attachments", hint="raise k or max_arcs")
        if fresh:
            self._new_site(x)
        reach = row[chosen]
        steps = landmarks.exponents(reach, self.eps)
        pays = (2 * landmarks.radii(steps, self.eps) / self.scale) ** self.p
        others, costs = self._direct_arcs(side, site, chosen, row)
        slot = net.new_point(side, weight)
        self.slots[key], self.keys[slot], self.site_of[key] = slot, key, site
        self.at_site.setdefault(site, {})[slot] = None
        net.join(slot, chosen, steps, pays, others, costs)
        net.place(side, slot, weight)

    def _distances(self, x: np.ndarray, known: int | None) -> np.ndarray:
        sites = self.sites[: self.n_sites]
        if self.ambient is not None and self.metric.kind != PRECOMPUTED:
            x = self.ambient[int(x[0])]
        row = self.metric.row(x, sites) if len(sites) else np.empty(0)
        if known is not None:
            row[known] = 0.0
        return row

    def _direct_arcs(self, side: int, site: int, chosen: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Points of the other side in the new point's bunch, and those that have the new point in theirs."""
        if not self.direct:
            return np.empty(0, np.int64), np.empty(0)
        net = self.network
        found = {slot: None for near in chosen.tolist() for slot in self.at_site.get(near, {})}
        others = [slot for slot in found if net.points[slot, 0] == 1 - side]
        if site < len(net.hub_low):
            there = hub_arcs.attached(net.levels, net.attach, net.hub_low, site, 1 - side).tolist()
            others += [slot for slot in there if slot not in found]
        reach = row[[self.site_of[self.keys[slot]] for slot in others]]
        return np.array(others, np.int64), (reach / self.scale) ** self.p

    def _fit_scale(self, widest: float) -> None:
        if abs(self.p * math.log2(widest / self.scale)) <= 400 or (self.scale != 1.0 and widest < self.scale):
            return
        self.scale = 2.0 ** math.ceil(math.log2(widest))
        _LOG.warning(
            "costs are scaled: p = %g and distances up to %.3g would overflow; S = %.3g", self.p, widest, self.scale
        )
        self.network.rescale = True

    def _remove(self, entry: Entry) -> None:
        slot = self.slots.pop(entry.key)
        site = self.site_of.pop(entry.key)
        del self.keys[slot], self.at_site[site][slot]
        if not self.at_site[site]:
            del self.at_site[site]
            if self.ambient is None:
                self.here[site] = False
        self.network.leave(entry.side, slot)

    def _after_update(self) -> None:
        super()._after_update()
        self.since += 1
        net = self.network
        if self.ambient is not None:
            due = net.rescale or net.dead > max(4096, net.sizes[1] - net.dead)
        else:
            due = net.rescale or self.since > max(64, self.built_for // 2) or net.sizes[1] - net.dead > self.limit
            due = due and (net.rescale or self.since > 16)
        if due:
            self._build()

    # -- answers -------------------------------------------------------------------------------------------------

    def _point(self, key: int) -> np.ndarray:
        x = self.entries[self.ids[key]].point
        return x if self.ambient is None else self.ambient[int(x[0])]

    def _total(self) -> tuple[float, float]:
        if not min(self.weights):
            return 0.0, self.scale
        self.hub_pairs.settle(self.network, self.keys, self.scale)
        return self.hub_pairs.total() + max(0.0, float(self.network.totals[1, 0])), self.scale

    def _pairs(self) -> Iterable[tuple[int, int, int, float]]:
        self.hub_pairs.settle(self.network, self.keys, self.scale)
        yield from self.hub_pairs
        direct = [(self.keys[a], self.keys[b], units) for a, b, units in self.network.direct_pairs()]
        distances = self.hub_pairs.distances([pair[:2] for pair in direct])
        yield from ((a, b, units, d) for (a, b, units), d in zip(direct, distances, strict=True))

    def _free(self) -> dict[tuple[int, int], int]:
        points = self.network.points
        return {(int(points[s, 0]), key): int(points[s, 2]) for key, s in self.slots.items() if points[s, 2]}

    def lower_bound(self) -> float:
        r"""Return (network cost)^{1/p} / (2k(1 + eps)), which W_p cannot be below."""
        cost = max(0.0, float(self.network.totals[0, 0] + self.network.totals[1, 0]))
        return self.scale * cost ** (1.0 / self.p) / (2 * self.k * (1 + self.eps))

    def stats(self) -> dict[str, Any]:
        """Return sizes, the network's size, and the arcs its searches relaxed."""
        net = self.network
        levels, attachments, arcs = (int(v) for v in net.sizes)
        return {
            "size": self.size,
            "updates": self.updates,
            "rebuilds": self.rebuilds,
            "searches": int(net.count[3]),
            "attachments": attachments - net.dead,
            "levels": levels,
            "direct_arcs": arcs - net.dead_direct,
            "arcs": attachments - net.dead + 4 * levels + arcs - net.dead_direct,
            "relaxed_arcs": int(net.count[2]),
            "bytes": net.nbytes,
        }

    def _check(self) -> None:
        self.network.check()
        pairs = list(self._pairs())
        total = math.fsum(n * (d / self.scale) ** self.p for _, _, n, d in pairs)
        assert abs(total - self._total()[0]) <= 1e-9 * max(total, 1e-300), "the running cost is wrong"
        network = float(self.network.totals[0, 0] + self.network.totals[1, 0])
        assert total <= network * (1 + 1e-9) + 1e-300, "pairs cost more than the flow pays"
        matched: dict[tuple[int, int], int] = {}
        for a, b, n, _ in pairs:
            matched[0, a], matched[1, b] = matched.get((0, a), 0) + n, matched.get((1, b), 0) + n
        free = self._free()
        for entry in self.entries.values():
            place = (entry.side, entry.key)
            assert matched.get(place, 0) + free.get(place, 0) == entry.weight, "pairs and free units miss the weight"

    # -- state ---------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "rebuilds": self.rebuilds,
            "scale": self.scale,
            "since": self.since,
            "built_for": self.built_for,
            "limit": self.limit,
            "n_sites": self.n_sites,
            "levels": self.levels,
            "sites": self.sites if self.ambient is None else np.empty((0, 1)),
            "here": self.here,
            "slots": [[k, s, self.site_of[k]] for k, s in self.slots.items()],
            "at_site": [[site, list(slots)] for site, slots in self.at_site.items()],
            "network": self.network.state(),
        }

    def _restore(self, own: dict[str, Any]) -> None:
        for name in ("epoch", "rebuilds", "scale", "since", "built_for", "limit", "n_sites", "levels", "here"):
            setattr(self, name, own[name])
        if self.ambient is None:
            self.sites = own["sites"]
        for key, slot, site in own["slots"]:
            self.slots[key], self.keys[slot], self.site_of[key] = slot, key, site
        self.at_site = {site: dict.fromkeys(slots) for site, slots in own["at_site"]}
        self.network.restore(own["network"])
        self.network.dirty[:] = 1

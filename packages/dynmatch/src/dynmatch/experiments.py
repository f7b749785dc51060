"""The experiments behind the claims: streams in, ratios, work and times out; nothing is judged or drawn here."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from dynmatch import ExactMatcher, GridMatcher, HubMatcher, SlidingWindow, streams
from dynmatch.baselines import quadtree_greedy, scipy_lsa

EPS = (0.2, 0.34, 0.5)
"""Of the grids whose ratio is measured."""


def grid_ratios(seeds: tuple[int, ...], n: int, dims: tuple[int, ...], norms: tuple[float, ...], updates: int) -> dict:
    """Ratios to the exact W_1 along a mixed stream: one entry per (dim, norm, eps, rounded)."""
    found: dict[str, list[float]] = {}
    for dim in dims:
        for norm in norms:
            for seed in seeds:
                rng = np.random.default_rng([seed, dim])
                a, b = rng.normal(size=(n // 2, dim)), 1.2 * rng.normal(size=(n - n // 2, dim)) + 0.5
                stream = streams.gaussian(updates, n, dim, seed=seed, delete=0.5)
                exact = ExactMatcher("minkowski", norm=norm)
                grids = {
                    (e, r): GridMatcher(dim, norm=norm, eps=e, rounded=r, seed=seed) for e in EPS for r in (False, True)
                }
                for matcher in (exact, *grids.values()):
                    matcher.extend("A", a)
                    matcher.extend("B", b)
                for start in range(0, updates, max(1, updates // 8)):
                    part = [_renamed(u) for u in stream[start : start + max(1, updates // 8)]]
                    exact.apply(part)
                    for (eps, rounded), grid in grids.items():
                        grid.apply(part)
                        found.setdefault(f"{dim} {norm} {eps} {rounded}", []).append(grid.cost() / exact.cost())
    return found


def _renamed(update: Any) -> Any:
    """Keep a stream's ids apart from those of the points that were there before."""
    return replace(update, id=f"u{update.id}")


def ratio_by_size(seeds: tuple[int, ...], sizes: tuple[int, ...]) -> dict[str, list[list[float]]]:
    """Ratios to the exact W_1 of two clouds in the plane: rows by size, columns by seed."""
    found: dict[str, list[list[float]]] = {"grid": [], "quadtree greedy": []}
    for n in sizes:
        rows: dict[str, list[float]] = {name: [] for name in found}
        for seed in seeds:
            rng = np.random.default_rng([seed, n])
            a, b = rng.normal(size=(n // 2, 2)), rng.normal(size=(n // 2, 2)) + 0.5
            exact = scipy_lsa(a, b)
            grid = GridMatcher(2, seed=seed)
            grid.extend("A", a)
            grid.extend("B", b)
            rows["grid"].append(grid.cost() / exact)
            rows["quadtree greedy"].append(quadtree_greedy(a, b, seed=seed) / exact)
        for name, row in rows.items():
            found[name].append(row)
    return found


def churn(matcher: Any, present: list[tuple[Any, Any]], draw: Any, rounds: int, work: str) -> list[dict[str, float]]:
    """Delete a random point and insert another, ``rounds`` times, and return time and work of each single update.

    The time is the processor's, for other programs on the machine must not count.

    Parameters
    ----------
    matcher
        Whose updates are measured.
    present
        (side, id) of the points at hand; kept up to date.
    draw
        The random generator; ``draw.point(side)`` makes a point.
    work
        The entry of ``stats()`` that counts the work.
    """
    found = []
    for _ in range(rounds):
        side, gone = present.pop(int(draw.rng.integers(len(present))))
        for act in ("delete", "insert"):
            x = draw.point(side) if act == "insert" else None
            before, began = matcher.stats()[work], time.process_time()
            if x is None:
                matcher.delete(gone)
            else:
                present.append((side, matcher.insert(side, x)))
            seconds = time.process_time() - began
            found.append({"seconds": seconds, "work": float(matcher.stats()[work] - before)})
    return found


class Clouds:
    """Two Gaussian clouds, B's centre moved by ``shift`` in every coordinate."""

    def __init__(self, seed: Any, dim: int, shift: float) -> None:
        self.rng, self.dim, self.shift = np.random.default_rng(seed), dim, shift

    def point(self, side: str) -> np.ndarray:
        """Draw one point."""
        return self.rng.normal(size=self.dim) + self.shift * (side == "B")

    def fill(self, matcher: Any, n: int) -> list[tuple[Any, Any]]:
        """Insert n points, half on either side, and return (side, id) of each."""
        cloud = {s: self.rng.normal(size=(n // 2, self.dim)) + self.shift * (s == "B") for s in "AB"}
        return [(s, i) for s, points in cloud.items() for i in matcher.extend(s, points)]


def grid_scaling(seed: int, engine: str, shift: float, sizes: tuple[int, ...], rounds: int) -> dict[str, list[float]]:
    """Median seconds and mean pairs seen per update in the plane, by size; "exact matcher" is no grid."""
    found: dict[str, list[float]] = {"seconds": [], "pairs": [], "largest cell": []}
    for n in sizes:
        clouds = Clouds([seed, n], 2, shift)
        matcher: Any = ExactMatcher() if engine == "exact matcher" else GridMatcher(2, seed=seed, engine=engine)
        steps = churn(matcher, clouds.fill(matcher, n), clouds, rounds, "relaxed_pairs")
        found["seconds"].append(float(np.median([step["seconds"] for step in steps])))
        found["pairs"].append(float(np.mean([step["work"] for step in steps])))
        found["largest cell"].append(float(n if engine == "exact matcher" else max(matcher.cell_sizes(), default=0)))
    return found


METRICS = ("graph", "matrix", "l_inf, 8-d")
"""Of the hubs whose ratio is measured."""


def hub_stream(name: str, seed: int, updates: int, live: int) -> tuple[list[Any], Any]:
    """Return a stream and its metric: a graph, a matrix, or l_inf in 8 dimensions."""
    if name == "graph":
        return streams.graph(updates, live, seed)
    if name != "matrix":
        return streams.gaussian(updates, live, 8, seed), "linf"
    rng = np.random.default_rng(seed)
    sites = rng.normal(size=(120, 4)) * rng.choice([0.2, 3.0], size=(120, 1))
    places = iter(rng.integers(120, size=updates).astype(float)[:, None])
    return list(streams.churn(places, updates, live, rng)), cdist(sites, sites, "cityblock")


def hub_ratios(
    name: str, seed: int, updates: int, live: int, ks: tuple[int, ...], ps: tuple[int, ...], eps: float
) -> dict[str, list[float]]:
    """Ratios at every query in one metric, by metric, k and p."""
    found: dict[str, list[float]] = {}
    stream, metric = hub_stream(name, seed, updates, live)
    for k in ks:
        for p in ps:
            exact, hub = ExactMatcher(metric, p=p), HubMatcher(metric, p=p, k=k, eps=eps, seed=seed)
            ratios = found.setdefault(f"{name}|{k}|{p}", [])
            for update in stream:
                exact.apply([update])
                hub.apply([update])
                if exact.cost() > 1e-9:
                    ratios.append(hub.cost() / exact.cost())
    return found


def hub_scaling(seeds: tuple[int, ...], k: int, sizes: tuple[int, ...], rounds: int) -> dict[str, list[list[float]]]:
    """Attachments, arcs, and relaxed arcs and seconds per update in 4 dimensions: rows by size, columns by seed.

    With ``k = 0`` the exact matcher runs instead.
    """
    found: dict[str, list[list[float]]] = {name: [] for name in ("seconds", "work", "attachments", "arcs")}
    for n in sizes:
        for values in found.values():
            values.append([])
        for seed in seeds:
            clouds = Clouds([seed, n], 4, 0.3)
            matcher: Any = HubMatcher(k=k, seed=seed) if k else ExactMatcher()
            present = clouds.fill(matcher, n)
            start = matcher.stats()
            steps = churn(matcher, present, clouds, rounds, "relaxed_arcs" if k else "relaxed_pairs")
            for name, values in found.items():
                per_step = name in steps[0]
                values[-1].append(float(np.mean([s[name] for s in steps])) if per_step else float(start.get(name, 0)))
    return found


def deletion_runs(seeds: tuple[int, ...], updates: int, live: int) -> dict[str, dict[str, list[float]]]:
    """Cost after each stream over a fresh build's, and over the exact cost, with invariants checked on the way."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind, make in (("delete-heavy", streams.deletions), ("adversarial", streams.adversarial)):
        for name in ("grid", "hub"):
            entry = found.setdefault(f"{name}, {kind}", {"fresh": [], "exact": [], "broken": []})
            for seed in seeds:
                stream = make(updates=updates, live=live, seed=seed)

                def fresh(name: str = name, seed: int = seed) -> Any:
                    return GridMatcher(2, seed=seed) if name == "grid" else HubMatcher(k=2, seed=seed)

                matcher, exact = fresh(), ExactMatcher()
                broken = 0
                for number, update in enumerate(stream, 1):
                    matcher.apply([update])
                    exact.apply([update])
                    if number % max(1, updates // 6) == 0:
                        try:
                            matcher.check()
                            exact.check()
                        except AssertionError:
                            broken += 1
                again = fresh()
                for side in "AB":
                    again.extend(side, [e.point for e in matcher.entries.values() if e.side == "AB".index(side)])
                if exact.cost() > 0:
                    entry["fresh"].append(matcher.cost() / again.cost())
                    entry["exact"].append(matcher.cost() / exact.cost())
                entry["broken"].append(broken)
    return found


def drift(seed: int, window: int, before: int, after: int) -> dict[str, list[float]]:
    """Distances of an exact and a grid monitor along ``before`` digits of one kind and ``after`` of another."""
    first, then = streams.digits(seed=seed)
    reference, stream = first[:window], np.concatenate([first[window : window + before], then[:after]])
    found = {}
    for method in ("exact", "grid"):
        monitor = SlidingWindow(reference, window, method, seed=seed)
        found[method] = [monitor.push(x) for x in stream]
    return found


def slope(x: Any, y: Any) -> float:
    """Return the least-squares slope of log y against log x."""
    logs = np.log(np.maximum(np.array(y, dtype=np.float64), 1e-12))
    return float(np.polyfit(np.log(np.array(x, dtype=np.float64)), logs, 1)[0])

"""What the paper claims, re-tested: one function per claim."""

from __future__ import annotations

import math
import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import cdist

from dynmatch import ExactMatcher, GridMatcher, HubMatcher, SlidingWindow, streams
from dynmatch.baselines import quadtree_greedy, scipy_lsa
from papers_shared.artifacts import PALETTE, figure_style
from papers_shared.claims import Context, claim

EPS = (0.2, 0.34, 0.5)


def slope(x: Any, y: Any) -> float:
    """Least-squares slope of log y against log x."""
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, 1e-12)), 1)[0])


# -- grid --------------------------------------------------------------------------------------------------------------


def _grid_ratios(seeds: tuple[int, ...], n: int, dims: tuple[int, ...], norms: tuple[float, ...], updates: int) -> dict:
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
    from dataclasses import replace

    return replace(update, id=f"u{update.id}")


@claim(
    "M1",
    statement="the grid approximates W_1 for every l_p norm, within O(d eps^-1.5)",
    paper="O(d eps^-1.5) [abstract]",
    seeds=5,
)
def grid_ratio(ctx: Context) -> dict:
    """Measure the ratio over dimensions, norms and eps, exact and rounded searches."""
    n, updates = ctx.pick(small=500, paper=2000, smoke=60), ctx.pick(small=400, paper=2000, smoke=24)
    dims = ctx.pick(small=(1, 2, 5, 10, 20), paper=(1, 2, 5, 10, 20), smoke=(1, 2))
    norms = ctx.pick(small=(1.0, 2.0, math.inf), paper=(1.0, 2.0, math.inf), smoke=(2.0,))
    ratios = ctx.cache("ratios", _grid_ratios, ctx.seeds, n, dims, norms, updates)
    means: dict[bool, list[float]] = {False: [], True: []}
    above, least, worst = 0, math.inf, 0.0
    for name, values in ratios.items():
        dim, _, eps, rounded = name.split()
        means[rounded == "True"].append(float(np.mean(values)))
        least, worst = min(least, *values), max(worst, *values)
        above += sum(v > 4 * int(dim) / float(eps) ** 1.5 for v in values)
    with figure_style(figure_figsize=(7.2, 3.6)):
        fig, axes = plt.subplots(1, 2, sharey=True)
        for ax, rounded in zip(axes, (False, True), strict=True):
            for colour, eps in zip(PALETTE, EPS, strict=False):
                lines = [[v for nm in norms for v in ratios[f"{d} {nm} {eps} {rounded}"]] for d in dims]
                low, high = (np.array([np.quantile(v, q) for v in lines]) for q in (0.05, 0.95))
                middle = np.array([np.mean(v) for v in lines])
                ax.errorbar(
                    dims,
                    middle,
                    yerr=[np.maximum(0, middle - low), np.maximum(0, high - middle)],
                    color=colour,
                    marker="o",
                    label=f"ε = {eps}",
                )
            ax.set(xlabel="dimension", xscale="log", title="rounded search" if rounded else "exact search")
            ax.set_xticks(dims, [str(d) for d in dims])
            ax.minorticks_off()
        axes[0].set_ylabel("grid W₁ / exact W₁")
        axes[0].legend()
    caption = f"Mean and 5-95% range over l1, l2, l_inf, {len(ctx.seeds)} shifts, {updates} mixed updates, n = {n}."
    measured = {
        "largest mean, exact search": max(means[False]),
        "largest mean, rounded": max(means[True]),
        "overall mean, exact search": float(np.mean(means[False])),
        "least ratio": least,
        "largest ratio": worst,
        "ratios above 4 d / eps^1.5": above,
    }
    holds = least >= 1 - 1e-9 and max(means[False]) <= 1.6 and max(means[True]) <= 2.2 and not above
    return {"measured": measured, "holds": holds, "figure": ctx.figure("ratio.png", fig, caption)}


def _ratio_by_size(seeds: tuple[int, ...], sizes: tuple[int, ...]) -> dict[str, list[list[float]]]:
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


@claim(
    "M2",
    statement="for small d the grid's ratio does not grow with n, unlike log n",
    paper="better than log n",
    seeds=5,
)
def grid_ratio_by_size(ctx: Context) -> dict:
    """Measure the ratio from n = 250 to 4000 in the plane, beside the dyadic greedy."""
    sizes = ctx.pick(small=(250, 500, 1000, 2000, 4000), paper=(1000, 4000, 16000), smoke=(40, 80))
    ratios = ctx.cache("sizes", _ratio_by_size, ctx.seeds, sizes)
    means = {name: [float(np.mean(row)) for row in rows] for name, rows in ratios.items()}
    growth = {name: float(np.polyfit(np.log(sizes), m, 1)[0]) for name, m in means.items()}
    with figure_style():
        fig, ax = plt.subplots()
        for name, rows in ratios.items():
            ax.errorbar(sizes, means[name], yerr=[np.std(r) for r in rows], marker="o", label=name)
        ax.set(xlabel="points in all", ylabel="W₁ / exact W₁", xscale="log")
        ax.set_ylim(bottom=1)
        ax.legend()
    caption = f"Two Gaussian clouds in the plane; mean and standard deviation over {len(ctx.seeds)} draws and shifts."
    below = all(g < q for g, q in zip(means["grid"], means["quadtree greedy"], strict=True))
    measured = {
        "slope against log n, grid": growth["grid"],
        "slope, quadtree greedy": growth["quadtree greedy"],
        "mean ratio at the largest n": means["grid"][-1],
        "quadtree greedy there": means["quadtree greedy"][-1],
    }
    return {
        "measured": measured,
        "holds": growth["grid"] <= 0.05 and below,
        "figure": ctx.figure("ratio_n.png", fig, caption),
    }


def _scaling(
    seed: int, grid_sizes: tuple[int, ...], exact_sizes: tuple[int, ...], updates: int
) -> dict[str, list[Any]]:
    """Median seconds and mean relaxed pairs per update, by size."""
    found: dict[str, list[Any]] = {}
    for name, sizes in (("grid", grid_sizes), ("exact", exact_sizes)):
        for n in sizes:
            rng = np.random.default_rng([seed, n])
            matcher: Any = GridMatcher(2, seed=seed) if name == "grid" else ExactMatcher()
            present = [(s, i) for s in "AB" for i in matcher.extend(s, rng.normal(size=(n // 2, 2)) + 0.3 * (s == "B"))]
            seconds, work = [], []
            for _ in range(updates):
                side, gone = present.pop(int(rng.integers(len(present))))
                before = matcher.stats()["relaxed_pairs"]
                began = time.perf_counter()
                matcher.delete(gone)
                fresh = matcher.insert(side, rng.normal(size=2) + 0.3 * (side == "B"))
                seconds.append((time.perf_counter() - began) / 2)
                work.append((matcher.stats()["relaxed_pairs"] - before) / 2)
                present.append((side, fresh))
            found.setdefault(f"{name} seconds", []).append(float(np.median(seconds)))
            found.setdefault(f"{name} pairs", []).append(float(np.mean(work)))
    return found


@claim("M3", statement="the grid's update time grows like a small power of n", paper="update ~ n^eps", seeds=1)
def grid_scaling(ctx: Context) -> dict:
    """Fit log-log slopes of time and relaxed pairs for the grid and the exact matcher."""
    grid_sizes = ctx.pick(small=(1000, 3000, 10000, 30000), paper=(1000, 10000, 100000), smoke=(60, 120))
    exact_sizes = ctx.pick(small=(250, 500, 1000, 2000), paper=(250, 1000, 4000), smoke=(40, 80))
    updates = ctx.pick(small=150, paper=1000, smoke=6)
    found = ctx.cache("scaling", _scaling, ctx.seeds[0], grid_sizes, exact_sizes, updates)
    slopes = {
        name: slope(grid_sizes if name.startswith("grid") else exact_sizes, values) for name, values in found.items()
    }
    with figure_style(figure_figsize=(7.2, 3.6)):
        fig, axes = plt.subplots(1, 2)
        for ax, what, factor, label in (
            (axes[0], "seconds", 1e3, "median ms per update"),
            (axes[1], "pairs", 1, "pairs looked at per update"),
        ):
            for name, sizes in (("grid", grid_sizes), ("exact", exact_sizes)):
                values = factor * np.array(found[f"{name} {what}"])
                ax.loglog(sizes, values, marker="o", label=f"{name}, slope {slopes[f'{name} {what}']:.2f}")
            ax.set(xlabel="points in all", ylabel=label)
            ax.legend()
    caption = f"Plane, two Gaussian clouds, ε = 0.25; {updates} deletions each followed by an insertion."
    holds = (
        slopes["grid seconds"] <= 0.85
        and slopes["grid pairs"] <= 1.3
        and slopes["grid seconds"] <= slopes["exact seconds"] - 0.4
        and slopes["grid pairs"] <= slopes["exact pairs"] - 0.4
    )
    measured = {f"slope, {name}": value for name, value in slopes.items()}
    measured |= {"grid ms at the largest n": 1e3 * found["grid seconds"][-1]}
    return {"measured": measured, "holds": holds, "figure": ctx.figure("scale.png", fig, caption)}


# -- hub ---------------------------------------------------------------------------------------------------------------


def _hub_streams(seed: int, updates: int, live: int) -> dict[str, tuple[list[Any], Any]]:
    """A graph, a matrix and l_inf in 8 dimensions, each with a stream."""
    graph_updates, graph = streams.graph(updates, live, seed)
    rng = np.random.default_rng(seed)
    sites = rng.normal(size=(120, 4)) * rng.choice([0.2, 3.0], size=(120, 1))
    matrix = cdist(sites, sites, "cityblock")
    places = iter(rng.integers(120, size=updates).astype(float)[:, None])
    return {
        "graph": (graph_updates, graph),
        "matrix": (list(streams._churn(places, updates, live, rng)), matrix),
        "l_inf, 8-d": (streams.gaussian(updates, live, 8, seed), "linf"),
    }


def _hub_ratios(seed: int, updates: int, live: int, ks: tuple[int, ...], ps: tuple[int, ...]) -> dict[str, list[float]]:
    """Ratios at every query, by metric, k and p."""
    found: dict[str, list[float]] = {}
    for name, (stream, metric) in _hub_streams(seed, updates, live).items():
        for p in ps:
            exact = ExactMatcher(metric, p=p)
            hubs = {k: HubMatcher(metric, p=p, k=k, seed=seed) for k in ks}
            for update in stream:
                for matcher in (exact, *hubs.values()):
                    matcher.apply([update])
                best = exact.cost()
                for k, hub in hubs.items():
                    if best > 1e-9:
                        found.setdefault(f"{name}|{k}|{p}", []).append(hub.cost() / best)
    return found


@claim(
    "M4",
    statement="hubs keep every W_p within 2k(1+eps) at every query of a dynamic stream",
    paper="2k(1+eps)",
    seeds=1,
)
def hub_ratio(ctx: Context) -> dict:
    """Measure the ratio after each of 600 updates in three metrics."""
    updates, live = ctx.pick(small=600, paper=5000, smoke=60), ctx.pick(small=50, paper=300, smoke=10)
    ks, ps = (
        ctx.pick(small=(1, 2, 3), paper=(1, 2, 3), smoke=(2,)),
        ctx.pick(small=(1, 2, 3), paper=(1, 2, 3), smoke=(1, 2)),
    )
    ratios = ctx.cache("hub", _hub_ratios, ctx.seeds[0], updates, live, ks, ps)
    over = sum(v > 2 * int(name.split("|")[1]) * 1.1 * (1 + 1e-9) for name, values in ratios.items() for v in values)
    means = {name: float(np.mean(values)) for name, values in ratios.items()}
    names = list(ratios)
    with figure_style(figure_figsize=(8, 3.8)):
        fig, ax = plt.subplots()
        for i, name in enumerate(names):
            _metric, k, _p = name.split("|")
            values = ratios[name]
            colour = PALETTE[int(k) - 1]
            ax.plot([i, i], [min(values), max(values)], color=colour, linewidth=2)
            ax.plot(i, means[name], "o", color=colour)
            ax.plot(i, 2.2 * int(k), "_", color=colour, markersize=12)
        ax.set(ylabel="hub W_p / exact W_p")
        ax.set_xticks(
            range(len(names)),
            [f"{n.split('|')[0]}, k={n.split('|')[1]}, p={n.split('|')[2]}" for n in names],
            rotation=90,
            fontsize=7,
        )
    caption = f"Range and mean (dot) over {updates} queries; the dash is the bound 2k(1+ε), ε = 0.1."
    queries = sum(len(v) for v in ratios.values())
    measured = {
        "queries": queries,
        "queries over the bound": over,
        "largest ratio": max(max(v) for v in ratios.values()),
        "largest mean": max(means.values()),
        "overall mean": float(np.mean(list(means.values()))),
    }
    return {
        "measured": measured,
        "holds": not over and max(means.values()) <= 1.6,
        "figure": ctx.figure("hub.png", fig, caption),
    }


def _hub_scaling(seed: int, sizes: tuple[int, ...], updates: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for n in sizes:
        for name in ("k=2", "k=3", "exact"):
            rng = np.random.default_rng([seed, n])
            matcher: Any = ExactMatcher() if name == "exact" else HubMatcher(k=int(name[-1]), seed=seed)
            present = [(s, i) for s in "AB" for i in matcher.extend(s, rng.normal(size=(n // 2, 4)) + 0.3 * (s == "B"))]
            if name != "exact":
                matcher._build()
            key = "relaxed_pairs" if name == "exact" else "relaxed_arcs"
            attachments = matcher.stats().get("attachments", 0)
            before = matcher.stats()[key]
            began = time.perf_counter()
            for _ in range(updates):
                side, gone = present.pop(int(rng.integers(len(present))))
                matcher.delete(gone)
                present.append((side, matcher.insert(side, rng.normal(size=4) + 0.3 * (side == "B"))))
            seconds = (time.perf_counter() - began) / (2 * updates)
            found.setdefault(f"{name} seconds", []).append(seconds)
            found.setdefault(f"{name} work", []).append((matcher.stats()[key] - before) / (2 * updates))
            found.setdefault(f"{name} attachments", []).append(float(attachments))
    return found


@claim(
    "M5",
    statement="hubs keep O(k n^(1+1/k)) arcs and relax that many per update",
    paper="update ~ k n^(1+1/k)",
    seeds=1,
)
def hub_scaling(ctx: Context) -> dict:
    """Count attachments and relaxed arcs from n = 250 to 2000."""
    sizes = ctx.pick(small=(250, 500, 1000, 2000), paper=(1000, 4000, 16000), smoke=(40, 80))
    updates = ctx.pick(small=30, paper=200, smoke=4)
    found = ctx.cache("hub scaling", _hub_scaling, ctx.seeds[0], sizes, updates)
    measured: dict[str, Any] = {}
    holds = True
    for k in (2, 3):
        theory = np.array([k * n ** (1 + 1 / k) for n in sizes])
        share = np.array(found[f"k={k} attachments"]) / theory
        growth = slope(sizes, found[f"k={k} work"])
        measured |= {
            f"attachments over k n^(1+1/k), k={k}": [float(v) for v in share],
            f"slope of relaxed arcs, k={k}": growth,
            f"ms per update at the largest n, k={k}": 1e3 * found[f"k={k} seconds"][-1],
        }
        holds &= bool((share >= 0.5).all() and (share <= 2).all()) and growth <= 1 + 1 / k + 0.15
    measured["ms per update at the largest n, exact"] = 1e3 * found["exact seconds"][-1]
    with figure_style(figure_figsize=(7.2, 3.6)):
        fig, axes = plt.subplots(1, 2)
        for colour, k in zip(PALETTE, (2, 3), strict=False):
            axes[0].loglog(sizes, found[f"k={k} attachments"], color=colour, marker="o", label=f"k = {k}")
            axes[0].loglog(sizes, [k * n ** (1 + 1 / k) for n in sizes], color=colour, linestyle=":")
        axes[0].set(xlabel="points", ylabel="attachments")
        axes[0].legend(title="dotted: k n^(1+1/k)")
        for colour, name in zip(PALETTE, ("k=2", "k=3", "exact"), strict=False):
            axes[1].loglog(sizes, 1e3 * np.array(found[f"{name} seconds"]), color=colour, marker="o", label=name)
        axes[1].set(xlabel="points", ylabel="mean ms per update")
        axes[1].legend()
    caption = f"Two Gaussian clouds in 4-d, Euclidean, p = 1; {updates} deletions each followed by an insertion."
    return {"measured": measured, "holds": holds, "figure": ctx.figure("hub_scale.png", fig, caption)}


# -- streams -----------------------------------------------------------------------------------------------------------


def _deletion_runs(seeds: tuple[int, ...], updates: int, live: int) -> dict[str, dict[str, list[float]]]:
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


@claim(
    "M6", statement="deletions do as little harm as insertions, also adversarial ones", paper="fully dynamic", seeds=6
)
def deletion_streams(ctx: Context) -> dict:
    """Compare the state after delete-heavy and outlier streams with a fresh build of the same points."""
    updates, live = ctx.pick(small=500, paper=5000, smoke=60), ctx.pick(small=150, paper=1000, smoke=16)
    found = ctx.cache("deletions", _deletion_runs, ctx.seeds, updates, live)
    fresh = {name: float(np.mean(entry["fresh"])) for name, entry in found.items()}
    broken = int(sum(sum(entry["broken"]) for entry in found.values()))
    with figure_style():
        fig, ax = plt.subplots()
        for i, (name, entry) in enumerate(found.items()):
            ax.plot([i] * len(entry["fresh"]), entry["fresh"], ".", color=PALETTE[0])
            ax.plot(i, fresh[name], "D", color=PALETTE[1])
        ax.axhspan(0.9, 1.1, color="#dddddd", zorder=0)
        ax.set_xticks(range(len(found)), [name.replace(", ", "\n") for name in found])
        ax.set(ylabel="cost after the stream / fresh build")
    caption = f"One dot a seed, diamond the mean; the band is within 10% of building anew. {updates} updates."
    measured = {"broken invariants": broken} | {f"over a fresh build, {name}": v for name, v in fresh.items()}
    measured |= {f"over exact, {name}": float(np.mean(entry["exact"])) for name, entry in found.items()}
    holds = not broken and all(abs(v - 1) <= 0.1 for v in fresh.values())
    return {"measured": measured, "holds": holds, "figure": ctx.figure("del.png", fig, caption)}


def _drift(seed: int, window: int, before: int, after: int) -> dict[str, list[float]]:
    first, then = streams.digits(seed=seed)
    reference, stream = first[:window], np.concatenate([first[window : window + before], then[:after]])
    found = {}
    for method in ("exact", "grid"):
        monitor = SlidingWindow(reference, window, method, seed=seed)
        found[method] = [monitor.push(x) for x in stream]
    return found


@claim(
    "M7",
    statement="a sliding window's W_1 raises the alarm soon after the digits change, and not before",
    paper="drift monitoring (use)",
    seeds=1,
)
def drift_monitor(ctx: Context) -> dict:
    """Watch digits 0 to 4 turn into 5 to 9, with a threshold from the first full windows."""
    window = ctx.pick(small=150, paper=150, smoke=20)
    before, after = 4 * window, window
    found = ctx.cache("drift", _drift, ctx.seeds[0], window, before, after)
    measured: dict[str, Any] = {}
    holds = True
    with figure_style():
        fig, ax = plt.subplots()
        for colour, (name, values) in zip(PALETTE, found.items(), strict=False):
            series = np.array(values)
            threshold = 1.1 * series[window - 1 : 2 * window - 1].max()
            alarms = np.flatnonzero(series[window - 1 :] > threshold) + window - 1
            early = int(np.sum(alarms < before))
            delay = int(alarms[alarms >= before][0] - before + 1) if (alarms >= before).any() else -1
            measured |= {f"alarms before the change, {name}": early, f"points from change to alarm, {name}": delay}
            holds &= early == 0 and 0 < delay <= 100
            ax.plot(np.arange(window, len(series) + 1), series[window - 1 :], color=colour, label=name)
            ax.axhline(threshold, color=colour, linestyle=":", linewidth=1)
        ax.axvline(before, color="#444444", linestyle="--", linewidth=1)
        ax.set(xlabel="points seen", ylabel="W₁ per point")
        ax.legend(title="dotted: threshold")
    caption = f"scikit-learn digits, 64-d: reference and window of {window}; at the dashed line digits 0-4 become 5-9."
    return {"measured": measured, "holds": holds, "figure": ctx.figure("drift.png", fig, caption)}

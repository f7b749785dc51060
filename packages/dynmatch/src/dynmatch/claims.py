"""What the paper claims, re-tested: one function per claim, which judges what an experiment found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynmatch import claim_figures, experiments
from dynmatch.experiments import slope
from papers_shared.claims import Context, claim


@claim(
    "M1",
    statement="the grid approximates W_1 for every l_p norm, within O(d eps^-1.5)",
    paper="O(d eps^-1.5) [abstract]",
    seeds=5,
)
def grid_ratio(ctx: Context) -> dict:
    """Measure the ratio over dimensions, norms and eps, exact and rounded searches."""
    n, updates = ctx.pick(small=500, paper=2000, smoke=40), ctx.pick(small=400, paper=2000, smoke=16)
    dims = ctx.pick(small=(1, 2, 5, 10, 20), paper=(1, 2, 5, 10, 20), smoke=(1, 2))
    norms = ctx.pick(small=(1.0, 2.0, math.inf), paper=(1.0, 2.0, math.inf), smoke=(2.0,))
    ratios: dict[str, list[float]] = {}
    for dim in dims:
        ratios |= ctx.cache("ratios", experiments.grid_ratios, ctx.seeds, n, (dim,), norms, updates)
    means: dict[bool, list[float]] = {False: [], True: []}
    above, least, worst = 0, math.inf, 0.0
    for name, values in ratios.items():
        dim, _, eps, rounded = name.split()
        means[rounded == "True"].append(float(np.mean(values)))
        least, worst = min(least, *values), max(worst, *values)
        above += sum(v > 4 * int(dim) / float(eps) ** 1.5 for v in values)
    figure = claim_figures.ratio_by_dimension(ratios, dims, norms)
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
    return {"measured": measured, "holds": holds, "figure": ctx.figure("ratio.png", figure, caption)}


@claim(
    "M2",
    statement="for small d the grid's ratio does not grow with n, unlike log n",
    paper="better than log n",
    seeds=5,
)
def grid_ratio_by_size(ctx: Context) -> dict:
    """Measure the ratio from n = 250 to 4000 in the plane, beside the dyadic greedy."""
    sizes = ctx.pick(small=(250, 500, 1000, 2000, 4000), paper=(1000, 4000, 16000), smoke=(40, 80))
    ratios = ctx.cache("sizes", experiments.ratio_by_size, ctx.seeds, sizes)
    means = {name: [float(np.mean(row)) for row in rows] for name, rows in ratios.items()}
    growth = {name: float(np.polyfit(np.log(sizes), m, 1)[0]) for name, m in means.items()}
    caption = f"Two Gaussian clouds in the plane; mean and standard deviation over {len(ctx.seeds)} draws and shifts."
    below = all(g < q for g, q in zip(means["grid"], means["quadtree greedy"], strict=True))
    measured = {
        "slope against log n, grid": growth["grid"],
        "slope, quadtree greedy": growth["quadtree greedy"],
        "mean ratio at the largest n": means["grid"][-1],
        "quadtree greedy there": means["quadtree greedy"][-1],
    }
    figure = ctx.figure("ratio_n.png", claim_figures.ratio_by_size(ratios, sizes), caption)
    return {"measured": measured, "holds": growth["grid"] <= 0.05 and below, "figure": figure}


@claim(
    "M3",
    statement="the grid's update time grows like a small power of n, whichever the engine and the clouds",
    paper="update ~ n^eps",
    seeds=1,
)
def grid_scaling(ctx: Context) -> dict:
    """Fit log-log slopes of time and pairs seen for each in-cell engine, on clouds of one law and on shifted ones."""
    grid_sizes = ctx.pick(small=(1000, 3000, 10000, 30000), paper=(1000, 10000, 100000), smoke=(40, 80))
    exact_sizes = ctx.pick(small=(250, 500, 1000, 2000), paper=(250, 1000, 4000), smoke=(40, 80))
    rounds = ctx.pick(small=60, paper=1000, smoke=3)
    sizes: dict[str, tuple[int, ...]] = {"dense": grid_sizes, "aggregate": grid_sizes, "exact matcher": exact_sizes}
    found: dict[str, dict[str, list[float]]] = {}
    for engine, ns in sizes.items():
        for law, shift in (("one law", 0.0), ("shifted", 0.3)):
            arguments = (ctx.seeds[0], engine, shift, ns, rounds)
            found[f"{engine}, {law}"] = ctx.cache("scaling", experiments.grid_scaling, *arguments)
    slopes = {
        name: {what: slope(sizes[name.split(", ")[0]], values[what]) for what in ("seconds", "pairs", "largest cell")}
        for name, values in found.items()
    }
    measured: dict[str, Any] = {}
    holds = True
    for name, mine in slopes.items():
        engine, law = name.split(", ")
        measured |= {f"slope of time, {name}": mine["seconds"], f"slope of pairs, {name}": mine["pairs"]}
        if engine != "exact matcher":
            exact = slopes[f"exact matcher, {law}"]
            fine = mine["seconds"] <= 0.85 and mine["pairs"] <= 1.3
            fine &= all(mine[what] <= exact[what] - 0.4 for what in ("seconds", "pairs"))
            measured[f"within the limits, {name}"] = fine
            measured[f"slope of the largest cell, {name}"] = mine["largest cell"]
            measured[f"ms at the largest n, {name}"] = 1e3 * found[name]["seconds"][-1]
            holds &= fine
    caption = (
        f"Two Gaussian clouds in the plane, of one law (dashed) or 0.3 apart in both coordinates (solid), ε = 0.25; "
        f"{rounds} deletions each followed by an insertion; the time is the processor's."
    )
    figure = claim_figures.grid_scaling(found, sizes, slopes)
    return {"measured": measured, "holds": holds, "figure": ctx.figure("scale.png", figure, caption)}


@claim(
    "M4",
    statement="hubs keep every W_p within 2k(1+eps) at every query of a dynamic stream",
    paper="2k(1+eps)",
    seeds=1,
)
def hub_ratio(ctx: Context) -> dict:
    """Measure the ratio after each of 600 updates in three metrics."""
    updates, live = ctx.pick(small=600, paper=5000, smoke=40), ctx.pick(small=50, paper=300, smoke=8)
    ks = ctx.pick(small=(1, 2, 3), paper=(1, 2, 3), smoke=(2,))
    ps = ctx.pick(small=(1, 2, 3), paper=(1, 2, 3), smoke=(1, 2))
    eps = 0.1
    ratios: dict[str, list[float]] = {}
    for metric in experiments.METRICS:
        ratios |= ctx.cache("hub", experiments.hub_ratios, metric, ctx.seeds[0], updates, live, ks, ps, eps)
    bound = {name: 2 * int(name.split("|")[1]) * (1 + eps) * (1 + 1e-9) for name in ratios}
    over = sum(v > bound[name] for name, values in ratios.items() for v in values)
    means = {name: float(np.mean(values)) for name, values in ratios.items()}
    caption = f"Range and mean (dot) over {updates} queries; the dash is the bound 2k(1+ε), ε = {eps}."
    measured = {
        "queries": sum(len(v) for v in ratios.values()),
        "queries over the bound": over,
        "largest ratio": max(max(v) for v in ratios.values()),
        "largest mean": max(means.values()),
        "overall mean": float(np.mean(list(means.values()))),
    }
    figure = ctx.figure("hub.png", claim_figures.hub_ratios(ratios, eps), caption)
    return {"measured": measured, "holds": not over and max(means.values()) <= 1.6, "figure": figure}


@claim(
    "M5",
    statement="hubs keep O(k n^(1+1/k)) arcs and relax that many per update",
    paper="update ~ k n^(1+1/k)",
    seeds=4,
)
def hub_scaling(ctx: Context) -> dict:
    """Count attachments and relaxed arcs from n = 250 to 2000, and the share of its arcs that an update looks at."""
    sizes = ctx.pick(small=(250, 500, 1000, 2000), paper=(1000, 4000, 16000), smoke=(40, 80))
    rounds = ctx.pick(small=30, paper=200, smoke=3)
    found = {
        name: ctx.cache("hub scaling", experiments.hub_scaling, ctx.seeds, k, sizes, rounds)
        for name, k in (("k = 2", 2), ("k = 3", 3), ("exact", 0))
    }
    measured: dict[str, Any] = {}
    holds = True
    for k in (2, 3):
        mine = found[f"k = {k}"]
        arcs, work, attachments = (np.array(mine[name]) for name in ("arcs", "work", "attachments"))
        share = attachments.mean(axis=1) / np.array([k * n ** (1 + 1 / k) for n in sizes])
        growth = slope(sizes, work.mean(axis=1))
        alone = [slope(sizes, work[:, draw]) for draw in range(work.shape[1])]
        seen = work / arcs
        measured |= {
            f"attachments over k n^(1+1/k), k={k}": share.tolist(),
            f"slope of relaxed arcs, k={k}": growth,
            f"least and largest slope of single draws, k={k}": [min(alone), max(alone)],
            f"slope of all arcs, k={k}": slope(sizes, arcs.mean(axis=1)),
            f"relaxed over all arcs, k={k}": seen.mean(axis=1).tolist(),
            f"least and largest share of single draws, k={k}": [float(seen.min()), float(seen.max())],
            f"ms per update at the largest n, k={k}": 1e3 * float(np.median(mine["seconds"][-1])),
        }
        holds &= bool((share >= 0.5).all() and (share <= 2).all()) and growth <= 1 + 1 / k + 0.15
    measured["ms per update at the largest n, exact"] = 1e3 * float(np.median(found["exact"]["seconds"][-1]))
    caption = (
        f"Two Gaussian clouds in 4-d, Euclidean, p = 1; mean and range of {len(ctx.seeds)} draws, in each {rounds} "
        f"deletions followed by an insertion; the time is the processor's."
    )
    figure = ctx.figure("hub_scale.png", claim_figures.hub_scaling(found, sizes), caption)
    return {"measured": measured, "holds": holds, "figure": figure}


@claim(
    "M6", statement="deletions do as little harm as insertions, also adversarial ones", paper="fully dynamic", seeds=6
)
def deletion_streams(ctx: Context) -> dict:
    """Compare the state after delete-heavy and outlier streams with a fresh build of the same points."""
    updates, live = ctx.pick(small=500, paper=5000, smoke=40), ctx.pick(small=150, paper=1000, smoke=10)
    found = ctx.cache("deletions", experiments.deletion_runs, ctx.seeds, updates, live)
    fresh = {name: float(np.mean(entry["fresh"])) for name, entry in found.items()}
    broken = int(sum(sum(entry["broken"]) for entry in found.values()))
    caption = f"One dot a seed, diamond the mean; the band is within 10% of building anew. {updates} updates."
    measured = {"broken invariants": broken} | {f"over a fresh build, {name}": v for name, v in fresh.items()}
    measured |= {f"over exact, {name}": float(np.mean(entry["exact"])) for name, entry in found.items()}
    holds = not broken and all(abs(v - 1) <= 0.1 for v in fresh.values())
    return {
        "measured": measured,
        "holds": holds,
        "figure": ctx.figure("del.png", claim_figures.deletions(found), caption),
    }


@claim(
    "M7",
    statement="a sliding window's W_1 raises the alarm soon after the digits change, and not before",
    paper="drift monitoring (use)",
    seeds=1,
)
def drift_monitor(ctx: Context) -> dict:
    """Watch digits 0 to 4 turn into 5 to 9, with a threshold from the first full windows."""
    window = ctx.pick(small=150, paper=150, smoke=15)
    before, after = 4 * window, window
    found = ctx.cache("drift", experiments.drift, ctx.seeds[0], window, before, after)
    measured: dict[str, Any] = {}
    thresholds: dict[str, float] = {}
    holds = True
    for name, values in found.items():
        series = np.array(values)
        thresholds[name] = threshold = 1.1 * float(series[window - 1 : 2 * window - 1].max())
        alarms = np.flatnonzero(series[window - 1 :] > threshold) + window - 1
        early = int(np.sum(alarms < before))
        delay = int(alarms[alarms >= before][0] - before + 1) if (alarms >= before).any() else -1
        measured |= {f"alarms before the change, {name}": early, f"points from change to alarm, {name}": delay}
        holds &= early == 0 and 0 < delay <= 100
    caption = f"scikit-learn digits, 64-d: reference and window of {window}; at the dashed line digits 0-4 become 5-9."
    figure = ctx.figure("drift.png", claim_figures.drift(found, thresholds, window, before), caption)
    return {"measured": measured, "holds": holds, "figure": figure}

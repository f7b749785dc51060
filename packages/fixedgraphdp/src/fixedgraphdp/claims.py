"""What the paper claims, re-tested: one function per claim."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from fixedgraphdp import bound, generators, inclusion_probabilities, lp, private_mean
from fixedgraphdp.bias import ht_weights, mean_bias
from fixedgraphdp.bounds import lower
from fixedgraphdp.data import EMBEDDED, embedded
from fixedgraphdp.iid import clip_level
from fixedgraphdp.rounding import lp_candidates, theory_alpha
from fixedgraphdp.training import DPSGD, accuracy, logistic_loss
from papers_shared.artifacts import PALETTE, figure_style
from papers_shared.claims import Context, claim

DELTA = 1e-5


@claim("D1", statement="greedy keeps at least 1/r of the optimum, and exactly that on a tight family", paper="O(r)")
def greedy_factor(ctx: Context) -> dict:
    """Compare greedy in three orders with the integer optimum."""
    repeats = ctx.pick(small=15, paper=200, smoke=1)
    ratios: dict[int, list[float]] = {r: [] for r in range(2, 7)}
    for r, found in ratios.items():
        for seed in range(repeats):
            graph = generators.chung_lu_hypergraph(60, 30, r, seed=100 * r + seed)
            for k in (1, 2):
                best = bound(graph, k, "exact").size
                orders = ("size", "user-degree", "random")
                found += [best / bound(graph, k, order=order, key=seed).size for order in orders]
    tight = {}
    for r in ratios:
        graph = generators.greedy_tight(r)
        tight[r] = bound(graph, 1, "exact").size / bound(graph, 1, order="given").size
    with figure_style():
        fig, ax = plt.subplots()
        rs = list(ratios)
        ax.plot(rs, rs, "--", color="#444444", label="guarantee: r")
        ax.plot(rs, list(tight.values()), "s", label="tight family, bad order")
        ax.plot(rs, [max(found) for found in ratios.values()], "o-", label="random, worst")
        ax.plot(rs, [np.mean(found) for found in ratios.values()], "^-", label="random, mean")
        ax.set(xlabel="most users of an example, r", ylabel="optimum / greedy", xticks=rs)
        ax.legend()
    worst = max(max(found) / r for r, found in ratios.items())
    caption = f"{2 * repeats} random hypergraphs of 60 examples per r (k = 1, 2), three orders each, against the ILP."
    return {
        "measured": {
            "largest (OPT/S)/r, random": worst,
            "mean OPT/S": float(np.mean([x for found in ratios.values() for x in found])),
            "OPT/S on the tight family, r 2..6": list(tight.values()),
        },
        "holds": worst <= 1 and all(value == r for r, value in tight.items()),
        "figure": ctx.figure("greedy.png", fig, caption),
    }


@claim(
    "D2",
    statement="sampling the LP keeps LP / O(V^(1/(k+1))); with alteration and filling nearly all of it",
    paper="O(V^(1/(k+1)))",
)
def rounding(ctx: Context) -> dict:
    """Round the LP on growing graphs and on the embedded ones."""
    rows: list[dict[str, Any]] = []
    for v in ctx.pick(small=(50, 200, 1000, 5000), paper=(50, 500, 5000, 50_000), smoke=(50,)):
        for k in (1, 2, 3, 4):
            graph = generators.chung_lu_hypergraph(2 * v, v, 3, seed=v + k)
            rows.append({"v": v, "k": k, "graph": "random", **_rounded(graph, k)})
    for name in EMBEDDED:
        graph = embedded(name)
        rows += [{"v": graph.n_users, "k": k, "graph": name, **_rounded(graph, k)} for k in (1, 2, 4, 8)]
    with figure_style(figure_figsize=(8.5, 3.8)):
        fig, (left, right) = plt.subplots(1, 2)
        for k in (1, 2, 3, 4):
            mine = [row for row in rows if row["graph"] == "random" and row["k"] == k]
            vs = [row["v"] for row in mine]
            left.loglog(vs, [row["theory"] for row in mine], "o-", color=PALETTE[k - 1], label=f"k = {k}")
            left.loglog(vs, [row["alpha"] for row in mine], "--", color=PALETTE[k - 1])
        left.set(xlabel="users |V|", ylabel="LP / theory's set (dashed: guarantee)")
        left.legend()
        for shift, name in zip((-0.24, -0.08, 0.08, 0.24), ("random", *EMBEDDED), strict=True):
            mine = [row for row in rows if row["graph"] == name]
            right.plot([row["k"] + shift for row in mine], [row["practical"] for row in mine], "o", label=name)
        right.axhline(0.95, linestyle="--", color="#444444", linewidth=1)
        right.set(xlabel="budget k", ylabel="practical set / LP", xticks=[1, 2, 4, 8])
        right.legend()
    known = [row for row in rows if row["graph"] != "random"]
    measured = {
        "largest (LP/S)/guarantee, theory": max(row["theory"] / row["alpha"] for row in rows),
        "least practical/LP, embedded": min(row["practical"] for row in known),
        "least practical/LP, random": min(row["practical"] for row in rows if row["graph"] == "random"),
        "least practical - greedy": min(row["gain"] for row in rows),
    }
    holds = (
        measured["largest (LP/S)/guarantee, theory"] <= 1
        and measured["least practical/LP, embedded"] >= 0.95
        and measured["least practical - greedy"] >= 0
    )
    caption = "Left: theory's best of 16 draws. Right: altered, filled, six rates. Random: 2|V| examples, r 3."
    return {"measured": measured, "holds": holds, "figure": ctx.figure("lp.png", fig, caption)}


def _rounded(graph: Any, k: int) -> dict[str, Any]:
    """Measure one graph: theory's and the practical set against the LP, and the gain over greedy."""
    solved = lp.relaxation(graph, k)
    ones = np.ones(graph.n_examples)
    ranking = np.lexsort((np.arange(graph.n_examples), graph.sizes))
    found = lp_candidates(graph, k, ones, solved.x, [ranking])
    kept = 0 if found.theory is None else len(found.theory)
    return {
        "alpha": theory_alpha(graph.n_users, k),
        "theory": solved.value / kept if kept else float("inf"),
        "practical": len(found.best) / solved.value,
        "gain": len(found.best) - bound(graph, k).size,
    }


@claim("D3", statement="the LP exceeds the integer optimum by r - 1 + 1/r on projective planes", paper="r - 1 + 1/r")
def gap(ctx: Context) -> dict:
    """Solve both programmes on the planes of order 2 and 3 (and 5 at paper scale)."""
    rs = ctx.pick(small=(3, 4), paper=(3, 4, 6), smoke=(3,))
    gaps = {}
    for r in rs:
        plane = generators.projective_plane(r)
        gaps[r] = lp.relaxation(plane, 1).value / bound(plane, 1, "exact").size
    with figure_style():
        fig, ax = plt.subplots()
        line = np.linspace(2.5, max(rs) + 0.5, 50)
        ax.plot(line, line - 1 + 1 / line, "--", color="#444444", label="r - 1 + 1/r")
        ax.plot(rs, list(gaps.values()), "o", markersize=9, label="LP / ILP")
        ax.set(xlabel="users of an example, r", ylabel="integrality gap", xticks=rs)
        ax.legend()
    off = max(abs(value - (r - 1 + 1 / r)) for r, value in gaps.items())
    return {
        "measured": {"LP/ILP": {f"r={r}": value for r, value in gaps.items()}, "largest error": off},
        "holds": off < 1e-7,
        "figure": ctx.figure("gap.png", fig, "Projective planes of prime order r - 1, k = 1."),
    }


def _mean_errors(repeats: int, n: int, cs: list[int], ds: list[int], epsilons: list[float]) -> list[dict[str, Any]]:
    """Measure the squared error of the private mean on clustered data whose clusters' examples are equal."""
    rows = []
    for c in cs:
        graph = generators.clustered(n // c, c)
        kept = bound(graph, c)
        for d in ds:
            rng = np.random.default_rng([c, d])
            centres = rng.standard_normal((n // c, d))
            x = np.repeat(centres / np.linalg.norm(centres, axis=1, keepdims=True), c, axis=0)
            truth = x.mean(axis=0)
            for eps in epsilons:
                # Every cell draws noise of its own: with common seeds the slope in c would be 2 by construction.
                seeds = len(rows) * repeats + np.arange(repeats)
                found = np.array([private_mean(x, kept, eps, DELTA, seed=int(seed)) for seed in seeds])
                mse = float(((found - truth) ** 2).sum(axis=1).mean())
                rows.append({"c": c, "d": d, "eps": eps, "mse": mse, "lower": lower(c, d, eps, len(x))})
    return rows


def _mean_grid(ctx: Context) -> list[dict[str, Any]]:
    repeats = ctx.pick(small=30, paper=200, smoke=4)
    cs = ctx.pick(small=[1, 2, 4, 8, 16, 32, 64], paper=[1, 2, 4, 8, 16, 32, 64], smoke=[1, 8])
    return ctx.cache("means", _mean_errors, repeats, 8192, cs, [8, 32, 128], [0.5, 1.0, 2.0, 4.0])


@claim("D4", statement="the squared error grows as c^2 d / eps^2", paper="Omega~(c^2 d / eps^2)")
def error_law(ctx: Context) -> dict:
    """Fit the three exponents together on the grid."""
    rows = _mean_grid(ctx)
    design = np.array([[1.0, np.log(row["c"]), np.log(row["d"]), np.log(row["eps"])] for row in rows])
    slopes = np.linalg.lstsq(design, np.log([row["mse"] for row in rows]), rcond=None)[0][1:]
    with figure_style(figure_figsize=(9.0, 3.4)):
        fig, axes = plt.subplots(1, 3, sharey=True)
        fixed = {"c": 8, "d": 32, "eps": 1.0}
        for ax, name, slope, unit in zip(
            axes, fixed, slopes, ("density c", "dimension d", "privacy epsilon"), strict=True
        ):
            mine = [row for row in rows if all(row[other] == fixed[other] for other in fixed if other != name)]
            ax.loglog([row[name] for row in mine], [row["mse"] for row in mine], "o-", label="measured")
            ax.loglog([row[name] for row in mine], [row["lower"] for row in mine], "--", label="lower bound")
            ax.set(xlabel=unit, title=f"slope {slope:.2f}")
            ticks = sorted({row[name] for row in mine})
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
        axes[0].set_ylabel("mean squared error")
        axes[0].legend()
    measured = dict(zip(("slope in c", "slope in d", "slope in eps"), map(float, slopes), strict=True))
    in_c, in_d, in_eps = slopes
    holds = 1.7 <= in_c <= 2.3 and 0.8 <= in_d <= 1.2 and -2.3 <= in_eps <= -1.7
    caption = f"Private means of 8192 unit vectors in equal clusters, delta {DELTA:g}; others at c 8, d 32, epsilon 1."
    return {"measured": measured, "holds": bool(holds), "figure": ctx.figure("error.png", fig, caption)}


@claim("D5", statement="the upper bound meets the lower one up to a constant", paper="matching up to logs")
def bounds_meet(ctx: Context) -> dict:
    """Divide the measured error by the lower bound on the same grid."""
    rows = _mean_grid(ctx)
    ratios = np.array([row["mse"] / row["lower"] for row in rows])
    epsilons = sorted({row["eps"] for row in rows})
    with figure_style():
        fig, ax = plt.subplots()
        for d, marker in zip(sorted({row["d"] for row in rows}), "os^", strict=False):
            for eps, colour in zip(epsilons, PALETTE, strict=False):
                mine = [(row["c"], row["mse"] / row["lower"]) for row in rows if row["d"] == d and row["eps"] == eps]
                label = f"d {d}, eps {eps:g}"
                ax.plot(*zip(*mine, strict=True), marker, color=colour, alpha=0.7, label=label)
        ax.set(xscale="log", xlabel="density c", ylabel="measured error / lower bound", ylim=(0, 26))
        ax.legend(ncols=3, fontsize=7)
    spread = float(ratios.max() / ratios.min())
    measured = {"largest ratio": float(ratios.max()), "least ratio": float(ratios.min()), "max/min": spread}
    caption = "The ratio is sigma(eps, delta)^2 eps^2, 12.4 to 18.7 for these epsilons, plus Monte Carlo noise."
    return {
        "measured": measured,
        "holds": bool(ratios.max() <= 25 and spread <= 3),
        "figure": ctx.figure("tight.png", fig, caption),
    }


def _train(seed: int, n: int, ks: list[int], steps: int, d: int) -> dict[int, float]:
    """Train at each k on one data set; return the held-out accuracies."""
    graph = generators.preferential_authors(n, n * 2 // 5, seed=seed)
    task = generators.logistic_task(graph, d, extra=20_000, seed=seed)
    largest = int(graph.degrees.max())
    found = {}
    for k in [*[k for k in ks if k < largest], largest]:
        start = np.zeros(d, np.float32)
        model = DPSGD(logistic_loss, start, graph, k, 2.0, DELTA, steps=steps, seed=seed)
        fitted, _ = model.fit(task.x[:n], task.y[:n])
        found[k] = accuracy(fitted.params, task.x[n:], task.y[n:])
    return found


@claim("D6", statement="bounding contributions beats protecting whole users by brute noise", paper="DP-SGD", seeds=5)
def training(ctx: Context) -> dict:
    """Train logistic regression at epsilon 2 for a range of k; the largest k keeps everything."""
    n = ctx.pick(small=20_000, paper=200_000, smoke=300)
    ks = ctx.pick(small=[1, 2, 4, 8, 16, 32], paper=[1, 2, 4, 8, 16, 32, 64], smoke=[1])
    steps, d = ctx.pick(small=300, paper=2000, smoke=5), ctx.pick(small=64, paper=64, smoke=4)
    runs = [ctx.cache("train", _train, seed, n, ks, steps, d) for seed in ctx.track(ctx.seeds, "training")]
    largest = [max(run) for run in runs]
    means = {k: float(np.mean([run[k] for run in runs])) for k in ks if all(k in run for run in runs)}
    everything = float(np.mean([run[top] for run, top in zip(runs, largest, strict=True)]))
    best = max(means, key=lambda k: means[k])
    gains = [run[best] - run[top] for run, top in zip(runs, largest, strict=True)]
    top = float(np.mean(largest))
    with figure_style():
        fig, ax = plt.subplots()
        spread = [np.std([run[k] for run in runs]) for k in means]
        ax.errorbar(list(means), list(means.values()), yerr=spread, marker="o", label="bounded")
        ax.errorbar([top], [everything], yerr=[np.std([run[m] for run, m in zip(runs, largest, strict=True)])],
                    marker="s", color=PALETTE[1], label="k = max degree: everything kept")  # fmt: skip
        ax.set(xscale="log", xlabel="budget k per user", ylabel="held-out accuracy")
        ax.set_xticks([*means, round(top)], [*map(str, means), f"{top:.0f}"])
        ax.minorticks_off()
        ax.legend()
    measured = {
        "best k": best,
        "accuracy at best k": means[best],
        "accuracy at max degree": everything,
        "gain": float(np.mean(gains)),
        "mean max degree": top,
        "best k is interior (reported)": best > 1,
    }
    caption = f"Logistic regression, {n} papers, d {d}, user-level epsilon 2, {len(runs)} seeds; bars: one SD."
    holds = float(np.mean(gains)) >= 0.03 and best <= top / 4
    return {"measured": measured, "holds": holds, "figure": ctx.figure("train.png", fig, caption)}


@claim("D7", statement="bounding biases only if contents depend on who owns them, as Cov(p, f)/mean(p)", paper="bias")
def selection_bias(ctx: Context) -> dict:
    """Draw boundings and contents again and again, with and without a shift that follows the users' degrees."""
    n, runs = ctx.pick(small=(4000, 400), paper=(20_000, 2000), smoke=(200, 20))
    graph = generators.preferential_authors(n, n * 2 // 5, seed=1)
    k, order = 2, "random"
    p = inclusion_probabilities(graph, k, order=order, runs=2 * runs, seed=11)
    weights = ht_weights(p)
    follow = generators.popularity(graph)
    rng = np.random.default_rng(12)
    errors: dict[str, list[float]] = {"off": [], "on": [], "weighted": []}
    predicted = []
    for run in ctx.track(range(runs), "bounding"):
        kept = bound(graph, k, order=order, key=50_000 + run).selected
        noise = rng.standard_normal(n)
        shifted = noise + 0.5 * follow
        errors["off"].append(float(noise[kept].mean() - noise.mean()))
        errors["on"].append(float(shifted[kept].mean() - shifted.mean()))
        errors["weighted"].append(float(np.average(shifted[kept], weights=weights[kept]) - shifted.mean()))
        predicted.append(mean_bias(p, shifted))
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    se = {name: float(np.std(values, ddof=1) / np.sqrt(runs)) for name, values in errors.items()}
    formula = float(np.mean(predicted))
    cut = 1 - abs(means["weighted"]) / abs(means["on"])
    with figure_style():
        fig, ax = plt.subplots()
        names = ["off", "on", "weighted"]
        ax.bar(range(3), [means[name] for name in names], yerr=[3 * se[name] for name in names], color=PALETTE[:3])
        ax.axhline(formula, linestyle="--", color="#444444", label="Cov(p, f) / mean(p)")
        ax.set_xticks(range(3), ["no dependence", "contents follow degree", "same, HT weights"])
        ax.set(ylabel="bias of the mean (SD of contents)")
        ax.legend()
    measured = {
        "bias off / SE": means["off"] / se["off"],
        "bias on": means["on"],
        "formula": formula,
        "relative difference": abs(means["on"] - formula) / abs(formula),
        "cut by weights": cut,
    }
    holds = abs(measured["bias off / SE"]) <= 3 and measured["relative difference"] <= 0.1 and cut >= 0.7
    caption = f"{n} papers, k 2, greedy in random order, {runs} boundings; bars: three standard errors."
    return {"measured": measured, "holds": bool(holds), "figure": ctx.figure("bias.png", fig, caption)}


def _power(alpha: float, c: int, m: int, eps: float, repeats: int, worst_case: bool, seed: int) -> float:
    """Return the power of the cluster test, with cluster sums drawn through their multinomial counts."""
    rng = np.random.default_rng([seed, c, m])
    high, low = np.log1p(2 * alpha), np.log1p(-2 * alpha)
    centre = ((low + high) / 2 + (0.5 + alpha) * high + (0.5 - alpha) * low) / 2
    tau = clip_level(c, m, float(high - low) / 2, worst_case=worst_case)
    ones = np.arange(c + 1)
    sums = np.clip(ones * high + (c - ones) * low - c * centre, -tau, tau)
    noise = rng.laplace(0.0, 2 * tau / eps, (2, repeats))
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(c, 0, -1) / np.arange(1, c + 1)))])
    totals = []
    for success in (0.5, 0.5 + alpha):
        pmf = np.exp(logs + ones * np.log(success) + (c - ones) * np.log(1 - success))
        totals.append(rng.multinomial(m, pmf / pmf.sum(), repeats) @ sums)
    return float(np.mean(totals[1] + noise[1] > np.quantile(totals[0] + noise[0], 0.95)))


def _detectable(c: int, m: int, eps: float, repeats: int, worst_case: bool, seed: int) -> float:
    """Return the least alpha with power .8, by bisection in its logarithm; 0.49 if there is none below."""
    low, high = 1e-4, 0.49
    if _power(high, c, m, eps, repeats, worst_case, seed) < 0.8:
        return high
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        enough = _power(middle, c, m, eps, repeats, worst_case, seed) >= 0.8
        low, high = (low, middle) if enough else (middle, high)
    return high


def _cells(ns: list[int], cs: list[int], epsilons: list[float], repeats: int, seed: int) -> list[dict[str, Any]]:
    """Measure the detectable alpha wherever the theory's is at most .1."""
    rows = []
    for n in ns:
        for c in cs:
            for eps in epsilons:
                m = n // c
                private = float(np.sqrt(2 * c * np.log(2 * m / 0.05))) / (n * eps)
                f = max(1 / np.sqrt(n), private)
                if f <= 0.1:
                    alpha = _detectable(c, m, eps, repeats, False, seed)
                    worst = _detectable(c, m, eps, repeats, True, seed)
                    rows.append({"n": n, "c": c, "eps": eps, "f": f, "alpha": alpha, "worst": worst})
    return rows


@claim("D8", statement="i.i.d. examples can be tested at distance sqrt(c/n), not c/n-limited", paper="O~(sqrt(c/n))")
def iid_rate(ctx: Context) -> dict:
    """Find the least alpha at which Bernoulli(1/2) and Bernoulli(1/2 + alpha) are told apart with power .8."""
    ns = ctx.pick(small=[1000, 10_000, 100_000], paper=[1000, 10_000, 100_000, 1_000_000], smoke=[10_000])
    cs = ctx.pick(small=[1, 4, 16, 64, 100], paper=[1, 4, 16, 64, 100], smoke=[4])
    repeats = ctx.pick(small=1000, paper=10_000, smoke=50)
    rows = ctx.cache("cells", _cells, ns, cs, [0.1, 1.0], repeats, ctx.seeds[0])
    within = [row["alpha"] / row["f"] for row in rows]
    rate = [row["alpha"] / np.sqrt(row["c"] / row["n"]) for row in rows]
    hard = [r for r in rows if r["c"] >= 64 and r["c"] / (r["n"] * r["eps"]) > 2 / np.sqrt(r["n"])]
    with figure_style():
        fig, ax = plt.subplots()
        for (eps, colour), marker in zip({0.1: PALETTE[0], 1.0: PALETTE[1]}.items(), "os", strict=True):
            mine = [row for row in rows if row["eps"] == eps]
            ax.loglog([r["f"] for r in mine], [r["alpha"] for r in mine], marker, color=colour, label=f"eps {eps:g}")
            ax.loglog([r["f"] for r in mine], [r["worst"] for r in mine], marker, color=colour, alpha=0.35,
                      fillstyle="none", label=f"eps {eps:g}, clipped at cB")  # fmt: skip
        line = np.array([min(row["f"] for row in rows), max(row["f"] for row in rows)])
        ax.loglog(line, line, "--", color="#444444", label="f")
        ax.loglog(line, 4 * line, ":", color="#444444", label="4 f")
        ax.set(xlabel="theory's distance f", ylabel="detectable alpha (power .8, level .05)")
        ax.legend()
    measured = {
        "alpha / f, least": min(within),
        "alpha / f, largest": max(within),
        "alpha / sqrt(c/n), largest": float(max(rate)),
        "cells": len(rows),
        "alpha / worst-case alpha, dense cells": [row["alpha"] / row["worst"] for row in hard],
    }
    holds = max(within) <= 4 and min(within) >= 0.25 and max(rate) <= 10
    holds = holds and all(row["alpha"] < row["worst"] for row in hard)
    caption = f"{repeats} repeats a point; f = max(1/sqrt n, sqrt(2 c log(2m/.05))/(n eps)); hollow: clipped at cB."
    return {"measured": measured, "holds": bool(holds), "figure": ctx.figure("iid.png", fig, caption)}

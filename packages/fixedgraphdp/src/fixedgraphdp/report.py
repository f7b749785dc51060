"""The report of the main verb: what is kept, how good that certainly is, whom it leaves out, and which k to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fixedgraphdp import lp
from fixedgraphdp.bias import BiasReport, bias_report
from fixedgraphdp.bounding import Bounded, bound
from fixedgraphdp.choice import Choice, choose_k
from fixedgraphdp.density import Density, density
from fixedgraphdp.graph import AttributionGraph
from papers_shared.artifacts import PALETTE, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LP_CURVE = 50_000
"""Up to so many incidences the curve over k is drawn against the LP, beyond against greedy's own certificate."""
RESAMPLED = 5_000
"""Up to so many incidences the inclusion probabilities are those of the LP method; beyond, of greedy."""


class Report(NamedTuple):
    """Everything that ``bound`` says about one graph."""

    graph: AttributionGraph
    kept: Bounded
    choice: Choice
    chosen_by_user: bool
    bias: BiasReport
    bias_method: str
    density: Density
    curve: list[dict[str, float | int]]
    skipped: list[str]


def make_report(
    graph: AttributionGraph,
    k: int | None = None,
    *,
    method: str = "lp",
    order: str = "user-degree",
    epsilon: float = 2.0,
    delta: float = 1e-5,
    d: int = 32,
    runs: int = 64,
    seed: int = 0,
    skipped: list[str] | None = None,
    time_limit: float = 600.0,
    progress: Callable[[float, str], None] = lambda share, note: None,
) -> Report:
    """Bound a graph and study the result.

    Parameters
    ----------
    graph, k, method, order, seed
        As in `fixedgraphdp.bounding.bound`; without k, the one that `fixedgraphdp.choice.choose_k` recommends.
    epsilon, delta, d
        The privacy wanted and the dimension of what is learnt, for that recommendation.
    runs
        Draws for the inclusion probabilities.
    skipped
        What the reader of the data left out.
    time_limit
        Seconds for the solver of ``method``, and as many again for the density.
    progress
        Called with the share of the work done and a note.
    """
    progress(0.0, "choice of k")
    choice = choose_k(graph, epsilon, delta, d, order=order, seed=seed)
    budget = choice.best.k if k is None else k
    progress(0.15, "bounding")
    kept = bound(
        graph, budget, method, order=order, key=seed, time_limit=time_limit,
        progress=lambda share, note: progress(0.15 + 0.4 * share, note),
    )  # fmt: skip
    progress(0.55, "bias")
    by = method if method == "lp" and graph.n_incidences <= RESAMPLED else "greedy"
    bias = bias_report(graph, budget, method=by, order=order, runs=runs, seed=seed)
    progress(0.65, "density")
    measured = density(
        graph, time_limit=time_limit, progress=lambda share, note: progress(0.65 + 0.3 * share, f"density, {note}")
    )
    progress(0.95, "curve over k")
    curve = size_curve(graph, sorted({row.k for row in choice.rows} | {budget}), order)
    progress(1.0, "done")
    return Report(graph, kept, choice, k is not None, bias, by, measured, curve, skipped or [])


def size_curve(graph: AttributionGraph, ks: list[int], order: str) -> list[dict[str, float | int]]:
    """Return, for each k, how much greedy keeps in two orders and an upper bound on what anybody can."""
    rows = []
    for k in ks:
        plain, ordered = bound(graph, k), bound(graph, k, order=order)
        upper = min(plain.upper_bound, ordered.upper_bound)
        if graph.n_incidences <= LP_CURVE:
            upper = min(upper, lp.relaxation(graph, k).upper_bound)
        rows.append({"k": k, "greedy_by_size": plain.size, "greedy": ordered.size, "upper_bound": upper})
    return rows


def as_mapping(report: Report) -> dict[str, Any]:
    """Return the report for ``report.json``."""
    kept, graph, best = report.kept, report.graph, report.choice.best
    return {
        "graph": graph.stats(),
        "k": kept.k,
        "k_chosen_by": "user" if report.chosen_by_user else "predicted error",
        "method": kept.method,
        "size": kept.size,
        "kept_share": kept.size / graph.n_examples,
        "lp_value": kept.lp_value,
        "upper_bound": kept.upper_bound,
        "ratio_certificate": kept.ratio_certificate,
        "bias": {
            "cv": report.bias.cv,
            "of": report.bias_method,
            "p_value_all_equal": report.bias.p_value,
            "vanishes": report.bias.vanishes,
            "verdict": report.bias.verdict,
            "by_users_of_example": report.bias.by_size,
            "by_degree_of_busiest_user": report.bias.by_degree,
        },
        "density": report.density._asdict(),
        "recommended_k": {"k": best.k, "why": report.choice.why},
        "error_by_k": [row._asdict() | {"total": row.total} for row in report.choice.rows],
        "size_by_k": report.curve,
        "seconds": kept.seconds,
        "notes": list(kept.notes),
        "skipped": report.skipped,
    }


def density_range(found: Density) -> str | int:
    """Return c, or the range it is certain to lie in."""
    return found.c if found.c_at_least == found.c else f"{found.c_at_least} to {found.c} (the LP's gap leaves it open)"


def as_rows(report: Report) -> list[dict[str, Any]]:
    """Return the report as (what, value) rows for a table."""
    kept, graph = report.kept, report.graph
    source = "given" if report.chosen_by_user else "recommended"
    lp_value = "not solved" if kept.lp_value is None else f"{kept.lp_value:.6g}"
    rows = {
        "examples n": graph.n_examples,
        "users |V|": graph.n_users,
        "users of an example, at most r": graph.r,
        f"budget k ({source})": kept.k,
        "kept examples |S|": kept.size,
        "kept share": f"{kept.size / graph.n_examples:.1%}",
        "LP bound": lp_value,
        "certified share of the optimum": f"{kept.ratio_certificate:.1%}",
        "selection bias CV(p)": f"{report.bias.cv:.3f}",
        "bias": report.bias.verdict,
        "density c (half kept)": density_range(report.density),
        "recommended k": report.choice.best.k,
        "why": report.choice.why,
    }
    rows |= {f"note {i + 1}": note for i, note in enumerate(kept.notes)}
    if report.skipped:
        rows["skipped"] = f"{len(report.skipped)}, first: {report.skipped[0]}"
    return [{"what": what, "value": value} for what, value in rows.items()]


def as_markdown(report: Report) -> str:
    """Return the report as a page, with its three pictures."""
    lines = ["# Contribution bounding", "", "| what | value |", "|---|---|"]
    lines += [f"| {str(row['what']).replace('|', chr(92) + '|')} | {row['value']} |" for row in as_rows(report)]
    lines += ["", "## Which k, and why", "", f"{report.choice.why}.", "", "![Error by k](tradeoff.png)", ""]
    lines += ["| k | kept | CV(p) | bias² | sampling | privacy noise | total |", "|---|---|---|---|---|---|---|"]
    for row in report.choice.rows:
        parts = (row.cv, row.bias_squared, row.sampling, row.noise, row.total)
        lines.append(f"| {row.k} | {row.kept_share:.1%} | " + " | ".join(f"{part:.3g}" for part in parts) + " |")
    lines += ["", "![Kept examples by k](size_vs_k.png)", "", "## Who is left out", "", f"{report.bias.verdict}.", ""]
    lines += ["![Degrees before and after](degrees.png)", ""]
    lines += ["| busiest user's degree | examples | mean p |", "|---|---|---|"]
    lines += [f"| {level} | {count} | {p:.3f} |" for level, count, p in report.bias.by_degree]
    lines += ["", "| bias vanishes, whatever the contents, if | here |", "|---|---|"]
    words = {True: "yes", False: "no", None: "not decided"}
    lines += [f"| {name} | {words[holds]} |" for name, holds in report.bias.vanishes.items()]
    lines += ["| contents are exchangeable given the graph | not a property of the graph |", ""]
    return "\n".join(lines)


def _label(ax: Axes, ks: list[int]) -> None:
    """Mark the budgets on a logarithmic axis; where the last two would touch, the last one only."""
    shown = ks[:-2] + ks[-1:] if len(ks) > 1 and ks[-1] < 1.4 * ks[-2] else ks
    ax.set_xticks(shown, [str(k) for k in shown])
    ax.minorticks_off()


@figure_style(figure_figsize=(9.0, 3.6))
def draw_degrees(report: Report) -> Figure:
    """Draw users' degrees before and after bounding, and inclusion by the busiest user's degree."""
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2)
    top = max(2, int(report.graph.degrees.max(initial=1)))
    for degrees, label, colour in (
        (report.graph.degrees, "all examples", PALETTE[0]),
        (report.kept.user_degrees, "kept examples", PALETTE[1]),
    ):
        values = np.arange(1, top + 1)
        at_least = np.array([(degrees >= value).mean() for value in values])
        shown = at_least > 0
        left.step(values[shown], at_least[shown], where="post", label=label, color=colour)
    left.axvline(report.kept.k, color="#444444", linestyle="--", linewidth=1, label=f"k = {report.kept.k}")
    left.set(xscale="log", yscale="log", xlabel="examples of a user", ylabel="share of users with at least as many")
    left.legend()
    levels = [row[0] for row in report.bias.by_degree]
    p = np.array([row[2] for row in report.bias.by_degree])
    right.bar(range(len(levels)), p, color=PALETTE[2])
    right.axhline(float(report.bias.p.mean()), color="#444444", linestyle="--", linewidth=1, label="mean")
    right.set(xlabel="degree of the example's busiest user", ylabel="probability of being kept", ylim=(0, 1.05))
    right.set_xticks(range(len(levels)), [f"{level}\n({row[1]})" for level, row in
                                          zip(levels, report.bias.by_degree, strict=True)])  # fmt: skip
    right.legend()
    return fig


@figure_style()
def draw_sizes(report: Report) -> Figure:
    """Draw how many examples are kept for each k against the bound on what can be."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    ks = [row["k"] for row in report.curve]
    n = report.graph.n_examples
    for key, label, style in (
        ("upper_bound", "upper bound (certificate)", "-"),
        ("greedy", "greedy, users' degrees", "--"),
        ("greedy_by_size", "greedy, size", ":"),
    ):
        ax.plot(ks, [row[key] / n for row in report.curve], style, marker="o", markersize=3, label=label)
    ax.plot([report.kept.k], [report.kept.size / n], "*", markersize=14, color=PALETTE[1], zorder=5,
            label=f"taken: k = {report.kept.k}, {report.kept.method}")  # fmt: skip
    ax.set(xscale="log", xlabel="budget k per user", ylabel="share of examples kept", ylim=(0, 1.05))
    _label(ax, [int(k) for k in ks])
    ax.legend(loc="lower right")
    return fig


@figure_style()
def draw_tradeoff(report: Report) -> Figure:
    """Draw the three parts of the predicted error over k, and the k that is recommended."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    rows = report.choice.rows
    ks = [row.k for row in rows]
    parts = {"bias²": "bias_squared", "sampling": "sampling", "privacy noise": "noise", "total": "total"}
    for (label, name), marker in zip(parts.items(), "sod^", strict=True):
        values = np.array([getattr(row, name) for row in rows])
        shown = values > 0
        width = 2.4 if name == "total" else 1.2
        ax.plot(np.array(ks)[shown], values[shown], marker=marker, linewidth=width, label=label)
    ax.axvline(report.choice.best.k, color="#444444", linestyle="--", linewidth=1,
               label=f"least total: k = {report.choice.best.k}")  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="budget k per user", ylabel="predicted squared error (SD0²)")
    _label(ax, ks)
    ax.legend()
    return fig

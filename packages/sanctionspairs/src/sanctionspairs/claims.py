"""What the paper claims, re-tested: one function per claim."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from papers_shared.artifacts import figure_style
from papers_shared.claims import Context, claim
from sanctionspairs import empty, update
from sanctionspairs.baselines import METHODS
from sanctionspairs.data import default
from sanctionspairs.variance_reference import exact_variance

OURS = "Welford, chunks"


def _errors(seeds: tuple[int, ...], offsets: list[float], count: int) -> dict[str, list[list[float]]]:
    """Relative error of each method: one row per offset, one column per seed."""
    errors: dict[str, list[list[float]]] = {name: [] for name in (OURS, *METHODS)}
    for offset in offsets:
        rows: dict[str, list[float]] = {name: [] for name in errors}
        for seed in seeds:
            values = default(seed, offset, count)
            exact = exact_variance(values)
            state = empty()
            for chunk in np.array_split(values, 10):
                state = update(state, chunk)
            found = {OURS: state.variance} | {name: method(values) for name, method in METHODS.items()}
            for name, value in found.items():
                rows[name].append(abs(value - exact) / exact)
        for name, row in rows.items():
            errors[name].append(row)
    return errors


@claim(
    "C1",
    statement="the error of one-pass updates grows with the mean over the spread, not with its square",
    paper="bound n ε κ (Chan, Golub, LeVeque 1983)",
    seeds=5,
)
def keeps_accuracy(ctx: Context) -> dict:
    """Compare relative errors with the bound n ε κ as the condition number κ, mean over spread, grows."""
    offsets = [10.0**k for k in range(10)]
    count = ctx.pick(small=2000, paper=20_000, smoke=50)
    errors = ctx.cache("errors", _errors, ctx.seeds, offsets, count)
    with figure_style():
        fig, ax = plt.subplots()
        for name, rows in errors.items():
            low, middle, high = np.maximum(np.quantile(np.array(rows), [0, 0.5, 1], axis=1), 1e-17)
            ax.loglog(offsets, middle, marker="o", label=name)
            ax.fill_between(offsets, low, high, alpha=0.2)
        ax.set(xlabel="mean of the data (standard deviations)", ylabel="relative error of the variance")
        ax.legend()
    bound = count * np.finfo(float).eps * np.hypot(1, offsets)[:, None]
    worst = {name: float(np.max(np.array(rows) / bound)) for name, rows in errors.items()}
    caption = f"Median and range over {len(ctx.seeds)} seeds against exact rational arithmetic."
    return {
        "measured": {f"largest error / bound, {name}": value for name, value in worst.items()},
        "holds": worst[OURS] <= 1,
        "figure": ctx.figure("error.png", fig, caption),
    }

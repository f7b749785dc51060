"""The paper's claims, re-tested: one function a claim, on rendered edits (small) or on PIE-Bench (paper).

At ``--scale paper`` the folders are named by environment variables: ``BITRESEDIT_INFINITY`` (transformer, VAE, T5),
``BITRESEDIT_PIEBENCH`` (``mapping_file.json`` and ``annotation_images``), ``BITRESEDIT_CLIP``, and optionally
``BITRESEDIT_DINO``; ``BITRESEDIT_DEVICE`` chooses the device (cuda if there is one).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from bitresedit import EditConfig, EditItem, Editor, EditResult, Infinity, SceneVAR, bench, piebench
from bitresedit.baselines import METHODS
from bitresedit.data import BACKGROUND_KINDS, OBJECT_KINDS, load_sample, suite
from bitresedit.editor import default_config
from bitresedit.probe import Probe
from bitresedit.scores import edge_distance
from papers_shared.artifacts import PALETTE, figure_style
from papers_shared.claims import Context, claim
from papers_shared.cli import track
from papers_shared.errors import InputError
from papers_shared.metrics import bootstrap_interval, paired_bootstrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BATCH = 8
LABELS = {
    "bitresedit": "BitResEdit",
    "aredit_mask": "AREdit (mask)",
    "aredit": "AREdit",
    "editinfinity_blend": "EditInfinity blend",
    "inpaint": "no BitEdit (η=0)",
    "bitedit_only": "no ResEdit (g=1)",
    "regenerate": "regenerate",
}
ETAS = (1.0, 2.0, 4.0)
DELTAS = (0.1, 0.3, 1.0, float("inf"))


def load_world(scale: str, kinds: Sequence[str], count: int) -> tuple[Any, list[bench.Task], bench.Scorer]:
    """Load the model, the suite and its scorer of a scale.

    ``kinds`` and ``count`` choose the rendered edits; PIE-Bench gives its first ``count`` items, of the background
    type only if ``kinds`` are those of backgrounds.
    """
    if scale != "paper":
        tasks, score = bench.scene_tasks(suite(count, kinds), Probe.load_default())
        return SceneVAR.load_default(), tasks, score
    models, data, clip = (_folder(f"BITRESEDIT_{name}") for name in ("INFINITY", "PIEBENCH", "CLIP"))
    dino = os.environ.get("BITRESEDIT_DINO")
    device = os.environ.get("BITRESEDIT_DEVICE", "cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    items = piebench.load(data / "mapping_file.json", data)
    if tuple(kinds) == BACKGROUND_KINDS:
        items = [item for item in items if item.mask.mean() >= 0.5]
    metrics = piebench.Metrics(clip=clip, dino=dino, device=device)
    tasks, _ = bench.piebench_tasks(items[:count], metrics)
    return Infinity.from_folder(models, "0.25M", device, dtype), tasks, _piebench_scorer(metrics)


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        raise InputError(f"--scale paper needs the folder in {variable}", "see 'Scaling up' in the README")
    return Path(value)


def _piebench_scorer(metrics: piebench.Metrics) -> bench.Scorer:
    """Score PIE-Bench edits in the columns of the rendered suite; probabilities become CLIP scores / 100."""

    def score(tasks: Sequence[bench.Task], results: Sequence[EditResult]) -> list[dict[str, Any]]:
        rows = []
        for task, result in zip(tasks, results, strict=True):
            item, picture = task.origin, result.image.resize((512, 512))
            new = metrics.measure(item.image(), picture, item.mask, item.target)
            old = metrics.measure(item.image(), picture, item.mask, item.source)
            distance = new.get("structure", edge_distance(result.pixels, result.source_pixels))
            alignment, leak = new["clip_edit"] / 100, old["clip_edit"] / 100
            rows.append({"kind": item.editing_type, "target_correct": alignment, "target_probability": alignment,
                         "source_probability": leak, "background_psnr": new["psnr"], "edge_distance": distance,
                         "kept_difference": result.kept_difference()})  # fmt: skip
        return rows

    return score


def run_edits(
    scale: str,
    seeds: Sequence[int],
    methods: Sequence[str],
    kinds: Sequence[str],
    count: int,
    changes: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Edit a suite with several methods and give one row an edit.

    Parameters
    ----------
    scale, kinds, count
        As in :func:`load_world`.
    seeds
        Of the sampler; every item is edited once with each.
    methods
        Names of methods.
    changes
        Settings that differ from the backbone's.

    Returns
    -------
    pandas.DataFrame
        ``method``, ``id``, ``seed``, the scorer's columns, and ``kl_max``: the largest divergence of any bit.
    """
    backbone, tasks, score = load_world(scale, kinds, count)
    config = dataclasses.replace(default_config(backbone), **(changes or {}))
    jobs = [(task, seed) for task in tasks for seed in seeds]
    chunks = [(name, jobs[i : i + BATCH]) for name in methods for i in range(0, len(jobs), BATCH)]
    rows = []
    for name, chunk in track(chunks, f"{len(jobs)} edits, {len(methods)} method{'s' if len(methods) > 1 else ''}"):
        editor = Editor(backbone, config, METHODS[name])
        results = editor.edit_batch([dataclasses.replace(task.item, seed=seed) for task, seed in chunk])
        scores = score([task for task, _ in chunk], results)
        for (task, seed), result, values in zip(chunk, results, scores, strict=True):
            largest = max(row.kl_max for row in result.trace)
            rows.append({"method": name, "id": task.id, "seed": seed, **values, "kl_max": largest})
    return pd.DataFrame(rows)


def main_edits(ctx: Context) -> pd.DataFrame:
    """Edit the main suite with every method, once for all claims that read it."""
    count = ctx.pick(small=60, paper=700, smoke=4)
    names = tuple(LABELS)
    return ctx.cache("main", run_edits, ctx.scale, ctx.seeds, names, OBJECT_KINDS, count)


def compare(table: pd.DataFrame, first: str, second: str, column: str) -> Any:
    """Give the interval of ``mean(first - second)``, paired by item and seed, items drawn as clusters."""
    a, b = (table[table.method == name].sort_values(["id", "seed"]) for name in (first, second))
    values = [np.minimum(part[column].astype(float).to_numpy(), 99.0) for part in (a, b)]
    known = ~np.isnan(values[0] + values[1])
    return paired_bootstrap(values[0][known], values[1][known], clusters=a["id"].to_numpy()[known])


def mean_interval(table: pd.DataFrame, column: str) -> Any:
    """Give the interval of a column's mean, items drawn as clusters; infinite PSNR counts as 99 dB."""
    values = np.minimum(table[column].astype(float).to_numpy(), 99.0)
    known = ~np.isnan(values)
    return bootstrap_interval(values[known], clusters=table["id"].to_numpy()[known])


@claim(
    "B1",
    statement="edits show the target more often than those of the strongest same-backbone editor",
    paper="CLIP-edit +1.07 on PIE-Bench",
    seeds=3,
)
def target_alignment(ctx: Context) -> dict[str, Any]:
    """Compare the probe's accuracy inside the mask with AREdit's under the same mask."""
    table = main_edits(ctx)
    gain = compare(table, "bitresedit", "aredit_mask", "target_correct")
    with figure_style(figure_figsize=(7.0, 3.6)):
        fig, ax = _axes()
        _bars(ax, table, LABELS, "target_correct")
        ax.set_xlabel("edits that show every changed factor as asked (probe, inside the mask)")
        ax.set_xlim(0, 1)
    caption = _caption(ctx, table, "Share of edits judged right; 95% bootstrap over pictures")
    return {
        "measured": {
            "gain": gain,
            **{
                name: mean_interval(table[table.method == name], "target_correct")
                for name in ("bitresedit", "aredit_mask")
            },
        },
        "holds": gain.low > 0,
        "figure": ctx.figure("b1_alignment.png", fig, caption),
    }


@claim(
    "B2",
    statement="the background is kept about as well as by AREdit, and far better than without ResEdit",
    paper="competitive: 24.26 dB against 26.00 dB, 25.04 dB with the lock",
    seeds=3,
)
def background(ctx: Context) -> dict[str, Any]:
    """Compare background PSNR outside the mask."""
    table = main_edits(ctx)
    to_aredit = compare(table, "bitresedit", "aredit_mask", "background_psnr")
    to_open = compare(table, "bitresedit", "bitedit_only", "background_psnr")
    with figure_style(figure_figsize=(5.6, 4.0)):
        fig, ax = _axes()
        for colour, (name, label) in zip([*PALETTE[:6], "#888888"], LABELS.items(), strict=True):
            rows = table[table.method == name]
            x, y = mean_interval(rows, "background_psnr"), mean_interval(rows, "target_correct")
            ax.errorbar(x.value, y.value, xerr=_arms(x), yerr=_arms(y), fmt="o", color=colour, label=label)
        ax.set_xlabel("background PSNR outside the mask (dB)")
        ax.set_ylabel("target accuracy inside the mask")
        ax.legend(loc="best")
    caption = _caption(ctx, table, "Right and up is better; bars: 95% bootstrap over pictures")
    return {
        "measured": {"minus_aredit_mask_db": to_aredit, "minus_bitedit_only_db": to_open},
        "holds": to_aredit.value >= -1.5 and to_open.value >= 6,
        "figure": ctx.figure("b2_background.png", fig, caption),
    }


@claim("B3", statement="BitEdit is needed: without its tilt the target shows less often and the source leaks through",
       paper="ablation: lower CLIP-edit without BitEdit", seeds=3)  # fmt: skip
def needs_bitedit(ctx: Context) -> dict[str, Any]:
    """Compare with eta = 0."""
    table = main_edits(ctx)
    drop = compare(table, "inpaint", "bitresedit", "target_correct")
    leak = compare(table, "inpaint", "bitresedit", "source_probability")
    return {
        "measured": {"accuracy_change": drop, "source_leakage_change": leak},
        "holds": drop.high < 0 and leak.value > 0,
        "figure": _ablation_figure(ctx, table),
    }


@claim("B4", statement="ResEdit is needed: without the gate the background is lost",
       paper="ablation: background falls without ResEdit", seeds=3)  # fmt: skip
def needs_resedit(ctx: Context) -> dict[str, Any]:
    """Compare with g = 1 everywhere."""
    table = main_edits(ctx)
    drop = compare(table, "bitedit_only", "bitresedit", "background_psnr")
    return {
        "measured": {"background_psnr_change_db": drop},
        "holds": drop.value <= -6,
        "figure": _ablation_figure(ctx, table),
    }


@claim("B5", statement="the trust region keeps strong tilts from breaking the edit, and no bit exceeds it",
       paper="ablation over eta and delta")  # fmt: skip
def trust_region_helps(ctx: Context) -> dict[str, Any]:
    """Sweep the tilt and the trust region."""
    count = ctx.pick(small=30, paper=140, smoke=2)
    runs = {}
    for factor in ctx.pick(small=ETAS, paper=ETAS, smoke=(4.0,)):
        for delta in ctx.pick(small=DELTAS, paper=DELTAS, smoke=(0.3, float("inf"))):
            changes = {"eta": factor * EditConfig.eta, "delta": delta}
            args = (ctx.scale, ctx.seeds, ("bitresedit",), OBJECT_KINDS, count, changes)
            runs[factor, delta] = ctx.cache("sweep", run_edits, *args)
    both = pd.concat([runs[4.0, delta].assign(method=str(delta)) for delta in (0.3, float("inf"))])
    gain = compare(both, "0.3", "inf", "target_correct")
    excess = max(float(rows.kl_max.max()) - delta for (_, delta), rows in runs.items() if delta < float("inf"))
    with figure_style(figure_figsize=(5.6, 3.8)):
        fig, ax = _axes()
        for colour, delta in zip(PALETTE, sorted({d for _, d in runs}), strict=False):
            points = [(f, mean_interval(runs[f, d], "target_correct")) for f, d in runs if d == delta]
            x = np.array([f for f, _ in points]) * (1 + 0.02 * (DELTAS.index(delta) - 1.5))
            arms = np.concatenate([_arms(p) for _, p in points], axis=1)
            ax.errorbar(x, [p.value for _, p in points], yerr=arms, fmt="o-", color=colour, label=f"δ = {delta:g}")
        ax.set_xscale("log", base=2)
        ax.set_xticks(ETAS, [f"{f:g}" for f in ETAS])
        ax.set_xlabel("tilt η, in units of the default")
        ax.set_ylabel("target accuracy inside the mask")
        ax.legend(title="trust region (nats)", loc="best")
    caption = _caption(ctx, runs[4.0, 0.3], "Each point: one run; bars: 95% bootstrap over pictures")
    accuracy = {f"eta_x{f:g}_delta_{d:g}": float(rows.target_correct.mean()) for (f, d), rows in runs.items()}
    return {
        "measured": {"gain_at_eta_x4": gain, "largest_kl_minus_delta": excess, **accuracy},
        "holds": gain.value > 0 and excess <= 1e-6,
        "figure": ctx.figure("b5_trust_region.png", fig, caption),
    }


@claim("B6", statement="codes where the gate is closed are the source's, bit by bit",
       paper="preserved exactly by code arithmetic", seeds=3)  # fmt: skip
def exact_preservation(ctx: Context) -> dict[str, Any]:
    """Measure the largest difference of edited and source codes where the gate is 0."""
    table = main_edits(ctx)
    gated = table[table.method.isin(["bitresedit", "inpaint", "editinfinity_blend"])]
    ours = gated[gated.method == "bitresedit"]
    largest = float(ours.kept_difference.max())
    result = ctx.cache("heat", heat_map, ctx.scale)
    with figure_style(figure_figsize=(7.2, 2.9), axes_grid=False):
        fig, axes = _axes(1, 2)
        for ax, (title, values) in zip(axes, result.items(), strict=True):
            shown = np.ma.masked_equal(values, 0)
            picture = ax.imshow(shown, cmap="viridis", interpolation="nearest", vmin=0)
            ax.set_facecolor("#eeeeee")
            ax.set_title(title)
            ax.set_xticks([])
            ax.set_yticks([])
            fig.colorbar(picture, ax=ax, shrink=0.85)
    caption = _caption(ctx, ours, "One edit; grey cells are exactly 0, in the gate and in the codes' change alike")
    return {
        "measured": {"largest_difference": largest, "edits": len(ours)},
        "holds": largest == 0.0,
        "figure": ctx.figure("b6_preservation.png", fig, caption),
    }


def heat_map(scale: str) -> dict[str, np.ndarray]:
    """Give the gate and the largest change of the codes by cell, for the first edit of a scale."""
    if scale == "paper":
        backbone, tasks, _ = load_world(scale, OBJECT_KINDS, 1)
        item = tasks[0].item
    else:
        backbone, bundled = SceneVAR.load_default(), load_sample()
        item = EditItem(bundled.image, bundled.source, bundled.target, bundled.mask)
    result = Editor(backbone).edit(item.image, item.source, item.target, item.mask)
    change = (result.latent - result.source_latent).abs().amax(1)[0]
    return {"gate g": result.gate[0, 0].numpy(), "max |F_edit − F_source|": change.numpy()}


@claim("B7", statement="the structure lock keeps more of the source's structure and does not show the target more",
       paper="structure .0578 to .0360, CLIP-edit 24.00 to 23.20", seeds=3)  # fmt: skip
def lock_trade_off(ctx: Context) -> dict[str, Any]:
    """Edit backgrounds (mask of half the picture or more) with and without the lock."""
    count = ctx.pick(small=24, paper=80, smoke=2)
    args = (ctx.scale, ctx.seeds, ("bitresedit",), BACKGROUND_KINDS, count)
    runs = {lock: ctx.cache("lock", run_edits, *args, {"lock": lock}) for lock in ("off", "on")}
    both = pd.concat([rows.assign(method=lock) for lock, rows in runs.items()])
    structure = compare(both, "on", "off", "edge_distance")
    alignment = compare(both, "on", "off", "target_correct")
    with figure_style(figure_figsize=(6.8, 3.4)):
        fig, axes = _axes(1, 2)
        named = (
            ("edge_distance", "edge-map distance to the source"),
            ("target_probability", "asked look (probability)"),
        )
        for ax, (column, label) in zip(axes, named, strict=True):
            means = both.groupby(["id", "method"])[column].mean().unstack()
            ax.plot([0, 1], means[["off", "on"]].to_numpy().T, color="#bbbbbb", linewidth=0.8)
            for place, lock in enumerate(("off", "on")):
                value = mean_interval(runs[lock], column)
                ax.errorbar(place, value.value, yerr=_arms(value), fmt="o", color=PALETTE[place], markersize=7)
            ax.set_xticks([0, 1], ["lock off", "lock on"])
            ax.set_xlim(-0.3, 1.3)
            ax.set_ylabel(label)
    caption = _caption(ctx, runs["on"], "Ground and sky edits; grey: one picture, dots: mean with 95% bootstrap")
    return {
        "measured": {"edge_distance_change": structure, "accuracy_change": alignment},
        "holds": structure.high < 0 and alignment.low <= 0,
        "figure": ctx.figure("b7_lock.png", fig, caption),
    }


def _ablation_figure(ctx: Context, table: pd.DataFrame) -> str:
    columns = {
        "target_correct": "target accuracy",
        "source_probability": "source leakage (probability)",
        "background_psnr": "background PSNR (dB)",
    }
    labels = {name: LABELS[name] for name in ("bitresedit", "inpaint", "bitedit_only", "regenerate")}
    with figure_style(figure_figsize=(9.4, 2.6)):
        fig, axes = _axes(1, 3)
        for ax, (column, label) in zip(axes, columns.items(), strict=True):
            _bars(ax, table, labels, column)
            ax.set_xlabel(label)
            if ax is not axes[0]:
                ax.set_yticklabels([])
    caption = _caption(ctx, table, "Each half of the method switched off; bars: 95% bootstrap over pictures")
    return ctx.figure("b3_b4_ablations.png", fig, caption)


def _axes(rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    fig = Figure(layout="constrained")
    return fig, fig.subplots(rows, columns)


def _bars(ax: Axes, table: pd.DataFrame, labels: Mapping[str, str], column: str) -> None:
    values = [mean_interval(table[table.method == name], column) for name in labels]
    places = np.arange(len(labels))[::-1]
    colours = [PALETTE[0], *["#9db8c9"] * (len(labels) - 1)]
    arms = np.concatenate([_arms(v) for v in values], axis=1)
    ax.barh(places, [v.value for v in values], xerr=arms, color=colours, height=0.7, ecolor="#333333")
    ax.set_yticks(places, list(labels.values()))
    ax.grid(axis="y", visible=False)


def _arms(interval: Any) -> np.ndarray:
    return np.array([[interval.value - interval.low], [interval.high - interval.value]]).clip(min=0)


def _caption(ctx: Context, table: pd.DataFrame, what: str) -> str:
    data = "PIE-Bench pictures, Infinity-2B" if ctx.scale == "paper" else "rendered scenes, bundled 96-pixel model"
    seeds = len(ctx.seeds)
    return f"{what}. {table['id'].nunique()} {data}, {seeds} seed{'s' if seeds > 1 else ''}."

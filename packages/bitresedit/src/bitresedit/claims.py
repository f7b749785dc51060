"""The paper's claims, re-tested: one function a claim, on rendered edits (small) or on PIE-Bench (paper).

The edits come from :mod:`bitresedit.claim_edits`, which also says what ``--scale paper`` needs; the figures are drawn
by :mod:`bitresedit.claim_figures`.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from bitresedit import EditConfig
from bitresedit import claim_figures as figures
from bitresedit.claim_edits import compare, heat_map, mean_interval, run_edits
from bitresedit.data import BACKGROUND_KINDS, OBJECT_KINDS
from papers_shared.claims import Context, claim

ETAS = (1.0, 2.0, 4.0)
DELTAS = (0.1, 0.3, 1.0, float("inf"))


def main_edits(ctx: Context) -> pd.DataFrame:
    """Edit the main suite with every method; all claims that read it share the edits."""
    return run_edits(ctx, tuple(figures.LABELS), OBJECT_KINDS, ctx.pick(small=60, paper=700, smoke=2))


@claim("B1", statement="edits show the target more often than those of the strongest same-backbone editor",
       paper="CLIP-edit +1.07 on PIE-Bench", seeds=3)  # fmt: skip
def target_alignment(ctx: Context) -> dict[str, Any]:
    """Compare the accuracy inside the mask with AREdit's under the same mask."""
    table = main_edits(ctx)
    gain = compare(table, "bitresedit", "aredit_mask", "target_correct")
    each = {
        name: mean_interval(table[table.method == name], "target_correct") for name in ("bitresedit", "aredit_mask")
    }
    what = "Does the edit show what was asked? 95% bootstrap over pictures"
    return {
        "measured": {"gain": gain, **each},
        "holds": gain.low > 0,
        "figure": figures.bars(ctx, "b1_alignment.png", table, figures.LABELS, ["target_correct"], what),
    }


@claim("B2", statement="the background is kept about as well as by AREdit, and far better than without ResEdit",
       paper="competitive: 24.26 dB against 26.00 dB, 25.04 dB with the lock", seeds=3)  # fmt: skip
def background(ctx: Context) -> dict[str, Any]:
    """Compare background PSNR outside the mask."""
    table = main_edits(ctx)
    to_aredit = compare(table, "bitresedit", "aredit_mask", "background_psnr")
    to_open = compare(table, "bitresedit", "bitedit_only", "background_psnr")
    what = "Right and up is better; bars: 95% bootstrap over pictures"
    return {
        "measured": {"minus_aredit_mask_db": to_aredit, "minus_bitedit_only_db": to_open},
        "holds": to_aredit.value >= -1.5 and to_open.value >= 6,
        "figure": figures.scatter(ctx, "b2_background.png", table, "background_psnr", "target_correct", what),
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
        "figure": _ablations(ctx, table),
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
        "figure": _ablations(ctx, table),
    }


def _ablations(ctx: Context, table: pd.DataFrame) -> str:
    methods = ("bitresedit", "inpaint", "bitedit_only", "regenerate")
    columns = ("target_correct", "source_probability", "background_psnr")
    what = "Each half of the method switched off; bars: 95% bootstrap over pictures"
    return figures.bars(ctx, "b3_b4_ablations.png", table, methods, columns, what)


@claim("B5", statement="the trust region keeps strong tilts from breaking the edit, and no bit exceeds it",
       paper="ablation over eta and delta")  # fmt: skip
def trust_region_helps(ctx: Context) -> dict[str, Any]:
    """Sweep the tilt and the trust region."""
    count = ctx.pick(small=30, paper=140, smoke=2)
    runs = {
        (factor, delta): run_edits(
            ctx, ("bitresedit",), OBJECT_KINDS, count, {"eta": factor * EditConfig.eta, "delta": delta}
        )
        for factor in ctx.pick(small=ETAS, paper=ETAS, smoke=(4.0,))
        for delta in ctx.pick(small=DELTAS, paper=DELTAS, smoke=(0.3, float("inf")))
    }
    both = pd.concat([runs[4.0, delta].assign(method=str(delta)) for delta in (0.3, float("inf"))])
    gain = compare(both, "0.3", "inf", "target_correct")
    excess = max(float(rows.kl_max.max()) - delta for (_, delta), rows in runs.items() if delta < float("inf"))
    accuracy = {f"eta_x{f:g}_delta_{d:g}": float(rows.target_correct.mean()) for (f, d), rows in runs.items()}
    columns = ("target_correct", "background_psnr")
    what = "Each point: one run; bars: 95% bootstrap over pictures"
    return {
        "measured": {"gain_at_eta_x4": gain, "largest_kl_minus_delta": excess, **accuracy},
        "holds": gain.value > 0 and excess <= 1e-6,
        "figure": figures.sweep(ctx, "b5_trust_region.png", runs, columns, what),
    }


@claim("B6", statement="codes where the gate is closed are the source's, bit by bit",
       paper="preserved exactly by code arithmetic", seeds=3)  # fmt: skip
def exact_preservation(ctx: Context) -> dict[str, Any]:
    """Measure the largest difference of edited and source codes where the gate is 0."""
    table = main_edits(ctx)
    ours = table[table.method == "bitresedit"]
    largest = float(ours.kept_difference.max())
    gate, change = ctx.cache("heat", heat_map, ctx.scale)
    pictures = {"gate $g$": gate, r"largest $|F_\mathrm{edit} - F_\mathrm{source}|$ of a cell": change}
    what = "One edit; grey cells are exactly 0, in the gate and in the codes' change alike. Measured on all edits"
    return {
        "measured": {"largest_difference": largest, "edits": len(ours)},
        "holds": largest == 0.0,
        "figure": figures.maps(ctx, "b6_preservation.png", pictures, ours, what),
    }


@claim("B7", statement="the structure lock keeps more of the source's structure and does not show the target more",
       paper="structure .0578 to .0360, CLIP-edit 24.00 to 23.20", seeds=3)  # fmt: skip
def lock_trade_off(ctx: Context) -> dict[str, Any]:
    """Edit backgrounds (mask of half the picture or more) with and without the lock."""
    count = ctx.pick(small=24, paper=80, smoke=2)
    runs = {
        f"lock {lock}": run_edits(ctx, ("bitresedit",), BACKGROUND_KINDS, count, {"lock": lock})
        for lock in ("off", "on")
    }
    both = pd.concat([rows.assign(method=run) for run, rows in runs.items()])
    structure = compare(both, "lock on", "lock off", "edge_distance")
    alignment = compare(both, "lock on", "lock off", "target_correct")
    columns = ("edge_distance", "target_probability")
    what = "Edits of most of the picture; grey: one picture, dots: mean with 95% bootstrap"
    return {
        "measured": {"edge_distance_change": structure, "accuracy_change": alignment},
        "holds": structure.high < 0 and alignment.low <= 0,
        "figure": figures.pairs(ctx, "b7_lock.png", runs, columns, what),
    }

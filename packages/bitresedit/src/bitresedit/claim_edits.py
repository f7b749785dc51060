"""The edits that the claims are measured on: rendered scenes (small), or PIE-Bench with Infinity (paper).

At ``--scale paper`` the folders are named by environment variables: ``BITRESEDIT_INFINITY`` (transformer, VAE, T5),
``BITRESEDIT_PIEBENCH`` (``mapping_file.json`` and ``annotation_images``), ``BITRESEDIT_CLIP``, and optionally
``BITRESEDIT_DINO`` (else edge maps stand in for structure). ``BITRESEDIT_DEVICE`` chooses the device (cuda if there is
one), ``BITRESEDIT_PN`` the pixel budget (0.25M: 512 x 512).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bitresedit import EditItem, Editor, EditResult, Infinity, SceneVAR, bench, piebench
from bitresedit.baselines import METHODS
from bitresedit.data import BACKGROUND_KINDS, load_sample, suite
from bitresedit.editor import default_config
from bitresedit.probe import Probe
from bitresedit.scores import edge_distance
from papers_shared.claims import Context
from papers_shared.errors import InputError
from papers_shared.metrics import Interval, bootstrap_interval, paired_bootstrap

_AT_ONCE = {"paper": 4}
"""Edits in a batch, by scale: four of Infinity-2B's fit a card of 24 GB."""


@dataclasses.dataclass(frozen=True)
class World:
    """A model, what to edit with it, and how to score the edits."""

    backbone: Any
    tasks: list[bench.Task]
    score: bench.Scorer


@lru_cache(maxsize=4)
def load_world(scale: str, kinds: tuple[str, ...], count: int) -> World:
    """Load the model, the suite and its scorer of a scale.

    Parameters
    ----------
    scale
        ``"paper"`` or another.
    kinds, count
        The rendered edits. PIE-Bench gives as many items spread evenly over its list, which is sorted by type; only
        those masked by half or more if ``kinds`` are those of backgrounds.

    Raises
    ------
    InputError
        If a folder that the paper's scale needs is not named, or cannot be read.
    """
    if scale != "paper":
        return World(SceneVAR.load_default(), *bench.scene_tasks(suite(count, kinds), Probe.load_default()))
    models, data, clip = (_folder(f"BITRESEDIT_{name}") for name in ("INFINITY", "PIEBENCH", "CLIP"))
    items = piebench.load(data / "mapping_file.json", data)
    if kinds == BACKGROUND_KINDS:
        items = [item for item in items if item.mask.mean() >= 0.5]
    chosen = [items[i * len(items) // count] for i in range(count)] if count < len(items) else items
    device = os.environ.get("BITRESEDIT_DEVICE", "cuda" if torch.cuda.is_available() else "cpu")
    dino, budget = os.environ.get("BITRESEDIT_DINO"), os.environ.get("BITRESEDIT_PN", "0.25M")
    backbone, metrics = _paper_models(models, clip, dino, budget, device)
    tasks, _ = bench.piebench_tasks(chosen, metrics)
    return World(backbone, tasks, _piebench_scorer(metrics))


@lru_cache(maxsize=1)
def _paper_models(
    models: Path, clip: Path, dino: str | None, budget: str, device: str
) -> tuple[Infinity, piebench.Metrics]:
    dtype = torch.bfloat16 if device.startswith("cuda") else torch.float32
    metrics = piebench.Metrics(clip=clip, dino=dino, device=device)
    return Infinity.from_folder(models, budget, device, dtype), metrics


def _folder(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        raise InputError(f"--scale paper needs the folder in {variable}", "see 'Scaling up' in the README")
    return Path(value)


def _piebench_scorer(metrics: piebench.Metrics) -> bench.Scorer:
    """Score PIE-Bench edits in the columns of the rendered suite, with CLIP scores in the place of the probe."""

    def score(tasks: Sequence[bench.Task], results: Sequence[EditResult]) -> list[dict[str, Any]]:
        """Give one row an edit."""
        rows = []
        for task, result in zip(tasks, results, strict=True):
            item, picture = task.origin, result.image.resize((512, 512))
            wanted = ("structure", "psnr", "clip_edit")
            new = metrics.measure(item.image(), picture, item.mask, item.target, wanted)
            old = metrics.measure(item.image(), picture, item.mask, item.source, ("clip_edit",))
            distance = new.get("structure", edge_distance(result.pixels, result.source_pixels))
            rows.append({"kind": item.editing_type, "target_correct": new["clip_edit"],
                         "target_probability": new["clip_edit"], "source_probability": old["clip_edit"],
                         "background_psnr": new["psnr"], "edge_distance": distance,
                         "kept_difference": result.kept_difference()})  # fmt: skip
        return rows

    return score


def run_edits(
    ctx: Context,
    methods: Sequence[str],
    kinds: tuple[str, ...],
    count: int,
    changes: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Edit a suite with several methods and give one row an edit; finished batches are kept for ``--resume``.

    Parameters
    ----------
    ctx
        Scale, and the seeds of the sampler: every item is edited once with each.
    methods
        Names of methods.
    kinds, count
        As in :func:`load_world`.
    changes
        Settings that differ from the backbone's.

    Returns
    -------
    pandas.DataFrame
        ``method``, ``id``, ``seed``, the scorer's columns, and ``kl_max``: the largest divergence of any bit.
    """
    jobs = len(load_world(ctx.scale, kinds, count).tasks) * len(ctx.seeds)
    chunks = [(name, start) for name in methods for start in range(0, jobs, _AT_ONCE.get(ctx.scale, 8))]
    rows = []
    for name, start in ctx.track(chunks, f"{jobs} edits, {len(methods)} method{'s' if len(methods) > 1 else ''}"):
        arguments = (ctx.scale, ctx.seeds, kinds, count, name, start, dict(changes or {}))
        rows += ctx.cache("edits", edit_chunk, *arguments)
    return pd.DataFrame(rows)


def edit_chunk(
    scale: str,
    seeds: Sequence[int],
    kinds: tuple[str, ...],
    count: int,
    method: str,
    start: int,
    changes: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Edit and score one batch of a suite: the jobs (item by item, seed by seed) from number ``start``."""
    world = load_world(scale, kinds, count)
    jobs = [(task, seed) for task in world.tasks for seed in seeds][start : start + _AT_ONCE.get(scale, 8)]
    config = dataclasses.replace(default_config(world.backbone), **changes)
    editor = Editor(world.backbone, config, METHODS[method])
    results = editor.edit_batch([dataclasses.replace(task.item, seed=seed) for task, seed in jobs])
    scores = world.score([task for task, _ in jobs], results)
    return [
        {"method": method, "id": task.id, "seed": seed, **values, "kl_max": max(row.kl_max for row in result.trace)}
        for (task, seed), result, values in zip(jobs, results, scores, strict=True)
    ]


def heat_map(scale: str) -> tuple[np.ndarray, np.ndarray]:
    """Give the gate and the largest change of the codes by cell, for the first edit of a scale."""
    if scale == "paper":
        world = load_world(scale, (), 1)
        backbone, item = world.backbone, world.tasks[0].item
    else:
        backbone, bundled = SceneVAR.load_default(), load_sample()
        item = EditItem(bundled.image, bundled.source, bundled.target, bundled.mask)
    [result] = Editor(backbone).edit_batch([item])
    change = (result.latent - result.source_latent).abs().amax(1)[0]
    return result.gate[0, 0].numpy(), change.numpy()


def compare(table: pd.DataFrame, first: str, second: str, column: str) -> Interval:
    """Give the interval of ``mean(first - second)``, paired by item and seed, items drawn as clusters."""
    a, b = (table[table.method == name].sort_values(["id", "seed"]) for name in (first, second))
    values = [_finite(part, column) for part in (a, b)]
    known = ~np.isnan(values[0] + values[1])
    return paired_bootstrap(values[0][known], values[1][known], clusters=a["id"].to_numpy()[known])


def mean_interval(table: pd.DataFrame, column: str) -> Interval:
    """Give the interval of a column's mean, items drawn as clusters; missing values are left out."""
    values = _finite(table, column)
    known = ~np.isnan(values)
    return bootstrap_interval(values[known], clusters=table["id"].to_numpy()[known])


def _finite(table: pd.DataFrame, column: str) -> np.ndarray:
    # The PSNR of an untouched background is infinite: it counts as 99 dB.
    return np.minimum(table[column].astype(float).to_numpy(), 99.0)

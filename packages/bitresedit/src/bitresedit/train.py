"""Train the bundled scene model from nothing: render, tokenizer, encode, transformer, probe, gates, files.

Every stage keeps its state in the run's folder, so a killed run goes on where it stopped, with the same result. What
was measured is written beside the weights, whether the gates hold or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.config import EditConfig
from bitresedit.optimisation import Precision, TrainingState, faster_precision
from bitresedit.probe import Probe, train_probe
from bitresedit.recipes import Recipe, recipe
from bitresedit.rendered import RenderedScenes, rendered_scenes
from bitresedit.rollout import generate
from bitresedit.scene_model import SceneModel
from bitresedit.tokenizer import SceneTokenizer
from bitresedit.train_tokenizer import measure_psnr, train_tokenizer
from bitresedit.train_transformer import encoded_scenes, train_transformer
from papers_shared.artifacts import (
    RunDir,
    figure_style,
    provenance,
    write_figure,
    write_json,
    write_png,
    write_safetensors,
)
from papers_shared.cli import progress


@dataclass(frozen=True)
class TrainingResult:
    """What a finished training left.

    Attributes
    ----------
    weights, record, figure, samples
        The float16 weights, the record of the run, its loss curves, and a sheet of sampled pictures.
    gates
        Measured value, bound and verdict of each gate.
    """

    weights: Path
    record: Path
    figure: Path
    samples: Path
    gates: dict[str, dict[str, float | bool]]


def train(
    name: str | Recipe,
    folder: str | Path,
    seed: int = 0,
    precision: Literal["auto", "fp32", "bf16"] = "auto",
    resume: bool = False,
    force: bool = False,
    every: int = 250,
) -> TrainingResult:
    """Train a recipe, or continue a run that was stopped.

    Parameters
    ----------
    name
        Name of a recipe (:func:`~bitresedit.recipes.recipe`), or one of your own.
    folder
        Receives the checkpoints, the weights and the record.
    seed
        Of scenes, weights, batches and samples. The order of the data depends on it alone, not on interruptions.
    precision
        ``"auto"`` measures whether this CPU multiplies bfloat16 matrices faster. Weights are float32 in any case.
    resume, force
        Continue the run in ``folder``, or replace it.
    every
        Steps between checkpoints.

    Returns
    -------
    TrainingResult

    Raises
    ------
    BitResEditError
        If there is no such recipe.
    CheckpointError
        If ``folder`` holds checkpoints of other settings.
    InputError
        If ``folder`` is not empty and neither ``resume`` nor ``force`` is given.
    """
    plan = recipe(name) if isinstance(name, str) else name
    config = {"recipe": plan.name, "precision": precision}
    with RunDir(folder, package="bitresedit", config=config, seed=seed, resume=resume, force=force) as run:
        chosen, timings = _precision(run.path, precision)
        data = rendered_scenes(plan, seed, run.path)
        training, held_out = data.split(plan.scenes)
        tokenizer, tokenizer_state = train_tokenizer(
            plan, training.pictures, held_out.pictures, seed, chosen, run / "tokenizer.pt", every
        )
        digest = _digest(tokenizer)
        model, model_state = train_transformer(
            plan,
            tokenizer.bsq,
            encoded_scenes(tokenizer, training, run / "latents.pt", digest),
            encoded_scenes(tokenizer, held_out, run / "latents-held-out.pt", digest),
            seed,
            chosen,
            run / "transformer.pt",
            every,
        )
        record = {
            "recipe": plan.as_dict(),
            "seed": seed,
            "precision": {"asked": precision, "used": chosen, "milliseconds": timings},
            "data": {"scenes": plan.scenes, "held_out": plan.held_out, "sha256": data.digest},
            "tokenizer": _curves(tokenizer_state),
            "transformer": _curves(model_state),
            "provenance": provenance("bitresedit", seed=seed, libraries=["torch", "numpy"]),
        }
        return _finish(plan, run.path, tokenizer, model, training, held_out, seed, record)


def _precision(folder: Path, asked: Literal["auto", "fp32", "bf16"]) -> tuple[Precision, dict[str, float]]:
    """Measure once a run: a resumed run keeps the precision it began with."""
    if asked != "auto":
        return asked, {}
    path = folder / "precision.json"
    if path.exists():
        saved = json.loads(path.read_text(encoding="utf-8"))
        return saved["precision"], saved["milliseconds"]
    chosen, timings = faster_precision()
    write_json(path, {"precision": chosen, "milliseconds": timings})
    return chosen, timings


def _digest(module: torch.nn.Module) -> str:
    """Hash the weights of a module."""
    total = hashlib.sha256()
    for key, value in module.state_dict().items():
        total.update(key.encode())
        total.update(value.detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def _curves(state: TrainingState, window: int = 25) -> dict[str, Any]:
    """Give a stage's curves: mean loss of each window of steps, and what was measured on held-out scenes."""
    losses = [
        round(float(np.mean(state.losses[start : start + window])), 5) for start in range(0, len(state.losses), window)
    ]
    return {
        "steps": state.step,
        "seconds": round(state.seconds, 1),
        "seconds_per_step": round(state.seconds / max(1, state.step), 4),
        "loss_window": window,
        "loss": losses,
        "held_out": state.measured,
    }


def _finish(
    plan: Recipe,
    folder: Path,
    tokenizer: SceneTokenizer,
    model: SceneModel,
    training: RenderedScenes,
    held_out: RenderedScenes,
    seed: int,
    record: dict[str, Any],
) -> TrainingResult:
    """Store the weights, read them back, and measure the gates on exactly what is stored."""
    weights = folder / f"{plan.name}.safetensors"
    metadata = {
        "recipe": plan.name,
        "seed": str(seed),
        "data_sha256": record["data"]["sha256"],
        "package_version": str(record["provenance"]["version"]),
    }
    SceneVAR(tokenizer, model).save(weights, plan.text_layers, metadata)
    backbone = SceneVAR.load(weights)
    values = {"tokenizer_psnr": measure_psnr(backbone.tokenizer, held_out.pictures)}
    shown = held_out.scenes[: min(plan.gate_samples, len(held_out.scenes))]
    pictures = sample_captions(backbone, [scene.caption() for scene in shown], seed)
    if plan.probe:
        probe, accuracy = _probe(folder, training, seed)
        found = probe.accuracy(pictures, shown)
        short = sample_captions(backbone, [scene.caption(("size", "material", "sky")) for scene in shown], seed)
        told = {k: v for k, v in probe.accuracy(short, shown).items() if k in ("colour", "shape")}
        record["probe"] = {"held_out_accuracy": accuracy, "on_samples": found, "on_samples_of_short_captions": told}
        values |= {"colour": found["colour"], "shape": found["shape"]}
    gates = {
        name: {"measured": round(values[name], 4), "at_least": bound, "holds": values[name] >= bound}
        for name, bound in plan.gates.items()
        if name in values
    }
    paths = {name: folder / f"{plan.name}.{name}" for name in ("training.json", "training.png", "samples.png")}
    write_json(paths["training.json"], {**record, "gates": gates})
    draw_curves(paths["training.png"], plan, record)
    write_png(paths["samples.png"], contact_sheet(pictures[:32]))
    return TrainingResult(weights, paths["training.json"], paths["training.png"], paths["samples.png"], gates)


def _probe(folder: Path, training: RenderedScenes, seed: int) -> tuple[Probe, dict[str, float]]:
    """Train the attribute probe once a run."""
    path, results = folder / "probe.safetensors", folder / "probe.json"
    if not results.exists():
        with progress("probe") as bar:
            probe, accuracy = train_probe(
                seed,
                progress=lambda step, loss: bar.update(step, f"loss {loss:.3f}"),
                data=(training.scenes, training.pictures.permute(0, 2, 3, 1).numpy()),
            )
        write_safetensors(path, probe.half_state())
        write_json(results, accuracy)
    return Probe.load(path), json.loads(results.read_text(encoding="utf-8"))


def sample_captions(backbone: SceneVAR, captions: Sequence[str], seed: int, batch: int = 25) -> Tensor:
    """Sample one picture a caption with the backbone's own guidance and temperature.

    Parameters
    ----------
    backbone
        The model.
    captions
        In its vocabulary.
    seed
        Picture ``i`` is drawn from ``seed + i``.
    batch
        Pictures at a time; the result does not depend on it.

    Returns
    -------
    Tensor
        ``[n, 3, size, size]`` in [-1, 1].
    """
    config = replace(EditConfig(), **backbone.default_config)
    parts = []
    for start in range(0, len(captions), batch):
        part = list(captions[start : start + batch])
        seeds = range(seed + start, seed + start + len(part))
        parts.append(backbone.decode(generate(backbone, part, config, seeds)))
    return torch.cat(parts)


def contact_sheet(pictures: Tensor, columns: int = 8) -> np.ndarray:
    """Lay pictures ``[n, 3, size, size]`` in [-1, 1] out in rows; uint8 ``[rows, columns, 3]`` pixels."""
    n, _, size, _ = pictures.shape
    rows = -(-n // columns)
    sheet = torch.ones(rows * columns, 3, size, size)
    sheet[:n] = pictures
    grid = sheet.unflatten(0, (rows, columns)).permute(0, 3, 1, 4, 2).reshape(rows * size, columns * size, 3)
    return ((grid + 1) * 127.5).round().clamp(0, 255).to(torch.uint8).numpy()


def draw_curves(path: Path, plan: Recipe, record: dict[str, Any]) -> None:
    """Draw the PSNR of the tokenizer and the bit losses of the transformer against steps."""
    import matplotlib.pyplot as plt

    with figure_style():
        fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        held_out = record["tokenizer"]["held_out"]
        left.plot([row["step"] for row in held_out], [row["psnr"] for row in held_out], marker="o", markersize=3)
        left.axhline(plan.gates["tokenizer_psnr"], color="0.5", linestyle="--", label="gate")
        left.set(xlabel="tokenizer step", ylabel="held-out PSNR (dB)")
        left.legend()
        held_out = record["transformer"]["held_out"]
        for k, (h, w) in enumerate(plan.tokenizer.schedule):
            values = [row[f"scale{k + 1}"] for row in held_out]
            right.plot([row["step"] for row in held_out], values, label=f"scale {k + 1}: {h}x{w}")
        right.set(xlabel="transformer step", ylabel="held-out cross-entropy (nats/bit)")
        right.legend(fontsize="x-small", ncols=2)
        caption = (
            f"Training of {plan.name}, seed {record['seed']}: measured on {plan.held_out} held-out scenes "
            "with the running average of the weights."
        )
        write_figure(path, fig, caption)

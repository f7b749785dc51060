"""Training of the scene tokenizer on rendered pictures."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from bitresedit.optimisation import (
    Precision,
    TrainingState,
    batch_indices,
    generator_for,
    learning_rate_factor,
    mixed,
)
from bitresedit.recipes import Recipe, TokenizerRecipe
from bitresedit.tokenizer import SceneTokenizer, closed_form_start, psnr, reconstruction_loss
from papers_shared.cli import progress

_STAGE = 1


def to_float(pictures: UInt8[Tensor, "n 3 h w"]) -> Tensor:
    """Map bytes to [-1, 1]."""
    return pictures.float() / 127.5 - 1


def start_tokenizer(recipe: Recipe, pictures: UInt8[Tensor, "n 3 h w"], seed: int) -> SceneTokenizer:
    """Give the tokenizer with its linear maps and gains fitted, before any gradient step."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = SceneTokenizer(recipe.tokenizer)
    fit = to_float(pictures[: recipe.tokenizer_training.fit_scenes])
    closed_form_start(tokenizer, fit, generator_for(seed, _STAGE, 0))
    return tokenizer.to(memory_format=torch.channels_last)


def measure_psnr(tokenizer: SceneTokenizer, pictures: UInt8[Tensor, "n 3 h w"]) -> float:
    """Give the mean peak signal-to-noise ratio (dB) of quantised reconstructions, in float32."""
    values = []
    with torch.no_grad():
        for part in pictures.split(64):
            image = to_float(part)
            values.append(psnr(tokenizer(image).clamp(-1, 1), image))
    return float(torch.cat(values).mean())


def train_tokenizer(
    recipe: Recipe,
    pictures: UInt8[Tensor, "n 3 h w"],
    held_out: UInt8[Tensor, "m 3 h w"],
    seed: int,
    precision: Precision,
    path: Path,
    every: int = 250,
) -> tuple[SceneTokenizer, TrainingState]:
    """Train the tokenizer, or continue from ``path``.

    Minimises ``L1 + 0.3 (1 - SSIM) + MSE + c ||F - F_hat||^2`` with straight-through signs.

    Parameters
    ----------
    recipe
        Shapes and optimisation.
    pictures, held_out
        uint8 RGB for training, and for the PSNR curve.
    seed
        Of the weights, the batches and the mirroring.
    precision
        Of matrix products and convolutions.
    path
        The checkpoint.
    every
        Steps between checkpoints and measurements.

    Returns
    -------
    SceneTokenizer
        The running average of the weights.
    TrainingState
        With the curves.
    """
    plan = recipe.tokenizer_training
    tokenizer = start_tokenizer(recipe, pictures, seed)
    groups = _groups(tokenizer, plan)
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.99), weight_decay=1e-4, fused=True)
    settings = {
        **asdict(plan),
        "tokenizer": str(recipe.tokenizer),
        "seed": seed,
        "precision": precision,
        "pictures": len(pictures),
    }
    state = TrainingState(path, tokenizer, [optimiser], settings, decay=0.995)
    if not state.restore():
        state.measured.append({"step": 0, "psnr": measure_psnr(tokenizer, held_out)})
    with progress("tokenizer", total=plan.steps) as bar:
        bar.update(state.step)
        while state.step < plan.steps:
            begun = time.perf_counter()
            loss = _loss(state, pictures, seed, precision, plan.batch, plan.commitment)
            state.update(loss, learning_rate_factor(state.step, plan.steps, 100))
            state.seconds += time.perf_counter() - begun
            bar.advance()
            if state.step % every == 0 or state.step == plan.steps:
                value = measure_psnr(state.average.module, held_out)
                state.measured.append({"step": state.step, "psnr": value})
                bar.update(state.step, note=f"{value:.2f} dB")
                state.save()
    return state.average.module, state


def _groups(tokenizer: SceneTokenizer, plan: TokenizerRecipe) -> list[dict[str, Any]]:
    rate = plan.learning_rate
    encoder_rate = rate * plan.encoder_rate
    decoder = [tokenizer.rough, tokenizer.decoder, tokenizer.refine]
    return [
        {"params": [p for part in decoder for p in part.parameters()], "peak": rate},
        {"params": list(tokenizer.encoder.parameters()), "peak": encoder_rate},
        {"params": list(tokenizer.linear_decoder.parameters()), "peak": rate * plan.linear_rate},
        {"params": list(tokenizer.linear_encoder.parameters()), "peak": encoder_rate * plan.linear_rate},
    ]


def _loss(
    state: TrainingState, pictures: Tensor, seed: int, precision: Precision, batch: int, commitment: float
) -> Tensor:
    chosen = batch_indices(len(pictures), batch, state.step, seed, _STAGE)
    image = to_float(pictures[chosen])
    mirrored = torch.rand(batch, generator=generator_for(seed, _STAGE, state.step + 1)) < 0.5
    image = torch.where(mirrored[:, None, None, None], image.flip(-1), image)
    tokenizer = state.model
    with mixed(precision):
        latent = tokenizer.encode(image.contiguous(memory_format=torch.channels_last))
        quantised = tokenizer.bsq.straight_through(latent)
        output = tokenizer.reconstruct(quantised).contiguous()
    distance = (latent - quantised.detach()).square().mean()
    return reconstruction_loss(output, image) + commitment * distance

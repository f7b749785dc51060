"""Recipes of the bundled scene model: every number that its training depends on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bitresedit.errors import BitResEditError
from bitresedit.tokenizer import TokenizerConfig
from bitresedit.var_transformer import VARConfig


def _square(*sides: int) -> tuple[tuple[int, int], ...]:
    return tuple((side, side) for side in sides)


@dataclass(frozen=True)
class TokenizerRecipe:
    """Optimisation of the tokenizer.

    Parameters
    ----------
    steps, batch
        AdamW steps and pictures a step.
    learning_rate, encoder_rate, linear_rate
        Peak rate of the decoder's CNN; the encoder's is ``encoder_rate`` times it, and those of the linear maps are
        ``linear_rate`` times their network's, because they start fitted.
    commitment
        Weight of the squared distance of the latent to its quantisation. Straight-through gradients alone let the
        latent grow away from the codes: at 0.25 the quantisation error rose tenfold in 1,500 steps.
    fit_scenes
        Scenes that the closed-form start is fitted on.
    """

    steps: int
    batch: int = 8
    learning_rate: float = 1e-3
    encoder_rate: float = 0.2
    linear_rate: float = 0.02
    commitment: float = 4.0
    fit_scenes: int = 4000


@dataclass(frozen=True)
class TransformerRecipe:
    """Optimisation of the transformer and its text encoder.

    Parameters
    ----------
    steps, batch
        Optimiser steps and pictures a step.
    learning_rate, betas
        AdamW's peak rate and momenta, for vectors, embeddings and the maps at both ends.
    matrix_rate
        Muon's peak rate for the matrices inside the layers, in AdamW's scale of update sizes.
    warmup
        Linear warm-up steps, then a cosine to zero.
    restart, restart_peak
        Step at which warm-up and cosine begin again, at this fraction of the peak rates, to end at ``steps``; 0: never.
    max_flip
        Bits of the input are flipped with a probability drawn uniformly below this, once a picture.
    caption_dropout
        Share of pictures trained with the learned unconditional text.
    short_captions
        Share of pictures trained with a short caption: each of size, colour, material, ground and sky is left out of
        it with probability 1/2. Without them "a green cone on sand" is a sentence the model has never seen.
    average
        Decay of the running average of the weights, which is what ships.
    """

    steps: int
    batch: int = 16
    learning_rate: float = 2e-3
    matrix_rate: float = 5e-3
    betas: tuple[float, float] = (0.9, 0.97)
    warmup: int = 100
    restart: int = 0
    restart_peak: float = 0.5
    max_flip: float = 0.2
    caption_dropout: float = 0.1
    short_captions: float = 0.4
    average: float = 0.995


@dataclass(frozen=True)
class Recipe:
    """Everything that ``bitresedit train`` needs besides a seed.

    Parameters
    ----------
    name
        Name of the recipe and of the weights file.
    scenes, held_out
        Rendered scenes for training, and for measuring.
    tokenizer, transformer
        Shapes of the two networks.
    tokenizer_training, transformer_training
        Their optimisation.
    text_layers
        Layers of the caption encoder.
    probe
        Whether the attribute probe is trained too and the samples are judged with it.
    gate_samples
        Samples that the gates are measured on.
    """

    name: str
    scenes: int
    held_out: int
    tokenizer: TokenizerConfig
    transformer: VARConfig
    tokenizer_training: TokenizerRecipe
    transformer_training: TransformerRecipe
    text_layers: int = 2
    probe: bool = True
    gate_samples: int = 200
    gates: dict[str, float] = field(default_factory=lambda: {"tokenizer_psnr": 32.5, "colour": 0.85, "shape": 0.75})

    def as_dict(self) -> dict[str, Any]:
        """Give plain values, for the record."""
        return asdict(self)


_SCENE_VAR = VARConfig(
    depth=6,
    width=128,
    heads=4,
    d=64,
    text_dim=128,
    pool_heads=1,
    null_tokens=24,
    levels=8,
    rope_base=100.0,
    position_embedding=True,
)
_SCENE96 = Recipe(
    name="scene96",
    scenes=12_000,
    held_out=512,
    tokenizer=TokenizerConfig(image_size=96, patch=12, d=64, schedule=_square(1, 2, 3, 4, 6, 8, 8, 8)),
    transformer=_SCENE_VAR,
    tokenizer_training=TokenizerRecipe(steps=5000),
    transformer_training=TransformerRecipe(steps=13_000, restart=7000),
)
RECIPES: dict[str, Recipe] = {
    "scene96": _SCENE96,
    "scene64": replace(_SCENE96, name="scene64", tokenizer=replace(_SCENE96.tokenizer, image_size=64, patch=8)),
    "smoke": Recipe(
        name="smoke",
        scenes=24,
        held_out=8,
        tokenizer=TokenizerConfig(
            image_size=32,
            patch=4,
            d=8,
            schedule=_square(1, 4, 8),
            widths=(8, 8, 8),
            decoder_blocks=1,
            refine_blocks=1,
        ),
        transformer=VARConfig(
            depth=2,
            width=16,
            heads=2,
            d=8,
            text_dim=16,
            null_tokens=24,
            levels=3,
            rope_base=100.0,
            position_embedding=True,
        ),
        tokenizer_training=TokenizerRecipe(steps=6, batch=2, fit_scenes=24),
        transformer_training=TransformerRecipe(steps=6, batch=4, warmup=2),
        text_layers=1,
        probe=False,
        gate_samples=4,
    ),
}


def recipe(name: str) -> Recipe:
    """Look a recipe up by name.

    Parameters
    ----------
    name
        ``scene96`` (the bundled model), ``scene64`` (smaller pictures), ``smoke`` (seconds, for checks).

    Raises
    ------
    BitResEditError
        If there is no such recipe.
    """
    if name not in RECIPES:
        raise BitResEditError(f"no recipe {name!r}", hint=f"choose one of {', '.join(RECIPES)}")
    return RECIPES[name]

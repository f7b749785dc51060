"""The training set of the scene model: rendered from the recipe's seed, in parts that survive a kill."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from bitresedit.recipes import Recipe
from bitresedit.scenes import Scene, render, sample_scene
from papers_shared.artifacts import atomic_path
from papers_shared.cli import progress

_PART = 500


@dataclass(frozen=True)
class RenderedScenes:
    """Scenes and their pictures.

    Attributes
    ----------
    scenes
        What was rendered.
    pictures
        uint8 RGB ``[n, 3, size, size]``.
    digest
        SHA-256 of all pictures, in order: it changes if the renderer or the seed does.
    """

    scenes: list[Scene]
    pictures: UInt8[Tensor, "n 3 size size"]
    digest: str

    def split(self, first: int) -> tuple[RenderedScenes, RenderedScenes]:
        """Cut into the first scenes and the rest."""
        return (
            RenderedScenes(self.scenes[:first], self.pictures[:first], self.digest),
            RenderedScenes(self.scenes[first:], self.pictures[first:], self.digest),
        )


def scene_at(seed: int, index: int) -> Scene:
    """Give the scene of a place in the training set, on its own: no other scene has to be drawn first."""
    return sample_scene(np.random.default_rng([seed, index]))


def rendered_scenes(recipe: Recipe, seed: int, folder: Path) -> RenderedScenes:
    """Render the training and held-out scenes of a recipe, or read what an earlier run rendered.

    Parameters
    ----------
    recipe
        Number of scenes and size of the pictures.
    seed
        Of the scenes.
    folder
        Receives ``pictures-0000.npy`` and so on.

    Returns
    -------
    RenderedScenes
        Training scenes first, then the held-out ones.
    """
    total = recipe.scenes + recipe.held_out
    scenes = [scene_at(seed, index) for index in range(total)]
    parts, processes = [], os.cpu_count() or 1
    with progress("rendering", total=total) as bar:
        for start in range(0, total, _PART):
            part = scenes[start : start + _PART]
            path = folder / f"pictures-{start // _PART:04d}.npy"
            if not path.exists():
                pictures = render(part, recipe.tokenizer.image_size, processes=min(processes, len(part)))
                with atomic_path(path) as temporary, temporary.open("wb") as file:
                    np.save(file, pictures)
            parts.append(np.load(path))
            bar.advance(len(part))
    pictures = np.concatenate(parts)
    digest = hashlib.sha256(pictures.tobytes()).hexdigest()
    return RenderedScenes(scenes, torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous(), digest)

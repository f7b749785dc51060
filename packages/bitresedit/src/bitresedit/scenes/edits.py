"""Edits with known truth: two scenes that differ in one factor, their renders, and the mask of what changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, UInt8

from .render import render, silhouettes
from .scene import FACTORS, Factors, Scene, sample_factors, sample_scene

#: Kinds of single edit: a factor's name, or a second object that comes or goes.
KINDS = ("colour", "material", "shape", "size", "ground", "sky", "add", "remove")

_MAIN = {"colour", "material", "shape", "size"}
_SECOND = {"second_colour", "second_shape", "side"}


@dataclass(frozen=True)
class EditPair:
    """A scene before and after an edit; the jitter of camera, light, places and textures is the same in both.

    Attributes
    ----------
    source, target
        The scene before and after.
    kind
        One of `KINDS`, or ``"several"`` if more than one factor changes.
    """

    source: Scene
    target: Scene
    kind: str

    @property
    def source_caption(self) -> str:
        """Caption of the scene before the edit."""
        return self.source.caption()

    @property
    def target_caption(self) -> str:
        """Caption of the scene after the edit."""
        return self.target.caption()

    @property
    def changed(self) -> dict[str, str | None]:
        """Changed factors by name, with their new values."""
        before, after = self.source.shown, self.target.shown
        names = [field.name for field in fields(Factors)]
        return {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}


class RenderedEdit(NamedTuple):
    """Pictures before and after, and where they differ."""

    source: UInt8[np.ndarray, "size size 3"]
    target: UInt8[np.ndarray, "size size 3"]
    mask: Bool[np.ndarray, "size size"]


def edit(scene: Scene, **factors: str | None) -> EditPair:
    """Change factors of a scene; ``second_shape=None`` removes the second object.

    Raises
    ------
    ValueError
        If a value is unknown, or nothing changes.
    """
    target = scene.changed(**factors)
    pair = EditPair(scene, target, "several")
    changed = pair.changed
    if not changed:
        raise ValueError("the edit changes nothing")
    if scene.factors.has_second != target.factors.has_second:
        if set(changed) <= _SECOND:
            return EditPair(scene, target, "add" if target.factors.has_second else "remove")
        return pair
    name = next(iter(changed))
    return EditPair(scene, target, name) if len(changed) == 1 else pair


def sample_edit(rng: np.random.Generator, kind: str | None = None) -> EditPair:
    """Draw a scene and change one factor of it.

    Parameters
    ----------
    rng
        Source of randomness: the same generator state gives the same pair.
    kind
        One of `KINDS`; drawn uniformly by default.

    Raises
    ------
    ValueError
        If the kind is unknown.
    """
    if kind is None:
        kind = KINDS[int(rng.integers(len(KINDS)))]
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    if kind in ("add", "remove"):
        factors = sample_factors(rng)
        while not factors.has_second:
            factors = sample_factors(rng)
        # The main object stands aside in both pictures: it makes room for the one that comes or goes.
        full = sample_scene(rng, factors)
        bare = full.changed(second_shape=None)
        return EditPair(bare, full, "add") if kind == "add" else EditPair(full, bare, "remove")
    scene = sample_scene(rng)
    current = getattr(scene.factors, kind)
    taken = {current, scene.factors.second_colour} if kind == "colour" else {current}
    others = [value for value in FACTORS[kind] if value not in taken]
    return edit(scene, **{kind: others[int(rng.integers(len(others)))]})


def render_pairs(pairs: Sequence[EditPair], size: int = 96, processes: int = 1) -> list[RenderedEdit]:
    """Render edits.

    The mask holds every pixel whose bytes differ (the object, its shadow and its reflections, or the whole changed
    region of a ground or a sky) and the silhouettes of the changed object before and after. Outside the mask the two
    pictures are equal byte for byte.

    Parameters
    ----------
    pairs
        What to render.
    size
        Width and height of the pictures (pixels).
    processes
        Worker processes.

    Returns
    -------
    list of RenderedEdit
    """
    scenes = [scene for pair in pairs for scene in (pair.source, pair.target)]
    pictures = render(scenes, size, processes)
    return [
        RenderedEdit(source, target, (source != target).any(-1) | _silhouette_of_change(pair, size))
        for pair, source, target in zip(pairs, pictures[::2], pictures[1::2], strict=True)
    ]


def render_pair(pair: EditPair, size: int = 96) -> RenderedEdit:
    """Render one edit; see `render_pairs`."""
    return render_pairs([pair], size)[0]


def _silhouette_of_change(pair: EditPair, size: int) -> np.ndarray:
    """Pixels in which the changed objects show before or after."""
    names = set(pair.changed)
    mask = np.zeros((size, size), bool)
    for scene in (pair.source, pair.target):
        outlines = silhouettes(scene, size)
        if names & _MAIN:
            mask |= outlines[0]
        if names & _SECOND and len(outlines) == 2:
            mask |= outlines[1]
    return mask


def _sample() -> EditPair:
    factors = Factors("large", "red", "metal", "ball", "grass", "clear", "yellow", "cone", "right")
    scene = sample_scene(np.random.default_rng(10), factors)
    return edit(scene, colour="blue", material="glass", shape="cube")


#: The bundled example: a red metal ball becomes a blue glass cube.
SAMPLE = _sample()

"""Procedural scenes: factors and captions, the renderer, and edits with known truth."""

from __future__ import annotations

from .edits import KINDS, SAMPLE, EditPair, RenderedEdit, edit, render_pair, render_pairs, sample_edit
from .render import render, silhouettes
from .scene import (
    COLOURS,
    FACTORS,
    GROUNDS,
    MATERIALS,
    OPTIONAL_FACTORS,
    SHAPES,
    SIDES,
    SIZES,
    SKIES,
    Factors,
    Scene,
    parse_caption,
    sample_factors,
    sample_scene,
)

__all__ = [
    "COLOURS",
    "FACTORS",
    "GROUNDS",
    "KINDS",
    "MATERIALS",
    "OPTIONAL_FACTORS",
    "SAMPLE",
    "SHAPES",
    "SIDES",
    "SIZES",
    "SKIES",
    "EditPair",
    "Factors",
    "RenderedEdit",
    "Scene",
    "edit",
    "parse_caption",
    "render",
    "render_pair",
    "render_pairs",
    "sample_edit",
    "sample_factors",
    "sample_scene",
    "silhouettes",
]

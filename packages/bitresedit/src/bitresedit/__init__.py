"""Edit a photo by text inside a mask, without training or inversion, with a visual autoregressive model.

>>> from bitresedit import Editor, SceneVAR, load_sample
>>> sample = load_sample()
>>> result = Editor(SceneVAR.load_default()).edit(sample.image, sample.source, sample.target, sample.mask)
>>> result.image.save("edited.png")
"""

from __future__ import annotations

from bitresedit.backbones import Backbone, Infinity, SceneVAR
from bitresedit.baselines import METHODS
from bitresedit.config import EditConfig
from bitresedit.data import load_sample
from bitresedit.editor import EditItem, Editor, EditResult
from bitresedit.errors import (
    BitResEditError,
    CheckpointError,
    MaskError,
    PromptError,
    VocabularyError,
)
from bitresedit.panel import draw_panel

__all__ = [
    "METHODS",
    "Backbone",
    "BitResEditError",
    "CheckpointError",
    "EditConfig",
    "EditItem",
    "EditResult",
    "Editor",
    "Infinity",
    "MaskError",
    "PromptError",
    "SceneVAR",
    "VocabularyError",
    "draw_panel",
    "load_sample",
]

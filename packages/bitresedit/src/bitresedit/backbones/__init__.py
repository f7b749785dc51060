"""Bitwise visual autoregressive models, and what an editor needs of one."""

from __future__ import annotations

from bitresedit.backbones.backbone import Backbone
from bitresedit.backbones.infinity import Infinity
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.var_transformer import Cond, KVCache

__all__ = ["Backbone", "Cond", "Infinity", "KVCache", "SceneVAR"]

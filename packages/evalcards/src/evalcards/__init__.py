"""Evaluation Cards: an interpretive layer for AI evaluation reporting (arXiv 2606.09809)."""

from __future__ import annotations

from evalcards import data, importers, signals
from evalcards.compare import compare
from evalcards.errors import ImportFailure, SchemaError, SnapshotExists, UnitMismatch, UnknownModel
from evalcards.render import card
from evalcards.schema import BenchmarkCard, EvalLog, EvalResult, Issue, ModelMeta, Triple, validate
from evalcards.store import Store

__all__ = [
    "BenchmarkCard",
    "EvalLog",
    "EvalResult",
    "ImportFailure",
    "Issue",
    "ModelMeta",
    "SchemaError",
    "SnapshotExists",
    "Store",
    "Triple",
    "UnitMismatch",
    "UnknownModel",
    "card",
    "compare",
    "data",
    "importers",
    "signals",
    "validate",
]

"""Readers of what harnesses and leaderboards write: logs in the EEE schema, and a list of what could not be used.

No reader drops a result silently: results found = rows + failures. No reader fills in what the file does not say: what
was an assumption of the caller (a model id, an organisation) is recorded in the log.
"""

from __future__ import annotations

from evalcards.importers.common import ImportResult, Options
from evalcards.importers.csv_table import csv
from evalcards.importers.detect import FORMATS, detect, read_any
from evalcards.importers.eee import eee
from evalcards.importers.helm import helm
from evalcards.importers.hf_model_card import hf_model_card
from evalcards.importers.inspect_log import inspect
from evalcards.importers.lm_eval import lm_eval

__all__ = [
    "FORMATS",
    "ImportResult",
    "Options",
    "csv",
    "detect",
    "eee",
    "helm",
    "hf_model_card",
    "inspect",
    "lm_eval",
    "read_any",
]

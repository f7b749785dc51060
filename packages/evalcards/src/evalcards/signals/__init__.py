"""The four signals: reproducibility, completeness, provenance and risk, comparability; and their rollup.

A row is a mapping or an object with ``evaluation_id``, ``score``, ``generation_args`` and ``source_metadata``. These
functions work on one row or one group; `evalcards.warehouse` computes the same over a whole store in SQL.
"""

from __future__ import annotations

from evalcards.signals.comparability import (
    SETUP_FIELDS,
    cross_party_divergence,
    group_metric_config,
    threshold,
    variant_divergence,
)
from evalcards.signals.completeness import completeness, field_set
from evalcards.signals.provenance import organisation, provenance
from evalcards.signals.reproducibility import PROFILES, is_agentic, reproducibility, required_fields
from evalcards.signals.risk import RISK_DOMAINS, risk_domains
from evalcards.signals.rollup import rollup
from evalcards.signals.slots import SLOTS, reproducibility_slots

__all__ = [
    "PROFILES",
    "RISK_DOMAINS",
    "SETUP_FIELDS",
    "SLOTS",
    "completeness",
    "cross_party_divergence",
    "field_set",
    "group_metric_config",
    "is_agentic",
    "organisation",
    "provenance",
    "reproducibility",
    "reproducibility_slots",
    "required_fields",
    "risk_domains",
    "rollup",
    "threshold",
    "variant_divergence",
]

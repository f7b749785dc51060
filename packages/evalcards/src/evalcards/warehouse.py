"""The signals of a whole store in SQL: one pass over integers instead of a loop over rows.

Setup values and organisations are integer codes, so that "a setting differs" is ``min <> max``; medians are taken
only in groups that more than one organisation reports. `evalcards.signals` is the literal form, one group at a time,
that tests hold this one equal to.
"""

from __future__ import annotations

import functools
from typing import Any

from evalcards.signals.comparability import SETUP_FIELDS, SLACK, threshold
from evalcards.signals.reproducibility import BIT, PROFILES, required_fields
from evalcards.signals.slots import SLOTS
from papers_shared.errors import InputError

BY_SLOTS = "slots"
"""The profile that asks for decisions instead of fields."""

PROFILE_NAMES = (*PROFILES, BY_SLOTS)
"""All profiles that a store's signals can be computed with."""

SLOT_BIT = {slot: 1 << position for position, slot in enumerate(SLOTS)}
"""Slot to its bit in ``row_signals.missing`` under the profile `BY_SLOTS`."""


def _differs(prefix: str, table: str) -> str:
    """SQL for a bit set of the setup fields in which a group's rows differ."""
    terms = [
        f"(CASE WHEN {table}.lo_{field} <> {table}.hi_{field} THEN {1 << bit} ELSE 0 END)"
        for bit, field in enumerate(SETUP_FIELDS)
    ]
    return f"({' | '.join(terms)})::INTEGER AS {prefix}_differs"


_EXTREMES = ", ".join(f"min(setup_{f}) AS lo_{f}, max(setup_{f}) AS hi_{f}" for f in SETUP_FIELDS)

_BASE = f"""
CREATE OR REPLACE TEMP TABLE base AS
SELECT group_id, count(*)::INTEGER AS n_rows, count(score)::INTEGER AS n_scores,
       min(score) AS low, max(score) AS high, {_EXTREMES},
       min(organisation) AS lo_party, max(organisation) AS hi_party,
       count(organisation) FILTER (score IS NOT NULL) AS n_party_scores,
       min(organisation) FILTER (score IS NOT NULL) AS lo_scored, max(organisation) FILTER (score IS NOT NULL) AS
       hi_scored, bool_and(source_type = 'first_party') AS all_first, any_value(unit) AS unit,
       min(tau) FILTER (basis <> 'fallback_default') AS tau,
       min(basis) FILTER (basis <> 'fallback_default') AS basis
FROM results GROUP BY group_id
"""

_PARTIES = """
CREATE OR REPLACE TEMP TABLE parties AS
SELECT group_id, count(DISTINCT organisation)::INTEGER AS n_parties
FROM results SEMI JOIN (SELECT group_id FROM base WHERE lo_party <> hi_party) USING (group_id)
GROUP BY group_id
"""

_MEDIANS = f"""
CREATE OR REPLACE TABLE party_medians AS
WITH ordered AS (
  SELECT group_id, organisation, score, {", ".join(f"setup_{f}" for f in SETUP_FIELDS)},
         row_number() OVER (PARTITION BY group_id, organisation ORDER BY score, evaluation_id, args) AS place,
         count(*) OVER (PARTITION BY group_id, organisation) AS n
  FROM results SEMI JOIN (SELECT group_id FROM base WHERE lo_scored <> hi_scored) USING (group_id)
  WHERE score IS NOT NULL AND organisation IS NOT NULL
)
SELECT group_id, organisation, any_value(n)::INTEGER AS n,
       (min(score) FILTER (place = (n + 1) // 2) + min(score) FILTER (place = n // 2 + 1)) / 2 AS median,
       {", ".join(f"min(setup_{f}) FILTER (place = (n + 1) // 2) AS setup_{f}" for f in SETUP_FIELDS)}
FROM ordered WHERE place = (n + 1) // 2 OR place = n // 2 + 1 GROUP BY group_id, organisation
"""

_CROSS = f"""
CREATE OR REPLACE TEMP TABLE crossed AS
SELECT group_id, count(*)::INTEGER AS cross_parties, min(median) AS low, max(median) AS high, {_EXTREMES}
FROM party_medians GROUP BY group_id
"""

_GROUP_SIGNALS = f"""
CREATE OR REPLACE TABLE group_signals AS
WITH joined AS (
  SELECT base.*, coalesce(parties.n_parties, CASE WHEN base.lo_party IS NULL THEN 0 ELSE 1 END) AS n_parties,
         coalesce(base.tau, $fallback) * $factor AS tau_used, coalesce(base.basis, 'fallback_default') AS basis_used,
         {_differs("variant", "base")},
         crossed.cross_parties, crossed.high - crossed.low AS cross_spread, {_differs("cross", "crossed")}
  FROM base LEFT JOIN parties USING (group_id) LEFT JOIN crossed USING (group_id)
)
SELECT group_id, n_rows, n_scores, n_parties, n_parties > 1 AS is_multi_source,
       all_first AND n_parties = 1 AS first_party_only, tau_used AS threshold, basis_used AS threshold_basis,
       n_rows > 1 AND variant_differs > 0 AND n_scores > 1 AS variant_eligible,
       CASE WHEN n_rows > 1 AND variant_differs > 0 AND n_scores > 1 THEN high - low END AS variant_spread,
       variant_eligible AND high - low > tau_used * {SLACK!r} AS has_variant_divergence,
       CASE WHEN variant_eligible THEN variant_differs ELSE 0 END AS variant_differs,
       variant_eligible AND unit IS NOT DISTINCT FROM 'proportion' AND (low < 0 OR high > 1) AS score_scale_anomaly,
       cross_parties IS NOT NULL AS cross_eligible, coalesce(cross_parties, 0) AS cross_parties, cross_spread,
       cross_parties IS NOT NULL AND cross_spread > tau_used * {SLACK!r} AS has_cross_party_divergence,
       CASE WHEN cross_parties IS NULL THEN 0 ELSE cross_differs END AS cross_differs, low, high
FROM joined
"""

_ROW_SIGNALS = """
CREATE OR REPLACE TABLE row_signals AS
SELECT row_id, results.group_id, agentic, ({required})::INTEGER AS required,
       ({missing})::INTEGER AS missing, bit_count(required)::INTEGER AS required_field_count,
       missing <> 0 AS has_reproducibility_gap,
       source_type, is_multi_source, source_type = 'first_party' AND n_parties = 1 AS first_party_only, n_parties
FROM results JOIN group_signals USING (group_id)
"""


def _slot_bits(states: str) -> str:
    """SQL for a bit set of the slots that are in one of some states."""
    places = enumerate(SLOT_BIT.values(), start=1)
    return " | ".join(f"(CASE WHEN slots[{i}] IN ({states}) THEN {bit} ELSE 0 END)" for i, bit in places)


def _asked(profile: str) -> tuple[str, str]:
    """SQL for the bit sets of what a row has to report, and of what of it is missing.

    Raises
    ------
    InputError
        No such profile.
    """
    if profile not in PROFILE_NAMES:
        raise InputError(f"no reproducibility profile {profile!r}", hint=f"choose one of {', '.join(PROFILE_NAMES)}")
    if profile == BY_SLOTS:
        return _slot_bits("'m', 'd'"), _slot_bits("'m'")
    plain, agentic = (sum(BIT[field] for field in required_fields(kind, profile)) for kind in (False, True))
    return f"CASE WHEN agentic THEN {agentic} ELSE {plain} END", "required & ~populated"


def compute(connection: Any, *, profile: str = "paper", factor: float = 1.0) -> None:
    """Write ``row_signals``, ``group_signals`` and ``party_medians`` for all rows of a store.

    Parameters
    ----------
    connection
        DuckDB, with the store's tables.
    profile
        Reproducibility profile ``paper``, ``paper-h1``, ``spec4`` or ``slots``.
    factor
        Multiplies all thresholds.

    Raises
    ------
    InputError
        No such profile, or a factor that is no positive finite number.
    """
    required, missing = _asked(profile)
    fallback, _ = threshold({}, 1.0)
    threshold({}, factor)
    connection.execute(_BASE)
    connection.execute(_PARTIES)
    connection.execute(_MEDIANS)
    connection.execute(_CROSS)
    connection.execute(_GROUP_SIGNALS, {"factor": float(factor), "fallback": fallback})
    connection.execute(_ROW_SIGNALS.format(required=required, missing=missing))


def fields_of(bits: int) -> tuple[str, ...]:
    """Return the setup fields of a bit set ``variant_differs`` or ``cross_differs``."""
    return tuple(field for bit, field in enumerate(SETUP_FIELDS) if bits >> bit & 1)


@functools.cache
def profile_bits(profile: str) -> dict[str, int]:
    """Return the fields, or slots, that a profile may ask for, in its order, each with its bit."""
    if profile == BY_SLOTS:
        return SLOT_BIT
    return {field: BIT[field] for field in required_fields(True, profile)}


@functools.cache
def named(bits: int, profile: str = "paper") -> tuple[str, ...]:
    """Return the fields, or slots, of a bit set ``required`` or ``missing``, in the profile's order."""
    return tuple(field for field, bit in profile_bits(profile).items() if bits & bit)

r"""Signal 4: whether scores of the same triple differ by more than they should, and in which settings.

With threshold :math:`\tau` of the metric and scores :math:`S`, a group diverges when
:math:`\max S - \min S > \tau (1 + 10^{-9})`. The slack keeps binary fractions from deciding: 0.75 - 0.70 is a hair over
0.05 in floating point and 0.30 - 0.25 a hair under.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evalcards.signals.provenance import get, organisation
from papers_shared.errors import InputError

SETUP_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "prompt_template",
    "reasoning",
    "agentic_eval_config",
)
"""What makes two runs of one triple different runs."""

SLACK = 1 + 1e-9
_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


class Difference(NamedTuple):
    """A setup field in which rows differ, and its values in order of first appearance."""

    field: str
    values: tuple[Any, ...]


class VariantDivergence(NamedTuple):
    """How far apart the scores of one triple are when its setups differ."""

    has_variant_divergence: bool
    divergence_magnitude: float
    threshold_used: float
    threshold_basis: str
    differing_setup_fields: tuple[Difference, ...]
    scores_in_group: tuple[float, ...]
    score_scale_anomaly: bool


class CrossPartyDivergence(NamedTuple):
    """How far apart the organisations' scores of one triple are."""

    has_cross_party_divergence: bool
    divergence_magnitude: float
    threshold_used: float
    threshold_basis: str
    differing_setup_fields: tuple[Difference, ...]
    scores_by_organisation: dict[str, float]
    organisation_count: int


def number(value: Any) -> float | None:
    """Return a score as a float; None for what is no number: bool, NaN, infinities, text."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return found if math.isfinite(found) else None


def canonical_setting(value: Any) -> str:
    """Return the canonical JSON of a setting, by which settings are compared."""
    return _ENCODER.encode(value)


def threshold(metric_config: Any, factor: float = 1.0) -> tuple[float, str]:
    r"""Return the threshold :math:`\tau` of a metric and the rule it comes from.

    ``metric_unit`` proportion gives 0.05, percent 5; else 5% of the range if both bounds are finite and
    ``max_score > min_score``; else 0.05.

    Parameters
    ----------
    metric_config
        Mapping or object with ``metric_unit``, ``min_score``, ``max_score``. Unbounded ends are the strings
        ``"Infinity"`` and ``"-Infinity"``.
    factor
        Multiplies the threshold.

    Returns
    -------
    tuple
        The threshold in the metric's unit, and ``proportion``, ``percent``, ``range_5pct`` or ``fallback_default``.

    Raises
    ------
    InputError
        The factor is not a positive finite number.
    """
    if number(factor) is None or factor <= 0:
        raise InputError(f"threshold factor {factor}: want a positive finite number")
    unit = get(metric_config, "metric_unit")
    if unit == "proportion":
        return 0.05 * factor, "proportion"
    if unit == "percent":
        return 5.0 * factor, "percent"
    low, high = number(get(metric_config, "min_score")), number(get(metric_config, "max_score"))
    if low is not None and high is not None and high > low:
        return 0.05 * (high - low) * factor, "range_5pct"
    return 0.05 * factor, "fallback_default"


def group_metric_config(configs: Iterable[Any]) -> dict[str, Any]:
    """Return the metric configuration that speaks for a group whose rows state different bounds.

    Units never differ within a group, they are part of the metric. Among the bounds a stated range goes before none,
    and of several ranges the smallest, so that the choice does not depend on the order of rows.
    """
    read = [
        {key: get(config, key) for key in ("metric_unit", "min_score", "max_score", "lower_is_better")}
        for config in configs
    ]
    return min(
        read,
        key=lambda c: (threshold(c)[1] == "fallback_default", threshold(c)[0], canonical_setting(c)),
        default={},
    )


def differing_fields(setups: Sequence[Any]) -> tuple[Difference, ...]:
    """Return the setup fields in which generation arguments differ; an absent field is null."""
    found = []
    for field in SETUP_FIELDS:
        values: dict[str, Any] = {}
        for setup in setups:
            value = setup.get(field) if isinstance(setup, Mapping) else None
            values.setdefault(canonical_setting(value), value)
        if len(values) > 1:
            found.append(Difference(field, tuple(values.values())))
    return tuple(found)


def variant_divergence(rows: Sequence[Any], metric_config: Any, factor: float = 1.0) -> VariantDivergence | None:
    """Compare the scores of one triple's rows whose setups differ.

    Parameters
    ----------
    rows
        All rows of the triple.
    metric_config
        The group's metric, see `group_metric_config`.
    factor
        Multiplies the threshold.

    Returns
    -------
    VariantDivergence or None
        None if there are fewer than two rows, no setup field differs, or fewer than two scores are numbers. The scores
        keep the rows' order.

    References
    ----------
    arXiv 2606.09809, signal "comparability", variant divergence.
    """
    if len(rows) < 2:
        return None
    differing = differing_fields([get(row, "generation_args") for row in rows])
    scores = tuple(score for row in rows if (score := number(get(row, "score"))) is not None)
    if not differing or len(scores) < 2:
        return None
    spread = max(scores) - min(scores)
    tau, basis = threshold(metric_config, factor)
    anomaly = get(metric_config, "metric_unit") == "proportion" and any(not 0 <= score <= 1 for score in scores)
    return VariantDivergence(spread > tau * SLACK, spread, tau, basis, differing, scores, anomaly)


def _lower_median(rows: Sequence[Any]) -> Any:
    """Return the row in the middle by score and evaluation id, of two middle ones the lower.

    Rows that agree in both are ordered by their settings, so that the order of import cannot matter.
    """

    def place(row: Any) -> tuple[Any, ...]:
        settings = get(row, "generation_args") or {}
        return number(get(row, "score")), str(get(row, "evaluation_id") or ""), canonical_setting(settings)

    ordered = sorted(rows, key=place)
    return ordered[(len(ordered) - 1) // 2]


def cross_party_divergence(rows: Sequence[Any], metric_config: Any, factor: float = 1.0) -> CrossPartyDivergence | None:
    """Compare the median scores of the organisations that report one triple.

    Parameters
    ----------
    rows
        All rows of the triple; those without a numeric score or a named organisation are left out.
    metric_config
        The group's metric.
    factor
        Multiplies the threshold.

    Returns
    -------
    CrossPartyDivergence or None
        None if fewer than two organisations are left. An organisation's score is the median of its scores, its setup
        that of the row at the lower median.

    References
    ----------
    arXiv 2606.09809, signal "comparability", cross-party divergence.
    """
    parties: dict[str, list[Any]] = {}
    for row in rows:
        name = organisation(get(get(row, "source_metadata"), "source_organization_name"))
        if name is not None and number(get(row, "score")) is not None:
            parties.setdefault(name, []).append(row)
    if len(parties) < 2:
        return None
    medians = {
        name: statistics.median([float(get(row, "score")) for row in own]) for name, own in sorted(parties.items())
    }
    setups = [get(_lower_median(parties[name]), "generation_args") for name in medians]
    spread = max(medians.values()) - min(medians.values())
    tau, basis = threshold(metric_config, factor)
    return CrossPartyDivergence(
        spread > tau * SLACK, spread, tau, basis, differing_fields(setups), medians, len(medians)
    )

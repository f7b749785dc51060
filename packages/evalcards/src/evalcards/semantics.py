"""What the values of a well-formed record say against each other: kept and told, never corrected."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator

from evalcards.schema import EvalLog, EvalResult, Issue, MetricConfig
from evalcards.signals.comparability import number


def timestamp(text: str | None) -> tuple[datetime.datetime | None, bool]:
    """Read a time: Unix seconds as text, or ISO 8601; a time without zone is UTC, never the host's.

    Returns
    -------
    tuple
        The time in UTC, or None if it is none, and whether the zone was missing.
    """
    if not text:
        return None, False
    try:
        return datetime.datetime.fromtimestamp(float(text), datetime.UTC), False
    except (ValueError, OverflowError, OSError):
        pass
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None, False
    if found.tzinfo is None:
        return found.replace(tzinfo=datetime.UTC), True
    return found.astimezone(datetime.UTC), False


def _bounds(metric: MetricConfig) -> tuple[float, float]:
    """Return the ends as floats; one that is not stated, or is no number that a float holds, bounds nothing."""
    low, high = number(metric.min_score), number(metric.max_score)
    return -math.inf if low is None else low, math.inf if high is None else high


def result_issues(result: EvalResult, place: str) -> Iterator[Issue]:
    """Yield what a result's values say against each other; it is kept as it is, never rescaled."""
    metric, score = result.metric_config, number(result.score_details.score)
    low, high = _bounds(metric)
    where = f"{place}.score_details.score"
    proportion = metric.metric_unit == "proportion" or (low, high) == (0.0, 1.0)
    if score is None:
        yield Issue("warning", where, "not a finite number, counts as no score")
    elif low > high:
        yield Issue("warning", f"{place}.metric_config", f"min_score {low:g} over max_score {high:g}")
    elif proportion and 1 < score <= 100:
        yield Issue("warning", where, f"{score:g}: percent under proportion bounds")
    elif not low <= score <= high or (metric.metric_unit == "proportion" and not 0 <= score <= 1):
        yield Issue("warning", where, f"{score:g}: outside the metric's bounds")
    elif metric.metric_unit == "percent" and not 0 <= score <= 100:
        yield Issue("warning", where, f"{score:g}: not a percentage between 0 and 100")
    if metric.score_type == "continuous" and (metric.min_score is None or metric.max_score is None):
        yield Issue("warning", f"{place}.metric_config", "a continuous score without min_score and max_score")
    error = standard_error(result)
    if error is not None and error < 0:
        yield Issue("warning", f"{place}.score_details.uncertainty", f"standard error {error:g} is negative")
    samples = number((result.score_details.uncertainty or {}).get("num_samples"))
    if samples is not None and samples < 0:
        yield Issue("warning", f"{place}.score_details.uncertainty", f"number of samples {samples:g} is negative")


def standard_error(result: EvalResult) -> float | None:
    """Return the reported standard error of a result, if it is a number."""
    uncertainty = result.score_details.uncertainty or {}
    value = uncertainty.get("standard_error")
    value = value.get("value") if isinstance(value, dict) else value
    return number(value)


def log_issues(log: EvalLog) -> Iterator[Issue]:
    """Yield what is strange in a log apart from its single results: its times, repeated result ids."""
    for key in ("evaluation_timestamp", "retrieved_timestamp"):
        text = log.document.get(key)
        if text is None:
            continue
        found, naive = timestamp(str(text))
        if naive:
            yield Issue("notice", key, f"{text}: no time zone, read as UTC")
        elif found is None:
            yield Issue("warning", key, f"{str(text)[:40]!r} is not a time")
    seen: set[str] = set()
    for index, result in enumerate(log.evaluation_results):
        own = (result.model_extra or {}).get("evaluation_result_id")
        if isinstance(own, str):
            if own in seen:
                yield Issue("warning", f"evaluation_results[{index}].evaluation_result_id", f"{own!r} occurs twice")
            seen.add(own)


def semantic_issues(log: EvalLog) -> Iterator[Issue]:
    """Yield everything that is well-formed but strange in a log."""
    yield from log_issues(log)
    for index, result in enumerate(log.evaluation_results):
        yield from result_issues(result, f"evaluation_results[{index}]")

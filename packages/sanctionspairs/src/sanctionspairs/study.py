"""Matchers compared on one set of pairs: thresholds on dev, figures on test, errors by kind, abstention."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from papers_shared.artifacts import write_npz
from sanctionspairs.abstain import Calibrator, abstain_band, aurc, decide
from sanctionspairs.errors import SanctionsPairsError, ThresholdError
from sanctionspairs.evaluate import McNemar, Report, compare, labels_of, report, tune_threshold
from sanctionspairs.matchers import Matcher
from sanctionspairs.records import Pair, decided_by_form
from sanctionspairs.split import components, entity_disjoint, stratified
from sanctionspairs.tags import tag_errors, tags

FUZZY_GRID = tuple(round(0.10 + 0.05 * step, 2) for step in range(18))
_STEP = 1_000


@dataclass(frozen=True)
class Split:
    """Pairs by what they are used for; no threshold, calibration or band ever sees test."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]
    how: str


@dataclass(frozen=True)
class Band:
    """Where a matcher abstains, and what that gave on test.

    Attributes
    ----------
    lo, hi
        Probabilities between which it abstains.
    dev_coverage, coverage
        Share of pairs decided on the dev half that set the band, and on test.
    error
        Error rate of decided pairs on test; NaN if none is decided.
    aurc
        Area under the risk-coverage curve on test.
    """

    lo: float
    hi: float
    dev_coverage: float
    coverage: float
    error: float
    aurc: float


@dataclass
class Result:
    """One matcher on one split."""

    name: str
    report: Report
    band: Band | None
    scores: Float[np.ndarray, " n"]
    probability: Float[np.ndarray, " n"]
    decided: Int[np.ndarray, " n"]
    tag_table: pd.DataFrame
    ms_per_pair: float
    cost: float = 0.0
    partial: bool = False
    verdicts: dict[str, int] = field(default_factory=dict)


@dataclass
class Study:
    """Everything that a comparison found.

    Attributes
    ----------
    split
        The pairs.
    results
        By matcher, in the order asked.
    tagged
        Tags of each test pair.
    paired
        McNemar and Yule's Q of each two matchers.
    alpha
        Error rate that the abstain band was asked to keep.
    """

    split: Split
    results: dict[str, Result]
    tagged: list[tuple[str, ...]]
    paired: dict[tuple[str, str], McNemar]
    alpha: float


def make_split(
    pairs: Sequence[Pair],
    *,
    n: int | None = None,
    dev: float = 0.2,
    seed: int = 42,
    with_train: bool = False,
    held_out: bool = False,
) -> Split:
    """Split as the matchers need it.

    Parameters
    ----------
    pairs
        All pairs.
    n
        Sample size, for the stratified split.
    dev
        Share that tunes.
    seed
        Of the split.
    with_train
        Some matcher trains: 70% train, 5% dev, 25% test, no record in two parts.
    held_out
        Use only the test part of that split, itself split by records into dev and test: for weights that were fitted
        on its train part.
    """
    if with_train:
        parts = entity_disjoint(pairs, (0.70, 0.05, 0.25), seed)
        return Split(parts[0], parts[1], parts[2], "entity-disjoint 70/5/25")
    if held_out:
        rest = entity_disjoint(pairs, (0.70, 0.05, 0.25), seed)[2]
        parts = entity_disjoint(rest, (dev, 1 - dev), seed)
        return Split([], parts[0], parts[1], "entity-disjoint, the quarter that no shipped weight has seen")
    sample = stratified(pairs, n, seed, dev)
    return Split([], sample[0], sample[1], "stratified sample")


def run_study(
    split: Split,
    matchers: Sequence[Matcher],
    *,
    alpha: float = 0.01,
    folder: Path | None = None,
    done: Callable[[str, int], None] = lambda name, pairs: None,
) -> Study:
    """Score dev and test with every matcher and measure.

    Parameters
    ----------
    split
        See `make_split`.
    matchers
        Those that train are fitted on ``train``, those that choose examples or a band on ``dev``.
    alpha
        Error rate for the abstain band.
    folder
        Keep each matcher's scores here as soon as they are known, and take them from here if they are there.
    done
        Called with a matcher's name and the number of pairs it has just scored.

    Raises
    ------
    ThresholdError
        Dev has one judgement only.
    """
    test, labels = split.test, labels_of(split.test)
    if not test or not split.dev:
        raise SanctionsPairsError(
            f"{len(split.dev)} dev and {len(test)} test pairs are too few", "give more judged pairs"
        )
    group = components(test)
    tagged = [tags(pair) for pair in test]
    results: dict[str, Result] = {}
    for matcher in matchers:
        if matcher.name in results:
            continue
        results[matcher.name] = _measure(split, matcher, alpha, folder, done, labels, group, tagged)
    names = list(results)
    paired = {
        (a, b): compare(_yes(results[a]), _yes(results[b]), labels) for i, a in enumerate(names) for b in names[i + 1 :]
    }
    return Study(split, results, tagged, paired, alpha)


def _yes(result: Result) -> Any:
    return np.nan_to_num(result.scores, nan=-1.0) >= result.report.threshold


def _measure(
    split: Split,
    matcher: Matcher,
    alpha: float,
    folder: Path | None,
    done: Callable[[str, int], None],
    labels: Int[np.ndarray, " n"],
    group: Int[np.ndarray, " n"],
    tagged: list[tuple[str, ...]],
) -> Result:
    kept = folder / f"scores-{matcher.name.replace('/', '_')}.npz" if folder else None
    if kept is not None and kept.exists():
        with np.load(kept) as file:
            on_dev, on_test, seconds = file["dev"], file["test"], float(file["seconds"])
        done(matcher.name, len(split.dev) + len(split.test))
    else:
        if not matcher.trained:
            matcher.fit(split.train or split.dev)
        on_dev, _ = _scores(matcher, split.dev, done)
        on_test, seconds = _scores(matcher, split.test, done)
        if kept is not None and not getattr(matcher, "partial", False):
            write_npz(kept, {"dev": on_dev, "test": on_test, "seconds": np.array(seconds)})
    usable = np.array([decided_by_form(pair) is None for pair in split.dev])
    dev_labels = labels_of(split.dev)
    grid = FUZZY_GRID if matcher.name == "fuzzy" else None
    partial = bool(getattr(matcher, "partial", False))
    if partial and np.isnan(on_test).all():
        raise SanctionsPairsError(f"{matcher.name}: the cost limit was reached before a test pair", "raise --max-cost")
    try:
        threshold, _ = tune_threshold(on_dev[usable], dev_labels[usable], grid)
    except ThresholdError:
        if not partial:
            raise
        threshold = 0.5  # the money ran out on dev
    found = report(on_test, labels, threshold, group)
    probability, band, decided = _abstain(split.dev, on_dev, on_test, labels, alpha, threshold)
    answered = ~np.isnan(on_test)
    table = tag_errors(
        [pair for pair, known in zip(split.test, answered, strict=True) if known],
        on_test[answered] >= threshold,
        [names for names, known in zip(tagged, answered, strict=True) if known],
    )
    return Result(
        matcher.name,
        found,
        band,
        on_test,
        probability,
        decided,
        table,
        1000 * seconds / max(1, len(split.test)),
        float(getattr(matcher, "cost", 0.0)),
        partial,
    )


def _scores(
    matcher: Matcher, pairs: Sequence[Pair], done: Callable[[str, int], None]
) -> tuple[Float[np.ndarray, " n"], float]:
    """Score in steps, so that progress shows; splink and language models take everything at once."""
    step = len(pairs) if matcher.name.startswith(("splink", "llm", "cascade")) else _STEP
    begun = time.perf_counter()
    found = []
    for start in range(0, len(pairs), max(1, step)):
        chunk = pairs[start : start + step]
        found.append(matcher.score(chunk))
        done(matcher.name, len(chunk))
    return np.concatenate([*found, np.empty(0)]), time.perf_counter() - begun


def _abstain(
    dev: Sequence[Pair],
    on_dev: Float[np.ndarray, " d"],
    on_test: Float[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    alpha: float,
    threshold: float,
) -> tuple[Float[np.ndarray, " n"], Band | None, Int[np.ndarray, " n"]]:
    """Calibrate on one half of dev and set the band on the other; halves share no record."""
    half = components(dev) % 2 == 0
    usable = ~np.isnan(on_dev) & np.array([decided_by_form(pair) is None for pair in dev])
    y = labels_of(dev)
    plain = np.where(np.isnan(on_test), -1, (on_test >= threshold).astype(np.int64))
    first, second = half & usable, ~half & usable
    if len(set(y[first].tolist())) < 2 or not second.any():
        return on_test, None, plain
    calibrator = Calibrator().fit(on_dev[first], y[first])
    probability = calibrator.transform(on_test)
    lo, hi, dev_coverage = abstain_band(calibrator.transform(on_dev[second]), y[second], alpha)
    decided = decide(probability, lo, hi) if dev_coverage else np.full(len(on_test), -1, dtype=np.int64)
    sure = decided >= 0
    error = float(np.mean(decided[sure] != labels[sure])) if sure.any() else float("nan")
    answered = ~np.isnan(probability)
    area = aurc(probability[answered], labels[answered])
    return probability, Band(lo, hi, dev_coverage, float(sure.mean()), error, area), decided


def score_frame(study: Study, ofac: Float[np.ndarray, " n"] | None = None) -> pd.DataFrame:
    """Return one row per test pair: ids, judgement, tags, and each matcher's score, probability and decision.

    ``decision`` is 1 or 0, and -1 where the matcher abstains; ``ofac`` is the score of names as OFAC's own search
    compares them, to see which hits that search would not have shown.
    """
    rows: dict[str, Any] = {
        "left_id": [pair.left.id for pair in study.split.test],
        "right_id": [pair.right.id for pair in study.split.test],
        "schema": [pair.left.schema.name for pair in study.split.test],
        "judgement": [pair.judgement for pair in study.split.test],
        "tags": [",".join(names) for names in study.tagged],
    }
    for name, result in study.results.items():
        rows[f"{name} score"] = result.scores
        rows[f"{name} probability"] = result.probability
        rows[f"{name} decision"] = result.decided
    if ofac is not None:
        rows["ofac"] = ofac
    return pd.DataFrame(rows)

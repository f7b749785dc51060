"""Abstention keeps its promise, conformal sets cover, calibration keeps the order."""

import numpy as np
import pytest
from scipy.stats import binom

from sanctionspairs.abstain import (
    Calibrator,
    abstain_band,
    aurc,
    centered_isotonic,
    conformal_sets,
    decide,
    risk_coverage,
    upper_error,
)
from sanctionspairs.errors import SanctionsPairsError, ThresholdError


def draw(rng, n):
    """Calibrated pairs: p is the true probability."""
    p = rng.beta(0.35, 0.2, n)
    return p, rng.random(n) < p


def test_the_bound_is_clopper_and_pearsons():
    for k, n in ((0, 50), (3, 200), (10, 40)):
        assert binom.cdf(k, n, upper_error(k, n)) == pytest.approx(0.05)
    assert upper_error(0, 0) == upper_error(5, 5) == 1.0


def test_the_promise_is_broken_in_at_most_five_of_a_hundred_draws():
    rng = np.random.default_rng(0)
    alpha, broken, draws, decided = 0.05, 0, 200, []
    for _ in range(draws):
        p, y = draw(rng, 500)
        lo, hi, coverage = abstain_band(p, y, alpha)
        decided.append(coverage)
        if coverage:
            # The true error rate of decided pairs: p is exact, so it is the mean of min(p, 1 - p) there.
            fresh, _ = draw(rng, 5_000)
            doubt = np.minimum(fresh, 1 - fresh)
            broken += doubt[(fresh <= lo) | (fresh >= hi)].mean() > alpha
    assert broken / draws <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)
    assert np.mean(decided) > 0.3


def test_perfect_scores_are_decided_and_useless_ones_are_not():
    y = np.arange(600) % 3 > 0
    lo, hi, coverage = abstain_band(np.where(y, 0.99, 0.01), y, 0.01)
    assert coverage == 1.0
    assert (decide(np.array([lo, hi, 0.5]), lo, hi) == [0, 1, -1]).all()
    rng = np.random.default_rng(0)
    assert abstain_band(rng.random(600), y, 0.01) == (0.0, 1.0, 0.0)
    with pytest.raises(SanctionsPairsError, match="target error"):
        abstain_band(np.array([0.5]), np.array([1]), 0.0)


def test_a_stricter_target_widens_the_band():
    p, y = draw(np.random.default_rng(3), 4000)
    coverages = [abstain_band(p, y, alpha)[2] for alpha in (0.02, 0.05, 0.1)]
    assert coverages[0] < coverages[1] < coverages[2]


def test_no_answer_is_abstained_from():
    assert decide(np.array([np.nan, 0.0, 1.0]), 0.1, 0.9).tolist() == [-1, 0, 1]


def test_conformal_sets_cover_in_two_hundred_draws():
    rng = np.random.default_rng(1)
    alpha, covered = 0.1, []
    for _ in range(200):
        p, y = draw(rng, 150)
        sets = conformal_sets(p[:100], y[:100], p[100:], alpha)
        covered.append(sets[np.arange(50), y[100:].astype(int)].mean())
    sd = np.std(covered) / np.sqrt(200)
    assert np.mean(covered) >= 1 - alpha - 3 * sd
    assert np.mean(covered) <= 1 - alpha + 1 / 101 + 3 * sd


def test_too_few_calibration_pairs_give_both_labels():
    assert conformal_sets(np.array([0.9]), np.array([1]), np.array([0.99]), 0.1).all()


def test_risk_coverage_by_hand():
    p, y = np.array([0.99, 0.9, 0.4, 0.55]), np.array([1, 0, 0, 1])
    coverage, risk = risk_coverage(p, y)
    assert coverage.tolist() == [0.25, 0.5, 0.75, 1.0]
    assert risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 4])
    assert aurc(p, y) == pytest.approx(np.mean([0, 1 / 2, 1 / 3, 1 / 4]))


def test_calibration_keeps_the_order_and_finds_the_rates():
    rng = np.random.default_rng(2)
    p, y = draw(rng, 20_000)
    calibrator = Calibrator().fit(p**3, y)
    grid = np.linspace(0.02, 0.98, 40)
    assert np.abs(calibrator.transform(grid**3) - grid).mean() < 0.03
    assert (np.diff(calibrator.transform(np.sort(p**3))) >= 0).all()
    assert np.isnan(calibrator.transform(np.array([np.nan]))).all()
    xs, ys = centered_isotonic(p, y)
    assert (np.diff(xs) > 0).all()
    assert 0 < ys[0] < ys[-1] < 1
    with pytest.raises(ThresholdError):
        centered_isotonic(p, np.ones_like(p))

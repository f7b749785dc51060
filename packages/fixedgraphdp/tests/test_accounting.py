"""Epsilon is right: the library, other bounds, Monte Carlo, closed forms, monotonicity."""

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import binom, norm

from fixedgraphdp import BudgetError, accounting, bounds
from fixedgraphdp.accounting import SEARCH, epsilon, epsilon_profile, noise_multiplier
from fixedgraphdp.baselines import group_privacy_epsilon

DELTA = 1e-5


@pytest.mark.parametrize(("q", "sigma", "steps"), [(0.05, 3.0, 100), (0.3, 5.0, 20)])
def test_at_k_1_it_is_the_librarys_poisson_accounting(q, sigma, steps):
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=SEARCH)
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
    ours = epsilon(1, q, sigma, steps, DELTA, interval=SEARCH)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-6)


@pytest.mark.parametrize("k", [2, 5])
def test_the_fast_loss_distribution_is_the_librarys(k):
    pmf = binom.pmf(range(k + 1), k, 0.1)
    slow = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        8.0, list(range(k + 1)), list(pmf), value_discretization_interval=0.02
    )
    fast = accounting.mixture_pld(8.0, np.arange(k + 1.0), pmf, 0.02)
    for level in (0.0, 0.1, 0.5, 1.0):
        assert fast.get_delta_for_epsilon(level) == pytest.approx(slow.get_delta_for_epsilon(level), abs=1e-9)


@pytest.mark.parametrize(("k", "sigma", "value"), [(1, 1.0, 1.3261), (4, 1.0, 6.2431), (4, 4.0, 0.8525)])
def test_known_values(k, sigma, value):
    assert epsilon(k, 0.01, sigma, 500, DELTA, interval=SEARCH) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("k", [1, 3])
def test_renyi_accounting_is_an_upper_bound(k):
    q, sigma, steps = 0.02, 2.0, 200
    orders = np.arange(2, 40, 2)
    x = np.linspace(-60, 80, 20_001)
    log_null = norm.logpdf(x, 0, sigma)
    pmf = binom.pmf(np.arange(k + 1), k, q)
    log_shift = np.logaddexp.reduce([np.log(p) + norm.logpdf(x, j, sigma) for j, p in enumerate(pmf)], axis=0)
    step = x[1] - x[0]
    spent = []
    for a in orders:
        there = np.logaddexp.reduce(a * log_shift + (1 - a) * log_null) + np.log(step)
        back = np.logaddexp.reduce(a * log_null + (1 - a) * log_shift) + np.log(step)
        renyi = steps * max(there, back) / (a - 1)
        spent.append(renyi + np.log1p(-1 / a) - np.log(DELTA * a) / (a - 1))
    ours = epsilon(k, q, sigma, steps, DELTA, interval=SEARCH)
    assert 0.5 * min(spent) < ours <= min(spent)
    if k == 1:
        accountant = dp_accounting.rdp.RdpAccountant()
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(dp_accounting.SelfComposedDpEvent(event, steps))
        assert ours <= accountant.get_epsilon(DELTA)


def test_delta_is_the_monte_carlo_mean_of_the_likelihood_ratio():
    k, q, sigma, steps, level = 3, 0.2, 2.0, 4, 0.3
    rng = np.random.default_rng(0)
    shift = rng.binomial(k, q, (200_000, steps))
    y = shift + sigma * rng.standard_normal(shift.shape)
    pmf = binom.pmf(np.arange(k + 1), k, q)
    with_user = sum(p * norm.pdf(y, j, sigma) for j, p in enumerate(pmf))
    ratio = np.log(with_user / norm.pdf(y, 0, sigma)).sum(axis=1)
    values = np.maximum(0.0, 1 - np.exp(level - ratio))
    claimed = accounting.delta_of(k, q, sigma, steps, level, interval=SEARCH)
    assert claimed >= values.mean() - 4 * values.std() / np.sqrt(len(values))
    assert claimed == pytest.approx(values.mean(), rel=0.03)


def test_epsilon_grows_with_k_q_and_steps_and_falls_with_noise():
    base = {"k": 3, "q": 0.05, "sigma": 4.0, "steps": 100}
    middle = epsilon(**base, delta=DELTA, interval=SEARCH)
    for name, more in (("k", 4), ("q", 0.06), ("steps", 120), ("sigma", 3.5)):
        assert epsilon(**base | {name: more}, delta=DELTA, interval=SEARCH) > middle
    assert epsilon(0, 0.05, 4.0, 100, DELTA) == 0


def test_full_batches_are_a_gaussian_of_sensitivity_k_or_2k():
    ours = epsilon(3, 1.0, 30.0, 4, DELTA)
    assert bounds.gaussian_sigma(ours, DELTA, sensitivity=6.0) == pytest.approx(30.0)
    swapped = epsilon(3, 1.0, 30.0, 4, DELTA, "replace")
    assert bounds.gaussian_sigma(swapped, DELTA, sensitivity=12.0) == pytest.approx(30.0)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(30.0 / 6.0))
    assert accountant.get_epsilon(DELTA) == pytest.approx(ours, rel=1e-3)


def test_replacing_goes_through_the_zeroed_data():
    assert epsilon(1, 0.01, 1.0, 500, DELTA, "replace", interval=SEARCH) == pytest.approx(3.03, abs=0.01)
    doubled = accounting.composed(1, 0.01, 0.5, 500, interval=SEARCH)  # valid at k = 1, and far looser
    assert doubled.get_epsilon_for_delta(DELTA) == pytest.approx(10.28, abs=0.02)
    half = epsilon(2, 0.1, 4.0, 20, DELTA, "replace", interval=SEARCH) / 2
    spent = accounting.delta_of(2, 0.1, 4.0, 20, half, interval=SEARCH)
    assert (1 + np.exp(half)) * spent == pytest.approx(DELTA, rel=1e-3)


def test_a_doubled_sensitivity_would_promise_too_much_under_replacement():
    """One step, k 4, q .5, sigma 1, contents that swap +1 for -1: the true distance exceeds the doubled mixture's."""
    x = np.linspace(-15, 15, 60_001)
    pmf = binom.pmf(np.arange(5), 4, 0.5)
    up = sum(p * norm.pdf(x, j) for j, p in enumerate(pmf))
    down = sum(p * norm.pdf(x, -j) for j, p in enumerate(pmf))
    doubled = sum(p * norm.pdf(x, 2 * j) for j, p in enumerate(pmf))
    step = x[1] - x[0]
    true = 0.5 * np.abs(up - down).sum() * step
    claimed = 0.5 * np.abs(doubled - norm.pdf(x)).sum() * step
    assert (round(claimed, 3), round(true, 3)) == (0.797, 0.840)
    # Ours, as a bound on the same distance: delta at epsilon 0 of two zero-out steps.
    assert 2 * accounting.delta_of(4, 0.5, 1.0, 1, 0.0, interval=SEARCH) >= true


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_noise_found_meets_its_budget_and_hardly_more(adjacency):
    sigma = noise_multiplier(2.0, 3, 0.05, 50, DELTA, adjacency)
    assert epsilon(3, 0.05, sigma, 50, DELTA, adjacency) <= 2.0
    assert epsilon(3, 0.05, sigma * 0.999, 50, DELTA, adjacency, interval=SEARCH) > 2.0


def test_each_users_epsilon_is_that_of_their_own_count():
    profile = epsilon_profile(np.array([0, 2, 1, 2]), 0.05, 3.0, 50, DELTA)
    assert profile[0] == 0
    assert profile[1] == profile[3] == epsilon(2, 0.05, 3.0, 50, DELTA, interval=SEARCH)
    assert profile[2] < profile[1]


def test_group_privacy_from_example_level_accounting_is_looser():
    for sigma in (1.0, 4.0):
        ours = epsilon(4, 0.01, sigma, 500, DELTA, interval=SEARCH)
        assert group_privacy_epsilon(4, 0.01, sigma, 500, DELTA) > ours


def test_results_are_kept_on_disk_and_a_broken_file_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("FIXEDGRAPHDP_CACHE", str(tmp_path / "cache"))
    first = epsilon(1, 0.1, 5.0, 3, DELTA, interval=SEARCH)
    (kept,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr(accounting, "composed", None)
    assert epsilon(1, 0.1, 5.0, 3, DELTA, interval=SEARCH) == first
    monkeypatch.undo()
    monkeypatch.setenv("FIXEDGRAPHDP_CACHE", str(tmp_path / "cache"))
    kept.write_text("torn")
    assert epsilon(1, 0.1, 5.0, 3, DELTA, interval=SEARCH) == first


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0])
def test_delta_must_lie_between_0_and_1(delta):
    with pytest.raises(ValueError, match="delta must lie in"):
        epsilon(1, 0.1, 1.0, 1, delta)


@pytest.mark.parametrize(
    "change", [{"k": -1}, {"sigma": np.inf}, {"q": 0.0}, {"q": 1.5}, {"sigma": 0.0}, {"steps": 0}, {"adjacency": "add"}]
)
def test_parameters_out_of_range_are_refused(change):
    with pytest.raises(ValueError, match=r"must|unknown"):
        epsilon(**{"k": 1, "q": 0.1, "sigma": 1.0, "steps": 1, "delta": DELTA} | change)


def test_no_noise_gives_epsilon_zero():
    with pytest.raises(BudgetError):
        noise_multiplier(0.0, 1, 0.1, 10, DELTA)


def test_the_analytic_gaussian_has_the_known_constants():
    known = {0.5: 12.4, 1.0: 13.9, 2.0: 15.9, 4.0: 18.7}
    for eps, value in known.items():
        assert round(bounds.gaussian_sigma(eps, DELTA) ** 2 * eps**2, 1) == value
    assert bounds.gaussian_epsilon(DELTA, 1 / bounds.gaussian_sigma(1.5, DELTA)) == pytest.approx(1.5)
    assert bounds.upper(2, 8, 1.0, DELTA, 100) / bounds.lower(2, 8, 1.0, 100) == pytest.approx(13.9, abs=0.05)
    assert bounds.lower(64, 128, 0.1, 64) == 1.0


@pytest.mark.parametrize(("sigma", "slack"), [(0.04, 0.01), (0.005, 5.0)])
def test_hardly_any_noise_is_accounted_for_on_a_wider_grid(sigma, slack):
    """One batch of a Poisson sample has the closed form ln(1 + q (e^e - 1)) with e the full batch's at delta / q.

    Beyond 709 the exponential overflows and the library rounds up more; that epsilon is still an upper bound.
    """
    q = 0.5
    exact = epsilon(1, 1.0, sigma, 1, DELTA / q) + np.log(q)
    assert exact - 1e-6 <= epsilon(1, q, sigma, 1, DELTA) <= exact + slack

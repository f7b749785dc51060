"""Intervals agree with scipy's, with brute force over whole clusters, and cover as often as they say."""

import itertools

import numpy as np
import pytest
import scipy.stats
from beartype import beartype
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import TypeCheckError, jaxtyped
from sklearn.metrics import roc_auc_score

from papers_shared.metrics import (
    Interval,
    auarc,
    aurc,
    bootstrap_counts,
    bootstrap_interval,
    paired_bootstrap,
    risk_coverage,
)

RNG = np.random.default_rng(7)
SKEWED = RNG.exponential(size=41)


def skewness(x):
    return float(((x - x.mean()) ** 3).mean() / x.std() ** 3)


@pytest.mark.parametrize("method", ["percentile", "bca"])
@pytest.mark.parametrize("statistic", [None, np.mean, np.median, skewness])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_interval_is_scipy_s_on_the_same_draws(method, statistic, confidence):
    ours = bootstrap_interval(SKEWED, statistic, confidence=confidence, n_resamples=500, method=method, seed=3)
    function = statistic or np.mean
    theirs = scipy.stats.bootstrap(
        (SKEWED,),
        function,
        vectorized=False,
        n_resamples=500,
        confidence_level=confidence,
        method=method,
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert ours.value == pytest.approx(function(SKEWED))
    assert ours[1:] == pytest.approx(tuple(theirs), rel=1e-9)


def test_several_arrays_are_drawn_together_as_scipy_s_paired_bootstrap_does():
    x, y = RNG.normal(size=(2, 30))
    y = x + 0.3 * y

    def correlation(a, b):
        return np.corrcoef(a, b)[0, 1]

    ours = bootstrap_interval((x, y), correlation, n_resamples=400, method="bca", seed=1)
    theirs = scipy.stats.bootstrap(
        (x, y), correlation, paired=True, vectorized=False, n_resamples=400, rng=np.random.default_rng(1)
    ).confidence_interval
    assert ours[1:] == pytest.approx(tuple(theirs), rel=1e-9)


def brute_force_cluster_means(values, clusters, n_resamples, seed):
    names = sorted(set(clusters))
    chosen = np.random.default_rng(seed).integers(0, len(names), (n_resamples, len(names)))
    means = []
    for row in chosen:
        sample = [
            value for number in row for value, name in zip(values, clusters, strict=True) if name == names[number]
        ]
        means.append(np.mean(sample))
    return np.array(means)


@pytest.mark.parametrize("statistic", [None, np.mean])
def test_clusters_are_drawn_whole(statistic):
    clusters = np.array(list("bbbacddddddaae"))
    values = RNG.normal(size=len(clusters)) + (clusters == "d") * 3
    means = brute_force_cluster_means(values, clusters, 300, seed=5)
    ours = bootstrap_interval(values, statistic, clusters=clusters, n_resamples=300, seed=5)
    assert ours.value == pytest.approx(values.mean())
    assert ours[1:] == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))


def test_bca_over_clusters_uses_the_leave_one_cluster_out_jackknife():
    clusters = np.repeat(np.arange(9), np.arange(1, 10))
    values = RNG.exponential(size=len(clusters)) * (1 + clusters)
    fast = bootstrap_interval(values, clusters=clusters, method="bca", n_resamples=400)
    slow = bootstrap_interval(values, np.mean, clusters=clusters, method="bca", n_resamples=400)
    assert fast == pytest.approx(slow)
    draws = brute_force_cluster_means(values, clusters, 400, seed=0)
    left_out = np.array([values[clusters != name].mean() for name in range(9)])
    spread = left_out.mean() - left_out
    acceleration = (spread**3).sum() / (6 * (spread**2).sum() ** 1.5)
    bias = scipy.stats.norm.ppf((np.mean(draws < values.mean()) + np.mean(draws <= values.mean())) / 2)
    z = bias + scipy.stats.norm.ppf([0.025, 0.975])
    levels = scipy.stats.norm.cdf(bias + z / (1 - acceleration * z))
    assert fast[1:] == pytest.approx(tuple(np.quantile(draws, levels)))


def test_one_cluster_each_is_the_plain_bootstrap():
    assert bootstrap_interval(SKEWED, clusters=np.arange(41)) == pytest.approx(bootstrap_interval(SKEWED))


def test_repeating_every_observation_widens_nothing_when_clusters_are_named():
    names = np.arange(41)
    assert bootstrap_interval(np.repeat(SKEWED, 5), clusters=np.repeat(names, 5)) == pytest.approx(
        bootstrap_interval(SKEWED)
    )
    naive = bootstrap_interval(np.repeat(SKEWED, 5))
    honest = bootstrap_interval(SKEWED)
    assert (naive.high - naive.low) < 0.6 * (honest.high - honest.low)


def test_intervals_over_clusters_cover_as_often_as_they_say():
    """200 data sets whose observations depend on their cluster: 95% intervals over clusters hold the truth."""
    rng, held, naive = np.random.default_rng(0), 0, 0
    clusters = np.repeat(np.arange(40), 6)
    for seed in range(200):
        values = np.repeat(rng.normal(size=40), 6) + 0.3 * rng.normal(size=240)
        held += not bootstrap_interval(values, clusters=clusters, n_resamples=300, seed=seed).excludes(0)
        naive += not bootstrap_interval(values, n_resamples=300, seed=seed).excludes(0)
    assert 0.9 <= held / 200 <= 0.99
    assert naive / 200 < 0.75


def test_paired_values_are_their_differences():
    a, b = RNG.normal(size=(2, 50))
    assert paired_bootstrap(a, b, seed=2) == bootstrap_interval(a - b, seed=2)
    assert paired_bootstrap(a + 5, a, seed=2) == pytest.approx((5, 5, 5))
    wins = paired_bootstrap([True, True, False], [True, False, False])
    assert wins.value == pytest.approx(1 / 3)


def test_the_shared_counts_give_the_same_means():
    clusters = np.array(list("bbbacddddddaae"))
    values = RNG.normal(size=len(clusters))
    for names in (None, clusters):
        counts = bootstrap_counts(len(values), 250, clusters=names, seed=4)
        assert counts.shape == (250, len(values))
        means = counts @ values / counts.sum(1)
        ours = bootstrap_interval(values, clusters=names, n_resamples=250, seed=4)
        assert ours[1:] == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])))
    assert (bootstrap_counts(7, 50).sum(1) == 7).all()


def test_the_size_of_the_blocks_of_draws_does_not_matter(monkeypatch):
    whole = bootstrap_interval(SKEWED)
    counts = bootstrap_counts(41, 100)
    monkeypatch.setattr("papers_shared.metrics._CHUNK", 100)
    assert bootstrap_interval(SKEWED) == whole
    np.testing.assert_array_equal(bootstrap_counts(41, 100), counts)


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0]])
def test_degenerate_data_give_a_point_also_with_bca(values):
    for method in ("percentile", "bca"):
        assert bootstrap_interval(values, method=method) == (values[0],) * 3


def test_samples_without_a_statistic_are_left_out():
    """The AUROC of a sample of one class does not exist."""
    labels, scores = np.array([0, 0, 0, 1]), np.array([0.1, 0.4, 0.2, 0.3])

    def auroc(y, s):
        return roc_auc_score(y, s) if len(set(y)) == 2 else np.nan

    interval = bootstrap_interval((labels, scores), auroc, n_resamples=200)
    assert interval.value == pytest.approx(2 / 3)
    assert 0 <= interval.low <= interval.high <= 1
    with pytest.raises(ValueError, match="NaN on every sample"):
        bootstrap_interval((labels, scores), lambda *_: np.nan)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"data": []}, "no observations"),
        ({"data": [1.0, np.nan]}, "contain NaN"),
        ({"data": (np.ones(3), np.ones(4)), "statistic": np.mean}, "differ in length"),
        ({"data": np.ones((3, 2))}, "one vector"),
        ({"data": np.float64(3)}, "no observations"),
        ({"data": [1.0, 2.0], "clusters": [1]}, r"clusters must have shape \(2,\)"),
        ({"data": [1.0, 2.0], "confidence": 95}, "confidence must be in"),
        ({"data": [1.0, 2.0], "n_resamples": 0}, "n_resamples"),
        ({"data": [1.0, 2.0], "method": "basic"}, "method must be"),
    ],
)
def test_bad_arguments_of_the_bootstrap(arguments, says):
    with pytest.raises(ValueError, match=says):
        bootstrap_interval(**arguments)


def test_paired_values_of_different_length_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        paired_bootstrap([1.0], [1.0, 2.0])


def test_excludes():
    assert Interval(1, 0.5, 2).excludes()
    assert not Interval(1, 0.5, 2).excludes(1.5)
    assert not Interval(1, 0, 2).excludes(0)
    assert Interval(1, 0.5, 2).excludes(2.5)


def brute_force_auarc(correct, confidence):
    """Average over all orders that the confidences allow."""
    areas = []
    for order in itertools.permutations(range(len(correct))):
        sureness = [confidence[i] for i in order]
        if sureness == sorted(sureness, reverse=True):
            hits = np.cumsum([correct[i] for i in order])
            areas.append(np.mean(hits / np.arange(1, len(correct) + 1)))
    return np.mean(areas)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=6))
def test_auarc_is_the_mean_over_all_orders_of_ties(items):
    correct, confidence = [item[0] for item in items], [item[1] for item in items]
    assert auarc(correct, confidence) == pytest.approx(brute_force_auarc(correct, confidence))


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=1, max_size=30))
def test_auarc_and_aurc_are_two_sides_of_one_curve(items):
    correct = np.array([item[0] for item in items])
    confidence = np.array([item[1] for item in items], dtype=float)
    assert auarc(correct, confidence) == pytest.approx(1 - aurc(~correct, confidence))
    assert auarc(correct, np.exp(confidence)) == pytest.approx(auarc(correct, confidence))  # only the order counts
    coverage, risk = risk_coverage(~correct, confidence)
    assert coverage[-1] == 1
    assert risk[-1] == pytest.approx(np.mean(~correct))


def test_auarc_by_hand():
    assert auarc([True, False, True, False], [4, 3, 2, 1]) == pytest.approx((1 + 1 / 2 + 2 / 3 + 1 / 2) / 4)
    assert auarc([True, False], [1, 1]) == pytest.approx(0.5)
    assert auarc([1, 0, 1], [0.0, 0.0, 0.0]) == pytest.approx(2 / 3)
    assert aurc([0.2, 0.8], [2, 1]) == pytest.approx((0.2 + 0.5) / 2)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (bootstrap_interval, (SKEWED,)),
        (bootstrap_interval, ([True, False, True],)),
        (bootstrap_interval, ((SKEWED, SKEWED > 1), lambda x, chosen: float(x[chosen].sum()))),
        (bootstrap_interval, ((np.ones((4, 2)), np.arange(4)), lambda x, y: float(x.sum()))),
        (paired_bootstrap, (np.arange(3), [0.5, 0.5, 0.5])),
        (bootstrap_counts, (4, 3)),
        (risk_coverage, (np.array([0.2, 0.8]), [2, 1])),
        (aurc, (np.array([False, True]), np.float32([0.1, 0.2]))),
        (auarc, ([1, 0, 1], [0.1, 0.2, 0.3])),
    ],
)
def test_the_shapes_in_the_signatures_are_true(function, arguments):
    checked = jaxtyped(typechecker=beartype)(function)
    np.testing.assert_equal(checked(*arguments), function(*arguments))
    with pytest.raises(TypeCheckError):
        checked(np.float64(1), *arguments[1:])


def test_infinite_confidence_is_only_an_order():
    assert auarc([True, False], [np.inf, -np.inf]) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("loss", "confidence"), [([], []), ([1.0], [1.0, 2.0]), ([np.nan], [1.0]), ([1.0], [np.nan]), ([[1.0]], [[1.0]])]
)
def test_bad_arguments_of_the_curve(loss, confidence):
    with pytest.raises(ValueError, match=r"NaN|one length"):
        risk_coverage(loss, confidence)

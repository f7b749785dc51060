"""Cluster statistics are private and powerful: brute-force sensitivity, level, concentration, the claims' shortcut."""

import numpy as np
import pytest

from fixedgraphdp import AttributionGraph, claims, generators, iid
from fixedgraphdp.bounds import gaussian_sigma
from papers_shared.errors import InputError

GRAPH = generators.chung_lu_hypergraph(200, 60, 3, seed=6)


@pytest.mark.parametrize("method", ["primary", "components", "label-propagation"])
def test_clusters_are_a_partition_with_the_stated_limits(method):
    found = iid.clusters_from_graph(GRAPH, method, c=10)
    inside = found.label[found.label >= 0]
    assert set(inside.tolist()) == set(range(found.count))
    assert np.bincount(inside).max() == found.c <= 10
    for user in range(GRAPH.n_users):
        labels = found.label[GRAPH.examples_of(user)]
        assert len(set(labels[labels >= 0].tolist())) <= found.s


def test_disjoint_clusters_are_found_exactly():
    for method in ("primary", "components"):
        found = iid.clusters_from_graph(generators.clustered(20, 5), method)
        assert (found.count, found.c, found.s) == (20, 5, 1)


def test_one_user_moves_the_sum_by_at_most_2_s_tau():
    found = iid.clusters_from_graph(GRAPH, c=8)
    rng = np.random.default_rng(0)
    tau = 1.3
    largest = 0.0
    for user in range(GRAPH.n_users):
        values = rng.uniform(-1, 1, 200)
        sums = []
        for contents in (-1.0, 1.0):
            values[GRAPH.examples_of(user)] = contents
            sums.append(iid.cluster_sums(values, found, 0.0, tau).sum())
        largest = max(largest, abs(sums[1] - sums[0]))
    assert 0 < largest <= 2 * found.s * tau + 1e-9


def test_independent_clusters_are_hardly_ever_clipped():
    c, m = 100, 200
    tau = iid.clip_level(c, m, 1.0)
    sums = np.random.default_rng(1).choice([-1.0, 1.0], (100, m, c)).sum(axis=2)
    assert (np.abs(sums) > tau).any(axis=1).mean() <= 0.05
    assert tau < iid.clip_level(c, m, 1.0, worst_case=True) == 100
    assert iid.clip_level(1, m, 1.0) == 1.0


def bernoulli_test(truth, seed, alpha=0.1, **options):
    graph = generators.clustered(100, 10)
    low, high = float(np.log1p(-2 * alpha)), float(np.log1p(2 * alpha))

    def ratios(rng, p):
        return np.where(rng.random(1000) < p, high, low)

    return iid.cluster_test(
        ratios(np.random.default_rng([seed, 1]), truth),
        iid.clusters_from_graph(graph),
        **{"epsilon": 1.0, "repeats": 60, "seed": seed} | options,
        bounds=(low, high),
        means=((low + high) / 2, (0.5 + alpha) * high + (0.5 - alpha) * low),
        null=lambda rng: ratios(rng, 0.5),
    )


def test_it_keeps_its_level_and_has_power():
    null = np.mean([bernoulli_test(0.5, seed).reject for seed in range(30)])
    power = np.mean([bernoulli_test(0.6, seed).reject for seed in range(30)])
    assert null <= 0.2
    assert power >= 0.6
    shortcut = claims._power(0.1, 10, 100, 1.0, 4000, False, 0)
    assert power == pytest.approx(shortcut, abs=0.2)


def test_the_noise_is_that_of_the_sensitivity():
    found = bernoulli_test(0.5, 0)
    assert found.noise_scale == pytest.approx(2 * found.s * found.tau / 1.0)
    assert bernoulli_test(0.5, 0, worst_case=True).tau == pytest.approx(10 * (np.log(1.2) - np.log(0.8)) / 2)


def test_with_a_delta_the_noise_is_gaussian_of_the_same_sensitivity():
    found = bernoulli_test(0.5, 0, delta=1e-5)
    assert found.noise_scale == pytest.approx(gaussian_sigma(1.0, 1e-5, 2 * found.s * found.tau))
    assert bernoulli_test(0.5, 0).noise_scale < found.noise_scale
    clusters = iid.clusters_from_graph(generators.clustered(40, 5))
    zeros = np.zeros(200)
    draws = [iid.cluster_mean(zeros, clusters, 1.0, delta=1e-5, bounds=(-1.0, 1.0), seed=s) for s in range(400)]
    tau = iid.clip_level(5, 40, 1.0)
    assert np.std(draws) == pytest.approx(gaussian_sigma(1.0, 1e-5, 2 * tau) / 200, rel=0.1)
    assert abs(np.mean(np.array(draws) ** 4) / np.var(draws) ** 2 - 3) < 1  # Laplace's kurtosis is 6


def test_without_a_seed_the_noise_is_a_new_one_each_time():
    clusters = iid.clusters_from_graph(generators.clustered(4, 5))
    draws = {iid.cluster_mean(np.zeros(20), clusters, 1.0, bounds=(-1.0, 1.0)) for _ in range(4)}
    assert len(draws) == 4


@pytest.mark.parametrize("s", [1, 2, 4])
def test_bounding_keeps_users_in_few_clusters_and_drops_only_what_it_must(s):
    free = iid.clusters_from_graph(GRAPH)
    found = iid.clusters_from_graph(GRAPH, s=s)
    assert found.s <= s < free.s
    joined = [set(found.label[GRAPH.examples_of(user)].tolist()) - {-1} for user in range(GRAPH.n_users)]
    assert max(map(len, joined)) == found.s
    assert (found.label >= 0).sum() >= (iid.clusters_from_graph(GRAPH, s=1).label >= 0).sum()
    for e in np.flatnonzero(found.label < 0).tolist():  # none would fit into a cluster that all its users are in
        shared = set.intersection(*(joined[user] for user in GRAPH.users_of(e)))
        mates = np.flatnonzero((free.label == free.label[e]) & (found.label >= 0))
        assert not (len(mates) and found.label[mates[0]] in shared)


def test_the_mean_is_close_and_improves_with_privacy_loss():
    clusters = iid.clusters_from_graph(generators.clustered(500, 10))
    values = np.random.default_rng(2).uniform(0, 1, 5000)
    errors = {
        eps: np.mean(
            [abs(iid.cluster_mean(values, clusters, eps, bounds=(0.0, 1.0), seed=s) - values.mean()) for s in range(50)]
        )
        for eps in (0.1, 10.0)
    }
    assert errors[10.0] < 0.01
    assert errors[0.1] > 5 * errors[10.0]


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="unknown clustering"):
        iid.clusters_from_graph(GRAPH, "random")
    with pytest.raises(InputError, match="epsilon"):
        bernoulli_test(0.5, 0, epsilon=0.0)
    clusters = iid.clusters_from_graph(generators.clustered(3, 2))
    with pytest.raises(InputError, match="outside"):
        iid.cluster_mean(np.full(6, 2.0), clusters, 1.0, bounds=(0.0, 1.0))


def test_public_examples_belong_to_no_cluster():
    graph = AttributionGraph.from_lists([[0], [], [0]], empty="public")
    for method in ("primary", "label-propagation"):
        assert iid.clusters_from_graph(graph, method).label.tolist() == [0, -1, 0]

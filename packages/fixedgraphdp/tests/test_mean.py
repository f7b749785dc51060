"""The private mean has the noise of its sensitivity and clips."""

import numpy as np
import pytest

from fixedgraphdp import AttributionGraph, bound, generators, private_mean
from fixedgraphdp.bias import ht_weights
from fixedgraphdp.bounds import gaussian_sigma
from papers_shared.errors import InputError


def test_the_error_is_that_of_the_gaussian_mechanism():
    graph = generators.clustered(100, 4)
    kept = bound(graph, 2)
    x = np.random.default_rng(0).standard_normal((400, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    draws = np.array([private_mean(x, kept, 1.0, 1e-5, seed=s) for s in range(500)])
    assert draws.std(axis=0).mean() == pytest.approx(2 * gaussian_sigma(1.0, 1e-5) / 200, rel=0.1)
    assert np.allclose(draws.mean(0), x[kept.selected].mean(0), atol=4 * draws.std() / np.sqrt(500))


def test_long_examples_are_clipped():
    graph = generators.clustered(50, 1)
    x = np.full((50, 2), 1e6)
    assert np.linalg.norm(private_mean(x, bound(graph, 1), 1e6, 0.5, seed=0)) == pytest.approx(1, abs=0.01)


def test_weights_against_bias_undo_it_and_raise_the_noise_alike():
    """A star's examples and 50 single ones: without weights the mean over S leans to those always kept."""
    graph = AttributionGraph.from_lists([[0]] * 50 + [[u] for u in range(1, 51)])
    f = np.r_[np.ones(50), np.zeros(50)][:, None]
    k = 10
    p = np.r_[np.full(50, k / 50), np.ones(50)]
    weights = ht_weights(p, 10.0)
    means = {"plain": [], "weighted": []}
    for key in range(200):
        kept = bound(graph, k, order="random", key=key)
        means["plain"].append(private_mean(f, kept, 1e6, 0.5, seed=key)[0])
        means["weighted"].append(private_mean(f, kept, 1e6, 0.5, weights=weights, seed=key)[0])
    assert np.mean(means["plain"]) == pytest.approx(10 / 60, abs=0.01)
    assert np.mean(means["weighted"]) == pytest.approx(0.5, abs=0.01)
    kept = bound(graph, k)
    noise = [private_mean(0 * f, kept, 1.0, 1e-5, weights=weights, seed=s)[0] for s in range(400)]
    expected = k * weights[kept.selected].max() * gaussian_sigma(1.0, 1e-5) / weights[kept.selected].sum()
    assert np.std(noise) == pytest.approx(expected, rel=0.15)


def test_bad_contents_and_arguments_do_no_harm():
    kept = bound(generators.clustered(50, 1), 1)
    x = np.zeros((50, 2))
    x[0] = np.inf
    assert np.isfinite(private_mean(x, kept, 1.0, 1e-5, seed=0)).all()
    with pytest.raises(InputError, match="weights"):
        private_mean(x, kept, 1.0, 1e-5, weights=np.full(50, -1.0))
    with pytest.raises(InputError, match="clip"):
        private_mean(x, kept, 1.0, 1e-5, clip=0.0)

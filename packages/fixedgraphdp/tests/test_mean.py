"""The private mean has the noise of its sensitivity and clips."""

import numpy as np
import pytest

from fixedgraphdp import bound, generators, private_mean
from fixedgraphdp.bounds import gaussian_sigma


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

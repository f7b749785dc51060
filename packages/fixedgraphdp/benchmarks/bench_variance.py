"""One pass in chunks against NumPy's two passes over everything."""

import numpy as np

from fixedgraphdp import empty, update
from fixedgraphdp.baselines import two_pass
from fixedgraphdp.data import default

VALUES = default(count=1_000_000)


def streamed():
    state = empty()
    for chunk in np.array_split(VALUES, 100):
        state = update(state, chunk)
    return state.variance


def test_streamed(benchmark):
    benchmark.group = "variance of 1,000,000 values"
    benchmark.extra_info["label"] = "Welford, 100 chunks"
    assert np.isfinite(benchmark(streamed))


def test_two_pass(benchmark):
    benchmark.group = "variance of 1,000,000 values"
    benchmark.extra_info.update(role="peer", label="NumPy, two passes")
    assert np.isfinite(benchmark(two_pass, VALUES))

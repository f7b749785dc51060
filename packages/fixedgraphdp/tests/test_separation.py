"""Batches for matrix mechanisms hold everything once, and keep users apart."""

import itertools

import numpy as np
import pytest

from fixedgraphdp import InfeasibleError, bound, generators
from fixedgraphdp.separation import separated_batches


@pytest.mark.parametrize("b", [1, 3, 8])
def test_users_are_b_batches_apart_and_take_part_k_times(b):
    graph = generators.chung_lu_hypergraph(300, 80, 3, seed=1)
    k = 3
    kept = bound(graph, k).selected
    batches = separated_batches(graph, kept, batch_size=6, b=b)
    assert sorted(np.concatenate(batches).tolist()) == kept.tolist()
    assert max(map(len, batches)) <= 6
    for user in range(graph.n_users):
        times = [t for t, batch in enumerate(batches) for e in batch if user in graph.users_of(int(e))]
        assert len(times) <= k
        assert all(later - earlier >= b for earlier, later in itertools.pairwise(times))


def test_too_few_steps_are_refused():
    graph = generators.clustered(2, 5)
    with pytest.raises(InfeasibleError, match="do not keep users 3 apart"):
        separated_batches(graph, np.arange(10), batch_size=4, b=3, steps=5)

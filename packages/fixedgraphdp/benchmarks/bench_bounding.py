"""Bounding and accounting against what people would use instead."""

import resource

import numpy as np
import pytest

from fixedgraphdp import AttributionGraph, accounting, bound, generators, lp
from fixedgraphdp.baselines import (
    group_privacy_epsilon,
    maximum_matching,
    published_greedy_k1,
    random_order,
    truncate_per_user,
)
from fixedgraphdp.data import embedded


@pytest.fixture(scope="module")
def million():
    """A million examples of three users out of 400,000."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 400_000, (1_000_000, 3))
    users = np.sort(users, axis=1)
    users[:, 1] += users[:, 1] == users[:, 0]
    users[:, 2] = np.maximum(users[:, 2], users[:, 1] + 1)
    return AttributionGraph.from_indices(np.repeat(np.arange(1_000_000), 3), users.ravel())


@pytest.mark.benchmark(group="greedy, 1M examples of 3 users, k 1")
def test_greedy(benchmark, million):
    bound(generators.star(10), 1)
    found = benchmark.pedantic(bound, (million, 1), rounds=9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    benchmark.extra_info.update(target="<= 5 s, <= 1.5 GB, >= 20x the peer", size=found.size, peak_GB=peak)


@pytest.mark.benchmark(group="greedy, 1M examples of 3 users, k 1")
def test_greedy_set_only(benchmark, million):
    from fixedgraphdp.greedy import greedy_set
    from fixedgraphdp.ranking import priority

    greedy_set(generators.star(10), 1, np.arange(10))
    found = benchmark.pedantic(lambda: greedy_set(million, 1, priority(million)), rounds=9)
    benchmark.extra_info.update(label="the set alone, without certificate", size=len(found))


@pytest.mark.benchmark(group="greedy, 1M examples of 3 users, k 1")
def test_rounds(benchmark, million):
    found = benchmark.pedantic(bound, (million, 1, "rounds"), rounds=1)
    benchmark.extra_info.update(size=found.size)


@pytest.mark.benchmark(group="greedy, 1M examples of 3 users, k 1")
def test_pure_python(benchmark, million):
    lists = million.example_users.reshape(-1, 3).tolist()
    found = benchmark.pedantic(published_greedy_k1, (lists,), rounds=3)
    same = found == bound(million, 1).selected.tolist()
    assert same
    benchmark.extra_info.update(role="peer", label="literal pure Python, published k 1", size=len(found), same_set=same)


BASELINES = {
    "greedy": lambda graph: bound(graph, 1).selected,
    "greedy, users' degrees": lambda graph: bound(graph, 1, order="user-degree").selected,
    "greedy-then-swap": lambda graph: bound(graph, 1, "greedy-then-swap").selected,
    "lp": lambda graph: bound(graph, 1, "lp").selected,
    "random order": lambda graph: random_order(graph, 1),
    "truncate per user": lambda graph: truncate_per_user(graph, 1),
    "exact (ILP)": lambda graph: bound(graph, 1, "exact").selected,
}


@pytest.mark.benchmark(group="examples kept of Les Miserables' 254, k 1")
@pytest.mark.parametrize("name", BASELINES)
def test_kept(benchmark, name):
    graph = embedded()
    kept = benchmark.pedantic(BASELINES[name], (graph,), rounds=3, warmup_rounds=1)
    benchmark.extra_info.update(label=name, size=len(kept))


@pytest.mark.benchmark(group="examples kept of Les Miserables' 254, k 1")
def test_matching(benchmark):
    size = benchmark.pedantic(maximum_matching, (embedded(),), rounds=3)
    benchmark.extra_info.update(role="peer", label="networkx max_weight_matching (exact)", size=size)


@pytest.fixture(scope="module")
def two_hundred_thousand():
    """80,000 examples and about 200,000 incidences."""
    return generators.chung_lu_hypergraph(80_000, 30_000, 4, seed=0)


@pytest.mark.benchmark(group="LP of 200k incidences, k 4")
def test_lp(benchmark, two_hundred_thousand):
    found = benchmark.pedantic(lp.relaxation, (two_hundred_thousand, 4), rounds=1)
    benchmark.extra_info.update(
        target="<= 60 s", incidences=two_hundred_thousand.n_incidences, value=found.value, bound=found.upper_bound
    )


@pytest.mark.benchmark(group="LP of 200k incidences, k 4")
def test_multiplicative_weights(benchmark, two_hundred_thousand):
    from fixedgraphdp.multiplicative_weights import packing

    graph = two_hundred_thousand
    found = benchmark.pedantic(packing, (graph, 4, np.ones(graph.n_examples)), {"eta": 0.05}, rounds=1)
    benchmark.extra_info.update(value=found.value, bound=found.upper_bound, steps=found.steps)


@pytest.mark.benchmark(group="LP of 200k incidences, k 4")
def test_scipy_linprog(benchmark, two_hundred_thousand):
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    graph = two_hundred_thousand
    rows = csr_array(
        (np.ones(graph.n_incidences), graph.user_examples, graph.user_ptr), shape=(graph.n_users, graph.n_examples)
    )
    solve = lambda: linprog(  # noqa: E731
        -np.ones(graph.n_examples), A_ub=rows, b_ub=np.full(graph.n_users, 4.0), bounds=(0, 1), method="highs"
    )
    found = benchmark.pedantic(solve, rounds=1)
    benchmark.extra_info.update(role="peer", label="scipy linprog (HiGHS)", value=-found.fun)


@pytest.mark.benchmark(group="accounting, k 64, sigma 20, T 10,000")
def test_accounting(benchmark, tmp_path, monkeypatch):
    monkeypatch.setenv("FIXEDGRAPHDP_CACHE", str(tmp_path / "none"))
    benchmark.extra_info.update(target="<= 5 s")

    def spend():
        return accounting.composed(64, 0.01, 20.0, 10_000).get_epsilon_for_delta(1e-5)

    benchmark.extra_info["epsilon"] = float(benchmark.pedantic(spend, rounds=1))


@pytest.mark.benchmark(group="accounting, k 64, sigma 20, T 10,000")
def test_library(benchmark):
    from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
    from scipy.stats import binom

    def spend():
        counts = np.arange(65)
        pld = from_mixture_gaussian_mechanism(20.0, counts.tolist(), binom.pmf(counts, 64, 0.01).tolist())
        return pld.self_compose(10_000).get_epsilon_for_delta(1e-5)

    benchmark.extra_info.update(role="peer", label="dp_accounting, from_mixture_gaussian_mechanism")
    benchmark.extra_info["epsilon"] = float(benchmark.pedantic(spend, rounds=1))


@pytest.mark.benchmark(group="accounting, k 64, sigma 20, T 10,000")
def test_group_privacy(benchmark):
    spend = lambda: group_privacy_epsilon(64, 0.01, 20.0, 10_000, 1e-5)  # noqa: E731
    epsilon = benchmark.pedantic(spend, rounds=1)
    benchmark.extra_info.update(label="example-level accounting and group privacy", epsilon=epsilon)

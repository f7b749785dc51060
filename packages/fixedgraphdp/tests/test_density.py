"""The density is right where it is known, and within its bounds elsewhere; the choice of k weighs what it says."""

import numpy as np
import pytest

from fixedgraphdp import bound, choose_k, density, generators, lp
from fixedgraphdp.bounds import gaussian_sigma
from fixedgraphdp.data import EMBEDDED, embedded
from papers_shared.errors import InputError


@pytest.mark.parametrize("c", [1, 3, 8])
def test_disjoint_clusters_have_half_their_size(c):
    found = density(generators.clustered(10, c))
    assert found.c == -(-c // 2)
    assert found.cover == pytest.approx(10)
    assert density(generators.clustered(10, c), beta=0.0).c == c


def test_one_user_in_everything_makes_it_linear():
    found = density(generators.star(40))
    assert found.c == 20
    assert found.cover == pytest.approx(1)
    assert found.n_over_cover == pytest.approx(40)


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_it_is_the_first_budget_whose_lp_keeps_enough(name, beta):
    graph = embedded(name)
    found = density(graph, beta)
    n = graph.n_examples
    values = [lp.relaxation(graph, k).value for k in range(1, found.c + 1)]
    assert values[-1] >= (1 - beta) * n - 1e-6
    assert all(value < (1 - beta) * n - 1e-6 for value in values[:-1])
    assert found.c >= (1 - beta) * found.n_over_cover - 1e-9
    assert all(value <= k * found.cover + 1e-6 for k, value in enumerate(values, 1))


def test_the_projective_plane_is_covered_by_its_points():
    assert density(generators.projective_plane(3)).cover == pytest.approx(7 / 3)


def test_beta_outside_its_range_is_refused():
    with pytest.raises(InputError, match="beta"):
        density(embedded(), 1.0)


def test_the_choice_minimises_the_sum_of_its_parts():
    graph = embedded()
    found = choose_k(graph, 2.0, 1e-5, 32)
    assert found.best.total == min(row.total for row in found.rows)
    sigma = gaussian_sigma(2.0, 1e-5)
    for row in found.rows:
        assert row.size == bound(graph, row.k).size
        assert row.noise == pytest.approx((row.k * sigma) ** 2 * 32 / row.size**2)
        assert row.sampling == pytest.approx(32 / row.size)
        assert row.total == pytest.approx(row.bias_squared + row.sampling + row.noise)
    assert found.rows[-1].kept_share == 1
    assert found.rows[-1].cv == 0
    assert f"k={found.best.k}" in found.why


def test_more_privacy_asks_for_a_smaller_budget():
    graph = generators.preferential_authors(3000, 1200, seed=0)
    ks = [choose_k(graph, eps, 1e-5, 16, runs=8, order="user-degree").best.k for eps in (0.2, 2.0, 50.0)]
    assert ks == sorted(ks)
    assert ks[0] < ks[-1]
    with pytest.raises(InputError, match="dimension"):
        choose_k(graph, 1.0, 1e-5, 0)


def test_generated_graphs_are_as_described():
    graph = generators.preferential_authors(20_000, 8_000, seed=0)
    assert graph.n_examples == 20_000
    assert graph.r == 8
    assert 40 <= graph.degrees.max() <= 110
    assert np.mean(graph.sizes == 1) == pytest.approx(0.45, abs=0.02)


def test_a_density_out_of_time_still_brackets_the_true_one(monkeypatch):
    """Without time every solver stops at once: c and c_at_least are certified all the same, and progress is told."""
    graph = generators.preferential_authors(600, 200, seed=3)
    true = density(graph, 0.1)
    assert true.exact
    assert (true.c_at_least, true.cover_gap) == (true.c, 0.0)
    monkeypatch.setattr(lp, "LARGE", 10)
    said = []
    rough = density(graph, 0.1, time_limit=0.0, progress=lambda share, note: said.append((share, note)))
    assert rough.c_at_least <= true.c <= rough.c
    assert (1 - rough.cover_gap) * rough.cover - 1e-6 <= true.cover <= rough.cover + 1e-6
    assert rough.exact is False
    assert said[-1][0] == 1.0
    assert any("gap" in note for _, note in said)


def test_uniform_examples_have_their_size_and_no_user_twice():
    graph = generators.uniform_hypergraph(500, 12, 4, seed=1)
    assert (graph.n_examples, graph.n_users) == (500, 12)
    assert all(len(set(graph.users_of(e).tolist())) == 4 for e in range(500))
    with pytest.raises(InputError, match="5 users"):
        generators.uniform_hypergraph(2, 4, 5)

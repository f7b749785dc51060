"""Bounding is right: enumeration, duality, matching, literal references, published numbers, invariants."""

import inspect
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixedgraphdp import AttributionGraph, InfeasibleError, OnlineBounder, bound, certified, density, generators, lp
from fixedgraphdp.baselines import maximum_matching, published_greedy_k1, random_order, truncate_per_user
from fixedgraphdp.bounding import METHODS
from fixedgraphdp.bounding_reference import largest_by_enumeration, sequential_greedy
from fixedgraphdp.data import EMBEDDED, embedded
from fixedgraphdp.multiplicative_weights import packing
from fixedgraphdp.ranking import priority
from fixedgraphdp.rounding import theory_alpha, theory_rounding
from fixedgraphdp.rounds import parallel_rounds
from papers_shared.errors import InputError

examples = st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=14)
larger = st.lists(st.sets(st.integers(0, 15), min_size=1, max_size=4), min_size=1, max_size=60)


def graph_of(lists):
    return AttributionGraph.from_lists([sorted(members) for members in lists], n_users=16)


def as_lists(graph):
    return [graph.users_of(e).tolist() for e in range(graph.n_examples)]


@settings(max_examples=15)
@given(examples, st.integers(1, 3), st.integers(0, 100))
def test_exact_is_the_best_of_all_subsets_and_every_bound_holds(lists, k, seed):
    graph = graph_of(lists)
    weights = np.random.default_rng(seed).integers(1, 5, len(lists)).astype(float)
    for w in (None, weights):
        best, _ = largest_by_enumeration(as_lists(graph), k, None if w is None else w.tolist())
        exact = bound(graph, k, "exact", weights=w)
        assert exact.weight == pytest.approx(best)
        assert exact.upper_bound == pytest.approx(best)
        for method in METHODS:
            if method in ("rounds", "lp") or w is None:
                found = bound(graph, k, method, weights=w, trials=2)
                assert found.weight <= best + 1e-9
                assert found.upper_bound >= best - 1e-9
                assert found.weight * graph.r >= best - 1e-9


@settings(max_examples=25)
@given(larger, st.integers(1, 4))
def test_every_method_respects_the_budget_and_leaves_nothing_out_that_fits(lists, k):
    graph = graph_of(lists)
    for method in ("greedy", "greedy-then-swap", "rounds", "online", "lp"):
        found = bound(graph, k, method, trials=2)
        degree = graph.user_degrees(found.selected)
        assert degree.max() <= k
        assert (degree == found.user_degrees).all()
        outside = set(range(graph.n_examples)) - set(found.selected.tolist())
        assert all((degree[graph.users_of(e)] >= k).any() for e in outside)


@settings(max_examples=60)
@given(larger, st.integers(1, 4), st.sampled_from(["size", "user-degree", "random", "given"]), st.integers(0, 9))
def test_rounds_and_greedy_equal_the_sequential_reference(lists, k, order, key):
    graph = graph_of(lists)
    ranking = priority(graph, order, key=key)
    literal = sequential_greedy(as_lists(graph), k, ranking.tolist())
    assert bound(graph, k, order=order, key=key).selected.tolist() == literal
    assert parallel_rounds(graph, k, ranking).tolist() == literal
    assert bound(graph, k, "rounds", order=order, key=key).selected.tolist() == literal


@given(larger)
def test_at_k_1_greedy_is_the_published_multi_owner_greedy(lists):
    graph = graph_of(lists)
    assert bound(graph, 1).selected.tolist() == published_greedy_k1(as_lists(graph))


@settings(max_examples=25)
@given(larger, st.integers(1, 4), st.integers(0, 100))
def test_the_linear_programme_equals_its_dual(lists, k, seed):
    graph = graph_of(lists)
    weights = np.random.default_rng(seed).uniform(0.1, 3, len(lists))
    solved = lp.relaxation(graph, k, weights)
    assert solved.upper_bound == pytest.approx(solved.value, abs=1e-7 * (1 + solved.value))
    assert solved.prices.min() >= 0
    load = np.bincount(graph.example_users, solved.x[graph.example_of_incidence], graph.n_users)
    assert load.max() <= k + 1e-7
    assert solved.x.min() >= 0
    assert solved.x.max() <= 1


@settings(max_examples=15)
@given(larger, st.integers(1, 4), st.integers(0, 100))
def test_multiplicative_weights_close_the_gap_they_promise(lists, k, seed):
    graph = graph_of(lists)
    weights = np.random.default_rng(seed).uniform(0.5, 2, len(lists))
    exact = lp.relaxation(graph, k, weights).value
    solved = packing(graph, k, weights, eta=0.05)
    load = np.bincount(graph.example_users, solved.x[graph.example_of_incidence], graph.n_users)
    assert load.max() <= k * (1 + 1e-12)
    assert solved.x.max() <= 1
    assert solved.value <= exact + 1e-6
    assert solved.upper_bound >= exact - 1e-6
    assert solved.value >= 0.95 * solved.upper_bound - 1e-9


def test_a_time_limit_falls_back_to_multiplicative_weights_and_says_so():
    graph = generators.chung_lu_hypergraph(3000, 1500, 3, seed=1)
    exact = lp.relaxation(graph, 2).value
    found = bound(graph, 2, "lp", time_limit=1e-6, trials=1)
    assert "did not finish" in found.notes[0]
    assert found.lp_value <= exact + 1e-6
    assert found.upper_bound >= math.floor(exact)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("capped", [True, False])
def test_multiplicative_weights_bound_the_programme_without_caps_too(capped, k):
    """Without caps an example still cannot exceed k, which is what the bound pays for one that prices leave short."""
    graph = generators.chung_lu_hypergraph(400, 200, 3, seed=2)
    weights = np.random.default_rng(0).uniform(0.5, 2, 400)
    exact = lp.relaxation(graph, k, weights, capped=capped).value
    for eta in (0.3, 0.02):
        solved = packing(graph, k, weights, eta=eta, capped=capped)
        assert solved.value <= exact * (1 + 1e-9)
        assert exact <= solved.upper_bound * (1 + 1e-9)
        assert solved.gap <= eta


@pytest.mark.parametrize("capped", [True, False])
def test_multiplicative_weights_out_of_time_leave_a_valid_bound(capped):
    graph = generators.chung_lu_hypergraph(400, 200, 3, seed=2)
    exact = lp.relaxation(graph, 1, capped=capped).value
    solved = packing(graph, 1, np.ones(400), eta=1e-3, capped=capped, time_limit=0.0)
    assert solved.steps == 20
    assert solved.value <= exact + 1e-6 <= solved.upper_bound + 2e-6


def test_beyond_the_limit_multiplicative_weights_take_over_by_themselves(monkeypatch):
    graph = generators.chung_lu_hypergraph(400, 200, 3, seed=2)
    assert lp.LARGE == 2_000_000
    monkeypatch.setattr(lp, "LARGE", graph.n_incidences)
    exact = lp.relaxation(graph, 2)
    assert (exact.solver, exact.note) == ("simplex", "")
    monkeypatch.setattr(lp, "LARGE", graph.n_incidences - 1)
    solved = lp.relaxation(graph, 2)
    assert solved.solver == "multiplicative weights"
    assert 0.95 * solved.upper_bound <= solved.value <= exact.value + 1e-6 <= solved.upper_bound + 2e-6
    found = bound(graph, 2, "lp", trials=1)
    assert "incidences" in found.notes[0]
    assert found.user_degrees.max() <= 2
    assert found.upper_bound >= math.floor(exact.value + 1e-6) >= found.size
    rough = density(graph)
    monkeypatch.undo()
    true = density(graph)
    assert true.exact
    assert rough.cover >= true.cover - 1e-6
    assert rough.c >= true.c if rough.exact is False else rough.c == true.c


def test_public_examples_count_in_the_bound_of_the_cover():
    graph = AttributionGraph.from_lists([[0], [0, 1], [], []], empty="public")
    solved = lp.relaxation(graph, 1, capped=False)
    assert solved.value == pytest.approx(3)
    assert solved.upper_bound == pytest.approx(3)


@given(st.lists(st.sets(st.integers(0, 9), min_size=2, max_size=2), min_size=1, max_size=25))
def test_pairs_at_k_1_are_a_maximum_matching(lists):
    graph = AttributionGraph.from_lists([sorted(pair) for pair in lists], n_users=10)
    assert bound(graph, 1, "exact").size == maximum_matching(graph)


@settings(max_examples=20)
@given(larger, st.integers(1, 3), st.integers(0, 1000))
def test_renaming_users_changes_nothing_and_renaming_examples_renames_the_set(lists, k, seed):
    graph = graph_of(lists)
    rng = np.random.default_rng(seed)
    users = rng.permutation(16)
    renamed = graph_of([{int(users[v]) for v in members} for members in lists])
    for method in ("greedy", "rounds", "online"):
        same = bound(renamed, k, method).selected
        assert same.tolist() == bound(graph, k, method).selected.tolist()
    order = rng.permutation(len(lists))
    shuffled = graph_of([lists[e] for e in order])
    place = np.argsort(order)
    ranking = priority(graph)
    moved = parallel_rounds(shuffled, k, place[ranking])
    assert sorted(order[moved].tolist()) == parallel_rounds(graph, k, ranking).tolist()
    assert lp.relaxation(shuffled, k).value == pytest.approx(lp.relaxation(graph, k).value)


@settings(max_examples=20)
@given(larger)
def test_the_optimum_grows_with_the_budget_and_ends_at_everything(lists):
    graph = graph_of(lists)
    top = int(graph.degrees.max())
    sizes = [bound(graph, k, "exact").size for k in range(1, top + 1)]
    values = [lp.relaxation(graph, k).value for k in range(1, top + 1)]
    assert sizes == sorted(sizes)
    assert all(b >= a - 1e-7 for a, b in itertools.pairwise(values))
    assert sizes[-1] == bound(graph, top).size == graph.n_examples


KNOWN = {
    ("les_miserables", 1): (32.5, 32, 28),
    ("les_miserables", 2): (60, 60, 50),
    ("les_miserables", 4): (107.5, 107, 94),
    ("les_miserables", 8): (179, 179, 161),
    ("les_miserables", 16): (228, 228, 226),
    ("karate_club", 1): (13.5, 13, 11),
    ("karate_club", 3): (34, 34, 28),
    ("karate_club", 8): (58, 58, 56),
}


@pytest.mark.parametrize(("name", "k"), KNOWN)
def test_the_embedded_graphs_give_the_known_optima(name, k):
    graph = embedded(name)
    value, optimum, greedy = KNOWN[name, k]
    assert lp.relaxation(graph, k).value == pytest.approx(value)
    assert bound(graph, k, "exact").size == optimum
    assert bound(graph, k).size == greedy
    rounded = bound(graph, k, "lp")
    assert rounded.size >= 0.95 * value
    assert rounded.upper_bound == math.floor(value)


def test_the_order_by_user_degree_is_markedly_better_on_the_default():
    assert bound(embedded(), 1, order="user-degree").size == 31


@pytest.mark.parametrize("name", EMBEDDED)
def test_swapping_and_sampling_are_never_below_greedy(name):
    graph = embedded(name)
    for k in (1, 2, 4):
        plain = bound(graph, k).size
        assert bound(graph, k, "greedy-then-swap").size >= plain
        assert bound(graph, k, "lp").size >= plain


def test_theory_draws_are_feasible_and_within_their_factor():
    graph = generators.chung_lu_hypergraph(400, 200, 3, seed=5)
    for k in (1, 2, 4):
        solved = lp.relaxation(graph, k)
        drawn = theory_rounding(graph, k, np.ones(400), solved.x)
        assert graph.user_degrees(drawn).max() <= k
        assert solved.value / len(drawn) <= theory_alpha(graph.n_users, k)


@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_the_tight_family_costs_greedy_a_factor_of_r(r):
    graph = generators.greedy_tight(r)
    assert bound(graph, 1, order="given").size == 1
    assert bound(graph, 1, "exact").size == r
    assert bound(graph, 1, order="given").upper_bound == r


@pytest.mark.parametrize("r", [3, 4])
def test_projective_planes_have_the_known_gap(r):
    plane = generators.projective_plane(r)
    assert plane.n_examples == plane.n_users == r * r - r + 1
    assert lp.relaxation(plane, 1).value == pytest.approx(r - 1 + 1 / r)
    assert bound(plane, 1, "exact").size == 1


def test_set_packing_reduces_to_bounding_at_every_budget():
    sets = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 4], [1, 3]]
    alone = bound(generators.set_packing(sets), 1, "exact").size
    assert alone == largest_by_enumeration(sets, 1)[0]
    for k in (2, 3):
        assert bound(generators.set_packing(sets, k), k, "exact").size == alone + (k - 1) * 5


def test_heavier_examples_win():
    graph = AttributionGraph.from_lists([[0], [0, 1], [1]])
    weights = np.array([1.0, 5.0, 1.0])
    for method in ("greedy", "rounds", "lp", "exact"):
        assert bound(graph, 1, method, weights=weights).selected.tolist() == [1]
    assert bound(graph, 1, "exact").selected.tolist() == [0, 2]


def test_online_decisions_equal_greedy_in_the_order_of_arrival():
    graph = generators.chung_lu_hypergraph(100, 30, 3, seed=9)
    gate = OnlineBounder(2)
    taken = [e for e in range(100) if gate.offer(graph.users_of(e).tolist())]
    assert taken == bound(graph, 2, "online").selected.tolist()


def test_weights_do_not_change_the_order_of_arrival():
    graph = AttributionGraph.from_lists([[0], [0], [1]])
    found = bound(graph, 1, "online", weights=np.array([1.0, 9.0, 1.0]))
    assert found.selected.tolist() == [0, 2]
    assert found.upper_bound >= 10


@settings(max_examples=25)
@given(larger, st.integers(1, 3), st.integers(0, 100))
def test_greedys_own_certificate_is_at_most_r_times_its_weight(lists, k, seed):
    """Of both kinds: priced in greedy's pass for equal weights, and for others by `certificate`."""
    graph = graph_of(lists)
    weights = np.random.default_rng(seed).integers(1, 6, len(lists)).astype(float)
    for w in (None, weights):
        found = bound(graph, k, weights=w)
        assert found.upper_bound <= graph.r * found.weight + 1e-9
        assert found.upper_bound >= math.floor(lp.relaxation(graph, k, w).value + 1e-6) - 1e-6
    plain = bound(graph, k)
    again = certified(graph, k, plain.selected)
    assert again.upper_bound >= bound(graph, k, "exact").size
    assert again.user_degrees.tolist() == plain.user_degrees.tolist()


def test_a_set_from_elsewhere_is_checked():
    graph = AttributionGraph.from_lists([[0], [0], [1]])
    assert certified(graph, 1, np.array([2, 0])).selected.tolist() == [0, 2]
    assert certified(graph, 1, np.array([0])).upper_bound == 3  # example 2 still fits, so only n bounds
    for chosen, says in (([0, 1], "more than k"), ([0, 0], "once each"), ([5], "examples of the graph")):
        with pytest.raises(InputError, match=says):
            certified(graph, 1, np.array(chosen))


@settings(max_examples=25)
@given(larger, st.integers(1, 3))
def test_swapping_ends_where_no_exchange_of_one_for_two_is_left(lists, k):
    graph = graph_of(lists)
    kept = bound(graph, k, "greedy-then-swap").selected.tolist()
    outside = sorted(set(range(graph.n_examples)) - set(kept))
    for e in kept:
        rest = graph.user_degrees(np.array([f for f in kept if f != e], np.int64))
        for pair in itertools.combinations(outside, 2):
            assert (rest + graph.user_degrees(np.array(pair))).max() > k


def test_baselines_are_bounded_too():
    graph = generators.chung_lu_hypergraph(300, 60, 3, seed=2)
    for k in (1, 4):
        for chosen in (random_order(graph, k), truncate_per_user(graph, k)):
            assert graph.user_degrees(chosen).max() <= k
            assert len(chosen) <= bound(graph, k, "exact").size


def test_contents_cannot_reach_the_choice():
    graph = embedded()
    assert not {"x", "y", "labels", "contents"} & set(inspect.signature(bound).parameters)
    with pytest.raises(TypeError):
        bound((graph, np.zeros(254)), 2)
    with pytest.raises(TypeError):
        bound(graph, 2, labels=np.zeros(254))


@pytest.mark.parametrize("k", [0, -1, 2.0, True, "2"])
def test_a_budget_that_is_no_positive_whole_number_is_refused(k):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        bound(embedded(), k)


def test_an_empty_graph_leaves_nothing():
    with pytest.raises(InfeasibleError, match="no example"):
        bound(AttributionGraph.from_lists([]), 1)


@pytest.mark.parametrize(
    "options", [{"method": "best"}, {"order": "alphabet"}, {"weights": np.ones(3)}, {"weights": -np.ones(254)}]
)
def test_unknown_names_and_wrong_weights_are_refused(options):
    with pytest.raises(InputError):
        bound(embedded(), 2, **options)

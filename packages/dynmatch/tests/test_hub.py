"""The hub matcher: its flow is a minimum, its pairs cost what the bound allows, at every query, in any metric."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scipy.spatial.distance import cdist

from dynmatch import ExactMatcher, HubMatcher
from dynmatch.landmarks import ZERO_LEVEL, bunch, exponents, radii, sample_levels
from dynmatch.primal_dual_reference import hub_network_cost
from dynmatch.streams import adversarial, gaussian, graph


class HubWithinItsBound(RuleBasedStateMachine):
    """The ratio, the certificate and the flow's optimality hold after every update."""

    def __init__(self):
        super().__init__()
        self.hub, self.exact = HubMatcher(p=2, k=2, eps=0.25), ExactMatcher(p=2)

    @rule(
        side=st.sampled_from("AB"),
        x=st.tuples(*[st.integers(-3, 3).map(float) | st.floats(-100, 100)] * 2),
        weight=st.sampled_from([1, 1, 2]),
    )
    def insert(self, side, x, weight):
        name = self.hub.insert(side, x, weight=weight)
        self.exact.insert(side, x, id=name, weight=weight)

    @precondition(lambda self: self.hub.entries)
    @rule(data=st.data())
    def delete(self, data):
        name = data.draw(st.sampled_from(list(self.hub.entries)))
        self.hub.delete(name)
        self.exact.delete(name)

    @invariant()
    def bound_holds(self):
        self.hub.check()
        found, best = self.hub.cost(), self.exact.cost()
        assert best * (1 - 1e-9) - 1e-9 <= found <= 2 * 2 * 1.25 * best + 1e-9
        assert self.hub.lower_bound() <= best * (1 + 1e-9) + 1e-9


TestHubWithinItsBound = HubWithinItsBound.TestCase
TestHubWithinItsBound.settings = settings(max_examples=10, stateful_step_count=20, deadline=None, derandomize=True)


@pytest.mark.parametrize(("k", "p", "direct"), [(1, 1, True), (2, 1, False), (2, 2, True), (3, 2, False)])
def test_the_flow_is_a_minimum_of_its_network(k, p, direct):
    hub = HubMatcher(p=p, k=k, eps=0.3, direct=direct, seed=k)
    for number, update in enumerate(gaussian(70, 14, 2, seed=k)):
        hub.apply([update])
        if number % 12 == 11:
            cost = hub.network.totals[:, 0].sum()
            assert cost == pytest.approx(hub_network_cost(hub), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_every_pair_shares_a_landmark_within_k_times_its_distance(k):
    rng = np.random.default_rng(k)
    points = np.concatenate([rng.normal(size=(40, 2)), 50 + 0.01 * rng.normal(size=(40, 2))])
    levels = sample_levels(len(points), k, rng)
    table = cdist(points, points)
    present = np.zeros(80, bool)
    members = []
    for v in range(80):  # arrivals in order: a point looks at landmarks and at who is there before it
        present[v] = True
        members.append(set(bunch(table[v], levels, k, present).tolist()))
    for u in range(80):
        for v in range(u):
            shared = members[u] & members[v]
            assert min(max(table[u, w], table[v, w]) for w in shared) <= k * table[u, v] * (1 + 1e-12)


def test_levels_are_the_least_radii_above_the_distance():
    distances = np.concatenate([[0.0, 1.0, 1e-9, 1e9], np.random.default_rng(0).lognormal(0, 5, 500)])
    steps = exponents(distances, 0.1)
    assert steps[0] == ZERO_LEVEL
    assert (radii(steps, 0.1) >= distances).all()
    assert (radii(steps, 0.1)[1:] <= 1.1 * distances[1:] * (1 + 1e-9)).all()


@pytest.mark.parametrize(("k", "p"), [(2, 1), (3, 2)])
def test_a_graph_metric_with_ambient_landmarks(k, p):
    updates, matrix = graph(150, 25, seed=k)
    hub, exact = HubMatcher(matrix, p=p, k=k), ExactMatcher(matrix, p=p)
    for update in updates:
        hub.apply([update])
        exact.apply([update])
        assert exact.cost() * (1 - 1e-9) <= hub.cost() <= 2 * k * 1.1 * exact.cost() + 1e-9
    assert hub.rebuilds == 0
    hub.check()


@pytest.mark.parametrize("count", [20, 60])  # fewer and more live points than the space has rows
def test_a_rebuild_in_an_ambient_space_keeps_its_distances(count):
    rng = np.random.default_rng(count)
    places = rng.normal(size=(30, 3))
    matrix = cdist(places, places)
    hub, exact = HubMatcher(matrix, k=2), ExactMatcher(matrix)
    rows = rng.integers(30, size=count)
    for i, row in enumerate(rows):
        for matcher in (hub, exact):
            matcher.insert("AB"[i % 2], [row], id=i)
    hub._build()
    assert hub.rebuilds == 1
    for i in range(0, count, 4):
        hub.delete(i)
        exact.delete(i)
        hub.check()
        assert exact.cost() * (1 - 1e-9) <= hub.cost() <= 4.4 * exact.cost() + 1e-9
    network = hub.network.totals[:, 0].sum()
    fresh = HubMatcher(matrix, k=2)
    for entry in hub.entries.values():
        fresh.insert("AB"[entry.side], entry.point)
    assert network == pytest.approx(fresh.network.totals[:, 0].sum(), rel=1e-9)


def test_adversarial_deletions_keep_the_bound_and_match_a_fresh_build():
    hub, exact = HubMatcher(k=2, seed=1), ExactMatcher()
    for update in adversarial(220, 30, seed=2):
        hub.apply([update])
        exact.apply([update])
        assert hub.cost() <= 4.4 * exact.cost() + 1e-9
    hub.check()


def test_a_callable_metric_is_called_with_rows_only():
    sizes = []

    def taxicab(x, others):
        sizes.append(len(others))
        return np.abs(others - x).sum(axis=1)

    hub = HubMatcher(taxicab, k=2)
    for i, x in enumerate(np.random.default_rng(0).normal(size=(60, 3))):
        hub.insert("AB"[i % 2], x)
    assert max(sizes) <= 60
    assert hub.stats()["attachments"] < 60 * 60
    hub.check()


def test_ghost_landmarks_route_only():
    hub = HubMatcher(k=2, seed=3)
    rng = np.random.default_rng(3)
    for i in range(80):
        hub.insert("AB"[i % 2], rng.normal(size=2), id=i)
    for i in range(0, 40):
        hub.delete(i)
    hub.check()
    ids_a, ids_b, _ = hub.pairs()
    assert min(*ids_a, *ids_b) >= 40

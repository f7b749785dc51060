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
            assert cost == pytest.approx(hub_network_cost(hub), rel=1e-7, abs=2e-6)


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


def route_costs(hub):
    """Cheapest route from each a to each b, read off the network's arrays: over a common hub, or a direct arc."""
    net = hub.network
    level_of, exponent = net.levels, net.levels[:, 8]
    reached = [{}, {}]
    for q, level, *_ in net.attach[: net.sizes[1]].tolist():
        if q >= 0:
            reached[net.points[q, 0]].setdefault(q, {})[level_of[level, 0]] = (exponent[level], net.level_pi[level, 2])
    found = {
        (a, b): min(max(at[w], other[w])[1] for w in at.keys() & other.keys())
        for a, at in reached[0].items()
        for b, other in reached[1].items()
    }
    for a, b in net.direct[: net.sizes[2], :2].tolist():
        if a >= 0:
            e = np.flatnonzero((net.direct[: net.sizes[2], 0] == a) & (net.direct[: net.sizes[2], 1] == b))[0]
            found[a, b] = min(found[a, b], net.direct_cost[e])
    return found


@pytest.mark.parametrize(("k", "p", "direct"), [(1, 1, False), (2, 2, False), (2, 1, True), (3, 1, False)])
def test_every_route_of_a_live_network_keeps_the_stretch(k, p, direct):
    """After insertions, deletions, ghosts and rebuilds, on two clusters far apart."""
    hub = HubMatcher(p=p, k=k, eps=0.1, direct=direct, seed=k)
    rng = np.random.default_rng(k)
    for step in range(150):
        if step % 3 == 2:
            hub.delete(sorted(hub.entries)[int(rng.integers(len(hub.entries)))])
        else:
            x = rng.normal(size=2) if rng.random() < 0.5 else 50 + 0.01 * rng.normal(size=2)
            hub.insert("AB"[step % 2], x, id=step)
    assert hub.rebuilds > 1
    routes = route_costs(hub)
    a, b = ([q for q in hub.keys if hub.network.points[q, 0] == s] for s in range(2))
    assert len(routes) == len(a) * len(b)
    for (i, j), cost in routes.items():
        d = np.linalg.norm(hub._point(hub.keys[i]) - hub._point(hub.keys[j]))
        assert d**p * (1 - 1e-9) <= cost <= (2 * k * 1.1 * d) ** p * (1 + 1e-9)


def filled(points, p=1, swap=False):
    hub = HubMatcher(p=p, k=2, seed=4)
    for i, x in enumerate(points):
        hub.insert("AB"[(i % 2) ^ swap], x)
    return hub


@pytest.mark.parametrize("p", [1, 2])
def test_the_network_does_not_care_for_sides_places_or_units(p):
    points = np.random.default_rng(p).normal(size=(41, 3))
    hub = filled(points, p)
    cost, bound = hub.cost(), hub.lower_bound()
    for other, factor in (
        (filled(points, p, swap=True), 1.0),
        (filled(points + 7.5, p), 1.0),
        (filled(points * 1.1**9, p), 1.1**9),  # a whole number of levels
    ):
        assert other.lower_bound() == pytest.approx(factor * bound, rel=1e-9)
        assert other.cost() == pytest.approx(factor * cost, rel=1e-9)


def test_points_with_each_other_in_their_bunch_have_a_direct_arc():
    hub = HubMatcher(k=2, seed=2)
    rng = np.random.default_rng(2)
    for i in range(90):
        hub.insert("AB"[i % 2], rng.normal(size=2), id=i)
    hub._build()
    net = hub.network
    arcs = {tuple(pair) for pair in net.direct[: net.sizes[2], :2].tolist()}
    at = {site: next(iter(slots)) for site, slots in hub.at_site.items()}
    wanted = set()
    for q, level, *_ in net.attach[: net.sizes[1]].tolist():
        other = at.get(int(net.levels[level, 0]))
        if other is not None and net.points[q, 0] != net.points[other, 0]:
            wanted.add((q, other) if net.points[q, 0] == 0 else (other, q))
    assert arcs == wanted
    assert len(net.direct[: net.sizes[2]]) == len(arcs)


def test_many_points_at_once_are_within_the_bound_and_built_once():
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(70, 2)), rng.normal(size=(50, 2))
    hub, exact = HubMatcher(k=2), ExactMatcher()
    for matcher in (hub, exact):
        names = matcher.extend("A", a) + matcher.extend("B", b)
        assert len(set(names)) == 120
    hub.check()
    assert hub.rebuilds == 2
    assert exact.cost() * (1 - 1e-9) <= hub.cost() <= 4.4 * exact.cost()
    with pytest.raises(ValueError, match="row 2"):
        hub.extend("A", [[0.0, 0.0], [np.nan, 0.0]])
    assert hub.size == (70, 50)


@pytest.mark.parametrize("unit", [1e9, 1e-9])
def test_a_huge_p_neither_overflows_nor_vanishes(unit, caplog):
    rng = np.random.default_rng(4)
    points = unit * rng.normal(size=(24, 2))
    hub, exact = HubMatcher(p=60), ExactMatcher(p=60)
    for i, x in enumerate(points):
        hub.insert("AB"[i % 2], x)
        exact.insert("AB"[i % 2], x)
    assert "would overflow" in caplog.text
    assert 0 < exact.cost() * (1 - 1e-9) <= hub.cost() <= 4.4 * exact.cost()
    assert 0 < hub.lower_bound() <= exact.cost()
    hub.check()


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


@pytest.mark.parametrize("metric", ["l1", lambda x, others: np.abs(others - x).sum(axis=1)], ids=["named", "callable"])
def test_a_known_space_of_points_is_never_rebuilt_for_its_hierarchy(metric):
    rng = np.random.default_rng(0)
    places = rng.normal(size=(40, 3))
    hub, exact = HubMatcher(metric, ambient=places, p=2), ExactMatcher("l1", p=2)
    levels = hub.levels.copy()
    for step in range(90):
        if step % 3 == 2:
            name = sorted(hub.entries)[int(rng.integers(len(hub.entries)))]
            hub.delete(name)
            exact.delete(name)
        else:
            row = int(rng.integers(40))
            hub.insert("AB"[step % 2], [row], id=step)
            exact.insert("AB"[step % 2], places[row], id=step)
        assert exact.cost() * (1 - 1e-9) <= hub.cost() <= 4.4 * exact.cost() + 1e-9
    hub.check()
    assert (hub.levels == levels).all()
    with pytest.raises(ValueError, match="not a row of the ambient space"):
        hub.insert("A", [40])


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

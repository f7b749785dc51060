"""The exact matcher is exact: against scipy after every update, the literal method, closed forms and invariances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from dynmatch import ExactMatcher
from dynmatch.primal_dual_reference import LiteralMatcher
from dynmatch.streams import adversarial, deletions

coordinate = st.one_of(st.integers(-4, 4).map(float), st.floats(-100, 100, allow_nan=False).map(lambda v: round(v, 3)))
points2 = st.tuples(coordinate, coordinate)


def expand(matcher, side):
    rows = [e.point for e in matcher.entries.values() if e.side == side for _ in range(e.weight)]
    return np.array(rows) if rows else np.empty((0, 1))


def from_scratch(matcher, p, kind="euclidean"):
    a, b = expand(matcher, 0), expand(matcher, 1)
    if not len(a) or not len(b):
        return 0.0
    table = cdist(a, b, kind) ** p
    return float(table[linear_sum_assignment(table)].sum())


class ExactAgainstScipy(RuleBasedStateMachine):
    """Any order of insertions and deletions on both sides, with duplicates, weights, unequal sizes."""

    p = 1

    def __init__(self):
        super().__init__()
        self.matcher = ExactMatcher(p=self.p)

    @rule(side=st.sampled_from("AB"), x=points2, weight=st.sampled_from([1, 1, 1, 2, 3]))
    def insert(self, side, x, weight):
        self.matcher.insert(side, x, weight=weight)

    @rule(side=st.sampled_from("AB"), data=st.data())
    def insert_on_top_of_another(self, side, data):
        if self.matcher.entries:
            entry = data.draw(st.sampled_from(list(self.matcher.entries.values())))
            self.matcher.insert(side, entry.point)

    @precondition(lambda self: self.matcher.entries)
    @rule(data=st.data())
    def delete(self, data):
        self.matcher.delete(data.draw(st.sampled_from(list(self.matcher.entries))))

    @invariant()
    def equals_scipy_and_is_certified(self):
        self.matcher.check()
        exact = from_scratch(self.matcher, self.p)
        assert self.matcher.cost() ** self.p == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert self.matcher.lower_bound() ** self.p == pytest.approx(exact, rel=1e-8, abs=1e-8)


def machine(exponent):
    class Machine(ExactAgainstScipy):
        p = exponent

    test = Machine.TestCase
    test.settings = settings(max_examples=12, stateful_step_count=24, deadline=None, derandomize=True)
    return test


TestExactP1, TestExactP2, TestExactP3 = machine(1), machine(2), machine(3)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("make", "name"), [(adversarial, "adversarial"), (deletions, "deletions")])
def test_adversarial_deletions_stay_exact(make, name, p):
    matcher = ExactMatcher(p=p)
    for number, update in enumerate(make(updates=220, live=24, seed=p)):
        matcher.apply([update])
        exact = from_scratch(matcher, p)
        assert matcher.cost() ** p == pytest.approx(exact, rel=1e-9, abs=1e-12), number
    matcher.check()


def test_an_outlier_a_billion_times_farther_leaves_no_trace():
    rng = np.random.default_rng(0)
    matcher = ExactMatcher(p=2)
    for _i in range(20):
        matcher.insert("A", rng.normal(size=2))
        matcher.insert("B", rng.normal(size=2))
    far = [matcher.insert("B", [1e9, -1e9]), matcher.insert("A", [-1e9, 1e9])]
    for name in far:
        matcher.delete(name)
    assert matcher.cost() ** 2 == pytest.approx(from_scratch(matcher, 2), rel=1e-9)
    matcher.check()


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-5, 5), st.booleans()), max_size=14))
def test_equals_the_literal_method_with_explicit_dummies(steps):
    literal, fast = LiteralMatcher(lambda x, y: abs(x - y)), ExactMatcher()
    present = []
    for key, (side, x, remove) in enumerate(steps):
        if remove and present:
            gone_side, gone = present.pop(x % len(present))
            literal.delete(gone_side, gone)
            fast.delete(gone)
        else:
            literal.insert(side, key, float(x))
            fast.insert("AB"[side], [float(x)], id=key)
            present.append((side, key))
        assert fast.cost() == pytest.approx(literal.total(), abs=1e-9)


@given(
    st.lists(st.floats(-50, 50), min_size=1, max_size=15),
    st.lists(st.floats(-50, 50), min_size=1, max_size=15),
    st.sampled_from([1.0, 2.0, 3.0]),
)
def test_one_dimension_is_the_sorted_formula(a, b, p):
    n = min(len(a), len(b))
    a, b = np.array(a[:n]), np.array(b[:n])
    matcher = ExactMatcher(p=p)
    for x, y in zip(a, b, strict=True):
        matcher.insert("A", [x])
        matcher.insert("B", [y])
    assert matcher.cost() ** p == pytest.approx(np.sum(np.abs(np.sort(a) - np.sort(b)) ** p), rel=1e-9, abs=1e-9)
    if p == 1:
        assert matcher.wasserstein(normalized=True) == pytest.approx(wasserstein_distance(a, b), rel=1e-9, abs=1e-9)


def filled(points, order=None, p=1.0, swap=False):
    matcher = ExactMatcher(p=p)
    for i in range(len(points)) if order is None else order:
        matcher.insert("AB"[(i % 2) ^ swap], points[i])
    return matcher


@pytest.mark.parametrize("p", [1, 2, 3])
def test_invariances(p):
    rng = np.random.default_rng(p)
    points = rng.normal(size=(31, 3))
    cost = filled(points, p=p).cost()
    assert filled(points + 7.5, p=p).cost() == pytest.approx(cost, rel=1e-9)
    assert filled(4.0 * points, p=p).cost() == pytest.approx(4 * cost, rel=1e-12)
    assert filled(points, order=rng.permutation(31), p=p).cost() == pytest.approx(cost, rel=1e-12)
    assert filled(points, p=p, swap=True).cost() == pytest.approx(cost, rel=1e-12)


def test_insert_then_delete_returns_to_the_previous_cost():
    rng = np.random.default_rng(5)
    matcher = filled(rng.normal(size=(40, 2)))
    before = matcher.cost()
    for side in "AB":
        for far in (1.0, 100.0):
            name = matcher.insert(side, far * rng.normal(size=2))
            matcher.delete(name)
            assert matcher.cost() == pytest.approx(before, rel=1e-12)


def test_one_dimensional_projections_bound_w1_from_below():
    rng = np.random.default_rng(6)
    matcher = ExactMatcher("l1")
    a, b = rng.normal(size=(25, 3)), rng.normal(size=(25, 3)) + 1
    for x, y in zip(a, b, strict=True):
        matcher.insert("A", x)
        matcher.insert("B", y)
    bound = sum(25 * wasserstein_distance(a[:, i], b[:, i]) for i in range(3))
    assert bound <= matcher.cost() * (1 + 1e-12)


@pytest.mark.parametrize(("metric", "kind"), [("l1", "cityblock"), ("linf", "chebyshev"), ("l2", "euclidean")])
def test_norms_callables_and_matrices_agree(metric, kind):
    rng = np.random.default_rng(8)
    points = rng.normal(size=(24, 3))
    table = cdist(points, points, kind)
    matchers = [
        ExactMatcher(metric, p=2),
        ExactMatcher(lambda x, others: cdist(x[None], others, kind)[0], p=2),
        ExactMatcher("precomputed", p=2, matrix=table),
    ]
    for step in range(60):
        i = int(rng.integers(24))
        for matcher in matchers:
            if step % 3 == 2:
                matcher.delete(sorted(matcher.entries)[i % len(matcher.entries)])
            else:
                matcher.insert("AB"[step % 2], [i] if matcher is matchers[2] else points[i])
        exact = from_scratch(matchers[0], 2, kind)
        for matcher in matchers:
            assert matcher.cost() ** 2 == pytest.approx(exact, rel=1e-9, abs=1e-12)
    for matcher in matchers:
        matcher.check()


def test_rectangular_costs_that_are_no_metric():
    table = np.random.default_rng(2).random((6, 9))
    matcher = ExactMatcher("precomputed", matrix=table)
    for i in range(6):
        matcher.insert("A", [i])
    for j in range(9):
        matcher.insert("B", [j])
    assert matcher.cost() == pytest.approx(table[linear_sum_assignment(table)].sum(), rel=1e-12)
    assert len(matcher.unmatched()) == 3


def test_weights_equal_copies():
    rng = np.random.default_rng(3)
    heavy, copies = ExactMatcher(p=2), ExactMatcher(p=2)
    for i in range(12):
        x, weight = rng.normal(size=2), int(rng.integers(1, 6))
        heavy.insert("AB"[i % 2], x, id=i, weight=weight)
        for c in range(weight):
            copies.insert("AB"[i % 2], x, id=f"{i}-{c}")
    heavy.delete(3)
    for name in [n for n in copies.entries if str(n).startswith("3-")]:
        copies.delete(name)
    assert heavy.cost() == pytest.approx(copies.cost(), rel=1e-12)
    ids_a, ids_b, distances = heavy.pairs()
    assert len(ids_a) == len(ids_b) == min(heavy.size)
    assert np.sum(distances**2) == pytest.approx(heavy.cost() ** 2, rel=1e-12)
    name = next(i for i, entry in heavy.entries.items() if entry.weight > 1)
    assert sum(heavy.mate(name).values()) + heavy.unmatched().get(name, 0) == heavy.entries[name].weight


def test_a_huge_p_does_not_overflow(caplog):
    rng = np.random.default_rng(4)
    matcher = ExactMatcher(p=60)
    for i in range(16):
        matcher.insert("AB"[i % 2], 1e9 * rng.normal(size=2))
    assert "would overflow" in caplog.text
    a, b = expand(matcher, 0), expand(matcher, 1)
    table = (cdist(a, b) / matcher.kernel.scale) ** 60
    best = matcher.kernel.scale * table[linear_sum_assignment(table)].sum() ** (1 / 60)
    assert matcher.cost() == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("p", [2, 60])
def test_scales_follow_an_outlier_that_goes(p):
    rng = np.random.default_rng(7)
    matcher = ExactMatcher(p=p)
    for i in range(16):
        matcher.insert("AB"[i % 2], rng.normal(size=2))
    before = matcher.cost()
    for _ in range(2):
        far = [matcher.insert("A", [1e9, 0.0]), matcher.insert("B", [-1e9, 0.0])]
        assert matcher.cost() > 1e8
        for name in far:
            matcher.delete(name)
        assert matcher.cost() == pytest.approx(before, rel=1e-9)
        matcher.check()


def test_a_metric_that_fails_leaves_the_state_unchanged():
    def choosy(x, others):
        if x[0] > 100:
            raise OverflowError("too far")
        return np.abs(others - x).sum(axis=1)

    matcher = ExactMatcher(choosy)
    for i in range(8):
        matcher.insert("AB"[i % 2], [float(i)], id=i)
    before = matcher.cost()
    with pytest.raises(OverflowError):
        matcher.insert("A", [1000.0], id="far")
    assert (matcher.cost(), matcher.size) == (before, (4, 4))
    matcher.check()
    matcher.insert("A", [50.0], id="far")
    matcher.check()


def test_no_matrix_is_ever_needed():
    matcher = ExactMatcher()
    rng = np.random.default_rng(0)
    for i in range(400):
        matcher.insert("AB"[i % 2], rng.normal(size=2))
    held = sum(a.nbytes for a in vars(matcher.kernel).values() if isinstance(a, np.ndarray))
    assert held < 400 * 400  # bytes: 200 x 200 doubles would be twice as much

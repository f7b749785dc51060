"""The grid: its lists are what a recomputation gives, its matching is maximum, its cost near the exact one."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dynmatch import ExactMatcher, GridMatcher
from dynmatch.matcher import BaseMatcher
from dynmatch.streams import adversarial, gaussian

ENGINES = [
    {"engine": "auto"},
    {"engine": "dense", "rounded": True},
    {"engine": "aggregate"},
    {"engine": "ann", "backend": "brute"},
    {"engine": "ann", "backend": "kdtree"},
    {"engine": "ann", "backend": "lsh"},
    {"engine": "ann", "backend": "hnsw"},
]


class GridStaysWhole(RuleBasedStateMachine):
    """check() recomputes every carried list from the points up."""

    def __init__(self):
        super().__init__()
        self.grid, self.exact = GridMatcher(2, eps=0.5), ExactMatcher()

    @rule(
        side=st.sampled_from("AB"),
        x=st.tuples(*[st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3)] * 2),
        weight=st.sampled_from([1, 1, 2]),
    )
    def insert(self, side, x, weight):
        name = self.grid.insert(side, x, weight=weight)
        self.exact.insert(side, x, id=name, weight=weight)

    @precondition(lambda self: self.grid.entries)
    @rule(data=st.data())
    def delete(self, data):
        name = data.draw(st.sampled_from(list(self.grid.entries)))
        self.grid.delete(name)
        self.exact.delete(name)

    @invariant()
    def whole_and_never_below_the_optimum(self):
        self.grid.check()
        assert self.grid.cost() >= self.exact.cost() * (1 - 1e-9) - 1e-9


TestGridStaysWhole = GridStaysWhole.TestCase
TestGridStaysWhole.settings = settings(max_examples=12, stateful_step_count=24, deadline=None, derandomize=True)


@pytest.mark.parametrize("options", ENGINES, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_every_engine_keeps_its_invariants_and_a_fair_ratio(options):
    if options.get("backend") == "hnsw":
        pytest.importorskip("hnswlib")
    grid, exact, ratios = GridMatcher(2, eps=0.34, **options), ExactMatcher(), []
    for number, update in enumerate(gaussian(300, 70, 2, seed=1)):
        grid.apply([update])
        exact.apply([update])
        if number % 25 == 24:
            grid.check()
            if exact.cost():
                ratios.append(grid.cost() / exact.cost())
    assert min(ratios) >= 1 - 1e-9
    assert np.mean(ratios) < 3
    assert sum(grid.unmatched().values()) == abs(grid.size[0] - grid.size[1])


def filled(points, swap=False, **options):
    grid = GridMatcher(points.shape[1], eps=0.34, **options)
    for i, x in enumerate(points):
        grid.insert("AB"[(i % 2) ^ swap], x)
    return grid


@pytest.mark.parametrize("options", ENGINES[:3], ids=lambda o: "-".join(str(v) for v in o.values()))
def test_the_grid_does_not_care_for_sides_places_or_units(options):
    points = np.random.default_rng(3).normal(size=(121, 2))
    cost = filled(points, **options).cost()
    assert filled(points * 4.0, **options).cost() == pytest.approx(4 * cost, rel=1e-9)
    if options["engine"] != "aggregate":  # among children at equal distances it may choose, and a last bit decides
        assert filled(points + 8.0, **options).cost() == pytest.approx(cost, rel=1e-6)
        assert filled(points, swap=True, **options).cost() == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize("options", ENGINES[:2], ids=lambda o: "-".join(str(v) for v in o.values()))
def test_carried_lists_and_costs_equal_a_recomputation_in_the_same_cells(options):
    """For points in general position the optimum of a cell is unique, and so is what it carries up."""
    grid = GridMatcher(2, eps=0.34, engine=options["engine"])
    grid.apply(gaussian(260, 60, 2, seed=6))
    held = [{c: set(cell.carried()) for c, cell in level.items()} for level in grid.cells]
    cost = grid.cost()
    again = BaseMatcher.from_state(grid.state())
    again._exact_part[:] = 0
    again._fill()
    assert [{c: set(cell.carried()) for c, cell in level.items()} for level in again.cells] == held
    assert again.cost() == pytest.approx(cost, rel=1e-12)
    assert any(set(cell) for level in held[1:] for cell in level.values())


def test_work_is_counted_through_rebuilds_and_cells_that_go():
    grid, last = GridMatcher(2), 0
    for update in gaussian(300, 60, 2, seed=5):
        grid.apply([update])
        assert grid.stats()["relaxed_pairs"] >= last
        last = grid.stats()["relaxed_pairs"]
    assert grid.rebuilds > 3
    assert BaseMatcher.from_state(grid.state()).stats()["relaxed_pairs"] == last


@pytest.mark.parametrize("norm", [1.0, 2.0, 3.0, np.inf])
@pytest.mark.parametrize("dim", [1, 5])
def test_norms_and_dimensions(norm, dim):
    grid, exact = GridMatcher(dim, norm=norm, eps=0.5), ExactMatcher("minkowski", norm=norm)
    for update in gaussian(160, 50, dim, seed=2):
        grid.apply([update])
        exact.apply([update])
    grid.check()
    assert 1 - 1e-9 <= grid.cost() / exact.cost() <= 4 * dim / 0.5**1.5
    assert grid.lower_bound() is None
    assert grid.lower_bound(certify=True) == pytest.approx(exact.cost(), rel=1e-9)


def test_outliers_come_and_go():
    grid, exact = GridMatcher(2), ExactMatcher()
    for update in adversarial(200, 30, seed=3, far=1e4):
        grid.apply([update])
        exact.apply([update])
        assert grid.cost() >= exact.cost() * (1 - 1e-9)
    grid.check()


def test_identical_points_cost_nothing_and_end_at_the_leaf():
    grid = GridMatcher(3)
    for i in range(60):
        grid.insert("AB"[i % 2], [1.5, 2.0, -1.0])
    assert grid.cost() == 0
    assert grid.stats()["levels"] < 20
    grid.check()


def test_a_point_far_outside_grows_the_root(caplog):
    grid, exact = GridMatcher(2), ExactMatcher()
    rng = np.random.default_rng(0)
    for i in range(40):
        x = rng.normal(size=2)
        grid.insert("AB"[i % 2], x)
        exact.insert("AB"[i % 2], x, id=i)
    levels = grid.stats()["levels"]
    for name, x in (("far", [-1e6, 3.0]), ("farther", [1e14, -1e13])):
        grid.insert("A", x, id=name)
        exact.insert("A", x, id=name)
        grid.check()
    assert grid.stats()["levels"] > levels
    assert "2^40" in caplog.text
    assert 1 - 1e-9 <= grid.cost() / exact.cost() < 5


def test_a_projection_steers_the_search_and_costs_stay_true():
    grid, exact = GridMatcher(60, eps=0.5, project=8), ExactMatcher()
    for update in gaussian(120, 40, 60, seed=4):
        grid.apply([update])
        exact.apply([update])
    grid.check()
    _, _, distances = grid.pairs()
    assert distances.sum() == pytest.approx(grid.cost(), rel=1e-9)
    assert 1 - 1e-9 <= grid.cost() / exact.cost() < 1.6


def test_one_update_changes_at_most_one_carried_point_a_level():
    grid = GridMatcher(2, eps=0.25)
    rng = np.random.default_rng(1)
    for i in range(300):
        grid.insert("AB"[i % 2], rng.random(2))

    def carried():
        return [{place for cell in level.values() for place in cell.carried()} for level in grid.cells]

    for step in range(40):
        before, rebuilds = carried(), grid.rebuilds
        if step % 2:
            grid.delete(sorted(grid.entries)[int(rng.integers(len(grid.entries)))])
        else:
            grid.insert("AB"[int(rng.integers(2))], rng.random(2), id=1000 + step)
        if grid.rebuilds == rebuilds:
            assert all(len(a ^ b) <= 1 for a, b in zip(before, carried(), strict=False))


def test_a_crowded_leaf_makes_the_grid_finer():
    grid = GridMatcher(1, eps=1.0)
    rng = np.random.default_rng(2)
    grid.insert("A", [1e9], id="far")
    grid.extend("A", rng.random((500, 1)))
    grid.extend("B", rng.random((520, 1)))
    rebuilds = grid.rebuilds
    for _ in range(8):
        grid.insert("B", rng.random(1))
    assert grid.rebuilds == rebuilds + 1
    assert max(len(cell) for cell in grid.cells[0].values()) <= 1024
    grid.check()


def test_a_crowd_of_equal_points_stays_in_its_leaf():
    grid = GridMatcher(1, eps=1.0)
    grid.extend("A", np.zeros((1100, 1)))
    grid.insert("A", [1.0])
    rebuilds = grid.rebuilds
    for _ in range(4):
        grid.insert("B", [0.0])
    assert grid.rebuilds == rebuilds
    assert grid.cost() == 0

"""Saved and loaded, a matcher answers every later update with the same bits."""

import numpy as np
import pytest

from dynmatch import ExactMatcher, GridMatcher, HubMatcher, SlidingWindow, load, match
from dynmatch.snapshot import dumps, loads
from dynmatch.streams import gaussian
from papers_shared.errors import InputError

CASES = {
    "exact": lambda: ExactMatcher(p=2),
    "hub": lambda: HubMatcher(p=2, k=2),
    "grid": lambda: GridMatcher(2),
    "aggregate": lambda: GridMatcher(2, eps=0.5, engine="aggregate"),
    "auction": lambda: GridMatcher(2, eps=0.5, engine="ann", backend="brute"),
    "auction on trees": lambda: GridMatcher(2, eps=0.5, engine="ann", backend="kdtree"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_matcher_continues_bit_for_bit(name, tmp_path):
    updates = gaussian(260, 60, 2, seed=1)
    first = CASES[name]()
    first.apply(updates[:150])
    first.save(tmp_path / "state.npz")
    second = load(tmp_path / "state.npz")
    for number, update in enumerate(updates[150:]):
        first.apply([update])
        second.apply([update])
        if number % 7 == 0:  # asking or not asking on the way must make no difference
            first.cost()
    assert first.cost().hex() == second.cost().hex()
    assert sorted(zip(*first.pairs(), strict=True)) == sorted(zip(*second.pairs(), strict=True))
    second.check()


def test_snapshots_hold_any_plain_state_and_refuse_others(tmp_path):
    state = {"a": np.arange(6).reshape(2, 3), 3: [1.5, None, float("inf"), ("x", True)], "empty": np.empty((0, 2))}
    back = loads(dumps(state))
    assert back[3] == state[3]
    assert (back["a"] == state["a"]).all()
    assert back["empty"].shape == (0, 2)
    with pytest.raises(TypeError):
        dumps({"f": print})
    with pytest.raises(InputError, match="not a snapshot"):
        loads(b"PK\x03\x04 but no zip")
    (tmp_path / "x.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a snapshot"):
        ExactMatcher.load(tmp_path / "x.npz")


def test_a_snapshot_of_another_kind_or_with_a_callable_says_so(tmp_path):
    ExactMatcher().save(tmp_path / "e.npz")
    with pytest.raises(InputError, match="not a HubMatcher"):
        HubMatcher.load(tmp_path / "e.npz")

    def flat(x, others):
        return np.abs(others - x).sum(axis=1)

    live = ExactMatcher(flat)
    live.insert("A", [1.0])
    live.insert("B", [3.0])
    live.save(tmp_path / "c.npz")
    with pytest.raises(InputError, match="metric=function"):
        load(tmp_path / "c.npz")
    assert load(tmp_path / "c.npz", metric=flat).cost() == 2


def test_static_match_agrees_with_scipy_on_rectangles():
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    rng = np.random.default_rng(0)
    for n, m in ((1, 1), (1, 7), (9, 4), (40, 40), (0, 3)):
        a, b = rng.normal(size=(n, 3)), rng.normal(size=(m, 3))
        found = match(a, b)
        table = cdist(a, b)
        rows, columns = linear_sum_assignment(table)
        assert found.cost == pytest.approx(table[rows, columns].sum(), rel=1e-9, abs=1e-12)
        assert len(found.rows) == len(set(found.rows)) == min(n, m)
        assert found.distances == pytest.approx(table[found.rows, found.columns])


def test_the_monitor_sees_only_its_window():
    rng = np.random.default_rng(1)
    reference, stream = rng.normal(size=(20, 2)), rng.normal(size=(50, 2))
    monitor = SlidingWindow(reference, 15)
    for number, x in enumerate(stream):
        value = monitor.push(x)
        inside = stream[max(0, number - 14) : number + 1]
        assert value == pytest.approx(match(reference, inside, "exact").cost / len(inside), rel=1e-9)
    assert monitor.full
    again = SlidingWindow.from_state(loads(dumps(monitor.state())))
    assert again.push([0.5, 0.5]).hex() == monitor.push([0.5, 0.5]).hex()
    with pytest.raises(ValueError, match="nan"):
        monitor.push([np.nan, 0.0])
    assert monitor.distance() == again.distance()

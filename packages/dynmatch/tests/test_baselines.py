"""The peers answer the same question, and the heuristics err on the side they should."""

import numpy as np
import pytest

from dynmatch import baselines
from dynmatch.compare import run_all
from dynmatch.factory import exact_cost
from dynmatch.protocol import Update
from dynmatch.streams import window_clouds
from papers_shared.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in POT's own sources

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=(30, 2)), RNG.normal(size=(30, 2)) + 0.5


@pytest.mark.parametrize("method", [baselines.scipy_lsa, baselines.lapx_lapjv, baselines.pot_emd])
@pytest.mark.parametrize("p", [1.0, 2.0])
def test_exact_peers_agree(method, p):
    assert method(A, B, p) == pytest.approx(exact_cost(A, B, p), rel=1e-6)


def test_heuristics_are_bounds():
    exact = exact_cost(A, B)
    assert baselines.quadtree_greedy(A, B) >= exact * (1 - 1e-9)
    assert baselines.nearest_greedy(A, B) >= exact * (1 - 1e-9)
    assert baselines.sliced(A, B) <= exact * (1 + 1e-9)
    assert baselines.pot_sinkhorn(A, B) == pytest.approx(exact, rel=0.3)
    with pytest.raises(InputError, match="one size"):
        baselines.sliced(A, B[:3])


def test_a_warm_start_gives_the_same_optimum_after_points_have_changed():
    a, b = ({f"{side}{i}": x for i, x in enumerate(points)} for side, points in (("a", A), ("b", B)))
    peer = baselines.WarmEmd()
    assert peer.solve(a, b) == pytest.approx(exact_cost(A, B), rel=1e-6)
    for step in range(3):
        del a[f"a{step}"], b[f"b{step}"]
        a[f"new a{step}"], b[f"new b{step}"] = np.random.default_rng(step).normal(size=(2, 2))
        expected = exact_cost(np.array(list(a.values())), np.array(list(b.values())))
        assert peer.solve(a, b) == pytest.approx(expected, rel=1e-6)
    assert peer.warm


def test_compare_has_a_row_per_method_and_exact_ones_say_one():
    rows = {r["method"]: r for r in run_all(window_clouds(12, 80), 24, 0, lambda n: None)}
    assert {"dynmatch exact", "dynmatch grid", "dynmatch hub", "POT emd2, warm start", *baselines.METHODS} == set(rows)
    for name in ("dynmatch exact", "scipy LSA", "lapx lapjv", "POT emd2", "POT emd2, warm start"):
        assert rows[name]["largest ratio"] == pytest.approx(1, rel=1e-6)


def test_compare_says_how_often_the_sides_were_unequal_and_gives_a_point_of_weight_two_twice():
    points = [("A", 0.0, 2), ("B", 1.0, 1), ("B", 3.0, 1), ("A", 0.5, 1)]
    updates = [Update("insert", s, n, (x,), w) for n, (s, x, w) in enumerate(points)]
    rows = {r["method"]: r for r in run_all(updates, 1, 0, lambda n: None)}
    # The sides are equal once, at the third update: there W_1 = 1 + 3. At the first there is no cost to compare.
    assert rows["POT emd2"]["answers"] == rows["sliced W1"]["answers"] == 1
    assert rows["POT emd2"]["note"] == "2 times the sides had unequal sizes"
    assert rows["scipy LSA"]["note"] is None
    for name in ("scipy LSA", "POT emd2", "POT emd2, warm start", "nearest greedy"):
        assert rows[name]["largest ratio"] == pytest.approx(1)

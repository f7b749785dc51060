"""The peers answer the same question, and the heuristics err on the side they should."""

import numpy as np
import pytest

from dynmatch import baselines
from dynmatch.compare import run_all
from dynmatch.factory import exact_cost
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
    value, duals, _ = baselines.pot_warm(A, B)
    again, _, _ = baselines.pot_warm(A, B, duals)
    assert value == pytest.approx(exact, rel=1e-6)
    assert again == pytest.approx(exact, rel=1e-6)
    with pytest.raises(InputError, match="one size"):
        baselines.sliced(A, B[:3])


def test_compare_has_a_row_per_method_and_exact_ones_say_one():
    rows = {r["method"]: r for r in run_all(window_clouds(12, 80), 24, 0, lambda n: None)}
    assert {"dynmatch exact", "dynmatch grid", "dynmatch hub", *baselines.METHODS} == set(rows)
    for name in ("dynmatch exact", "scipy LSA", "lapx lapjv", "POT emd2"):
        assert rows[name]["largest ratio"] == pytest.approx(1, rel=1e-6)

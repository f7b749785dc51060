"""One update against solving from scratch: the grid at 20,000 points a side, the exact matcher at 2,000."""

import time
import tracemalloc

import numpy as np
import pytest

from dynmatch import ExactMatcher, GridMatcher
from dynmatch.baselines import lapx_lapjv, pot_emd, scipy_lsa

# All that is compared runs on one core: the processor's time, so that other programs on the machine do not count.
pytestmark = [
    pytest.mark.benchmark(timer=time.process_time),
    pytest.mark.filterwarnings("ignore:invalid escape sequence"),  # in POT's own sources
]

GRID, EXACT = 20_000, 2_000


def clouds(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.normal(size=(n, 2)) + 0.3


def ready(matcher, n):
    a, b = clouds(n)
    present = [("A", i) for i in matcher.extend("A", a)] + [("B", i) for i in matcher.extend("B", b)]
    rng = np.random.default_rng(1)

    def update():
        """A deletion or an insertion, in turn."""
        if len(matcher.entries) == 2 * n:
            side, name = present.pop(int(rng.integers(len(present))))
            matcher.delete(name)
            update.side = side
        else:
            x = rng.normal(size=2) + 0.3 * (update.side == "B")
            present.append((update.side, matcher.insert(update.side, x)))

    update()
    update()
    return update


@pytest.fixture(scope="module")
def scratch():
    return clouds(EXACT)


@pytest.fixture(scope="module")
def grid_seconds():
    return {}


def test_grid_update(benchmark, grid_seconds):
    benchmark.group = "one update, plane, 20,000 points a side"
    matcher = GridMatcher(2)
    tracemalloc.start()
    update = ready(matcher, GRID)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    benchmark.pedantic(update, rounds=400, iterations=1)
    grid_seconds[GRID] = benchmark.stats.stats.median
    benchmark.extra_info.update(
        label="GridMatcher, update", target="<= 5 ms, >= 100x faster than a fresh solve, <= 400 MB",
        megabytes=round(held / 1e6),
    )  # fmt: skip
    assert matcher.cost() > 0


def test_fresh_lsa_4k(benchmark, grid_seconds):
    benchmark.group = "one update, plane, 20,000 points a side"
    a, b = clouds(4000)
    value = benchmark.pedantic(scipy_lsa, args=(a, b), rounds=1, iterations=1)
    extrapolated = benchmark.stats.stats.median * (GRID / 4000) ** 3
    benchmark.extra_info.update(
        role="peer", label="scipy LSA from scratch at only 4,000 a side", seconds_at_20k_extrapolated_n3=extrapolated,
        grid_is_faster_by=extrapolated / grid_seconds[GRID],
    )  # fmt: skip
    assert value > 0


def test_exact_update(benchmark):
    benchmark.group = "one exact answer, plane, 2,000 points a side"
    matcher = ExactMatcher()
    update = ready(matcher, EXACT)
    benchmark.pedantic(update, rounds=200, iterations=1)
    benchmark.extra_info.update(label="ExactMatcher, update", target="<= 15 ms and >= 10x faster than LSA from scratch")
    assert matcher.lower_bound() == pytest.approx(matcher.cost(), rel=1e-6)


@pytest.mark.parametrize(
    ("method", "label", "role"),
    [(scipy_lsa, "scipy LSA from scratch", "peer"), (lapx_lapjv, "lapx lapjv from scratch", "other peer"),
     (pot_emd, "POT emd2 from scratch", "other peer")],
    ids=["scipy", "lapx", "pot"],
)  # fmt: skip
def test_exact_from_scratch(benchmark, scratch, method, label, role):
    benchmark.group = "one exact answer, plane, 2,000 points a side"
    benchmark.extra_info.update(role=role, label=label)
    assert benchmark.pedantic(method, args=scratch, rounds=2, iterations=1) > 0


@pytest.mark.parametrize(
    ("label", "role"), [("ExactMatcher, update", "ours"), ("scipy LSA from scratch", "peer")], ids=["ours", "peer"]
)
def test_small_problems(benchmark, label, role):
    benchmark.group = "one exact answer, plane, 20 points a side"
    benchmark.extra_info.update(role=role, label=label)
    if role == "peer":
        assert benchmark(scipy_lsa, *clouds(20)) > 0
    else:
        benchmark.pedantic(ready(ExactMatcher(), 20), rounds=500, iterations=1)

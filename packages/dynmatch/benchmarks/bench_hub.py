"""Hubs with a metric that only Python can call: memory O(k n^(1+1/k)) at 10,000 points; time beside the exact matcher.

The exact matcher is timed at 2,000 points, beside hubs of that size; at 10,000 its figure is that one times 5^2, the
growth its relaxed pairs have in claim M3, because loading it would take longer than everything else here together.
"""

import time

import numpy as np
import pytest

from dynmatch import ExactMatcher, HubMatcher

# All that is compared runs on one core: the processor's time, so that other programs on the machine do not count.
pytestmark = pytest.mark.benchmark(timer=time.process_time)

SMALL, LARGE = 2_000, 10_000


class Taxicab:
    """The l_1 distance, vectorised over the second argument, counting the distances it evaluates."""

    evaluated = 0

    def __call__(self, x, others):
        self.evaluated += len(others)
        return np.abs(others - x).sum(axis=1)


def updates(matcher, n):
    """Fill with n points; return a function that deletes or inserts one, in turn."""
    rng = np.random.default_rng(0)
    names = [*matcher.extend("A", rng.normal(size=(n // 2, 4))), *matcher.extend("B", rng.normal(size=(n // 2, 4)))]
    gone = []

    def update():
        if gone:
            side = gone.pop()
            names.append(matcher.insert(side, rng.normal(size=4)))
        else:
            name = names.pop(int(rng.integers(len(names))))
            gone.append("AB"[matcher.entries[name].side])
            matcher.delete(name)

    update()
    update()
    return update


def timed(benchmark, matcher, metric, n, rounds):
    update = updates(matcher, n)
    before = metric.evaluated
    benchmark.pedantic(update, rounds=rounds, iterations=1)
    benchmark.extra_info["distances_per_update"] = round((metric.evaluated - before) / rounds)
    assert matcher.cost() > 0
    return benchmark.stats.stats.mean


@pytest.fixture(scope="module")
def exact_seconds():
    return {}


def test_exact_update_with_a_callable_metric(benchmark, exact_seconds):
    benchmark.group = "one update, callable metric, 2,000 points in all"
    benchmark.extra_info.update(role="peer", label="ExactMatcher, same metric")
    metric = Taxicab()
    exact_seconds[SMALL] = timed(benchmark, ExactMatcher(metric), metric, SMALL, rounds=40)


def test_hub_update_with_a_callable_metric(benchmark):
    benchmark.group = "one update, callable metric, 2,000 points in all"
    benchmark.extra_info.update(label="HubMatcher, k = 3")
    metric = Taxicab()
    timed(benchmark, HubMatcher(metric, k=3, check="off"), metric, SMALL, rounds=40)


def test_hub_update_at_ten_thousand(benchmark, exact_seconds):
    benchmark.group = "one update, callable metric, 10,000 points in all"
    metric = Taxicab()
    matcher = HubMatcher(metric, k=3, check="off")
    mean = timed(benchmark, matcher, metric, LARGE, rounds=40)
    stats = matcher.stats()
    assert stats["attachments"] <= 2 * 3 * LARGE ** (4 / 3)
    benchmark.extra_info.update(
        label="HubMatcher, k = 3", target="memory O(k n^(1+1/k)), about 2M arcs; time reported", arcs=stats["arcs"],
        attachments_over_theory=stats["attachments"] / (3 * LARGE ** (4 / 3)), megabytes=round(stats["bytes"] / 1e6),
        matrix_megabytes=round(8 * (LARGE // 2) ** 2 / 1e6), mean_seconds=mean,
        exact_matcher_mean_seconds_extrapolated=exact_seconds[SMALL] * (LARGE / SMALL) ** 2,
    )  # fmt: skip

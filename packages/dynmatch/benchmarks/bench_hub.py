"""Hubs with a callable metric at 10,000 points: memory O(k n^(1+1/k)), not n^2; time beside the exact matcher."""

import numpy as np
import pytest

from dynmatch import ExactMatcher, HubMatcher

N = 10_000


def taxicab(x, others):
    return np.abs(others - x).sum(axis=1)


@pytest.mark.parametrize("name", ["hub", "exact"])
def test_update_with_a_callable_metric(benchmark, name):
    benchmark.group = "one update, callable metric, 10,000 points in all"
    matcher = HubMatcher(taxicab, k=3, check="off") if name == "hub" else ExactMatcher(taxicab)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(N, 4))
    for i, x in enumerate(points):
        matcher.insert("AB"[i % 2], x, id=i)
    state = {"next": N}

    def update():
        if len(matcher.entries) == N:
            matcher.delete(state["next"] - N)
        else:
            matcher.insert("AB"[state["next"] % 2], rng.normal(size=4), id=state["next"])
            state["next"] += 1

    update()
    update()
    benchmark.pedantic(update, rounds=40, iterations=1)
    if name == "hub":
        matcher._build()
        stats = matcher.stats()
        benchmark.extra_info.update(
            label="HubMatcher, k = 3", target="memory O(k n^(1+1/k)), about 2M arcs; time reported", arcs=stats["arcs"],
            attachments_over_theory=stats["attachments"] / (3 * N ** (4 / 3)), megabytes=round(stats["bytes"] / 1e6),
            matrix_megabytes=round(8 * (N // 2) ** 2 / 1e6),
        )  # fmt: skip
    else:
        benchmark.extra_info.update(role="peer", label="ExactMatcher, same metric")
    assert matcher.cost() > 0

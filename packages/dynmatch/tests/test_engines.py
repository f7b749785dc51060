"""In-cell engines and nearest-neighbour indexes: slackness, the factor 2, exact neighbours."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from dynmatch.aggregate import AggregateEngine
from dynmatch.ann_index import BACKENDS, make_index
from dynmatch.auction import AuctionEngine
from dynmatch.costs import Metric
from papers_shared.errors import InputError


@pytest.mark.parametrize("backend", ["brute", "kdtree"])
def test_the_auction_keeps_slackness_and_the_factor_two(backend):
    rng = np.random.default_rng(0)
    engine = AuctionEngine(2, 2.0, diameter=0.25, largest=7, backend=backend)
    present = {}
    for step in range(160):
        if len(present) > 4 and rng.random() < 0.45:
            key = list(present)[int(rng.integers(len(present)))]
            side, _ = present.pop(key)
            changed = engine.remove(side, key, 1)
        else:
            side, x = int(rng.random() < 0.4 + 0.2 * (step > 80)), rng.random(2)
            present[step] = (side, x)
            changed = engine.add(side, step, x, 1)
        assert sum(abs(n) for _, _, n in changed) >= 1
        engine.check()
        a, b = (np.array([x for s, x in present.values() if s == side]).reshape(-1, 2) for side in range(2))
        table = np.maximum(1, np.ceil(cdist(a, b) / 0.25))
        best = table[linear_sum_assignment(table)].sum()
        points = {k: x for k, (_, x) in present.items()}
        found = sum(max(1, np.ceil(np.linalg.norm(points[i] - points[j]) / 0.25)) for i, j, _ in engine.pairs())
        assert len(engine.pairs()) == min(len(a), len(b))
        assert best <= found <= best + min(len(a), len(b))


@pytest.mark.parametrize(
    ("backend", "norm"),
    [*((b, n) for b in ("brute", "kdtree", "lsh") for n in (1.0, 2.0)), ("hnsw", 2.0)],
)
def test_indexes_find_neighbours_through_insertions_and_deletions(backend, norm):
    if backend == "hnsw":
        pytest.importorskip("hnswlib")
    rng = np.random.default_rng(1)
    index, live, misses = make_index(backend, 3, norm, width=0.5), {}, 0
    for step in range(200):
        if live and rng.random() < 0.4:
            key = list(live)[int(rng.integers(len(live)))]
            index.remove(key)
            del live[key]
        elif (key := step % 60) not in live:  # keys come back
            live[key] = rng.random(3)
            index.add(key, live[key])
        q = rng.random(3)
        assert len(index) == len(live)
        if live:
            key, distance = index.nearest(q)
            row = {k: np.linalg.norm(x - q, ord=norm) for k, x in live.items()}
            assert distance == pytest.approx(row[key])
            misses += distance > min(row.values()) * (1 + 1e-9)
        else:
            assert index.nearest(q) is None
    assert misses == 0 if backend in ("brute", "kdtree") else misses < 60


@pytest.mark.parametrize("backend", ["brute", "kdtree"])
def test_of_equally_near_points_the_smallest_key_is_taken(backend):
    index = make_index(backend, 1, 2.0)
    for key in (5, 3, 9, 4, 7, 8):
        index.add(key, np.array([1.0 if key % 2 else -1.0]))
    assert index.nearest(np.zeros(1)) == (3, 1.0)
    index.remove(3)
    assert index.nearest(np.zeros(1)) == (4, 1.0)


def test_unknown_and_unfit_backends_are_named():
    with pytest.raises(InputError, match="brute"):
        make_index("flann", 2, 2.0)
    with pytest.raises(InputError, match="between 1 and 2"):
        make_index("lsh", 2, np.inf)
    with pytest.raises(InputError, match="l_2"):
        make_index("hnsw", 2, 1.0)
    assert set(BACKENDS) == {"brute", "kdtree", "lsh", "hnsw"}


def test_the_aggregate_engine_errs_by_at_most_a_child_a_pair():
    rng = np.random.default_rng(2)
    side = 0.25
    engine = AggregateEngine(Metric(2.0), 2, lambda child: (np.array(child) + 0.5) * side)
    colour, points = {}, {}
    for key in range(120):
        x = rng.random(2)
        child = tuple(int(v) for v in x // side)
        s = colour.setdefault(child, int(rng.integers(2)))  # a child carries up one colour
        points[key] = (s, x)
        engine.add(s, key, x, 1, child)
        engine.check()
    for key in range(0, 120, 3):
        engine.remove(points.pop(key)[0], key, 1)
        engine.check()
    a, b = ({k: x for k, (s, x) in points.items() if s == c} for c in range(2))
    table = cdist(np.array(list(a.values())), np.array(list(b.values())))
    best = table[linear_sum_assignment(table)].sum()
    pairs = engine.pairs()
    assert len(pairs) == min(len(a), len(b))
    assert sum(np.linalg.norm(a[i] - b[j]) for i, j, _ in pairs) <= best + 2 * len(pairs) * side * np.sqrt(2)

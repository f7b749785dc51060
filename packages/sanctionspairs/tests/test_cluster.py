"""Clusters: the exhaustive optimum on few records, cannot-links, B-cubed by its definition."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanctionspairs.cluster import (
    METHODS,
    _apart,
    _graph,
    bcubed,
    cluster,
    largest,
    local_search,
    log_odds,
    objective,
    pairwise,
    pivot_start,
    violations,
)
from sanctionspairs.errors import SanctionsPairsError


def partitions(items):
    """Yield every partition of a list."""
    if not items:
        yield []
        return
    head, *rest = items
    for sub in partitions(rest):
        yield [[head], *sub]
        for i in range(len(sub)):
            yield [*sub[:i], [head, *sub[i]], *sub[i + 1 :]]


@st.composite
def problems(draw, most=8):
    n = draw(st.integers(1, most))
    every = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.sampled_from(every), unique=True, max_size=len(every))) if every else []
    weights = draw(st.lists(st.integers(-8, 8), min_size=len(chosen), max_size=len(chosen)))
    cannot = draw(st.lists(st.sampled_from(every), unique=True, max_size=3)) if every else []
    return (
        n,
        np.array(chosen, dtype=np.int64).reshape(-1, 2),
        np.array(weights, float),
        np.array(cannot, dtype=np.int64).reshape(-1, 2),
    )


def value(labels, edges, weights):
    return sum(w for (i, j), w in zip(edges.tolist(), weights.tolist(), strict=True) if labels[i] == labels[j])


@settings(max_examples=40)
@given(problems(most=7))
def test_correlation_clustering_is_the_best_of_all_partitions(problem):
    n, edges, weights, cannot = problem
    best = -np.inf
    for parts in partitions(list(range(n))):
        label = {node: k for k, part in enumerate(parts) for node in part}
        if all(label[i] != label[j] for i, j in cannot.tolist()):
            best = max(best, value(label, edges, weights))
    found = cluster(n, edges, weights, cannot)
    assert value(found, edges, weights) == pytest.approx(best)
    assert violations(found, cannot) == 0


@settings(max_examples=60)
@given(problems(most=16))
def test_local_search_never_ends_below_its_start_and_obeys_cannot_links(problem):
    n, edges, weights, cannot = problem
    graph, apart = _graph(n, edges, weights), _apart(n, cannot)
    start = pivot_start(range(n), graph, apart)
    ended = local_search(start, graph, apart)
    assert objective(ended, graph) >= objective(start, graph) - 1e-9
    assert sorted(node for part in ended for node in part) == list(range(n))
    label = {node: k for k, part in enumerate(ended) for node in part}
    assert all(label[i] != label[j] for i, j in cannot.tolist())
    worst = local_search([[node] for node in range(n)], graph, apart)
    assert objective(worst, graph) >= 0


@settings(max_examples=40)
@given(problems(most=14))
def test_cannot_links_hold_in_large_components_too(problem):
    n, edges, weights, cannot = problem
    for method in ("correlation", "average"):
        assert violations(cluster(n, edges, np.abs(weights), cannot, method), cannot) == 0


def test_a_large_component_with_planted_clusters_is_recovered():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(6), 8)
    edges, weights = [], []
    for i, j in itertools.combinations(range(len(truth)), 2):
        if rng.random() < 0.7:
            edges.append((i, j))
            weights.append((2.0 if truth[i] == truth[j] else -2.0) + rng.normal(0, 1.2))
    found = cluster(len(truth), np.array(edges), np.array(weights))
    assert bcubed(found, truth)[2] == pytest.approx(1.0)
    chained = cluster(len(truth), np.array(edges), np.array(weights), method="components")
    assert bcubed(chained, truth)[0] < 0.5


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=25))
def test_bcubed_and_pairwise_equal_a_double_loop(rows):
    pred, true = np.array([a for a, _ in rows]), np.array([b for _, b in rows])
    n = len(rows)
    precision = recall = 0.0
    for i in range(n):
        together = [j for j in range(n) if pred[j] == pred[i]]
        entity = [j for j in range(n) if true[j] == true[i]]
        both = len(set(together) & set(entity))
        precision += both / len(together) / n
        recall += both / len(entity) / n
    f1 = 2 * precision * recall / (precision + recall)
    assert bcubed(pred, true) == pytest.approx((precision, recall, f1))
    pairs = list(itertools.combinations(range(n), 2))
    said = {p for p in pairs if pred[p[0]] == pred[p[1]]}
    are = {p for p in pairs if true[p[0]] == true[p[1]]}
    p, r, _ = pairwise(pred, true)
    assert p == pytest.approx(len(said & are) / len(said) if said else 1.0)
    assert r == pytest.approx(len(said & are) / len(are) if are else 1.0)
    assert largest(pred) == max(np.bincount(pred))


def test_average_linkage_by_hand():
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    found = cluster(4, edges, np.array([3.0, 1.0, 2.0]), method="average")
    assert found.tolist() == [0, 0, 0, 0]
    split = cluster(4, np.array([[0, 1], [2, 3], [1, 2], [0, 3]]), np.array([3.0, 2.0, 1.0, -1.5]), method="average")
    assert split.tolist() == [0, 0, 1, 1]


def test_duplicate_edges_add_up_and_labels_are_in_order_of_appearance():
    found = cluster(4, np.array([[3, 2], [2, 3], [0, 1]]), np.array([-1.0, 3.0, -1.0]))
    assert found.tolist() == [0, 1, 2, 2]
    assert cluster(0, np.empty((0, 2), dtype=np.int64), np.empty(0)).tolist() == []


def test_log_odds_are_cut_off():
    assert log_odds(np.array([0.5, 0.0, 1.0])).tolist() == [0.0, -12.0, 12.0]
    assert log_odds(np.array([0.8]))[0] == pytest.approx(np.log(4))


def test_bad_settings_are_refused():
    none, w = np.empty((0, 2), dtype=np.int64), np.empty(0)
    with pytest.raises(SanctionsPairsError, match="no clustering method"):
        cluster(2, none, w, method="magic")
    with pytest.raises(SanctionsPairsError, match="record 7 of 2"):
        cluster(2, np.array([[0, 7]]), np.ones(1))
    with pytest.raises(SanctionsPairsError, match="itself"):
        cluster(2, none, w, np.array([[1, 1]]))
    assert set(METHODS) == {"correlation", "components", "average"}

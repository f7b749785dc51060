"""Every row of the table of bad input: a clear error, and the state as it was."""

import numpy as np
import pytest

from dynmatch import (
    CapacityError,
    ExactMatcher,
    GridMatcher,
    HubMatcher,
    Matcher,
    NotAMetricError,
    Update,
    graph_metric,
    make_matcher,
)

MAKERS = {"exact": ExactMatcher, "hub": HubMatcher, "grid": lambda: GridMatcher(2)}


@pytest.fixture(params=MAKERS)
def matcher(request):
    made = MAKERS[request.param]()
    for i, x in enumerate(np.random.default_rng(0).normal(size=(12, 2))):
        made.insert("AB"[i % 2], x, id=i)
    return made


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ([np.nan, 0.0], "coordinate 0 is nan"),
        ([0.0, np.inf], "coordinate 1 is inf"),
        ([1.0], "shape"),
        ([1.0, 2.0, 3.0], "shape"),
        (["x", 1], "not a vector"),
        ([1e200, 0.0], "larger than"),
    ],
)
def test_a_bad_point_names_row_and_id_and_changes_nothing(matcher, point, says):
    before = matcher.cost(), matcher.size
    with pytest.raises(ValueError, match=says):
        matcher.insert("A", point)
    batch = [Update("insert", "A", "good", (0.0, 0.0)), Update("insert", "B", "bad", tuple(point))]
    with pytest.raises(ValueError, match=r"row 2, point 'bad'"):
        matcher.apply(batch)
    assert (matcher.cost(), matcher.size) == before
    matcher.check()


def test_an_unknown_id_is_a_key_error(matcher):
    before = matcher.cost()
    with pytest.raises(KeyError, match="nobody"):
        matcher.delete("nobody")
    matcher.delete(3)
    matcher.insert("B", [0.0, 0.0], id=3)
    matcher.delete(3)
    with pytest.raises(KeyError, match="3"):
        matcher.delete(3)
    with pytest.raises(KeyError, match="row 2"):
        matcher.apply([Update("delete", None, 5), Update("delete", None, 5)])
    assert 5 in matcher.entries
    assert before > 0
    matcher.check()


def test_a_duplicate_id_and_side_and_weight_are_refused(matcher):
    with pytest.raises(ValueError, match="in use"):
        matcher.insert("A", [0.0, 0.0], id=3)
    with pytest.raises(ValueError, match="side"):
        matcher.insert("C", [0.0, 0.0])
    for weight in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="weight"):
            matcher.insert("A", [0.0, 0.0], weight=weight)
    with pytest.raises(CapacityError):
        matcher.insert("A", [0.0, 0.0], weight=2**60)
    matcher.check()


@pytest.mark.parametrize(
    "bad",
    [
        Update("insert", "B", "w", (0.0, 0.0), weight=0),
        Update("insert", "B", "new", (0.0, 0.0)),
        Update("insert", "B", "w", (0.0, 0.0), weight=2**53),
        Update("delete", None, "nobody"),
    ],
)
def test_a_batch_is_applied_whole_or_not_at_all(matcher, bad):
    before = matcher.cost(), matcher.size
    with pytest.raises((ValueError, KeyError), match="row 3"):
        matcher.apply([Update("insert", "A", "new", (0.0, 0.0)), Update("query"), bad])
    assert (matcher.cost(), matcher.size) == before
    matcher.check()


def test_ids_that_a_batch_names_are_not_given_to_others(matcher):
    matcher.apply([Update("insert", "A", None, (0.0, 0.0)), Update("insert", "B", 12, (1.0, 0.0))])
    assert matcher.size == (7, 7)
    assert isinstance(matcher, Matcher)


@pytest.mark.parametrize("name", MAKERS)
def test_one_empty_side_costs_nothing(name):
    made = MAKERS[name]()
    assert made.cost() == 0
    for i in range(5):
        made.insert("A", [float(i), 0.0], id=i)
    assert made.cost() == 0
    assert made.pairs()[0] == []
    assert made.unmatched() == dict.fromkeys(range(5), 1)
    made.insert("B", [2.0, 1.0], id="b")
    assert made.cost() == 1
    assert made.mate("b") == 2
    assert made.mate(2) == "b"
    made.delete("b")
    assert made.cost() == 0
    assert made.wasserstein(normalized=True) == 0
    made.check()


@pytest.mark.parametrize("name", MAKERS)
def test_identical_points_cost_nothing(name):
    made = MAKERS[name]()
    for i in range(40):
        made.insert("AB"[i % 2], [3.0, 4.0])
    assert made.cost() == 0
    made.check()


def test_no_metric_no_hub():
    table = np.array([[0, 1, 9], [1, 0, 1], [9, 1, 0]], dtype=float)
    with pytest.raises(NotAMetricError, match=r"\(i, j, k\) = \("):
        HubMatcher(table)
    HubMatcher(table, check="off")
    with pytest.raises(NotAMetricError, match=r"d\(0, 1\) = 2 but d\(1, 0\) = 1"):
        HubMatcher(np.array([[0, 2.0], [1, 0]]))
    with pytest.raises(NotAMetricError, match="not a metric"):
        HubMatcher(np.ones((2, 3)))
    with pytest.raises(ValueError, match="negative"):
        ExactMatcher(np.array([[0, -1.0], [1, 0]]))
    crooked = HubMatcher(lambda x, others: np.abs(others - x).sum(axis=1) ** 3)
    updates = [Update("insert", "A", i, (float(i), 0.0)) for i in range(200)]
    with pytest.raises(NotAMetricError, match="triangle"):
        crooked.apply(updates)


def test_graphs_that_are_no_metric_are_named():
    import networkx as nx

    with pytest.raises(NotAMetricError, match="no path"):
        graph_metric(nx.Graph([(0, 1), (2, 3)]))
    with pytest.raises(NotAMetricError, match="directed"):
        graph_metric(nx.DiGraph([(0, 1)]))
    graph = nx.Graph()
    graph.add_edge(0, 1, weight=-1.0)
    with pytest.raises(NotAMetricError, match="length"):
        graph_metric(graph)


def test_numbers_outside_the_matrix_are_refused():
    exact = ExactMatcher(np.zeros((3, 3)))
    for bad in ([3], [-1], [0.5]):
        with pytest.raises(ValueError, match="not a number of the matrix"):
            exact.insert("A", bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ExactMatcher(p=0.5),
        lambda: ExactMatcher("cosine"),
        lambda: HubMatcher(k=0),
        lambda: HubMatcher(eps=0),
        lambda: GridMatcher(2, eps=0),
        lambda: GridMatcher(2, norm=0.5),
        lambda: GridMatcher(2, p=2),
        lambda: GridMatcher(0),
        lambda: GridMatcher(2, backend="flann"),
        lambda: GridMatcher(20, project=0),
        lambda: GridMatcher(20, project="all"),
        lambda: GridMatcher(2, norm=3.0, backend="lsh"),
        lambda: GridMatcher(4, engine="aggregate"),
        lambda: make_matcher("grid", 2, eps=0),
        lambda: make_matcher("hub", 2, eps=0),
        lambda: ExactMatcher("minkowski", norm=0.3),
    ],
)
def test_settings_outside_their_range_are_refused(make):
    with pytest.raises(ValueError, match=r"\S"):
        make()


def test_too_many_arcs_are_refused_before_memory_runs_out():
    hub = HubMatcher(k=1, max_arcs=200)
    updates = [Update("insert", "A", i, (float(i),)) for i in range(60)]
    with pytest.raises(CapacityError, match="200"):
        hub.apply(updates)
    hub.check()
    assert hub.size[0] == len(hub.slots)


def test_an_option_that_a_method_does_not_have_is_named():
    with pytest.raises(TypeError, match="backend"):
        make_matcher("exact", 2, backend="brute")

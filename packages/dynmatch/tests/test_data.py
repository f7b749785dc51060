"""Every real format, read from files the tests make."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dynmatch import ExactMatcher, NotAMetricError, Update, data, streams, trips
from papers_shared.errors import InputError

WANT = [
    Update("insert", "A", 1, (0.0, 0.5), 2),
    Update("insert", "B", 2, (3.0, 4.5)),
    Update("query"),
    Update("delete", None, 1),
]


def plain(updates):
    return [(u.op, u.side, u.id, u.point, u.weight) for u in updates]


def make_csv(path):
    path.write_text("op,side,id,x0,x1,weight\ninsert,A,1,0,0.5,2\ninsert,B,2,3,4.5,\nquery,,,,,\ndelete,A,1,,,\n")


def make_jsonl(path):
    rows = [
        {"op": "insert", "side": "A", "id": 1, "point": [0, 0.5], "weight": 2},
        {"op": "insert", "side": "b", "id": 2, "x0": 3, "x1": 4.5},
        {"op": "query"},
        {"op": "delete", "id": 1},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_npz(path):
    np.savez(
        path,
        op=[1, 1, 0, -1],
        side=[0, 1, 0, 0],
        id=[1, 2, 0, 1],
        x=[[0, 0.5], [3, 4.5], [0, 0], [0, 0]],
        weight=[2, 1, 1, 1],
    )


def make_parquet(path):
    table = {
        "op": ["insert", "insert", "query", "delete"],
        "side": ["A", "B", None, None],
        "id": [1, 2, None, 1],
        "x0": [0.0, 3.0, None, None],
        "x1": [0.5, 4.5, None, None],
        "weight": [2, 1, None, None],
    }
    pq.write_table(pa.table(table), path)


@pytest.mark.parametrize(
    ("name", "make"), [("u.csv", make_csv), ("u.jsonl", make_jsonl), ("u.npz", make_npz), ("u.parquet", make_parquet)]
)
def test_update_files(tmp_path, name, make):
    make(tmp_path / name)
    updates, skipped = data.read_updates(tmp_path / name)
    assert plain(updates) == plain(WANT)
    assert skipped == 0


def test_updates_as_one_matrix(tmp_path):
    np.save(tmp_path / "u.npy", [[1, 0, 1, 0, 0.5], [1, 1, 2, 3, 4.5], [0, 0, 0, 0, 0], [-1, 0, 1, 0, 0]])
    updates, _ = data.read_updates(tmp_path / "u.npy")
    assert [(u.op, u.side, u.id, u.point) for u in updates] == [(u.op, u.side, u.id, u.point) for u in WANT]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_generated_streams_read_back_the_same(tmp_path, ending):
    updates = streams.make("city", 60, 10, 2, 0)
    data.write_updates(tmp_path / f"u.{ending}", updates)
    assert plain(data.read_updates(tmp_path / f"u.{ending}")[0]) == plain(updates)
    with pytest.raises(InputError, match="exists"):
        data.write_updates(tmp_path / f"u.{ending}", updates)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("insert,A,9,1,x", "could not convert"),
        ("insert,C,9,1,2", "side 'C'"),
        ("fly,A,9,1,2", "op 'fly'"),
        ("insert,A,,1,2", "without an id"),
        ("insert,A,9,,", "without coordinates"),
        ("insert,A,9,nan,2", "not finite"),
        ("insert,A,9,1,2,3,4", "7 cells"),
        ("insert,A,1,1,2", "id 1 is in use"),
        ("delete,A,7,,", "no point has the id 7"),
    ],
)
def test_a_malformed_line_is_named_or_counted(tmp_path, line, says):
    path = tmp_path / "u.csv"
    path.write_text(f"op,side,id,x0,x1\ninsert,A,1,0,0\n{line}\ninsert,B,2,3,4\n")
    with pytest.raises(InputError, match="line 3") as caught:
        data.read_updates(path)
    assert says in str(caught.value)
    updates, skipped = data.read_updates(path, skip_bad=True)
    assert (len(updates), skipped) == (2, 1)


def test_unreadable_update_files(tmp_path):
    for name, text in (("a.txt", "x"), ("b.csv", ""), ("c.csv", "a,b\n1,2\n"), ("d.csv", "op,side,id,x0\n")):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError):
            data.read_updates(tmp_path / name)
    for ending in ("csv", "jsonl", "npy", "npz", "parquet"):
        with pytest.raises(InputError, match="no such file"):
            data.read_updates(tmp_path / f"absent.{ending}")
    (tmp_path / "e.jsonl").write_text('{"op": "query"}\n{broken\n')
    with pytest.raises(InputError, match="line 2: not JSON"):
        data.read_updates(tmp_path / "e.jsonl")


TRIPS = {
    "tpep_pickup_datetime": ["2015-01-15 19:05:39", "2015-01-15 19:00:00", "2015-01-15 19:10:00"],
    "tpep_dropoff_datetime": ["2015-01-15 19:23:42", "2015-01-15 19:08:00", "2015-01-15 19:20:00"],
    "pickup_longitude": [-73.99, -73.98, 0.0],
    "pickup_latitude": [40.75, 40.76, 0.0],
    "dropoff_longitude": [-73.97, -73.95, -73.9],
    "dropoff_latitude": [40.75, 40.78, 40.7],
}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_taxi_trips_become_requests_and_free_cars(tmp_path, ending):
    path = tmp_path / f"trips.{ending}"
    if ending == "csv":
        rows = zip(*TRIPS.values(), strict=True)
        path.write_text("\n".join([",".join(TRIPS), *(",".join(map(str, row)) for row in rows)]) + "\n")
    else:
        pq.write_table(pa.table(TRIPS), path)
    assert trips.is_taxi(path)
    updates, skipped, placeless = trips.read_taxi(path)
    assert (skipped, placeless) == (0, 1)
    assert [(u.op, u.id) for u in updates[:3]] == [("insert", "A1"), ("insert", "A0"), ("insert", "B1")]
    assert [u.id for u in updates if u.op == "insert"] == ["A1", "A0", "B1", "B0"]  # trip 2 has no place
    assert [u.id for u in updates if u.op == "delete"] == ["A1", "A0", "B1"]  # by 19:23, when the last car is free
    a = {u.id: u.point for u in updates if u.op == "insert"}
    assert a["A1"][0] - a["A0"][0] == pytest.approx(0.01 * 111.195 * np.cos(np.radians(40.755)), rel=1e-6)
    assert a["A1"][1] - a["A0"][1] == pytest.approx(1.11195, rel=1e-6)
    matcher = ExactMatcher()
    matcher.apply(updates)
    assert matcher.size == (0, 1)
    path.with_suffix(".other.csv").write_text("pickup_longitude\n1\n")
    with pytest.raises(InputError, match="no column"):
        trips.read_taxi(path.with_suffix(".other.csv"))


def test_a_trip_without_a_time_is_named_or_counted(tmp_path):
    path = tmp_path / "trips.csv"
    rows = [list(row) for row in zip(*TRIPS.values(), strict=True)]
    rows[1][0] = "yesterday"
    path.write_text("\n".join([",".join(TRIPS), *(",".join(map(str, row)) for row in rows)]) + "\n")
    with pytest.raises(InputError, match="line 3: a time that is none"):
        trips.read_taxi(path)
    updates, skipped, placeless = trips.read_taxi(path, skip_bad=True)
    assert [u.id for u in updates] == ["A0", "A0", "B0"]
    assert (skipped, placeless) == (1, 1)


def test_graph_files_become_shortest_paths(tmp_path):
    import networkx as nx

    graph = nx.Graph()
    graph.add_edge("a", "b", weight=1.0)
    graph.add_edge("b", "c", weight=2.0)
    graph.add_edge("a", "c", weight=9.0)
    nx.write_graphml(graph, tmp_path / "g.graphml")
    (tmp_path / "g.edges").write_text("# roads\na b 1\nb,c,2\na c 9\n")
    for name in ("g.graphml", "g.edges"):
        matrix, nodes = data.read_graph(tmp_path / name)
        assert matrix[nodes.index("a"), nodes.index("c")] == 3
    (tmp_path / "cut.edges").write_text("a b\nc d\n")
    with pytest.raises(NotAMetricError):
        data.read_graph(tmp_path / "cut.edges")
    (tmp_path / "bad.graphml").write_text("<graphml")
    with pytest.raises(InputError):
        data.read_graph(tmp_path / "bad.graphml")


def test_points_and_matrices(tmp_path):
    points = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.save(tmp_path / "p.npy", points)
    np.savez(tmp_path / "p.npz", points)
    (tmp_path / "p.csv").write_text("x,y\n1,2\n3,4\n")
    pq.write_table(pa.table({"x": [1.0, 3.0], "y": [2.0, 4.0]}), tmp_path / "p.parquet")
    for name in ("p.npy", "p.npz", "p.csv", "p.parquet"):
        assert (data.read_points(tmp_path / name) == points).all()
    assert (data.read_matrix(tmp_path / "p.npy") == points).all()
    np.save(tmp_path / "bad.npy", [[1.0, np.nan]])
    with pytest.raises(InputError, match="row 1"):
        data.read_points(tmp_path / "bad.npy")
    np.save(tmp_path / "wide.npy", np.zeros((2, 3)))
    with pytest.raises(InputError, match="square"):
        data.read_matrix(tmp_path / "wide.npy")


def test_streams_are_reproducible_and_valid():
    for kind in streams.KINDS:
        first, second = (streams.make(kind, 200, 20, 2, 3) for _ in range(2))
        assert first == second
        present = set()
        for update in first:
            if update.op == "insert":
                assert update.id not in present
                present.add(update.id)
            else:
                present.remove(update.id)


def test_skip_bad_leaves_out_points_of_another_dimension_and_with_holes(tmp_path):
    path = tmp_path / "u.csv"
    path.write_text("op,side,id,x0,x1\ninsert,A,a,,1\ninsert,A,b,1,2\ninsert,B,c,1\ninsert,B,d,1,3\ndelete,,b\n")
    updates, skipped = data.read_updates(path, skip_bad=True)
    assert ([u.id for u in updates], skipped) == (["b", "d", "b"], 2)
    with pytest.raises(InputError, match="line 2: id 'a': x0 is empty"):
        data.read_updates(path)
    path = tmp_path / "u.jsonl"
    rows = [{"op": "insert", "side": "A", "id": i, "point": [0.0] * (2 + (i == 1))} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert data.read_updates(path, skip_bad=True)[1] == 1
    with pytest.raises(InputError, match="line 2: id 1: 3 coordinates, want 2"):
        data.read_updates(path)


def test_ids_with_leading_zeros_stay_what_they_are(tmp_path):
    path = tmp_path / "u.csv"
    names = ["007", "7", "-7", "0", "-0", "--7", "²", "9" * 30]
    path.write_text("op,side,id,x0\n" + "".join(f"insert,A,{name},1\n" for name in names), encoding="utf-8")
    assert [u.id for u in data.read_updates(path)[0]] == ["007", 7, -7, 0, "-0", "--7", "²", "9" * 30]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("u.csv", b"op,side,id,x0\ninsert,A," + b"a" * 200_000 + b",1\n"),
        ("u.jsonl", b"[" * 200_000),
        ("u.jsonl", b"9" * 5000),
        ("u.jsonl", b'{"op": "insert", "side": "A", "id": Infinity, "point": [1]}'),
        ("u.jsonl", b'{"op": "insert", "side": "A", "id": 1, "point": [1' + b"0" * 400 + b"]}"),
        ("u.jsonl", b'{"op": "insert", "side": "A", "id": 1, "point": [1], "weight": 1e999}'),
        ("u.npy", b""),
        ("u.npy", b"\x93NUMPY\x01\x00"),
        ("u.npz", b""),
        ("u.npz", b"PK\x03\x04 and no more"),
        ("u.npz", b"neither"),
        ("u.parquet", b""),
    ],
)
def test_broken_update_files_are_the_users_mistake_and_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"u\.") as caught:
        data.read_updates(tmp_path / name)
    assert "allow_pickle" not in str(caught.value)


@pytest.mark.parametrize(
    "arrays",
    [
        {"op": [1, 1], "side": [0, 1], "id": [1], "x": [[0.0], [1.0]]},
        {"op": 1, "side": 0, "id": 1, "x": [[0.0]]},
        {"op": [1], "side": [0], "id": [1], "x": [[0.0]], "weight": [1, 2]},
    ],
)
def test_arrays_of_unequal_length_are_refused(tmp_path, arrays):
    np.savez(tmp_path / "u.npz", **arrays)
    with pytest.raises(InputError, match="one entry an update"):
        data.read_updates(tmp_path / "u.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.csv", b"\xff\xfe\x00,1"), ("p.csv", b"1,2\n3\n"), ("p.npy", b""), ("p.npz", b"PK\x03\x04"), ("p.npz", b"")],
)
def test_broken_point_files_are_the_users_mistake_and_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=r"p\."):
        data.read_points(tmp_path / name)


def test_point_tables_and_archives_without_numbers_are_refused(tmp_path):
    pq.write_table(pa.table({"x": ["a", "b"]}), tmp_path / "p.parquet")
    with pytest.raises(InputError, match="not numeric"):
        data.read_points(tmp_path / "p.parquet")
    np.savez(tmp_path / "p.npz")
    with pytest.raises(InputError, match="not a numeric"):
        data.read_points(tmp_path / "p.npz")

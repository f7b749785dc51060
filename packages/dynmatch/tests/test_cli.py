"""The command line: the answer on stdout, the user's mistakes in one line, a service that survives kill -9."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from dynmatch.cli import app, match_script
from dynmatch.runner import Run

pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in POT's own sources


def run(capsys, *arguments, script=app):
    with pytest.raises(SystemExit) as stop:
        script(args=[*map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


@pytest.fixture
def small(tmp_path, capsys):
    path = tmp_path / "u.csv"
    assert run(capsys, "gen", path, "--updates", 220, "--live", 30)[0] == 0
    return path


def test_match_writes_tables_and_pictures(capsys, tmp_path, small):
    out = tmp_path / "out"
    code, text, _ = run(
        capsys, small, "--method", "grid", "--every", 50, "--certify", "--out", out, script=match_script
    )
    assert code == 0
    assert "W_1 =" in text
    rows = pq.read_table(out / "costs.parquet").to_pylist()
    assert [r["update"] for r in rows] == [50, 100, 150, 200, 220]
    assert all(r["lower_bound"] <= r["cost"] * (1 + 1e-9) for r in rows)
    pairs = (out / "matching.csv").read_text().splitlines()
    assert sum(float(line.rsplit(",", 1)[1]) for line in pairs[1:]) == pytest.approx(rows[-1]["cost"])
    for name in ("cost.png", "latency.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert run(capsys, small, "--out", out, script=match_script)[0] == 2


@pytest.mark.parametrize(
    "options",
    [("--method", "exact", "--p", "2"), ("--method", "hub", "--p", "2"), ("--method", "grid", "--metric", "linf")],
)
def test_methods_and_metrics(capsys, tmp_path, small, options):
    code, text, _ = run(capsys, small, *options, "--out", tmp_path / "o", "--json", script=match_script)
    assert code == 0
    row = json.loads(text)
    assert row["update"] == 220
    assert row["cost"] > 0


def test_a_graph_metric_from_a_file(capsys, tmp_path):
    import networkx as nx

    nx.write_graphml(nx.les_miserables_graph(), tmp_path / "g.graphml")
    assert run(capsys, "gen", tmp_path / "g.jsonl", "--kind", "graph", "--updates", 60, "--live", 10)[0] == 0
    for metric in ("g.graphml", "g.metric.npz"):
        arguments = (tmp_path / "g.jsonl", "--metric", tmp_path / metric, "--out", tmp_path / metric[:5], "--json")
        code, text, _ = run(capsys, *arguments, script=match_script)
        assert code == 0
        assert json.loads(text)["method"] == "hub"


def test_points_of_a_graph_metric_are_nodes_by_name(capsys, tmp_path):
    (tmp_path / "roads.edges").write_text("Paris Lyon 4\nLyon Nice 5\nParis Brest 6\n")
    (tmp_path / "u.csv").write_text("op,side,id,x0\ninsert,A,1,Brest\ninsert,B,2,Nice\n")
    same = ("--metric", tmp_path / "roads.edges", "--json")
    code, text, _ = run(capsys, tmp_path / "u.csv", *same, "--out", tmp_path / "o", script=match_script)
    assert (code, json.loads(text)["cost"]) == (0, 15)
    (tmp_path / "v.csv").write_text("op,side,id,x0\ninsert,A,1,Rome\n")
    code, _, err = run(capsys, tmp_path / "v.csv", *same, "--out", tmp_path / "p", script=match_script)
    assert (code, "line 2" in err, "no node 'Rome'" in err) == (2, True, True)
    (tmp_path / "numbers.edges").write_text("10 20 1\n20 30 1\n")
    (tmp_path / "w.csv").write_text("op,side,id,x0\ninsert,A,1,10\ninsert,B,2,30\n")
    same = ("--metric", tmp_path / "numbers.edges", "--json")
    code, text, _ = run(capsys, tmp_path / "w.csv", *same, "--out", tmp_path / "q", script=match_script)
    assert (code, json.loads(text)["cost"]) == (0, 2)


def killed(work):
    """Do ``work`` in a forked process, and return the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_resume_gives_the_same_cost_bit_for_bit(capsys, monkeypatch, tmp_path, small):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    same = (small, "--method", "grid", "--every", 20, "--snapshot-every", 30, "--json")
    expected = json.loads(run(capsys, *same, "--out", whole, script=match_script)[1])
    step = Run.step

    def dying(self, update):
        if self.position == 130:
            os.kill(os.getpid(), signal.SIGKILL)
        step(self, update)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", dying)
        code = killed(lambda: match_script(args=[*map(str, same), "--out", str(cut)]))
    assert code == -signal.SIGKILL
    assert run(capsys, *same, "--out", cut, script=match_script)[0] == 2  # neither --resume nor --force
    code, text, _ = run(capsys, *same, "--out", cut, "--resume", script=match_script)
    assert code == 0
    assert json.loads(text)["cost"].hex() == expected["cost"].hex()
    ours, theirs = (pq.read_table(f / "costs.parquet").to_pylist() for f in (cut, whole))
    assert [(r["update"], r["cost"]) for r in ours] == [(r["update"], r["cost"]) for r in theirs]


def say(capsys, monkeypatch, values, *arguments):
    """Feed JSON lines to ``dynmatch stream`` and return exit code, answers and stderr."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(value) + "\n" for value in values)))
    code, out, err = run(capsys, "stream", *arguments)
    return code, [float(line) for line in out.split()], err


def test_the_stream_survives_kill_9(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "r.npy", rng.normal(size=(20, 2)))
    points = rng.normal(size=(30, 2)).tolist()
    arguments = ("--window", 8, "--reference", tmp_path / "r.npy")
    kept = (*arguments, "--state", tmp_path / "s", "--snapshot-every", 7)
    _, expected, _ = say(capsys, monkeypatch, points, *arguments)
    command = [sys.executable, "-c", "from dynmatch.cli import app; app()", "stream", *map(str, kept)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    got = []
    for point in points[:18]:
        process.stdin.write(json.dumps(point) + "\n")
        process.stdin.flush()
        got.append(float(process.stdout.readline()))  # each answer comes at once
    process.kill()
    process.communicate()
    with (tmp_path / "s" / "log-000000000014.jsonl").open("a") as log:
        log.write("[0.1, ")  # a line torn by the kill was never answered
    assert say(capsys, monkeypatch, [], *kept)[0] == 2  # not without --resume
    code, rest, _ = say(capsys, monkeypatch, points[18:], *kept, "--resume")
    assert code == 0
    assert [v.hex() for v in got + rest] == [v.hex() for v in expected]
    code, _, err = say(capsys, monkeypatch, [], *kept, "--resume", "--metric", "l1")
    assert (code, "metric l2" in err) == (2, True)


def test_the_stream_takes_updates_and_answers_each_line(capsys, monkeypatch):
    lines = [
        {"op": "insert", "side": "A", "id": 1, "point": [0, 0]},
        {"op": "insert", "side": "B", "id": 2, "point": [3, 4]},
        {"op": "query"},
        {"op": "delete", "id": 1},
    ]
    assert say(capsys, monkeypatch, lines)[:2] == (0, [0.0, 5.0, 5.0, 0.0])
    code, _, err = say(capsys, monkeypatch, [*lines, {"op": "delete", "id": 1}, "nonsense"])
    assert code == 2
    assert "line 5" in err
    code, out, _ = say(capsys, monkeypatch, ["nonsense", *lines], "--skip-bad")
    assert code == 0
    assert np.isnan(out[0])
    assert out[-1] == 0.0
    assert say(capsys, monkeypatch, lines, "--method", "grid", "--dim", 2, "--eps", 0.5)[:2] == (0, [0, 5, 5, 0])


def test_static_and_its_mistakes(capsys, tmp_path):
    np.save(tmp_path / "a.npy", [[0.0, 0.0], [10.0, 0.0]])
    np.save(tmp_path / "b.npy", [[0.0, 1.0]])
    np.save(tmp_path / "c.npy", [[0.0]])
    code, out, _ = run(capsys, "static", tmp_path / "a.npy", tmp_path / "b.npy", "--out", tmp_path / "m.csv", "--json")
    assert code == 0
    assert json.loads(out)["cost"] == 1
    assert (tmp_path / "m.csv").read_text() == "row_a,row_b,distance\n0,0,1.0\n"
    code, _, err = run(capsys, "static", tmp_path / "a.npy", tmp_path / "c.npy")
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("op,side,id,x0\ninsert,A,1,nan\n", (), "line 2"),
        ("op,side,id,x0\ndelete,A,7,\n", (), "line 2: no point has the id 7"),
        ("op,side,id,x0\ninsert,A,1,0\ninsert,B,1,0\n", (), "in use"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--metric", "hamming"), "neither a file nor a norm"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--method", "grid", "--p", "2"), "W_1"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--method", "magic"), "no method"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--method", "grid", "--eps", "0"), "eps must lie"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--method", "hub", "--p", "0.5"), "p >= 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, tmp_path, text, options, says):
    (tmp_path / "u.csv").write_text(text)
    code, _, err = run(capsys, tmp_path / "u.csv", *options, "--out", tmp_path / "o", script=match_script)
    assert code == 2
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_an_option_out_of_range_leaves_no_folder_behind(capsys, tmp_path):
    (tmp_path / "u.csv").write_text("op,side,id,x0\ninsert,A,1,0\ninsert,B,2,3\n")
    same = (tmp_path / "u.csv", "--out", tmp_path / "o")
    for wrong in (("--p", "0.5"), ("--method", "magic"), ("--method", "grid", "--eps", "nan")):
        assert run(capsys, *same, *wrong, script=match_script)[0] == 2
        assert not (tmp_path / "o").exists()
    code, text, _ = run(capsys, *same, "--json", script=match_script)
    assert (code, json.loads(text)["cost"]) == (0, 3)


def test_the_stream_outlives_numbers_that_no_float_holds(capsys, monkeypatch, tmp_path):
    np.save(tmp_path / "r.npy", [[0.0], [1.0]])
    values = [[0.0], [10**400], {"point": [10**400]}, [1.0]]
    code, out, _ = say(capsys, monkeypatch, values, "--reference", tmp_path / "r.npy", "--skip-bad")
    assert (code, out[0], out[-1], np.isnan(out[1:3]).all()) == (0, 0.0, 0.0, True)
    update = {"op": "insert", "side": "A", "id": 1, "point": [0], "weight": 10**400}
    assert say(capsys, monkeypatch, [update])[0] == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("[" * 200_000 + "\n" + "9" * 5000 + "\n"))
    code, out, _ = run(capsys, "stream", "--skip-bad")
    assert (code, out) == (0, "nan\nnan\n")


@pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in POT's own sources
def test_compare_prints_a_row_per_method(capsys):
    code, out, _ = run(capsys, "compare", "--size", 12, "--every", 24, "--json")
    assert code == 0
    assert "dynmatch hub" in {row["method"] for row in json.loads(out)}


def test_an_eps_that_the_exact_matcher_would_ignore_is_refused(capsys, tmp_path):
    code, out, err = run(capsys, "--method", "exact", "--eps", 0.3, "--out", tmp_path / "out", script=match_script)
    assert (code, out) == (2, "")
    assert "--eps" in err
    assert not (tmp_path / "out").exists()


def test_compare_reads_taxi_trips_and_says_why_a_peer_is_silent(capsys, tmp_path):
    path = tmp_path / "trips.csv"
    ends = "pickup_longitude,pickup_latitude,dropoff_longitude,dropoff_latitude"
    times = "tpep_pickup_datetime,tpep_dropoff_datetime"
    trips = [f"2015-01-01 00:0{i}:00,2015-01-01 00:0{i + 2}:00,-73.9{i},40.7{i},-73.8{i},40.6{i}" for i in range(6)]
    path.write_text("\n".join([f"{times},{ends}", *trips]) + "\n")
    code, out, _ = run(capsys, "compare", path, "--every", 5, "--json")
    assert code == 0
    rows = {row["method"]: row for row in json.loads(out)}
    assert rows["dynmatch exact"]["answers"] == 12
    assert rows["dynmatch exact"]["mean ratio"] == 1
    assert "unequal sizes" in rows["sliced W1"]["note"]
    path.write_text("op,side,id,x0,x1\ninsert,A,a,1,2\n")
    code, out, _ = run(capsys, "compare", path, "--json")
    assert code == 0
    assert {row["note"] for row in json.loads(out)} == {"no distance to compare"}


class Interrupting:
    """A stdin at which Ctrl-C comes after its lines."""

    def __init__(self, *lines):
        self.lines = lines

    def __iter__(self):
        yield from self.lines
        raise KeyboardInterrupt


@pytest.mark.parametrize("kept", [False, True])
def test_ctrl_c_promises_to_resume_only_what_was_kept(capsys, monkeypatch, tmp_path, kept):
    monkeypatch.setattr(sys, "stdin", Interrupting('{"op": "insert", "side": "A", "id": 1, "x": [0.0]}\n'))
    state = ["--state", tmp_path / "state"] if kept else []
    code, out, err = run(capsys, "stream", "--method", "exact", *state)
    assert (code, out) == (130, "0.0\n")
    assert ("Continue with" in err) is kept
    assert ("nothing was kept" in err) is not kept


def test_stream_resume_without_a_state_is_refused(capsys):
    code, _, err = run(capsys, "stream", "--resume")
    assert code == 2
    assert err.startswith("error: --resume needs --state")


def test_the_readme_snippet_runs(capsys):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    exec(readme.split("```python\n")[1].split("```")[0], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "5.0 5.0"
    assert lines[1] == "alarm True"

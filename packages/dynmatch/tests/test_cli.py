"""The command line: the answer on stdout, the user's mistakes in one line, a service that survives kill -9."""

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
    code, text, _ = run(
        capsys,
        tmp_path / "g.jsonl",
        "--metric",
        tmp_path / "g.graphml",
        "--out",
        tmp_path / "o",
        "--json",
        script=match_script,
    )
    assert code == 0
    assert json.loads(text)["method"] == "hub"


def test_resume_gives_the_same_cost_bit_for_bit(capsys, tmp_path, small):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    same = (small, "--method", "grid", "--every", 20, "--snapshot-every", 30, "--json")
    expected = json.loads(run(capsys, *same, "--out", whole, script=match_script)[1])
    code = (
        "import os, signal\nfrom dynmatch.runner import Run\nstep = Run.step\n"
        "def dying(self, update):\n    if self.position == 130: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    step(self, update)\n"
        "Run.step = dying\nfrom dynmatch.cli import match_script\n"
        f"match_script(args={[*map(str, same), '--out', str(cut)]!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    code, text, _ = run(capsys, *same, "--out", cut, "--resume", script=match_script)
    assert code == 0
    assert json.loads(text)["cost"].hex() == expected["cost"].hex()
    ours, theirs = (pq.read_table(f / "costs.parquet").to_pylist() for f in (cut, whole))
    assert [(r["update"], r["cost"]) for r in ours] == [(r["update"], r["cost"]) for r in theirs]


def service(tmp_path, *arguments):
    command = [sys.executable, "-c", "from dynmatch.cli import app; app()", "stream", *map(str, arguments)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ
    )


def ask(process, point):
    process.stdin.write(json.dumps(point) + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def test_the_stream_survives_kill_9(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "r.npy", rng.normal(size=(20, 2)))
    points = rng.normal(size=(30, 2)).tolist()
    arguments = ("--window", 8, "--reference", "r.npy")
    process = service(tmp_path, *arguments)
    expected = [ask(process, x) for x in points]
    process.communicate()
    assert process.returncode == 0
    process = service(tmp_path, *arguments, "--state", "s", "--snapshot-every", 7)
    got = [ask(process, x) for x in points[:18]]
    process.kill()
    process.communicate()
    process = service(tmp_path, *arguments, "--state", "s", "--snapshot-every", 7, "--resume")
    got += [ask(process, x) for x in points[18:]]
    process.communicate()
    assert process.returncode == 0
    assert [v.hex() for v in got] == [v.hex() for v in expected]


def test_the_stream_takes_updates_and_answers_each_line(capsys, monkeypatch, tmp_path):
    import io

    lines = [
        {"op": "insert", "side": "A", "id": 1, "point": [0, 0]},
        {"op": "insert", "side": "B", "id": 2, "point": [3, 4]},
        {"op": "query"},
        {"op": "delete", "id": 1},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code, out, _ = run(capsys, "stream")
    assert (code, out.split()) == (0, ["0.0", "5.0", "5.0", "0.0"])
    monkeypatch.setattr(sys, "stdin", io.StringIO(text + '{"op": "delete", "id": 1}\nnonsense\n'))
    code, out, err = run(capsys, "stream")
    assert code == 2
    assert "line 5" in err
    monkeypatch.setattr(sys, "stdin", io.StringIO("nonsense\n" + text))
    code, out, _ = run(capsys, "stream", "--skip-bad")
    assert (code, out.split()[0], out.split()[-1]) == (0, "nan", "0.0")


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
        ("op,side,id,x0\ndelete,A,7,\n", (), "row 2"),
        ("op,side,id,x0\ninsert,A,1,0\ninsert,B,1,0\n", (), "in use"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--metric", "hamming"), "neither a file nor a norm"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--method", "grid", "--p", "2"), "W_1"),
        ("op,side,id,x0\ninsert,A,1,0\n", ("--method", "magic"), "no method"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, tmp_path, text, options, says):
    (tmp_path / "u.csv").write_text(text)
    code, _, err = run(capsys, tmp_path / "u.csv", *options, "--out", tmp_path / "o", script=match_script)
    assert code == 2
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_compare_prints_a_row_per_method(capsys):
    code, out, _ = run(capsys, "compare", "--size", 12, "--every", 24, "--json")
    assert code == 0
    assert "dynmatch hub" in {row["method"] for row in json.loads(out)}


def test_the_readme_snippet_runs():
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    snippet = readme.split("```python\n")[1].split("```")[0]
    done = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "5.0 5.0"
    assert lines[1] == "alarm True"

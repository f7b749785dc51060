"""The command line: the answer on stdout, the user's mistakes in one line, a killed run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fixedgraphdp import bound, data
from fixedgraphdp.cli import app, bound_script
from papers_shared.artifacts import free_folder


def run(capsys, script, *arguments):
    with pytest.raises(SystemExit) as stop:
        script([*map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


def test_the_embedded_default_needs_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, bound_script)
    assert code == 0
    for word in ("kept share", "LP bound", "certified share", "CV(p)", "bias", "density c", "recommended k", "why"):
        assert word in out
    folder = tmp_path / "bound-report"
    assert {path.name for path in folder.iterdir()} >= {
        "selected.csv", "report.json", "report.md", "degrees.png", "size_vs_k.png", "tradeoff.png", "manifest.json",
    }  # fmt: skip
    report = json.loads((folder / "report.json").read_text())
    assert 0 < report["kept_share"] <= 1
    assert report["ratio_certificate"] > 0.95
    assert report["recommended_k"]["why"] in (folder / "report.md").read_text()
    names = [line.split(",", 1)[0] for line in (folder / "selected.csv").read_text().splitlines()[1:]]
    chosen = np.array(names, int)
    assert data.embedded().user_degrees(chosen).max() <= report["k"]
    assert len(chosen) == report["size"]
    assert str(free_folder("bound-report")) == "bound-report-2"  # the next run is never in its way


def test_a_pair_table_is_bounded_and_not_overwritten(capsys, tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("example_id,user_id\na,u\nb,u\nc,u\nc,v\n")
    arguments = (bound_script, path, "--k", 1, "--method", "exact", "--out", tmp_path / "out", "--json", "-q")
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert (answer["size"], answer["upper_bound"], answer["ratio_certificate"]) == (1, 1, 1)
    assert (tmp_path / "out" / "selected.csv").read_text().splitlines()[0] == "example,example_id"
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "--force" in err
    assert run(capsys, *arguments, "--force")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no.csv"], "no such file"),
        (["--k", "0"], "whole number of at least 1"),
        (["--k", "100000000000000000000"], "at most 2147483647"),
        (["--method", "best"], "unknown method"),
        (["--graph", "facebook"], "no embedded graph"),
        (["--delta", "2"], "delta must lie in"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, bound_script, "-q", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_density_account_bias_and_test_answer(capsys):
    code, out, _ = run(capsys, app, "density", "--graph", "karate_club", "--json")
    assert code == 0
    assert json.loads(out)["cover"] == pytest.approx(13.5, abs=1)
    code, out, _ = run(capsys, app, "account", "--k", 2, "--sigma", 8, "--q", 0.1, "--steps", 10, "--json")
    assert code == 0
    assert 0 < json.loads(out)["epsilon"] < 1
    code, _, err = run(capsys, app, "account")
    assert code == 2
    assert "--sigma or --eps" in err
    code, out, _ = run(capsys, app, "bias", "--graph", "karate_club", "--k", 2, "--runs", 50, "--fair", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["cv_fair"] <= answer["cv_random_priority"]
    code, out, _ = run(capsys, app, "test-iid", "--n", 4000, "--truth", 0.7, "--alpha", 0.2, "--seed", 0, "--json")
    assert code == 0
    assert json.loads(out)["reject"] is True


ARGUMENTS = ["train", "--examples", "400", "--k", "2", "--steps", "60", "--every", "5", "--seed", "5", "-q"]


def start(*arguments):
    code = "from fixedgraphdp.cli import app; app()"
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    return subprocess.Popen([sys.executable, "-c", code, *ARGUMENTS, *map(str, arguments)], env=environment)


def test_a_killed_training_goes_on_to_the_same_model(capsys, tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = start("--out", killed)
    deadline = time.monotonic() + 240
    while not (killed / "checkpoint.npz").exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "model.npz").exists()
    assert run(capsys, app, *ARGUMENTS, "--out", killed)[0] == 2
    assert run(capsys, app, *ARGUMENTS, "--out", killed, "--resume")[0] == 0
    assert run(capsys, app, *ARGUMENTS, "--out", whole)[0] == 0
    models = [np.load(folder / "model.npz")["theta"] for folder in (killed, whole)]
    assert np.array_equal(*models)
    histories = [(folder / "history.jsonl").read_text() for folder in (killed, whole)]
    assert histories[0] == histories[1]
    report = json.loads((killed / "report.json").read_text())
    assert report["epsilon"] <= 2
    assert (killed / "accuracy.png").stat().st_size > 1000


def test_training_takes_a_users_own_data(capsys, tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"e{e},u{u}" for e in range(60) for u in {e % 20, (7 * e) % 20}]
    (tmp_path / "pairs.csv").write_text("example_id,user_id\n" + "\n".join(lines) + "\n")
    np.savez(tmp_path / "rows.npz", x=rng.standard_normal((60, 3)), y=rng.integers(0, 2, 60))
    out = tmp_path / "out"
    arguments = ["train", "--pairs", tmp_path / "pairs.csv", "--data", tmp_path / "rows.npz", "--k", 2]
    code, text, _ = run(capsys, app, *arguments, "--steps", 3, "--seed", 1, "--out", out, "--json", "-q")
    assert code == 0
    assert json.loads(text)["k"] == 2
    assert not (out / "accuracy.png").exists()
    assert run(capsys, app, "train", "--pairs", tmp_path / "pairs.csv")[0] == 2


def test_the_readme_snippet_runs(capsys):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    exec(readme.split("```python\n")[1].split("```")[0], {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{bound(data.embedded(), 4, 'lp').size} of 254 kept, at least 100% of the optimum"
    assert lines[1].startswith("epsilon 0.8")


def test_contents_beside_the_pairs_change_nothing(capsys, tmp_path):
    answers = []
    for poison in ("fine", "1e999", "\x01<script>"):
        path = tmp_path / "pairs.csv"
        rows = "".join(f"e{e},{poison},u{u}\n" for e in range(9) for u in (e % 3, 3 + e % 2))
        path.write_text(f"example_id,contents,user_id\n{rows}")
        _, out, _ = run(capsys, app, "density", path, "--json")
        selected = bound(data.read(path).graph, 2, "lp").selected.tolist()
        answers.append((out, selected))
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["account", "--sigma", "inf"], "finite"),
        (["account", "--sigma", "1", "--q", "0"], "sampling rate"),
        (["account", "--eps", "0"], "epsilon must be positive"),
        (["account", "--eps", "1e6"], "protects nobody"),
        (["test-iid", "--eps", "nan"], "epsilon"),
        (["test-iid", "--s", "0"], "at least 1"),
        (["test-iid", "--truth", "7"], "want a probability"),
        (["test-iid", "--delta", "1"], "delta must lie in"),
        (["density", "--beta", "1"], "beta"),
        (["train", "--resume"], "--resume needs --out"),
        (["bias", "--order", "alphabet"], "unknown order"),
    ],
)
def test_bad_arguments_of_the_other_commands_are_one_line_too(capsys, arguments, says):
    code, out, err = run(capsys, app, *arguments, "-q")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_a_verb_says_on_stderr_what_it_could_not_read(capsys, tmp_path):
    path = tmp_path / "chat.jsonl"
    path.write_text('{"id": 1, "sender": "ann", "mentions": ["bob"]}\nnot json\n')
    code, out, err = run(capsys, app, "density", path, "--json")
    assert code == 0
    assert json.loads(out)["c"] == 1
    assert "1 skipped, first: line 2" in err


def test_a_binary_table_sends_no_control_character_to_the_terminal(capsys, tmp_path):
    path = tmp_path / "photo.csv"
    path.write_bytes(b"a\x1b[2J\n\x1b[31m,\x07,\x9b\n")
    code, _, err = run(capsys, app, "density", path, "-q")
    assert code == 2
    assert all(mark.isprintable() for mark in err.rstrip("\n"))


def test_the_time_limit_reaches_the_density(capsys, tmp_path, monkeypatch):
    """Above the size of the simplex and without time, the answer is a certified range and the exit code 0."""
    monkeypatch.setattr("fixedgraphdp.lp.LARGE", 10)
    code, out, _ = run(capsys, app, "density", "--beta", "0.1", "--time-limit", 0, "--json", "-q")
    assert code == 0
    answer = json.loads(out)
    assert answer["c_at_least"] <= 16 <= answer["c"]  # LP_16 of Les Miserables keeps 228 of 254, LP_8 only 179
    assert answer["exact"] is False

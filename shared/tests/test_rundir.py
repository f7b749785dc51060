"""A run's folder refuses, clears, resumes and says which; a killed run can be resumed and two cannot share one."""

import json
import subprocess
import sys

import pytest

from papers_shared import InputError, _rundir
from papers_shared.artifacts import RunDir, free_folder, read_jsonl, refuse_used_folder

CONFIG = {"lr": 0.1, "data": {"name": "digits", "n": 100}, "names": ["a"]}


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_a_fresh_run_writes_a_manifest_and_closes_it(tmp_path):
    folder = tmp_path / "deep" / "run"
    with RunDir(folder, package="papers_shared", config=CONFIG, seed=3) as run:
        assert manifest(folder)["status"] == "running"
        assert not run.resumed
        (run / "a.txt").write_text("x")
    found = manifest(folder)
    assert found["status"] == "finished"
    assert found["config"] == CONFIG
    assert found["seed"] == 3
    assert found["attempts"] == 1
    assert found["seconds"] >= 0
    assert found["package"] == "papers_shared"
    assert found["version"] == found["provenance"]["version"]
    assert {"numpy", "typer"} <= set(found["provenance"]["libraries"])
    assert sorted(entry.name for entry in folder.iterdir()) == ["a.txt", "manifest.json"]


def test_a_folder_in_use_is_refused_and_left_untouched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"is not empty \(holds notes.txt\); pass --resume .* --force"):
        RunDir(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("options", [{"force": True}, {"resume": True}])
@pytest.mark.parametrize("text", [None, "[]", '{"format": "another program"}'])
def test_a_folder_that_no_run_of_ours_made_is_never_cleared_or_resumed(tmp_path, options, text):
    (tmp_path / "thesis.txt").write_text("mine")
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match="no run of ours made it"):
        RunDir(tmp_path, **options)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_broken_manifest_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json:1:2: not JSON"):
        RunDir(tmp_path, resume=True)


def test_force_clears_the_earlier_run(tmp_path):
    with RunDir(tmp_path / "r", config=CONFIG) as run:
        (run / "history.jsonl").write_text("old")
        (run / "sub").mkdir()
        (run / "sub" / "x").write_text("old")
    with RunDir(tmp_path / "r", config={"lr": 2}, force=True) as run:
        assert not run.resumed
        assert [entry.name for entry in (tmp_path / "r").iterdir() if entry.name != ".lock"] == ["manifest.json"]
    assert manifest(tmp_path / "r")["attempts"] == 1


def test_force_does_not_follow_links_out_of_the_folder(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "x").write_text("keep")
    with RunDir(tmp_path / "r") as run:
        (run / "link").symlink_to(tmp_path / "precious")
    with RunDir(tmp_path / "r", force=True):
        assert (tmp_path / "precious" / "x").read_text() == "keep"


def test_resume_continues_with_the_same_settings(tmp_path):
    def fail():
        with RunDir(tmp_path / "r", config=CONFIG, seed=1) as run:
            (run / "a.txt").write_text("kept")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert manifest(tmp_path / "r")["status"] == "failed"
    started = manifest(tmp_path / "r")["started"]
    with RunDir(tmp_path / "r", config=dict(reversed(CONFIG.items())), seed=1, resume=True) as run:
        assert run.resumed
        assert not run.finished
        assert (run / "a.txt").read_text() == "kept"
    found = manifest(tmp_path / "r")
    assert (found["attempts"], found["status"], found["started"]) == (2, "finished", started)
    with RunDir(tmp_path / "r", config=CONFIG, seed=1, resume=True) as run:
        assert run.finished


def test_resume_in_an_empty_or_missing_folder_starts(tmp_path):
    with RunDir(tmp_path, resume=True) as run:
        assert not run.resumed
    with RunDir(tmp_path / "new", resume=True) as run:
        assert not run.resumed


def test_resume_with_other_settings_says_what_differs(tmp_path):
    with RunDir(tmp_path / "r", config=CONFIG, seed=1):
        pass
    other = {"lr": 0.2, "data": {"name": "digits", "n": 50}, "names": ["a"], "new": True}
    with pytest.raises(InputError) as caught:
        RunDir(tmp_path / "r", config=other, seed=2, resume=True)
    for said in ("lr 0.1 -> 0.2", "data.n 100 -> 50", "new None -> True", "seed 1 -> 2"):
        assert said in str(caught.value)
    assert "names" not in str(caught.value)
    assert manifest(tmp_path / "r")["config"] == CONFIG


@pytest.mark.parametrize("options", [{}, {"force": True}, {"resume": True}])
def test_a_kill_while_the_first_manifest_is_written_leaves_a_fresh_folder(tmp_path, options):
    (tmp_path / ".manifest.json.tmp-0123456789ab.json").write_text('{"format":')
    with RunDir(tmp_path, **options) as run:
        assert not run.resumed
    assert [entry.name for entry in tmp_path.iterdir()] == ["manifest.json"]


def test_what_went_wrong_first_is_what_the_user_hears(tmp_path, monkeypatch, caplog):
    def full(path, *_):
        raise InputError(f"cannot write {path}: no space left on device")

    def fill():
        with RunDir(tmp_path / "r") as run:
            monkeypatch.setattr(_rundir, "write_json", full)
            raise InputError(f"cannot write {run / 'history.jsonl'}: no space left on device")

    with pytest.raises(InputError, match=r"history\.jsonl"):
        fill()
    assert "manifest.json: no space left" in caplog.text


def test_values_are_compared_as_json_keeps_them(tmp_path):
    with RunDir(tmp_path / "r", config={"shape": (1, 2), "folder": tmp_path}):
        pass
    with RunDir(tmp_path / "r", config={"shape": [1, 2], "folder": tmp_path}, resume=True) as run:
        assert run.resumed


def test_another_version_is_said_but_no_obstacle(tmp_path, caplog):
    with RunDir(tmp_path / "r", package="papers_shared"):
        pass
    text = (tmp_path / "r" / "manifest.json").read_text()
    (tmp_path / "r" / "manifest.json").write_text(text.replace(manifest(tmp_path / "r")["version"], "0.0.0"))
    with RunDir(tmp_path / "r", package="papers_shared", resume=True):
        pass
    assert "was begun with version 0.0.0, now" in caplog.text


def test_force_and_resume_exclude_each_other(tmp_path):
    with pytest.raises(InputError, match="exclude each other"):
        RunDir(tmp_path, force=True, resume=True)


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "f").write_text("x")
    with pytest.raises(InputError, match="is a file; name a folder"):
        RunDir(tmp_path / "f")
    with pytest.raises(InputError, match="cannot write"):
        RunDir(tmp_path / "f" / "run")


def test_two_processes_do_not_share_a_folder(tmp_path):
    with RunDir(tmp_path / "r"), pytest.raises(InputError, match="another process is running in"):
        RunDir(tmp_path / "r", resume=True)
    with RunDir(tmp_path / "r", resume=True) as run:
        assert run.resumed


def test_ctrl_c_is_recorded(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunDir(tmp_path / "r"):
        raise KeyboardInterrupt
    assert manifest(tmp_path / "r")["status"] == "interrupted"


def test_a_killed_run_resumes_where_it_was(tmp_path):
    """Kill -9 in the middle of a run; the resumed run does the rest, and each step is there once."""
    code = """
import sys, time
from papers_shared.artifacts import RunDir, append_jsonl, read_jsonl
with RunDir(sys.argv[1], config={"steps": 40}, resume=True) as run:
    done = len(read_jsonl(run / "history.jsonl")) if (run / "history.jsonl").exists() else 0
    for step in range(done, 40):
        append_jsonl(run / "history.jsonl", {"step": step})
        if step % 10 == 5 and step > done:
            print(step, flush=True)
            time.sleep(60)
"""
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "r"], stdout=subprocess.PIPE)
        process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        assert manifest(tmp_path / "r")["status"] == "running"
    quick = code.replace("time.sleep(60)", "pass")
    subprocess.run([sys.executable, "-c", quick, tmp_path / "r"], check=True, capture_output=True)
    assert [row["step"] for row in read_jsonl(tmp_path / "r" / "history.jsonl")] == list(range(40))
    assert manifest(tmp_path / "r")["status"] == "finished"
    assert manifest(tmp_path / "r")["attempts"] == 4


def test_a_folder_can_be_refused_before_the_work_that_fills_it(tmp_path):
    refuse_used_folder(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with RunDir(tmp_path / "ours"):
        pass
    refuse_used_folder(tmp_path / "ours", force=True)
    with pytest.raises(InputError, match="is not empty") as refused:
        refuse_used_folder(tmp_path / "ours")
    assert refused.value.hint.startswith("pass --force")  # nothing that the run does not have
    with pytest.raises(InputError) as again:
        RunDir(tmp_path / "ours", resume=None)
    assert str(again.value) == str(refused.value)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / ".hidden").touch()
    for force in (False, True):
        with pytest.raises(InputError, match="theirs"):
            refuse_used_folder(tmp_path / "theirs", force=force)
    with pytest.raises(InputError, match="is a file"):
        refuse_used_folder(tmp_path / "theirs" / ".hidden")


def test_a_free_folder_is_the_first_name_not_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(free_folder("run")) == "run"
    (tmp_path / "run").mkdir()
    (tmp_path / "run-2").touch()
    assert str(free_folder("run")) == "run-3"

"""What made a result, without naming the machine or its folders."""

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from papers_shared._provenance import command_line, package_version
from papers_shared.artifacts import provenance


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "r.json").write_text("{}")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "first")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commit_and_dirty_flag(repository):
    found = provenance()["git"]
    assert len(found["commit"]) == 40
    assert found["dirty"] is False
    (repository / "a.txt").write_text("y")
    assert provenance()["git"]["dirty"] is True


def test_the_results_being_written_do_not_count_as_dirty(repository):
    (repository / "results" / "r.json").write_text("[]")
    (repository / "results" / "new.png").write_text("")
    assert provenance(ignore="results")["git"]["dirty"] is False
    assert provenance(ignore=repository / "results")["git"]["dirty"] is False
    assert provenance()["git"]["dirty"] is True


def test_outside_a_repository_or_without_git_there_is_no_commit(tmp_path, monkeypatch):
    # The temporary folder may itself lie inside a checkout; git must not look further up.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert provenance()["git"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance()["git"] is None


def test_a_package_under_version_control_gives_its_own_commit(repository, tmp_path_factory, monkeypatch):
    (repository / "trackedpackage").mkdir()
    (repository / "trackedpackage" / "__init__.py").write_text("")
    git(repository, "add", ".")
    git(repository, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "second")
    monkeypatch.syspath_prepend(repository)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(elsewhere.parent))
    monkeypatch.chdir(elsewhere)
    assert provenance("trackedpackage")["git"]["dirty"] is False
    assert provenance()["git"] is None


def test_versions_and_platform_are_those_of_this_python():
    found = provenance("papers_shared", seed=7, libraries=["pytest"])
    assert list(found) == [
        *["package", "version", "git", "command", "seed", "python", "platform", "cpu", "cores", "libraries"]
    ]
    assert found["python"] == platform.python_version()
    assert found["seed"] == 7
    assert found["libraries"]["pytest"] == pytest.__version__
    assert "httpx" not in found["libraries"] or "chat" not in found["libraries"]
    assert list(found["libraries"]) == sorted(found["libraries"])
    assert found["cores"] >= 1
    assert provenance(seed=range(3))["seed"] == [0, 1, 2]


def test_nothing_names_the_machine_or_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/env/bin/edit", str(tmp_path / "in.png"), f"--out={tmp_path}/o", "-n", "3"])
    monkeypatch.chdir(tmp_path)
    text = json.dumps(provenance("papers_shared"))
    assert provenance()["command"] == "edit in.png --out=o -n 3"
    for private in (platform.node(), str(tmp_path), str(Path.home())):
        assert f'"{private}' not in text
        assert not (len(private) > 8 and private in text)


def test_paths_elsewhere_are_cut_to_their_name_and_words_are_quoted(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/match", "/data/private/updates.csv", "two words"])
    assert command_line() == "match updates.csv 'two words'"


def test_a_package_that_is_not_installed_has_no_version():
    assert package_version("no_such_package_here") == "unknown"
    assert provenance("no_such_package_here")["libraries"] == {}

"""The CI matrix: a change tests every paper it can break, and no other."""

import json
import subprocess

import pytest

import affected as module
from affected import affected, closure
from papers import papers


def lock(torch: str = "2.15", jax: str = "0.10") -> dict:
    def package(name, version, *needs, **more):
        return {"name": name, "version": version, "dependencies": [{"name": n} for n in needs], **more}

    return {
        "package": [
            package("alpha", "0.1", "torch", "papers-shared"),
            package("beta", "0.1", "papers-shared", **{"optional-dependencies": {"gpu": [{"name": "jax"}]}}),
            package("gamma", "0.1", "papers-shared", **{"dev-dependencies": {"test": [{"name": "pytest"}]}}),
            package("papers-shared", "0.1", "numpy"),
            package("torch", torch, "numpy", "triton"),
            package("triton", "3", "torch"),  # a cycle must end
            package("jax", jax, "numpy"),
            package("numpy", "2.3"),
            package("pytest", "9"),
        ]
    }


NAMES = ["gamma", "alpha", "beta"]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        (["packages/beta/src/beta/x.py"], ["beta"]),
        (["packages/alpha/README.md", "packages/gamma/tests/test_x.py"], ["alpha", "gamma"]),
        (["shared/src/papers_shared/errors.py"], ["alpha", "beta", "gamma"]),
        (["noxfile.py"], ["alpha", "beta", "gamma"]),
        (["tools/checks.py"], ["alpha", "beta", "gamma"]),
        ([".github/workflows/ci.yml"], ["alpha", "beta", "gamma"]),
        (["README.md", "LICENSE", "CITATION.cff"], []),
        (["packages/removed/pyproject.toml"], []),
    ],
)
def test_paths_select_papers(changed, expected):
    assert affected(changed, NAMES, lock(), lock()) == expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (lock(torch="2.16"), ["alpha"]),
        (lock(jax="0.11"), ["beta"]),  # reached through an extra
        (lock(), []),
    ],
)
def test_a_lock_change_selects_the_papers_whose_closure_it_touches(new, expected):
    assert affected(["uv.lock"], NAMES, lock(), new) == expected


def test_a_paper_new_in_the_lock_is_affected():
    old = lock()
    old["package"] = [p for p in old["package"] if p["name"] != "gamma"]
    assert affected(["uv.lock"], NAMES, old, lock()) == ["gamma"]


def test_closure_goes_through_extras_groups_and_cycles():
    names = {name for name, _, _ in closure(lock(), "alpha")}
    assert names == {"alpha", "torch", "triton", "numpy", "papers-shared"}
    assert "pytest" in {name for name, _, _ in closure(lock(), "gamma")}


def test_main_reads_the_change_from_git(tmp_path, monkeypatch, capsys):
    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    for name in ("alpha", "beta"):
        folder = tmp_path / "packages" / name
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "base")
    (tmp_path / "packages" / "beta" / "x.py").write_text("")
    git("add", ".")
    git("commit", "-qm", "two")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "papers", lambda: papers(tmp_path))
    module.main("base")
    assert json.loads(capsys.readouterr().out) == ["beta"]
    module.main("no-such-revision")
    assert json.loads(capsys.readouterr().out) == ["alpha", "beta"]

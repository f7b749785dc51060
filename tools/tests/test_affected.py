"""The CI matrix: a change tests every paper it can break, and no other."""

import json
import shutil
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
        (["shared/tests/test_cli.py", "tools/tests/test_affected.py"], []),
        (["shared/pyproject.toml"], ["alpha", "beta", "gamma"]),
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


@pytest.fixture
def git(tmp_path, monkeypatch):
    """A repository of two papers at the tag ``base``; returns git."""

    def run(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "core.autocrlf=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit():
        run("add", "-A")
        run("commit", "-qm", "change")
        return run("rev-parse", "HEAD")

    run.commit = commit
    for name in ("alpha", "beta"):
        folder = tmp_path / "packages" / name
        folder.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n')
        (folder / "module.py").write_text(f"# {name}\n" * 20)
    (tmp_path / "uv.lock").write_text(as_toml(lock()))
    run("init", "-qb", "main")
    commit()
    run("tag", "base")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "papers", lambda: papers(tmp_path))
    return run


def as_toml(document):
    lines = ["version = 1"]
    for package in document["package"]:
        lines += ["[[package]]", f'name = "{package["name"]}"', f'version = "{package["version"]}"']
        needs = ", ".join(f'{{ name = "{need["name"]}" }}' for need in package["dependencies"])
        lines += [f"dependencies = [{needs}]"]
    return "\n".join(lines) + "\n"


def answer(capsys, base):
    module.main(base)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["x.py", "two words.py", "größe.py", 'quo"te.py'])
def test_main_reads_the_change_from_git(git, capsys, tmp_path, name):
    (tmp_path / "packages" / "beta" / name).write_text("")
    git.commit()
    assert answer(capsys, "base") == ["beta"]
    assert answer(capsys, "HEAD") == []


def test_a_file_that_moves_affects_both_papers(git, capsys, tmp_path):
    (tmp_path / "packages/alpha/module.py").rename(tmp_path / "packages/beta/moved.py")
    git.commit()
    assert answer(capsys, "base") == ["alpha", "beta"]


def test_a_deleted_file_affects_its_paper_and_a_deleted_paper_none(git, capsys, tmp_path):
    (tmp_path / "packages/alpha/module.py").unlink()
    deleted = git.commit()
    assert answer(capsys, "base") == ["alpha"]
    shutil.rmtree(tmp_path / "packages/alpha")
    git.commit()
    assert answer(capsys, deleted) == []


def test_the_lock_is_compared_with_that_of_the_fork(git, capsys, tmp_path):
    """What the main branch has changed since is not this change's doing."""
    git("checkout", "-qb", "topic")
    (tmp_path / "uv.lock").write_text(as_toml(lock(torch="2.16")))
    git.commit()
    git("checkout", "-q", "main")
    (tmp_path / "uv.lock").write_text(as_toml(lock(jax="0.11")))
    (tmp_path / "packages/beta/module.py").unlink()
    git.commit()
    git("checkout", "-q", "topic")
    assert answer(capsys, "main") == ["alpha"]


@pytest.mark.parametrize("base", ["no-such-revision", "0" * 40, ""])
def test_an_unknown_base_affects_all(git, capsys, base):
    assert answer(capsys, base) == ["alpha", "beta"]


def test_a_base_without_common_history_affects_all(git, capsys):
    git("checkout", "-q", "--orphan", "other")
    git("commit", "-qm", "root")
    assert answer(capsys, "base") == ["alpha", "beta"]

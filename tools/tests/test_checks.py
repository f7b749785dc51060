"""Each check of the workspace finds the fault it is there for, and a sound workspace passes."""

import json
import sys

import pytest

import checks
from new_paper import write_skeleton
from readme import rendered

PROVENANCE = {
    "version": "0.1.0",
    "seed": None,
    "git": {"commit": "0" * 40, "dirty": False},
    "command": "claims",
    "platform": "Linux",
    "libraries": {},
}


@pytest.fixture
def root(tmp_path):
    """Return a sound workspace of two skeleton papers."""
    (tmp_path / "README.md").write_text("<!-- papers:begin -->\n<!-- papers:end -->\n")
    for name, verb in (("alpha", "doalpha"), ("beta", "dobeta")):
        folder = write_skeleton(name, verb, tmp_path)
        results = folder / "results" / "small"
        results.mkdir(parents=True)
        claims = [{"id": "C1", "statement": "s", "paper": "1", "measured": {"x": 1.0}, "must_hold": True,
                   "holds": True, "figure": "error.png", "seeds": [0], "seconds": 1.0}]  # fmt: skip
        document = {
            "package": name,
            "version": "0.1.0",
            "scale": "small",
            "provenance": PROVENANCE,
            "claims": claims,
        }
        (results / "claims.json").write_text(json.dumps(document))
        (results / "error.png").write_bytes(b"png")
    for path, text in list(rendered(tmp_path)):
        path.write_text(text)
    return tmp_path


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_skeleton_is_sound(root):
    assert checks.problems(root) == []


def break_scripts(root):
    edit(root / "packages/beta/pyproject.toml", "dobeta =", "doalpha =")
    return "console script 'doalpha' is installed by alpha and beta"


def drop_verb(root):
    edit(root / "packages/beta/pyproject.toml", 'beta = "beta.cli:app"\n', "")
    return "beta: needs two console scripts"


def import_paper(root):
    path = root / "packages/alpha/src/alpha/data.py"
    path.write_text(path.read_text() + "\n\ndef late():\n    import beta.data\n    return beta\n")
    return "imports another paper, beta"


def import_paper_in_a_test(root):
    path = root / "packages/alpha/tests/test_variance.py"
    path.write_text("from beta.variance import empty\n" + path.read_text())
    return "packages/alpha/tests/test_variance.py:1: imports another paper, beta"


def require_paper(root):
    edit(root / "packages/alpha/pyproject.toml", '"pytest>=9"', '"pytest>=9", "beta[extra]>=0.1"')
    return "alpha: pyproject.toml requires another paper, beta[extra]>=0.1"


def no_lower_bound(root):
    edit(root / "packages/alpha/pyproject.toml", '"pytest>=9"', """"pytest; python_version >= '3.11'\"""")
    return "alpha: pyproject.toml requires pytest; python_version >= '3.11' without a lower bound"


def no_commit(root):
    path = root / "packages/alpha/results/small/claims.json"
    document = json.loads(path.read_text())
    document["provenance"]["git"] = None
    path.write_text(json.dumps(document))
    return "results/small/claims.json: provenance names no commit"


def half_a_result(root):
    (root / "packages/alpha/results/small/bench.json").write_text("{")
    return "results/small/bench.json: not JSON"


def lose_a_figure(root):
    path = root / "packages/alpha/results/small/claims.json"
    path.write_text(path.read_text().replace("error.png", "gone.png"))
    return "claim C1 names gone.png, which is not there"


def no_claims_table(root):
    edit(root / "packages/alpha/README.md", "<!-- claims:begin -->", "")
    return "alpha: README.md has no generated claims table"


def no_picture(root):
    path = root / "packages/alpha/README.md"
    path.write_text(path.read_text().replace("![", "["))
    return "alpha: README.md shows no picture"


def no_title(root):
    edit(root / "packages/alpha/pyproject.toml", "title =", "name =")
    return "alpha: pyproject.toml's [tool.paper] needs title and url"


def stale_top(root):
    edit(root / "README.md", "1 holds, 0 do not", "2 hold, 0 do not")
    return "README.md: generated tables are stale"


def drop_file(root):
    (root / "packages/alpha/CHANGELOG.md").unlink()
    return "alpha: CHANGELOG.md is missing"


def drop_benchmarks(root):
    for path in (root / "packages/alpha/benchmarks").glob("bench_*.py"):
        path.unlink()
    return "alpha: benchmarks/bench_*.py is missing"


def drop_section(root):
    edit(root / "packages/alpha/README.md", "## Scaling up", "## More")
    return "alpha: README.md has no section 'Scaling up'"


def drop_picture(root):
    (root / "packages/alpha/results/small/error.png").unlink()
    return "results/small/error.png, which is not there"


def drop_provenance(root):
    path = root / "packages/alpha/results/small/claims.json"
    document = json.loads(path.read_text())
    del document["provenance"]["git"]
    path.write_text(json.dumps(document))
    return "provenance lacks git"


def forge_table(root):
    edit(root / "packages/alpha/README.md", "| C1 |", "| C2 |")
    return "packages/alpha/README.md: generated tables are stale"


def unexplained_asset(root):
    assets = root / "packages/alpha/src/alpha/assets"
    assets.mkdir(exist_ok=True)
    (assets / "PROVENANCE.md").write_text("nothing here")
    (assets / "weights.bin").write_bytes(b"0")
    return "assets/PROVENANCE.md does not mention weights.bin"


def no_provenance_page(root):
    assets = root / "packages/alpha/src/alpha/assets"
    assets.mkdir(exist_ok=True)
    (assets / "PROVENANCE.md").unlink(missing_ok=True)
    return "assets/PROVENANCE.md is missing"


@pytest.mark.parametrize(
    "damage",
    [break_scripts, drop_verb, import_paper, import_paper_in_a_test, require_paper, no_lower_bound, drop_file,
     drop_benchmarks, drop_section, drop_picture, no_picture, no_claims_table, no_title, drop_provenance, no_commit,
     half_a_result, lose_a_figure, forge_table, stale_top, unexplained_asset, no_provenance_page],
)  # fmt: skip
def test_each_fault_is_found(root, damage, monkeypatch):
    here = tuple(check for check in checks.CHECKS if check is not checks.shared_is_light)  # slow, and tested below
    monkeypatch.setattr(checks, "CHECKS", here)
    expected = damage(root)
    assert any(expected in line for line in checks.problems(root)), checks.problems(root)


def test_a_heavy_wheel_is_found(tmp_path):
    wheel = tmp_path / "alpha-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"0" * 10_000_001)
    assert list(checks.wheels_are_small([wheel])) == [f"{wheel.name}: 10.0 MB, the limit is 10 MB"]


def test_importing_torch_in_shared_is_found(tmp_path, monkeypatch):
    package = tmp_path / "papers_shared"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "metrics.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert list(checks.shared_is_light(tmp_path)) == ["papers_shared imports torch at import time"]


def test_main_says_problems_and_fails(root, monkeypatch, capsys):
    monkeypatch.setattr(checks, "problems", lambda wheels: ["alpha: x is missing"])
    monkeypatch.setattr(sys, "argv", ["checks.py"])
    assert checks.main([]) == 1
    assert "alpha: x is missing" in capsys.readouterr().err

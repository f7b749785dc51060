"""Sessions of the workspace; ``nox -l`` lists them. ``uv run nox`` runs lint, workspace and every paper's tests.

A paper is tested as its users get it: the built wheel in a fresh environment that holds what the wheel declares,
at the versions of ``uv.lock``, and nothing of this checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

from papers import Paper, papers  # noqa: E402

PAPERS = papers()
SHARED = "papers-shared"
IMPORT_SHARED = "import papers_shared.claims, papers_shared.images, papers_shared.metrics, papers_shared.chat"
BUILT: set[str] = set()

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = True
nox.options.sessions = ["lint", "workspace", "test-shared", *(f"test-{paper.name}" for paper in PAPERS)]

os.environ.setdefault("MPLBACKEND", "Agg")
# What a user's shell puts on every import path is not what a wheel declares.
os.environ.pop("PYTHONPATH", None)


def hard_link_environments() -> None:
    """Keep environments hard links into uv's cache: one on another file system is replaced by one near the checkout."""
    cache = Path(subprocess.run(["uv", "cache", "dir"], capture_output=True, text=True, check=True).stdout.strip())
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    if there.stat().st_dev != ROOT.stat().st_dev:
        beside = ROOT.parent.stat().st_dev == ROOT.stat().st_dev and os.access(ROOT.parent, os.W_OK)
        os.environ["UV_CACHE_DIR"] = str((ROOT.parent if beside else ROOT) / ".uv-cache")


def share_bytecode(session: nox.Session) -> None:
    """Let all environments share one store of compiled modules, so that each module is compiled once and not per paper.

    Python keeps bytecode under ``PYTHONPYCACHEPREFIX`` by the path of its source, and every environment has a path of
    its own: a link makes them one. What does not belong to a source's very size and time of installation is compiled
    anew.
    """
    environment = Path(session.virtualenv.location).resolve()
    store = ROOT / ".nox" / "bytecode"
    link = store / environment.relative_to(environment.anchor)
    link.parent.mkdir(parents=True, exist_ok=True)
    (store / "shared").mkdir(exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(store / "shared", target_is_directory=True)
    session.env["PYTHONPYCACHEPREFIX"] = str(store)
    session.env["PYTHONDONTWRITEBYTECODE"] = None


def build_wheel(session: nox.Session, package: str) -> Path:
    """Build one package's wheel, once for all sessions of this run."""
    out, stem = ROOT / ".nox" / "wheels", package.replace("-", "_")
    if package not in BUILT:
        for old in out.glob(f"{stem}-*.whl"):
            old.unlink()
        build = ["uv", "build", "--quiet", "--wheel", "--package", package, "-o", str(out)]
        session.run(*build, env={"PYTHONPYCACHEPREFIX": None}, external=True)
        BUILT.add(package)
    return next(out.glob(f"{stem}-*.whl"))


def install_wheel(session: nox.Session, package: str, *groups: str, alone: Callable[[], None] | None = None) -> None:
    """Install the wheel with what it declares, at the locked versions; call ``alone``; then add the groups."""
    share_bytecode(session)
    pins = Path(session.create_tmp()) / "pins.txt"
    flags = [f"--group={group}" for group in groups]
    session.run(
        *["uv", "export", "--quiet", "--frozen", "--package", package, "--no-dev", *flags, "--no-emit-workspace"],
        *["--no-hashes", "--no-annotate", "--no-header", "-o", str(pins)],
        external=True,
        silent=True,
    )
    # The pins of the groups are there already, but a constraint installs nothing.
    constraint = ("--constraint", str(pins))
    wheels = [str(build_wheel(session, name)) for name in dict.fromkeys((SHARED, package))]
    session.install("--quiet", *constraint, *wheels)
    if alone is not None:
        alone()
    if groups:
        folder = "shared" if package == SHARED else f"packages/{package}"
        session.install("--quiet", *constraint, *(f"--group={folder}/pyproject.toml:{group}" for group in groups))


def check_alone(session: nox.Session, scripts: Iterable[str]) -> None:
    """With nothing but its declared dependencies installed, the package's scripts import it and answer."""
    for script in scripts:
        session.run(script, "--help", silent=True)


hard_link_environments()


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, docstrings and types of everything."""
    session.run_install("uv", "sync", "--quiet", "--frozen", "--active", external=True)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    sources = [str(paper.source) for paper in PAPERS]
    session.run("ty", "check", "--quiet", "shared/src", *sources)


@nox.session
def workspace(session: nox.Session) -> None:
    """Check what no single package can see: unique scripts, README tables, provenance, completeness, wheel sizes."""
    install_wheel(session, SHARED, "test")
    session.run("pytest", "-q", "tools/tests")
    wheels = [build_wheel(session, paper.name) for paper in PAPERS]
    session.run("python", "tools/checks.py", *map(str, wheels))


@nox.session
def readme(session: nox.Session) -> None:
    """Regenerate the tables of all READMEs from the committed results."""
    install_wheel(session, SHARED)
    session.run("python", "tools/readme.py")


@nox.session(name="new-paper", venv_backend="none")
def new_paper(session: nox.Session) -> None:
    """Write the skeleton of a new paper: ``nox -s new-paper -- NAME VERB``."""
    session.run("python", "tools/new_paper.py", *session.posargs)


@nox.session(name="test-shared")
def test_shared(session: nox.Session) -> None:
    """Test papers-shared from its wheel."""
    install_wheel(session, SHARED, "test", alone=lambda: session.run("python", "-c", IMPORT_SHARED, silent=True))
    session.run("pytest", "shared/tests", *session.posargs)


def add_sessions(paper: Paper) -> None:
    """Give one paper its four sessions."""

    def test(session: nox.Session) -> None:
        install_wheel(session, paper.name, "test", alone=lambda: check_alone(session, paper.scripts))
        typed = f"--jaxtyping-packages={paper.name},beartype.beartype"
        session.run("pytest", typed, f"packages/{paper.name}/tests", *session.posargs)

    def bench(session: nox.Session) -> None:
        install_wheel(session, paper.name, "test", *(["bench"] if paper.has_group("bench") else []))
        raw = Path(session.create_tmp()) / "benchmark.json"
        session.run(
            *["pytest", "-o", "python_files=bench_*.py", "--benchmark-only", f"--benchmark-json={raw}", "-s"],
            *[f"packages/{paper.name}/benchmarks", *session.posargs],
        )
        session.run("python", "tools/bench.py", paper.name, str(raw))

    def claims(session: nox.Session) -> None:
        install_wheel(session, paper.name, *(["claims"] if paper.has_group("claims") else []))
        out = f"packages/{paper.name}/results/small"
        session.run(paper.name, "claims", "--scale", "small", "--out", out, *(session.posargs or ["--resume"]))

    def wheel(session: nox.Session) -> None:
        for name in (SHARED, paper.name):
            session.run("uv", "build", "--wheel", "--package", name, "-o", "dist", external=True)

    what = {
        test: f"Test {paper.name} from its wheel, installed alone.",
        bench: f"Time {paper.name} against its peers and write results/small/bench.json.",
        claims: f"Re-test the claims of {paper.name} at small scale (minutes).",
        wheel: f"Build the wheel of {paper.name} into dist/.",
    }
    for function, doc in what.items():
        function.__doc__ = doc
        backend = "none" if function is wheel else None
        nox.session(name=f"{function.__name__}-{paper.name}", venv_backend=backend)(function)


for _paper in PAPERS:
    add_sessions(_paper)

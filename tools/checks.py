"""The checks of the ``workspace`` session: what no single package can see.

Each check takes the workspace's root and yields one line per problem: what is wrong, where.
``python tools/checks.py [WHEEL ...]`` runs them all and exits 1 when there is a problem.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from papers import ROOT, Paper, papers
from readme import stale

WHEEL_LIMIT = 10_000_000
SECTIONS = {
    "Quickstart": "quickstart",
    "Use it from Python": "python",
    "Your own data and the real models": "your own|real",
    "Claims re-tested": "claims",
    "How it works": "how it works",
    "What differs from the paper": "differs",
    "Scaling up": "scal",
    "Citation and licence": "cit",
}
FILES = (
    "LICENSE",
    "README.md",
    "CHANGELOG.md",
    "src/{name}/__init__.py",
    "src/{name}/py.typed",
    "src/{name}/cli.py",
    "src/{name}/claims.py",
    "src/{name}/data.py",
    "tests/test_cli.py",
    "tests/test_claims_smoke.py",
    "results/small/claims.json",
)
PROVENANCE = ("version", "git", "command", "seed", "platform", "libraries")


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level module of every absolute import in a Python file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def scripts_are_unique(root: Path) -> Iterator[str]:
    """Two papers that install the same console script would silently replace each other's."""
    owners: dict[str, list[str]] = defaultdict(list)
    for paper in papers(root):
        if paper.name not in paper.scripts or not paper.verb:
            yield f"{paper.name}: needs two console scripts, its main verb and '{paper.name}'"
        for script in paper.scripts:
            owners[script].append(paper.name)
    for script, names in sorted(owners.items()):
        if len(names) > 1:
            yield f"console script '{script}' is installed by {' and '.join(names)}"


def papers_stand_alone(root: Path) -> Iterator[str]:
    """No paper imports or requires another, in its tests neither: each is installed alone."""
    names = {paper.name for paper in papers(root)}
    for paper in papers(root):
        others = names - {paper.name}
        for path in sorted(paper.folder.rglob("*.py")):
            for line, module in imports(path):
                if module in others:
                    yield f"{path.relative_to(root)}:{line}: imports another paper, {module}"
        for requirement in paper.requirements:
            if re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower() in others:
                yield f"{paper.name}: pyproject.toml requires another paper, {requirement}"


def dependencies_have_lower_bounds(root: Path) -> Iterator[str]:
    """Without a lower bound, an installer may take a version that never worked."""
    for paper in papers(root):
        for requirement in paper.requirements:
            if not re.search(r"(>=|~=|==|>)\s*\d", requirement.partition(";")[0]):
                yield f"{paper.name}: pyproject.toml requires {requirement} without a lower bound"


def shared_is_light(root: Path) -> Iterator[str]:
    """Importing papers_shared must not even look for torch or jax."""
    run = subprocess.run([sys.executable, "-c", _IMPORT_SHARED], capture_output=True, text=True, check=False)
    if run.returncode:
        yield f"papers_shared does not import: {run.stderr.strip().splitlines()[-1]}"
    for module in run.stdout.split():
        yield f"papers_shared imports {module} at import time"


# A finder that only takes notes sees the attempt whether or not torch and jax are installed.
_IMPORT_SHARED = """
import importlib, pkgutil, sys
asked = set()
class Notes:
    def find_spec(self, name, path=None, target=None):
        asked.add(name)
sys.meta_path.insert(0, Notes())
import papers_shared
for module in pkgutil.walk_packages(papers_shared.__path__, "papers_shared."):
    importlib.import_module(module.name)
print(*sorted({"torch", "jax"} & asked))
"""


def packages_are_complete(root: Path) -> Iterator[str]:
    """Every file, README section and picture that a package owes its users."""
    for paper in papers(root):
        for pattern in FILES:
            wanted = pattern.format(name=paper.name)
            if not (paper.folder / wanted).exists():
                yield f"{paper.name}: {wanted} is missing"
        if not list((paper.folder / "benchmarks").glob("bench_*.py")):
            yield f"{paper.name}: benchmarks/bench_*.py is missing"
        if not {"title", "url"} <= paper.about.keys():
            yield f"{paper.name}: pyproject.toml's [tool.paper] needs title and url"
        if (paper.folder / "README.md").exists():
            yield from _readme_is_complete(paper)


def _readme_is_complete(paper: Paper) -> Iterator[str]:
    text = (paper.folder / "README.md").read_text()
    headings = "\n".join(re.findall(r"^##+ (.*)$", text, flags=re.MULTILINE)).lower()
    for section, pattern in SECTIONS.items():
        if not re.search(pattern, headings):
            yield f"{paper.name}: README.md has no section '{section}'"
    if "<!-- claims:begin -->" not in text:
        yield f"{paper.name}: README.md has no generated claims table (<!-- claims:begin -->)"
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    if not pictures:
        yield f"{paper.name}: README.md shows no picture"
    for picture in pictures:
        if "://" not in picture and not (paper.folder / picture).exists():
            yield f"{paper.name}: README.md shows {picture}, which is not there"


def results_carry_provenance(root: Path) -> Iterator[str]:
    """A result says which code, command and libraries made it, and its figures are there."""
    for paper in papers(root):
        results = paper.folder / "results"
        for path in sorted(p for p in results.rglob("*.json") if ".partial" not in p.parts):
            place = path.relative_to(root)
            try:
                document = json.loads(path.read_text())
            except ValueError:
                yield f"{place}: not JSON"
                continue
            given = document.get("provenance", {}) if isinstance(document, dict) else {}
            lacking = [key for key in PROVENANCE if key not in given]
            if lacking:
                yield f"{place}: provenance lacks {', '.join(lacking)}"
            elif not (given["git"] or {}).get("commit"):
                yield f"{place}: provenance names no commit"
            for claim in document.get("claims", []) if isinstance(document, dict) else []:
                figure = claim.get("figure")
                if figure and not (path.parent / figure).exists():
                    yield f"{place}: claim {claim['id']} names {figure}, which is not there"


def assets_carry_provenance(root: Path) -> Iterator[str]:
    """``assets/`` says of every file how it was made."""
    for paper in papers(root):
        assets = paper.source / "assets"
        if not assets.is_dir():
            continue
        page = assets / "PROVENANCE.md"
        if not page.exists():
            yield f"{paper.name}: assets/PROVENANCE.md is missing"
            continue
        text = page.read_text()
        for path in sorted(p for p in assets.rglob("*") if p.is_file() and p != page):
            if "__pycache__" not in path.parts and path.name != "__init__.py" and path.name not in text:
                yield f"{paper.name}: assets/PROVENANCE.md does not mention {path.relative_to(assets)}"


def readmes_are_fresh(root: Path) -> Iterator[str]:
    """The generated tables say what the results say."""
    try:
        found = stale(root)
    except (ValueError, KeyError) as error:
        yield f"README.md: no table can be made of the results: {error!r}"
        return
    for path in found:
        yield f"{path.relative_to(root)}: generated tables are stale; run: uv run nox -s readme"


def wheels_are_small(wheels: list[Path]) -> Iterator[str]:
    """A wheel stays under 10 MB."""
    for wheel in wheels:
        size = wheel.stat().st_size
        if size > WHEEL_LIMIT:
            yield f"{wheel.name}: {size / 1e6:.1f} MB, the limit is {WHEEL_LIMIT / 1e6:.0f} MB"


CHECKS: tuple[Callable[[Path], Iterator[str]], ...] = (
    scripts_are_unique,
    papers_stand_alone,
    dependencies_have_lower_bounds,
    shared_is_light,
    packages_are_complete,
    results_carry_provenance,
    assets_carry_provenance,
    readmes_are_fresh,
)


def problems(root: Path = ROOT, wheels: list[Path] | None = None) -> list[str]:
    """All problems of the workspace under ``root``."""
    found = [line for check in CHECKS for line in check(root)]
    return found + list(wheels_are_small(wheels or []))


def main(wheels: list[str]) -> int:
    """Print the problems; return the exit status."""
    found = problems(wheels=[Path(wheel) for wheel in wheels])
    for line in found:
        print(line, file=sys.stderr)
    print(f"workspace: {len(papers())} papers, {len(CHECKS) + 1} checks, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The papers of this workspace, found by looking into ``packages/``; nothing lists them by hand.

Run as a script, it answers the questions that shell code has: ``python tools/papers.py debian [PAPER ...]`` prints
the Debian packages that the tests of these papers need, or of all; ``python tools/papers.py names`` the papers.
"""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Paper:
    """One folder of ``packages/``: what its ``pyproject.toml`` says of it."""

    folder: Path

    @property
    def name(self) -> str:
        """Distribution, import and folder name, all the same."""
        return self.folder.name

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        """The parsed ``pyproject.toml``."""
        path = self.folder / "pyproject.toml"
        try:
            return tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def project(self) -> dict[str, Any]:
        """The ``[project]`` table."""
        return self.pyproject.get("project", {})

    @property
    def about(self) -> dict[str, Any]:
        """The ``[tool.paper]`` table: ``title`` and ``url`` of the paper, ``debian`` packages its tests need."""
        return self.pyproject.get("tool", {}).get("paper", {})

    @property
    def scripts(self) -> dict[str, str]:
        """Console scripts by name."""
        return self.project.get("scripts", {})

    @property
    def verb(self) -> str:
        """The main verb: the console script that is not named after the package."""
        return next((s for s in self.scripts if s != self.name), "")

    @property
    def source(self) -> Path:
        """The import package."""
        return self.folder / "src" / self.name

    @property
    def results(self) -> Path:
        """Where the small-scale claims and benchmarks leave their results."""
        return self.folder / "results" / "small"

    @property
    def requirements(self) -> list[str]:
        """Every requirement it declares: dependencies, extras and groups, as written."""
        written = [self.project.get("dependencies", []), *self.project.get("optional-dependencies", {}).values()]
        written += self.pyproject.get("dependency-groups", {}).values()
        return [line for lines in written for line in lines if isinstance(line, str)]

    def has_group(self, group: str) -> bool:
        """Whether the package declares this dependency group."""
        return group in self.pyproject.get("dependency-groups", {})


def papers(root: Path = ROOT) -> list[Paper]:
    """Every paper under ``root``, by name."""
    return [Paper(p.parent) for p in sorted((root / "packages").glob("*/pyproject.toml"))]


def debian_packages(*names: str, root: Path = ROOT) -> list[str]:
    """Debian packages that the tests of these papers drive, or of all papers, each once."""
    chosen = [paper for paper in papers(root) if not names or paper.name in names]
    return sorted({tool for paper in chosen for tool in paper.about.get("debian", [])})


if __name__ == "__main__":
    answers = {"debian": debian_packages, "names": lambda: [paper.name for paper in papers()]}
    print("\n".join(answers[sys.argv[1]](*sys.argv[2:])))

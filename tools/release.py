"""Check a release tag ``<package>-v<version>`` against the package's own version and print the package.

``python tools/release.py TAG`` exits 1 with one line when the tag names no package or another version.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from papers import ROOT, papers


def package_of(tag: str, root: Path = ROOT) -> str:
    """Return the distribution that ``tag`` releases.

    Raises
    ------
    ValueError
        When the tag is not ``<package>-v<version>``, or the version is not the one in ``pyproject.toml``.
    """
    name, _, version = tag.rpartition("-v")
    folders = {paper.name: paper.folder for paper in papers(root)} | {"papers-shared": root / "shared"}
    if name not in folders:
        raise ValueError(f"tag {tag!r} names no package; want <package>-v<version>")
    declared = tomllib.loads((folders[name] / "pyproject.toml").read_text())["project"]["version"]
    if declared != version:
        raise ValueError(f"tag {tag!r} says {version}, {name}'s pyproject.toml says {declared}")
    return name


if __name__ == "__main__":
    try:
        print(package_of(sys.argv[1]))
    except ValueError as error:
        sys.exit(f"error: {error}")

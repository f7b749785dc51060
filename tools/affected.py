"""Which papers does a change affect? CI tests only those.

A paper is affected by a change to its own folder, to ``shared/``, to a file that all sessions read (root files,
``tools/``, ``.github/``, ``.ci/``), or to a locked version anywhere in its dependency closure. Prose at the root
(``*.md``, ``LICENSE``, ``CITATION.cff``) affects none.

``python tools/affected.py BASE`` prints the affected papers as a JSON list for a GitHub Actions matrix.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from typing import Any

from papers import papers

PROSE = (".md", ".cff")


def closure(lock: dict[str, Any], name: str) -> set[tuple[str, str, str]]:
    """All locked ``(name, version, source)`` that ``name`` can pull in, through every extra and group."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in lock.get("package", []):
        by_name.setdefault(package["name"], []).append(package)
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in reached:
            continue
        reached.add(current)
        for package in by_name.get(current, []):
            groups = [package.get("dependencies", [])]
            groups += package.get("optional-dependencies", {}).values()
            groups += package.get("dev-dependencies", {}).values()
            waiting += [dependency["name"] for group in groups for dependency in group]
    return {
        (n, p.get("version", ""), json.dumps(p.get("source", {}), sort_keys=True))
        for n in reached
        for p in by_name.get(n, [])
    }


def affected(
    changed: Iterable[str], names: Iterable[str], old_lock: dict[str, Any], new_lock: dict[str, Any]
) -> list[str]:
    """Return the papers among ``names`` that the ``changed`` paths affect.

    Parameters
    ----------
    changed
        Paths relative to the root, with forward slashes.
    names
        All papers of the workspace after the change.
    old_lock, new_lock
        The parsed ``uv.lock`` before and after; compared only when it changed.
    """
    names = sorted(names)
    hit: set[str] = set()
    for path in changed:
        top, _, rest = path.partition("/")
        if top == "packages":
            hit.add(rest.partition("/")[0])
        elif path == "uv.lock":
            hit |= {n for n in names if closure(old_lock, n) != closure(new_lock, n)}
        elif not rest and (path.endswith(PROSE) or path in {"LICENSE", ".gitignore"}):
            continue
        else:
            return names
    return [n for n in names if n in hit]


def git(*arguments: str) -> str:
    """Standard output of a git command; empty when git refuses (a base without that file)."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout


def main(base: str) -> None:
    """Print the papers that ``BASE...HEAD`` affects; all of them when the base is unknown."""
    names = [paper.name for paper in papers()]
    if not git("rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"):
        print(json.dumps(names))
        return
    changed = git("diff", "--name-only", f"{base}...HEAD").split()
    old, new = (tomllib.loads(git("show", f"{revision}:uv.lock")) for revision in (base, "HEAD"))
    print(json.dumps(affected(changed, names, old, new)))


if __name__ == "__main__":
    main(sys.argv[1])

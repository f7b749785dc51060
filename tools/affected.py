"""Which papers does a change affect? CI tests only those.

A paper is affected by a change to its own folder, to what ``shared/`` installs, to a file that all sessions read
(root files, ``tools/``, ``.github/``, ``.ci/``), or to a locked version anywhere in its dependency closure. Prose at
the root (``*.md``, ``LICENSE``, ``CITATION.cff``) and the tests of ``shared/`` and ``tools/`` affect none: the
sessions ``lint``, ``workspace`` and ``test-shared`` always run. A moved file affects the paper it leaves and the one
it comes to.

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
OWN_TESTS = ("shared/tests/", "tools/tests/")


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
        elif path.startswith(OWN_TESTS) or (not rest and (path.endswith(PROSE) or path in {"LICENSE", ".gitignore"})):
            continue
        else:
            return names
    return [n for n in names if n in hit]


def git(*arguments: str) -> str | None:
    """Standard output of a git command, or None where git refuses, as for a commit that it does not have."""
    done = subprocess.run(["git", *arguments], capture_output=True, check=False)
    return done.stdout.decode(errors="surrogateescape") if done.returncode == 0 else None


def main(base: str) -> None:
    """Print the papers that the change from where ``HEAD`` left ``BASE`` affects; all where that is unknown."""
    names = [paper.name for paper in papers()]
    fork = (git("merge-base", base, "HEAD") or "").strip()
    # Without -z git quotes names that are not ASCII; with renames it would not name the place that a file has left.
    changed = git("diff", "--name-only", "--no-renames", "-z", fork, "HEAD") if fork else None
    if changed is None:
        print(json.dumps(names))
        return
    old, new = (tomllib.loads(git("show", f"{revision}:uv.lock") or "") for revision in (fork, "HEAD"))
    print(json.dumps(affected(filter(None, changed.split("\0")), names, old, new)))


if __name__ == "__main__":
    main(sys.argv[1])

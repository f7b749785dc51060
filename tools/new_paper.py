"""Write the skeleton of a new paper: a small, complete, working package to be changed into the real one.

``uv run nox -s new-paper -- NAME VERB`` copies ``tools/template`` to ``packages/NAME``, puts the names in, locks,
runs the skeleton's claims and regenerates the READMEs, so that ``uv run nox`` passes at once.

The skeleton is itself a tiny "paper" (Welford's one-pass variance), so that every file of the layout stands there
with the kind of content it should have.
"""

from __future__ import annotations

import keyword
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from papers import ROOT, papers

TEMPLATE = Path(__file__).parent / "template"
NAME, VERB = "papername", "paperverb"


def check_names(name: str, verb: str, root: Path) -> None:
    """Refuse names that cannot be a package and a console script, or that are taken.

    Raises
    ------
    ValueError
        Saying which name is wrong and why.
    """
    for kind, word in (("package name", name), ("verb", verb)):
        if not re.fullmatch(r"[a-z][a-z0-9]*", word) or keyword.iskeyword(word):
            raise ValueError(f"{kind} {word!r}: want lower-case letters and digits, a valid Python name")
    locked = {package["name"] for package in _lock(root).get("package", [])}
    taken = sys.stdlib_module_names | {n.replace("-", "_") for n in locked} | {"papers_shared", "conftest"}
    if name in taken:
        raise ValueError(f"{name!r} is the name of a module of Python or of a package in uv.lock")
    if verb == name:
        raise ValueError(f"the verb must differ from the package's name, {name!r}")
    if (root / "packages" / name).exists():
        raise ValueError(f"packages/{name} exists already")
    for paper in papers(root):
        if {name, verb} & paper.scripts.keys():
            raise ValueError(f"{paper.name} already installs a console script '{name}' or '{verb}'")


def _lock(root: Path) -> dict[str, Any]:
    path = root / "uv.lock"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def write_skeleton(name: str, verb: str, root: Path = ROOT) -> Path:
    """Copy the template to ``packages/NAME`` with the names put in; return the folder."""
    check_names(name, verb, root)
    folder = root / "packages" / name
    for source in sorted(p for p in TEMPLATE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        target = folder / str(source.relative_to(TEMPLATE)).replace(NAME, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text().replace(NAME, name).replace(VERB, verb))
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")  # each wheel carries the text of its licence
    return folder


def main(arguments: list[str]) -> int:
    """Write the skeleton and its results; return the exit status."""
    if len(arguments) != 2:
        print("usage: uv run nox -s new-paper -- NAME VERB", file=sys.stderr)
        return 2
    name, verb = arguments
    try:
        folder = write_skeleton(name, verb)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    place, lock = str(folder.relative_to(ROOT)), (ROOT / "uv.lock").read_text()
    commands = (
        # The new name may sort elsewhere among the imports than the template's did.
        ["ruff", "check", "--quiet", "--fix", place],
        ["ruff", "format", "--quiet", place],
        ["uv", "lock"],
        ["nox", "-s", f"claims-{name}"],
        ["nox", "-s", "readme"],
    )
    try:
        for command in commands:
            subprocess.run(command, cwd=ROOT, check=True)
    except (subprocess.CalledProcessError, KeyboardInterrupt) as error:
        shutil.rmtree(folder)
        (ROOT / "uv.lock").write_text(lock)
        what = "interrupted" if isinstance(error, KeyboardInterrupt) else f"'{' '.join(error.cmd)}' failed"
        print(f"error: {what}; packages/{name} was removed again", file=sys.stderr)
        return 1
    print(f"packages/{name} stands; now read CONTRIBUTING.md, 'From skeleton to paper'")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Where a result comes from: versions, commit, command, platform. No absolute paths and no machine names."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


def provenance(
    package: str | None = None,
    *,
    seed: int | Sequence[int] | None = None,
    libraries: Iterable[str] = (),
    ignore: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Describe what produced a result, in a fixed key order.

    Parameters
    ----------
    package
        The package that did the work; its version and those of its declared dependencies are recorded.
    seed
        The seed or seeds of the run.
    libraries
        Further distributions whose versions matter.
    ignore
        A folder whose changes do not make the commit dirty: the one being written.

    Returns
    -------
    dict
        ``package, version, git {commit, dirty}, command, seed, python, platform, cpu, cores, libraries``. ``git`` is
        that of the package's own source when it is under version control, else of the working folder, else None.
    """
    return {
        "package": package,
        "version": package_version(package) if package else None,
        "git": _git(package, ignore),
        "command": command_line(),
        "seed": seed if seed is None or isinstance(seed, int) else list(seed),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "libraries": _library_versions(package, libraries),
    }


def package_version(package: str) -> str:
    """Return the installed version of a distribution, or ``"unknown"`` when it runs without being installed."""
    try:
        return importlib.metadata.version(package.replace("_", "-"))
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def command_line() -> str:
    """Return the command as typed, with absolute paths shortened to what is meaningful elsewhere."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-c") else "python"
    return shlex.join([program, *(_portable(argument) for argument in sys.argv[1:])])


def _portable(argument: str) -> str:
    option, equals, value = argument.rpartition("=")
    if not Path(value).is_absolute():
        return argument
    relative = os.path.relpath(value)
    return option + equals + (relative if not relative.startswith("..") else Path(value).name)


def _git(package: str | None, ignore: str | os.PathLike[str] | None) -> dict[str, Any] | None:
    folder = _source_folder(package) or Path.cwd()
    commit = _run_git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    top = _run_git(folder, "rev-parse", "--show-toplevel") or str(folder)
    pathspec = ["--", "."]
    if ignore is not None:
        relative = os.path.relpath(os.path.realpath(ignore), os.path.realpath(top))
        if not relative.startswith(".."):
            pathspec.append(f":(exclude){relative}")
    status = _run_git(Path(top), "status", "--porcelain", *pathspec)
    return {"commit": commit, "dirty": bool(status)}


def _source_folder(package: str | None) -> Path | None:
    """Return the package's folder if git tracks it; an installed wheel inside a checkout is not tracked."""
    spec = importlib.util.find_spec(package) if package else None
    if spec is None or not spec.origin:
        return None
    folder = Path(spec.origin).parent
    tracked = _run_git(folder, "ls-files", "--error-unmatch", Path(spec.origin).name)
    return folder if tracked else None


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _library_versions(package: str | None, libraries: Iterable[str]) -> dict[str, str]:
    names = set(libraries)
    if package:
        try:
            declared = importlib.metadata.requires(package.replace("_", "-")) or []
        except importlib.metadata.PackageNotFoundError:
            declared = []
        names |= {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in declared if "extra ==" not in line}
    versions = {name: package_version(name) for name in names}
    return {name: version for name, version in sorted(versions.items()) if version != "unknown"}

"""A folder that holds one run: refused when in use, cleared only on request, resumed only with the same settings."""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from papers_shared import _atomic
from papers_shared._json import jsonable
from papers_shared._provenance import provenance
from papers_shared._text import read_json, write_json
from papers_shared.errors import InputError

_LOG = logging.getLogger(__name__)
_FORMAT = "papers-shared run 1"
_MANIFEST = "manifest.json"
_LOCK = ".lock"


class RunDir:
    """Own a folder for one run, with a manifest that says what made it.

    Parameters
    ----------
    path
        The folder; made if missing.
    package
        The package that runs, for the manifest.
    config
        The settings that determine the result. A resumed run must have the same; leave out what may change, such as
        the number of workers.
    seed
        The seed; compared on resume like the configuration.
    force
        Clear a folder that an earlier run made. A folder without our manifest is never cleared.
    resume
        Continue in the folder if it holds an unfinished or finished run with the same settings; start if it is empty.
        None: runs of this kind cannot be continued, and a refusal does not offer it.

    Attributes
    ----------
    path : Path
        The folder; ``run / "history.jsonl"`` names a file in it.
    resumed : bool
        Whether an earlier run's files are there to continue from.
    finished : bool
        Whether that earlier run had ended normally.
    manifest : dict
        What ``manifest.json`` holds: format, package, version, status, config, seed, started, seconds, attempts,
        provenance.

    Raises
    ------
    InputError
        The folder is not empty and neither ``force`` nor ``resume`` is given; it is another program's; the settings
        differ (each difference is named); another process is running in it.

    Examples
    --------
    >>> with RunDir("runs/a", package="eoss", config={"lr": 0.1}, seed=0, resume=True) as run:
    ...     history = read_jsonl(run / "history.jsonl") if run.resumed else []
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        package: str | None = None,
        config: Mapping[str, Any] | None = None,
        seed: int | None = None,
        force: bool = False,
        resume: bool | None = False,
    ) -> None:
        if force and resume:
            raise InputError("--force and --resume exclude each other", hint="--force starts anew, --resume continues")
        self.path = Path(path)
        self.resumed = False
        self.finished = False
        self._settings = jsonable({"config": dict(config or {}), "seed": seed})
        self._lock: int | None = None
        self._begun = time.monotonic()
        try:
            # Looked at before the lock: a refused folder stays exactly as it was.
            old = _old_manifest(self.path, force, resume)
            if old is not None and resume:
                self._same_settings(old)
            self.path.mkdir(parents=True, exist_ok=True)
            self._take_lock()
        except OSError as error:
            raise _atomic.cannot_write(self.path, error) from error
        try:
            if old is not None and force:
                self._clear()
                old = None
            self._start(package, seed, old)
        except BaseException:
            self._release()
            raise

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __enter__(self) -> RunDir:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._close("finished")
            return
        try:
            self._close("interrupted" if issubclass(kind, (KeyboardInterrupt, SystemExit)) else "failed")
        except InputError as second:  # as on a full disk: what went wrong first is what the user must hear
            _LOG.warning("%s", second)

    def _same_settings(self, old: Mapping[str, Any]) -> None:
        different = _differences({key: old.get(key) for key in self._settings}, self._settings)
        if different:
            raise InputError(
                f"cannot resume {self.path} with other settings: {'; '.join(different)}",
                hint="give the same options, or --force to start anew",
            )

    def _take_lock(self) -> None:
        """Hold the folder until this process ends; the kernel drops the lock of a killed one."""
        if _atomic.fcntl is None:
            return
        while self._lock is None:
            descriptor = os.open(self / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _atomic.fcntl.flock(descriptor, _atomic.fcntl.LOCK_EX | _atomic.fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), (self / _LOCK).stat()):
                    self._lock = descriptor
            except BlockingIOError:
                os.close(descriptor)
                raise InputError(
                    f"another process is running in {self.path}", hint="wait for it or choose another folder"
                ) from None
            except FileNotFoundError:  # its holder has just ended and removed it: take a new one
                pass
            except OSError:  # a file system without locks: go on without one
                os.close(descriptor)
                return
            if self._lock is None:
                os.close(descriptor)

    def _release(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                (self / _LOCK).unlink()
            os.close(self._lock)
            self._lock = None

    def _clear(self) -> None:
        # The manifest goes last: a kill half-way leaves a folder that is still known to be ours.
        for entry in sorted(self.path.iterdir(), key=lambda entry: entry.name == _MANIFEST):
            if entry.name == _LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _start(self, package: str | None, seed: int | None, old: dict[str, Any] | None) -> None:
        found = provenance(package, seed=seed, ignore=self.path)
        self.resumed = old is not None
        self.finished = old is not None and old.get("status") == "finished"
        if old and old.get("version") != found["version"]:
            _LOG.warning("%s was begun with version %s, now %s", self.path, old.get("version"), found["version"])
        self._earlier = float(old.get("seconds") or 0) if old else 0.0
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.manifest: dict[str, Any] = {
            "format": _FORMAT,
            "package": package,
            "version": found["version"],
            "status": "running",
            **self._settings,
            "started": old["started"] if old else now,
            "seconds": self._earlier,
            "attempts": int(old.get("attempts", 1)) + 1 if old else 1,
            "provenance": found,
        }
        write_json(self / _MANIFEST, self.manifest)

    def _close(self, status: str) -> None:
        try:
            self.manifest["status"] = status
            self.manifest["seconds"] = round(self._earlier + time.monotonic() - self._begun, 3)
            write_json(self / _MANIFEST, self.manifest)
        finally:
            self._release()


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    """List where two JSON values differ, as ``name old -> new``."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in list(old) + [key for key in new if key not in old]:
            # "config" is our own level, not a name that the user knows.
            inner = key if not name or name == "config" else f"{name}.{key}"
            found += _differences(old.get(key), new.get(key), inner)
        return found
    return [] if old == new else [f"{name} {old} -> {new}"]


def free_folder(stem: str) -> Path:
    """Return the first of ``stem``, ``stem-2``, ... that is not taken: a run without --out stands in no other's way."""
    number = 1
    while (path := Path(stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return path


def refuse_used_folder(path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Refuse a folder in which a `RunDir` that cannot be continued would not start, before the work that fills it.

    The folder stays as it is.

    Raises
    ------
    InputError
        As for `RunDir` with ``resume=None``.
    """
    _old_manifest(Path(path), force, None)


def _held(path: Path) -> list[str]:
    """Return the names in a folder, without our lock file and what a kill left of a manifest half written."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file", hint="name a folder")
    if not path.exists():
        return []
    torn = _atomic.temporary_prefix(path / _MANIFEST)
    return sorted(e.name for e in path.iterdir() if e.name != _LOCK and not e.name.startswith(torn))


def _old_manifest(path: Path, force: bool, resume: bool | None) -> dict[str, Any] | None:
    """Return the manifest of the run that a folder holds, None if it is empty; refuse what may not be touched."""
    held = _held(path)
    if not held:
        return None
    if not (force or resume):
        shown = ", ".join(held[:3]) + (", ..." if len(held) > 3 else "")
        go_on = "" if resume is None else "--resume to continue that run, "
        raise InputError(
            f"{path} is not empty (holds {shown})",
            hint=f"pass {go_on}--force to replace it, or choose another folder",
        )
    manifest = read_json(path / _MANIFEST) if _MANIFEST in held else {}
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        verb = "clear" if force else "resume"
        raise InputError(
            f"will not {verb} {path}: no run of ours made it (no {_MANIFEST} of the right format)",
            hint="choose another folder or empty it yourself",
        )
    return manifest

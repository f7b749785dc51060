"""Measures claims one by one and keeps each as soon as it is done."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers_shared import cli
from papers_shared._atomic import alone, cannot_write
from papers_shared._claim import STATE, Claim, Context, make_state
from papers_shared._claims_report import is_error
from papers_shared._fingerprint import source_digest
from papers_shared._json import dumps_line, jsonable
from papers_shared._provenance import package_version
from papers_shared._text import read_json, write_json
from papers_shared.errors import InputError

_LOG = logging.getLogger(__name__)


class Runner:
    """One run's folder and settings."""

    def __init__(self, out: Path, package: str, scale: str, seeds: tuple[int, ...] | None) -> None:
        self.out, self.package, self.scale, self.seeds = out, package, scale, seeds
        self.version = package_version(package)
        self.old: dict[str, Any] = {}
        self.memory: dict[str, Any] = {}
        self.measured = 0
        self.git: dict[str, Any] | None = None
        self.kept_from: dict[str, Any] = {}

    def open(self, *, resume: bool, force: bool) -> None:
        """Refuse a folder that holds something; read what an earlier run has left."""
        if resume and force:
            raise InputError("--force and --resume exclude each other", hint="--resume keeps what is measured")
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"{self.out} is a file", hint="name a folder")
        if not (resume or force) and self.out.exists() and any(self.out.iterdir()):
            raise InputError(
                f"{self.out} is not empty", hint="pass --resume to keep what is measured, --force to measure again"
            )
        self.old = self._old_report(force)
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            make_state(self.out)
        except OSError as error:
            raise cannot_write(self.out, error) from error

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Refuse a folder in which another process measures."""
        return alone(self.out / STATE / "lock", f"another process is measuring claims in {self.out}")

    def forget(self, chosen: set[str]) -> None:
        """Remove what an unfinished run has kept of these claims, and all shared work."""
        try:
            for name in chosen:
                self._state(name).unlink(missing_ok=True)
        except OSError as error:
            raise cannot_write(self.out, error) from error
        shutil.rmtree(self.out / STATE / "cache", ignore_errors=True)

    def _old_report(self, force: bool) -> dict[str, Any]:
        path = self.out / "claims.json"
        if not path.exists():
            return {}
        try:
            old = read_json(path)
            if not isinstance(old, dict) or not isinstance(old.get("claims"), list):
                raise InputError(f"{path} is not a report of claims", hint="choose another folder, or --force")
            if old.get("scale") != self.scale and not force:
                raise InputError(
                    f"{self.out} holds results at scale {old.get('scale')}, not {self.scale}",
                    hint="choose another folder, or --force to replace them",
                )
        except InputError:
            if force:
                return {}
            raise
        return old

    def measure(
        self, claims: list[Claim], chosen: set[str], origin: dict[str, Any], *, resume: bool
    ) -> dict[str, dict[str, Any]]:
        """Return the entries of all claims that are measured now or still valid."""
        self.git = origin["git"]
        entries: dict[str, dict[str, Any]] = {}
        with cli.progress(f"{self.package} claims", total=len(chosen)) as bar:
            for found in claims:
                kept = self._kept(found) if resume or found.id not in chosen else None
                if kept is not None:
                    entries[found.id] = kept
                elif found.id in chosen:
                    bar.update(note=found.id)
                    entries[found.id] = self._measure_one(found)
                bar.advance(found.id in chosen)
        return entries

    def finish(self, claims: list[Claim], entries: dict[str, dict[str, Any]], origin: dict[str, Any]) -> dict[str, Any]:
        """Write claims.json, and remove what only a resumed run would need and figures of the old results."""
        ordered = [entries[found.id] for found in claims if found.id in entries]
        if not self.measured and ordered == self.old.get("claims"):
            shutil.rmtree(self.out / STATE, ignore_errors=True)
            return self.old  # with the provenance of the run that measured it
        missing = [found.id for found in claims if found.id not in entries]
        origin["seconds"] = round(sum(entry["seconds"] for entry in ordered), 1)
        origin["fingerprints"] = {found.id: self._fingerprint(found) for found in claims if found.id in entries}
        earlier = {name: git for name, git in self.kept_from.items() if git != self.git}
        if earlier:
            origin["kept_from"] = earlier
        if missing:
            origin["not_run"] = missing
        report = {
            "package": self.package,
            "version": self.version,
            "scale": self.scale,
            "provenance": origin,
            "claims": ordered,
        }
        write_json(self.out / "claims.json", report)
        kept = {entry["figure"] for entry in ordered}
        for entry in self.old.get("claims", []):
            figure = entry.get("figure")
            if figure and figure not in kept and Path(figure).name == figure:
                (self.out / figure).unlink(missing_ok=True)
        if not missing and not any(is_error(entry["measured"]) for entry in ordered):
            shutil.rmtree(self.out / STATE, ignore_errors=True)
        return jsonable(report)

    def _seeds(self, found: Claim) -> tuple[int, ...]:
        return self.seeds or tuple(range(found.seeds))

    def _state(self, name: str) -> Path:
        return self.out / STATE / f"{name}.json"

    def _fingerprint(self, found: Claim) -> str:
        settings = [source_digest(found.function), found.statement, found.paper, found.must_hold, self.scale]
        text = dumps_line([*settings, self._seeds(found), self.version])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _kept(self, found: Claim) -> dict[str, Any] | None:
        """Return the entry of an earlier run if it was made by the same code and settings, and is complete."""
        fingerprint = self._fingerprint(found)
        entry = git = None
        origin = self.old.get("provenance", {})
        if self._state(found.id).exists():
            state = read_json(self._state(found.id))
            entry, git = (state["entry"], state.get("git")) if state["fingerprint"] == fingerprint else (None, None)
        elif origin.get("fingerprints", {}).get(found.id) == fingerprint:
            entry = next((entry for entry in self.old["claims"] if entry["id"] == found.id), None)
            git = origin.get("kept_from", {}).get(found.id, origin.get("git"))
        if entry is None or is_error(entry["measured"]):
            return None
        if entry["figure"] and not (self.out / entry["figure"]).exists():
            return None
        self.kept_from[found.id] = git
        return entry

    def _measure_one(self, found: Claim) -> dict[str, Any]:
        seeds = self._seeds(found)
        context = Context(self.scale, seeds, self.out, version=self.version, label=found.id, _memory=self.memory)
        begun = time.monotonic()
        try:
            answer = _checked(found, found.function(context), context)
        except (Exception, SystemExit) as error:  # whatever a claim raises is reported as its result
            _LOG.error("claim %s raised", found.id, exc_info=not isinstance(error, InputError))
            message = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
            answer = {"measured": {"error": message}, "holds": False if found.must_hold else None, "figure": None}
        entry = {
            "id": found.id,
            "statement": found.statement,
            "paper": found.paper,
            "measured": answer["measured"],
            "must_hold": found.must_hold,
            "holds": answer["holds"],
            "figure": answer["figure"],
            "seeds": list(seeds),
            "seconds": round(time.monotonic() - begun, 1),
        }
        self.measured += 1
        make_state(self.out)
        state = {"fingerprint": self._fingerprint(found), "git": self.git, "entry": entry}
        write_json(self._state(found.id), state)
        return entry


def _checked(found: Claim, answer: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Bring a claim's answer to the form of claims.json, or say what its function did wrong."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("measured"), Mapping):
        raise TypeError(f"claim {found.id} must return a mapping with 'measured', a mapping")
    extra = sorted(set(answer) - {"measured", "holds", "figure"})
    if extra:
        raise TypeError(f"claim {found.id} returned unknown keys {extra}")
    holds = jsonable(answer.get("holds"))
    if holds is None and found.must_hold:
        raise TypeError(f"claim {found.id} must hold, so its function must say whether it does")
    if not (holds is None or isinstance(holds, bool)):
        raise TypeError(f"claim {found.id}: 'holds' must be true, false or None, not {holds!r}")
    figure = answer.get("figure") or (context.figures[0] if context.figures else None)
    if figure is not None and not (context.out / figure).is_file():
        raise FileNotFoundError(f"claim {found.id} names figure {figure}, which is not in {context.out}")
    return {"measured": jsonable(answer["measured"]), "holds": holds, "figure": figure}

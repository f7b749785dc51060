"""Re-test what a paper claims: measure, judge, report; a claim that does not hold stays in the table.

A package's ``claims.py`` has one function a claim::

    @claim("B1", statement="edits reach the target more often than AREdit's", paper="CLIP-edit +1.07")
    def target_accuracy(ctx):
        edits = ctx.cache("edits", run_edits, ctx.pick(small=60, paper=700), ctx.seeds)
        gain = bootstrap_interval(edits["ours"] - edits["aredit"], seed=0)
        with figure_style():
            fig = draw(edits)
        return {
            "measured": {"gain": gain},
            "holds": gain.low > 0,
            "figure": ctx.figure("accuracy.png", fig, caption="..."),
        }

The runner writes ``claims.json`` beside the figures. Each finished claim is kept, so that a killed run goes on with
``--resume``; a claim is measured again when its code, the scale, the seeds or the package's version have changed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from papers_shared import cli
from papers_shared._claim import Claim, Context, claim, collect
from papers_shared._claims_report import compact, is_error, render_table, summary, table_rows, verdict
from papers_shared._claims_runner import Runner
from papers_shared._provenance import provenance
from papers_shared.errors import InputError

__all__ = [
    "SCALES",
    "Claim",
    "Context",
    "claim",
    "collect",
    "compact",
    "main",
    "render_table",
    "run",
    "summary",
    "verdict",
]

SCALES = ("smoke", "small", "paper")
"""``small`` takes minutes on two cores, ``paper`` is the paper's own setting, ``smoke`` is for tests."""


def run(
    package: str | ModuleType,
    *,
    out: str | os.PathLike[str],
    scale: str = "small",
    only: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    resume: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Measure claims and write ``claims.json`` and the figures into ``out``.

    Parameters
    ----------
    package
        The package's name, or a module of claims.
    out
        The folder of results; made if missing.
    scale
        ``"small"``, ``"paper"`` or ``"smoke"``.
    only
        Ids of the claims to measure. Others keep their entry if it is still valid, and are listed as not run if not.
    seeds
        Seeds for all claims instead of each claim's own number.
    resume
        Keep the claims already measured by the same code at the same scale and seeds.
    force
        Measure again and replace.

    Returns
    -------
    dict
        What ``claims.json`` holds. A claim whose function raised has ``measured: {"error": ...}``, and does not hold if
        it must.

    Raises
    ------
    InputError
        Unknown scale or claim; results are there and neither ``resume`` nor ``force`` is given; another process
        measures in the folder.
    """
    claims = collect(package)
    name = package if isinstance(package, str) else package.__name__.removesuffix(".claims")
    if scale not in SCALES:
        raise InputError(f"unknown scale {scale!r}", hint=f"choose {' or '.join(SCALES[1:])}")
    chosen = _choose(claims, only)
    runner = Runner(Path(out), name, scale, tuple(seeds) if seeds else None)
    runner.open(resume=resume, force=force)
    with runner.alone():
        if force:
            runner.forget(chosen)
        origin = provenance(name, seed=seeds, ignore=out)
        entries = runner.measure(claims, chosen, origin, resume=resume)
        return runner.finish(claims, entries, origin)


def _choose(claims: list[Claim], only: Sequence[str] | None) -> set[str]:
    known = [found.id for found in claims]
    unknown = sorted(set(only or ()) - set(known))
    if unknown or (only is not None and not only):
        raise InputError(f"no claim {', '.join(unknown)}".rstrip(), hint=f"choose among {', '.join(known)}")
    return set(known if only is None else only)


def main(
    package: str,
    *,
    scale: str,
    only: str | None,
    seeds: str | None,
    out: Path | None,
    strict: bool,
    resume: bool,
    force: bool,
    json: bool,
) -> int:
    """Run the ``claims`` subcommand: measure, print the table, and return the exit status.

    Returns
    -------
    int
        1 if a claim's function raised, or under ``strict`` if a claim that must hold does not; else 0.
    """
    if scale not in SCALES[1:]:
        raise InputError(f"--scale {scale}: unknown", hint=f"choose {' or '.join(SCALES[1:])}")
    folder = out or Path(f"{package}-claims-{scale}")
    report = run(
        package,
        out=folder,
        scale=scale,
        only=None if only is None else [name.strip() for name in only.split(",") if name.strip()],
        seeds=cli.parse_seeds(seeds) if seeds else None,
        resume=resume,
        force=force,
    )
    if json:
        cli.emit_json(report)
    else:
        cli.table(table_rows(report), ["id", "claim", "paper", "ours", "held"])
        sys.stdout.write(f"\n{summary(report)}. Details: {folder / 'claims.json'}\n")
    failed = any(is_error(entry["measured"]) for entry in report["claims"])
    broken = any(entry["must_hold"] and not entry["holds"] for entry in report["claims"])
    return 1 if failed or (strict and broken) else 0

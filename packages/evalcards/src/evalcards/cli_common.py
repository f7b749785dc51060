"""What all subcommands share: the app, the options that several of them have, and how a store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared.cli import paper_app, progress, quiet, visible
from papers_shared.errors import InputError

app = paper_app(
    "evalcards",
    help="Evaluation Cards: harness outputs as one record, with four signals that say what is missing, who "
    "measured and what may be compared.",
)

Inputs = Annotated[
    list[str] | None,
    typer.Argument(help="Files or folders: lm-eval, HELM, Inspect, EEE, model cards, CSV.  [default: embedded corpus]"),
]
StoreFile = Annotated[Path | None, typer.Option("--store", help="A DuckDB file.  [default: the embedded corpus]")]
KeptStore = Annotated[Path, typer.Option("--store", help="The DuckDB file to keep records in.")]
Remote = Annotated[bool, typer.Option("--remote", help="Allow http(s) addresses of Parquet files.")]
Profile = Annotated[str, typer.Option("--profile", help="What a run must report: paper, paper-h1, spec4 or slots.")]
Factor = Annotated[float, typer.Option("--threshold-factor", help="Multiplies all divergence thresholds.")]
FieldSet = Annotated[Path | None, typer.Option("--field-set", help="Another reporting schema (JSON).")]
StrictEmpty = Annotated[bool, typer.Option("--strict-empty", help='Let "", [] and "Not specified" count as missing.')]
Mode = Annotated[str, typer.Option("--mode", help="research or policy: what comes first.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left.")]

MOST_LINES = 40
FAILED = 3
INTERRUPTED = 130


def say(text: str) -> None:
    """Write a note to stderr, unless the user wants none."""
    if not quiet():
        typer.echo(visible(text), err=True)


def check_signals(profile: str, factor: float) -> None:
    """Refuse settings that no signal can be computed with, before anything is read.

    Raises
    ------
    InputError
        No such profile, or a factor that is no positive finite number.
    """
    from evalcards.signals import threshold
    from evalcards.warehouse import profile_bits

    profile_bits(profile)
    threshold({}, factor)


def check_mode(mode: str) -> None:
    """Refuse a reader mode that there is not.

    Raises
    ------
    InputError
        It is neither research nor policy.
    """
    from evalcards.render import ORDER

    if mode not in ORDER:
        raise InputError(f"--mode {mode}: want {' or '.join(ORDER)}")


def fresh_store(path: Path | None) -> Any:
    """Make a store, in memory without a path, that knows the package's benchmark cards and models."""
    from evalcards import data
    from evalcards.store import Store

    store = Store(path)
    store.add_cards(data.benchmark_cards())
    store.add_models(data.registered_models())
    return store


def embedded(path: Path | None = None) -> Any:
    """Put the embedded corpus into a new store, in memory without a path."""
    from evalcards import data
    from evalcards.store import Store

    store = Store(path)
    with progress("embedded corpus", total=4) as bar:
        corpus = data.made_up()
        bar.advance(note="9,000 made-up rows")
        store.add_models(data.registered_models())
        store.add_cards([*corpus.benchmark_cards(), *data.benchmark_cards()])
        store.add(corpus.logs())
        bar.advance(2, note="real rows")
        real = data.real_rows()
        store.add(real.logs, failures=real.failures, instances=real.instances)
        bar.advance()
    return store


def existing(path: Path | None) -> Any:
    """Open a store that is there; without a path, the embedded corpus."""
    if path is None:
        return embedded()
    if not path.exists():
        raise InputError(f"{path}: no such store", hint="evalcards import makes one")
    from evalcards.store import Store

    return Store(path)


def read_schema(field_set: Path | None) -> Any:
    """Return the user's reporting schema, or None for the paper's.

    Raises
    ------
    InputError
        The file is no such schema.
    """
    from evalcards.signals.completeness import field_set as read

    return None if field_set is None else read(field_set)

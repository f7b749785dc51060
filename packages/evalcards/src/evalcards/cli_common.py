"""What all subcommands share: the app, the options that several of them have, and how a store is opened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared.cli import paper_app, progress
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
Cards = Annotated[list[Path] | None, typer.Option("--benchmark-card", help="JSON file with benchmark cards.")]
Models = Annotated[Path | None, typer.Option("--models", help="JSON file with model metadata and aliases.")]
Format = Annotated[str | None, typer.Option("--format", help="eee, lm_eval, helm, inspect, hf_model_card or csv.")]
Mapping = Annotated[Path | None, typer.Option("--mapping", help="What a CSV's columns are (YAML or JSON).")]
ModelId = Annotated[
    str | None, typer.Option("--model-id", help="The model's id, where the file has only a local path.")
]
Organisation = Annotated[str | None, typer.Option("--organisation", help="Who ran it, where the file does not say.")]
Relationship = Annotated[
    str | None,
    typer.Option("--relationship", help="Theirs to the model: first_party, third_party, collaborative or other."),
]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=1, help="The most that one record or archive member may be.")]
Remote = Annotated[bool, typer.Option("--remote", help="Allow http(s) addresses of Parquet files.")]
Profile = Annotated[str, typer.Option("--profile", help="What a run must report: paper, paper-h1, spec4 or slots.")]
Factor = Annotated[float, typer.Option("--threshold-factor", help="Multiplies all divergence thresholds.")]
FieldSet = Annotated[Path | None, typer.Option("--field-set", help="Another reporting schema (JSON).")]
StrictEmpty = Annotated[bool, typer.Option("--strict-empty", help='Let "", [] and "Not specified" count as missing.')]
Mode = Annotated[str, typer.Option("--mode", help="research or policy: what comes first.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left.")]

MAX_BYTES = 512 * 2**20
MOST_LINES = 40
FAILED = 3


def read_options(model_id: str | None, organisation: str | None, relationship: str | None, max_bytes: int) -> Any:
    """Return what the user says and the files do not.

    Raises
    ------
    InputError
        No such relationship.
    """
    from evalcards.importers import Options

    known = ("first_party", "third_party", "collaborative", "other")
    if relationship is not None and relationship not in known:
        raise InputError(f"--relationship {relationship}: want one of {', '.join(known)}")
    return Options(model_id, organisation, relationship, max_bytes)


def open_store(path: Path | None, *, cards: list[Path] | None = None, models: Path | None = None) -> Any:
    """Open or make a store, in memory without a path, and register the package's and the user's cards and models."""
    from evalcards import data
    from evalcards.store import Store

    fresh = path is None or not path.exists()
    theirs = [card for file in cards or [] for card in data.read_cards(file)]
    named = [] if models is None else data.read_models(models)
    store = Store(path)
    store.add_cards([*(data.benchmark_cards() if fresh else []), *theirs])
    store.add_models([*(data.registered_models() if fresh else []), *named])
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
    return open_store(path)


def choose_schema(store: Any, field_set: Path | None, strict_empty: bool) -> None:
    """Let completeness be told by the user's fields, and empty values be read as the user wants."""
    from evalcards.signals.completeness import field_set as read

    store.reporting_schema(None if field_set is None else read(field_set), strict_empty)

"""The command line: parse, call the library, print. This module reads files; `evalcards.cli_store` asks a store."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from evalcards.cli_common import (
    FAILED,
    INTERRUPTED,
    MOST_LINES,
    Factor,
    FieldSet,
    Force,
    Inputs,
    Json,
    KeptStore,
    Mode,
    Profile,
    Remote,
    StrictEmpty,
    app,
    check_mode,
    check_signals,
    embedded,
    read_schema,
    say,
)
from evalcards.cli_sources import MAX_BYTES, MaxBytes, Sources, split_inputs, tell, with_sources
from evalcards.sentences import many
from papers_shared.cli import emit_json, progress, table, verb, visible
from papers_shared.errors import InputError

_DEFAULT_STORE = Path("evalcards.duckdb")
_WIDE = 140
"""Columns of a terminal from which on a triple fits on a line."""


@app.command()
@with_sources
def evalcard(
    sources: Sources,
    inputs: Inputs = None,
    model: Annotated[str | None, typer.Option("--model", help="Only this model's triples and card.")] = None,
    benchmark: Annotated[str | None, typer.Option("--benchmark", help="Only this benchmark's.")] = None,
    mode: Mode = "research",
    out: Annotated[Path | None, typer.Option(help="Folder for the cards.  [default: the next evalcard-report]")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Also keep the records in this DuckDB file.")] = None,
    remote: Remote = False,
    profile: Profile = "paper",
    threshold_factor: Factor = 1.0,
    field_set: FieldSet = None,
    strict_empty: StrictEmpty = False,
    most: Annotated[int, typer.Option("--cards", min=0, help="Write the cards of at most so many models.")] = 20,
    force: Force = False,
    json: Json = False,
) -> None:
    """Read evaluation outputs, print the four signals per triple, write cards as HTML, Markdown and JSON."""
    from evalcards import report
    from evalcards.signals import rollup
    from papers_shared.artifacts import free_folder, refuse_used_folder

    sources.check()
    check_mode(mode)
    check_signals(profile, threshold_factor)
    schema = read_schema(field_set)
    folder = out or free_folder("evalcard-report")
    refuse_used_folder(folder, force=force)
    failures: tuple[Any, ...] = ()
    if inputs:
        files, urls = split_inputs(inputs, remote)
        held = sources.open_store(store)
        done = sources.read(held, files, urls)
        failures = done.failures
        tell(done, folder / "failures.csv")
    else:
        held = sources.open_store(store, embedded)
    held.reporting_schema(schema, strict_empty)
    held.signals(profile, threshold_factor)
    summed = rollup(held, profile=profile, factor=threshold_factor)
    chosen = report.choose(held, model, benchmark, real_first=not inputs)
    lines = report.triple_rows(held, chosen.model, chosen.benchmark)
    config = {"inputs": inputs or "embedded", "mode": mode, "profile": profile, "factor": threshold_factor}
    with progress("writing cards", total=min(most, len(chosen.models)) + len(chosen.benchmarks)) as bar:
        written = report.write_report(
            held, folder, chosen, summed, lines, failures, mode=mode, most=most, config=config, force=force,
            done=bar.advance,
        )  # fmt: skip
    held.close()
    if json:
        emit_json({"folder": str(folder), "rollup": summed, "triples": lines,
                   "failures": [f.as_mapping() for f in failures]})  # fmt: skip
    else:
        named = inputs or model or benchmark
        _print(summed, lines if named else [line for line in lines if line["model"] in chosen.models])
        _print_files(folder, written, len(chosen.models) - most)
    if failures:
        raise typer.Exit(FAILED)


def _print(summed: Any, lines: list[dict[str, Any]]) -> None:
    from evalcards import report

    overall = summed["overall"]
    table(
        report.summary_rows(summed), title=f"{many(overall['rows'], 'result')} in {many(overall['triples'], 'triple')}"
    )
    one = len({line["model"] for line in lines}) == 1
    title = f"triples of {lines[0]['model']}" if one else "triples"
    shown = [{k: v for k, v in line.items() if not (one and k == "model")} for line in lines[:MOST_LINES]]
    if shown and sys.stdout.isatty() and shutil.get_terminal_size().columns < _WIDE:
        _print_narrow(shown, title)
    elif shown:
        table(shown, title=title)
    if len(lines) > MOST_LINES:
        typer.echo(f"... and {many(len(lines) - MOST_LINES, 'more triple')}, in report.json")


def _print_narrow(lines: list[dict[str, Any]], title: str) -> None:
    """Print triples on a terminal too narrow for the table: what was measured, and below it the four signals."""
    typer.echo(visible(title))
    for line in lines:
        head = " ".join(filter(None, (line.get("model"), line["benchmark"], line["metric"])))
        typer.echo(visible(f"{head}: {line['score']} ({many(line['results'], 'result')})"))
        setup = f"setup {line['setup']}, decisions {line['decisions']}"
        typer.echo(visible(f"  {setup}; completeness {line['completeness']}"))
        typer.echo(visible(f"  {line['measured by']}; {line['comparability']}"))


def _print_files(folder: Path, written: list[Path], left: int) -> None:
    cards = f"{many(len(written), 'card')} (HTML, Markdown, JSON)"
    typer.echo(f"{cards}, report.json, failures.csv and overview.png are in {folder}")
    if left > 0:
        typer.echo(f"{many(left, 'more model')}: name one with --model, or raise --cards")
    if written:
        typer.echo(f"open {written[0]}   or browse everything: evalcards monitor")


@app.command("import")
@with_sources
def import_command(
    sources: Sources,
    inputs: Annotated[list[str], typer.Argument(help="Files, folders, or with --remote addresses.")],
    store: KeptStore = _DEFAULT_STORE,
    remote: Remote = False,
    failures: Annotated[
        Path | None, typer.Option(help="Where the failure report goes.  [default: beside the store]")
    ] = None,
    json: Json = False,
) -> None:
    """Read files into a store; run again after a kill, it goes on where it was."""
    sources.check()
    files, urls = split_inputs(inputs, remote)
    held = sources.open_store(store)
    try:
        done = sources.read(held, files, urls)
    except KeyboardInterrupt:
        held.close()
        say(f"interrupted; what was stored stays in {store}. Run the same command to go on")
        raise typer.Exit(INTERRUPTED) from None
    where = _report_failures(held, failures)
    held.close()
    answer = done._asdict() | {"failures": [f.as_mapping() for f in done.failures]}
    if json:
        emit_json(answer)
    else:
        tell(done, where)
        table([{k: v for k, v in answer.items() if k not in ("failures", "notices")}])
    if done.failures:
        raise typer.Exit(FAILED)


def _report_failures(store: Any, path: Path | None = None) -> Path:
    """Write the failure report of all that a store has imported, by default beside it."""
    from evalcards import report

    where = path or store.path.with_suffix(".failures.csv")
    return report.write_failures(where, report.stored_failures(store))


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="EEE JSON files.")],
    syntax_only: Annotated[bool, typer.Option("--syntax-only", help="Leave out what well-formed values say.")] = False,
    max_bytes: MaxBytes = MAX_BYTES,
    json: Json = False,
) -> None:
    """Check EEE records and say what is wrong where; exit 3 if one would be refused."""
    found = [line for path in files for line in _problems(path, not syntax_only, max_bytes)]
    if json:
        emit_json(found)
    elif found:
        table(found)
    else:
        typer.echo(f"{many(len(files), 'file')}, nothing to say")
    if any(line["level"] == "error" for line in found):
        raise typer.Exit(FAILED)


def _problems(path: Path, semantic: bool, max_bytes: int) -> Iterable[dict[str, str]]:
    from evalcards import schema, strict_json

    try:
        document = strict_json.read(path, max_bytes=max_bytes)
    except schema.SchemaError as error:
        yield {"file": str(path), "level": "error", "path": "", "message": str(error)}
        return
    for number, entry in enumerate(document if isinstance(document, list) else [document]):
        place = f"{path}[{number}]" if isinstance(document, list) else str(path)
        for issue in schema.validate(entry, semantic):
            yield {"file": place, **issue._asdict()}


@app.command()
@with_sources
def watch(
    sources: Sources,
    folder: Annotated[Path, typer.Argument(help="The folder to watch.")],
    store: KeptStore = _DEFAULT_STORE,
    seconds: Annotated[float, typer.Option(min=0.1, help="Pause between looks.")] = 2.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
) -> None:
    """Import what appears in a folder, until interrupted; files that still grow wait for the next look."""
    import time

    from evalcards.importing import watch as look

    options = sources.check()
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    held = sources.open_store(store)
    failed = False
    for done in look(held, folder, options, seconds=seconds, rounds=rounds, sleep=time.sleep, format=sources.format,
                     mapping=sources.mapping):  # fmt: skip
        tell(done, _report_failures(held))
        failed = failed or bool(done.failures)
    held.close()
    if failed:
        raise typer.Exit(FAILED)


evalcard_script = verb(app, "evalcard")

# Its subcommands register themselves, after these in the list of commands.
from evalcards import cli_store  # noqa: E402, F401

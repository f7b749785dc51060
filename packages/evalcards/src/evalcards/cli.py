"""The command line: parse, call the library, print. This module reads files; `evalcards.cli_store` asks a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from evalcards.cli_common import (
    FAILED,
    MAX_BYTES,
    MOST_LINES,
    Cards,
    Factor,
    FieldSet,
    Force,
    Format,
    Inputs,
    Json,
    KeptStore,
    Mapping,
    MaxBytes,
    Mode,
    ModelId,
    Models,
    Organisation,
    Profile,
    Relationship,
    Remote,
    StrictEmpty,
    app,
    choose_schema,
    embedded,
    open_store,
    read_options,
)
from papers_shared.cli import emit_json, progress, table, verb
from papers_shared.errors import InputError

_DEFAULT_STORE = Path("evalcards.duckdb")


def _free_folder(stem: str) -> Path:
    """Return the first folder name not taken yet, so that a run without --out never stands in another's way."""
    number = 1
    while (path := Path(stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return path


def _split(inputs: list[str], remote: bool) -> tuple[list[Path], list[str]]:
    """Return the files and the addresses that are meant, before anything is written."""
    from evalcards.importing import expand

    urls = [name for name in inputs if name.startswith(("http://", "https://"))]
    if urls and not remote:
        raise InputError(f"{urls[0]}: a remote address", hint="pass --remote to read it over the network")
    return expand(name for name in inputs if name not in urls), urls


def _import(
    store: Any, files: list[Path], urls: list[str], options: Any, format: str | None, mapping: Path | None
) -> Any:
    from evalcards.importing import ImportReport, import_files, import_remote

    report = ImportReport()
    if files:
        with progress("importing", total=len(files)) as bar:
            report = import_files(store, files, options, format=format, mapping=mapping,
                                  progress=lambda done, of: bar.update(done, total=of))  # fmt: skip
    for url in urls:
        report = report.plus(import_remote(store, url, options))
    return report


def _tell(report: Any, where: Path) -> None:
    """Say on stderr what an import did, and where its failures are written."""
    typer.echo(
        f"{report.files} files, {report.skipped} read before; {report.found} results found = {report.rows} rows + "
        f"{report.failed} failed; {report.logs} records added, {report.duplicates} there already",
        err=True,
    )
    for failure in report.failures[:10]:
        typer.echo(f"not imported: {failure}", err=True)
    if report.failures:
        more = f"... and {len(report.failures) - 10} more; " if len(report.failures) > 10 else ""
        typer.echo(f"{more}the failure report is {where}", err=True)


@app.command()
def evalcard(
    inputs: Inputs = None,
    benchmark_card: Cards = None,
    models: Models = None,
    model: Annotated[str | None, typer.Option("--model", help="Only this model's triples and card.")] = None,
    benchmark: Annotated[str | None, typer.Option("--benchmark", help="Only this benchmark's.")] = None,
    mode: Mode = "research",
    out: Annotated[Path | None, typer.Option(help="Folder for the cards.  [default: the next evalcard-report]")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="Also keep the records in this DuckDB file.")] = None,
    format: Format = None,
    mapping: Mapping = None,
    model_id: ModelId = None,
    organisation: Organisation = None,
    relationship: Relationship = None,
    max_bytes: MaxBytes = MAX_BYTES,
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
    from evalcards import render, report
    from evalcards.signals import rollup

    options = read_options(model_id, organisation, relationship, max_bytes)
    if mode not in render.ORDER:
        raise InputError(f"--mode {mode}: want research or policy")
    folder = out or _free_folder("evalcard-report")
    failures: tuple[Any, ...] = ()
    if inputs:
        files, urls = _split(inputs, remote)
        held = open_store(store, cards=benchmark_card, models=models)
        done = _import(held, files, urls, options, format, mapping)
        failures = done.failures
        _tell(done, folder / "failures.csv")
    else:
        held = _whole(store, benchmark_card, models)
    choose_schema(held, field_set, strict_empty)
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


def _whole(path: Path | None, cards: list[Path] | None, models: Path | None) -> Any:
    """Return a store that is there, or a new one with the embedded corpus."""
    if path is not None and path.exists():
        return open_store(path, cards=cards, models=models)
    from evalcards import data

    theirs = [card for file in cards or [] for card in data.read_cards(file)]
    named = [] if models is None else data.read_models(models)
    held = embedded(path)
    held.add_cards(theirs)
    held.add_models(named)
    return held


def _print(summed: Any, lines: list[dict[str, Any]]) -> None:
    from evalcards import report

    overall = summed["overall"]
    table(report.summary_rows(summed), title=f"{overall['rows']:,} results in {overall['triples']:,} triples")
    one = len({line["model"] for line in lines}) == 1
    if lines:
        title = f"triples of {lines[0]['model']}" if one else "triples"
        table(
            [{k: v for k, v in line.items() if not (one and k == "model")} for line in lines[:MOST_LINES]], title=title
        )
    if len(lines) > MOST_LINES:
        typer.echo(f"... and {len(lines) - MOST_LINES} more triples, in report.json")


def _print_files(folder: Path, written: list[Path], left: int) -> None:
    typer.echo(
        f"{len(written)} cards (HTML, Markdown, JSON), report.json, failures.csv and overview.png are in {folder}"
    )
    if left > 0:
        typer.echo(f"{left} more models: name one with --model, or raise --cards")
    if written:
        typer.echo(f"open {written[0]}   or browse everything: evalcards monitor")


@app.command("import")
def import_command(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders, or with --remote addresses.")],
    store: KeptStore = _DEFAULT_STORE,
    benchmark_card: Cards = None,
    models: Models = None,
    format: Format = None,
    mapping: Mapping = None,
    model_id: ModelId = None,
    organisation: Organisation = None,
    relationship: Relationship = None,
    max_bytes: MaxBytes = MAX_BYTES,
    remote: Remote = False,
    failures: Annotated[
        Path | None, typer.Option(help="Where the failure report goes.  [default: beside the store]")
    ] = None,
    json: Json = False,
) -> None:
    """Read files into a store; run again after a kill, it goes on where it was."""
    options = read_options(model_id, organisation, relationship, max_bytes)
    files, urls = _split(inputs, remote)
    held = open_store(store, cards=benchmark_card, models=models)
    done = _import(held, files, urls, options, format, mapping)
    where = _report_failures(held, failures)
    held.close()
    answer = done._asdict() | {"failures": [f.as_mapping() for f in done.failures]}
    if json:
        emit_json(answer)
    else:
        _tell(done, where)
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
        typer.echo(f"{len(files)} file{'' if len(files) == 1 else 's'}, nothing to say")
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
def watch(
    folder: Annotated[Path, typer.Argument(help="The folder to watch.")],
    store: KeptStore = _DEFAULT_STORE,
    seconds: Annotated[float, typer.Option(min=0.1, help="Pause between looks.")] = 2.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
    mapping: Mapping = None,
    model_id: ModelId = None,
    organisation: Organisation = None,
    relationship: Relationship = None,
    max_bytes: MaxBytes = MAX_BYTES,
) -> None:
    """Import what appears in a folder, until interrupted; files that still grow wait for the next look."""
    import time

    from evalcards.importing import watch as look

    options = read_options(model_id, organisation, relationship, max_bytes)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    held = open_store(store)
    failed = False
    for done in look(held, folder, options, seconds=seconds, rounds=rounds, sleep=time.sleep, mapping=mapping):
        _tell(done, _report_failures(held))
        failed = failed or bool(done.failures)
    held.close()
    if failed:
        raise typer.Exit(FAILED)


evalcard_script = verb(app, "evalcard")

# Its subcommands register themselves, after these in the list of commands.
from evalcards import cli_store  # noqa: E402, F401

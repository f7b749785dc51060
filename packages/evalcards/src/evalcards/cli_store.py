"""The subcommands that ask a store: signals, comparison, monitor, snapshots, export, bench."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from evalcards.cli_common import (
    MOST_LINES,
    Factor,
    FieldSet,
    Force,
    Json,
    KeptStore,
    Mode,
    Profile,
    StoreFile,
    StrictEmpty,
    app,
    check_mode,
    check_signals,
    existing,
    read_schema,
)
from evalcards.sentences import many, percent
from papers_shared.cli import emit_json, progress, table, track
from papers_shared.errors import InputError


@app.command()
def signals(
    store: StoreFile = None,
    profile: Profile = "paper",
    threshold_factor: Factor = 1.0,
    field_set: FieldSet = None,
    strict_empty: StrictEmpty = False,
    significance: Annotated[bool, typer.Option("--significance", help="Also test differences, Holm-adjusted.")] = False,
    json: Json = False,
) -> None:
    """Compute the four signals of a store and print their rates, overall and by category."""
    from evalcards import report
    from evalcards.signals import rollup
    from evalcards.significance import corpus_tests

    check_signals(profile, threshold_factor)
    schema = read_schema(field_set)
    held = existing(store)
    held.reporting_schema(schema, strict_empty)
    summed = rollup(held, profile=profile, factor=threshold_factor)
    tests = corpus_tests(held) if significance else []
    if json:
        emit_json(summed | ({"significance": [test._asdict() for test in tests]} if significance else {}))
        return
    table(report.summary_rows(summed), title=f"{many(summed['overall']['rows'], 'result')}, profile {profile}")
    lines = [
        {
            "category": name,
            "results": part["rows"],
            "fully documented": percent(part["reproducibility"]["fully_documented"]),
            "completeness": percent({"rate": part["completeness"]["mean"]}),
            "third party": percent(part["provenance"]["source_types"]["third_party"]),
            "diverging by settings": percent(part["comparability"]["variant_divergence"]),
            "by party": percent(part["comparability"]["cross_party_divergence"]),
        }
        for name, part in summed["by_category"].items()
    ]
    table(lines, title="by category")
    if tests:
        table(
            [t._asdict() | {key: getattr(t, key) or "< 1e-300" for key in ("p", "p_holm")} for t in tests[:20]],
            title=f"beyond the paper: {many(len(tests), 'tested triple')}, smallest p first",
        )


@app.command("compare")
def compare_command(
    a: Annotated[str, typer.Argument(help="A model.")],
    b: Annotated[str, typer.Argument(help="Another model.")],
    on: Annotated[str, typer.Option("--on", help="The benchmark.")],
    store: StoreFile = None,
    json: Json = False,
) -> None:
    """Say whether two models' scores on a benchmark may be compared, and what stands in the way."""
    from evalcards.compare import compare
    from evalcards.sentences import difference_text, score_text, setting_text

    held = existing(store)
    held.signals_settings()
    found = compare(held, a, b, on)
    if json:
        emit_json([c._asdict() for c in found])
        return
    table(
        {
            "verdict": c.verdict,
            "metric": " ".join(filter(None, (c.metric, c.a["slice_name"]))),
            "A": score_text(c.a["score"], c.a["unit"]),
            "B": score_text(c.b["score"], c.b["unit"]),
            "differs in": "; ".join(
                f"{name} {setting_text(x)} / {setting_text(y)}" for name, (x, y) in c.differences.items()
            ),
            "not disclosed": ", ".join(c.undisclosed),
            "difference": "" if c.difference is None else difference_text(c.difference, c.a["unit"]),
            "p": c.p,
            "rows": f"{c.a['row_id']} / {c.b['row_id']}",
        }
        for c in found
    )


@app.command()
def monitor(
    store: StoreFile = None,
    serve: Annotated[str, typer.Option("--serve", help="HOST:PORT to listen on.")] = "127.0.0.1:8777",
    profile: Profile = "paper",
    threshold_factor: Factor = 1.0,
    field_set: FieldSet = None,
) -> None:
    """Show everything in a browser, until interrupted."""
    import uvicorn

    from evalcards.web import app as site

    check_signals(profile, threshold_factor)
    schema = read_schema(field_set)
    with _listen(serve) as listener:
        held = existing(store)
        held.reporting_schema(schema)
        held.signals(profile, threshold_factor)
        typer.echo(f"http://{serve}/ (Ctrl-C stops)", err=True)
        uvicorn.Server(uvicorn.Config(site(held), log_level="warning")).run(sockets=[listener])


def _listen(address: str) -> socket.socket:
    """Take an address before anything is read.

    Raises
    ------
    InputError
        It is no address, or not free.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise InputError(f"--serve {address}: want HOST:PORT", hint="for example 127.0.0.1:8777")
    try:
        return socket.create_server(
            (host.strip("[]"), int(port)), family=socket.AF_INET6 if "[" in host else socket.AF_INET
        )
    except OSError as error:
        raise InputError(f"--serve {address}: {error.strerror or error}", hint="choose another port") from error


@app.command()
def snapshot(
    name: Annotated[str, typer.Argument(help="Its name.")], store: KeptStore = Path("evalcards.duckdb")
) -> None:
    """Keep what a store says now under a name."""
    held = existing(store)
    table([held.snapshot(name)])
    held.close()


@app.command("diff")
def diff_command(
    first: Annotated[str, typer.Argument(help="The earlier snapshot.")],
    second: Annotated[str, typer.Argument(help="The later one.")],
    store: KeptStore = Path("evalcards.duckdb"),
    json: Json = False,
) -> None:
    """Say what changed between two snapshots: results, signals, rates."""
    from evalcards import snapshots

    found = snapshots.diff(existing(store), first, second)
    if json:
        emit_json(found)
        return
    table(
        [{"rate": name, first: pair[0], second: pair[1]} for name, pair in found.rates.items()]
        or [{"rate": "none changed"}]
    )
    typer.echo(
        f"{many(len(found.added), 'result')} added, {len(found.removed):,} removed; "
        f"the signals of {many(len(found.signals), 'triple')} changed"
    )
    if found.signals:
        table([{k: v for k, v in line.items() if k != "link"} for line in found.signals[:MOST_LINES]])


@app.command()
def export(
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Folder for the tables as Parquet.")] = None,
    static: Annotated[Path | None, typer.Option("--static", help="Folder for all cards as plain files.")] = None,
    parts: Annotated[
        int | None, typer.Option("--parts", help="Split results and signals into so many parts, by triple.")
    ] = None,
    store: StoreFile = None,
    mode: Mode = "research",
    force: Force = False,
) -> None:
    """Write the store's tables as Parquet, or all cards as files for any web server or object store."""
    from evalcards.site_export import write_site

    if parquet is None and static is None:
        raise InputError("export what?", hint="--parquet DIR writes the tables, --static DIR the cards")
    if parts is not None and parquet is None:
        raise InputError(f"--parts {parts} without --parquet", hint="only tables are split")
    check_mode(mode)
    held = existing(store)
    if parquet is not None:
        for path in held.export(parquet, parts=parts, force=force):
            typer.echo(str(path))
    if static is not None:
        typer.echo(str(write_site(held, static, mode, force=force, track=track)))
    held.close()


@app.command("field-set")
def field_set_command(
    file: Annotated[Path | None, typer.Argument(help="A schema to check.  [default: the paper's]")] = None,
    json: Json = False,
) -> None:
    """Print the reporting schema by which completeness is scored."""
    from evalcards.signals.completeness import field_set

    fields = field_set(file)
    if json:
        emit_json({"fields": [field._asdict() for field in fields]})
    else:
        table([{"path": f.path, "coverage": f.coverage, "items": ", ".join(f.items)} for f in fields],
              title=many(len(fields), "field"))  # fmt: skip


@app.command()
def bench(
    models: Annotated[int, typer.Option(min=1, help="Models of the made-up corpus.")] = 5498,
    benchmarks: Annotated[int, typer.Option(min=1, help="Its benchmarks.")] = 635,
    rows: Annotated[int, typer.Option(min=1, help="Its results; the defaults are the paper's size.")] = 101_843,
    pages: Annotated[int, typer.Option(min=4, help="Pages to ask for.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of the made-up corpus.")] = 0,
    json: Json = False,
) -> None:
    """Measure import, signals and pages at the paper's size on this machine."""
    from statistics import quantiles

    from evalcards.scale import measure

    with progress("measuring", total=1) as bar:
        found = measure(models, benchmarks, rows, pages, seed)
        bar.advance()
    p95 = quantiles(found["page_wall_seconds"], n=20)[-1] * 1000
    answer = {
        "results": found["rows"],
        "files": found["files"],
        "import and signals, wall s": found["wall_seconds"],
        "import, processor s": found["import_seconds"],
        "signals, processor s": found["signal_seconds"],
        "page p95, wall ms": p95,
        "largest page, results": found["largest_page"],
        "peak memory, GB": found["peak_gb"],
    }
    if json:
        emit_json(answer)
    else:
        table([{"what": name, "value": value} for name, value in answer.items()])

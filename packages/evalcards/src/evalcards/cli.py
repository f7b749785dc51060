"""The command line: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared.cli import emit_json, paper_app, progress, table, track, verb
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
Relationship = Annotated[str, typer.Option("--relationship", help="first_party, third_party, collaborative or other.")]
MaxBytes = Annotated[int, typer.Option("--max-bytes", min=1, help="The most to read from one file or archive member.")]
Profile = Annotated[str, typer.Option("--profile", help="Required settings: paper, paper-h1 or spec4.")]
Factor = Annotated[float, typer.Option("--threshold-factor", help="Multiplies all divergence thresholds.")]
FieldSet = Annotated[Path | None, typer.Option("--field-set", help="Another reporting schema (JSON).")]
StrictEmpty = Annotated[bool, typer.Option("--strict-empty", help='Let "", [] and "Not specified" count as missing.')]
Mode = Annotated[str, typer.Option("--mode", help="research or policy: what comes first.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left.")]

_MAX_BYTES = 512 * 2**20
_MOST_LINES = 40
_FAILED = 3


def _options(model_id: str | None, organisation: str | None, relationship: str, max_bytes: int) -> Any:
    from evalcards.importers import Options

    known = ("first_party", "third_party", "collaborative", "other")
    if relationship not in known:
        raise InputError(f"--relationship {relationship}: want one of {', '.join(known)}")
    return Options(model_id, organisation, relationship, max_bytes)


def _open(path: Path | None, *, cards: list[Path] | None = None, models: Path | None = None) -> Any:
    """Open a store, or put the embedded corpus into memory, and add cards and models."""
    from evalcards import data
    from evalcards.store import Store

    if path is None:
        store = _embedded()
    else:
        fresh = not path.exists()
        store = Store(path)
        if fresh:
            store.add_cards(data.benchmark_cards())
            store.add_models(data.registered_models())
    store.add_cards([card for file in cards or [] for card in data.read_cards(file)])
    if models is not None:
        store.add_models(data.read_models(models))
    return store


def _embedded() -> Any:
    from evalcards import data
    from evalcards.store import Store

    store = Store(None)
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


def _existing(path: Path | None) -> Any:
    if path is not None and not path.exists():
        raise InputError(f"{path}: no such store", hint="evalcards import makes one")
    return _open(path)


def _schema(store: Any, field_set: Path | None, strict_empty: bool) -> None:
    from evalcards.signals.completeness import field_set as read

    store.reporting_schema(None if field_set is None else read(field_set), strict_empty)


def _free_folder(stem: str) -> Path:
    """Return the first folder name not taken yet, so that a run without --out never stands in another's way."""
    number = 1
    while (path := Path(stem if number == 1 else f"{stem}-{number}")).exists():
        number += 1
    return path


def _import(store: Any, inputs: list[str], options: Any, format: str | None, mapping: Path | None, remote: bool) -> Any:
    from evalcards.importing import ImportReport, expand, import_files, import_remote

    urls = [name for name in inputs if name.startswith(("http://", "https://"))]
    if urls and not remote:
        raise InputError(f"{urls[0]}: a remote address", hint="pass --remote to read it over the network")
    report = ImportReport()
    local = [name for name in inputs if name not in urls]
    if local:
        with progress("importing", total=len(expand(local))) as bar:
            report = import_files(store, local, options, format=format, mapping=mapping,
                                  progress=lambda done, of: bar.update(done, total=of))  # fmt: skip
    for url in urls:
        more = import_remote(store, url, options)
        summed = [a + b for a, b in zip(report[:7], more[:7], strict=True)]
        report = ImportReport(*summed, report.failures + more.failures, report.notices + more.notices)
    return report


def _tell(report: Any) -> None:
    typer.echo(
        f"{report.files} files, {report.skipped} read before; {report.found} results found = {report.rows} rows + "
        f"{report.failed} failed; {report.logs} records added, {report.duplicates} there already",
        err=True,
    )
    for failure in report.failures[:10]:
        typer.echo(f"not imported: {failure}", err=True)
    if len(report.failures) > 10:
        typer.echo(f"... and {len(report.failures) - 10} more, see failures.csv", err=True)


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
    relationship: Relationship = "other",
    max_bytes: MaxBytes = _MAX_BYTES,
    remote: Annotated[bool, typer.Option("--remote", help="Allow http(s) addresses of Parquet files.")] = False,
    profile: Profile = "paper",
    threshold_factor: Factor = 1.0,
    field_set: FieldSet = None,
    strict_empty: StrictEmpty = False,
    most: Annotated[int, typer.Option("--cards", min=0, help="Write the cards of at most so many models.")] = 20,
    force: Force = False,
    json: Json = False,
) -> None:
    """Read evaluation outputs, print the four signals per triple, write cards as HTML, Markdown and JSON."""
    from evalcards import figures, render, report
    from evalcards.signals import rollup
    from papers_shared.artifacts import RunDir, write_figure, write_json

    options = _options(model_id, organisation, relationship, max_bytes)
    if mode not in render.ORDER:
        raise InputError(f"--mode {mode}: want research or policy")
    if inputs:
        held = _fresh(store, benchmark_card, models)
        done = _import(held, inputs, options, format, mapping, remote)
        _tell(done)
    else:
        held, done = _open(store, cards=benchmark_card, models=models), None
    _schema(held, field_set, strict_empty)
    held.signals(profile, threshold_factor)
    summed = rollup(held, profile=profile, factor=threshold_factor)
    failures = done.failures if done else ()
    chosen, on = _chosen(held, inputs, model, benchmark)
    lines = report.triple_rows(held, model and held.find_model(model), benchmark and held.find_benchmark(benchmark))
    config = {"inputs": inputs or "embedded", "mode": mode, "profile": profile, "factor": threshold_factor}
    with RunDir(out or _free_folder("evalcard-report"), package="evalcards", config=config, force=force) as run:
        with progress("writing cards", total=min(most, len(chosen)) + len(on)) as bar:
            written = report.write_cards(held, run.path, chosen[:most], on, mode, bar.advance)
        overall = summed["overall"]
        if overall["rows"]:
            write_figure(
                run / "overview.png",
                figures.draw_overview(summed),
                f"{overall['rows']:,} results in {overall['triples']:,} triples; bars with Wilson 95% intervals, "
                f"thresholds x {threshold_factor:g}, profile {profile}.",
            )
        report.write_failures(run.path, failures)
        write_json(run / "report.json", {"rollup": summed, "triples": lines, "provenance": run.manifest["provenance"]})
    if json:
        emit_json({"folder": str(run.path), "rollup": summed, "triples": lines,
                   "failures": [f.as_mapping() for f in failures]})  # fmt: skip
    else:
        _print(report, summed, lines, chosen, on, inputs is None or not inputs, model, benchmark)
        typer.echo(
            f"{len(written)} cards (HTML, Markdown, JSON), report.json, failures.csv and overview.png are in {run.path}"
        )
        if len(chosen) > most:
            typer.echo(f"{len(chosen) - most} more models: name one with --model, or raise --cards")
        if written:
            typer.echo(f"open {written[0]}   or browse everything: evalcards monitor")
    held.close()
    if failures:
        raise typer.Exit(_FAILED)


def _fresh(path: Path | None, cards: list[Path] | None, models: Path | None) -> Any:
    """Return a store without the embedded corpus: the given file, or one in memory."""
    from evalcards import data
    from evalcards.store import Store

    if path is not None:
        return _open(path, cards=cards, models=models)
    store = Store(None)
    store.add_cards([*data.benchmark_cards(), *(card for file in cards or [] for card in data.read_cards(file))])
    store.add_models([*data.registered_models(), *(data.read_models(models) if models else [])])
    return store


def _chosen(
    store: Any, inputs: list[str] | None, model: str | None, benchmark: str | None
) -> tuple[list[str], list[str]]:
    """Return the models and benchmarks to write cards of."""
    on = [store.find_benchmark(benchmark)] if benchmark else []
    if model:
        return [store.find_model(model)], on
    if on:
        return [], on
    if not inputs:
        from evalcards import data

        present = {name for (name,) in store.fetch("SELECT DISTINCT model_id FROM groups")}
        real = [meta.id for meta in data.registered_models() if meta.id in present]
        return real or sorted(present), on
    return [name for (name,) in store.fetch("SELECT DISTINCT model_id FROM groups ORDER BY 1")], on


def _print(
    report: Any, summed: Any, lines: list[Any], chosen: list[str], on: list[str], embedded: bool, model: str | None,
    benchmark: str | None,
) -> None:  # fmt: skip
    overall = summed["overall"]
    table(report.summary_rows(summed), title=f"{overall['rows']:,} results in {overall['triples']:,} triples")
    shown = [line for line in lines if not embedded or model or benchmark or line["model"] in chosen]
    one = len({line["model"] for line in shown}) == 1
    if shown:
        title = f"triples of {shown[0]['model']}" if one else "triples"
        part = [{k: v for k, v in line.items() if not (one and k == "model")} for line in shown[:_MOST_LINES]]
        table(part, title=title)
    if len(shown) > _MOST_LINES:
        typer.echo(f"... and {len(shown) - _MOST_LINES} more triples, in report.json")


@app.command("import")
def import_command(
    inputs: Annotated[list[str], typer.Argument(help="Files, folders, or with --remote addresses.")],
    store: KeptStore = Path("evalcards.duckdb"),
    benchmark_card: Cards = None,
    models: Models = None,
    format: Format = None,
    mapping: Mapping = None,
    model_id: ModelId = None,
    organisation: Organisation = None,
    relationship: Relationship = "other",
    max_bytes: MaxBytes = _MAX_BYTES,
    remote: Annotated[bool, typer.Option("--remote", help="Allow http(s) addresses of Parquet files.")] = False,
    failures: Annotated[Path | None, typer.Option(help="Write the failure report to this folder.")] = None,
    json: Json = False,
) -> None:
    """Read files into a store; run again after a kill, it goes on where it was."""
    from evalcards import report

    options = _options(model_id, organisation, relationship, max_bytes)
    held = _open(store, cards=benchmark_card, models=models)
    done = _import(held, inputs, options, format, mapping, remote)
    held.close()
    if failures is not None:
        failures.mkdir(parents=True, exist_ok=True)
        report.write_failures(failures, done.failures)
    answer = done._asdict() | {"failures": [f.as_mapping() for f in done.failures]}
    if json:
        emit_json(answer)
    else:
        _tell(done)
        table([{k: v for k, v in answer.items() if k not in ("failures", "notices")}])
    if done.failures:
        raise typer.Exit(_FAILED)


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(help="EEE JSON files.")],
    syntax_only: Annotated[bool, typer.Option("--syntax-only", help="Leave out what well-formed values say.")] = False,
    max_bytes: MaxBytes = _MAX_BYTES,
    json: Json = False,
) -> None:
    """Check EEE records and say what is wrong where; exit 3 if one would be refused."""
    from evalcards import schema, strict_json

    found = []
    for path in files:
        try:
            document = strict_json.read(path, max_bytes=max_bytes)
        except schema.SchemaError as error:
            found.append({"file": str(path), "level": "error", "path": "", "message": str(error)})
            continue
        for number, entry in enumerate(document if isinstance(document, list) else [document]):
            place = f"{path}[{number}]" if isinstance(document, list) else str(path)
            found += [{"file": place, **issue._asdict()} for issue in schema.validate(entry, not syntax_only)]
    if json:
        emit_json(found)
    elif found:
        table(found)
    else:
        typer.echo(f"{len(files)} files, nothing to say")
    if any(line["level"] == "error" for line in found):
        raise typer.Exit(_FAILED)


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

    held = _existing(store)
    _schema(held, field_set, strict_empty)
    summed = rollup(held, profile=profile, factor=threshold_factor)
    tests = corpus_tests(held) if significance else []
    if json:
        emit_json(summed | ({"significance": [test._asdict() for test in tests]} if significance else {}))
        return
    table(report.summary_rows(summed), title=f"{summed['overall']['rows']:,} results, profile {profile}")
    lines = [
        {
            "category": name,
            "results": part["rows"],
            "fully documented": part["reproducibility"]["fully_documented"]["rate"],
            "completeness": part["completeness"]["mean"],
            "third party": part["provenance"]["source_types"]["third_party"]["rate"],
            "diverging by settings": part["comparability"]["variant_divergence"]["rate"],
            "by party": part["comparability"]["cross_party_divergence"]["rate"],
        }
        for name, part in summed["by_category"].items()
    ]
    table(lines, title="by category")
    if tests:
        table(
            [t._asdict() for t in tests[:20]], title=f"beyond the paper: {len(tests)} tested triples, smallest p first"
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
    from evalcards.render import score_text, setting_text

    held = _existing(store)
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
            "difference": "" if c.difference is None else score_text(c.difference, c.a["unit"]),
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

    host, _, port = serve.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"--serve {serve}: want HOST:PORT", hint="for example 127.0.0.1:8777")
    held = _existing(store)
    _schema(held, field_set, False)
    held.signals(profile, threshold_factor)
    typer.echo(f"http://{serve}/ (Ctrl-C stops)", err=True)
    uvicorn.run(site(held), host=host.strip("[]"), port=int(port), log_level="warning")


@app.command()
def snapshot(
    name: Annotated[str, typer.Argument(help="Its name.")], store: KeptStore = Path("evalcards.duckdb")
) -> None:
    """Keep what a store says now under a name."""
    held = _existing(store)
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

    found = snapshots.diff(_existing(store), first, second)
    if json:
        emit_json(found)
        return
    table(
        [{"rate": name, first: pair[0], second: pair[1]} for name, pair in found.rates.items()]
        or [{"rate": "none changed"}]
    )
    typer.echo(
        f"{len(found.added)} results added, {len(found.removed)} removed, {len(found.signals)} triples' signals changed"
    )
    if found.signals:
        table([{k: v for k, v in line.items() if k != "link"} for line in found.signals[:_MOST_LINES]])


@app.command()
def export(
    parquet: Annotated[Path | None, typer.Option("--parquet", help="Folder for the tables as Parquet.")] = None,
    static: Annotated[Path | None, typer.Option("--static", help="Folder for all cards as plain files.")] = None,
    store: StoreFile = None,
    mode: Mode = "research",
    force: Force = False,
) -> None:
    """Write the store's tables as Parquet, or all cards as files for any web server or object store."""
    from evalcards.site_export import write_site

    if parquet is None and static is None:
        raise InputError("export what?", hint="--parquet DIR writes the tables, --static DIR the cards")
    held = _existing(store)
    if parquet is not None:
        for path in held.export(parquet, force=force):
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
              title=f"{len(fields)} fields")  # fmt: skip


@app.command()
def bench(
    models: Annotated[int, typer.Option(min=1, help="Models of the made-up corpus.")] = 5498,
    benchmarks: Annotated[int, typer.Option(min=1, help="Its benchmarks.")] = 635,
    rows: Annotated[int, typer.Option(min=1, help="Its results; the defaults are the paper's size.")] = 101_843,
    pages: Annotated[int, typer.Option(min=4, help="Pages to ask for.")] = 60,
    json: Json = False,
) -> None:
    """Measure import, signals and pages at the paper's size on this machine."""
    from statistics import quantiles

    from evalcards.scale import measure

    with progress("measuring", total=1) as bar:
        found = measure(models, benchmarks, rows, pages)
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


@app.command()
def watch(
    folder: Annotated[Path, typer.Argument(help="The folder to watch.")],
    store: KeptStore = Path("evalcards.duckdb"),
    seconds: Annotated[float, typer.Option(min=0.1, help="Pause between looks.")] = 2.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
    organisation: Organisation = None,
    relationship: Relationship = "other",
    max_bytes: MaxBytes = _MAX_BYTES,
) -> None:
    """Import what appears in a folder, until interrupted; files that still grow wait for the next look."""
    import time

    from evalcards.importing import watch as look

    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    held = _open(store)
    options = _options(None, organisation, relationship, max_bytes)
    failed = False
    for done in look(held, folder, options, seconds=seconds, rounds=rounds, sleep=time.sleep):
        _tell(done)
        failed = failed or bool(done.failures)
    held.close()
    if failed:
        raise typer.Exit(_FAILED)


evalcard_script = verb(app, "evalcard")

"""The command line: parse, call the library, print."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from papers_shared.cli import emit_json, paper_app, progress, quiet, table, verb
from papers_shared.errors import InputError

if TYPE_CHECKING:
    from dynmatch.live import Live

app = paper_app("dynmatch", help="Wasserstein distances and matchings that follow insertions and deletions.")

Method = Annotated[str, typer.Option(help="exact, grid, hub, or auto.")]
Norm = Annotated[str, typer.Option(help="l1, l2 or linf.")]
Exponent = Annotated[float, typer.Option(help="The exponent of W_p.")]
Eps = Annotated[float | None, typer.Option(help="Of the grid (0.25) or of hubs (0.1).")]
Depth = Annotated[int, typer.Option(min=1, help="Levels of the hub hierarchy.")]

SHOWN = ("update", "n_a", "n_b", "cost", "lower_bound", "ms")


@app.command("match")
def match_command(
    updates: Annotated[
        Path | None,
        typer.Argument(help="csv, jsonl, npy, npz or parquet updates, or NYC taxi trips.  [default: a city]"),
    ] = None,
    metric: Annotated[str, typer.Option(help="l1, l2, linf, or a path: GraphML, edge list, distance matrix.")] = "l2",
    method: Method = "auto",
    eps: Eps = None,
    k: Depth = 2,
    p: Exponent = 1.0,
    every: Annotated[int, typer.Option(min=1, help="Updates per row of the table.")] = 100,
    certify: Annotated[
        bool | None, typer.Option(help="Run the exact matcher beside as certificate.  [default: for small streams]")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables and pictures.")] = Path("dynmatch-run"),
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Count malformed lines and go on.")] = False,
    snapshot_every: Annotated[int, typer.Option(min=1, help="Updates between snapshots.")] = 1000,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the last snapshot.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run's folder.")] = False,
    seed: Annotated[int, typer.Option(help="Of shifts, hierarchies and the embedded city.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the last row as JSON.")] = False,
) -> None:
    """Keep a matching through a stream of updates and report its distance as it goes."""
    from papers_shared.artifacts import RunDir

    if method == "exact" and eps is not None:
        raise InputError("--eps means nothing to the exact matcher", hint="leave it out, or take grid or hub")
    stream, skipped, given = _stream(updates, metric, skip_bad, seed)
    unit = given.pop("unit")
    peak, dim = _size_of(stream)
    method = _choose(method, given, p, peak)
    certify = (method != "exact" and peak <= 1500 and len(stream) <= 10_000) if certify is None else certify
    config = {
        "updates": None if updates is None else str(updates),
        "metric": metric,
        "method": method,
        "eps": eps,
        "k": k,
        "p": p,
        "every": every,
        "certify": certify,
        "skip_bad": skip_bad,
    }
    # Before the folder is made: an option out of its range must not leave one behind.
    options = {"p": p, "eps": eps, "k": k, "seed": seed}
    run = _start(out / "snapshot.npz" if resume else None, method, dim, given, options, certify)
    with RunDir(out, package="dynmatch", config=config, seed=seed, force=force, resume=resume) as folder:
        _compile(method, dim, given, options, certify)
        shown = 0 if not json else -1
        with progress(f"{method} matching", total=len(stream)) as bar:
            bar.advance(run.position)
            for row in run.through(stream, every, folder.path / "snapshot.npz", snapshot_every, bar.advance):
                bar.update(note=f"W {row['cost']:.4g}, {row['ms']:.2g} ms an update")
                if shown >= 0 and not quiet():
                    shown = _print_row(row, shown)
        run.matcher.check()
        _write(folder.path, run, method, p, unit)
    last = run.rows[-1]
    if json:
        emit_json(last | {"method": method, "skipped": skipped, "out": str(out)})
        return
    if skipped:
        typer.echo(f"skipped {skipped} malformed lines", err=True)
    typer.echo(
        f"\nW_{p:g} = {last['cost']:.6g} after {last['update']} updates ({method}); tables and pictures in {out}/"
    )


def _stream(updates: Path | None, metric: str, skip_bad: bool, seed: int) -> tuple[list[Any], int, dict[str, Any]]:
    """Read the updates and the metric."""
    from dynmatch import data, streams, trips
    from dynmatch.costs import NAMES

    given: dict[str, Any] = {"metric": metric, "unit": "unit of the points"}
    nodes: dict[str, int] | None = None
    if metric not in NAMES:
        path = Path(metric)
        if not path.exists():
            raise InputError(f"--metric {metric}: neither a file nor a norm", hint=f"give {', '.join(NAMES)} or a path")
        if path.suffix.lower() in (".npy", ".npz"):
            matrix = data.read_matrix(path)
        else:
            matrix, names = data.read_graph(path)
            nodes = {str(name): number for number, name in enumerate(names)}
        given = {"metric": "precomputed", "matrix": matrix, "unit": "unit of the metric"}
        if updates is None:
            raise InputError(f"--metric {metric} needs updates, whose points are its rows or nodes")
    if updates is None:
        return streams.city(seed=seed), 0, given | {"unit": "km"}
    if trips.is_taxi(updates):
        found = trips.read_taxi(updates, skip_bad=skip_bad)
        if found.placeless and not quiet():
            typer.echo(f"left out {found.placeless} trips without coordinates", err=True)
        return found.updates, found.skipped, given | {"unit": "km"}
    return *data.read_updates(updates, skip_bad, nodes), given


def _size_of(stream: list[Any]) -> tuple[int, int]:
    """Largest number of points present at once, and their dimension."""
    present = peak = 0
    dim = 1
    for update in stream:
        present += (update.op == "insert") - (update.op == "delete")
        peak = max(peak, present)
        dim = len(update.point) if update.point is not None and dim == 1 else dim
    return peak, dim


def _choose(method: str, given: dict[str, Any], p: float, peak: int) -> str:
    if method != "auto":
        return method
    if "matrix" in given:
        return "hub"
    return "grid" if p == 1 and peak > 400 else "exact"


def _start(
    snapshot: Path | None, method: str, dim: int, given: dict[str, Any], options: dict[str, Any], certify: bool
) -> Any:
    from dynmatch.exact import ExactMatcher
    from dynmatch.factory import make_matcher
    from dynmatch.runner import Run

    if snapshot is not None and snapshot.exists():
        return Run.load(snapshot)
    try:
        matcher = make_matcher(method, dim, **given, **options)
        shadow = ExactMatcher(given["metric"], options["p"], matrix=given.get("matrix")) if certify else None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error
    return Run(matcher, shadow)


def _compile(method: str, dim: int, given: dict[str, Any], options: dict[str, Any], certify: bool) -> None:
    """Have numba compile (or load) the kernels, so that the first update is timed and forecast like the others."""
    if "matrix" in given:  # a second hierarchy on the whole matrix can cost more than the kernels
        return
    trial = _start(None, method, dim, given, options, certify)
    with progress("compiling the kernels (only once)"):
        for matcher in (trial.matcher, trial.shadow):
            if matcher is not None:
                first = matcher.insert("A", [0.0] * dim)
                matcher.insert("B", [1.0] * dim)
                matcher.delete(first)


def _print_row(row: dict[str, Any], shown: int) -> int:
    if shown % 20 == 0:
        typer.echo("".join(f"{name:>13}" for name in SHOWN))
    cells = ["-" if row[name] is None else f"{row[name]:.5g}" for name in SHOWN]
    typer.echo("".join(f"{cell:>13}" for cell in cells))
    return shown + 1


def _write(folder: Path, run: Any, method: str, p: float, unit: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dynmatch.figures import draw_cost, draw_latency
    from papers_shared.artifacts import atomic_path, write_csv

    with atomic_path(folder / "costs.parquet") as temporary:
        pq.write_table(pa.Table.from_pylist(run.rows), temporary)
    ids_a, ids_b, distances = run.matcher.pairs()
    write_csv(folder / "matching.csv", zip(ids_a, ids_b, distances.tolist(), strict=True), ("a", "b", "distance"))
    draw_cost(folder / "cost.png", run.rows, f"Running W_{p:g}, {method}", unit, force=True)
    draw_latency(folder / "latency.png", run.rows, method, force=True)


@app.command()
def static(
    a: Annotated[Path, typer.Argument(help="Points of A: npy, npz, csv or parquet.")],
    b: Annotated[Path, typer.Argument(help="Points of B.")],
    method: Method = "auto",
    metric: Norm = "l2",
    p: Exponent = 1.0,
    eps: Eps = None,
    k: Depth = 2,
    out: Annotated[Path | None, typer.Option(help="Write the pairs to this csv.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace that file.")] = False,
    seed: Annotated[int, typer.Option(help="Of shifts and hierarchies.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Match two fixed sets of points without a distance matrix."""
    from dynmatch.data import read_points
    from dynmatch.factory import match
    from papers_shared.artifacts import refuse_existing, write_csv

    if out is not None:
        refuse_existing(out, force)
    first, second = read_points(a), read_points(b)
    if first.shape[1] != second.shape[1]:
        raise InputError(f"{a} has points of {first.shape[1]} coordinates, {b} of {second.shape[1]}")
    try:
        found = match(first, second, method, metric=metric, p=p, eps=eps, k=k, seed=seed)
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error
    answer = {
        "n_a": len(first),
        "n_b": len(second),
        "pairs": len(found.rows),
        "cost": found.cost,
        "lower_bound": found.lower_bound,
    }
    if out is not None:
        columns = zip(found.rows.tolist(), found.columns.tolist(), found.distances.tolist(), strict=True)
        write_csv(out, columns, ("row_a", "row_b", "distance"), force=force)
    if json:
        emit_json(answer)
    else:
        table([answer])


@app.command()
def stream(
    window: Annotated[int, typer.Option(min=1, help="Points in the sliding window.")] = 1000,
    reference: Annotated[
        Path | None, typer.Option(help="Points to compare with; without it, stdin gives updates.")
    ] = None,
    method: Method = "auto",
    metric: Norm = "l2",
    p: Exponent = 1.0,
    eps: Eps = None,
    k: Depth = 2,
    dim: Annotated[int | None, typer.Option(help="Coordinates of a point, for a grid fed with updates.")] = None,
    state: Annotated[Path | None, typer.Option(help="Folder for snapshots and the log, to survive a kill.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from that folder.")] = False,
    snapshot_every: Annotated[int, typer.Option(min=1, help="Lines between snapshots.")] = 1000,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Answer nan to a malformed line and go on.")] = False,
    seed: Annotated[int, typer.Option(help="Of shifts and hierarchies.")] = 0,
) -> None:
    """Read JSON lines from stdin and print the distance after each, flushed: a service on a pipe."""
    import sys

    from dynmatch.live import Live
    from dynmatch.service import Journal

    if resume and state is None:
        raise InputError("--resume needs --state", hint="name the folder of the earlier stream")
    journal = None if state is None else Journal(state, snapshot_every)
    if journal is not None and journal.used() and not resume:
        raise InputError(f"{state} holds an earlier stream", hint="pass --resume, or choose another folder")
    options = {"method": method, "metric": metric, "p": p, "eps": eps, "k": k, "seed": seed}
    live = Live(reference, window, dim, options, journal)
    if journal is not None and resume:
        live.recover()
        if not quiet():
            typer.echo(f"resumed after {journal.done} lines at {live.distance()!r}", err=True)
    try:
        _answer(sys.stdin, live, skip_bad)
    except KeyboardInterrupt:
        if journal is not None:
            raise
        typer.echo("interrupted; nothing was kept. With --state DIR a later --resume continues", err=True)
        raise typer.Exit(130) from None


def _answer(lines: Iterable[str], live: Live, skip_bad: bool) -> None:
    """Print a distance for each line as it comes."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = live.take(line)
        except InputError as error:
            if not skip_bad:
                raise InputError(f"line {number}: {error.message}", hint="--skip-bad goes on") from error
            answer = float("nan")
        typer.echo(repr(answer))


@app.command()
def compare(
    updates: Annotated[
        Path | None, typer.Argument(help="Updates or taxi trips; by default two Gaussian clouds.")
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Updates between solves from scratch.")] = 100,
    size: Annotated[int, typer.Option(min=4, help="Points a side of the default stream.")] = 300,
    seed: Annotated[int, typer.Option(help="Of everything.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Run all methods and the installed peers on the same stream: W_1 over the exact one, and time per answer."""
    from dynmatch import streams
    from dynmatch.compare import run_all

    stream_ = streams.window_clouds(size, 4 * size, seed) if updates is None else _stream(updates, "l2", False, seed)[0]
    with progress("comparing", total=len(stream_)) as bar:
        rows = run_all(stream_, every, seed, bar.advance)
    emit_json(rows) if json else table(rows)


@app.command()
def gen(
    out: Annotated[Path, typer.Argument(help="Where to write: csv, jsonl or parquet.")],
    kind: Annotated[str, typer.Option(help="city, digits, graph, gaussian, deletions or adversarial.")] = "city",
    updates: Annotated[int, typer.Option(min=1, help="How many updates.")] = 3000,
    live: Annotated[int, typer.Option(min=2, help="Points a side, about.")] = 500,
    dim: Annotated[int, typer.Option(min=1, help="Coordinates, where the kind leaves a choice.")] = 2,
    seed: Annotated[int, typer.Option(help="Of the stream.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write an update stream to a file; for a graph, also the metric, to give to ``match --metric``."""
    from dynmatch import streams
    from dynmatch.data import write_updates
    from papers_shared.artifacts import refuse_existing, write_npz

    matrix_file = out.with_suffix(".metric.npz")
    if kind == "graph":
        refuse_existing(matrix_file, force)
    write_updates(out, streams.make(kind, updates, live, dim, seed), force)
    if kind == "graph":
        write_npz(matrix_file, {"metric": streams.graph(1, live, seed)[1]}, force=force)
        if not quiet():
            typer.echo(f"its metric is in {matrix_file}", err=True)


match_script = verb(app, "match")

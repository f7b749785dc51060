"""Commands on whole lists: candidates, deduplication, review."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared.cli import emit_json, progress, quiet, table
from papers_shared.errors import InputError
from sanctionspairs.cli import Force, Json, SkipBad, _exit_if_bad, app

Entities = Annotated[
    Path | None, typer.Argument(help="FollowTheMoney entities, one a line.  [default: SanctionsSim's]")
]
K = Annotated[int, typer.Option("--k", min=1, help="Candidates kept per record.")]
MaxBlock = Annotated[int, typer.Option(min=2, help="Most records compared because of one key.")]


def _entities(path: Path | None, skip_bad: bool, most: int | None) -> tuple[list[Any], list[str] | None, Any]:
    """Return records, their truth if it is known, and what reading met."""
    from itertools import islice

    from sanctionspairs import data
    from sanctionspairs.io import ReadStats, read_entities

    read = ReadStats()
    if path is None:
        made = data.default()
        records = made.entities[:most]
        return records, [made.truth[str(record.id)] for record in records], read
    records = list(islice(read_entities(path, skip_bad=skip_bad, stats=read), most))
    if not records:
        raise InputError(f"{path} holds no entity")
    return records, None, read


@app.command()
def block(
    entities: Entities = None,
    k: K = 50,
    max_block: MaxBlock = 200,
    most: Annotated[int | None, typer.Option("--first", min=2, help="Take only so many records.")] = None,
    out: Annotated[Path, typer.Option(help="Parquet file of pairs.")] = Path("candidates.parquet"),
    partitions: Annotated[int | None, typer.Option(min=1, help="Write keys as so many parquet parts instead.")] = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Find the pairs of a list that are worth comparing."""
    import pandas as pd

    from papers_shared.artifacts import atomic_path, refuse_existing
    from sanctionspairs.blocking import BlockingStats, candidates, quality, write_partitions

    refuse_existing(out, force)
    records, truth, read = _entities(entities, skip_bad, most)
    if partitions is not None:
        paths = write_partitions(records, out.with_suffix(""), partitions)
        typer.echo(f"{len(paths)} parts are in {out.with_suffix('')}")
        return
    common = BlockingStats()
    with progress("blocking"):
        found = candidates(records, k, max_block, stats=common)
    frame = pd.DataFrame(
        {"left_id": [records[i].id for i in found[:, 0]], "right_id": [records[j].id for j in found[:, 1]]}
    )
    with atomic_path(out, force=force) as path:
        frame.to_parquet(path, index=False)
    n = len(records)
    answer = {
        "records": n,
        "candidates": len(found),
        "reduction": 1 - len(found) / max(1, n * (n - 1) / 2),
        **common.__dict__,
    }
    if truth is not None:
        answer["completeness"] = quality(found, truth).completeness
    emit_json(answer) if json else table([{"what": name, "value": value} for name, value in answer.items()])
    _exit_if_bad(read)


@app.command()
def dedupe(
    entities: Entities = None,
    matcher: Annotated[str, typer.Option(help="Which matcher scores candidates.")] = "pairnet",
    cut: Annotated[float, typer.Option(help="Probability that is no evidence either way.")] = 0.5,
    method: Annotated[str, typer.Option(help="correlation, components or average.")] = "correlation",
    edges: Annotated[Path | None, typer.Option(help="Judged pairs as resolver edges; negatives keep apart.")] = None,
    k: K = 50,
    max_block: MaxBlock = 200,
    most: Annotated[int | None, typer.Option("--first", min=2, help="Take only so many records.")] = None,
    queue: Annotated[int, typer.Option(min=0, help="Pairs put into the review queue.")] = 200,
    out: Annotated[Path | None, typer.Option(help="Folder.  [default: the next dedupe-run]")] = None,
    skip_bad: SkipBad = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Group a list's records into entities and queue the pairs that people should look at."""
    import numpy as np
    import pandas as pd

    from papers_shared.artifacts import RunDir, atomic_path, free_folder, write_csv, write_json
    from sanctionspairs.cluster import bcubed, largest, pairwise, violations
    from sanctionspairs.dedupe import dedupe as run_dedupe
    from sanctionspairs.dedupe import queue_of
    from sanctionspairs.matchers import get
    from sanctionspairs.review import make_queue, read_edges

    if not 0 < cut < 1:
        raise InputError(f"--cut {cut}: want a probability between 0 and 1")
    records, truth, read = _entities(entities, skip_bad, most)
    judged = [] if edges is None else read_edges(edges)
    scorer = get(matcher)
    if not scorer.trained:
        raise InputError(f"--matcher {matcher} needs training pairs", hint="use pairnet, regression-v1, logic-v2, ...")
    config = {"entities": str(entities or "SanctionsSim"), "matcher": matcher, "cut": cut, "method": method,
              "edges": str(edges), "k": k, "max_block": max_block, "first": most}  # fmt: skip
    with RunDir(
        out or free_folder("dedupe-run"), package="sanctionspairs", config=config, force=force, resume=None
    ) as run:
        with progress("blocking and scoring") as bar:
            found = run_dedupe(
                records, scorer, cut=cut, method=method, edges=judged, k=k, max_block=max_block, done=bar.advance
            )
        rows = zip([str(record.id) for record in records], found.clusters.tolist(), strict=True)
        write_csv(run / "clusters.csv", rows, ["id", "cluster"])
        pairs = pd.DataFrame(
            {
                "left_id": [records[i].id for i in found.pairs[:, 0]],
                "right_id": [records[j].id for j in found.pairs[:, 1]],
                "probability": found.probability,
            }
        )
        with atomic_path(run / "candidates.parquet") as path:
            pairs.to_parquet(path, index=False)
        items = queue_of(found, records, scorer, queue)
        if items:
            make_queue(run / "queue.jsonl", items, force=True)
        answer: dict[str, Any] = {
            "records": len(records),
            "candidates": len(found.pairs),
            "entities": int(found.clusters.max()) + 1,
            "largest": largest(found.clusters),
            "cannot-links broken": violations(found.clusters, found.cannot),
            "pairs to review": len(items),
        }
        if truth is not None:
            actual = np.unique(truth, return_inverse=True)[1]
            answer |= dict(
                zip(("B-cubed precision", "B-cubed recall", "B-cubed F1"), bcubed(found.clusters, actual), strict=True)
            )
            answer["pairwise F1"] = pairwise(found.clusters, actual)[2]
        write_json(
            run / "report.json", answer | {"blocking": found.stats.__dict__, "provenance": run.manifest["provenance"]}
        )
    if json:
        emit_json(answer | {"folder": str(run.path)})
    else:
        table([{"what": name, "value": value} for name, value in answer.items()])
        typer.echo(f"clusters.csv, candidates.parquet and report.json are in {run.path}")
        if items:
            typer.echo(f"look at the doubtful pairs: sanctionspairs review {run.path / 'queue.jsonl'}")
    _exit_if_bad(read)


@app.command()
def review(
    queue: Annotated[Path, typer.Argument(help="The queue.jsonl that matchpairs or dedupe left.")],
    serve: Annotated[str | None, typer.Option(help="Serve it to a browser at HOST:PORT, as 127.0.0.1:8765.")] = None,
    user: Annotated[str | None, typer.Option(help="Who decides.  [default: the login name]")] = None,
    cost: Annotated[float, typer.Option(help="Cost of one wrong pair.")] = 1.0,
    export: Annotated[Path | None, typer.Option(help="Write the decisions as resolver edges and stop.")] = None,
    load: Annotated[Path | None, typer.Option("--import", help="Take decisions from resolver edges and stop.")] = None,
    force: Force = False,
) -> None:
    """Decide pairs in the terminal or a browser: y same, n different, u unsure, z undo."""
    from sanctionspairs.review import Queue
    from sanctionspairs.terminal import review as in_terminal

    opened = Queue(queue, cost)
    if export is not None:
        typer.echo(f"{opened.export_edges(export, force=force)} decisions are in {export}")
        return
    if load is not None:
        typer.echo(f"{opened.import_edges(load)} decisions taken from {load}")
        return
    if serve is not None:
        from sanctionspairs.web import serve as in_browser

        if not quiet():
            typer.echo(f"open http://{serve}/ (Ctrl-C ends; every decision is kept at once)", err=True)
        in_browser(opened, serve, user=user)
        return
    done = in_terminal(opened, user=user)
    typer.echo(f"{done['decided']} decided, {done['undone']} taken back, {done['left']} left in {queue}")

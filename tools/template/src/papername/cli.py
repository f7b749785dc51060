"""The command line: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from papers_shared.artifacts import refuse_existing, write_figure
from papers_shared.cli import emit_json, paper_app, table, track, verb

app = paper_app("papername", help="Mean and variance of a stream in one pass, without losing digits.")


@app.command()
def paperverb(
    file: Annotated[Path | None, typer.Argument(help="One number per line.  [default: embedded readings]")] = None,
    chunk: Annotated[int, typer.Option(min=1, help="Values per update.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the embedded readings.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw how the variance settles: .png, .svg or .pdf.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the figure if it is there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Print count, mean and variance of a column of numbers."""
    from papername import data
    from papername.variance import empty, update

    if figure is not None:
        refuse_existing(figure, force)  # before the work, not after it
    values = data.default(seed) if file is None else data.read_column(file)
    state, path = empty(), []
    for start in track(range(0, len(values), chunk), "reading"):
        state = update(state, values[start : start + chunk])
        path.append(state)
    if figure is not None:
        from papername.figures import draw_settling

        write_figure(
            figure, draw_settling(path), "Band: one standard error to either side, for normal values.", force=force
        )
    answer = {"count": state.count, "mean": state.mean, "variance": state.variance}
    if json:
        emit_json(answer)
    else:
        table([answer])


paperverb_script = verb(app, "paperverb")

"""The command line: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from papers_shared.cli import emit_json, paper_app, table, verb

app = paper_app("evalcards", help="Mean and variance of a stream in one pass, without losing digits.")


@app.command()
def evalcard(
    file: Annotated[Path | None, typer.Argument(help="One number per line.  [default: embedded readings]")] = None,
    chunk: Annotated[int, typer.Option(min=1, help="Values per update.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the embedded readings.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Print count, mean and variance of a column of numbers."""
    from evalcards import data
    from evalcards.variance import empty, update

    values = data.default(seed) if file is None else data.read_column(file)
    state = empty()
    for start in range(0, len(values), chunk):
        state = update(state, values[start : start + chunk])
    answer = {"count": state.count, "mean": state.mean, "variance": state.variance}
    if json:
        emit_json(answer)
    else:
        table([answer])


evalcard_script = verb(app, "evalcard")

"""Commands about prompts and timings: optimise, prompts, bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from papers_shared.cli import emit_json, progress, table
from sanctionspairs.cli import BaseUrl, Force, Json, Model, Parallel, Registry, Seed, SkipBad, _read, app


@app.command()
def optimise(
    pairs: Annotated[Path | None, typer.Argument(help="Judged pairs.  [default: SanctionsSim]")] = None,
    model: Model = "openai:gpt-4o-mini",
    base_url: BaseUrl = None,
    prompt_id: Annotated[str, typer.Option("--id", help="Name of the prompt in the registry.")] = "mipro",
    n: Annotated[int, typer.Option("--sample", min=20, help="Pairs to optimise on.")] = 200,
    metric: Annotated[str, typer.Option(help="exact, or negatives with 1.5 for a right negative.")] = "exact",
    candidates: Annotated[int, typer.Option(min=2, help="Instructions and example sets proposed.")] = 15,
    temperature: Annotated[float, typer.Option(help="Temperature of the proposals.")] = 1.0,
    demos: Annotated[int, typer.Option(min=0, help="Most examples; 0 is zero-shot.")] = 8,
    trials: Annotated[int | None, typer.Option(min=1, help="Prompts tried.  [default: MIPROv2's rule]")] = None,
    framing: Annotated[str, typer.Option(help="Instruction to start from.")] = "conflict",
    parallel: Parallel = 8,
    registry: Registry = Path("prompts"),
    skip_bad: SkipBad = False,
    seed: Seed = 42,
    force: Force = False,
    json: Json = False,
) -> None:
    """Search a prompt for a model with DSPy's MIPROv2 and save it for --load-prompt."""
    from papers_shared.artifacts import refuse_existing
    from sanctionspairs.mipro import optimise as search
    from sanctionspairs.prompts import Registry as Saved
    from sanctionspairs.split import stratified

    refuse_existing(registry / f"{prompt_id}.json", force)
    found, _ = _read(pairs, skip_bad)
    scored = [pair for pair in found if pair.scored]
    sample = stratified(scored, min(n, len(scored)), seed)
    with progress("optimising"):
        prompt = search(
            [*sample[0], *sample[1]], model, base_url, prompt_id=prompt_id, metric=metric, num_candidates=candidates,
            init_temperature=temperature, max_demos=demos, trials=trials, framing=framing, parallel=parallel, seed=seed,
        )  # fmt: skip
    path = Saved(registry).save(prompt, force=force)
    if json:
        emit_json({"prompt": prompt_id, "file": str(path), **prompt.provenance})
    else:
        table([{"what": name, "value": value} for name, value in prompt.provenance.items()])
        typer.echo(f"saved as {path}; replay it with --load-prompt {prompt_id} --registry {registry}")


@app.command()
def prompts(
    prompt_id: Annotated[str | None, typer.Argument(help="Show this prompt.  [default: list all]")] = None,
    registry: Registry = Path("prompts"),
    json: Json = False,
) -> None:
    """List saved prompts, or show one."""
    from sanctionspairs.prompts import Registry as Saved

    saved = Saved(registry)
    if prompt_id is None:
        rows = []
        for name in saved.names():
            prompt = saved.load(name)
            row = {"prompt": name, "model": prompt.model, "dev F1": prompt.provenance.get("dev_f1")}
            rows.append(row | {"examples": len(prompt.demonstrations) // 2, "made": prompt.provenance.get("date")})
        if json:
            emit_json(rows)
        elif rows:
            table(rows)
        else:
            typer.echo(f"no prompt is saved in {registry}")
        return
    prompt = saved.load(prompt_id)
    if json:
        emit_json({**prompt.__dict__, "demonstrations": list(prompt.demonstrations)})
        return
    typer.echo(prompt.system_prompt)
    for message in prompt.demonstrations:
        typer.echo(f"\n[{message['role']}]\n{message['content']}")


@app.command()
def bench(
    n: Annotated[int, typer.Option("--pairs", min=10, help="Pairs timed.")] = 2000,
    json: Json = False,
) -> None:
    """Time the batched production model against the library's loop, here."""
    import time

    import numpy as np
    from nomenklatura.matching import RegressionV1
    from nomenklatura.matching.types import ScoringConfig

    from sanctionspairs import data
    from sanctionspairs.regression import Regression

    pairs = data.default().pairs[:n]
    config = ScoringConfig.defaults()
    Regression().score(pairs[:20])
    with progress("timing", total=2) as bar:
        begun = time.perf_counter()
        loop = np.array([RegressionV1.compare(pair.left, pair.right, config).score for pair in pairs])
        middle = time.perf_counter()
        bar.advance(note="library's loop")
        batch = Regression().score(pairs)
        ended = time.perf_counter()
        bar.advance(note="batch")
    answer = {
        "pairs": len(pairs),
        "library us/pair": 1e6 * (middle - begun) / len(pairs),
        "batch us/pair": 1e6 * (ended - middle) / len(pairs),
        "ratio": (middle - begun) / (ended - middle),
        "largest difference": float(np.abs(batch - loop).max()),
    }
    emit_json(answer) if json else table([{"what": name, "value": value} for name, value in answer.items()])

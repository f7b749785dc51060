"""The command line: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared.cli import emit_json, paper_app, progress, quiet, table, verb
from papers_shared.errors import InputError

app = paper_app(
    "sanctionspairs", help="Match records of sanctions lists, see why, and dedupe lists with people's help."
)

Seed = Annotated[int, typer.Option(min=0, help="Seed of splits and draws.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the unfinished run in the folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out lines that cannot be read; exit 3 above 1%.")]
Model = Annotated[
    str, typer.Option("--model", help="openai:NAME, URL#NAME, smollm2, gguf:FILE, hf:FOLDER, replay:FILE.")
]
BaseUrl = Annotated[str | None, typer.Option(help="Server of openai:NAME; the key is OPENAI_API_KEY's.")]
Parallel = Annotated[int, typer.Option(min=1, help="Most requests at once.")]
Cache = Annotated[Path | None, typer.Option(help="Folder that keeps each answer.  [default: in the run's folder]")]
Registry = Annotated[Path, typer.Option(help="Folder of saved prompts.")]
Matchers = Annotated[
    list[str] | None,
    typer.Option("--matcher", help="always, fuzzy, regression-v1, regression-v1-refit, logic-v2, name-qualified, "
                 "er-unstable, ofac, pairnet, cascade, llm, splink; repeat.  [default: regression-v1 and pairnet]"),
]  # fmt: skip


def _read(pairs: Path | None, skip_bad: bool, most: int | None = None) -> tuple[list[Any], Any]:
    from itertools import islice

    from sanctionspairs import data
    from sanctionspairs.io import ReadStats, read_pairs

    stats = ReadStats()
    if pairs is None:
        found = data.default().pairs
        stats.read = len(found)
        return found, stats
    with progress(f"reading {pairs.name}") as bar:
        found = []
        for pair in islice(read_pairs(pairs, skip_bad=skip_bad, stats=stats), most):
            found.append(pair)
            if len(found) % 1000 == 0:
                bar.advance(1000)
    return found, stats


def _exit_if_bad(stats: Any) -> None:
    if stats.too_many_bad:
        typer.echo(
            f"error: {len(stats.skipped)} of {stats.read + len(stats.skipped)} lines were bad, more than 1%", err=True
        )
        raise typer.Exit(3)


def _make(names: list[str], settings: dict[str, Any]) -> list[Any]:
    from sanctionspairs.matchers import get

    made = []
    for name in dict.fromkeys(names):
        chosen: dict[str, Any] = {}
        if name.startswith("regression-v1"):
            chosen = {"symmetric": settings["symmetric"], "name_floor": settings["name_floor"]}
        elif name == "pairnet":
            chosen = {"untrained": settings["refit"]}
        elif name == "llm":
            chosen = settings["llm"]
        elif name == "cascade":
            costs = {key: settings[key] for key in ("c_fp", "c_fn", "c_call")}
            inner = get("llm", **settings["llm"]) if settings["inner"] == "llm" else get(settings["inner"])
            chosen = {"inner": inner, **costs}
        made.append(get(name, **chosen))
    return made


@app.command()
def matchpairs(
    pairs: Annotated[
        Path | None, typer.Argument(help="Judged pairs: JSON Lines, .gz, array.  [default: --demo]")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Use the embedded SanctionsSim.")] = False,
    matcher: Matchers = None,
    n: Annotated[int | None, typer.Option("--sample", min=10, help="Draw so many pairs, labels in proportion.")] = None,
    dev: Annotated[
        float | None, typer.Option(help="Share of the pairs that tunes.  [default: 0.2; 0.5 of held-out SanctionsSim]")
    ] = None,
    target_error: Annotated[float, typer.Option(help="Error rate that decided pairs may have.")] = 0.01,
    out: Annotated[Path | None, typer.Option(help="Folder.  [default: the next matchpairs-run]")] = None,
    explain: Annotated[
        str | None, typer.Option(help="Say what the score of the pair with this record id is made of.")
    ] = None,
    refit: Annotated[bool, typer.Option("--refit", help="Train pairnet on these pairs (needs torch).")] = False,
    symmetric: Annotated[bool, typer.Option("--symmetric", help="Score both orders, take the larger.")] = False,
    name_floor: Annotated[float | None, typer.Option(help="Name evidence below which scores are scaled down.")] = None,
    ofac: Annotated[bool, typer.Option(help="Add OFAC's own name score to scores.parquet.")] = True,
    queue: Annotated[int, typer.Option(min=0, help="Abstained pairs put into queue.jsonl for review.")] = 200,
    model: Model = "smollm2",
    base_url: BaseUrl = None,
    framing: Annotated[str, typer.Option(help="conflict or conservative.")] = "conflict",
    shots: Annotated[int, typer.Option(min=0, help="Few-shot examples from dev.")] = 0,
    selection: Annotated[str, typer.Option(help="balanced, random, diverse or curated.")] = "balanced",
    ternary: Annotated[bool, typer.Option("--ternary", help="Let the model answer uncertain.")] = False,
    parallel: Parallel = 30,
    max_cost: Annotated[float | None, typer.Option("--max-cost", help="Stop after so many dollars.")] = None,
    price: Annotated[str, typer.Option(help="Dollars per million prompt and completion tokens.")] = "0.15,0.60",
    cache: Cache = None,
    load_prompt: Annotated[str | None, typer.Option("--load-prompt", help="Id or file of a saved prompt.")] = None,
    registry: Registry = Path("prompts"),
    inner: Annotated[str, typer.Option(help="The cascade's expensive matcher.")] = "pairnet",
    c_fp: Annotated[float, typer.Option(help="The cascade's cost of a wrong yes.")] = 1.0,
    c_fn: Annotated[float, typer.Option(help="Its cost of a wrong no.")] = 1.0,
    c_call: Annotated[float, typer.Option(help="Its cost of asking the expensive matcher.")] = 0.01,
    skip_bad: SkipBad = False,
    seed: Seed = 42,
    resume: Resume = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Compare matchers on judged pairs: figures, errors by kind, when to abstain, and why a pair was decided."""
    from papers_shared.artifacts import RunDir, free_folder
    from sanctionspairs import study as studies

    if demo and pairs is not None:
        raise InputError("give a file or --demo, not both")
    if resume and out is None:
        raise InputError("--resume needs --out", hint="name the folder of the run to go on with")
    names = matcher or ["regression-v1", "pairnet"]
    prices = _prices(price)
    config = {"pairs": str(pairs or "SanctionsSim"), "matchers": names, "sample": n, "dev": dev, "refit": refit,
              "symmetric": symmetric, "name_floor": name_floor, "model": model, "framing": framing, "shots": shots,
              "selection": selection, "ternary": ternary, "prompt": load_prompt, "inner": inner,
              "costs": [c_fp, c_fn, c_call]}  # fmt: skip
    found, stats = _read(pairs, skip_bad)
    with RunDir(
        out or free_folder("matchpairs-run"),
        package="sanctionspairs",
        config=config,
        seed=seed,
        resume=resume,
        force=force,
    ) as run:
        llm = {"model": model, "base_url": base_url, "framing": framing, "shots": shots, "selection": selection,
               "ternary": ternary, "parallel": parallel, "cache": str(cache or run.path / "answers"),
               "max_cost": max_cost, "prices": prices, "prompt": load_prompt, "registry": str(registry),
               "seed": seed}  # fmt: skip
        settings = {"symmetric": symmetric, "name_floor": name_floor, "refit": refit, "llm": llm, "inner": inner,
                    "c_fp": c_fp, "c_fn": c_fn, "c_call": c_call}  # fmt: skip
        made = _make(names, settings)
        trains = any(not m.trained and m.name in ("regression-v1-refit", "pairnet") for m in made)
        shipped = pairs is None and any(m.name in ("pairnet", "cascade") for m in made)
        share = dev if dev is not None else 0.5 if shipped and not trains else 0.2
        split = studies.make_split(found, n=n, dev=share, seed=seed, with_train=trains, held_out=shipped and not trains)
        with progress("scoring", total=len(made) * (len(split.dev) + len(split.test))) as bar:
            study = studies.run_study(
                split, made, alpha=target_error, folder=run.path, done=lambda name, k: bar.advance(k, note=name)
            )
        answer = _write(run, study, found, stats, made, ofac, queue)
        if explain is not None:
            answer["explain"] = _explain(explain, found, made)
    if json:
        emit_json(answer | {"folder": str(run.path)})
    else:
        _print(study, stats, answer, run.path)
    _exit_if_bad(stats)


def _prices(text: str) -> tuple[float, float]:
    try:
        prompt, completion = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--price {text}: want two numbers", hint="dollars per million tokens, as 0.15,0.60"
        ) from error
    return prompt, completion


def _write(
    run: Any, study: Any, pairs: list[Any], stats: Any, made: list[Any], ofac: bool, queue: int
) -> dict[str, Any]:
    """Write everything that a comparison leaves; returns what report.json holds."""
    import numpy as np

    from papers_shared.artifacts import atomic_path, write_json, write_text
    from sanctionspairs import report
    from sanctionspairs.matchers import Library
    from sanctionspairs.review import make_queue, queue_items
    from sanctionspairs.study import score_frame

    facts = report.corpus_facts(pairs)
    listed = Library("ofac").score(study.split.test) if ofac else None
    frame = score_frame(study, listed)
    with atomic_path(run / "scores.parquet") as path:
        frame.to_parquet(path, index=False)
    report.write_figures(study, run.path)
    answer = report.as_json(study, stats, facts)
    by_name = {matcher.name: matcher for matcher in made}
    write_text(run / "report.html", report.as_html(study, run.path, facts, by_name))
    last = list(study.results.values())[-1]
    doubtful = np.flatnonzero(last.decided == -1)
    order = doubtful[np.argsort(-np.nan_to_num(np.minimum(last.probability, 1 - last.probability)[doubtful], nan=0.5))]
    order = order[:queue]
    if len(order):
        chosen = [study.split.test[i] for i in order]
        why = [{} if last.name.startswith(("llm", "splink")) else by_name[last.name].explain(pair) for pair in chosen]
        items = queue_items(chosen, last.probability[order].tolist(), why, [study.tagged[i] for i in order])
        make_queue(run / "queue.jsonl", items, force=True)
    answer["queue"] = len(order)
    write_json(run / "report.json", answer | {"provenance": run.manifest["provenance"]})
    return answer


def _explain(wanted: str, pairs: list[Any], made: list[Any]) -> dict[str, Any]:
    for pair in pairs:
        if wanted in (pair.id, pair.left.id, pair.right.id):
            return {
                "pair": pair.id,
                "judgement": pair.judgement,
                "matchers": {m.name: {"score": float(m.score([pair])[0]), "parts": m.explain(pair)} for m in made},
            }
    raise InputError(f"--explain {wanted}: no pair has a record of this id")


def _print(study: Any, stats: Any, answer: dict[str, Any], folder: Path) -> None:
    from sanctionspairs import report

    table(report.main_rows(study))
    always = next(iter(study.results.values())).report
    typer.echo(f"always yes: F1 {always.always_f1:.3f} ({always.positives} of {always.n} test pairs are positive)")
    typer.echo(f"{study.split.how}: {len(study.split.dev)} dev, {len(study.split.test)} test pairs\n")
    rows = report.tag_rows(study)
    if rows:
        table(rows, title="errors by kind (lift over the matcher's overall rate)")
    typer.echo("\n" + report.band_sentence(study).replace(". ", ".\n"))
    for name, result in study.results.items():
        if result.partial:
            typer.echo(
                f"{name} is partial: the cost limit was reached, {result.report.unanswered} pairs were not asked"
            )
    if "explain" in answer:
        for name, found in answer["explain"]["matchers"].items():
            parts = sorted(found["parts"].items(), key=lambda item: -abs(item[1]))
            about = f"{answer['explain']['pair']} ({answer['explain']['judgement']})"
            rows = [{"part": part, "value": f"{value:+.4f}"} for part, value in parts]
            table(rows, title=f"\n{name} gives {about} {found['score']:.4f}")
    if stats.coerced or stats.skipped:
        typer.echo(
            f"{stats.coerced} values were not lists of text and were made so; {len(stats.skipped)} lines were skipped"
        )
    typer.echo(f"report.html, report.json, scores.parquet and three figures are in {folder}")
    if answer["queue"]:
        typer.echo(f"{answer['queue']} doubtful pairs wait for you: sanctionspairs review {folder / 'queue.jsonl'}")


matchpairs_script = verb(app, "matchpairs")


@app.command("demo-data")
def demo_data(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("sanctions-sim"),
    n: Annotated[int, typer.Option("--pairs", min=50, help="How many pairs.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed.")] = 2026,
    force: Force = False,
) -> None:
    """Make SanctionsSim anew: judged pairs in the public format, and the truth."""
    from sanctionspairs.data import write_default

    with progress("simulating"):
        paths = write_default(out, n, seed, force=force)
    typer.echo(f"{n} pairs are in {paths[0]}, which entity each record describes in {paths[1]}")


@app.command()
def stats(
    pairs: Annotated[Path | None, typer.Argument(help="Pairs.  [default: SanctionsSim]")] = None,
    skip_bad: SkipBad = False,
    json: Json = False,
) -> None:
    """Describe pairs beside what the paper states of its corpus."""
    from sanctionspairs.report import corpus_facts

    found, read = _read(pairs, skip_bad)
    if not any(pair.scored for pair in found):
        raise InputError("no pair is judged positive or negative")
    rows = [
        {"fact": name, "paper's corpus": paper, "here": here} for name, (paper, here) in corpus_facts(found).items()
    ]
    if json:
        emit_json({"pairs": len(found), "judgements": read.judgements, "facts": rows})
    else:
        table([*rows, {"fact": "pairs", "paper's corpus": 755_540, "here": len(found)}])
    _exit_if_bad(read)


# The other commands live beside this file; importing them mounts them on the app.
from sanctionspairs import cli_lists, cli_prompts  # noqa: E402, F401

__all__ = ["app", "matchpairs_script", "quiet"]

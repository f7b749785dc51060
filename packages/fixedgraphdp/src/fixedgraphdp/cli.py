"""The command line: parse, call the library, print."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from papers_shared.cli import emit_json, paper_app, progress, table, verb
from papers_shared.errors import InputError

log = logging.getLogger(__name__)
app = paper_app("fixedgraphdp", help="Differential privacy for users when every example belongs to several of them.")

Pairs = Annotated[
    Path | None,
    typer.Argument(help="Who owns what: .csv or .parquet (example_id,user_id), .mbox, maildir, .jsonl, .txt."),
]
Embedded = Annotated[str, typer.Option("--graph", help="Embedded graph to take when no file is given.")]
Dedupe = Annotated[bool, typer.Option("--dedupe", help="Drop repeated (example, user) pairs.")]
PublicEmpty = Annotated[bool, typer.Option("--public-empty", help="Keep examples without users, as public data.")]
Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all random choices.")]
NoiseSeed = Annotated[int | None, typer.Option(min=0, help="Makes the noise repeatable, and so not secret.")]
Delta = Annotated[float, typer.Option(help="Delta of the privacy guarantee.")]
TimeLimit = Annotated[float, typer.Option(min=0, help="Seconds for the linear programmes; bounds stay valid.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left in the folder.")]


def _graph(pairs: Path | None, name: str, dedupe: bool = False, public_empty: bool = False) -> Any:
    from fixedgraphdp import data

    if pairs is None:
        return data.Reading(data.embedded(name), [])
    reading = data.read(pairs, dedupe=dedupe, empty="public" if public_empty else "error")
    if reading.skipped:
        # Every verb's answer is about what could be read, so every verb says what could not.
        log.warning("%s: %d skipped, first: %s", pairs, len(reading.skipped), reading.skipped[0])
    return reading


@app.command()
def bound(
    pairs: Pairs = None,
    k: Annotated[int | None, typer.Option(help="Examples per user.  [default: the recommended k]")] = None,
    method: Annotated[str, typer.Option(help="greedy, greedy-then-swap, rounds, online, lp or exact.")] = "lp",
    order: Annotated[str, typer.Option(help="Greedy's order: size, user-degree, random or given.")] = "user-degree",
    eps: Annotated[float, typer.Option(help="Epsilon that the recommended k is for.")] = 2.0,
    delta: Delta = 1e-5,
    dim: Annotated[int, typer.Option(min=1, help="Dimension of what is learnt, for the recommended k.")] = 32,
    out: Annotated[Path | None, typer.Option(help="Folder for the report.  [default: the next bound-report]")] = None,
    graph: Embedded = "les_miserables",
    dedupe: Dedupe = False,
    public_empty: PublicEmpty = False,
    time_limit: TimeLimit = 300.0,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Choose the examples to train on, so that no user has more than k, and report what that costs."""
    from fixedgraphdp import report as reports
    from papers_shared.artifacts import RunDir, free_folder, write_csv, write_figure, write_json, write_text

    reading = _graph(pairs, graph, dedupe, public_empty)
    config = {"pairs": str(pairs or graph), "k": k, "method": method, "order": order, "eps": eps, "delta": delta}
    folder = out or free_folder("bound-report")
    with RunDir(folder, package="fixedgraphdp", config=config, seed=seed, force=force, resume=None) as run:
        with progress("bounding", total=100) as bar:
            found = reports.make_report(
                reading.graph,
                k,
                method=method,
                order=order,
                epsilon=eps,
                delta=delta,
                d=dim,
                seed=seed,
                skipped=reading.skipped,
                time_limit=time_limit,
                progress=lambda share, note: bar.update(round(100 * share), note),
            )
        answer = reports.as_mapping(found)
        names = reading.graph.example_ids[found.kept.selected].tolist()
        rows = ({"example": int(e), "example_id": name} for e, name in zip(found.kept.selected, names, strict=True))
        write_csv(run / "selected.csv", rows, ["example", "example_id"])
        data = f"{reading.graph.n_examples} examples of {reading.graph.n_users} users"
        write_figure(
            run / "degrees.png",
            reports.draw_degrees(found),
            f"Left: users' degrees before and after bounding, {data}. Right: how often examples are kept, by the "
            f"degree of their busiest user (number of examples in brackets); unequal bars are what may bias.",
        )
        write_figure(
            run / "size_vs_k.png",
            reports.draw_sizes(found),
            f"Share of examples kept for each budget, {data}. Nobody can keep more than the upper bound.",
        )
        write_figure(
            run / "tradeoff.png",
            reports.draw_tradeoff(found),
            f"Predicted squared error of a {dim}-dimensional mean with user-level epsilon {eps:g}, delta {delta:g}: "
            f"a small k loses examples and biases, a large one needs more noise.",
        )
        write_text(run / "report.md", reports.as_markdown(found))
        write_json(run / "report.json", answer | {"provenance": run.manifest["provenance"]})
    if json:
        emit_json(answer | {"folder": str(run.path)})
    else:
        table(reports.as_rows(found))
        typer.echo(f"selected.csv, report.md, report.json and three figures are in {run.path}")


@app.command()
def density(
    pairs: Pairs = None,
    beta: Annotated[float, typer.Option(help="Share of the examples that may be lost.")] = 0.5,
    graph: Embedded = "les_miserables",
    dedupe: Dedupe = False,
    public_empty: PublicEmpty = False,
    time_limit: TimeLimit = 300.0,
    json: Json = False,
) -> None:
    """Measure the density c: the least budget per user that keeps half of the examples."""
    from fixedgraphdp.density import density as measure

    loaded = _graph(pairs, graph, dedupe, public_empty).graph
    with progress("density", total=100) as bar:
        found = measure(
            loaded, beta, time_limit=time_limit, progress=lambda share, note: bar.update(round(100 * share), note)
        )._asdict()
    if json:
        emit_json(found)
    else:
        table([{"what": name, "value": value} for name, value in found.items()])


@app.command()
def account(
    k: Annotated[int, typer.Option(min=1, help="Examples per user.")] = 4,
    q: Annotated[float, typer.Option(help="Probability with which an example enters a batch.")] = 0.01,
    sigma: Annotated[float | None, typer.Option(help="Noise multiplier; give this or --eps.")] = None,
    eps: Annotated[float | None, typer.Option(help="Epsilon to find the noise multiplier for.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of batches.")] = 500,
    delta: Delta = 1e-5,
    adjacency: Annotated[str, typer.Option(help="zero-out or replace.")] = "zero-out",
    json: Json = False,
) -> None:
    """Account for DP-SGD on a k-bounded set: epsilon of a noise multiplier, or the other way round."""
    from fixedgraphdp import accounting

    if (sigma is None) == (eps is None):
        raise InputError("give either --sigma or --eps", hint="--sigma 4 asks for epsilon, --eps 2 for the noise")
    if sigma is None:
        sigma = accounting.noise_multiplier(float(eps or 0), k, q, steps, delta, adjacency)
    spent = accounting.epsilon(k, q, sigma, steps, delta, adjacency)
    answer = {
        "epsilon": spent,
        "delta": delta,
        "noise_multiplier": sigma,
        "k": k,
        "q": q,
        "steps": steps,
        "adjacency": adjacency,
    }
    if json:
        emit_json(answer)
    else:
        table([{"what": name, "value": value} for name, value in answer.items()])


@app.command()
def train(
    pairs: Annotated[Path | None, typer.Option(help="Who owns what, as for bound.  [default: made co-authors]")] = None,
    data: Annotated[Path | None, typer.Option(help=".npz with x (n, d) and y (n,), rows as the examples.")] = None,
    test: Annotated[Path | None, typer.Option(help=".npz of held-out rows, for the accuracy curve.")] = None,
    k: Annotated[int | None, typer.Option(help="Examples per user.  [default: the recommended k]")] = None,
    eps: Annotated[float, typer.Option(help="User-level epsilon.")] = 2.0,
    delta: Delta = 1e-5,
    steps: Annotated[int, typer.Option(min=1, help="Number of batches.")] = 300,
    clip: Annotated[float, typer.Option(help="Clip norm of an example's gradient.")] = 1.0,
    adjacency: Annotated[str, typer.Option(help="zero-out or replace.")] = "zero-out",
    weights: Annotated[str | None, typer.Option(help="ht weights examples against selection bias.")] = None,
    examples: Annotated[int, typer.Option(min=10, help="Size of the made data.")] = 20_000,
    every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 25,
    dedupe: Dedupe = False,
    public_empty: PublicEmpty = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.  [default: the next train-run]")] = None,
    seed: NoiseSeed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the folder's last checkpoint.")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Train a logistic regression with user-level privacy; goes on after a kill with --resume."""
    import numpy as np

    from fixedgraphdp import choice
    from fixedgraphdp.training import DPSGD, accuracy, logistic_loss
    from papers_shared.artifacts import RunDir, free_folder, read_jsonl, write_figure, write_json, write_npz

    if resume and out is None:
        raise InputError("--resume needs --out", hint="name the folder of the run to go on with")
    graph, x, y, held = _training_data(pairs, data, test, examples, dedupe, public_empty)
    budget = choice.choose_k(graph, eps, delta, x.shape[1], order="user-degree", runs=16).best.k if k is None else k
    config = {"pairs": str(pairs), "data": str(data), "k": budget, "eps": eps, "delta": delta, "steps": steps,
              "clip": clip, "adjacency": adjacency, "weights": weights, "examples": examples}  # fmt: skip
    with RunDir(
        out or free_folder("train-run"), package="fixedgraphdp", config=config, seed=seed, resume=resume, force=force
    ) as run:
        model = DPSGD(
            logistic_loss, np.zeros(x.shape[1], np.float32), graph, budget, eps, delta,
            steps=steps, clip=clip, adjacency=adjacency, weights=weights, seed=seed,
        )  # fmt: skip
        score = None if held is None else lambda params: accuracy(params, *held)
        with progress("training", total=steps) as bar:
            fitted, guarantee = model.fit(
                x, y, folder=run.path, every=every, evaluate=score, progress=lambda step: bar.update(step)
            )
        history = read_jsonl(run / "history.jsonl")
        write_npz(run / "model.npz", {"theta": np.asarray(fitted.params)})
        answer = model.settings() | {"accuracy": history[-1]["value"], "kept_share": guarantee.size / graph.n_examples}
        if held is not None:
            write_figure(
                run / "accuracy.png",
                _accuracy_figure(history),
                f"Held-out accuracy of logistic regression, {guarantee.size} of {graph.n_examples} examples, k = "
                f"{guarantee.k}, user-level epsilon {guarantee.epsilon:.3g} ({adjacency}), delta {delta:g}.",
            )
        write_json(run / "report.json", answer | {"provenance": run.manifest["provenance"]})
    if json:
        emit_json(answer | {"folder": str(run.path)})
    else:
        table([{"what": name, "value": value} for name, value in answer.items()])
        typer.echo(f"model.npz, report.json and history.jsonl are in {run.path}")


def _training_data(
    pairs: Path | None, data: Path | None, test: Path | None, examples: int, dedupe: bool, public_empty: bool
) -> tuple[Any, Any, Any, Any]:
    """Return the graph, features, labels and held-out rows (or None): the user's, or made co-authors'."""
    from fixedgraphdp import data as readers
    from fixedgraphdp import generators

    if (pairs is None) != (data is None):
        raise InputError("give both --pairs and --data, or neither", hint="pairs say who owns the rows of the data")
    held = None
    if pairs is None or data is None:
        graph = generators.preferential_authors(examples, max(10, examples * 2 // 5), seed=0)
        task = generators.logistic_task(graph, extra=10_000)
        n = graph.n_examples
        x, y, held = task.x[:n], task.y[:n], (task.x[n:], task.y[n:])
    else:
        graph = _graph(pairs, "", dedupe, public_empty).graph
        x, y = readers.read_features(data)
    return graph, x, y, held if test is None else readers.read_features(test)


def _accuracy_figure(history: list[dict[str, Any]]) -> Any:
    import matplotlib.pyplot as plt

    from papers_shared.artifacts import figure_style

    with figure_style():
        fig, ax = plt.subplots()
        ax.plot([row["step"] for row in history], [row["value"] for row in history], marker="o")
        ax.set(xlabel="step", ylabel="held-out accuracy")
    return fig


@app.command("test-iid")
def iid_command(
    pairs: Annotated[Path | None, typer.Option(help="Who owns what.  [default: clusters made on the spot]")] = None,
    values: Annotated[Path | None, typer.Option(help=".npz with y (n,) in {0, 1} and any x, rows as examples.")] = None,
    alpha: Annotated[float, typer.Option(help="The alternative is Bernoulli(1/2 + alpha).")] = 0.05,
    truth: Annotated[float, typer.Option(help="Success probability of the made data.")] = 0.55,
    eps: Annotated[float, typer.Option(help="User-level epsilon.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="With a delta the noise is Gaussian.  [default: Laplace]")] = None,
    n: Annotated[int, typer.Option(min=1, help="Examples of the made data.")] = 10_000,
    c: Annotated[int, typer.Option(min=1, help="Examples per cluster, at most.")] = 16,
    s: Annotated[int | None, typer.Option(help="Clusters per user, at most.  [default: as in the graph]")] = None,
    cluster: Annotated[str, typer.Option(help="primary, components or label-propagation.")] = "primary",
    worst_case: Annotated[bool, typer.Option("--worst-case", help="Clip at c B, for comparison.")] = False,
    dedupe: Dedupe = False,
    seed: NoiseSeed = None,
    json: Json = False,
) -> None:
    """Test Bernoulli(1/2) against Bernoulli(1/2 + alpha) on a clustered network, with user-level privacy."""
    import numpy as np

    from fixedgraphdp import data, generators, iid

    if not 0 < alpha < 0.5:
        raise InputError(f"--alpha {alpha}: want a number in (0, 1/2)")
    if not 0 <= truth <= 1:
        raise InputError(f"--truth {truth}: want a probability")
    if (pairs is None) != (values is None):
        raise InputError("give both --pairs and --values, or neither")
    if pairs is None or values is None:
        graph = generators.clustered(max(1, n // c), c)
        outcomes = (np.random.default_rng(None if seed is None else [seed, 8]).random(graph.n_examples) < truth) * 1.0
    else:
        graph = _graph(pairs, "", dedupe).graph
        outcomes = data.read_features(values)[1].astype(float)
    low, high = float(np.log1p(-2 * alpha)), float(np.log1p(2 * alpha))
    clusters = iid.clusters_from_graph(graph, cluster, c=c, s=s)

    def ratios(ones: Any) -> Any:
        return np.where(ones > 0.5, high, low)

    found = iid.cluster_test(
        ratios(outcomes), clusters, eps, delta=delta, bounds=(low, high), worst_case=worst_case, seed=seed,
        means=((low + high) / 2, (0.5 + alpha) * high + (0.5 - alpha) * low),
        null=lambda rng: ratios(rng.random(graph.n_examples)),
    )._asdict()  # fmt: skip
    if json:
        emit_json(found)
    else:
        table([{"what": name, "value": value} for name, value in found.items()])


@app.command()
def bias(
    pairs: Pairs = None,
    k: Annotated[int, typer.Option(min=1, help="Examples per user.")] = 4,
    order: Annotated[str, typer.Option(help="Greedy's order: size, user-degree or random.")] = "size",
    runs: Annotated[int, typer.Option(min=2, help="Draws for the inclusion probabilities.")] = 200,
    fair: Annotated[bool, typer.Option("--fair", help="Also fit priorities that even inclusion out.")] = False,
    graph: Embedded = "les_miserables",
    dedupe: Dedupe = False,
    public_empty: PublicEmpty = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Diagnose selection bias: who is left out, by how much a mean may shift, and when it cannot."""
    from fixedgraphdp import bias as diagnosis

    loaded = _graph(pairs, graph, dedupe, public_empty).graph
    found = diagnosis.bias_report(loaded, k, order=order, runs=runs, seed=seed)
    answer: dict[str, Any] = {
        "cv": found.cv,
        "p_value_all_equal": found.p_value,
        "verdict": found.verdict,
        "vanishes": found.vanishes,
        "by_users_of_example": found.by_size,
        "by_degree_of_busiest_user": found.by_degree,
    }
    if fair:
        history = diagnosis.fair_scores(loaded, k, seed=seed).cv_history
        answer |= {"cv_random_priority": history[0], "cv_fair": history[-1]}
    if json:
        emit_json(answer)
        return
    plain = {name: value for name, value in answer.items() if not isinstance(value, (list, dict))}
    table([{"what": name, "value": value} for name, value in (plain | found.vanishes).items()])
    for title, rows in (("users of the example", found.by_size), ("busiest user's degree", found.by_degree)):
        table(rows, [title, "examples", "mean p"])
    if fair and answer["cv_fair"] >= answer["cv_random_priority"]:
        print("\nno priorities were found that even inclusion out more than a random order does")


bound_script = verb(app, "bound")

"""What the main verb prints and writes: the signals per triple, cards, and the failure report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcards import data, figures, render, warehouse
from evalcards.errors import ImportFailure
from evalcards.hierarchy import tell_apart
from evalcards.identity import slug
from evalcards.sentences import many, percent
from papers_shared.artifacts import RunDir, write_csv, write_figure, write_json, write_text

if TYPE_CHECKING:
    from evalcards.store import Store

FORMATS = ("html", "md", "json")


class Chosen(NamedTuple):
    """What a report is about: the one model or benchmark that was asked for, and those that get cards."""

    model: str | None
    benchmark: str | None
    models: list[str]
    benchmarks: list[str]


def choose(store: Store, model: str | None, benchmark: str | None, *, real_first: bool = False) -> Chosen:
    """Return what a report is about.

    Parameters
    ----------
    store
        The store.
    model, benchmark
        What the user named, if anything.
    real_first
        With nothing named, only the package's own real models get cards, if they are there.

    Raises
    ------
    UnknownModel
        No result is of such a model or benchmark.
    """
    found = store.find_model(model) if model else None
    on = store.find_benchmark(benchmark) if benchmark else None
    if found or on:
        return Chosen(found, on, [found] if found else [], [on] if on else [])
    present = [name for (name,) in store.fetch("SELECT DISTINCT model_id FROM groups ORDER BY 1")]
    real = [meta.id for meta in data.registered_models() if meta.id in present] if real_first else []
    return Chosen(None, None, real or present, [])


def triple_rows(store: Store, model: str | None = None, benchmark: str | None = None) -> list[dict[str, Any]]:
    """Return one line per triple with its four signals.

    Parameters
    ----------
    store
        The store; its signals must be up to date.
    model, benchmark
        Only of this model, or on this benchmark.
    """
    scores = store.completeness()
    lines = store.records(
        """SELECT g.model_id, g.benchmark, g.benchmark_name, g.slice_name, g.protocol_name, g.metric_name, g.path,
        g.metric, q.n_rows, max(r.flags) AS flags,
        min(r.score) AS low, max(r.score) AS high, any_value(r.unit) AS unit,
        bit_or(s.missing) AS missing,
        sum(r.slots_disclosed)::INT AS disclosed, sum(r.slots_applicable)::INT AS applicable, q.n_parties,
        list_sort(list(DISTINCT r.source_type)) AS kinds, any_value(q.variant_eligible) AS variant_eligible,
        any_value(q.has_variant_divergence) AS variant, any_value(q.variant_differs) AS differs,
        any_value(q.cross_eligible) AS cross_eligible, any_value(q.has_cross_party_divergence) AS crossed
        FROM results r JOIN groups g USING (group_id) JOIN row_signals s USING (row_id)
        JOIN group_signals q ON q.group_id = r.group_id
        WHERE ($model IS NULL OR g.model_id = $model) AND ($benchmark IS NULL OR g.benchmark = $benchmark)
        GROUP BY ALL
        ORDER BY g.model_id, g.benchmark_name, g.slice_name, g.protocol_name, g.metric_name, g.path, g.metric""",
        {"model": model, "benchmark": benchmark},
    )
    profile = store.signals_settings()["profile"]
    found = []
    tell_apart(lines)
    for line in lines:
        missing = warehouse.named(line["missing"], profile)
        low, high = (render.score_text(line[key], line["unit"]) for key in ("low", "high"))
        found.append(
            {
                "model": line["model_id"],
                "benchmark": " ".join(
                    filter(
                        None,
                        (line["benchmark_name"], line["slice_name"], line["own_place"], line["protocol_name"]),
                    )
                ),
                "metric": line["metric_label"],
                "score": low if low == high else f"{low} to {high}",
                "results": line["n_rows"],
                "setup": f"missing {', '.join(missing)}" if missing else "complete",
                "decisions": f"{line['disclosed']}/{line['applicable']}",
                "completeness": percent({"rate": scores[line["benchmark"]].score}),
                "measured by": f"{', '.join(kind.replace('_', ' ') for kind in line['kinds'])} ({line['n_parties']})",
                "comparability": _agreement(line),
            }
        )
    return found


def _agreement(line: dict[str, Any]) -> str:
    told = []
    if line["variant"]:
        told.append(f"settings diverge ({', '.join(warehouse.fields_of(line['differs']))})")
    if line["crossed"]:
        told.append("parties diverge")
    if line["flags"]:
        told.append(f"check the value {line['flags']}")
    if told:
        return "; ".join(told)
    return "agree" if line["variant_eligible"] or line["cross_eligible"] else "nothing to check"


def summary_rows(summed: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rollup as lines: signal, what, rate, of."""
    overall = summed["overall"]

    def line(signal: str, what: str, rate: dict[str, Any]) -> dict[str, str]:
        return {"signal": signal, "what": what, "rate": percent(rate), "count": f"{rate['count']:,} of {rate['of']:,}"}

    reproducible, sources, compared = (overall[key] for key in ("reproducibility", "provenance", "comparability"))
    complete = overall["completeness"]
    return [
        line("reproducibility", "results that report all required settings", reproducible["fully_documented"]),
        *(line("", f"{field} missing", rate) for field, rate in reproducible["missing"].items() if rate["of"]),
        {
            "signal": "completeness",
            "what": "fields of a benchmark reported, mean",
            "rate": percent({"rate": complete["mean"]}),
            "count": many(complete["benchmarks"], "benchmark"),
        },
        line("provenance", "results by third parties", sources["source_types"]["third_party"]),
        line("", "results by the model's maker", sources["source_types"]["first_party"]),
        line("", "results by both together", sources["source_types"]["collaborative"]),
        line("", "results by somebody whose relation is not stated", sources["source_types"]["unspecified"]),
        line("", "triples reported by several organisations", sources["multi_source"]),
        line("", "triples reported only by the model's maker", sources["first_party_only"]),
        line("comparability", "triples whose scores diverge with the settings", compared["variant_divergence"]),
        line("", "triples whose scores diverge with the party", compared["cross_party_divergence"]),
    ]


def write_report(
    store: Store,
    folder: Path,
    chosen: Chosen,
    summed: dict[str, Any],
    lines: list[dict[str, Any]],
    failures: Iterable[ImportFailure],
    *,
    mode: str,
    most: int,
    config: dict[str, Any],
    force: bool,
    done: Callable[[], Any],
) -> list[Path]:
    """Write cards, overview, failure report and ``report.json`` into a folder; return the cards' HTML files.

    Parameters
    ----------
    store
        The store; its signals must be up to date.
    folder
        Where to.
    chosen
        What the cards are of; of the models the first ``most``.
    summed, lines
        What `evalcards.signals.rollup` and `triple_rows` return.
    failures
        What did not become a row.
    mode
        Reader mode.
    most
        Cards of models at most.
    config
        What was asked for, for the manifest.
    force
        Replace an earlier report.
    done
        Called after each card.

    Raises
    ------
    InputError
        The folder is in use and ``force`` is false.
    """
    with RunDir(folder, package="evalcards", config=config, force=force, resume=None) as run:
        written = write_cards(store, run.path, chosen.models[:most], chosen.benchmarks, mode, done)
        overall = summed["overall"]
        if overall["rows"]:
            write_figure(
                run / "overview.png",
                figures.draw_overview(summed),
                f"{overall['rows']:,} results in {overall['triples']:,} triples; bars with Wilson 95% intervals, "
                f"thresholds x {config['factor']:g}, profile {config['profile']}.",
            )
        write_failures(run / "failures.csv", failures)
        write_json(run / "report.json", {"rollup": summed, "triples": lines, "provenance": run.manifest["provenance"]})
    return written


def write_cards(
    store: Store, folder: Path, models: list[str], benchmarks: list[str], mode: str, done: Any
) -> list[Path]:
    """Write each model's and benchmark's card as HTML, Markdown and JSON; return the HTML files.

    Parameters
    ----------
    store
        The store.
    folder
        Where to.
    models, benchmarks
        What to write cards of.
    mode
        Reader mode.
    done
        Called after each card.
    """
    written = []
    named = [{"model": name} for name in models] + [{"benchmark": name} for name in benchmarks]
    for choice in named:
        kind, name = next(iter(choice.items()))
        view = render.view_of(store, **choice)
        for fmt in FORMATS:
            path = folder / f"{kind}-{slug(name)}.{fmt}"
            write_text(path, render.render_view(view, mode, fmt))
            if fmt == "html":
                written.append(path)
        done()
    return written


def stored_failures(store: Store) -> list[ImportFailure]:
    """Return the failures of all that a store has imported."""
    return [ImportFailure(*line) for line in store.fetch("SELECT * FROM failures ORDER BY path, place")]


def write_failures(path: Path, failures: Iterable[ImportFailure]) -> Path:
    """Write the failure report: file, place, reason, number of results."""
    return write_csv(path, [f.as_mapping() for f in failures], ["path", "where", "reason", "rows"])

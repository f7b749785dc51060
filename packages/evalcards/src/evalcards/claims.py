"""What the paper claims, re-tested: one function per claim."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evalcards import data, render, scale, warehouse
from evalcards.baselines import top_changes
from evalcards.claim_figures import (
    FIELD,
    draw_confusion,
    draw_latency,
    draw_leaders,
    draw_modes,
    draw_rates,
    draw_sankey,
    draw_sweep,
)
from evalcards.figures import wilson
from evalcards.generator import PATTERNS, Corpus, generate
from evalcards.importing import import_files
from evalcards.samples import MAKERS
from evalcards.signals import rollup
from evalcards.signals.completeness import field_set
from evalcards.signals.provenance import SOURCE_TYPES
from evalcards.store import Store
from papers_shared.claims import Context, claim

_FIELDS = ("temperature", "max_tokens", "eval_plan", "eval_limits")


def _store(corpus: Corpus) -> Store:
    store = Store(None)
    store.add_cards(corpus.benchmark_cards())
    store.add(corpus.logs())
    store.signals()
    return store


@claim(
    "E1",
    statement="outputs, EEE records and cards become one record: every result reaches a triple or the failure report",
    paper="composes three sources into one record",
)
def composition(ctx: Context) -> dict:
    """Import files of six formats, with known numbers of results and bad ones, and the embedded real rows."""
    counts: dict[str, tuple[int, int, int]] = {}
    exact = True
    with tempfile.TemporaryDirectory() as folder, Store(None) as store:
        store.add_cards(data.benchmark_cards())
        for name, make in MAKERS.items():
            place = Path(folder) / name
            place.mkdir()
            path, results, bad = make(place)
            mapping = place / "board.yaml" if name == "csv" else None
            report = import_files(store, [path], mapping=mapping)
            counts[name] = (results, report.rows, report.failed)
            exact &= (report.found, report.rows, report.failed) == (results, results - bad, bad)
        in_triples = sum(triple.rows for triple in store.triples())
        in_report = store.fetch("SELECT coalesce(sum(n), 0)::INT FROM failures")[0][0]
        triples = len(store.triples())
    real = data.real_rows()
    counts["real rows"] = (real.found, real.rows, real.failed)
    total = sum(results for results, _, _ in counts.values()) - real.found
    holds = exact and in_triples + in_report == total and real.found == real.rows + real.failed == 40
    return {
        "measured": {
            "results in files": total,
            "in triples": in_triples,
            "in failure report": in_report,
            "real rows": f"{real.rows} of {real.found}",
            "triples": triples,
        },
        "holds": holds,
        "figure": ctx.figure(
            "sankey.png",
            draw_sankey(counts),
            "Results by format (left, with the real rows) and where "
            "they end (right). Each file holds some results that are no scores: NaN, words, no mean.",
        ),
    }


def _truth_counts(corpus: Corpus, store: Store) -> dict[str, dict[str, int]]:
    """Count true and false positives and negatives of each signal against the planted truth."""
    found: dict[str, dict[str, int]] = {}

    def count(signal: str, planted: bool, flagged: bool) -> None:
        table = found.setdefault(signal, {"TP": 0, "FP": 0, "FN": 0, "TN": 0})
        table[("T" if planted == flagged else "F") + ("P" if flagged else "N")] += 1

    truth = corpus.truth
    for evaluation, index, missing, kind in store.fetch(
        """SELECT evaluation_id, result_index, missing, row_signals.source_type
        FROM row_signals JOIN results USING (row_id)"""
    ):
        planted = truth.missing[evaluation, index]
        count("1 reproducibility gap", bool(planted), missing != 0)
        for field in _FIELDS:
            count("1 missing field", field in planted, field in warehouse.named(missing))
        count("3 first-party row", truth.sources[evaluation, index] == "first_party", kind == "first_party")
    groups = store.records("SELECT * FROM group_signals JOIN groups USING (group_id)")
    for group in groups:
        key = (group["model_id"], group["benchmark_name"])
        pattern = PATTERNS[truth.groups[key]][1]
        count("3 several parties", truth.parties[key] > 1, group["is_multi_source"])
        count("3 first party only", truth.first_only[key], group["first_party_only"])
        count("4 variant divergence", pattern.variant is True, group["has_variant_divergence"])
        count("4 variant eligible", pattern.variant is not None, group["variant_eligible"])
        count("4 cross-party divergence", pattern.cross is True, group["has_cross_party_divergence"])
        count("4 parties' setups differ", pattern.cross_differs, group["cross_differs"] != 0)
        count("4 scale anomaly", pattern.anomaly, group["score_scale_anomaly"])
    fields = {field.path: field for field in field_set()}
    known = store.completeness()
    for benchmark, (full, partial) in truth.completeness.items():
        scores = known[store.find_benchmark(benchmark)]
        populated = sum(scores.field_scores[path] == 1 for path, field in fields.items() if field.coverage == "full")
        ethics = scores.field_scores["benchmark_card.ethical_and_legal_considerations"]
        source = scores.field_scores["eee.source_metadata"]
        exact = (
            populated == full
            and ethics == partial / 4
            and abs(scores.score - (full + partial / 4 + source) / 28) < 1e-12
        )
        count("2 completeness exact", True, exact)
    return found


@claim("E2", statement="each signal recovers the planted flags exactly", paper="four signals operational", seeds=3)
def operational(ctx: Context) -> dict:
    """Compare the signals with planted truth, also at thresholds that floating point can miss."""
    size = ctx.pick(small=(400, 60, 9000), paper=(5498, 635, 101_843), smoke=(60, 20, 400))
    total: dict[str, dict[str, int]] = {}
    for seed in ctx.track(ctx.seeds, "planted corpora"):
        corpus = generate(*size, seed=seed)
        with _store(corpus) as store:
            for signal, table in _truth_counts(corpus, store).items():
                sums = total.setdefault(signal, dict.fromkeys(table, 0))
                for key, value in table.items():
                    sums[key] += value
    precision = min(t["TP"] / (t["TP"] + t["FP"]) if t["TP"] + t["FP"] else 1.0 for t in total.values())
    recall = min(t["TP"] / (t["TP"] + t["FN"]) if t["TP"] + t["FN"] else 1.0 for t in total.values())
    planted = min(t["TP"] + t["FN"] for t in total.values())
    return {
        "measured": {
            "least precision": precision,
            "least recall": recall,
            "signals and fields": len(total),
            "least planted flags": planted,
            "corpora": len(ctx.seeds),
        },
        "holds": precision == recall == 1.0 and planted > 0,
        "figure": ctx.figure(
            "confusion.png",
            draw_confusion(total),
            f"Planted against found flags, {len(ctx.seeds)} made-up corpora of {size[2]:,} rows each; "
            "for completeness, benchmarks whose score is exactly the planted one.",
        ),
    }


@claim(
    "E3",
    statement="the rollup finds the planted gaps exactly; few results are fully documented",
    paper="about 3% fully documented",
)
def gaps(ctx: Context) -> dict:
    """Compare the rollup's rates with counts from the planted truth, and report the real rows beside them."""
    corpus = generate(*ctx.pick(small=(400, 60, 9000), paper=(5498, 635, 101_843), smoke=(30, 14, 150)), seed=0)
    with _store(corpus) as store:
        found = _rates(rollup(store)["overall"])
    planted = _planted_counts(corpus)
    with Store(None) as store:
        store.add_models(data.registered_models())
        store.add_cards(data.benchmark_cards())
        store.add(data.real_rows().logs)
        real = rollup(store)["overall"]
    full, slots = found["fully documented"], real["reproducibility"]["slots"]
    equal = sum(found[name]["count"] == count for name, count in planted.items())
    return {
        "measured": {
            "rates equal to planted": f"{equal} of {len(planted)}",
            "fully documented": full["rate"],
            "95% interval": list(wilson(full["count"], full["of"])),
            "real rows fully documented": real["reproducibility"]["fully_documented"]["rate"],
            "real rows, decisions disclosed": slots["disclosed"] / slots["applicable"],
        },
        "holds": equal == len(planted),
        "figure": ctx.figure(
            "gaps.png",
            draw_rates({"made-up corpus (planted)": found, "40 real rows": _rates(real)}),
            "What is not reported, and by whom results come. The corpus is made up at the paper's "
            "rate; only the real rows are an observation.",
        ),
    }


def _planted_counts(corpus: Corpus) -> dict[str, int]:
    """Return how often what `_rates` counts is planted."""
    truth = corpus.truth
    missing, sources = list(truth.missing.values()), list(truth.sources.values())
    return {
        "fully documented": sum(not fields for fields in missing),
        **{f"{field} missing": sum(field in fields for fields in missing) for field in _FIELDS},
        **{kind: sources.count(kind) for kind in SOURCE_TYPES},
        "several parties": sum(n > 1 for n in truth.parties.values()),
        "first party only": sum(truth.first_only.values()),
    }


def _rates(overall: dict[str, Any]) -> dict[str, Any]:
    """Return the rates of a rollup that are compared with planted counts."""
    reproducible, sources = overall["reproducibility"], overall["provenance"]
    return {
        "fully documented": reproducible["fully_documented"],
        **{f"{field} missing": rate for field, rate in reproducible["missing"].items()},
        **sources["source_types"],
        "several parties": sources["multi_source"],
        "first party only": sources["first_party_only"],
    }


@claim(
    "E4",
    statement="how many triples are flagged depends on the threshold",
    paper="threshold sensitivity",
    must_hold=False,
)
def sensitivity(ctx: Context) -> dict:
    """Flag with thresholds of half to twice the paper's."""
    factors = (0.5, 1.0, 1.5, 2.0)
    corpus = generate(*ctx.pick(small=(400, 60, 9000), paper=(5498, 635, 101_843), smoke=(30, 14, 150)), seed=0)
    rates: dict[str, list[dict[str, Any]]] = {"variant_divergence": [], "cross_party_divergence": []}
    with _store(corpus) as store:
        for factor in ctx.track(factors, "factors"):
            overall = rollup(store, factor=factor)["overall"]["comparability"]
            for name, found in rates.items():
                found.append(overall[name])
    return {
        "measured": {name.replace("_", " "): [rate["rate"] for rate in found] for name, found in rates.items()}
        | {
            "factors": list(factors),
            "95% interval, variant": [list(wilson(r["count"], r["of"])) for r in rates["variant_divergence"]],
        },
        "holds": None,
        "figure": ctx.figure(
            "sweep.png",
            draw_sweep(factors, rates),
            f"Share of eligible triples flagged, made-up corpus of {corpus.rows:,} rows; "
            "bars are 95% Wilson intervals.",
        ),
    }


_ID = re.compile(r'data-result-id="([^"]+)" data-value="([^"]+)"')


@claim(
    "E5",
    statement="the reader modes differ in what comes first, not in what is there",
    paper="one record, two reader modes",
)
def reader_modes(ctx: Context) -> dict:
    """Render cards of models and benchmarks in both modes and compare their result ids, values and first fields."""
    corpus = generate(*ctx.pick(small=(400, 60, 9000), paper=(400, 60, 9000), smoke=(30, 14, 150)), seed=0)
    with _store(corpus) as store:
        triples = store.triples()
        models = sorted({triple.model for triple in triples})[:: ctx.pick(small=10, paper=1, smoke=10)]
        benchmarks = sorted({triple.benchmark for triple in triples})[:: ctx.pick(small=4, paper=1, smoke=7)]
        same, first, rows = True, 0, 0
        named: list[dict[str, str]] = [{"model": name} for name in models]
        named += [{"benchmark": name} for name in benchmarks]
        for choice in ctx.track(named, "cards"):
            pages = {mode: render.card(store, mode=mode, **choice) for mode in ("research", "policy")}  # ty: ignore[invalid-argument-type]
            results = {mode: set(_ID.findall(page)) for mode, page in pages.items()}
            fields = {mode: FIELD.findall(page) for mode, page in pages.items()}
            same &= results["research"] == results["policy"] and sorted(fields["research"]) == sorted(fields["policy"])
            first += fields["research"][:5] != fields["policy"][:5]
            rows += len(results["research"])
        example = {mode: render.card(store, models[0], mode=mode) for mode in ("research", "policy")}
    return {
        "measured": {
            "cards": len(named),
            "results compared": rows,
            "same results and values": same,
            "cards whose first five fields differ": first,
            "first five, research": list(render.ORDER["research"][:5]),
            "first five, policy": list(render.ORDER["policy"][:5]),
        },
        "holds": same and first == len(named),
        "figure": ctx.figure(
            "modes.png", draw_modes(example), "The same card read for research (left) and for policy (right)."
        ),
    }


@claim(
    "E6",
    statement="the paper's corpus imports and is signalled within 120 s and 2 GB; pages answer within 300 ms (p95)",
    paper="5,498 models, 635 benchmarks, 101,843 results",
)
def full_scale(ctx: Context) -> dict:
    """Import a made-up corpus of the paper's size from files, in a process of its own, and ask for pages.

    Times are the wall clock's; the process's own processor time, all threads together, stands beside.
    """
    size = ctx.pick(small=(5498, 635, 101_843), paper=(5498, 635, 101_843), smoke=(30, 14, 150))
    found = scale.measure(*size, pages=ctx.pick(small=60, paper=200, smoke=5))
    latencies = np.sort(np.array(found["page_wall_seconds"])) * 1000
    p95 = float(np.quantile(latencies, 0.95))
    return {
        "measured": {
            "rows": found["rows"],
            "files": found["files"],
            "import and signals, s": found["wall_seconds"],
            "peak, GB": found["peak_gb"],
            "page p95, ms": p95,
            "largest page, rows": found["largest_page"],
            "import, processor s": found["import_seconds"],
            "signals, processor s": found["signal_seconds"],
            "page p95, processor ms": float(np.quantile(found["page_seconds"], 0.95)) * 1000,
        },
        "holds": found["wall_seconds"] <= 120 and found["peak_gb"] <= 2 and p95 <= 300,
        "figure": ctx.figure(
            "latency.png",
            draw_latency(latencies),
            f"{len(latencies)} pages of a store of {found['rows']:,} results: start, lists, "
            "cards of models and benchmarks (the largest too), results.",
        ),
    }


@claim(
    "E7",
    statement="bare scores mislead: the leader changes when incomparable scores are left out",
    paper="bare scores mislead",
    must_hold=False,
)
def bare_scores(ctx: Context) -> dict:
    """Rank by bare scores with and without the triples whose scores diverge."""
    corpus = generate(*ctx.pick(small=(400, 60, 9000), paper=(5498, 635, 101_843), smoke=(30, 14, 150)), seed=0)
    with _store(corpus) as store:
        found = top_changes(store)
    low, high = wilson(found.changed, found.benchmarks)
    return {
        "measured": {
            "leaderboards": found.benchmarks,
            "leader changes": found.changed,
            "rate": found.changed / found.benchmarks if found.benchmarks else None,
            "95% interval": [low, high],
        },
        "holds": None,
        "figure": ctx.figure(
            "leaders.png",
            draw_leaders(found.examples),
            f"{found.changed} of {found.benchmarks} leaderboards of the made-up corpus change their first model when "
            "triples with diverging scores are left out. The rate follows from what was planted; for real leaderboards "
            "it says nothing.",
        ),
    }

"""What a comparison looks like: tables, three figures, one page that opens in a browser."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.metrics import precision_recall_curve

from papers_shared.artifacts import PALETTE, figure_style, write_figure
from sanctionspairs.abstain import risk_coverage
from sanctionspairs.evaluate import labels_of
from sanctionspairs.io import ReadStats
from sanctionspairs.records import Pair, caption, common_schema, field_count, sources
from sanctionspairs.simulate import FACTS
from sanctionspairs.study import Result, Study
from sanctionspairs.tags import TAG_MEANING, TAGS
from sanctionspairs.text import dominant_script

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_EXAMPLES = 12


def main_rows(study: Study) -> list[dict[str, Any]]:
    """Return the table of matchers: figures, errors, time, band."""
    rows = []
    for result in study.results.values():
        r, band = result.report, result.band
        rows.append(
            {
                "matcher": result.name,
                "P": f"{r.precision:.3f}",
                "R": f"{r.recall:.3f}",
                "F1": f"{r.f1.value:.3f} [{r.f1.low:.3f}, {r.f1.high:.3f}]",
                "FP": r.counts.fp,
                "FN": r.counts.fn,
                "no answer": r.unanswered,
                "threshold": r.threshold,
                "ms/pair": f"{result.ms_per_pair:.2f}",
                "abstains in": "everywhere"
                if band is None or not band.dev_coverage
                else f"({band.lo:.3f}, {band.hi:.3f})",
                "decides": "0%" if band is None else f"{band.coverage:.0%}",
                "wrong of these": "-" if band is None or math.isnan(band.error) else f"{band.error:.2%}",
            }
        )
    return rows


def tag_rows(study: Study) -> list[dict[str, Any]]:
    """Return the table of errors by kind: for each tag that occurs, false positives and negatives with their lifts."""
    rows = []
    for tag in [*TAGS, "incompatible"]:
        row: dict[str, Any] = {"tag": tag}
        seen = 0
        for name, result in study.results.items():
            found = result.tag_table.loc[tag]
            row["pairs"] = int(found.pairs)
            seen = max(seen, int(found.fp + found.fn))
            row[f"{name} FP"] = _with_lift(int(found.fp), float(found.fp_lift))
            row[f"{name} FN"] = _with_lift(int(found.fn), float(found.fn_lift))
        if row.get("pairs") and seen:
            rows.append(row)
    return rows


def _with_lift(count: int, lift: float) -> str:
    return f"{count} (x{lift:.1f})" if not math.isnan(lift) else str(count)


def corpus_facts(pairs: Sequence[Pair]) -> dict[str, tuple[float, float]]:
    """Return, for each fact that the paper states of its corpus, its figure and that of these pairs."""
    scored = [pair for pair in pairs if pair.scored]
    records = {str(side.id): side for pair in scored for side in (pair.left, pair.right)}
    scripts = [(dominant_script(caption(p.left)), dominant_script(caption(p.right))) for p in scored]
    same = np.array([bool(sources(p.left)) and sources(p.left) == sources(p.right) for p in scored])
    label = labels_of(scored).astype(bool)
    fields = np.array([field_count(record) for record in records.values()])
    names = ("alias", "weakAlias", "previousName")
    alias = [any(record.has(name, quiet=True) for name in names) for record in records.values()]
    kinds = pd.Series([common_schema(p.left, p.right) or p.left.schema.name for p in scored]).value_counts(
        normalize=True
    )
    ours = {
        "positive share": float(label.mean()),
        "captions in different scripts": float(np.mean([None not in s and s[0] != s[1] for s in scripts])),
        "any caption not Latin": float(np.mean([any(x not in (None, "Latin") for x in s) for s in scripts])),
        "negatives of one source": float(same[~label].mean()) if (~label).any() else math.nan,
        "positives across sources": float((~same[label]).mean()) if label.any() else math.nan,
        "fields per entity, mean": float(fields.mean()),
        "fields per entity, median": float(np.median(fields)),
        "entities with an alias": float(np.mean(alias)),
        **{name: float(kinds.get(name, 0.0)) for name in ("Person", "Occupancy", "Company")},
    }
    return {name: (paper, ours[name]) for name, paper in FACTS.items()}


def as_json(study: Study, stats: ReadStats | None, facts: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return everything for ``report.json``."""
    answer: dict[str, Any] = {
        "split": {
            "how": study.split.how,
            "train": len(study.split.train),
            "dev": len(study.split.dev),
            "test": len(study.split.test),
        },
        "target_error": study.alpha,
        "matchers": {},
        "paired": {f"{a} / {b}": found._asdict() for (a, b), found in study.paired.items()},
        "corpus": {name: {"paper": paper, "here": here} for name, (paper, here) in facts.items()},
    }
    if stats is not None:
        answer["read"] = {
            "pairs": stats.read,
            "judgements": stats.judgements,
            "coerced_values": stats.coerced,
            "skipped": [{"line": line, "reason": reason} for line, reason in stats.skipped],
        }
    for name, result in study.results.items():
        table = result.tag_table.reset_index().to_dict("records")
        answer["matchers"][name] = {
            **result.report.as_dict(),
            "ms_per_pair": result.ms_per_pair,
            "cost": result.cost,
            "cost_per_1000": 1000 * result.cost / max(1, len(study.split.dev) + len(study.split.test)),
            "partial": result.partial,
            "abstain": None if result.band is None else result.band.__dict__,
            "tags": [{key: _none(value) for key, value in row.items()} for row in table],
        }
    return answer


def _none(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


@figure_style()
def draw_pr(study: Study) -> Figure:
    """Draw precision against recall, with the tuned threshold of each matcher."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    labels = labels_of(study.split.test)
    for (name, result), colour in zip(study.results.items(), PALETTE * 3, strict=False):
        known = ~np.isnan(result.scores)
        precision, recall, _ = precision_recall_curve(labels[known], result.scores[known])
        if len(set(result.scores[known].tolist())) > 2:
            ax.plot(
                recall,
                precision,
                color=colour,
                label=f"{name}, F1 {result.report.f1.value:.3f}",
                drawstyle="steps-post",
            )
            ax.plot(result.report.recall, result.report.precision, "o", color=colour)
        else:
            ax.plot(
                result.report.recall,
                result.report.precision,
                "s",
                color=colour,
                label=f"{name}, F1 {result.report.f1.value:.3f}",
            )
    share = float(labels.mean())
    ax.axhline(
        share, linestyle=":", color="#444444", linewidth=1, label=f"always yes, F1 {2 * share / (1 + share):.3f}"
    )
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(min(0.7, share - 0.05), 1.005))
    ax.legend(loc="lower left")
    return fig


@figure_style()
def draw_risk(study: Study) -> Figure:
    """Draw the error rate of decided pairs against how many are decided, with each band's point."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    labels = labels_of(study.split.test)
    for (name, result), colour in zip(study.results.items(), PALETTE * 3, strict=False):
        if result.band is None:
            continue
        known = ~np.isnan(result.probability)
        coverage, risk = risk_coverage(result.probability[known], labels[known])
        ax.plot(coverage, risk, color=colour, label=name)
        if result.band.coverage > 0:
            ax.plot(result.band.coverage, result.band.error, "o", color=colour)
    ax.axhline(study.alpha, linestyle="--", color="#444444", linewidth=1, label=f"target {study.alpha:g}")
    ax.set(xlabel="share of pairs decided (surest first)", ylabel="error rate of decided pairs", xlim=(0, 1.01))
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left")
    return fig


def draw_tags(study: Study) -> Figure:
    """Draw the lift of errors by tag and matcher; see `draw_lifts`."""
    return draw_lifts({name: result.tag_table for name, result in study.results.items()})


@figure_style()
def draw_lifts(tables: dict[str, pd.DataFrame]) -> Figure:
    """Draw false positive and false negative lifts as two heat maps; undetermined cells are blank with their count."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import TwoSlopeNorm

    rows = [tag for tag in TAGS if any(table.loc[tag, ["fp", "fn"]].sum() > 0 for table in tables.values())]
    rows = rows or list(TAGS)  # matchers without an error: every tag with its 0
    names = list(tables)
    fig, axes = plt.subplots(
        1, 2, figsize=(max(7.5, 2.4 + 1.7 * len(names)), 1.4 + 0.32 * max(4, len(rows))), sharey=True
    )
    for ax, kind, title in zip(axes, ("fp", "fn"), ("false positives", "false negatives"), strict=True):
        lift = np.array([[float(tables[name].loc[tag, f"{kind}_lift"]) for name in names] for tag in rows])
        count = np.array([[int(tables[name].loc[tag, kind]) for name in names] for tag in rows])
        shown = np.log2(np.clip(np.nan_to_num(lift.reshape(len(rows), len(names)), nan=1.0), 1 / 8, 8))
        image = ax.imshow(shown, cmap="RdBu_r", norm=TwoSlopeNorm(0, -3, 3), aspect="auto")
        for i in range(len(rows)):
            for j in range(len(names)):
                text = f"{lift[i, j]:.1f}×\n({count[i, j]})" if not np.isnan(lift[i, j]) else f"({count[i, j]})"
                dark = abs(shown[i, j]) > 1.8
                ax.text(
                    j,
                    i,
                    text.replace("\n", " "),
                    ha="center",
                    va="center",
                    fontsize=7.5,
                    color="white" if dark else "black",
                )
        ax.set_xticks(range(len(names)), names, rotation=20, ha="right")
        ax.set_yticks(range(len(rows)), rows)
        ax.set_title(title)
        ax.grid(False)
    bar = fig.colorbar(image, ax=axes, shrink=0.8, ticks=[-3, -2, -1, 0, 1, 2, 3])
    bar.ax.set_yticklabels(["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.set_label("lift: error rate in the tag / overall")
    return fig


CAPTIONS = {
    "pr_curve.png": "Precision and recall on test pairs as the threshold moves; dots: thresholds tuned on dev.",
    "risk_coverage.png": "Error rate among the surest pairs, calibrated on dev; dots: the abstain band on test pairs.",
    "tags.png": "Lift of error rates by kind of pair, error counts in brackets; no lift below five errors.",
}


def write_figures(study: Study, folder: Path) -> list[Path]:
    """Write the three figures and return their paths."""
    drawn = {"pr_curve.png": draw_pr, "risk_coverage.png": draw_risk, "tags.png": draw_tags}
    return [write_figure(folder / name, draw(study), CAPTIONS[name]) for name, draw in drawn.items()]


def error_examples(result: Result, study: Study, matcher: Any) -> list[dict[str, Any]]:
    """Return the most confident errors of a matcher with what its score is made of."""
    labels = labels_of(study.split.test)
    known = ~np.isnan(result.scores)
    wrong = known & ((result.scores >= result.report.threshold) != labels.astype(bool))
    order = np.argsort(-np.where(wrong, np.abs(result.scores - result.report.threshold), -1))[
        : min(_EXAMPLES, int(wrong.sum()))
    ]
    found = []
    for number in order.tolist():
        pair = study.split.test[number]
        why = {} if matcher is None or result.name.startswith(("llm", "splink")) else matcher.explain(pair)
        strongest = sorted(why.items(), key=lambda item: -abs(item[1]))[:5]
        found.append(
            {
                "pair": pair,
                "kind": "false positive" if not labels[number] else "false negative",
                "score": float(result.scores[number]),
                "tags": study.tagged[number],
                "why": strongest,
            }
        )
    return found


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Matchers compared</title><style>
body{{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;color:#222}}
table{{border-collapse:collapse;margin:1rem 0;font-size:13.5px}}
th,td{{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}}
th{{background:#f4f4f4}}td.n{{text-align:right;font-variant-numeric:tabular-nums}}img{{max-width:100%}}figcaption,.note{{color:#555;font-size:13.5px}}
.wrap{{overflow-x:auto}}.partial{{background:#fff3cd;padding:.5rem 1rem}}bdi{{unicode-bidi:isolate}}
</style></head><body><h1>Matchers compared</h1>{body}</body></html>
"""


def as_html(study: Study, folder: Path, facts: dict[str, tuple[float, float]], matchers: dict[str, Any]) -> str:
    """Return one page with all tables and pictures inside, for any browser."""
    parts = [
        f"<p>{len(study.split.test)} test pairs, {len(study.split.dev)} dev pairs, {html.escape(study.split.how)}. "
        f"Thresholds, calibration and bands come from dev only; intervals are 95%, over groups of linked records.</p>"
    ]
    for name, result in study.results.items():
        if result.partial:
            parts.append(
                f"<p class=partial>{html.escape(name)} is partial: the cost limit was reached, "
                f"{result.report.unanswered} pairs were not asked.</p>"
            )
    parts += ["<h2>Figures</h2>", html_table(main_rows(study))]
    parts.append(_image(folder / "pr_curve.png", CAPTIONS["pr_curve.png"]))
    parts += ["<h2>Errors by kind</h2>", html_table(tag_rows(study)), _image(folder / "tags.png", CAPTIONS["tags.png"])]
    meanings = [{"tag": tag, "meaning": TAG_MEANING[tag]} for tag in TAGS]
    parts += ["<details><summary>What the tags mean</summary>", html_table(meanings), "</details>"]
    parts += ["<h2>When to abstain</h2>", f"<p>{html.escape(band_sentence(study))}</p>"]
    parts.append(_image(folder / "risk_coverage.png", CAPTIONS["risk_coverage.png"]))
    paired = [
        {
            "a": a,
            "b": b,
            "only a right": f.only_a_right,
            "only b right": f.only_b_right,
            "McNemar p": f"{f.p:.2g}",
            "Yule's Q": f"{f.yule_q:.2f}",
            "oracle F1": f"{f.oracle_f1:.3f}",
        }
        for (a, b), f in study.paired.items()
    ]
    if paired:
        parts += ["<h2>Two matchers on the same pairs</h2>", html_table(paired)]
    for name, result in study.results.items():
        examples = error_examples(result, study, matchers.get(name))
        if examples:
            parts += [f"<h2>Most confident errors of {html.escape(name)}</h2>", _examples(examples)]
    shown = [
        {"fact": name, "paper's corpus": f"{paper:.3g}", "here": f"{here:.3g}"} for name, (paper, here) in facts.items()
    ]
    parts += ["<h2>The pairs</h2>", html_table(shown)]
    return _PAGE.format(body="\n".join(parts))


def band_sentence(study: Study) -> str:
    """Say in words where each matcher abstains and what that gives."""
    said = []
    for name, result in study.results.items():
        band = result.band
        if band is None or not band.dev_coverage:
            said.append(
                f"{name}: no band keeps the error at or below {study.alpha:.1%} with 95% confidence; review everything."
            )
        else:
            said.append(
                f"{name}: abstain between {band.lo:.3f} and {band.hi:.3f}; it then decides {band.coverage:.0%} of the "
                f"test pairs and is wrong in {band.error:.2%} of these (target {study.alpha:.1%})."
            )
    return " ".join(said)


def html_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as an HTML table."""
    if not rows:
        return "<p class=note>none</p>"
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(_cell(value) for value in row.values()) + "</tr>" for row in rows)
    return f"<div class=wrap><table><tr>{head}</tr>{body}</table></div>"


def _cell(value: Any) -> str:
    kind = ' class="n"' if isinstance(value, int | float) else ""
    return f"<td{kind}><bdi>{html.escape(f'{value:g}' if isinstance(value, float) else str(value))}</bdi></td>"


def _image(path: Path, caption_text: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{html.escape(caption_text)}" src="data:image/png;base64,{data}"></figure>'


def _examples(examples: Sequence[dict[str, Any]]) -> str:
    rows = []
    for found in examples:
        sides = []
        for side in (found["pair"].left, found["pair"].right):
            out = io.StringIO()
            out.write(f"<b><bdi>{html.escape(caption(side))}</bdi></b> ({side.schema.name})<br>")
            for prop, values in list(side.properties.items())[:8]:
                out.write(f"{html.escape(prop)}: <bdi>{html.escape('; '.join(values[:3]))}</bdi><br>")
            sides.append(out.getvalue())
        why = "<br>".join(f"{html.escape(name)} {value:+.2f}" for name, value in found["why"])
        rows.append(
            f"<tr><td>{found['kind']}<br>score {found['score']:.3f}<br><small>{', '.join(found['tags'])}</small></td>"
            f"<td>{sides[0]}</td><td>{sides[1]}</td><td>{why}</td></tr>"
        )
    return (
        "<div class=wrap><table><tr><th>error</th><th>left</th><th>right</th><th>why</th></tr>"
        + "".join(rows)
        + "</table></div>"
    )

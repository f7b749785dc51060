"""Cards: one record, two reading orders, as HTML, Markdown or JSON. Everything from a record is escaped."""

from __future__ import annotations

import functools
import html
import json
import math
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import jinja2
from markupsafe import Markup, escape

from evalcards import sentences, views
from evalcards.errors import InputError
from evalcards.identity import route_id, slug
from evalcards.sentences import difference_text, p_text, score_text, setting_text
from evalcards.signals.provenance import SOURCE_TYPES
from evalcards.strict_json import canonical
from papers_shared.artifacts import jsonable
from papers_shared.cli import visible

if TYPE_CHECKING:
    from evalcards.store import Store

Mode = Literal["research", "policy"]
Format = Literal["html", "md", "json"]

ORDER: dict[str, tuple[str, ...]] = {
    "research": (
        "setup",
        "missing",
        "divergence",
        "distribution",
        "results",
        "sources",
        "risks",
        "summary",
        "glossary",
        "export",
    ),
    "policy": (
        "summary",
        "sources",
        "risks",
        "glossary",
        "missing",
        "results",
        "divergence",
        "setup",
        "distribution",
        "export",
    ),
}
"""The sections of a card by reader mode: the same ones, in another order."""

TITLES = {
    "setup": "Setup: can it be run again?",
    "missing": "What is not written down",
    "divergence": "Do the scores agree?",
    "distribution": "Scores",
    "results": "Results",
    "sources": "Who measured",
    "risks": "Risk domains",
    "summary": "In plain words",
    "glossary": "Glossary",
    "export": "Take it away",
}
SOURCE_NAMES = {
    "first_party": "model's maker",
    "third_party": "third party",
    "collaborative": "together",
    "unspecified": "not stated",
}


def bar(rate: dict[str, Any] | float | None, kind: str = "") -> Markup:
    """Draw a share as a small bar."""
    value = rate["rate"] if isinstance(rate, dict) else rate
    if value is None:
        return Markup('<span class="none">none to count</span>')
    return Markup(
        f'<svg class="bar {escape(kind)}" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="6" rx="3"/>'
        f'<rect class="fill" width="{100 * value:.1f}" height="6" rx="3"/></svg>'
    )


def stacked(kinds: dict[str, dict[str, Any]]) -> Markup:
    """Draw the shares of the four kinds of source in one bar."""
    parts, start = [], 0.0
    for kind in SOURCE_TYPES:
        share = 100 * (kinds[kind]["rate"] or 0)
        if share:
            label = f"{SOURCE_NAMES[kind]}: {kinds[kind]['count']}"
            parts.append(
                f'<rect class="{kind}" x="{start:.2f}" width="{share:.2f}" height="10"><title>{label}</title></rect>'
            )
        start += share
    return Markup(
        f'<svg class="stack" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'
    )


def strip_plot(found: dict[str, Any], link: str = "/row/") -> Markup:
    """Draw a benchmark's scores on one line, a dot each, with the metric's bounds as ends."""
    low, high, rows = found["low"], found["high"], found["rows"]
    span = high - low or 1.0
    dots = []
    for number, row in enumerate(rows):
        x = 10 + 620 * (row["score"] - low) / span
        y = 22 + 12 * math.sin(2.4 * number)
        source = row["organisation_name"] or "source not named"
        label = f"{row['model_id']}: {score_text(row['score'], row['unit'])}, {source}"
        dots.append(
            f'<a href="{link}{row["row_id"]}" tabindex="-1">'
            f'<circle class="{row["source_type"]}" cx="{x:.1f}" cy="{y:.1f}" r="3.6">'
            f"<title>{escape(label)}</title></circle></a>"
        )
    unit = rows[0]["unit"]
    ends = (
        f'<text x="10" y="56">{score_text(low, unit)}</text>'
        f'<text x="630" y="56" text-anchor="end">{score_text(high, unit)}</text>'
    )
    return Markup(
        f'<svg class="strip" viewBox="0 0 640 60" role="img" '
        f'aria-label="{len(rows)} scores from {score_text(low, unit)} to {score_text(high, unit)}">'
        f'<line x1="10" x2="630" y1="40" y2="40"/>{"".join(dots)}{ends}</svg>'
    )


@functools.cache
def environment() -> jinja2.Environment:
    """Return the template engine: everything is escaped, an unknown name is an error."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("evalcards", "templates"),
        autoescape=lambda name: not (name or "").endswith(".md"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "score": score_text, "difference": difference_text, "bar": bar, "stacked": stacked, "strip": strip_plot,
        "percent": sentences.percent, "many": sentences.many, "count": "{:,}".format, "p": p_text,
        "setting": setting_text, "route": route_id, "slug": slug, "pretty": _pretty, "cell": _cell,
    }  # fmt: skip
    shared: dict[str, Any] = {
        "TITLES": TITLES,
        "SOURCE_NAMES": SOURCE_NAMES,
        "GLOSSARY": sentences.GLOSSARY,
        "SOURCE_TYPES": SOURCE_TYPES,
    }
    found.globals.update(shared)
    return found


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False)


def _cell(value: Any) -> str:
    """Write a value into a Markdown table: no line breaks, no bars, no tags."""
    text = html.escape(visible(" ".join(str(value).split())), quote=False)
    return re.sub(r"([\\|\[\]`*_])", r"\\\1", text)


@functools.cache
def stylesheet() -> str:
    """Return the pages' stylesheet."""
    return files("evalcards").joinpath("static/style.css").read_text(encoding="utf-8")


def context(view: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return what the templates of a card need besides the view.

    Raises
    ------
    InputError
        No such mode.
    """
    if mode not in ORDER:
        raise InputError(f"no reader mode {mode!r}", hint="choose research or policy")
    return {
        "view": view,
        "mode": mode,
        "order": [name for name in ORDER[mode] if name != "distribution" or view.get("distributions")],
        "sentences": sentences.all_sentences(view),
        "risk_sentence": sentences.risks(view["risks"]),
        "by_model": view["kind"] == "benchmark",
    }


def view_of(store: Store, model: str | None = None, benchmark: str | None = None) -> dict[str, Any]:
    """Return the view of a model, a benchmark, or of one on the other.

    Raises
    ------
    InputError
        Neither is given.
    UnknownModel
        There is no such model or benchmark.
    """
    if model and benchmark:
        return views.pair_view(store, model, benchmark)
    if model:
        return views.model_view(store, model)
    if benchmark:
        return views.benchmark_view(store, benchmark)
    raise InputError("a card is of a model, a benchmark, or both", hint="name at least one")


def card(
    store: Store,
    model: str | None = None,
    benchmark: str | None = None,
    mode: Mode = "research",
    fmt: Format = "html",
) -> str:
    """Render a card that stands alone.

    Parameters
    ----------
    store
        The store.
    model, benchmark
        What the card is of: a model, a benchmark, or a model on a benchmark.
    mode
        ``research`` begins with setup, gaps and divergence; ``policy`` with plain sentences, who measured and which
        risks are covered. Both hold the same results.
    fmt
        ``html`` (one file, no scripts, nothing loaded), ``md`` or ``json``.

    Returns
    -------
    str

    Raises
    ------
    InputError
        No such mode or format.
    UnknownModel
        No such model or benchmark.
    """
    return render_view(view_of(store, model, benchmark), mode, fmt)


def render_view(view: dict[str, Any], mode: str, fmt: str) -> str:
    """Render a view as a card that stands alone; see `card`.

    Raises
    ------
    InputError
        No such mode or format.
    """
    if fmt == "json":
        return canonical(jsonable(as_record(view, mode))) + "\n"
    if fmt not in ("html", "md"):
        raise InputError(f"no card format {fmt!r}", hint="choose html, md or json")
    template = environment().get_template(f"card.{'md' if fmt == 'md' else 'standalone.html'}")
    return template.render(**context(view, mode), css=Markup(stylesheet()), alone=True, root="#")


def as_record(view: dict[str, Any], mode: str) -> dict[str, Any]:
    """Return a card as data, its keys in the order of the reader mode."""
    made = context(view, mode)
    complete = view["completeness"]["benchmarks"]
    parts: dict[str, Any] = {
        "summary": {name: text for name, _, text in made["sentences"]},
        "sources": {
            "source_types": view["summary"]["source_types"],
            "multi_source": view["summary"]["multi_source"],
            "first_party_only": view["summary"]["first_party_only"],
        },
        "risks": view["risks"],
        "missing": {
            name: {
                "score": c.score,
                "strict_score": c.strict_score,
                "missing_required_fields": c.missing_required_fields,
                "partial_fields": [p._asdict() for p in c.partial_fields],
            }
            for name, c in complete.items()
        },
        "setup": {
            "gap": view["summary"]["gap"],
            "missing": view["summary"]["missing"],
            "slots": view["summary"]["slots"],
        },
        "divergence": {
            "variant": view["summary"]["variant"],
            "cross_party": view["summary"]["cross"],
            "score_scale_anomalies": view["summary"]["anomalies"],
        },
        "results": [_result_record(row) for row in view["rows"]],
        "glossary": sentences.GLOSSARY,
    }
    head = {"kind": view["kind"], "id": view["id"], "title": view["title"], "mode": mode, "signals": view["settings"]}
    return head | {name: parts[name] for name in made["order"] if name in parts}


def _result_record(row: dict[str, Any]) -> dict[str, Any]:
    keys = (
        "row_id", "link", "model_id", "benchmark", "path", "metric", "score", "unit", "standard_error", "samples",
        "source_type", "organisation_name", "library", "library_version", "evaluated", "has_reproducibility_gap",
        "missing_fields", "slots_disclosed", "slots_applicable", "is_multi_source", "first_party_only",
        "has_variant_divergence", "variant_spread", "variant_fields", "has_cross_party_divergence", "cross_spread",
        "cross_fields", "threshold", "threshold_basis", "score_scale_anomaly", "flags",
    )  # fmt: skip
    return {key: row[key] for key in keys}

"""All cards as plain files: for a web server without Python, or any object store."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcards import render, views
from evalcards.identity import slug
from papers_shared.artifacts import RunDir, write_text

if TYPE_CHECKING:
    from evalcards.store import Store


def write_site(
    store: Store,
    folder: Path,
    mode: str = "research",
    *,
    force: bool = False,
    track: Callable[[Iterable[Any], str], Iterable[Any]] = lambda items, _: items,
) -> Path:
    """Write ``index.html`` and the card of every model and benchmark, as HTML and JSON, and the tables as Parquet.

    Parameters
    ----------
    store
        The store.
    folder
        Where to.
    mode
        Reader mode of the cards.
    force
        Replace an earlier export.
    track
        Wraps the loop to show progress.

    Returns
    -------
    Path
        The index.

    Raises
    ------
    InputError
        The folder is in use and ``force`` is false, or no such mode.
    """
    store.signals_settings()
    models = [{"model": line["id"]} for line in views.models_list(store)]
    benchmarks = [{"benchmark": line["id"]} for line in views.benchmarks_list(store) if line["rows"]]
    lines: dict[str, list[str]] = {"model": [], "benchmark": []}
    with RunDir(folder, package="evalcards", config={"mode": mode}, force=force, resume=None) as run:
        for choice in track([*models, *benchmarks], "writing cards"):
            kind, name = next(iter(choice.items()))
            view = render.view_of(store, **choice)
            stem = f"{kind}-{slug(name)}"
            for fmt in ("html", "json"):
                write_text(run / f"{stem}.{fmt}", render.render_view(view, mode, fmt))
            title, rows = html.escape(view["title"]), len(view["rows"])
            lines[kind].append(
                f'<tr><th scope="row"><a href="{stem}.html">{title}</a></th><td class="num">{rows}</td></tr>'
            )
        store.export(run / "tables")
        write_text(run / "index.html", _index(lines))
        return run / "index.html"


def _index(lines: dict[str, list[str]]) -> str:
    parts = "".join(
        f'<section class="part"><h2>{kind.capitalize()}s</h2>'
        f'<table class="plain"><tbody>{"".join(rows)}</tbody></table></section>'
        for kind, rows in lines.items()
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>Evaluation Cards</title>'
        f"<style>{render.stylesheet()}</style></head>"
        '<body><main><header class="head"><h1>Evaluation Cards</h1></header>'
        f'<div class="columns">{parts}</div></main></body></html>\n'
    )

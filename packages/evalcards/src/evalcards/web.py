"""The monitor: server-rendered pages over a store. No page loads anything from elsewhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from evalcards import render, sentences, snapshots, views
from evalcards.compare import compare
from evalcards.errors import InputError, UnknownModel
from evalcards.identity import fold, route_id, slug
from evalcards.signals import rollup
from evalcards.signals.provenance import organisation
from evalcards.significance import corpus_tests

if TYPE_CHECKING:
    from evalcards.store import Store

_LOG = logging.getLogger(__name__)
PAGE = 200
"""Lines of a list on one page."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""Sent with every answer: a script in somebody's model name has nothing to run with."""


class _Headers:
    """Add the headers to every answer."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self.added]}
            await send(message)

        await self.app(scope, receive, send_with)


class _Site:
    """The pages of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._cached: dict[str, Any] = {}

    def _cache(self, name: str, make: Callable[[], Any]) -> Any:
        """Keep what sums over the whole store until the store's rows or settings change."""
        key = (self.store.fetch("SELECT count(*) FROM logs")[0][0], json.dumps(self.store.signals_settings()))
        held = self._cached.get(name)
        if held is None or held[0] != key:
            held = self._cached[name] = (key, make())
        return held[1]

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
        """Fill a template in the reader mode of the request."""
        mode = "policy" if request.query_params.get("mode") == "policy" else "research"
        others = [(k, v) for k, v in request.query_params.multi_items() if k != "mode"]
        made = {
            "root": "/", "mode": mode, "alone": False, "path": request.url.path, "title": "",
            "research_url": "?" + urlencode([*others, ("mode", "research")]),
            "policy_url": "?" + urlencode([*others, ("mode", "policy")]),
            **values,
        }  # fmt: skip
        return HTMLResponse(render.environment().get_template(template).render(made), status)

    def _mode(self, request: Request) -> str:
        return "policy" if request.query_params.get("mode") == "policy" else "research"

    def home(self, request: Request) -> Response:
        """Show the whole corpus."""
        store = self.store
        summed = self._cache("rollup", lambda: rollup(store, **self._settings()))
        counts = {
            "models": store.fetch("SELECT count(DISTINCT model_id) FROM groups")[0][0],
            "benchmarks": store.fetch("SELECT count(DISTINCT benchmark) FROM groups")[0][0],
            "organisations": store.fetch("SELECT count(*) FROM organisations")[0][0],
            "failures": store.fetch("SELECT coalesce(sum(n), 0)::INT + count(*) FILTER (n = 0) FROM failures")[0][0],
            "unresolved": store.fetch("SELECT count(DISTINCT model_id) FROM groups WHERE resolution = 'unresolved'")[0][
                0
            ],
        }
        worst = self._cache("worst", self._most_divergent)
        overall = summed["overall"]
        summary = _as_summary(overall)
        found = {
            "mean": overall["completeness"]["mean"],
            "strict": overall["completeness"]["strict_mean"],
            "of": overall["completeness"]["benchmarks"],
            "fields": len(overall["completeness"]["fields"]),
        }
        told = sentences.all_sentences({"summary": summary, "completeness": found})
        return self.page(request, "home.html", title="Evaluation Cards", all=summed, counts=counts, worst=worst,
                         summary=summary, sentences=told, snapshots=snapshots.listed(store))  # fmt: skip

    def _settings(self) -> dict[str, Any]:
        settings = self.store.signals_settings()
        return {"profile": settings["profile"], "factor": settings["factor"]}

    def _most_divergent(self) -> list[dict[str, Any]]:
        return self.store.records(
            """SELECT link, model_id, benchmark_name, metric_name, greatest(coalesce(cross_spread, 0),
            coalesce(variant_spread, 0)) AS spread, threshold, spread / threshold AS times, has_cross_party_divergence
            AS crossed, n_parties, split_part(metric, ':', 2) AS unit
            FROM group_signals JOIN groups USING (group_id) WHERE has_cross_party_divergence OR has_variant_divergence
            ORDER BY has_cross_party_divergence DESC, times DESC, link LIMIT 8"""
        )

    def models(self, request: Request) -> Response:
        """List the models."""
        lines = self._cache("models", lambda: views.models_list(self.store))
        return self._list(request, "models.html", "Models", lines, ("id",))

    def benchmarks(self, request: Request) -> Response:
        """List the benchmarks."""
        lines = self._cache("benchmarks", lambda: views.benchmarks_list(self.store))
        return self._list(request, "benchmarks.html", "Benchmarks", lines, ("name", "category"))

    def _list(
        self, request: Request, template: str, title: str, lines: list[dict[str, Any]], keys: tuple[str, ...]
    ) -> Response:
        wanted = fold(request.query_params.get("q", ""))
        chosen = [line for line in lines if not wanted or any(wanted in fold(str(line[key])) for key in keys)]
        number = max(1, _int(request.query_params.get("page"), 1))
        pages = max(1, -(-len(chosen) // PAGE))
        part = chosen[(number - 1) * PAGE : number * PAGE]
        return self.page(request, template, title=title, lines=part, total=len(chosen), number=number, pages=pages,
                         q=request.query_params.get("q", ""))  # fmt: skip

    def model(self, request: Request) -> Response:
        """Show a model's card."""
        view = views.model_view(self.store, request.path_params["name"])
        return self._card(request, view, urlencode({"model": view["id"]}))

    def benchmark(self, request: Request) -> Response:
        """Show a benchmark's card, or with ?model= that of the pair."""
        model = request.query_params.get("model")
        if model:
            view = views.pair_view(self.store, model, request.path_params["name"])
            return self._card(request, view, urlencode({"model": model, "benchmark": request.path_params["name"]}))
        view = views.benchmark_view(self.store, request.path_params["name"])
        return self._card(request, view, urlencode({"benchmark": view["id"]}))

    def _card(self, request: Request, view: dict[str, Any], query: str) -> Response:
        mode = self._mode(request)
        return self.page(request, "card.html", title=view["title"], query=query, **{
            key: value for key, value in render.context(view, mode).items() if key != "mode"})  # fmt: skip

    def download(self, request: Request) -> Response:
        """Give a card as a file."""
        kind = request.path_params["kind"]
        params = request.query_params
        text = render.card(self.store, params.get("model"), params.get("benchmark"), self._mode(request), kind)  # ty: ignore[invalid-argument-type]
        name = slug(" ".join(filter(None, (params.get("model"), params.get("benchmark")))))
        media = {"html": "text/html", "md": "text/markdown", "json": "application/json"}[kind]
        return Response(
            text, media_type=media, headers={"Content-Disposition": f'attachment; filename="{name}.{kind}"'}
        )

    def logs(self, request: Request) -> Response:
        """Give a model's records as they were imported."""
        found = self.store.find_model(request.path_params["name"])
        name = slug(found)
        return JSONResponse(
            self.store.logs(found), headers={"Content-Disposition": f'attachment; filename="{name}.json"'}
        )

    def row(self, request: Request) -> Response:
        """Show one result with its source."""
        view = views.row_view(self.store, request.path_params["row_id"])
        return self.page(request, "row.html", title=view["title"], view=view)

    def triple(self, request: Request) -> Response:
        """Show the results of one triple."""
        rows = views.triple_link(self.store, request.path_params["link"])
        medians = self.store.records(
            """SELECT text AS party, median, n FROM party_medians JOIN organisations ON code = organisation
            WHERE group_id = ? ORDER BY text""",
            [rows[0]["group_id"]],
        )
        # As the sources write it; the settled spelling is for comparing.
        written = {organisation(row["organisation_name"]): row["organisation_name"] for row in reversed(rows)}
        medians = [{**line, "party": written.get(line["party"], line["party"])} for line in medians]
        arguments = [json.loads(row["args"]) for row in rows]
        tests = {t.group_id: t for t in self._cache("tests", lambda: corpus_tests(self.store))}
        return self.page(request, "triple.html", title="Triple", rows=rows, medians=medians, arguments=arguments,
                         test=tests.get(rows[0]["group_id"]), tested=len(tests), by_model=False)  # fmt: skip

    def compare(self, request: Request) -> Response:
        """Compare two models on a benchmark."""
        params = request.query_params
        a, b, on = (params.get(key, "").strip() for key in ("a", "b", "on"))
        found, problem = [], ""
        if a and b and on:
            try:
                found = compare(self.store, a, b, on)
            except InputError as error:
                problem = str(error)
        names = self._cache("models", lambda: views.models_list(self.store))
        benchmarks = self._cache("benchmarks", lambda: views.benchmarks_list(self.store))
        return self.page(
            request,
            "compare.html",
            title="Compare",
            found=found,
            problem=problem,
            a=a,
            b=b,
            on=on,
            models=[line["id"] for line in names[:2000]],
            benchmarks=[line["name"] for line in benchmarks],
        )

    def changes(self, request: Request) -> Response:
        """Show what changed between two snapshots."""
        params = request.query_params
        found, problem = None, ""
        if params.get("a") and params.get("b"):
            try:
                found = snapshots.diff(self.store, params["a"], params["b"])
            except InputError as error:
                problem = str(error)
        return self.page(
            request,
            "snapshots.html",
            title="Snapshots",
            snapshots=snapshots.listed(self.store),
            found=found,
            problem=problem,
            a=params.get("a", ""),
            b=params.get("b", ""),
        )

    def failures(self, request: Request) -> Response:
        """Show what did not become a row, and which names were not resolved."""
        store = self.store
        lines = store.records("SELECT path, place, reason, n FROM failures ORDER BY path, place LIMIT 2000")
        unresolved = store.fetch(
            "SELECT DISTINCT model_id FROM groups WHERE resolution = 'unresolved' ORDER BY 1 LIMIT 2000"
        )
        total = store.fetch("SELECT count(*) FROM failures")[0][0]
        return self.page(request, "failures.html", title="Not imported", lines=lines, total=total,
                         unresolved=[name for (name,) in unresolved])  # fmt: skip

    def glossary(self, request: Request) -> Response:
        """Explain the words."""
        return self.page(request, "glossary.html", title="Glossary")

    def search(self, request: Request) -> Response:
        """Go to the model or benchmark of that name, or to the lists that hold the words."""
        wanted = request.query_params.get("q", "").strip()
        mode = self._mode(request)
        for name in (line["id"] for line in self._cache("models", lambda: views.models_list(self.store))):
            if fold(name) == fold(wanted):
                return RedirectResponse(f"/model/{quote(route_id(name), safe='')}?mode={mode}", 303)
        lines = self._cache("benchmarks", lambda: views.benchmarks_list(self.store))
        for line in lines:
            if fold(str(line["name"])) == fold(wanted):
                return RedirectResponse(f"/benchmark/{line['id']}?mode={mode}", 303)
        among = any(fold(wanted) in fold(str(line["name"])) for line in lines)
        models = any(
            fold(wanted) in fold(line["id"]) for line in self._cache("models", lambda: views.models_list(self.store))
        )
        target = "benchmarks" if among and not models else "models"
        return RedirectResponse(f"/{target}?{urlencode({'q': wanted, 'mode': mode})}", 303)

    def rollup_json(self, _request: Request) -> Response:
        """Give the corpus's rates as data."""
        return JSONResponse(self._cache("rollup", lambda: rollup(self.store, **self._settings())))


def _as_summary(overall: dict[str, Any]) -> dict[str, Any]:
    """Return a rollup in the form of a card's summary."""
    reproducible, provenance = overall["reproducibility"], overall["provenance"]
    missing = sorted(reproducible["missing"].items(), key=lambda item: -item[1]["count"])
    return {
        "rows": overall["rows"],
        "triples": overall["triples"],
        "gap": reproducible["gap"],
        "missing": {field: rate for field, rate in missing if rate["count"]},
        "slots": (reproducible["slots"]["disclosed"], reproducible["slots"]["applicable"]),
        "source_types": provenance["source_types"],
        "multi_source": provenance["multi_source"],
        "first_party_only": provenance["first_party_only"],
        "variant": overall["comparability"]["variant_divergence"],
        "cross": overall["comparability"]["cross_party_divergence"],
        "anomalies": overall["comparability"]["score_scale_anomalies"],
    }


def _int(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else default


def _threaded(page: Callable[[Request], Response]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(page, request)

    return answer


def app(store: Store) -> Starlette:
    """Return the monitor of a store as an ASGI application.

    Parameters
    ----------
    store
        The store; its signals are computed if they are not.

    Examples
    --------
    >>> uvicorn.run(app(Store("cards.duckdb")), host="127.0.0.1", port=8777)
    """
    store.signals_settings()
    site = _Site(store)

    async def wrong(request: Request, error: Exception) -> Response:
        """Say what cannot be shown, in one sentence."""
        unknown = isinstance(error, UnknownModel)
        return site.page(
            request,
            "error.html",
            404 if unknown else 400,
            title="Not found" if unknown else "Cannot do that",
            message=str(error),
        )

    async def missing(request: Request, error: Exception) -> Response:
        return site.page(request, "error.html", 404, title="Not found", message=f"There is no page {request.url.path}.")

    def get(path: str, page: Callable[[Request], Response]) -> Route:
        return Route(path, _threaded(page))

    def healthy(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    routes = [
        get("/", site.home),
        get("/models", site.models),
        get("/benchmarks", site.benchmarks),
        get("/model/{name:path}", site.model),
        get("/benchmark/{name:path}", site.benchmark),
        get("/row/{row_id}", site.row),
        get("/triple/{link}", site.triple),
        get("/compare", site.compare),
        get("/snapshots", site.changes),
        get("/failures", site.failures),
        get("/glossary", site.glossary),
        get("/search", site.search),
        get("/rollup.json", site.rollup_json),
        get("/logs/{name:path}.json", site.logs),
        *(get(f"/card/{name}.{{kind}}", site.download) for name in ("model", "benchmark", "pair")),
        get("/healthz", healthy),
        Mount("/static", StaticFiles(directory=str(files("evalcards").joinpath("static")))),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Headers)],
        exception_handlers={InputError: wrong, 404: missing},
    )

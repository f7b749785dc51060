"""Measure the whole way, files to pages, in a process of its own, so that its memory is its own."""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from evalcards.generator import generate
from evalcards.identity import route_id
from evalcards.importing import import_files
from evalcards.schema import BenchmarkCard
from evalcards.store import Store


def write_corpus(
    folder: Path, models: int, benchmarks: int, rows: int, seed: int = 0
) -> tuple[Path, list[dict[str, Any]]]:
    """Write a made-up corpus as one JSON file per record, 1,000 to a folder; return the folder and the cards."""
    corpus = generate(models, benchmarks, rows, seed)
    for number, document in enumerate(corpus.documents):
        part = folder / f"{number // 1000:03d}"
        if number % 1000 == 0:
            part.mkdir(parents=True)
        (part / f"{number}.json").write_text(json.dumps(document))
    return folder, corpus.cards


def measure(models: int, benchmarks: int, rows: int, pages: int = 60, seed: int = 0) -> dict[str, Any]:
    """Import a made-up corpus from files into a new store file, compute the signals, ask for pages.

    Parameters
    ----------
    models, benchmarks, rows
        Size of the corpus.
    pages
        How many pages to ask for.
    seed
        Of the corpus.

    Returns
    -------
    dict
        ``rows``, ``files``, ``import_seconds``, ``signal_seconds``, ``page_seconds`` (list), ``largest_page`` (its
        rows), ``peak_gb`` (resident memory of the process that did it).
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, cards = write_corpus(folder / "records", models, benchmarks, rows, seed)
        (folder / "cards.json").write_text(json.dumps(cards))
        command = [sys.executable, "-m", _main.__module__, name, str(pages)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the measured process failed: {done.stderr.strip().splitlines()[-1:]}")
        return json.loads(done.stdout.splitlines()[-1])


class Answer(NamedTuple):
    """What an application answered."""

    status: int
    headers: dict[str, str]
    body: bytes


async def get(application: Any, path: str) -> Answer:
    """Ask an ASGI application for a page, without a network; the path is as in an address, percent-encoded."""
    page, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(page),
        "raw_path": page.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    status, headers, pieces = 0, {}, []

    asked = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if asked.is_set():  # the next thing would be that the client goes away, which it does not
            await asyncio.Event().wait()
        asked.set()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        """Take a part of the answer."""
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status = message["status"]
            headers = {name.decode().lower(): value.decode() for name, value in message["headers"]}
        else:
            pieces.append(message.get("body", b""))

    await application(scope, receive, send)
    return Answer(status, headers, b"".join(pieces))


def page_paths(store: Store, pages: int) -> tuple[list[str], int]:
    """Return addresses spread over a store (start, lists, cards, results) and the rows of the largest card."""
    models = store.fetch(
        "SELECT model_id, count(*) n FROM results JOIN groups USING (group_id) GROUP BY 1 ORDER BY n DESC, 1"
    )
    benchmarks = store.fetch(
        "SELECT benchmark, count(*) n FROM results JOIN groups USING (group_id) GROUP BY 1 ORDER BY n DESC, 1"
    )
    rows = [row for (row,) in store.fetch("SELECT row_id FROM results ORDER BY row_id LIMIT 5000")]
    part = max(1, pages // 4)

    def spread(items: list[Any]) -> list[Any]:
        return items[:: max(1, len(items) // part)][:part]

    paths = ["/", "/?mode=policy", "/models", "/benchmarks", "/compare"]
    paths += [f"/model/{quote(route_id(name), safe='')}" for name, _ in spread(models)]
    paths += [f"/benchmark/{name}" for name, _ in spread(benchmarks)]
    paths += [f"/row/{name}" for name in spread(rows)]
    return paths, max(models[0][1], benchmarks[0][1])


def _now() -> tuple[float, float]:
    """Return the processor time of all threads of this process, and the wall clock."""
    return time.process_time(), time.perf_counter()


def _main(folder: Path, pages: int) -> dict[str, Any]:
    from evalcards.web import app

    cards = [BenchmarkCard.model_validate(card) for card in json.loads((folder / "cards.json").read_text())]
    with Store(folder / "store.duckdb") as store:
        store.add_cards(cards)
        start = _now()
        report = import_files(store, [folder / "records"])
        imported = _now()
        store.signals()
        signalled = _now()
        application = app(store)
        paths, largest = page_paths(store, pages)
        seconds: list[float] = []
        wall: list[float] = []

        async def ask() -> None:
            """Ask for every page once, after the first of each list."""
            # Lists and sums over the whole store are kept between requests: the first of each is made before.
            for path in paths[:5]:
                await get(application, path)
            for path in paths:
                begin = _now()
                answer = await get(application, path)
                seconds.append(_now()[0] - begin[0])
                wall.append(_now()[1] - begin[1])
                if answer.status != 200:
                    raise RuntimeError(f"{path} answered {answer.status}")

        asyncio.run(ask())
        return {
            "rows": report.rows,
            "files": report.files,
            "import_seconds": imported[0] - start[0],
            "signal_seconds": signalled[0] - imported[0],
            "wall_seconds": signalled[1] - start[1],
            "page_seconds": seconds,
            "page_wall_seconds": wall,
            "largest_page": largest,
            "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_main(Path(sys.argv[1]), int(sys.argv[2]))) + "\n")

"""The review queue in a browser: side-by-side records, keys y, n, u and z; on this machine unless told otherwise."""

from __future__ import annotations

import json
import secrets
from importlib.resources import files
from typing import Any

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.review import Queue
from sanctionspairs.terminal import rows_of

_LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")


def make_app(queue: Queue, *, user: str | None = None, hosts: tuple[str, ...] = _LOCAL) -> Any:
    """Return a Starlette application for a queue.

    A decision is a POST with the page's secret token, so that no other page in the same browser can decide.

    Raises
    ------
    SanctionsPairsError
        starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, JSONResponse
        from starlette.routing import Route
    except ImportError as error:
        raise SanctionsPairsError("reviewing in a browser needs starlette", "install sanctionspairs[web]") from error
    token = secrets.token_urlsafe(16)
    page = (files("sanctionspairs") / "assets" / "review.html").read_text(encoding="utf-8")

    async def home(request: Request) -> HTMLResponse:
        headers = {"Content-Security-Policy": "default-src 'self' 'unsafe-inline'", "Cache-Control": "no-store"}
        return HTMLResponse(page.replace("{{token}}", token), headers=headers)

    async def state(request: Request) -> JSONResponse:
        return JSONResponse(_state(queue))

    async def decide(request: Request) -> JSONResponse:
        """Append a decision, or undo the last one."""
        if request.headers.get("x-token") != token:
            return JSONResponse({"error": "reload the page"}, status_code=403)
        try:
            body = json.loads(await request.body())
            if body.get("undo"):
                queue.undo(user)
            else:
                queue.decide(int(body["item"]), str(body["judgement"]), user)
        except (SanctionsPairsError, ValueError, KeyError, TypeError, AttributeError) as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        return JSONResponse(_state(queue))

    routes = [Route("/", home), Route("/state", state), Route("/decide", decide, methods=["POST"])]
    return Starlette(
        routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[h.strip("[]") for h in hosts])]
    )


def _state(queue: Queue) -> dict[str, Any]:
    """Return what the page shows: the next pair and how far the work is."""
    pending = queue.pending()
    history = [
        {
            "judgement": decision.judgement,
            "left": _title(queue.items[decision.item].left),
            "right": _title(queue.items[decision.item].right),
            "user": decision.user,
            "time": decision.time[:19],
        }
        for decision in reversed(queue.history[-8:])
    ]
    answer: dict[str, Any] = {"todo": len(pending), "total": len(queue.items), "history": history, "item": None}
    if pending:
        item = pending[0]
        answer["item"] = {
            "number": item.number,
            "p": item.p,
            "harm": queue.harm(item),
            "tags": list(item.tags),
            "reasons": sorted(item.reasons.items(), key=lambda found: -abs(found[1]))[:8],
            "left": {
                "title": _title(item.left),
                "schema": item.left["schema"],
                "source": item.left.get("datasets") or [],
            },
            "right": {
                "title": _title(item.right),
                "schema": item.right["schema"],
                "source": item.right.get("datasets") or [],
            },
            "rows": [list(row) for row in rows_of(item)],
            "clusters": [len(item.left_cluster), len(item.right_cluster)],
        }
    return answer


def _title(record: Any) -> str:
    return str(record.get("caption") or (record["properties"].get("name") or [record["id"]])[0])


def serve(queue: Queue, address: str, *, user: str | None = None) -> None:
    """Serve a queue at ``HOST:PORT`` until interrupted.

    Raises
    ------
    SanctionsPairsError
        The address is none, or uvicorn is not installed.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise SanctionsPairsError(f"--serve {address!r} is no address", "write HOST:PORT, for example 127.0.0.1:8765")
    try:
        import uvicorn
    except ImportError as error:
        raise SanctionsPairsError("reviewing in a browser needs uvicorn", "install sanctionspairs[web]") from error
    app = make_app(queue, user=user, hosts=(*_LOCAL, host))
    uvicorn.run(app, host=host.strip("[]"), port=int(port), log_level="warning")

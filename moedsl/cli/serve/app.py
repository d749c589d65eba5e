"""Route the requests of the page. It takes no other site's requests, and loads nothing from elsewhere."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moedsl.cli.serve import work
from moedsl.cli.serve.pool import BusyError, EndedError, Pool
from moedsl.cli.serve.start import start
from moedsl.lang import reader

HERE = Path(__file__).parent
FILES = {"/": ("page.html", "html"), "/page.css": ("page.css", "css"), "/page.js": ("page.js", "javascript")}
DEFAULTS = {"columns": work.COLUMNS}
"""What a request may leave out."""
LIMIT = 2 * reader.LIMIT
"""The most bytes of a request: a program of the largest size, as JSON."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""The headers of every answer. The report is shown in a frame without scripts, and needs inline styles."""


def make(names: Sequence[str], processes: int) -> Starlette:
    """Make the application for requests to the hosts of those names."""
    routes = [Route(path, _file(*what)) for path, what in FILES.items()]
    routes += [
        Route("/start", _start),
        Route("/answer", _answer, methods=["POST"]),
        Route("/complete", _complete, methods=["POST"]),
        Route("/recipe.zip", _recipe, methods=["POST"]),
    ]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        app.state.pool = Pool(processes)
        await app.state.pool.warm()
        yield
        app.state.pool.close()

    return Starlette(routes=routes, middleware=[Middleware(_Headers), hosts], lifespan=lifespan)


class _Headers:
    """Adds `HEADERS` to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
            await send(message)

        await self._app(scope, receive, sending)


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response((HERE / name).read_bytes(), media_type=f"text/{kind}")

    return answer


async def _start(_: Request) -> Response:
    return JSONResponse(start())


async def _answer(request: Request) -> Response:
    asked = await _asked(request, what=str, text=str, columns=int)
    if asked["what"] not in work.ANSWERS:
        raise HTTPException(400, f"what is one of {', '.join(work.ANSWERS)}")
    return JSONResponse(await _worked(request, work.answer, *asked.values()))


async def _complete(request: Request) -> Response:
    asked = await _asked(request, text=str, line=int, character=int)
    return JSONResponse(await _worked(request, work.complete, *asked.values()))


async def _recipe(request: Request) -> Response:
    asked = await _asked(request, text=str)
    archive = await _worked(request, work.recipe, asked["text"])
    if not archive:
        raise HTTPException(409, "the program has no plan")
    return Response(archive, media_type="application/zip")


async def _asked(request: Request, **kinds: type) -> dict[str, Any]:
    """Read the JSON object of a request. Another site's page cannot send its content type without asking first."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the content type is application/json")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LIMIT:
            raise HTTPException(413, f"a request has at most {LIMIT // 1024} KiB")
    try:
        asked = {**DEFAULTS, **json.loads(body)}
        values = {name: asked[name] for name in kinds}
    except (ValueError, RecursionError, LookupError, TypeError):
        raise HTTPException(400, f"the body is a JSON object with {', '.join(kinds)}") from None
    for name, kind in kinds.items():
        if type(values[name]) is not kind or (kind is int and not 0 <= values[name] <= LIMIT):
            expected = {int: f"a whole number from 0 to {LIMIT}", str: "a text"}
            raise HTTPException(400, f"{name} must be {expected.get(kind, kind.__name__)}")
    return values


async def _worked(request: Request, function: Callable[..., Any], *arguments: Any) -> Any:
    pool: Pool = request.app.state.pool
    try:
        return await pool.ask(request.is_disconnected, function, *arguments)
    except BusyError:
        raise HTTPException(503, "many people plan at this moment: try again") from None
    except EndedError:
        raise HTTPException(503, "the process that planned this was ended: try again, or plan less at once") from None
    except Exception:
        traceback.print_exc(file=sys.stderr)
        raise HTTPException(500, "this is a bug of moedsl; the server's log has its place") from None

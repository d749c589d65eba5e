"""Route the requests of the page to worker processes: as many as cores, replaced if one ends.

Requests from other sites are refused, and the page loads nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from socket import socket
from typing import Any
from weakref import WeakValueDictionary

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moedsl import compiler
from moedsl.cli.serve import work
from moedsl.facts import axes
from moedsl.lang import reader
from moedsl.lang.keywords import keywords
from moedsl.support.resources import example_files

WAITING, OF_ONE = 64, 16
"""The most requests that are answered or wait, of all clients and of one address; further ones are refused."""


ENDS = "the server was ended"


class Pool:
    """Processes that answer the requests of one event loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._turns = WeakValueDictionary[str, asyncio.Semaphore]()
        """Of each client that asks: as many of its requests as there are processes stand in the common queue."""
        self._waiting = Counter[str]()
        self._is_open = True
        self._executor = self._started()

    def _started(self) -> ProcessPoolExecutor:
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload([work.__name__])  # imported once for all processes, also for later replacements
        return ProcessPoolExecutor(self._size, mp_context=forks, initializer=work.end_with_parent)

    async def warm(self) -> None:
        """Start every process."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._executor, work.begin) for _ in range(self._size)))

    async def ask(
        self, client: str, gone: Callable[[], Awaitable[bool]], function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Call a function of `work` in a process; None if the client, an address, is `gone` when its turn comes.

        Raises HTTPException if too many requests wait, or if the process ends before its answer.
        """
        if self._waiting[client] >= OF_ONE:
            raise HTTPException(503, f"{OF_ONE} requests of this address wait for their answers: try again")
        if self._waiting.total() >= WAITING:
            raise HTTPException(503, "many people plan at this moment: try again")
        self._waiting[client] += 1
        turns = self._turns.setdefault(client, asyncio.Semaphore(self._size))
        try:
            async with turns, self._free:
                if not self._is_open:
                    raise HTTPException(503, ENDS)
                if await gone():
                    return None
                executor = self._executor
                try:
                    return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
                except BrokenProcessPool:
                    if not self._is_open:
                        raise HTTPException(503, ENDS) from None
                    if self._executor is executor:
                        executor.shutdown(wait=False)
                        self._executor = self._started()
                    text = "the process that planned this was ended: try again, or plan less at once"
                    raise HTTPException(503, text) from None
        finally:
            self._waiting[client] -= 1
            self._waiting += Counter()  # forgets clients without requests

    def close(self) -> None:
        """End the processes at once; whoever waits is told so."""
        self._is_open = False
        processes = [*(self._executor._processes or {}).values()]  # pyright: ignore[reportPrivateUsage]
        for process in processes:
            process.kill()
        self._executor.shutdown(wait=False)


class Server(uvicorn.Server):
    """A server that does not wait for the answers in its queue when it is told to end."""

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self.config.app.state.pool.close()  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
        await super().shutdown(sockets)


FIRST = "qwen3_235b_gb200_128k"
"""The example that the page opens with."""


@cache
def start() -> dict[str, Any]:
    """Return `examples` with name, title and text, FIRST first, and `words` by the class of their colour."""
    known, library = keywords(), compiler.load_stdlib()
    groups = (known.statements, known.declarations, known.members, known.clauses, known.links, known.operators)
    words = {
        "keyword": sorted({w for group in groups for w in group} | {*axes.PHASES}),
        "model": [*library.models],
        "hardware": [*library.hardware],
        "axis": [a.name for a in axes.AXES],
    }
    examples: list[dict[str, str]] = []
    for path in example_files():
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        if not any(line.startswith("use ") for line in lines):
            title = next((line.removeprefix("#").strip() for line in lines if line.startswith("#")), "")
            examples.append({"name": path.stem, "title": title, "text": text})
    return {"examples": sorted(examples, key=lambda e: e["name"] != FIRST), "words": words}


HERE = Path(__file__).parent
FILES = {"/": ("page.html", "html"), "/page.css": ("page.css", "css"), "/page.js": ("page.js", "javascript")}
DEFAULTS = {"columns": work.COLUMNS}
"""Values for what a request leaves out."""
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
    """Make the application; it takes requests for the host names `names` only."""
    routes = [Route("/start", lambda _: JSONResponse(start()))]
    for path, (name, kind) in FILES.items():
        text = partial(Response, (HERE / name).read_bytes(), media_type=f"text/{kind}")
        routes.append(Route(path, lambda _, text=text: text()))
    routes += [Route(path, handler, methods=["POST"]) for path, handler in HANDLERS.items()]
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(names), www_redirect=False)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        app.state.pool = Pool(processes)
        try:
            await app.state.pool.warm()
            yield
        finally:
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


async def answer(request: Request) -> Response:
    asked = await _asked(request, what=str, text=str, columns=int)
    if asked["what"] not in work.ANSWERS:
        raise HTTPException(400, f"what is one of {', '.join(work.ANSWERS)}")
    return JSONResponse(await _worked(request, work.answer, *asked.values()))


async def complete(request: Request) -> Response:
    asked = await _asked(request, text=str, line=int, character=int)
    return JSONResponse(await _worked(request, work.complete, *asked.values()))


async def recipe(request: Request) -> Response:
    asked = await _asked(request, text=str)
    archive = await _worked(request, work.recipe, asked["text"])
    if not archive:
        raise HTTPException(409, "the program has no plan")
    return Response(archive, media_type="application/zip")


HANDLERS = {"/answer": answer, "/complete": complete, "/recipe.zip": recipe}


async def _asked(request: Request, **kinds: type) -> dict[str, Any]:
    """Read the JSON object of a request, with a value for each of `kinds`.

    Another site's page cannot send the content type of JSON without asking the server first.
    """
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
    client = request.client.host if request.client else ""
    try:
        return await pool.ask(client, request.is_disconnected, function, *arguments)
    except HTTPException:
        raise
    except Exception:
        traceback.print_exc(file=sys.stderr)
        raise HTTPException(500, "this is a bug of moedsl; the server's log has its place") from None

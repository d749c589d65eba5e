"""How fast the server answers, over stdio, as a client sees it; `make bench` prints it against the goals."""

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from lsprotocol import types
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_lsp import make_test_lsp_client

from tests.helpers.paths import ROOT
from tests.lsp.lsp_ask import long_file
from tests.lsp.lsp_client import ENVIRONMENT, Session, server_command

pytestmark = pytest.mark.bench
BRING_UP = (ROOT / "examples" / "qwen3_235b_gb200_128k.moe").read_text(encoding="utf-8")


def in_session(folder: Path, body: Callable[[Session], Awaitable[Any]]) -> Any:
    """Runs a body against a server of its own."""

    async def run() -> Any:
        client = make_test_lsp_client()
        await client.start_io(*server_command(), env=ENVIRONMENT)
        session = Session(client, folder)
        await session.start("visual-studio-code")
        result = await body(session)
        await client.shutdown_session()
        await client.stop()
        return result

    return asyncio.run(run())


class Timed:
    """Seconds of each action, and of the server's processor for all of them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.cpu = 0.0

    @contextmanager
    def one(self) -> Generator[None]:
        used, start = self._used(), time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - start)
        self.cpu += self._used() - used

    def _used(self) -> float:
        return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children())

    def record(self, benchmark: BenchmarkFixture, goal: float, what: str) -> None:
        """Puts the times beside a goal into the report of the benchmark, which itself times nothing."""
        ordered = sorted(self.seconds)
        p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
        cpu = self.cpu / len(ordered)
        figures = {"p50": statistics.median(ordered), "p95": p95, "cpu": cpu, "goal": goal}
        benchmark.extra_info.update({"what": what, **{f"{k}_ms": 1000 * v for k, v in figures.items()}})
        benchmark.pedantic(lambda: None, rounds=1)
        times = ", ".join(f"{k} {1000 * v:.1f}" for k, v in figures.items())
        print(f"\n{what}: {times} ms")


def test_initialize(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    timed = Timed()

    async def once() -> None:
        client = make_test_lsp_client()
        with timed.one():
            await client.start_io(*server_command(), env=ENVIRONMENT)
            await Session(client, tmp_path).start("visual-studio-code")
        await client.shutdown_session()
        await client.stop()

    for _ in range(7):
        asyncio.run(once())
    timed.record(benchmark, 0.7, "start and initialize")


def insert(session: Session, name: str, at: types.Position, text: str) -> None:
    session.change(name, types.TextDocumentContentChangePartial(range=types.Range(at, at), text=text))


async def settled(session: Session, name: str, text: str) -> None:
    """An open file, checked, and the server warm."""
    session.open(name, text)
    await session.diagnostics(name)
    await asyncio.sleep(3)


def edits(lines: int, count: int) -> Callable[[Session], Coroutine[Any, Any, Timed]]:
    """Characters typed all over a long file, each waited for."""

    async def body(session: Session) -> Timed:
        text = long_file(lines)
        await settled(session, "long.moe", text)
        places, timed = random.Random(0), Timed()
        for i in range(count):
            line = places.randrange(text.count("\n"))
            with timed.one():
                insert(session, "long.moe", types.Position(line, 0), "# typed\n" if i % 3 else " ")
                await seen(session, "long.moe")
        return timed

    return body


async def seen(session: Session, name: str) -> None:
    """Until the newest version's diagnostics are there; polls more often than `Session.diagnostics`."""
    version, uri = session.versions[name], session.uri(name)
    while not (session.published and (session.published[-1].version, session.published[-1].uri) == (version, uri)):
        await asyncio.sleep(0.0005)


def test_edit_to_diagnostics(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    in_session(tmp_path, edits(300, 100)).record(benchmark, 0.05, "edit to diagnostics, 300 lines")


COMPLETED = (
    "", "model ", "pin ", "pin tp=", "pin recompute=", "allow ", "allow mesh.", "set ", "set model.moe", "require ",
)  # fmt: skip


def test_completion(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    async def body(session: Session) -> Timed:
        await settled(session, "a.moe", BRING_UP)
        line, timed = BRING_UP.count("\n"), Timed()
        for typed in COMPLETED * 5:
            session.replace("a.moe", BRING_UP + typed)
            await session.diagnostics("a.moe")
            with timed.one():
                assert await session.complete("a.moe", line, len(typed))
        return timed

    in_session(tmp_path, body).record(benchmark, 0.02, "completion")


def test_hints(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    async def body(session: Session) -> Timed:
        await settled(session, "a.moe", BRING_UP)
        timed = Timed()
        for i in range(20):
            session.replace("a.moe", BRING_UP + f"batch {64 + 16 * i}\n")
            with timed.one():
                assert await session.hints("a.moe")
            await asyncio.sleep(0.1)
        return timed

    in_session(tmp_path, body).record(benchmark, 0.5, "last key to hints, 256 GPUs")


def test_memory_after_many_edits(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """An hour's worth: two thousand edits of a long file, and a plan after every fiftieth."""

    async def body(session: Session) -> float:
        await settled(session, "a.moe", BRING_UP)
        await edits(300, 2000)(session)
        for i in range(40):
            session.replace("a.moe", BRING_UP + f"batch {64 + 16 * i}\n")
            await session.hints("a.moe")
        (server,) = psutil.Process().children()
        return server.memory_info().rss / 1e6

    megabytes = in_session(tmp_path, body)
    benchmark.extra_info.update({"rss_mb": megabytes, "goal_mb": 250, "what": "memory after 2,040 edits"})
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"\nmemory after 2,040 edits: {megabytes:.0f} MB, goal 250 MB")

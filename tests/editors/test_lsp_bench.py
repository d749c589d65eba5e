"""How fast the server answers, over stdio, as a client sees it; `make bench` prints it against the goals."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
from lsp_client import ENVIRONMENT, Session, server_command
from lsp_texts import ROOT, long_file
from lsprotocol import types
from pytest_benchmark.fixture import BenchmarkFixture
from pytest_lsp import make_test_lsp_client

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


def record(benchmark: BenchmarkFixture, seconds: list[float], goal: float, what: str) -> None:
    """Puts measured times beside a goal into the report of the benchmark, which itself times nothing."""
    ordered = sorted(seconds)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    figures = {"p50_ms": statistics.median(ordered) * 1000, "p95_ms": p95 * 1000, "goal_ms": goal * 1000, "what": what}
    benchmark.extra_info.update(figures)
    benchmark.pedantic(lambda: None, rounds=1)
    print(f"\n{what}: p50 {figures['p50_ms']:.1f} ms, p95 {figures['p95_ms']:.1f} ms, goal {figures['goal_ms']:.0f} ms")


def test_initialize(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    async def once() -> float:
        start = time.perf_counter()
        client = make_test_lsp_client()
        await client.start_io(*server_command(), env=ENVIRONMENT)
        await Session(client, tmp_path).start("visual-studio-code")
        took = time.perf_counter() - start
        await client.shutdown_session()
        await client.stop()
        return took

    record(benchmark, [asyncio.run(once()) for _ in range(7)], 0.7, "start and initialize")


def insert(session: Session, name: str, at: types.Position, text: str) -> None:
    session.change(name, types.TextDocumentContentChangePartial(range=types.Range(at, at), text=text))


async def settled(session: Session, name: str, text: str) -> None:
    """An open file, checked, and the server warm."""
    session.open(name, text)
    await session.diagnostics(name)
    await asyncio.sleep(3)


def edits(lines: int, count: int) -> Callable[[Session], Coroutine[Any, Any, list[float]]]:
    """Characters typed all over a long file, each waited for."""

    async def body(session: Session) -> list[float]:
        text = long_file(lines)
        await settled(session, "long.moe", text)
        places, took = random.Random(0), list[float]()
        for i in range(count):
            line = places.randrange(text.count("\n"))
            start = time.perf_counter()
            insert(session, "long.moe", types.Position(line, 0), "# typed\n" if i % 3 else " ")
            await seen(session, "long.moe")
            took.append(time.perf_counter() - start)
        return took

    return body


async def seen(session: Session, name: str) -> None:
    """Until the newest version's diagnostics are there; polls more often than `Session.diagnostics`."""
    version, uri = session.versions[name], session.uri(name)
    while not (session.published and (session.published[-1].version, session.published[-1].uri) == (version, uri)):
        await asyncio.sleep(0.0005)


def test_edit_to_diagnostics(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    record(benchmark, in_session(tmp_path, edits(300, 100)), 0.05, "edit to diagnostics, 300 lines")


COMPLETED = (
    "",
    "model ",
    "pin ",
    "pin tp=",
    "pin recompute=",
    "allow ",
    "allow mesh.",
    "set ",
    "set model.moe",
    "require ",
)


def test_completion(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    async def body(session: Session) -> list[float]:
        await settled(session, "a.moe", BRING_UP)
        line, took = BRING_UP.count("\n"), list[float]()
        for typed in COMPLETED * 5:
            session.replace("a.moe", BRING_UP + typed)
            await session.diagnostics("a.moe")
            start = time.perf_counter()
            assert await session.complete("a.moe", line, len(typed))
            took.append(time.perf_counter() - start)
        return took

    record(benchmark, in_session(tmp_path, body), 0.02, "completion")


def test_hints(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    async def body(session: Session) -> list[float]:
        await settled(session, "a.moe", BRING_UP)
        took = list[float]()
        for i in range(20):
            session.replace("a.moe", BRING_UP + f"batch {64 + 16 * i}\n")
            start = time.perf_counter()
            assert await session.hints("a.moe")
            took.append(time.perf_counter() - start)
            await asyncio.sleep(0.1)
        return took

    record(benchmark, in_session(tmp_path, body), 0.5, "last key to hints, 256 GPUs")


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

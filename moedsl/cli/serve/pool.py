"""Keep the processes that answer: as many as cores, each with one request at a time, replaced if one ends."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from moedsl.cli.serve import work

WAITING = 64
"""Requests that wait for a process; another one is refused."""


class BusyError(Exception):
    """Too many requests wait."""


class EndedError(Exception):
    """The process ended before its answer."""


class Pool:
    """Processes that answer the requests of one event loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._waiting = 0
        self._executor = self._started()

    def _started(self) -> ProcessPoolExecutor:
        forks = multiprocessing.get_context("forkserver")
        forks.set_forkserver_preload([work.__name__])  # imported once for all, also for those that replace others
        return ProcessPoolExecutor(self._size, mp_context=forks, initializer=work.begin)

    async def warm(self) -> None:
        """Start every process."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._executor, work.begin) for _ in range(self._size)))

    async def ask(self, gone: Callable[[], Awaitable[bool]], function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of `work` in a process; None if the client is `gone` when its turn comes.

        Raises BusyError and EndedError.
        """
        if self._waiting >= WAITING:
            raise BusyError
        self._waiting += 1
        try:
            async with self._free:
                return None if await gone() else await self._call(function, *arguments)
        finally:
            self._waiting -= 1

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        executor = self._executor
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
        except BrokenProcessPool:
            if self._executor is executor:
                executor.shutdown(wait=False)
                self._executor = self._started()
            raise EndedError from None

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown(wait=False, cancel_futures=True)

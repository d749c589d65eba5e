"""Protect a submission: signals are noted, standard input is empty, files are replaced in one step."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the usual request to end, and a terminal or a connection that went."""


@contextmanager
def noted() -> Generator[list[int]]:
    """Inside, the signals that arrive are collected in place of what they do otherwise, once for each time.

    One that this process was started to ignore (nohup, a shell's job in the background) is ignored inside too. On the
    main thread alone.
    """
    signals: list[int] = []

    def note(number: int, _: Any) -> None:
        signals.append(number)
        with suppress(OSError):  # of a terminal that went
            print("interrupted: finishing the submission, then cancelling all its jobs", file=sys.stderr, flush=True)

    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def heard() -> Generator[None]:
    """Inside, a Ctrl-C is a KeyboardInterrupt, whatever the code below makes of it: invoke, by which NeMo-Run asks
    Slurm, hands it on to the command that it waits for and goes on itself (invoke runners.py, `Runner._finish`).

    Changes nothing on other threads, and where something else than Python's own handler is at work.
    """
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signals: list[int] = []

    def note(number: int, frame: Any) -> None:
        signals.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception:
        if not signals:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signals:
        raise KeyboardInterrupt


def raised(work: Callable[[], None]) -> BaseException | None:
    """Runs `work` to its end and returns what it raised.

    It runs on a thread with the signals blocked, which sbatch, scancel and ssh inherit: a Ctrl-C of the terminal
    reaches them too, and would end sbatch after the job was taken and before its number is known.
    """
    problems: list[BaseException] = []

    def body() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            work()
        except (Exception, SystemExit) as problem:
            problems.append(problem)

    thread = threading.Thread(target=body, name="submission")
    thread.start()
    thread.join()
    return problems[0] if problems else None


@contextmanager
def no_input() -> Generator[None]:
    """Inside, standard input is empty: NeMo-Run's local commands (invoke) would read what is meant for others."""
    before = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


@contextmanager
def whole_files() -> Generator[None]:
    """Inside, each of an experiment's whole_files is replaced in one step.

    NeMo-Run empties a file and then writes it (nemo_run 0.11.1 run/experiment.py:383, :405), the list of the jobs that
    were submitted too: without it nobody finds them again.
    """
    with patch("nemo_run.run.experiment.open", _open, create=True):
        yield


def _open(path: str, mode: str = "r") -> Any:
    return _replacing(Path(path), mode) if "w" in mode else open(path, mode)


@contextmanager
def _replacing(path: Path, mode: str) -> Generator[Any]:
    own = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with own.open(mode) as file:
            yield file
        own.replace(path)
    finally:
        own.unlink(missing_ok=True)

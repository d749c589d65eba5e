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
"""Ctrl-C, the usual request to end, and a lost terminal or connection."""


@contextmanager
def noted() -> Generator[list[int]]:
    """Collect signals instead of acting on them.

    Signals that this process ignores (nohup, a shell's background job) stay ignored. Main thread only.
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
    """Raise KeyboardInterrupt for Ctrl-C, whatever the code inside does with it.

    NeMo-Run calls Slurm with invoke, which forwards Ctrl-C to its command and continues (invoke runners.py,
    `Runner._finish`). This changes nothing on other threads, or if Python's own handler is not installed.
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
    """Run `work` to its end and return its exception.

    It runs on a thread with blocked signals, which sbatch, scancel and ssh inherit. A Ctrl-C of the terminal reaches
    them too, and would end sbatch after Slurm accepted the job and before its number is known.
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
    """Empty standard input: NeMo-Run's local commands (invoke) would read what is meant for others."""
    before = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before


@contextmanager
def whole_files() -> Generator[None]:
    """Replace each file of an experiment in one step.

    NeMo-Run empties a file and then writes it (nemo_run 0.11.1 run/experiment.py:383, :405), even the list of submitted
    jobs; without it nobody finds them again.
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

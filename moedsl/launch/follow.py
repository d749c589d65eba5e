"""Wait for an experiment, from the process that submitted it or from another one, and say why its jobs failed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose.scan import Failure
from moedsl.launch import logs
from moedsl.launch.in_job import chain
from moedsl.launch.logs import explained
from moedsl.launch.store import UNKNOWN, Experiment, Job
from moedsl.support.text import counted, wrapped

FIRST_S, LONGEST_S = 1.0, 15.0
"""Seconds between two queries: at first, and after some minutes; other users need the accounting service too."""


def wait(
    experiment: Experiment, only: Sequence[str] = (), with_logs: bool = False,
    enough: Callable[[Sequence[Job]], bool] = lambda _: False,
) -> list[Job]:  # fmt: skip
    """Wait for the jobs, or those in `only`, until all have ended or it is `enough`, and return them.

    Changes of state go to stderr, and with `with_logs` the logs go to stdout. Ctrl-C leaves the jobs running:
    KeyboardInterrupt passes through.
    """
    said: dict[str, str] = {}
    readers: dict[str, logs.Reader | None] = {}
    pause = FIRST_S
    while True:
        with reraising_interrupt():
            jobs = experiment.jobs(only)
        for job in jobs:
            now = state(job)
            if said.get(job.name) != now and not (job.state == UNKNOWN and not said):
                said[job.name] = now
                print(f"{time.strftime('%H:%M:%S')}  {job.name}  {job.number}  {now}", file=sys.stderr, flush=True)
            if with_logs:
                _write(experiment, job, readers, len(jobs) > 1)
        if enough(jobs) or all(job.ended for job in jobs):
            return jobs
        time.sleep(pause)
        pause = min(pause * 1.1, LONGEST_S)


def _write(experiment: Experiment, job: Job, readers: dict[str, logs.Reader | None], several: bool) -> None:
    """Print what a Slurm job has written since the last call."""
    if job.name not in readers and job.handle:
        readers[job.name] = logs.reader(experiment, job)
    if (reader := readers.get(job.name)) is not None:
        logs.print_lines(reader.more(whole=job.ended), sys.stdout, f"{job.name}: " if several else "")


def state(job: Job) -> str:
    """Write TorchX's state, and the scheduler's word if it says more."""
    plain = ("", job.state, "COMPLETED" if job.state == "SUCCEEDED" else job.state)
    return job.state if job.says in plain else f"{job.state} ({job.says})"


def report(experiment: Experiment, jobs: Sequence[Job]) -> int:
    """Explain on stderr why each failed job failed; returns the exit code.

    The jobs of a chain that did not start because those before them saved nothing are one line.
    """
    bad = [job for job in jobs if job.state != "SUCCEEDED"]
    ended: list[str] = []
    for job in bad:
        said = logs.reason(experiment, job)
        if stopped := [line for line in said if chain.NOTHING in line]:
            ended.append(stopped[0])
            continue
        print(f"\n{job.name} {job.number}: {state(job)}", file=sys.stderr)
        if unfinished := [line for line in said if chain.OF_CHAIN in line]:
            print(f"  {unfinished[0]}", file=sys.stderr)
            continue
        logs.print_lines(said, sys.stderr, "  | ")
        before_ranks = explained(said)
        first = None if before_ranks else logs.first_failure(experiment, job, said)
        logs.print_lines([before_ranks] if before_ranks else cause_lines(first), sys.stderr, "  ")
        print(f"  moedsl diagnose {experiment.id}", file=sys.stderr)
        print(f"  scripts and logs: {job.folder}", file=sys.stderr)
    if ended:
        print(f"\n{counted(len(ended), 'job')} did not train: {ended[0]}", file=sys.stderr)
    return int(bool(bad))


def cause_lines(first: Failure | None) -> Iterator[str]:
    """Write the first failure with its known causes and their fixes; nothing if no rank is known to have failed."""
    if first is None:
        return
    yield f"first to fail: {scan.failure_text(first)}"
    for s in scan.diagnose("", [first.error.encode()], scan.symptoms(load_stdlib())).sightings:
        yield from wrapped(f"cause: {s.rule.because} ({s.rule.id})", "  ", "    ").splitlines()
        if s.rule.fix:
            yield from wrapped(f"fix: {s.rule.fix}", "  ", "    ").splitlines()


@contextmanager
def reraising_interrupt() -> Generator[None]:
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

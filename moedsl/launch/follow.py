"""Wait for an experiment, from the process that submitted it or from another one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from moedsl.launch import causes, chain, logs, shield
from moedsl.launch.logs import explained
from moedsl.launch.store import UNKNOWN, Experiment, Job
from moedsl.support.text import counted

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
        with shield.heard():
            jobs = experiment.jobs(only)
        for job in jobs:
            _say(job, said)
            if with_logs:
                _write(experiment, job, readers, len(jobs) > 1)
        if enough(jobs) or all(job.ended for job in jobs):
            return jobs
        time.sleep(pause)
        pause = min(pause * 1.1, LONGEST_S)


def _say(job: Job, said: dict[str, str]) -> None:
    now = state(job)
    if said.get(job.name) != now and not (job.state == UNKNOWN and not said):
        said[job.name] = now
        print(f"{time.strftime('%H:%M:%S')}  {job.name}  {job.number}  {now}", file=sys.stderr, flush=True)


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
        logs.print_lines([before_ranks] if before_ranks else causes.lines(first), sys.stderr, "  ")
        print(f"  moedsl diagnose {experiment.id}", file=sys.stderr)
        print(f"  scripts and logs: {job.folder}", file=sys.stderr)
    if ended:
        print(f"\n{counted(len(ended), 'job')} did not train: {ended[0]}", file=sys.stderr)
    return int(bool(bad))

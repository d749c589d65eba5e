"""`moedsl logs ID [JOB] [-f]`: print the logs of the jobs of an experiment; -f continues to their end."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from typing import Any

from moedsl.cli import console
from moedsl.launch import follow, nemo, store
from moedsl.launch.follow import explained
from moedsl.support.diagnostics import Diagnostic, error


def run(a: Namespace) -> int:
    if a.json and a.follow:
        print("--json prints a log once: leave out --follow", file=sys.stderr)
        return 1
    opened = store.has_nemo_run() or store.find(a.id)
    if isinstance(opened, Diagnostic):
        return console.refused(a, [opened])
    if a.job and a.job not in opened.names:
        return console.refused(a, [error("launch.no_job", a=a.id, job=a.job, names=", ".join(opened.names))])
    if opened.in_pods and (missing := follow.no_kubectl()):
        return console.refused(a, [missing])
    only = (a.job,) if a.job else opened.names
    if a.json:
        console.print_json({"version": 1, "id": opened.id, "jobs": [_json(opened, job) for job in opened.jobs(only)]})
        return 0
    return _follow(opened, only) if a.follow else _print(opened, only)


def _json(experiment: store.Experiment, job: store.Job) -> dict[str, Any]:
    """The lines of a job's log; none of one that was not submitted."""
    out = io.StringIO()
    if job.handle and (reader := follow.reader(experiment, job)) is not None:
        follow.print_lines(reader.more(whole=True), out)
    elif job.handle:
        follow.print_elsewhere(experiment, job, False, out)
    lines = out.getvalue().splitlines()
    return {"job": job.name, "number": job.number, "lines": lines, "explained": explained(lines)}


def _follow(experiment: store.Experiment, only: tuple[str, ...]) -> int:
    try:
        for job in experiment.jobs(only):
            if job.handle and follow.reader(experiment, job) is None:
                follow.print_elsewhere(experiment, job, True, sys.stdout)
        jobs = follow.wait(experiment, only, with_logs=True)
    except KeyboardInterrupt:
        print(f"\nthe jobs go on; moedsl logs {experiment.id} -f shows them again", file=sys.stderr)
        return 130
    except nemo.failures() as problem:
        if not experiment.is_far:
            raise
        console.say([experiment.disconnected(problem)], {})
        return 1
    return int(any(job.state != "SUCCEEDED" for job in jobs))


def _print(experiment: store.Experiment, only: tuple[str, ...]) -> int:
    for job in experiment.jobs(only):
        if not job.handle:
            print(f"{job.name} was not submitted", file=sys.stderr)
        elif (reader := follow.reader(experiment, job)) is not None:
            lines = reader.more(whole=True)
            follow.print_lines(lines, sys.stdout, f"{job.name}: " if len(only) > 1 else "")
            follow.print_lines(filter(None, [explained(lines)]), sys.stderr, f"{job.name}: ")
        else:
            follow.print_elsewhere(experiment, job, False, sys.stdout)
    return 0

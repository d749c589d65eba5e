"""`moedsl jobs`, `logs` and `cancel`: follow what `moedsl run --cluster` submitted."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from typing import Any, TextIO

from moedsl.cli import console
from moedsl.cli.terminal import Refused
from moedsl.launch import follow, nemo, store, submit
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.text import counted


def jobs(a: Namespace) -> int:
    """List submitted jobs with their states, or the jobs of one experiment."""
    console.accepted(store.has_nemo_run())
    newest = [] if a.id else list(store.known().items())[: a.last]
    opened = [store.find(a.id)] if a.id else [store.open_experiment(home, id) for id, home in newest]
    found = [one for one in opened if isinstance(one, Diagnostic)]
    console.stop_on(found if a.id else ())
    each = [(one, one.jobs()) for one in opened if isinstance(one, store.Experiment)]
    if a.json:
        rows = [{"id": e.id, "state": store.worst(jobs), "jobs": [j.to_json() for j in jobs]} for e, jobs in each]
        console.print_json({"version": 1, "experiments": rows})
    elif a.id:
        for job in (job for _, jobs in each for job in jobs):
            print(f"{job.name}  {job.number or '-'}  {follow.state(job)}  {job.folder}")
    elif not each and not found:
        print(f"no experiments in {store.homes_text()}")
    else:
        width = max((len(e.id) for e, _ in each), default=0)
        for e, jobs in each:
            numbers = " ".join(job.number or "-" for job in jobs)
            print(f"{e.id:{width}}  {store.worst(jobs):13}  {counted(len(jobs), 'job')}: {numbers}")
    console.say(found, {})
    return 0


def cancel(a: Namespace) -> int:
    """Cancel every job of an experiment that has not ended."""
    cancelled = _opened(a.id).cancel()
    left = submit.not_cancelled(a.id, cancelled)
    if a.json:
        rows = [{"job": j.name, "number": j.number, "state": follow.state(j)} for j in cancelled]
        console.print_json({"version": 1, "jobs": rows, "cancelled": left is None})
    else:
        for job in cancelled:
            print(f"{job.name}  {job.number or '-'}  {follow.state(job)}")
    console.say([left] if left else [], {})
    return int(left is not None)


def logs(a: Namespace) -> int:
    """Print the logs of an experiment's jobs; with -f, follow them to the end."""
    if a.json and a.follow:
        print("--json prints a log once: leave out --follow", file=sys.stderr)
        return 1
    experiment = _opened(a.id)
    if a.job and a.job not in experiment.names:
        raise Refused([error("launch.no_job", experiment=a.id, job=a.job, names=", ".join(experiment.names))])
    if experiment.in_pods:
        console.accepted(follow.no_kubectl())
    only = (a.job,) if a.job else experiment.names
    if a.follow:
        try:
            for job in experiment.jobs(only):
                if job.handle and follow.reader(experiment, job) is None:
                    follow.print_elsewhere(experiment, job, True, sys.stdout)
            ended = follow.wait(experiment, only, with_logs=True)
        except KeyboardInterrupt:
            print(f"\nthe jobs go on; moedsl logs {experiment.id} -f shows them again", file=sys.stderr)
            return 130
        except nemo.failures() as problem:
            if not experiment.is_far:
                raise
            raise Refused([experiment.disconnected(problem)]) from problem
        return int(any(job.state != "SUCCEEDED" for job in ended))
    rows: list[dict[str, Any]] = []
    for job in experiment.jobs(only):
        if a.json:
            out = io.StringIO()
            if job.handle:
                _print_log(experiment, job, out)
            lines = out.getvalue().splitlines()
            rows.append({"job": job.name, "number": job.number, "lines": lines, "explained": follow.explained(lines)})
        elif not job.handle:
            print(f"{job.name} was not submitted", file=sys.stderr)
        else:
            lines = _print_log(experiment, job, sys.stdout, f"{job.name}: " if len(only) > 1 else "")
            follow.print_lines(filter(None, [follow.explained(lines)]), sys.stderr, f"{job.name}: ")
    if a.json:
        console.print_json({"version": 1, "id": experiment.id, "jobs": rows})
    return 0


def _opened(id: str) -> store.Experiment:
    console.accepted(store.has_nemo_run())
    return console.accepted(store.find(id))


def _print_log(experiment: store.Experiment, job: store.Job, out: TextIO, before: str = "") -> list[str]:
    """Print a job's log; return its lines if it is a Slurm job."""
    reader = follow.reader(experiment, job)
    if reader is None:
        follow.print_elsewhere(experiment, job, False, out)
        return []
    lines = reader.more(whole=True)
    follow.print_lines(lines, out, before)
    return lines

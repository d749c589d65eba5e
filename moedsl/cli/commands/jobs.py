"""`moedsl jobs`, `logs` and `cancel`: follow what `moedsl run --cluster` submitted."""

from __future__ import annotations

import io
import sys
from argparse import Namespace
from typing import Any

from moedsl.cli import console
from moedsl.launch import follow, nemo, store, submit
from moedsl.launch.follow import explained
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.text import counted


def jobs(a: Namespace) -> int:
    """List submitted jobs with their states, or the jobs of one experiment."""
    wrong = store.has_nemo_run()
    if wrong:
        return console.refused(a, [wrong])
    newest = [] if a.id else list(store.known().items())[: a.last]
    opened = [store.find(a.id)] if a.id else [store.open_experiment(home, id) for id, home in newest]
    found = [one for one in opened if isinstance(one, Diagnostic)]
    if a.id and found:
        return console.refused(a, found)
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
    opened = store.has_nemo_run() or store.find(a.id)
    if isinstance(opened, Diagnostic):
        return console.refused(a, [opened])
    cancelled = opened.cancel()
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
    """Print the logs of the jobs of an experiment; -f continues to their end."""
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
        rows = [_log_json(opened, job) for job in opened.jobs(only)]
        console.print_json({"version": 1, "id": opened.id, "jobs": rows})
        return 0
    return _follow(opened, only) if a.follow else _print(opened, only)


def _log_json(experiment: store.Experiment, job: store.Job) -> dict[str, Any]:
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
        ended = follow.wait(experiment, only, with_logs=True)
    except KeyboardInterrupt:
        print(f"\nthe jobs go on; moedsl logs {experiment.id} -f shows them again", file=sys.stderr)
        return 130
    except nemo.failures() as problem:
        if not experiment.is_far:
            raise
        console.say([experiment.disconnected(problem)], {})
        return 1
    return int(any(job.state != "SUCCEEDED" for job in ended))


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

"""`moedsl cancel ID`: cancel every job of an experiment that has not ended."""

from __future__ import annotations

from argparse import Namespace

from moedsl.cli import console
from moedsl.launch import follow, store, submit
from moedsl.support.diagnostics import Diagnostic


def run(a: Namespace) -> int:
    opened = store.has_nemo_run() or store.find(a.id)
    if isinstance(opened, Diagnostic):
        return console.refused(a, [opened])
    jobs = opened.cancel()
    left = submit.not_cancelled(a.id, jobs)
    if a.json:
        rows = [{"job": j.name, "number": j.number, "state": follow.state(j)} for j in jobs]
        console.print_json({"version": 1, "jobs": rows, "cancelled": left is None})
    else:
        for job in jobs:
            print(f"{job.name}  {job.number or '-'}  {follow.state(job)}")
    console.say([left] if left else [], {})
    return int(left is not None)

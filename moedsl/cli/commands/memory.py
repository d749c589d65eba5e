"""`moedsl memory SNAPSHOT...`: what was allocated at the peak. Exit 1 if a snapshot cannot be read."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from moedsl.cli import console
from moedsl.cli.own_rules import judged_by
from moedsl.planner.plan import Plan
from moedsl.runs import snapshot
from moedsl.runs.snapshot import Given, compare, report, text
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.foreign import refused
from moedsl.support.source import Span


def run(a: Namespace) -> int:
    judged = judged_by(a)
    if isinstance(judged, int):
        return judged
    classes, planned = judged
    given = [Given.of(text) for text in a.snapshots]
    each: list[dict[str, Any]] = []
    for one in given:
        memory = _read(one.path)
        if isinstance(memory, Diagnostic):
            return console.refused(a, [memory])
        each += [report(one, m, classes) for m in memory]
    plans = planned.plans if planned else ()
    wrong = [d for one in given for p in plans if (d := _no_stage(one, p))]
    if wrong:
        return console.refused(a, wrong)
    for r in each if planned else ():
        r["plans"] = [compare(r, p) for p in plans]
    if a.json:
        console.print_json({"version": 1, "devices": each})
    else:
        console.print_text(lambda: text(each), end="")
    return 0


def _no_stage(given: Given, plan: Plan) -> Diagnostic | None:
    """Refuse a stage that the plan does not have."""
    if given.stage is None or given.stage < plan.layout.pp:
        return None
    stages = f"stages are 0 to {plan.layout.pp - 1}" if plan.layout.pp > 1 else "only stage is 0"
    return error("memory.stage", plan=plan.name, stage=given.stage, stages=stages, path=given.path)


def _read(path: Path) -> list[snapshot.Memory] | Diagnostic:
    """Read the devices of a snapshot, or say why not."""
    at = Label(Span(str(path), 0, 0))
    if Path(os.path.realpath(path)).is_fifo():  # a pipe of the shell has no name there, and is read
        return error("read.special", at, path=path)
    try:
        with path.open("rb") as stream:
            found = snapshot.devices(snapshot.load(stream))
    except OSError as e:
        return refused(path, e, "name one snapshot in it")
    except (snapshot.NotPlain, snapshot.NoSnapshot) as e:
        return error("memory.snapshot", at, path=path, e=e)
    if not any(m.peak for m in found):
        return error("memory.empty", at, path=path)
    return [m for m in found if m.peak]

"""Tune by itself: choose, submit, wait, measure, until the budget is spent or no change is worth another job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from moedsl.compiler import load_stdlib
from moedsl.runs.results.gather import Run
from moedsl.runs.tune import run_file
from moedsl.runs.tune.candidates import candidates
from moedsl.runs.tune.evidence import Tried, row, tried
from moedsl.runs.tune.journal import PICTURE, RUN, TABLE, Journal, Try, write
from moedsl.runs.tune.report import candidate, picture, report, text
from moedsl.support.diagnostics import Diagnostic

LOST = "launch.no_experiment"
"""The diagnostic of an experiment that was never submitted: its launcher was killed before."""


class Launcher(Protocol):
    """What submits jobs and waits for them."""

    def submit(self, file: Path, named: Callable[[str], None]) -> int:
        """Submit a run file; `named` gets the id before anything is submitted. Return 0 if it was."""
        ...

    def wait(self, id: str) -> Sequence[Path] | Diagnostic:
        """Wait until the job has ended, and return its logs."""
        ...


@frozen
class Ends:
    """When to stop."""

    budget: int
    """The jobs in all, with those before a restart."""
    stop: float
    """The expected gain that is worth a job."""


def tune(
    base: run_file.Base, journal: Journal, launcher: Launcher, ends: Ends, say: Callable[[str], None]
) -> int | Diagnostic:
    """Continue a tuning to its end. Return 0, the exit code of a refused submission, or what went wrong; the journal is
    saved in each case, with its table and its picture."""
    while True:
        for t in journal.tries:
            if t.row is None and (failed := _run(base, journal, t, launcher)):
                return failed
        done = evidence(base, journal)
        found = candidates(base.chosen, base.start, done) if done else []
        said = report(base.chosen, base.start, done, found, ends.stop)
        journal.stop = _why_stop(journal, said, ends)
        journal.save()
        if said["tried"]:
            journal.table = text({**said, "stop": journal.stop, "next": None} if journal.stop else said)
            drawn = picture(said["tried"], [t.change for t in journal.tries])
            if refused := write(journal.folder, {TABLE: journal.table, PICTURE: drawn}):
                return refused
        if journal.stop:
            return 0
        added = _next(base, journal, said["next"], found[0].codes if done else base.start)
        if isinstance(added, Diagnostic):
            return added
        say(f"{added.name}: {_why(added)}")


def evidence(base: run_file.Base, journal: Journal) -> list[Tried]:
    """Read what the ended jobs measured; one that neither measured nor failed counts as failed."""
    rows = [(t, tried(t.name, t.codes, base.chosen.cost, t.row)) for t in journal.tries if t.row]
    return [found or Tried(t.name, t.codes, None) for t, found in rows]


def _why_stop(journal: Journal, said: dict[str, Any], ends: Ends) -> str | None:
    """Say why no further job is submitted, if so."""
    if not journal.tries:
        return None
    first = journal.tries[0].row
    if not any(t["step_s"] or t["out_of_memory"] for t in said["tried"]):
        return f"the first job measured nothing: {first['cause'] if first else ''}"
    if said["stop"]:
        return str(said["stop"])
    return f"the budget of {ends.budget} jobs is spent" if len(journal.tries) >= ends.budget else None


def _next(
    base: run_file.Base, journal: Journal, change: dict[str, Any] | None, codes: run_file.Codes
) -> Try | Diagnostic:
    """Add the next try, with its run file."""
    t = Try(journal.next_name, codes, change)
    checkpoints = run_file.checkpoints_of(base, t.name)
    if isinstance(checkpoints, Diagnostic):
        return checkpoints
    made = run_file.with_layout(base, codes, f"Job {t.name} of `moedsl tune`: {_why(t)}", checkpoints)
    if isinstance(made, Diagnostic):
        return made
    plan = json.dumps(made.plan.to_json(), indent=2, ensure_ascii=False) + "\n"
    if refused := write(journal.file_of(t).parent, {RUN: made.text, "plan.json": plan}):
        return refused
    journal.tries.append(t)
    journal.save()
    return t


def _why(t: Try) -> str:
    return "the plan" if t.change is None else candidate(t.change)


def _run(base: run_file.Base, journal: Journal, t: Try, launcher: Launcher) -> int | Diagnostic:
    """Submit a try if it was not yet, wait for its job and measure it; 0 if that is done."""

    def named(id: str) -> None:
        """Save the id before anything is submitted: a process that is killed then finds the job again."""
        t.id = id
        journal.save()

    logs = launcher.wait(t.id) if t.id else None
    if logs is None or (isinstance(logs, Diagnostic) and logs.id == LOST):
        code = launcher.submit(journal.file_of(t), named)
        if code or t.id is None:
            return code or 1
        logs = launcher.wait(t.id)
    if isinstance(logs, Diagnostic):
        return logs
    t.row = row(Run(t.name, tuple(logs), base.plan), load_stdlib())
    journal.save()
    return 0

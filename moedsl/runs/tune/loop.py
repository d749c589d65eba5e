"""Tune by itself: choose, submit, wait, measure, until the budget is spent or no change is worth another job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import frozen

from moedsl.compiler import load_stdlib
from moedsl.runs.results.gather import Run
from moedsl.runs.tune import picture, run_file
from moedsl.runs.tune.candidates import candidates
from moedsl.runs.tune.evidence import Tried, row, tried
from moedsl.runs.tune.report import candidate, report, text
from moedsl.runs.tune.way import RUN, Try, Way, write
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


def tune(base: run_file.Base, way: Way, launcher: Launcher, ends: Ends, say: Callable[[str], None]) -> int | Diagnostic:
    """Go on with a way to its end. Return 0, the exit code of a refused submission, or what went wrong; the way is kept
    in each case."""
    while True:
        for t in way.tries:
            if t.row is None and (failed := _run(base, way, t, launcher)):
                return failed
        done = evidence(base, way)
        found = candidates(base.chosen, base.start, done) if done else []
        said = report(base.chosen, base.start, done, found, ends.stop)
        way.stop = _end(way, said, ends)
        if refused := _keep(way, said):
            return refused
        if way.stop:
            return 0
        added = _next(base, way, said["next"], found[0].codes if done else base.start)
        if isinstance(added, Diagnostic):
            return added
        say(f"{added.name}: {_why(added)}")


def evidence(base: run_file.Base, way: Way) -> list[Tried]:
    """Read what the ended jobs of a way say; one that neither measured nor failed counts as failed."""
    rows = [(t, tried(t.name, t.codes, base.chosen.cost, t.row)) for t in way.tries if t.row]
    return [found or Tried(t.name, t.codes, None) for t, found in rows]


def _end(way: Way, said: dict[str, Any], ends: Ends) -> str | None:
    """Say why no further job is submitted, if so."""
    if not way.tries:
        return None
    first = way.tries[0].row
    if not any(t["step_s"] for t in said["tried"]) and not any(t["out_of_memory"] for t in said["tried"]):
        return f"the first job measured nothing: {first['cause'] if first else ''}"
    if said["stop"]:
        return str(said["stop"])
    return f"the budget of {ends.budget} jobs is spent" if len(way.tries) >= ends.budget else None


def _next(base: run_file.Base, way: Way, change: dict[str, Any] | None, codes: run_file.Codes) -> Try | Diagnostic:
    """Add the next try, with its run file."""
    t = Try(way.next_name, codes, change)
    checkpoints = run_file.checkpoints_of(base, t.name)
    if isinstance(checkpoints, Diagnostic):
        return checkpoints
    made = run_file.with_layout(base, codes, f"Job {t.name} of `moedsl tune`: {_why(t)}", checkpoints)
    if isinstance(made, Diagnostic):
        return made
    plan = json.dumps(made.plan.to_json(), indent=2, ensure_ascii=False) + "\n"
    if refused := write(way.file_of(t).parent, {RUN: made.text, "plan.json": plan}):
        return refused
    way.tries.append(t)
    way.save()
    return t


def _why(t: Try) -> str:
    return "the plan" if t.change is None else candidate(t.change)


def _run(base: run_file.Base, way: Way, t: Try, launcher: Launcher) -> int | Diagnostic:
    """Submit a try that is not, wait for it and measure it; 0 if that is done."""
    logs = launcher.wait(t.id) if t.id else None
    if logs is None or (isinstance(logs, Diagnostic) and logs.id == LOST):
        code = launcher.submit(way.file_of(t), lambda given: _named(way, t, given))
        if code or t.id is None:
            return code or 1
        logs = launcher.wait(t.id)
    if isinstance(logs, Diagnostic):
        return logs
    t.row = _measured(base, t, logs)
    way.save()
    return 0


def _named(way: Way, t: Try, id: str) -> None:
    """Keep the id before anything is submitted: a process that is killed then finds the job again."""
    t.id = id
    way.save()


def _measured(base: run_file.Base, t: Try, logs: Sequence[Path]) -> dict[str, Any]:
    return row(Run(t.name, tuple(logs), base.plan), load_stdlib())


def _keep(way: Way, said: dict[str, Any]) -> Diagnostic | None:
    """Write the way, its table and its picture."""
    way.save()
    if not said["tried"]:
        return None
    way.table = text({**said, "stop": way.stop, "next": None} if way.stop else said)
    drawn = picture.of_way(said["tried"], [t.change for t in way.tries])
    return write(way.folder, {"table.txt": way.table, "way.svg": drawn})

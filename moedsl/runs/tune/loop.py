"""Tune unattended: choose, submit, wait, measure, until the budget is spent or no change is worth another job.

The journal in the tuning's folder has every try, its job and its result; a tuning that was killed continues from it.
Each job's run file is the program with another layout pinned (`with_layout`), checked to be the same experiment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attrs import asdict, define, field, frozen

from moedsl.bridge.recipe_words import literal
from moedsl.compiler import compile_source, load_stdlib
from moedsl.emit.settings import checkpoint_folder
from moedsl.facts import axes, recipes
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.planner.plan import Plan
from moedsl.rules.library import Library, used_name
from moedsl.runs.measured_runs import experiment
from moedsl.runs.results.gather import Run
from moedsl.runs.tune.candidates import Codes, Tried, candidate, candidates, picture, report, row, text, tried
from moedsl.solver.solve import Chosen
from moedsl.support import files, foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import stamp, write_all, written_by_us
from moedsl.support.foreign import text_of
from moedsl.support.source import Source

LOST = "launch.no_experiment"
"""The diagnostic for an experiment that was never submitted, because the launcher was killed first."""


class Launcher(Protocol):
    """Submits jobs and waits for them."""

    def submit(self, file: Path, named: Callable[[str], None]) -> int:
        """Submit a run file and return the exit code, 0 on success; `named` gets the id before anything is
        submitted."""
        ...

    def wait(self, id: str) -> Sequence[Path] | Diagnostic:
        """Wait until the job has ended, and return its logs."""
        ...


@frozen
class Ends:
    """When to stop."""

    budget: int
    """The most jobs in total, including those before a restart."""
    stop: float
    """The least expected gain that is worth another job, as a share."""


def tune(base: Base, journal: Journal, launcher: Launcher, ends: Ends, say: Callable[[str], None]) -> int | Diagnostic:
    """Continue a tuning to its end; return 0, the exit code of a failed submission, or an error.

    The journal, its table and its picture are saved after every job.
    """
    while True:
        for t in journal.tries:
            if t.row is None and (failed := _run(base, journal, t, launcher)):
                return failed
        done = evidence(base, journal)
        found = candidates(base.chosen, base.start, done) if done else []
        said = report(base.chosen, base.start, done, found, ends.stop)
        if journal.tries and not any(t["step_s"] or t["out_of_memory"] for t in said["tried"]):
            first = journal.tries[0].row
            journal.stop = f"the first job measured nothing: {first['cause'] if first else ''}"
        elif journal.tries:
            spent = f"the budget of {ends.budget} jobs is spent" if len(journal.tries) >= ends.budget else None
            journal.stop = said["stop"] or spent
        journal.save()
        if said["tried"]:
            journal.table = text({**said, "stop": journal.stop, "next": None} if journal.stop else said)
            drawn = picture(said["tried"], [t.change for t in journal.tries])
            if refused := write(journal.folder, {TABLE: journal.table, PICTURE: drawn}):
                return refused
        if journal.stop:
            return 0
        t = Try(_name(len(journal.tries)), found[0].codes if done else base.start, said["next"])
        why = "the plan" if t.change is None else candidate(t.change)
        if refused := _add(base, journal, t, why):
            return refused
        say(f"{t.name}: {why}")


def evidence(base: Base, journal: Journal) -> list[Tried]:
    """Return the result of each ended job; one that neither measured nor failed counts as failed."""
    rows = [(t, tried(t.name, t.codes, base.chosen.cost, t.row)) for t in journal.tries if t.row]
    return [found or Tried(t.name, t.codes, None) for t, found in rows]


def _add(base: Base, journal: Journal, t: Try, why: str) -> Diagnostic | None:
    """Add the next try and write its run file; return an error if that is not possible."""
    checkpoints = checkpoints_of(base, t.name)
    if isinstance(checkpoints, Diagnostic):
        return checkpoints
    made = with_layout(base, t.codes, f"Job {t.name} of `moedsl tune`: {why}", checkpoints)
    if isinstance(made, Diagnostic):
        return made
    plan = json.dumps(made.plan.to_json(), indent=2, ensure_ascii=False) + "\n"
    if refused := write(journal.file_of(t).parent, {RUN: made.text, "plan.json": plan}):
        return refused
    journal.tries.append(t)
    journal.save()
    return None


def _run(base: Base, journal: Journal, t: Try, launcher: Launcher) -> int | Diagnostic:
    """Submit a try unless it was submitted, wait for its job and measure it; return 0, an exit code or an error."""

    def named(id: str) -> None:
        """Save the id before anything is submitted, so that a restarted process finds the job again."""
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


FILE, RUN, TABLE, PICTURE = "journal.json", "run.moe", "table.txt", "journal.svg"
OLD = "way.json"
"""The file's former name, which is still read."""


@define
class Try:
    """One job: its layout, why it was tried, and its result."""

    name: str
    codes: Codes
    change: Mapping[str, Any] | None
    """The candidate, as in the report; None for the plan itself."""
    id: str | None = None
    """The id of its experiment; None until it is about to be submitted."""
    row: Mapping[str, Any] | None = None
    """Its row of `moedsl results`; None until it has ended."""


@define
class Journal:
    """All tries of one experiment, in order."""

    folder: Path
    experiment: str
    """The fingerprint of the experiment, which all tries share."""
    machines: str
    """The number and type of the GPUs, which all tries share."""
    tries: list[Try] = field(factory=list)
    stop: str | None = None
    """Why the tuning ended; None while it goes on."""
    table: str = ""
    """The table of tries, as `moedsl next` prints it."""

    def save(self) -> None:
        """Save the journal atomically: a kill leaves either the old state or the new one."""
        tries = [asdict(t) | {"codes": dict(t.codes)} for t in self.tries]
        data = {"version": 1, "experiment": self.experiment, "machines": self.machines, "stop": self.stop,
                "tries": tries}  # fmt: skip
        files.replace_file(self.folder / FILE, stamp(FILE, json.dumps(data, indent=2, ensure_ascii=False) + "\n"))

    def file_of(self, t: Try) -> Path:
        """Return the path of a try's run file."""
        return self.folder / t.name / RUN


def _name(at: int) -> str:
    return f"{at + 1:02}"


def opened(folder: Path, experiment: str, machines: str) -> Journal | Diagnostic:
    """Open the journal in a folder, or begin one.

    The folder must be new or empty, or have a journal of the same experiment on the same machines. An edited journal is
    refused, because its entries name the folders of the jobs.
    """
    file = next((f for f in (folder / FILE, folder / OLD) if os.path.lexists(f)), folder / FILE)
    try:
        if not os.path.lexists(file):
            if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
                return error("tune.folder:no-tuning", folder=folder)
            folder.mkdir(parents=True, exist_ok=True)
            return Journal(folder, experiment, machines)
        if file.is_symlink() or not file.is_file():
            return error("tune.folder:other-file", file=file)
        text = text_of(file)
    except (OSError, ValueError) as problem:
        return error("tune.folder:unreadable", file=file, problem=problem)
    if written_by_us(file.name, text) != "ours":
        return error("tune.folder:edited", file=file)
    data = foreign.load_json(text)
    journal = Journal(folder, data["experiment"], data["machines"], [Try(**t) for t in data["tries"]])
    if [t.name for t in journal.tries] != [_name(i) for i in range(len(journal.tries))]:
        return error("tune.folder:names", file=file)
    if journal.experiment != experiment:
        return error("tune.folder:experiment", folder=folder, tuned=journal.experiment, experiment=experiment)
    if journal.machines != machines:
        return error("tune.folder:machines", folder=folder, measured=journal.machines, machines=machines)
    return journal


def write(folder: Path, files: Mapping[str, str]) -> Diagnostic | None:
    """Write a tuning's files into a folder, or return an error if a file there is not as `moedsl tune` wrote it."""
    refused = write_all(folder, files)
    help = "move it away, and the same command goes on"
    return error("tune.folder", refused[0].message, help=help) if refused else None


_LENGTH = "train.train_iters"
"""The number of steps. `for` derives it from the goodput, which depends on the cluster."""


@frozen
class Base:
    """The program whose layout is varied: its text, its solution and its plan."""

    source: Source
    library: Library
    chosen: Chosen
    plan: Plan

    @property
    def start(self) -> Codes:
        """The layout that the plan chose."""
        return self.chosen.solution.rows[0].codes


@frozen
class RunFile:
    """A run file with its plan."""

    text: str
    plan: Plan


def machines(plan: Plan) -> str:
    """Return the number and type of a plan's GPUs; step times on other GPUs say nothing about them."""
    return f"{plan.gpus} {plan.hardware}"


def of_plan(plan: Plan) -> Source:
    """Return the run file of a plan, with the layout left open."""
    p, fields = plan.policy, {n: v for n, v in plan.derived.items() if n == _LENGTH} | dict(plan.set)
    data = [] if p.data == "mock" or plan.samples else [f"data {literal(p.data)}"]
    formats = f"pin moments={p.moments} grad_reduce={p.grad_reduce}"
    lines = [*experiment(plan), *data, formats, *(f"set {n} = {literal(v)}" for n, v in fields.items())]
    return Source(plan.name, "\n".join(lines) + "\n")


def base(source: Source) -> Base | list[Diagnostic]:
    """Compile the program to vary; returns errors unless it has exactly one run."""
    result = compile_source(source)
    if result.failed:
        return [d for d in result.diagnostics if d.is_error]
    if len(result.plans) != 1:
        return [error("tune.runs", source=source.name, count=len(result.plans))]
    return Base(source, result.library, result.chosen[0], result.plans[0])


def with_layout(b: Base, codes: Codes, remark: str, more: str = "") -> RunFile | Diagnostic:
    """Return the program with a layout pinned and `more` statements, or an error if it is not the same experiment."""
    p, domains = b.chosen.problem.program, b.chosen.problem.domains
    pins = {a.name: a.decode(codes[a.name]) for a in axes.AXES if a.name not in p.pins and len(domains[a.name]) > 1}
    # The result goes into another folder, so the paths of used files become absolute
    module, _ = parse(b.source)
    program = b.source.text
    for item in reversed(module.items if module else ()):
        if isinstance(item, ast.UseDecl):
            path = os.path.abspath(used_name(b.source, item))
            program = f'{program[: item.path.span.start]}"{path}"{program[item.path.span.end :]}'
    text = f"{program.rstrip()}\n\n# {remark}\n{recipes.pins(pins)}{more}"
    made = base(Source(b.source.name, text))
    if not isinstance(made, Base):
        return made[0]
    if made.start != codes:
        return error("tune.layout", source=b.source.name)
    if made.plan.experiment.fingerprint != b.plan.experiment.fingerprint:
        return error("tune.experiment:other-layout", source=b.source.name)
    return RunFile(text, made.plan)


def checkpoints_of(b: Base, name: str) -> str | Diagnostic:
    """Return the statement for a run's own checkpoint folder; empty if it writes no checkpoints.

    Without its own folder, it would resume from checkpoints of another layout.
    """
    folder = checkpoint_folder(b.plan)
    if folder is None:
        return ""
    if {"checkpoint.save", "checkpoint.load"} & b.plan.set.keys():
        return error("tune.checkpoints", source=b.source.name)
    return f'set checkpoint.save = "{folder}/{name}"\n'

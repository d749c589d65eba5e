"""`moedsl diagnose`, `profile`, `memory` and `gap`: explain a failure, a traced step, the memory at its peak, a speed.

Each takes `--run FILE`: the rules that the file declares count too, and its plan is compared.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

from attrs import evolve

from moedsl.cli import console
from moedsl.compiler import ABSENT, Result, compile_source, load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose import text as diagnosis
from moedsl.diagnose.edit import compile_edits, remarks
from moedsl.diagnose.scan import symptoms
from moedsl.facts.axes import pairs
from moedsl.lang import reader
from moedsl.lang.parser import parse
from moedsl.planner.experiment import settings
from moedsl.planner.plan import Plan
from moedsl.rules import collect
from moedsl.rules.library import Library, use
from moedsl.runs import gap as gaps
from moedsl.runs import snapshot
from moedsl.runs.measured_runs import Measured, priced
from moedsl.runs.profile import predicted, report, steps
from moedsl.runs.published import State
from moedsl.runs.results.gather import (
    DAMAGED,
    Given,
    Numbers,
    Run,
    disambiguate,
    experiment_folder,
    gather,
    job_logs,
    numbers,
)
from moedsl.runs.results.log import read_all
from moedsl.runs.results.measure import BATCH, RATE, last_settings, measure, remedy, warning_texts
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.foreign import refuse_special, refused
from moedsl.support.source import Source, Span


def diagnose(a: Namespace) -> int:
    """Explain what went wrong in a log. Exit 0 if a log shows a run that ended well or goes on healthily, else 1."""
    library, source, found = library_of(a.run)
    of_jobs = _of_experiment(a.log)
    if a.log == "-":
        opened: list[Opened] = [("<stdin>", sys.stdin.buffer, [])]
    elif _is_text(a.log):
        opened = [("<text>", io.BytesIO(a.log.encode(errors="replace")), [])]
    else:
        opened = of_jobs or [_file(a.log)]
    problems = [*found, *(d for _, _, wrong in opened for d in wrong)]
    if problems:
        return console.refused(a, problems, library.sources)
    known = scan.symptoms(library)
    logs = [(name, stream) for name, stream, _ in opened if stream is not None]
    reports: list[scan.Report] = []
    for name, stream in logs:
        with stream:
            reports.append(scan.diagnose(name, scan.blocks(stream), known))
    rules, *_ = collect.of_library(library)
    planned = compile_source(source) if source and any(r.errors or r.sightings for r in reports) else None
    plan = planned.plans[0] if planned and planned.plans else None
    data: list[dict[str, Any]] = []
    for r in reports:
        attempts = {s.rule.id: compile_edits(source, s) for s in r.sightings} if source else {}
        about = remarks(r, source, library) if source else {}
        data.append(diagnosis.to_json(r, attempts, about, rules, plan))
    if a.json:
        console.print_json({"version": 1, "experiment": a.log, "logs": data} if of_jobs else data[0])
    else:
        told = [r for r in data if not r["healthy"]] or data
        console.print_text(lambda: "\n".join(map(diagnosis.text, told)), end="")
    failed = any(r.sightings or r.errors or r.findings or r.first_failure or r.last_error for r in reports)
    return int(not any(r.is_healthy for r in reports) or any(not r.is_healthy for r in reports if failed))


Opened = tuple[str, BinaryIO | None, list[Diagnostic]]


def _of_experiment(id: str) -> list[Opened]:
    """Open the logs of an experiment's jobs, or report why there are none; nothing if no experiment has that id."""
    if id == "-" or "/" in id or _is_text(id) or _exists(id):
        return []
    folder = experiment_folder(id)
    if folder is None or isinstance(folder, Diagnostic):
        return [(id, None, [folder])] if folder else []
    logs = [_file(str(path)) for path in job_logs(folder) if path.stat().st_size]
    return logs or [(id, None, [error("read.log", name=id)])]


def _is_text(log: str) -> bool:
    """Whether an argument is text of a log, not a path: no file has that name, and it has spaces."""
    return "\n" in log or (any(c.isspace() for c in log) and not _exists(log))


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # longer than a path may be
        return False


def _file(path: str) -> Opened:
    """Open a log as a binary stream, or report why not."""

    def wrong(id: str, what: str, help: str) -> Opened:
        return path, None, [error(id, f"{path} {what}", Label(Span(path, 0, 0)), help=help)]

    try:
        if Path(os.path.realpath(path)).is_fifo():  # a pipe of the shell, as /dev/fd/63, has no name there
            return wrong("read.special", "is a named pipe, which may never end", f"cat {path} | moedsl diagnose -")
        refuse_special(Path(path))
        stream = open(path, "rb")  # noqa: SIM115, closed by run
        start = stream.peek(1 << 13)[: 1 << 13]
    except FileNotFoundError:
        help = "check the path; an argument with blanks is a line of a log, and `moedsl jobs` lists the ids of jobs"
        return wrong("read.missing", "does not exist", help)
    except OSError as e:
        return path, None, [refused(path, e, "name one log in it")]
    if start.startswith(b"\x1f\x8b"):
        unread = wrong("read.log", "is compressed", f"zcat {path} | moedsl diagnose -")
    elif scan.is_binary(start):
        unread = wrong("read.log", "is binary, not a log", "name the text that a run printed")
    else:
        return path, stream, []
    stream.close()
    return unread


def profile(a: Namespace) -> int:
    """Say what a training step was spent on. Exit 1 if a trace cannot be read or has no steps."""
    judged = judged_by(a)
    if isinstance(judged, int):
        return judged
    classes, planned = judged
    each, progress = list[report.Json](), console.Progress()
    problems = list[Diagnostic]()
    for path in a.traces:
        more, wrong = report.reports(Path(path), classes, progress)
        each += more
        problems += wrong
    if any(d.is_error for d in problems):
        return console.refused(a, problems)
    data, remarks = report.whole(each)
    console.say([*problems, *remarks], {})
    if planned:
        data["plans"] = [predicted.compare(data, c, p) for c, p in zip(planned.chosen, planned.plans, strict=True)]
    if a.json:
        console.print_json(data)
    else:
        console.print_text(lambda: report.text(data), end="")
    return 0


def memory(a: Namespace) -> int:
    """Say what was allocated at the peak. Exit 1 if a snapshot cannot be read."""
    judged = judged_by(a)
    if isinstance(judged, int):
        return judged
    classes, planned = judged
    given = [snapshot.Given.of(text) for text in a.snapshots]
    each: list[dict[str, Any]] = []
    for one in given:
        devices = _read_snapshot(one.path)
        if isinstance(devices, Diagnostic):
            return console.refused(a, [devices])
        each += [snapshot.report(one, m, classes) for m in devices]
    plans = planned.plans if planned else ()
    wrong: list[Diagnostic] = []
    for one, plan in product(given, plans):
        pp = plan.layout.pp
        if one.stage is not None and one.stage >= pp:
            stages = f"stages are 0 to {pp - 1}" if pp > 1 else "only stage is 0"
            wrong.append(error("memory.stage", plan=plan.name, stage=one.stage, stages=stages, path=one.path))
    if wrong:
        return console.refused(a, wrong)
    for r in each if planned else ():
        r["plans"] = [snapshot.compare(r, p) for p in plans]
    if a.json:
        console.print_json({"version": 1, "devices": each})
    else:
        console.print_text(lambda: snapshot.text(each), end="")
    return 0


def _read_snapshot(path: Path) -> list[snapshot.Memory] | Diagnostic:
    """Read the devices of a snapshot, or say why not."""
    at = Label(Span(str(path), 0, 0))
    if Path(os.path.realpath(path)).is_fifo():  # a pipe of the shell has no name there, and is read
        return error("read.special", at, path=path)
    try:
        with path.open("rb") as stream:
            found = snapshot.devices(snapshot.load(stream))
    except OSError as e:
        return refused(path, e, "name one snapshot in it")
    except snapshot.NoSnapshot as e:
        return error("memory.snapshot", at, path=path, problem=e)
    if not any(m.peak for m in found):
        return error("memory.empty", at, path=path)
    return [m for m in found if m.peak]


def gap(a: Namespace) -> int:
    """Explain a speed, from measured to predicted and published. Exit 1 if an input is wrong or nothing is measured."""
    stated = _stated(a)
    if isinstance(stated, int):
        return stated
    gathered, found = gather([a.target])
    found = [d for d in found if stated is None or d.id != DAMAGED]
    runs = disambiguate(gathered)
    others = [d for r in runs for d in _another(r, stated[0], a.run)] if stated else []
    stated_runs = [(evolve(r, plan=stated[0]) if stated else r, stated[1] if stated else None) for r in runs]
    each = [] if found or others else [_gap_of(r, s, a.warmup) for r, s in stated_runs]
    wrong = [*found, *others, *(d for one in each if isinstance(one, list) for d in one)]
    if wrong:
        return console.refused(a, wrong)
    reports = [one for one in each if isinstance(one, dict)]
    if a.json:
        console.print_json({"version": 1, "runs": reports})
    else:
        command = shlex.join(["moedsl", "next", a.target, *(["--run", a.run] if a.run else [])])
        next = f"next: `{command}` proposes one change, and says what it should gain"
        console.print_text(lambda: "\n".join([*map(gaps.text, reports), next]))
    return 0


def _stated(a: Namespace) -> tuple[Plan, State] | int | None:
    """The plan of `--run`; the exit code if it has none, or several."""
    library, source, found = library_of(a.run)
    result = plans_of(source) if source and not found else None
    if found or (result and result.failed):
        sources = {**library.sources, **({source.name: source} if source else {})}
        return console.refused(a, found or (result.diagnostics if result else ()), sources)
    if a.run and (result is None or len(result.plans) != 1):
        return console.refused(a, [error("gap.runs", run=a.run)])
    if result is None:
        return None
    chosen = result.chosen[0]
    return result.plans[0], State(chosen.cost, chosen.solution.rows[0].codes)


_FOLLOWING = ("dp", "num_microbatches", "pipeline_layout")
"""What mostly follows from what else differs."""


def _another(run: Run, stated: Plan, file: str) -> Iterator[Diagnostic]:
    """Report what the plan in the folder of the log, which ran, decides unlike that of `--run`."""
    if run.plan is None:
        return
    # the machines of each with its sizes and policies
    ran, said = (
        {"model": p.model, "hardware": p.hardware, "gpus": p.gpus, **settings(p.layout, p.batch, p.policy)}
        for p in (run.plan, stated)
    )
    different = [n for n in ran if ran[n] != said.get(n)]
    other = [n for n in different if n not in _FOLLOWING] or different
    if other:
        theirs, ours = (pairs({n: v.get(n) for n in other}) for v in (said, ran))
        yield error("gap.other_run", file=file, theirs=theirs, plan_file=run.plan_file, ours=ours)


def _gap_of(run: Run, state: State | None, warmup: int | None) -> dict[str, object] | list[Diagnostic]:
    """Report one run, or say why it cannot be."""
    if run.plan is None:
        return [error("gap.no_plan", run=run.name)]
    if state is None:
        made = priced(run.plan)
        if not isinstance(made, Measured):
            return [*made]
        state = State(made.cost, made.row)
    (sizes,) = numbers([run], Given())
    assert isinstance(sizes, Numbers)  # a plan has them
    log = read_all(run.logs, symptoms(load_stdlib()))
    row = measure(run, log, sizes, warmup)
    if not row[RATE] or not row[RATE]["median"]:
        return [error("gap.nothing", run=run.name, status=row["status"], cause=row["cause"], help=remedy(row))]
    if other := warning_texts(row, (BATCH,)):
        return [error("results.batch", run=run.name, other=other[0])]
    return gaps.report(row, last_settings(log, sizes.global_batch), run.plan, state)


def library_of(path: str | None) -> tuple[Library, Source | None, list[Diagnostic]]:
    """Load the stdlib with the rules that a run file declares, and that file; its errors if it has any."""
    library = load_stdlib()
    if path is None:
        return library, None, []
    source, found = reader.read(path)
    if source is None:
        return library, None, list(found)
    module, found = parse(source)
    if module is None or found:
        return library, None, list(found)
    use(library, source, module, parse)
    *_, wrong = collect.of_library(library)
    return library, source, [d for d in (*library.diagnostics, *wrong) if d.is_error]


def plans_of(source: Source) -> Result | None:
    """Plan the runs of a file; None if it has only rules."""
    result = compile_source(source, "plan", console.Progress())
    only_rules = result.failed and all(d.id in ABSENT for d in result.diagnostics if d.is_error)
    return None if only_rules else result


def judged_by(a: Namespace) -> tuple[steps.Classes, Result | None] | int:
    """Return the classes and the plans, None without `--run` or if it has only rules; the exit code if one is wrong."""
    library, source, found = library_of(a.run)
    classes, wrong = steps.read(library)
    if found or wrong:
        return console.refused(a, [*found, *wrong], library.sources)
    planned = plans_of(source) if source else None
    if planned and planned.failed:
        return console.refused(a, planned.diagnostics, planned.sources)
    return classes, planned

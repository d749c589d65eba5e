"""`moedsl diagnose`, `profile`, `memory` and `gap`: explain a failure, a traced step, the memory at its peak, a speed.

With `--run FILE`, they also use the rules that the file declares, and compare with its plan.
"""

from __future__ import annotations

import io
import os
import shlex
import sys
from argparse import Namespace
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

from attrs import evolve

from moedsl.cli import console
from moedsl.cli.terminal import Refused
from moedsl.compiler import ABSENT, Result, compile_source, load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose import text as diagnosis
from moedsl.diagnose.edit import compile_edits, remarks
from moedsl.diagnose.scan import symptoms
from moedsl.facts.axes import pairs
from moedsl.lang.parser import parse
from moedsl.planner.experiment import settings
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
    """Explain what went wrong in a log. Exit 0 if a log shows a healthy run, ended or still running; else 1."""
    library, source, found = library_of(a.run)
    # text of a log, not a path: no file has that name, and it has spaces
    is_text = "\n" in a.log or (any(c.isspace() for c in a.log) and not _exists(a.log))
    folder = None if a.log == "-" or "/" in a.log or is_text or _exists(a.log) else experiment_folder(a.log)
    if a.log == "-":
        opened: list[Opened] = [("<stdin>", sys.stdin.buffer)]
    elif is_text:
        opened = [("<text>", io.BytesIO(a.log.encode(errors="replace")))]
    elif isinstance(folder, Diagnostic):
        opened = [(a.log, folder)]
    elif folder is not None:
        opened = [_file(str(path)) for path in job_logs(folder) if path.stat().st_size]
        opened = opened or [(a.log, error("read.log", name=a.log))]
    else:
        opened = [_file(a.log)]
    console.stop_on([*found, *(d for _, d in opened if isinstance(d, Diagnostic))], library.sources)
    known = scan.symptoms(library)
    reports: list[scan.Report] = []
    for name, stream in opened:
        assert not isinstance(stream, Diagnostic)  # that was reported above
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
    told = [r for r in data if not r["healthy"]] or data
    whole = {"version": 1, "experiment": a.log, "logs": data} if folder else data[0]
    console.print_answer(a, whole, lambda: "\n".join(map(diagnosis.text, told)), end="")
    # only the logs of some ranks of a job have iteration lines
    failed = any(not r.is_healthy and (r.steps or r.sightings or r.errors or r.first_failure) for r in reports)
    return int(failed or not any(r.is_healthy for r in reports))


Opened = tuple[str, BinaryIO | Diagnostic]
"""The name of a log, and its stream or why it cannot be opened."""


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # longer than a path may be
        return False


def _file(path: str) -> Opened:
    """Open a log as a binary stream, or say why it cannot be opened."""

    def wrong(id: str, what: str, help: str) -> Opened:
        return path, error(id, f"{path} {what}", Label(Span(path, 0, 0)), help=help)

    try:
        if Path(os.path.realpath(path)).is_fifo():  # not a shell's pipe such as /dev/fd/63, whose real path is no file
            return wrong("read.special", "is a named pipe, which may never end", f"cat {path} | moedsl diagnose -")
        refuse_special(Path(path))
        stream = open(path, "rb")  # noqa: SIM115, closed by run
        start = stream.peek(1 << 13)[: 1 << 13]
    except FileNotFoundError:
        help = "check the path; an argument with blanks is a line of a log, and `moedsl jobs` lists the ids of jobs"
        return wrong("read.missing", "does not exist", help)
    except OSError as e:
        return path, refused(path, e, "name one log in it")
    if start.startswith(b"\x1f\x8b"):
        unread = wrong("read.log", "is compressed", f"zcat {path} | moedsl diagnose -")
    elif scan.is_binary(start):
        unread = wrong("read.log", "is binary, not a log", "name the text that a run printed")
    else:
        return path, stream
    stream.close()
    return unread


def profile(a: Namespace) -> int:
    """Say what a training step was spent on. Exit 1 if a trace cannot be read or has no steps."""
    classes, planned = judged_by(a)
    each, progress = list[report.Json](), console.Progress()
    problems = list[Diagnostic]()
    for path in a.traces:
        more, wrong = report.reports(Path(path), classes, progress)
        each += more
        problems += wrong
    if any(d.is_error for d in problems):
        raise Refused(problems)
    data, remarks = report.whole(each)
    console.say([*problems, *remarks], {})
    if planned:
        data["plans"] = [predicted.compare(data, c, p) for c, p in zip(planned.chosen, planned.plans, strict=True)]
    console.print_answer(a, data, lambda: report.text(data), end="")
    return 0


def memory(a: Namespace) -> int:
    """Say what was allocated at the peak. Exit 1 if a snapshot cannot be read."""
    classes, planned = judged_by(a)
    given = [snapshot.Given.of(text) for text in a.snapshots]
    each: list[dict[str, Any]] = []
    for one in given:
        at = Label(Span(str(one.path), 0, 0))
        if Path(os.path.realpath(one.path)).is_fifo():  # a pipe of the shell has no name there, and is read
            raise Refused([error("read.special", at, path=one.path)])
        try:
            with one.path.open("rb") as stream:
                devices = [m for m in snapshot.devices(snapshot.load(stream)) if m.peak]
        except OSError as e:
            raise Refused([refused(one.path, e, "name one snapshot in it")]) from e
        except snapshot.NoSnapshot as e:
            raise Refused([error("memory.snapshot", at, path=one.path, problem=e)]) from e
        if not devices:
            raise Refused([error("memory.empty", at, path=one.path)])
        each += [snapshot.report(one, m, classes) for m in devices]
    plans = planned.plans if planned else ()
    wrong: list[Diagnostic] = []
    for one, plan in product(given, plans):
        pp = plan.layout.pp
        if one.stage is not None and one.stage >= pp:
            stages = f"stages are 0 to {pp - 1}" if pp > 1 else "only stage is 0"
            wrong.append(error("memory.stage", plan=plan.name, stage=one.stage, stages=stages, path=one.path))
    console.stop_on(wrong)
    for r in each if planned else ():
        r["plans"] = [snapshot.compare(r, p) for p in plans]
    console.print_answer(a, {"version": 1, "devices": each}, lambda: snapshot.text(each), end="")
    return 0


_FOLLOWING = ("dp", "num_microbatches", "pipeline_layout")
"""Values that mostly follow from others that differ."""


def gap(a: Namespace) -> int:
    """Explain a speed, from measured to predicted and published. Exit 1 if an input is wrong or nothing is measured."""
    library, source, found = library_of(a.run)
    console.stop_on(found, {**library.sources, **({source.name: source} if source else {})})
    result = plans_of(source) if source else None
    if a.run and (result is None or len(result.plans) != 1):
        raise Refused([error("gap.runs", run=a.run)])
    gathered, found = gather([a.target])
    runs, state = disambiguate(gathered), None
    if result is not None:  # the plan of --run replaces the one in the folder of the log
        stated, chosen = result.plans[0], result.chosen[0]
        state = State(chosen.cost, chosen.solution.rows[0].codes)
        found = [d for d in found if d.id != DAMAGED]
        # report where the plan that ran, which is next to the log, differs from the plan of `--run`
        for r, ran in ((r, r.plan) for r in runs if r.plan is not None):
            ours, theirs = (
                {"model": p.model, "hardware": p.hardware, "gpus": p.gpus, **settings(p.layout, p.batch, p.policy)}
                for p in (ran, stated)
            )
            if different := [n for n in ours if ours[n] != theirs.get(n)]:
                names = [n for n in different if n not in _FOLLOWING] or different
                said = {who: pairs({n: v.get(n) for n in names}) for who, v in (("theirs", theirs), ("ours", ours))}
                found.append(error("gap.other_run", file=a.run, plan_file=r.plan_file, **said))
        runs = [evolve(r, plan=stated) for r in runs]
    console.stop_on(found)
    each = [_gap_of(r, state, a.warmup) for r in runs]
    console.stop_on(d for one in each if isinstance(one, list) for d in one)
    reports = [one for one in each if isinstance(one, dict)]
    command = shlex.join(["moedsl", "next", a.target, *(["--run", a.run] if a.run else [])])
    next = f"next: `{command}` proposes one change, and says what it should gain"
    data = {"version": 1, "runs": reports}
    console.print_answer(a, data, lambda: "\n".join([*map(gaps.text, reports), next]))
    return 0


def _gap_of(run: Run, state: State | None, warmup: int | None) -> dict[str, object] | list[Diagnostic]:
    """Report on one run, or return the reasons why that is impossible."""
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
    """Load the stdlib with the rules that a run file declares; return it with the file and the file's errors."""
    library = load_stdlib()
    if path is None:
        return library, None, []
    source = console.program_of(path)
    module, found = parse(source)
    if module is None or found:
        return library, source, [*found]
    use(library, source, module, parse)
    *_, wrong = collect.of_library(library)
    return library, source, [d for d in (*library.diagnostics, *wrong) if d.is_error]


def plans_of(source: Source) -> Result | None:
    """Plan the runs of a file; None if it has only rules. Raises Refused if a run has no plan."""
    result = compile_source(source, "plan", console.Progress())
    if not result.failed:
        return result
    if all(d.id in ABSENT for d in result.diagnostics if d.is_error):
        return None
    raise Refused(result.diagnostics, result.sources)


def judged_by(a: Namespace) -> tuple[steps.Classes, Result | None]:
    """Return the patterns that classify kernels and frames, and the plans of `--run`: None without it, or if its file
    has only rules."""
    library, source, found = library_of(a.run)
    classes, wrong = steps.read(library)
    console.stop_on([*found, *wrong], library.sources)
    return classes, plans_of(source) if source else None

"""`moedsl next ID|DIR...`: the next experiment. Exit 1 if an input is wrong or nothing was measured."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen

from moedsl.cli import console
from moedsl.compiler import load_stdlib
from moedsl.lang import reader
from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import Measured, priced
from moedsl.runs.results.gather import Run, disambiguate, gather
from moedsl.runs.results.measure import BATCH, remarks, remedy, warning_texts
from moedsl.runs.tune import run_file
from moedsl.runs.tune.candidates import Tried, best, candidates, report, row, text, tried
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.files import refusals
from moedsl.support.text import wrapped

EXPERIMENT = "another experiment"
"""Why a run is left out that has other values of what the loss depends on."""


@frozen
class _Seen:
    """A run that was measured: what it says of its layout, if anything, and what must be known of it."""

    tried: Tried | None
    remarks: Sequence[str]


def run(a: Namespace) -> int:
    if a.output and (kept := _kept(a.output)):
        return console.refused(a, kept)
    gathered, found = gather(a.paths)
    runs = [r for r in disambiguate(gathered) if r.plan]
    made = [] if found else [_tried(r) for r in runs]
    wrong = [*found, *(d for m in made if isinstance(m, list) for d in m)]
    seen = [(r, m) for r, m in zip(runs, made, strict=False) if isinstance(m, _Seen)]
    done = [(r, m.tried) for r, m in seen if m.tried]
    notes = [f"{r.name}: {text}" for r, m in seen for text in m.remarks]
    if wrong or not done:
        return console.refused(a, wrong or [_nothing(a.paths, notes)])
    base = _base(a.run, done)
    if not isinstance(base, run_file.Base):
        return console.refused(a, base)
    return _answer(a, base, done, notes)


def _kept(output: str) -> list[Diagnostic]:
    """Say why the next run file cannot be written there."""
    if not os.path.lexists(output):
        return refusals(Path(output), "next")
    text, help = f"{output} exists, and `next` overwrites nothing", "name another file with -o"
    return [error("emit.exists", text, help=help)]


def _answer(a: Namespace, base: run_file.Base, done: Sequence[tuple[Run, Tried]], notes: Sequence[str]) -> int:
    each = [(t, _other(r.plan, base.plan) if r.plan else None) for r, t in done]
    same, left = [t for t, why in each if why is None], [(t.name, why) for t, why in each if why]
    if not same:
        return console.refused(a, [_all_other(base, left)])
    found = candidates(base.chosen, base.start, same)
    others = {
        "other_experiments": [name for name, why in left if why == EXPERIMENT],
        "other_machines": [name for name, why in left if why != EXPERIMENT],
    }
    data = {"version": 1, **report(base.chosen, base.start, same, found, a.stop), **others, "remarks": [*notes]}
    if a.json:
        console.print_json(data)
    else:
        console.print_text(lambda: text(data) + "".join(f"left out, {why}: {name}\n" for name, why in left), end="")
        console.print_text(lambda: "".join(f"{wrapped(note, '', '  ', width=110)}\n" for note in notes), end="")
    return _write(a, base, found[0].codes) if a.output and data["next"] else 0


def _other(plan: Plan, base: Plan) -> str | None:
    """Say why the step of a run says nothing of the layouts of another plan, if so."""
    if plan.experiment.fingerprint != base.experiment.fingerprint:
        return EXPERIMENT
    there, here = run_file.machines(plan), run_file.machines(base)
    return f"ran on {there}, not on {here}" if there != here else None


def _all_other(base: run_file.Base, left: Sequence[tuple[str, str]]) -> Diagnostic:
    text = f"no run of the experiment of {base.source.name} on {run_file.machines(base.plan)} has measured or failed"
    each = "; ".join(f"{name}: {why}" for name, why in left)
    return error("tune.nothing:all-other-next", text=text, each=each)


def _write(a: Namespace, base: run_file.Base, codes: run_file.Codes) -> int:
    made = run_file.with_layout(base, codes, "The next experiment, by `moedsl next`")
    if isinstance(made, Diagnostic):
        return console.refused(a, [made])
    return console.written(Path(a.output), made.text, "")


def _base(file: str | None, done: Sequence[tuple[Run, Tried]]) -> run_file.Base | list[Diagnostic]:
    """The program that is varied: of `--run`, else of the plan of the fastest run."""
    if file is not None:
        source, found = reader.read(file)
        return [*found] if source is None else run_file.base(source)
    fastest = best([t for _, t in done])
    plans = [r.plan for r, t in done if fastest is None or t is fastest]
    assert plans[0] is not None  # runs without a plan are left out
    made = run_file.base(run_file.of_plan(plans[0]))
    if not isinstance(made, run_file.Base) or made.plan.experiment.fingerprint != plans[0].experiment.fingerprint:
        return [error("tune.experiment:program", plans=plans[0].name)]
    return made


def _tried(r: Run) -> _Seen | list[Diagnostic]:
    """Measure one run. With another batch than its plan's it is of another experiment."""
    assert r.plan is not None
    made = priced(r.plan)
    if not isinstance(made, Measured):
        return [*made]
    measured = row(r, load_stdlib())
    if warning_texts(measured, (BATCH,)):
        return _Seen(None, remarks(measured))
    seen = tried(r.name, made.row, made.cost, measured)
    nothing = [] if seen else [f"{measured['status']}, {measured['cause']}: {remedy(measured)}"]
    return _Seen(seen, [*remarks(measured), *nothing])


def _nothing(paths: Sequence[str], notes: Sequence[str]) -> Diagnostic:
    first = "`moedsl run` writes a plan.json for each job; `moedsl plan run.moe` is the first experiment"
    help = () if notes else first
    text = f"no run with a plan has measured or failed in {' '.join(paths)}"
    return error("tune.nothing", "; ".join([text, *notes]), help=help)

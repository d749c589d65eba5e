"""Warn that saves and failures leave a run little time to train, with what would leave it more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from moedsl.rules.check.program import Program
from moedsl.solver.saving import INTERVAL, PAYS, Saving, saving
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Label, warning
from moedsl.support.text import counted, duration

LEAST = 0.5
"""The goodput below which a plan warns."""
_IN_BACKGROUND = {"checkpoint.async_save": True}
_IN_JOB = {"ft.enable_ft_package": True}


def low_goodput(c: Chosen) -> list[Diagnostic]:
    """Warn if less than half of the time trains steps that are kept."""
    p = c.problem.program
    now, own = _saving(c, p), p.spans.get(INTERVAL)
    g = now.goodput
    if g.trains >= LEAST:
        return []
    validates = f"{g.validates:.1%} validates, " if g.validates else ""
    lost = f"{g.saves:.1%} waits for saves, {g.repeats:.1%} repeats lost steps, {g.returns:.1%} returns from failures"
    trains = f"only {g.trains:.1%} of the time trains steps that are kept"
    text = f"{trains}, with a failure every {duration(g.mtbf)}: {validates}{lost}"
    places = (p.spans["hardware"], *([Label(own, "the interval of the saves")] if own else []))
    fixes = (Fix(f"Drop the `set` of `{INTERVAL}`", DROP, own),) if own and now.steps != now.best_steps else ()
    return [warning("plan.goodput", text, *places, help=tuple(_helps(c, now)), fixes=fixes)]


def _helps(c: Chosen, now: Saving) -> Iterator[str]:
    """What leaves more time, each with its goodput: the best interval, then one change besides it, then fewer GPUs."""
    p = c.problem.program
    p = evolve(p, sets={path: value for path, value in p.sets.items() if path != INTERVAL})
    best = _saving(c, p)
    if _adds(best, now):
        yield f"save every {_steps(best)}, the best interval: {_trains(best)}"
    for change, other in _changes(p):
        after = _saving(c, other)
        if _adds(after, best):
            yield f"{change}: {_trains(after)} with a save every {_steps(after)}"
    on_nodes, in_job = (_saving(c, q) for q in (_with_local_saves(p), _with(p, _IN_JOB)))
    if on_nodes.local_steps and _adds(on_nodes, in_job):
        more = f"{_trains(on_nodes)} with a save there every {_steps(on_nodes, on_nodes.local_steps)}"
        yield f"write `resilience ft`, and `local_disk` of the cluster for saves on the nodes: {more}"
    gpus = c.problem.gpus // 2
    while gpus and _saving(c, p, gpus).goodput.trains < LEAST:
        gpus //= 2
    if gpus:
        fewer = _saving(c, p, gpus)
        fails = duration(fewer.goodput.mtbf)
        yield f"use {counted(gpus, 'GPU', ',')}, with a failure every {fails}: {_trains(fewer)}"


def _changes(p: Program) -> Iterator[tuple[str, Program]]:
    """Changes of a run or of its cluster that may help, in words."""
    yield "write `set checkpoint.async_save = true`", _with(p, _IN_BACKGROUND)
    yield "write `resilience ft`, so that ranks restart within their job", _with(p, _IN_JOB)
    if p.site.storage_write:
        yield "with the calibration's `storage_write`", evolve(p, site=evolve(p.site, storage_write=0.0))
    if p.site.gpu_mtbf:
        yield "with the calibration's `gpu_mtbf_days`", evolve(p, site=evolve(p.site, gpu_mtbf=0.0))
    if p.site.most_lost:
        yield "leave out `most_lost_minutes`", evolve(p, site=evolve(p.site, most_lost=0.0))


def _with(p: Program, sets: Mapping[str, Any]) -> Program:
    return evolve(p, sets={**p.sets, **sets})


def _with_local_saves(p: Program) -> Program:
    return evolve(_with(p, _IN_JOB), site=evolve(p.site, local_disk="/"))


def _steps(s: Saving, steps: int = 0) -> str:
    return counted(steps or s.steps, "step", ",")


def _trains(s: Saving) -> str:
    return f"{s.goodput.trains:.1%} would train"


def _adds(s: Saving, to: Saving) -> bool:
    return s.goodput.trains > to.goodput.trains + PAYS


def _saving(c: Chosen, p: Program, gpus: int = 0) -> Saving:
    """How the plan's layout saves in a run that is changed; on other GPUs a step takes as long as they are fewer."""
    row, now = c.solution.rows[0], c.problem.gpus
    gpus = gpus or now
    problem = evolve(c.problem, program=p, gpus=gpus)
    return saving(problem, c.cost, c.environment(row.codes), row.step_time * now / gpus)

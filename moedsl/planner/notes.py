"""Notes on a plan that a reader should see first: on the run itself, low goodput, a doubtful fit."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from moedsl.cost import goodput
from moedsl.lang import ast
from moedsl.planner.advice import against_policy, idle_advice, unheeded
from moedsl.planner.checkpoints import lost
from moedsl.planner.uneven import uneven
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import holds
from moedsl.rules.stdlib import RuleId
from moedsl.solver.problem import Problem
from moedsl.solver.solve import INTERVAL, PAYS, Chosen, Saving, saving
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, Label, note, warning
from moedsl.support.text import counted, duration


def notes(c: Chosen) -> list[Diagnostic]:
    """Note a doubtful fit, the number of GPUs, mock data, low goodput, ignored advice, the batch, and missing saves."""
    p = c.problem.program
    gpus = [smallest(p, c.problem.gpus)] if p.gpus is None else whole_nodes(p, p.gpus)
    about_run = [*tight(c), *gpus, *no_proxy(c.problem), *low_goodput(c)]
    advised = [*unheeded(c.compiled, c.solution.rows[0]), *against_policy(c)]
    return [*about_run, *advised, *uneven(c), *unsaved(c), *idle_advice(c)]


def whole_nodes(p: Program, gpus: int) -> list[Diagnostic]:
    """Note a run on several nodes that does not use whole nodes."""
    node = p.hardware.gpus_per_node
    if gpus <= node or gpus % node == 0:
        return []
    whole = f"{p.hardware.name} x {(gpus // node + 1) * node}"
    help = Instead(f"write `{whole}`", whole)
    return [note("plan.partial_node", p.spans["hardware"], gpus=gpus, node=node, help=help)]


def smallest(p: Program, gpus: int) -> Diagnostic:
    """Note that the solver chose the number of GPUs."""
    help = Instead(f"write `{p.hardware.name} x {gpus}` to keep it", f"{p.hardware.name} x {gpus}")
    return note("plan.smallest", p.spans["hardware"], gpus=gpus, hardware=p.hardware.name, help=help)


def no_proxy(problem: Problem) -> list[Diagnostic]:
    """Note what the `measured` rule about mock data says, if the run meets the rule's condition."""
    p = problem.program
    where = p.spans.get("data") or p.spans.get("vlm") or p.spans.get("model") or p.spans["hardware"]
    return [
        note("plan.no_proxy", r.expr.value, where, help='name real images: `data "path"`')
        for r in p.of("measured")
        if r.id == RuleId.MOCK_DATA and isinstance(r.expr, ast.String) and holds(r.when, problem.values)
    ]


DAY = 86400.0
"""Seconds in a day; a run that trains longer should save checkpoints."""


def unsaved(c: Chosen) -> list[Diagnostic]:
    """Warn of a run that saves no checkpoint, if its stated length is more than a day."""
    p, known = c.problem.program, c.problem.values
    steps = p.sets.get("train.train_iters") or known["run_tokens"] / (c.problem.global_batch * known["seq"])
    seconds = known["run_seconds"] or steps * c.solution.rows[0].step_time
    if known["saves"] or seconds <= DAY or p.phase == "profile":
        return []
    mtbf = goodput.mtbf(c.problem.gpus, p.site.gpu_mtbf or c.cost.hardware.constants.gpu_mtbf)
    takes = f"a failure, expected every {duration(mtbf)} on {counted(c.problem.gpus, 'GPU')}, takes all of it"
    where = p.spans.get("for") or p.spans.get("train.train_iters") or p.spans["hardware"]
    ways = ('write `set checkpoint.save = "FOLDER"`', 'or `data "PATH"`: a recipe on a corpus saves')
    return [
        warning(
            "plan.unsaved", where, length=duration(seconds), takes=takes, help=ways if p.data == "mock" else ways[:1]
        )
    ]


LEAST = 0.5
"""The goodput below which a plan warns."""


def low_goodput(c: Chosen) -> list[Diagnostic]:
    """Warn if less than half of the time trains steps that are kept."""
    p = c.problem.program
    now, own = _saving(c, p), p.spans.get(INTERVAL)
    g = now.goodput
    if g.trains >= LEAST:
        return []
    places = (p.spans["hardware"], *([Label(own, "the interval of the saves")] if own else []))
    fixes = (Fix(f"Drop the `set` of `{INTERVAL}`", DROP, own),) if own and now.steps != now.best_steps else ()
    return [
        warning(
            "plan.goodput",
            *places,
            trains=f"{g.trains:.1%}",
            every=duration(g.mtbf),
            lost=lost(g),
            help=tuple(_helps(c, now)),
            fixes=fixes,
        )
    ]


def _helps(c: Chosen, now: Saving) -> Iterator[str]:
    """Yield what raises goodput, each with its result: the best interval, then that and one change, then fewer GPUs."""
    p = c.problem.program
    p = evolve(p, sets={path: value for path, value in p.sets.items() if path != INTERVAL})
    best = _saving(c, p)
    if _adds(best, now):
        yield f"save every {_steps(best.steps)}, the best interval: {_trains(best)}"
    in_job = evolve(p, sets={**p.sets, "ft.enable_ft_package": True})
    for change, other in (
        ("write `set checkpoint.async_save = true`", evolve(p, sets={**p.sets, "checkpoint.async_save": True})),
        ("write `resilience ft`, so that ranks restart within their job", in_job),
        ("with the calibration's `storage_write`", _at_site(p, "storage_write")),
        ("with the calibration's `gpu_mtbf_days`", _at_site(p, "gpu_mtbf")),
        ("leave out `most_lost_minutes`", _at_site(p, "most_lost")),
    ):
        after = _saving(c, other)
        if _adds(after, best):
            yield f"{change}: {_trains(after)} with a save every {_steps(after.steps)}"
    on_nodes = _saving(c, evolve(in_job, site=evolve(p.site, local_disk="/")))
    if on_nodes.local_steps and _adds(on_nodes, _saving(c, in_job)):
        more = f"{_trains(on_nodes)} with a save there every {_steps(on_nodes.local_steps)}"
        yield f"write `resilience ft`, and `local_disk` of the cluster for saves on the nodes: {more}"
    gpus, fewer = c.problem.gpus // 2, now
    while gpus and (fewer := _saving(c, p, gpus)).goodput.trains < LEAST:
        gpus //= 2
    if gpus:
        fails = duration(fewer.goodput.mtbf)
        yield f"use {counted(gpus, 'GPU', ',')}, with a failure every {fails}: {_trains(fewer)}"


def _at_site(p: Program, name: str) -> Program:
    """Return the run without one figure that its cluster states."""
    return evolve(p, site=evolve(p.site, **{name: 0.0}))


def _steps(steps: int) -> str:
    return counted(steps, "step", ",")


def _trains(s: Saving) -> str:
    return f"{s.goodput.trains:.1%} would train"


def _adds(s: Saving, to: Saving) -> bool:
    return s.goodput.trains > to.goodput.trains + PAYS


def _saving(c: Chosen, p: Program, gpus: int = 0) -> Saving:
    """Compute how the plan's layout saves in a changed run; on half the GPUs, a step takes twice as long."""
    row, now = c.solution.rows[0], c.problem.gpus
    problem = evolve(c.problem, program=p, gpus=gpus or now)
    return saving(problem, c.cost, c.environment(row.codes), row.step_time * now / problem.gpus)


_BY_CASE = {
    "best": "no layout of this run FITS: the plan fits by the best estimate, but not at the high end",
    "low": "no layout of this run fits by the best estimate: expect the plan to run out of memory",
}


def tight(c: Chosen) -> list[Diagnostic]:
    """Warn if no layout fits in the case of the memory estimate that the run asks for."""
    if not c.fell_back:
        return []
    p = c.problem.program
    fewer = ", fewer pins" if p.pins else ""
    help = f"use more GPUs{fewer} or a shorter sequence, or watch the memory of the first steps"
    return [warning("plan.tight", _BY_CASE[c.must_fit], p.spans["hardware"], help=help)]

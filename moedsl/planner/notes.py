"""Notes on a plan, which a reader should know first: the run itself, little time to train, a doubtful fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from attrs import evolve

from moedsl.cost import goodput
from moedsl.lang import ast
from moedsl.planner.advice import idle_advice, unheeded
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import holds, names
from moedsl.rules.stdlib import RuleId
from moedsl.solver.conflicts import Size, nearby
from moedsl.solver.laws import Compiled, Law
from moedsl.solver.problem import Problem
from moedsl.solver.solve import INTERVAL, PAYS, Chosen, Saving, saving, solve
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, Label, note, warning
from moedsl.support.text import counted, duration


def notes(c: Chosen) -> list[Diagnostic]:
    """Note a doubtful fit, the number of GPUs, mock data, little time to train, the batch, and advice that the chosen
    layout ignores."""
    p = c.problem.program
    gpus = [smallest(p, c.problem.gpus)] if p.gpus is None else whole_nodes(p, p.gpus)
    about_run = [*tight(c), *gpus, *no_proxy(c.problem), *low_goodput(c)]
    return [*about_run, *unheeded(c.compiled, c.solution.rows[0]), *uneven_batch(c), *unsaved(c), *idle_advice(c)]


def whole_nodes(p: Program, gpus: int) -> list[Diagnostic]:
    """Note a run on more than one node whose GPUs are not whole nodes."""
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


RULES = (RuleId.MOCK_DATA,)
"""`measured` members whose condition depends only on the run."""


def no_proxy(problem: Problem) -> list[Diagnostic]:
    """Note each rule of RULES whose condition the run meets."""
    p = problem.program
    rules = (r for r in p.of("measured") if r.id in RULES and holds(r.when, problem.values))
    where = p.spans.get("data") or p.spans.get("vlm") or p.spans.get("model") or p.spans["hardware"]
    return [
        note("plan.no_proxy", r.expr.value, where, help='name real images: `data "path"`')
        for r in rules
        if isinstance(r.expr, ast.String)
    ]


DAY = 86400.0
"""Seconds; a run that trains for longer should save."""


def unsaved(c: Chosen) -> list[Diagnostic]:
    """Warn of a run that states a length of more than a day, and saves no checkpoint."""
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
            "plan.unsaved", where, duration=duration(seconds), takes=takes, help=ways if p.data == "mock" else ways[:1]
        )
    ]


AROUND = 1.0
"""Largest difference of a near batch from the run's, as a share: up to twice the batch."""
WORTH = 1.05
"""Least gain in tokens a second, as a multiple, that makes the note a warning."""
MOST = 3
"""Number of near batches that are solved, the nearest first."""


def uneven_batch(chosen: Chosen) -> list[Diagnostic]:
    """Note that the batch limits the replicas and a near batch allows more; warn if that batch is faster."""
    p, law = chosen.problem.program, _divides(chosen.compiled)
    batch, dp = chosen.problem.global_batch, _replicas(chosen)
    if law is None or not _stated(p) or dp != _shared(chosen, batch):
        return []
    wider = {n: gain for n in _nearby(chosen, batch) if (gain := _gain(chosen, n))}
    return [_diagnostic(chosen, law, wider)] if wider else []


def _divides(c: Compiled) -> Law | None:
    """The law that the replicas divide the batch, if the run has it."""
    return next((w for w in c.laws if {"global_batch", "dp"} <= names(w.rule.expr)), None)


def _stated(p: Program) -> bool:
    """Whether the run states its batch, not a sweep or an isolation."""
    varied = (p.spans.get("sweep"), p.isolate.span if p.isolate else None)
    return "batch" in p.spans and p.spans["batch"] not in varied


def _replicas(c: Chosen) -> int:
    codes = c.solution.rows[0].codes
    return c.problem.gpus // (codes["tp"] * codes["cp"] * codes["pp"])


def _shared(c: Chosen, batch: int) -> int:
    """The most replicas that divide both the GPUs and the microbatches of a batch."""
    return gcd(batch // _micro_batch(c.problem.program), c.problem.gpus)


def _micro_batch(p: Program) -> int:
    pin = p.pins.get("micro_batch")
    return pin.code if pin is not None else 1


def _nearby(c: Chosen, batch: int) -> Sequence[int]:
    """Near batches with more replicas, the nearest first; a farther batch is listed only if it allows still more."""
    p = c.problem.program
    size = Size("global_batch", "batch", batch, p.spans["batch"])
    near = [n for n in nearby(c.compiled, size) if abs(n - batch) < AROUND * batch and n % _micro_batch(p) == 0]
    best, out = _shared(c, batch), list[int]()
    for n in sorted(near, key=lambda n: (abs(n - batch), -_shared(c, n))):
        if _shared(c, n) > best:
            best, out = _shared(c, n), [*out, n]
    return out[:MOST]


def _gain(c: Chosen, batch: int) -> tuple[int, float] | None:
    """The replicas and the gain in tokens a second at another batch; None if it has no more replicas."""
    other = solve(c.problem.program, c.problem.gpus, keep=1, global_batch=batch, must_fit=c.must_fit)
    if not other.solution.rows or _replicas(other) <= _replicas(c):
        return None
    times = c.solution.rows[0].step_time / other.solution.rows[0].step_time
    return _replicas(other), times * batch / c.problem.global_batch


def _diagnostic(c: Chosen, law: Law, wider: Mapping[int, tuple[int, float]]) -> Diagnostic:
    p, batch, micro = c.problem.program, c.problem.global_batch, _micro_batch(c.problem.program)
    parts = f"{batch // micro} microbatches of {micro}" if micro > 1 else f"{batch} sequences"
    common = f"the greatest common divisor of {parts} and {c.problem.gpus} GPUs"
    buys = {f"batch {n}": f"dp {dp} and {gain:.2f}x the tokens a second" for n, (dp, gain) in wider.items()}
    faster = [n for n, (_, gain) in wider.items() if gain >= WORTH]
    return (warning if faster else note)(
        "plan.uneven_batch",
        f"the batch limits data parallelism to {_replicas(c)}, {common}",
        p.spans["batch"],
        help=tuple(Instead(f"write `batch {n}`", f"batch {n}") for n in faster),
        because=law.rule.because,
        cites=law.rule.cites,
        values={"global_batch": batch} | buys,
    )


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
    places = (p.spans["hardware"], *([Label(own, "the interval of the saves")] if own else []))
    fixes = (Fix(f"Drop the `set` of `{INTERVAL}`", DROP, own),) if own and now.steps != now.best_steps else ()
    return [
        warning(
            "plan.goodput",
            *places,
            trains=trains,
            duration=duration(g.mtbf),
            validates=validates,
            lost=lost,
            help=tuple(_helps(c, now)),
            fixes=fixes,
        )
    ]


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


_BY_CASE = {
    "best": "no layout of this run FITS: the plan fits by the best estimate, but not at the high end",
    "low": "no layout of this run fits by the best estimate: expect the plan to run out of memory",
}


def tight(c: Chosen) -> list[Diagnostic]:
    """Warn if no layout fits in the case of the memory estimate in which the run would have one fit."""
    if not c.fell_back:
        return []
    p = c.problem.program
    fewer = ", fewer pins" if p.pins else ""
    help = f"use more GPUs{fewer} or a shorter sequence, or watch the memory of the first steps"
    return [warning("plan.tight", _BY_CASE[c.must_fit], p.spans["hardware"], help=help)]

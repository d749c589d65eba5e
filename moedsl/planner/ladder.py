"""The ladder: what a phase may change and by which rule, what the next phase adds, and its predicted gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.planner.walls import Note, measured, note
from moedsl.rules.check.program import Pin
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import Block, LetName
from moedsl.solver.solve import Chosen, plan_for, solve
from moedsl.support.json_form import ABSENT, Absent, JsonForm


@frozen
class RanksBy(JsonForm):
    """The rule by which a phase ranks layouts."""

    rule: str
    because: str | None
    cite: tuple[str, ...]


@frozen
class Opened(JsonForm):
    """An axis and the values that a phase allows it."""

    axis: str
    values: tuple[Any, ...]
    rule: str | None
    because: str | None
    cite: tuple[str, ...]
    advice: bool
    """Whether a rule narrows the values further than the laws do."""


@frozen(kw_only=True)
class Gain(JsonForm):
    """A layout compared with another one."""

    phase: str | None = None
    """The earlier phase, if the other layout is from one."""
    changes: Mapping[str, Any]
    """Axes with their new values."""
    step_time_s: float
    peak_gib: float
    speedup: float


@frozen
class NextPhase(JsonForm):
    """A later phase; it has no figures if no layout fits."""

    phase: str
    opens: tuple[Opened, ...]
    solved: bool
    changes: Mapping[str, Any] | None = None
    step_time_s: float | None = None
    peak_gib: float | None = None
    speedup: float | None = None


@frozen
class Folding(JsonForm):
    """Whether attention and experts have meshes of their own."""

    folded: bool
    shared_mesh: Gain | Absent | None = ABSENT
    """The best layout with one mesh for both; null if none fits."""


@frozen
class Ladder(JsonForm):
    """One phase of the workflow, the phase before it and the next phases."""

    phase: str
    ranks_by: RanksBy
    open: tuple[Opened, ...]
    held: tuple[Opened, ...]
    from_: Gain | None
    """The gain of this phase over the one before it."""
    next: tuple[NextPhase, ...]
    folding: Folding
    notes: tuple[Note, ...]


AFTER = {"fit": ("scale",), "scale": ("profile", "throughput"), "profile": ("throughput",), "throughput": ()}
"""The next phases, up to the first that may change the layout."""


def of_run(chosen: Chosen) -> Ladder:
    """Build the ladder of a plan whose file has one phase; the next phase is solved for it."""
    p, gpus = chosen.problem.program, chosen.problem.gpus
    ahead = [
        plan_for(evolve(p, phase=phase, gpus=gpus), gpus, keep=1) for phase in AFTER[p.phase] if phase != "profile"
    ]
    return _ladder(chosen, None, {c.problem.program.phase: c for c in ahead}, price_folding=True)


def of_workflow(every: Sequence[Chosen]) -> dict[str, Ladder]:
    """Build the ladder of each run of a file's workflows, by name; the phases are solved already."""
    out: dict[str, Ladder] = {}
    for chosen in (c for c in every if c.problem.program.workflow is not None):
        p = chosen.problem.program
        mine = [c for c in every if c.problem.program.workflow == p.workflow]
        at = mine.index(chosen)
        before = mine[at - 1] if at else None
        ahead = {c.problem.program.phase: c for c in mine[at + 1 :]}
        out[p.name] = _ladder(chosen, before, ahead, price_folding=p.phase == "throughput")
    return out


def _ladder(chosen: Chosen, before: Chosen | None, ahead: dict[str, Chosen], price_folding: bool) -> Ladder:
    p = chosen.problem.program
    env = chosen.environment(chosen.solution.rows[0].codes, chosen.solution.rows[0].prices)
    rank = chosen.compiled.ranks[0].rule
    blocks = (Block.LADDER,) if p.workflow else (Block.LADDER, Block.LADDER_ALONE)
    notes = [r for block in blocks for r in measured(chosen.problem, block, env)]
    steps = ((phase, ahead.get(phase)) for phase in AFTER[p.phase])
    settled = p.phase == "profile" and before is not None  # the layout is that of scale
    return Ladder(
        phase=p.phase,
        ranks_by=RanksBy(rank.id, rank.because, rank.cites),
        open=tuple(_axis(chosen, a) for a in axes.AXES if _is_open(chosen, a) and not settled),
        held=tuple(_axis(chosen, a) for a in axes.AXES if _is_held(chosen, a)),
        from_=evolve(_gain(before, chosen), phase=before.problem.program.phase) if before else None,
        next=tuple(_next(chosen, phase, c) for phase, c in steps),
        folding=_folding(chosen, price_folding and not env[LetName.SHARED_MESH]),
        notes=tuple(note(r, env) for r in notes),
    )


def _is_open(c: Chosen, axis: axes.Axis) -> bool:
    return len(c.problem.domains[axis.name]) > 1


def _is_held(c: Chosen, axis: axes.Axis) -> bool:
    """Whether the phase's candidates are a single value."""
    origin = c.problem.origins[axis.name]
    return not _is_open(c, axis) and isinstance(origin, Rule) and origin.kind == "candidates"


def _axis(c: Chosen, axis: axes.Axis) -> Opened:
    """The legal values of an axis, with the rule that lists them if one does."""
    origin = c.problem.origins[axis.name]
    rule = origin if isinstance(origin, Rule) else None
    return Opened(
        axis=axis.name,
        values=tuple(axis.decode(int(v)) for v in c.problem.domains[axis.name]),
        rule=rule.id if rule else None,
        because=rule.because if rule else "every value that the laws allow",
        cite=rule.cites if rule else (),
        advice=rule is not None,
    )


def _next(chosen: Chosen, phase: str, other: Chosen | None) -> NextPhase:
    """A later phase. Profiling changes nothing; `solved` is false if the phase has no layout."""
    if phase == "profile":
        other, opens = chosen, ()
    elif other is None or not other.solution.rows:
        return NextPhase(phase, (), solved=False)
    else:
        opens = tuple(_opened(chosen, other))
    g = _gain(chosen, other)
    return NextPhase(phase, opens, True, g.changes, g.step_time_s, g.peak_gib, g.speedup)


def _opened(now: Chosen, then: Chosen) -> Iterator[Opened]:
    """The axes to which the later phase adds values."""
    for axis in axes.AXES:
        have = {*map(int, now.problem.domains[axis.name])}
        added = [axis.decode(int(v)) for v in then.problem.domains[axis.name] if int(v) not in have]
        if added and not isinstance(now.problem.origins[axis.name], Pin):
            yield evolve(_axis(then, axis), values=tuple(added))


def _gain(a: Chosen, b: Chosen) -> Gain:
    """Compare the layouts of two phases: what changes, and the gain."""
    old, new = a.solution.rows[0], b.solution.rows[0]
    changes = {x.name: x.decode(new.codes[x.name]) for x in axes.AXES if old.codes[x.name] != new.codes[x.name]}
    speedup = old.step_time / new.step_time
    return Gain(changes=changes, step_time_s=new.step_time, peak_gib=new.peak_memory / GIB, speedup=speedup)


def _folding(chosen: Chosen, priced: bool) -> Folding:
    """Whether the meshes are folded, and the best layout with one shared mesh compared with the plan."""
    env = chosen.environment(chosen.solution.rows[0].codes, chosen.solution.rows[0].prices)
    if not priced:
        return Folding(not env[LetName.SHARED_MESH])
    let = next(r for r in chosen.problem.program.of("let") if r.name == LetName.SHARED_MESH)
    expr = ast.Name(let.name, let.span)
    law = Rule("run.shared_mesh", "require", let.name, expr, None, let.because, let.cites, let.span, wish=True)
    best = solve(
        evolve(chosen.problem.program, rules=(*chosen.problem.program.rules, law)), chosen.problem.gpus, keep=1
    )
    return Folding(not env[LetName.SHARED_MESH], _gain(chosen, best) if best.solution.rows else None)

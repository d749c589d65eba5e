"""The ladder: what a phase may change and by which rule, what the next phase adds, and its predicted gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.planner.walls import Note, measured
from moedsl.rules.check.program import Pin
from moedsl.rules.rule import Rule
from moedsl.rules.stdlib import Block, LetName
from moedsl.solver.solve import Chosen, plan_for, solve
from moedsl.support.json_form import ABSENT, Absent, JsonForm
from moedsl.support.text import wrapped


@frozen
class RanksBy(JsonForm):
    """The rule by which a phase ranks layouts."""

    rule: str
    because: str | None
    cite: tuple[str, ...]


@frozen
class Opened(JsonForm):
    """An axis and its values that a phase allows."""

    axis: str
    values: tuple[Any, ...]
    rule: str | None
    because: str | None
    cite: tuple[str, ...]
    advice: bool
    """Whether a rule narrows the values further than the laws do."""


@frozen(kw_only=True)
class Gain(JsonForm):
    """A layout compared with another layout."""

    phase: str | None = None
    """The earlier phase that the other layout is from, if any."""
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
    """Whether attention and experts have separate meshes."""

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
    """The gain of this phase over the phase before it."""
    next: tuple[NextPhase, ...]
    folding: Folding
    notes: tuple[Note, ...]


AFTER = {"fit": ("scale",), "scale": ("profile", "throughput"), "profile": ("throughput",), "throughput": ()}
"""For each phase, the phases after it, up to the first that may change the layout."""


def of_run(chosen: Chosen) -> Ladder:
    """Build the ladder of a run without a workflow; its next phase is solved here."""
    p, gpus = chosen.problem.program, chosen.problem.gpus
    phases = (phase for phase in AFTER[p.phase] if phase != "profile")
    ahead = {phase: plan_for(evolve(p, phase=phase, gpus=gpus), gpus, keep=1) for phase in phases}
    return _ladder(chosen, None, ahead, price_folding=True)


def of_workflow(every: Sequence[Chosen]) -> dict[str, Ladder]:
    """Build the ladder of each run in a workflow, by name; its phases are already solved."""
    out: dict[str, Ladder] = {}
    for chosen in every:
        if (p := chosen.problem.program).workflow is not None:
            mine = [c for c in every if c.problem.program.workflow == p.workflow]
            at = mine.index(chosen)
            ahead = {c.problem.program.phase: c for c in mine[at + 1 :]}
            out[p.name] = _ladder(chosen, mine[at - 1] if at else None, ahead, p.phase == "throughput")
    return out


def _ladder(chosen: Chosen, before: Chosen | None, ahead: dict[str, Chosen], price_folding: bool) -> Ladder:
    p, problem = chosen.problem.program, chosen.problem
    env = chosen.environment(chosen.solution.rows[0].codes, chosen.solution.rows[0].prices)
    rank, shared = chosen.compiled.ranks[0].rule, bool(env[LetName.SHARED_MESH])
    blocks = (Block.LADDER,) if p.workflow else (Block.LADDER, Block.LADDER_ALONE)
    settled = p.phase == "profile" and before is not None  # profiling keeps the layout of the scale phase
    several = [a for a in axes.AXES if len(problem.domains[a.name]) > 1]
    origins = ((a, problem.origins[a.name]) for a in axes.AXES if a not in several)
    held = [a for a, o in origins if isinstance(o, Rule) and o.kind == "candidates"]  # candidates of a single value
    shared_mesh: Gain | Absent | None = ABSENT
    if price_folding and not shared:
        # the best layout with one mesh for attention and experts
        let = next(r for r in p.of("let") if r.name == LetName.SHARED_MESH)
        expr = ast.Name(let.name, let.span)
        law = Rule("run.shared_mesh", "require", let.name, expr, None, let.because, let.cites, let.span, wish=True)
        best = solve(evolve(p, rules=(*p.rules, law)), problem.gpus, keep=1)
        shared_mesh = _gain(chosen, best) if best.solution.rows else None
    return Ladder(
        phase=p.phase,
        ranks_by=RanksBy(rank.id, rank.because, rank.cites),
        open=() if settled else tuple(_axis(chosen, a) for a in several),
        held=tuple(_axis(chosen, a) for a in held),
        from_=evolve(_gain(before, chosen), phase=before.problem.program.phase) if before else None,
        next=tuple(_next(chosen, phase, ahead.get(phase)) for phase in AFTER[p.phase]),
        folding=Folding(not shared, shared_mesh),
        notes=tuple(n for block in blocks for n in measured(p, block, env)),
    )


def _axis(c: Chosen, axis: axes.Axis) -> Opened:
    """Return the legal values of an axis, and the rule that lists them, if any."""
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


def _next(chosen: Chosen, phase: str, later: Chosen | None) -> NextPhase:
    """Describe a later phase and the axes to which it adds values; profiling changes nothing.

    `solved` is false if the phase has no layout."""
    opens: list[Opened] = []
    if phase == "profile":
        later = chosen
    elif later is None or not later.solution.rows:
        return NextPhase(phase, (), solved=False)
    for axis in axes.AXES:
        now = {*map(int, chosen.problem.domains[axis.name])}
        added = [axis.decode(int(v)) for v in later.problem.domains[axis.name] if int(v) not in now]
        if added and not isinstance(chosen.problem.origins[axis.name], Pin):
            opens.append(evolve(_axis(later, axis), values=tuple(added)))
    g = _gain(chosen, later)
    return NextPhase(phase, tuple(opens), True, g.changes, g.step_time_s, g.peak_gib, g.speedup)


def _gain(a: Chosen, b: Chosen) -> Gain:
    """Compare the layouts of two phases: what changes, and the gain."""
    old, new = a.solution.rows[0], b.solution.rows[0]
    speedup = old.step_time / new.step_time
    peak_gib = new.peak_memory / GIB
    return Gain(changes=new.changes(old.codes), step_time_s=new.step_time, peak_gib=peak_gib, speedup=speedup)


def text(ladder: Ladder) -> str:
    """Print what this phase may change, what the next phases would try, and the predicted gain."""
    what = ladder.ranks_by.because if ladder.open else "nothing to choose"
    lines = ["Ladder", wrapped(f"{_name(ladder.phase)}: {what}", "  ", "    ")]
    if ladder.from_:
        lines.append(f"  since {_name(ladder.from_.phase or '')}: {_gain_text(ladder.from_)}")
    for verb, opened in (("may change", ladder.open), ("holds", ladder.held)):
        by_reason: dict[str, list[str]] = {}
        for o in opened:  # print the values of an axis only if a rule lists them
            because = f"advice: {o.because}" if o.advice else o.because or ""
            axis = f"{o.axis} {_values(o)}" if o.advice else o.axis
            by_reason.setdefault(because, []).append(axis)
        for because, words in by_reason.items():
            lines.append(wrapped(f"{verb} {'; '.join(words)} ({because})", "    ", "      "))
    for step in ladder.next:
        if not step.solved:
            lines.append(f"  next {_name(step.phase)}: no layout fits")
        elif step.phase == "profile":
            lines.append("  next profile: this layout, unchanged, with the profiler on for a few steps")
        else:
            opens = "; ".join(f"{o.axis} {_values(o)}" for o in step.opens) or "nothing new"
            lines.append(wrapped(f"next {_name(step.phase)} may also try {opens}", "  ", "    "))
            lines.append(f"    predicted: {_gain_text(step)}")
    shared = ladder.folding.shared_mesh
    if shared is None:
        lines.append("  parallel folding: no layout with one mesh for attention and experts fits")
    elif shared is not ABSENT:
        slower = (1 / shared.speedup - 1) * 100
        lines.append(f"  parallel folding: one mesh for attention and experts would be {slower:+.1f}% step time")
    return "\n".join([*lines, *(wrapped(f"{n.says}: {n.because}", "  ", "    ") for n in ladder.notes)])


def _name(phase: str) -> str:
    return "retune (throughput first)" if phase == "throughput" else phase


def _values(entry: Opened) -> str:
    return ", ".join(map(axes.show, entry.values))


def _gain_text(step: Gain | NextPhase) -> str:
    changes = f" with {axes.pairs(step.changes)}" if step.changes else ", nothing changed"
    speed = f"{step.step_time_s or 0:.2f} s a step, {step.speedup or 0:.2f}x as fast"
    return f"{speed}, {step.peak_gib or 0:.1f} GiB{changes}"

"""The decisions of a plan: each value with its origin, its reason and its other values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.axes import json_value, show
from moedsl.facts.fields import path_of
from moedsl.planner.advice import against
from moedsl.planner.estimate import Known
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.evaluators import evaluate
from moedsl.rules.rule import Rule
from moedsl.solver import neighbours
from moedsl.solver.laws import Row
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.problem import first_of
from moedsl.solver.solve import Chosen
from moedsl.support.json_form import ABSENT, Absent, JsonForm


@frozen
class OtherValue(JsonForm):
    """Another value of an axis, and its effect on this layout."""

    value: Any
    effect: str
    step_time: float | None = None
    """Change of the step time as a share; absent if a law refuses the value."""


@frozen(kw_only=True)
class Decision(JsonForm):
    """One value of the plan and why it is so."""

    name: str
    value: Any
    origin: str
    """pinned, defaulted, derived or chosen."""
    rule: str | None
    because: str | None
    cite: tuple[str, ...]
    alternatives: tuple[OtherValue, ...]
    advice: bool | None = None
    """For an axis: whether the value comes from advice, not from a law or a pin."""
    among: str | Absent | None = ABSENT
    """For an axis: the rule that gives the advice."""
    effect: str
    """What changing the value affects: execution, experiment or benchmark."""

    @property
    def told(self) -> str:
        """The reason; for a pinned value, also what the run would choose without the pin."""
        free = [f"without the pin {show(a.value)}, {a.effect}" for a in self.alternatives if self.origin == "pinned"]
        return "; ".join([self.because or "", *free])


@frozen
class Allowed(JsonForm):
    """A rule that the run file suspends."""

    rule: str
    because: str | None


@frozen
class Measured(JsonForm):
    """A published result of a run like this one."""

    rule: str
    result: Any
    because: str | None
    cite: tuple[str, ...]


def build(chosen: Chosen, env: Mapping[str, Any], others: Mapping[str, tuple[OtherValue, ...]]) -> tuple[Decision, ...]:
    """List a decision for each axis, derived value, size, Bridge field and variable; `others` has other axis values."""
    p, effects = chosen.problem.program, chosen.problem.program.effects
    found = [_axis(chosen, a, json_value(env[a.name]), others[a.name]) for a in axes.AXES]
    for name in axes.DERIVED:
        let = next(r for r in p.of("let") if r.name == name)
        if any(r.wish and r.name == name for r in p.rules):
            found.append(_entry(name, json_value(env[name]), "pinned", "pinned by the run file"))
        else:
            found.append(_entry(name, json_value(env[name]), "derived", let.because, let))
    for name in ("seq", "global_batch", *(["pack"] if p.samples else [])):
        default = chosen.problem.defaults[name]
        origin, because = ("defaulted", default.because) if default else ("pinned", "stated by the run file")
        found.append(_entry(name, json_value(env[name]), origin, because, default))
    for rule in (r for kind in ("derive", "env") for r in applying(p, kind, env)):
        path = path_of(rule.name)
        if rule.kind == "derive" and path in p.sets:  # a `set` of the run overrides the rule
            found.append(_entry(rule.name, json_value(p.sets[path]), "pinned", "set by the run file"))
        else:
            found.append(_entry(rule.name, json_value(evaluate(rule.expr, env)), "derived", rule.because, rule))
    variables, derived = ({r.name for r in p.of(kind)} for kind in ("env", "derive"))
    for i, d in enumerate(found):
        field = f"env_vars.{d.name}" if d.name in variables else path_of(d.name) if d.name in derived else None
        found[i] = evolve(d, effect=effects.field(field) if field else effects.word(d.name, d.value))
    return tuple(found)


def applying(p: Program, kind: str, env: Mapping[str, Any]) -> list[Rule]:
    """Return the first rule that holds for each name, in the order of the files; skip names that the run sets."""
    names = dict.fromkeys(r.name for r in p.of(kind) if r.name not in p.sets)
    return [r for n in names if (r := first_of(p.named(kind, n), env)) is not None]


def _axis(chosen: Chosen, axis: axes.Axis, value: Any, others: tuple[OtherValue, ...]) -> Decision:
    problem, rank = chosen.problem, chosen.compiled.ranks[0].rule
    origin = problem.origins[axis.name]
    if isinstance(origin, Pin):
        varied = problem.program.isolate
        isolated = varied is not None and origin.span == varied.span
        because = "varied by `isolate`" if isolated else f"pinned by {origin.by}"
        found = _entry(axis.name, value, "pinned", because, others=others)
    elif len(problem.domains[axis.name]) > 1:
        # chosen by the phase's ranking; where that cannot tell, by how near a value is to layouts that have run
        code, preference = chosen.solution.rows[0].codes[axis.name], chosen.preference
        near = preference.reason(axis, code, rank.name) if preference else ""
        reasons = [near or f"best by {rank.name}", *(f"{show(a.value)} is {a.effect}" for a in others[:2])]
        found = _entry(axis.name, value, "chosen", "; ".join(reasons), rank, origin.cites if origin else (), others)
    elif origin is not None:
        found = _entry(axis.name, value, "defaulted", origin.because, origin, others=others)
    else:
        found = _entry(axis.name, value, "defaulted", "the only possible value")
    among = origin.id if isinstance(origin, Rule) and origin.kind in ("candidates", "default") else None
    return evolve(found, advice=among is not None, among=among)


def _entry(
    name: str, value: Any, origin: str, because: str | None, rule: Rule | None = None, cites: Sequence[str] = (),
    others: tuple[OtherValue, ...] = (),
) -> Decision:  # fmt: skip
    """Make a decision; its sources are its rule's sources, if there is a rule, and `cites`."""
    cite = tuple(dict.fromkeys([*(rule.cites if rule else ()), *cites]))
    return Decision(
        name=name, value=value, origin=origin, rule=rule and rule.id, because=because, cite=cite, alternatives=others,
        effect="",
    )  # fmt: skip


def other_values(
    chosen: Chosen, row: Row, near: Sequence[Neighbour], free: Mapping[str, Row], known: Known
) -> dict[str, tuple[OtherValue, ...]]:
    """Return each axis's other values with their effects.

    They are the values that the solver chose from, with all else unchanged. For a pinned axis in `free`, it is the
    value in the best layout without that pin."""
    found: dict[str, list[OtherValue]] = {a.name: [] for a in axes.AXES}
    for n in near:
        effect, longer = neighbours.effect(n, row), None
        if n.refused_by is None:
            longer = n.step_time / row.step_time - 1
            if longer < 0:  # say why the plan does not have this faster value
                farther = ", but farther from what has run" if chosen.preference else ""
                effect += neighbours.outranked(chosen.compiled, n, row) or farther
        found[n.axis].append(OtherValue(axes.BY_NAME[n.axis].decode(n.code), effect, longer))
    out = {axis: tuple(values) for axis, values in found.items()}
    for name, other in free.items():
        changes = other.changes(row.codes)
        value = changes.pop(name)
        rest = f", with {axes.pairs(changes)}" if changes else ""
        effect = against(other, row, known.is_close(other.codes)) + rest
        out[name] = (OtherValue(value, effect, other.step_time / row.step_time - 1),)
    return out

"""Why nothing fits: the smallest set of wishes and laws that collide, and what each single relaxation would open.

QuickXplain (Junker, AAAI 2004) over the user's statements, the candidates of the phase and the laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import evolve, frozen

from moedsl import axes
from moedsl.columns import names
from moedsl.counts import counts
from moedsl.diagnostics import Diagnostic, Label, error
from moedsl.ir import Program, Rule
from moedsl.explain.nearest import breaking, too_large, too_slow
from moedsl.printer import print_expr
from moedsl.solve import Solution, some_layout
from moedsl.source import Span
from moedsl.tables import Compiled

GIB = 2**30
LONG = 32768
"""Tokens from which the number of GPUs is said as what the length needs."""


class Chosen(Protocol):
    """What a solve returns, as far as it is read here."""

    compiled: Compiled
    solution: Solution


Solve = Callable[..., Any]


@frozen
class Member:
    """One thing that could give way: a pin, a wish, a phase's candidates, or a law."""

    kind: str
    """pin, wish, candidates or law."""
    key: str
    span: Span
    text: str
    rule: Rule | None = None

    @property
    def stated(self) -> bool:
        """Whether the run file says it."""
        return self.kind in ("pin", "wish")


def conflict(c: Compiled, cost: Any, solve: Solve) -> list[Diagnostic]:
    """The diagnostics of an infeasible program: one error, its contributing spans, its ways out."""
    p, gpus = c.problem.program, c.problem.gpus
    members = _members(c)
    legal = some_layout(c)
    if legal:
        background = [m for m in members if not m.stated and m.kind != "candidates"]
        soft = [m for m in members if m not in background]
        test = lambda active: _fits(p, gpus, members, background + active, solve)  # noqa: E731
    else:
        soft, background = members, []
        test = lambda active: _legal(p, gpus, members, active, solve)  # noqa: E731
    core = _quickxplain(soft, test)
    return [_diagnostic(c, cost, core, members, legal, solve)]


def _members(c: Compiled) -> list[Member]:
    """Laws on few axes first and wishes last: QuickXplain keeps the earlier ones where it can choose."""
    p = c.problem.program
    simple_first = sorted((law for law in c.laws if not law.rule.wish), key=lambda law: len(law.needs))
    laws = [Member("law", law.rule.id, law.rule.span, law.rule.because or "", law.rule) for law in simple_first]
    wishes = [Member("wish", law.rule.id, law.rule.span, "required here", law.rule) for law in c.laws if law.rule.wish]
    pins = [
        Member("pin", pin.axis, pin.span, f"{pin.axis}={_shown(pin.axis, pin.code)} pinned here")
        for pin in p.pins.values()
    ]
    narrowed = [
        (a, r)
        for a, r in c.problem.origins.items()
        if isinstance(r, Rule) and r.kind == "candidates" and len(c.problem.domains[a]) == 1
    ]
    # A phase that leaves one value may be what collides; a ladder of several is not worth naming.
    candidates = [Member("candidates", r.id + "." + a, r.span, f"{a} may be {_values(c, a)}", r) for a, r in narrowed]
    return [*laws, *candidates, *wishes, *pins]


def _shown(axis: str, code: int) -> str:
    value = axes.BY_NAME[axis].decode(code)
    return (
        f"[{', '.join(value)}]"
        if isinstance(value, list) and value
        else "none"
        if isinstance(value, list)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _values(c: Compiled, axis: str) -> str:
    return ", ".join(_shown(axis, int(v)) for v in c.problem.domains[axis])


def without(p: Program, dropped: Sequence[Member]) -> Program:
    """The program with some members gone."""
    pins = {a: pin for a, pin in p.pins.items() if a not in {m.key for m in dropped if m.kind == "pin"}}
    ids = {m.rule.id for m in dropped if m.rule is not None}
    return evolve(
        p, pins=pins, rules=tuple(r for r in p.rules if r.id not in ids or r.kind not in ("require", "candidates"))
    )


def _inactive(members: Sequence[Member], active: Sequence[Member]) -> list[Member]:
    keys = {(m.kind, m.key) for m in active}
    return [m for m in members if (m.kind, m.key) not in keys]


def _legal(p: Program, gpus: int, members: Sequence[Member], active: Sequence[Member], solve: Solve) -> bool:
    """Whether some layout obeys the active members, memory aside."""
    q = without(p, _inactive(members, active))
    return some_layout(solve(q, gpus, keep=0).compiled)


def _fits(p: Program, gpus: int, members: Sequence[Member], active: Sequence[Member], solve: Solve) -> bool:
    """Whether some layout obeys the active members and the laws on memory and time."""
    return bool(solve(without(p, _inactive(members, active)), gpus, keep=1).solution.rows)


def _quickxplain(soft: list[Member], test: Callable[[list[Member]], bool]) -> list[Member]:
    """A minimal subset of `soft` without which the test would pass; empty when it fails even without any."""
    if not test([]):
        return []
    return _explain([], [], soft, test)


def _explain(
    background: list[Member], delta: list[Member], soft: list[Member], test: Callable[[list[Member]], bool]
) -> list[Member]:
    if delta and not test(background):
        return []
    if len(soft) == 1:
        return soft
    half = len(soft) // 2
    first, second = soft[:half], soft[half:]
    late = _explain(background + first, first, second, test)
    early = _explain(background + late, late, first, test)
    return early + late


# ---------------------------------------------------------------- the diagnostic


def _diagnostic(
    c: Compiled, cost: Any, core: list[Member], members: list[Member], legal: bool, solve: Solve
) -> Diagnostic:
    laws = [m.rule for m in core if m.kind == "law" and m.rule is not None]
    help = tuple(_relaxations(c, core, members, solve))
    labels = _labels(c, core, laws)
    if legal:
        return _priced(c, core, labels, help, solve)
    p = c.problem.program
    pins = {m.key: p.pins[m.key].code for m in core if m.kind == "pin"}
    near = breaking(without(p, [m for m in core if m.stated]), c.problem.gpus, laws, cost, solve, pins)
    named = [*_wishes(p, core), *(m.key for m in core if m.kind in ("law", "candidates"))]
    verb = "collide" if len(named) > 1 else "cannot hold"
    message = f"no layout of {_where(c)} is legal: {', '.join(named)} {verb}{near.summary}"
    if not laws:
        return error("solve.conflict", message, *labels, help=help, values=near.values)
    return error(
        laws[0].id, message, *labels, help=help, because=laws[0].because, cites=laws[0].cites, values=near.values
    )


def _priced(c: Compiled, core: list[Member], labels: list[Label], help: tuple[str, ...], solve: Solve) -> Diagnostic:
    """Legal layouts exist, but each needs too much memory or, where a wish caps it, too much time."""
    p, gpus = c.problem.program, c.problem.gpus
    wishes = _wishes(p, core)
    within = f" with {', '.join(wishes)}" if wishes else ""
    if any(m.rule is not None and "step_time" in names(m.rule.expr) for m in core if m.kind == "wish"):
        near = too_slow(p, gpus, solve)
        return error(
            "solve.too_slow",
            f"no layout of {_where(c)} is as fast as wished{within}: {near.summary}",
            *labels,
            help=help,
            values=near.values,
        )
    near = too_large(p, gpus, solve)
    because = "no layout leaves the most loaded rank within the memory of its GPU"
    message = f"no layout of {_where(c)} fits{within or ' in memory'}: {near.summary}"
    return error("solve.does_not_fit", message, *labels, help=help, because=because, values=near.values)


def _labels(c: Compiled, core: list[Member], laws: list[Rule]) -> list[Label]:
    """Every span that contributes: the statements first, then where a law or a phase says so."""
    p = c.problem.program
    labels = [Label(m.span, m.text) for m in core if m.stated]
    if "pipeline_layout" in p.spans and any("has_layout" in print_expr(r.expr) for r in laws):
        labels.insert(0, Label(p.spans["pipeline_layout"], "the pipeline layout pinned here"))
    if "hardware" in p.spans:
        labels.insert(1 if labels else 0, Label(p.spans["hardware"], f"{c.problem.gpus} {p.hardware.name}"))
    labels += [Label(r.span, "required here") for r in laws]
    return labels + [Label(m.span, m.text) for m in core if m.kind == "candidates"]


def _where(c: Compiled) -> str:
    p = c.problem.program
    return f"{p.model.name} on {c.problem.gpus} {p.hardware.name}"


def _wishes(p: Program, core: list[Member]) -> list[str]:
    return [_wish_text(p, m) for m in core if m.stated]


def _wish_text(p: Program, m: Member) -> str:
    """What the user said, in a few words."""
    if m.kind == "pin":
        return f"{m.key}={_shown(m.key, p.pins[m.key].code)}"
    return f"`{print_expr(m.rule.expr)}`" if m.rule is not None else m.key


def _relaxations(c: Compiled, core: list[Member], members: list[Member], solve: Solve) -> list[str]:
    """What each single change would open, one line each."""
    p, gpus = c.problem.program, c.problem.gpus
    out: list[str] = []
    for m in core:
        if m.stated or m.kind == "candidates":
            out += _drop(p, gpus, m, solve)
    seq = c.problem.values["seq"]
    out += _more_gpus(p, gpus, seq, solve)
    out += _try(p, gpus, solve, f"seq {_tokens(seq // 2)}", seq=seq // 2) if seq >= 2048 else []
    return out or [
        "no single change opens a layout: relax two of the above, or name no number of GPUs to let the solver find one"
    ]


def _tokens(n: int) -> str:
    return f"{n // 1024}k" if n % 1024 == 0 else str(n)


def _drop(p: Program, gpus: int, m: Member, solve: Solve) -> list[str]:
    q = without(p, [m])
    found = solve(q, gpus, keep=3)
    if not found.solution.rows:
        return []
    best = found.solution.rows[0]
    if m.kind == "pin":
        values = dict.fromkeys(_shown(m.key, r.codes[m.key]) for r in found.solution.rows)
        others = f", or {', '.join([*values][1:])}" if len(values) > 1 else ""
        first = next(iter(values))
        statement, said = (f"{m.key} {first}", "it") if m.key in p.spans else (f"pin {m.key}={first}", "the pin")
        return [f"write `{statement}`{others}, or drop {said} ({found.solution.legal} layouts open)"]
    if m.kind == "wish":
        return [f"drop {_wish_text(p, m)} ({found.solution.legal} layouts open)"]
    axis = m.key.rsplit(".", 1)[1]
    return [f"pin {axis}={_shown(axis, best.codes[axis])}, which the phase leaves out"]


def _more_gpus(p: Program, gpus: int, seq: int, solve: Solve) -> list[str]:
    """The next number of GPUs that works, as where a run names none; at most 64 times as many."""
    long = f"; at {_tokens(seq)} this needs {{}} {p.hardware.name}" if seq >= LONG else ""
    for n in counts(p.hardware, above=gpus):
        found = _try(p, n, solve, f"{p.hardware.name} x {n}") if n <= 64 * gpus else []
        if found:
            return [text + long.format(n) for text in found]
    return []


def _try(p: Program, gpus: int, solve: Solve, what: str, **overrides: int) -> list[str]:
    found = solve(p, gpus, keep=1, **overrides).solution
    if not found.rows:
        return []
    best = found.rows[0].codes
    layout = " ".join(f"{n}={best[n]}" for n in ("tp", "cp", "pp", "ep") if best[n] > 1) or "no model parallelism"
    return [f"write `{what}`: {found.legal} layouts open, the best with {layout}"]

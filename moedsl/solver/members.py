"""The members of a conflict, which the user may change: pins, wishes, the candidates of a phase, laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Compiled
from moedsl.support.source import Span


@frozen
class Member:
    """One member of a possible conflict."""

    kind: str
    """pin, wish, candidates (or a default of the user's own rules) or law."""
    key: str
    span: Span
    text: str
    rule: Rule | None = None
    code: int = 0
    """The value of a pin."""

    @property
    def stated(self) -> bool:
        """Whether the run file states it."""
        return self.kind in ("pin", "wish")

    @property
    def own(self) -> bool:
        """Whether it is a law of the user, which can be changed like a wish."""
        return self.kind == "law" and self.rule is not None and not self.rule.is_std

    @property
    def gives_way(self) -> bool:
        """Whether the user can change it."""
        return self.stated or self.own


def members(c: Compiled) -> list[Member]:
    """All members, laws on few axes first and wishes last: QuickXplain prefers earlier ones in a conflict."""
    p = c.problem.program
    simple_first = sorted((law for law in c.laws if not law.rule.wish), key=lambda law: len(law.needs))
    laws = [Member("law", law.rule.id, law.rule.span, law.rule.because or "", law.rule) for law in simple_first]
    wishes = [Member("wish", law.rule.id, law.rule.span, "required here", law.rule) for law in c.laws if law.rule.wish]
    stated = [(pin.axis, pin.span, pin.code) for pin in p.pins.values()]
    if p.precision == "fp8" and "precision" not in p.pins:  # a pin whose value depends on the GPU
        stated.append(("precision", p.spans["precision"], int(c.problem.domains["precision"][0])))
    pins = [Member("pin", a, span, f"{a}={shown(a, code)} pinned here", code=code) for a, span, code in stated]
    narrowed = [
        (a, r)
        for a, r in c.problem.origins.items()
        if isinstance(r, Rule)
        and (r.kind == "candidates" or (r.kind == "default" and not r.is_std))
        and len(c.problem.domains[a]) == 1
    ]
    # Candidates with several values are not worth naming.
    candidates = [Member("candidates", r.id, r.span, f"{a} may be {_values(c, a)}", r) for a, r in narrowed]
    return [*laws, *candidates, *wishes, *pins]


def shown(axis: str, code: int) -> str:
    """Write a value as in the run file."""
    return written(axes.BY_NAME[axis].decode(code))


def written(value: object) -> str:
    """Write a value of a plan as in the run file; a set of one word is that word."""
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else axes.written(value)


def _values(c: Compiled, axis: str) -> str:
    return ", ".join(shown(axis, int(v)) for v in c.problem.domains[axis])


def without(p: Program, dropped: Sequence[Member]) -> Program:
    """Remove some members from a program."""
    pins = {a: pin for a, pin in p.pins.items() if a not in {m.key for m in dropped if m.kind == "pin"}}
    gone = {(m.rule.id, m.rule.kind) for m in dropped if m.rule is not None}
    kept = (r for r in p.rules if (r.id, r.kind) not in gone)
    rules = p.rules.with_same_lets(kept) if gone else p.rules
    precision = "" if any(m.kind == "pin" and m.key == "precision" for m in dropped) else p.precision
    return evolve(p, pins=pins, rules=rules, precision=precision)


def inactive(all_: Sequence[Member], active: Sequence[Member]) -> list[Member]:
    """The members that are not active."""
    keys = {(m.kind, m.key) for m in active}
    return [m for m in all_ if (m.kind, m.key) not in keys]


def wish_text(m: Member) -> str:
    """Write a wish of the user in a few words."""
    if m.kind == "pin":
        return f"{m.key}={shown(m.key, m.code)}"
    if m.own:
        return m.key
    return f"`{print_expr(m.rule.expr)}`" if m.rule is not None else m.key


def as_json(m: Member) -> dict[str, Any]:
    """Write a member as JSON, as explanations show it, without its place."""
    rule = {"because": m.rule.because, "cite": [*m.rule.cites], "text": print_expr(m.rule.expr)} if m.rule else {}
    name = wish_text(m) if m.stated else m.key
    return {"kind": m.kind, "name": name, "because": None, "cite": [], "text": m.text, **rule}

"""The members of a conflict: what a user could change when no layout is legal or fits.

Members are pins, wishes, the candidates of a phase and laws; `minimal` reduces a conflicting set of them to a minimal
one with QuickXplain (Junker, AAAI 2004). A stated sequence length or batch is a member if the conflict reads it; then
`nearby` gives near values that may work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.symbols import HARDWARE
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Compiled, closure
from moedsl.solver.problem import divisors
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
    def is_negotiable(self) -> bool:
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


MOST = 24
"""The most sizes that are tried, the nearest first."""
_WORDS = {"seq": "seq", "global_batch": "batch"}


@frozen
class Size:
    """A size: `name` in rules, keyword `word` of the statement at `span`, `value` in tokens or sequences."""

    name: str
    word: str
    value: int
    span: Span

    @property
    def text(self) -> str:
        """Write the statement."""
        return f"{self.word} {self.value}"


def read_by(p: Program, core: Sequence[Member]) -> frozenset[str]:
    """Every name that the rules of a conflict read, directly or through lets."""
    used = frozenset[str]().union(*(m.rule.reads for m in core if m.rule is not None))
    return closure(used, p.of("let"))


def reads_hardware(p: Program, core: Sequence[Member]) -> bool:
    """Whether a conflict reads the number of GPUs or a fact of the hardware."""
    return bool(read_by(p, core) & {"gpus", *HARDWARE})


def sizes(p: Program, core: Sequence[Member]) -> list[Size]:
    """The sizes that the run states and a conflict reads."""
    read = read_by(p, core)
    values = {"seq": p.seq, "global_batch": p.batch or 0}
    stated = {n: p.spans[w] for n, w in _WORDS.items() if w in p.spans}
    return [Size(n, _WORDS[n], values[n], span) for n, span in stated.items() if n in read]


def nearby(c: Compiled, s: Size) -> list[int]:
    """Near sizes that meshes can divide, the nearest first; of two as near, the larger first."""
    p = c.problem.program
    held = prod(pin.code for a, pin in p.pins.items() if a == "micro_batch" or axes.BY_NAME[a].mesh == "attention")
    units = {u * k for d in divisors(c.problem.gpus) for u in (d, d * held) for k in (1, 2)}
    around = {n for u in units for n in (s.value // u * u, -(-s.value // u) * u)} - {0, s.value}
    return sorted(around, key=lambda n: (abs(n - s.value), -n))[:MOST]


T = TypeVar("T")


def minimal(soft: list[T], test: Callable[[list[T]], bool]) -> list[T]:
    """A minimal subset of `soft`, which fails the test; empty if the test fails even without any.

    What passes with some members passes without them, so nothing at all is tested only if no part of `soft` passed.
    """
    passed = False

    def passes(active: list[T]) -> bool:
        nonlocal passed
        found = test(active)
        passed |= found
        return found

    core = _explain([], [], soft, passes) if soft else []
    return core if core and (passed or test([])) else []


def _explain(background: list[T], delta: list[T], soft: list[T], test: Callable[[list[T]], bool]) -> list[T]:
    if delta and not test(background):
        return []
    if len(soft) == 1:
        return soft
    half = len(soft) // 2
    first, second = soft[:half], soft[half:]
    late = _explain(background + first, first, second, test)
    early = _explain(background + late, late, first, test)
    return early + late

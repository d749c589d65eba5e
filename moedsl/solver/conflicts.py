"""Find conflicts: sets of what a user could change, and of laws, with which no layout is legal or fits.

Members of a conflict are pins, wishes, the candidates of a phase and laws; `minimal` reduces a conflicting set of them
to a minimal one with QuickXplain (Junker, AAAI 2004). A stated sequence length or batch belongs to a conflict that
reads it; then `nearby` gives nearby values that may work.

`Legality` decides, without prices, whether any layout obeys a subset of the members; one conflict needs dozens of such
answers. Laws that share no open axis cannot collide, so laws are grouped by shared axes, and each group is searched
over its own axes. The laws are compiled once; a subset only selects laws and widens domains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.facts import axes
from moedsl.facts.axes import BY_NAME, MEMORY_POLICIES, MESH, TRANSPORT_POLICIES
from moedsl.facts.symbols import HARDWARE
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Compiled, Law, Table, allowed, broken, closure, obeying
from moedsl.solver.problem import divisors, lower
from moedsl.support import limits
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
    """The code of a pin."""

    @property
    def stated(self) -> bool:
        """Whether the run file states the member."""
        return self.kind in ("pin", "wish")

    @property
    def own(self) -> bool:
        """Whether the member is a law of the user, which can be changed like a wish."""
        return self.kind == "law" and self.rule is not None and not self.rule.is_std

    @property
    def is_negotiable(self) -> bool:
        """Whether the user can change the member."""
        return self.stated or self.own


def members(c: Compiled) -> list[Member]:
    """Return all members, laws on few axes first and wishes last, because QuickXplain prefers earlier ones in a
    conflict."""
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
    only = {a: shown(a, int(c.problem.domains[a][0])) for a, _ in narrowed}
    candidates = [Member("candidates", r.id, r.span, f"{a} may be {only[a]}", r) for a, r in narrowed]
    return [*laws, *candidates, *wishes, *pins]


def shown(axis: str, code: int) -> str:
    """Format the code of an axis as in the run file."""
    return written(axes.BY_NAME[axis].decode(code))


def written(value: object) -> str:
    """Format a value of a plan as in the run file; a set of one word is that word."""
    return str(value[0]) if isinstance(value, list) and len(value) == 1 else axes.written(value)


def without(p: Program, dropped: Sequence[Member]) -> Program:
    """Return a program without some members."""
    pins = {a: pin for a, pin in p.pins.items() if a not in {m.key for m in dropped if m.kind == "pin"}}
    gone = {(m.rule.id, m.rule.kind) for m in dropped if m.rule is not None}
    kept = (r for r in p.rules if (r.id, r.kind) not in gone)
    rules = p.rules.with_same_lets(kept) if gone else p.rules
    precision = "" if any(m.kind == "pin" and m.key == "precision" for m in dropped) else p.precision
    return evolve(p, pins=pins, rules=rules, precision=precision)


def inactive(all_: Sequence[Member], active: Sequence[Member]) -> list[Member]:
    """Return the members that are not active."""
    keys = {(m.kind, m.key) for m in active}
    return [m for m in all_ if (m.kind, m.key) not in keys]


def wish_text(m: Member) -> str:
    """Format a wish of the user in a few words."""
    if m.kind == "pin":
        return f"{m.key}={shown(m.key, m.code)}"
    if m.own:
        return m.key
    return f"`{print_expr(m.rule.expr)}`" if m.rule is not None else m.key


def as_json(m: Member) -> dict[str, Any]:
    """Return a member as JSON, as explanations show it, without its location."""
    rule = {"because": m.rule.because, "cite": [*m.rule.cites], "text": print_expr(m.rule.expr)} if m.rule else {}
    name = wish_text(m) if m.stated else m.key
    return {"kind": m.kind, "name": name, "because": None, "cite": [], "text": m.text, **rule}


MOST = 24
"""Maximum number of sizes to try, the nearest first."""
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
        """Format the statement."""
        return f"{self.word} {self.value}"


def read_by(p: Program, core: Sequence[Member]) -> frozenset[str]:
    """Return every name that the rules of a conflict read, directly or through lets."""
    used = frozenset[str]().union(*(m.rule.reads for m in core if m.rule is not None))
    return closure(used, p.of("let"))


def reads_hardware(p: Program, core: Sequence[Member]) -> bool:
    """Whether a conflict reads the number of GPUs or a fact of the hardware."""
    return bool(read_by(p, core) & {"gpus", *HARDWARE})


def sizes(p: Program, core: Sequence[Member]) -> list[Size]:
    """Return the sizes that the run states and a conflict reads."""
    read = read_by(p, core)
    values = {"seq": p.seq, "global_batch": p.batch or 0}
    stated = {n: p.spans[w] for n, w in _WORDS.items() if w in p.spans}
    return [Size(n, _WORDS[n], values[n], span) for n, span in stated.items() if n in read]


def nearby(c: Compiled, s: Size) -> list[int]:
    """Return nearby sizes that meshes can divide, the nearest first; of two equally near, the larger first."""
    p = c.problem.program
    held = prod(pin.code for a, pin in p.pins.items() if a == "micro_batch" or axes.BY_NAME[a].mesh == "attention")
    units = {u * k for d in divisors(c.problem.gpus) for u in (d, d * held) for k in (1, 2)}
    around = {n for u in units for n in (s.value // u * u, -(-s.value // u) * u)} - {0, s.value}
    return sorted(around, key=lambda n: (abs(n - s.value), -n))[:MOST]


T = TypeVar("T")


def minimal(soft: list[T], test: Callable[[list[T]], bool]) -> list[T]:
    """Return a minimal subset of `soft` that fails the test; empty if the test fails even with no members.

    `soft` itself must fail. A subset of members that pass passes too, so no members are tested only if nothing else
    passed.
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


CHUNKS = (64, 4096, 65_536)
"""Rows of the first, second and later chunks; the first are small because most searches find a layout early."""
Domains = Mapping[str, NDArray[np.int64]]


class Legality:
    """Decides whether subsets of the members of a compiled problem can hold together."""

    def __init__(self, c: Compiled, all_: Sequence[Member]) -> None:
        self._c, self._all = c, all_
        self._seen: dict[frozenset[tuple[str, str]], Domains] = {}

    def holds(self, active: Sequence[Member]) -> bool:
        """Whether some layout obeys the active members."""
        gone = inactive(self._all, active)
        ids = {m.key for m in gone if m.kind in ("law", "wish")}
        laws = [w for w in self._c.laws if not w.priced and w.rule.id not in ids]
        opened = [m for m in gone if m.kind in ("pin", "candidates")]  # only these narrow domains
        key = frozenset((m.kind, m.key) for m in opened)
        if key not in self._seen:
            self._seen[key] = domains_without(self._c, opened)
        return satisfiable(self._c, self._seen[key], laws)


def domains_without(c: Compiled, gone: Sequence[Member]) -> Domains:
    """Return the domains of the axes without some pins and candidates; sequence length and global batch stay."""
    p = c.problem
    held = {n: p.values[n] for n in ("seq", "global_batch")}
    return lower(without(p.program, gone), p.gpus, held).domains


def satisfiable(c: Compiled, domains: Domains, laws: Sequence[Law]) -> bool:
    """Whether some values of the domains obey the laws; laws on policies only are tried first, because they have few
    values."""
    single = {a: int(d[0]) for a, d in domains.items() if len(d) == 1}
    table = Table({}, {**c.problem.codes, **single}, c.lets)
    opened = [(law, law.needs - single.keys()) for law in laws]
    alone = [(law, needs) for law, needs in opened if needs.isdisjoint(MESH)]

    def some(groups: Iterable[Group]) -> bool:
        return all(_some(table, domains, sorted(open_, key=_ORDER.index), group) for open_, group in groups)

    return some(_groups(alone)) and some(g for g in _groups(opened) if not g[0].isdisjoint(MESH))


_ORDER = (*sorted(MESH, key=lambda a: BY_NAME[a].mesh == "experts"), *MEMORY_POLICIES, *TRANSPORT_POLICIES)
"""The order of the search: the mesh of attention with its batch, then the mesh of experts, which few laws join with it,
then policies."""


Open = tuple[Law, frozenset[str]]
"""A law, and the axes with several values that it reads."""
Group = tuple[frozenset[str], list[Open]]
"""Laws that share open axes, and those axes."""


def _groups(laws: Sequence[Open]) -> list[Group]:
    """Group laws that share open axes."""
    out: list[Group] = []
    for law in laws:
        joined = [g for g in out if g[0] & law[1]]
        out = [g for g in out if not g[0] & law[1]]
        out.append((law[1].union(*(g[0] for g in joined)), [law, *(w for g in joined for w in g[1])]))
    return sorted(out, key=lambda g: len(g[0]))


def _some(table: Table, domains: Domains, open_: list[str], laws: list[Open]) -> bool:
    """Whether some values of the axes obey the laws, searched depth first: each law is checked once its axes are bound.

    An axis is dropped after the last law that reads it, so rows that differ only there are searched once.
    """
    own = {a: [law for law, needs in laws if needs == {a}] for a in open_}
    left = {a: allowed(table, a, np.sort(domains[a]), own[a]) for a in open_}
    joint = [(law, needs) for law, needs in laws if len(needs) > 1]

    def extend(t: Table, at: int, turn: int) -> bool:
        limits.go_on()
        if at == len(open_):
            return bool(t.rows)
        t = t.grow(open_[at], left[open_[at]])
        bound, before = frozenset(open_[: at + 1]), frozenset(open_[:at])
        t = obeying(t, [law for law, needs in joint if needs <= bound and not needs <= before])
        left_to_read = frozenset[str]().union(*(needs for _, needs in joint if not needs <= bound))
        t, start = t.distinct(left_to_read), 0
        while start < t.rows:
            size = CHUNKS[min(turn, len(CHUNKS) - 1)]
            if extend(t.take(np.arange(start, min(start + size, t.rows))), at + 1, turn):
                return True
            start, turn = start + size, turn + 1
        return False

    return not broken([law for law, needs in laws if not needs], table) and extend(table, 0, 0)


def legal_on(c: Compiled) -> bool:
    """Whether a problem has any legal layout."""
    return satisfiable(c, c.problem.domains, [w for w in c.laws if not w.priced])


def relaxed(c: Compiled, gone: Sequence[Member]) -> Compiled:
    """Return a compiled problem without some of its members."""
    dropped = frozenset(m.key for m in gone if m.kind in ("law", "wish"))
    problem = evolve(c.problem, domains=domains_without(c, gone))
    return evolve(c, problem=problem, laws=tuple(w for w in c.laws if w.rule.id not in dropped))

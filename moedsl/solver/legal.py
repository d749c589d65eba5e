"""Decide whether any layout obeys a subset of the members, without prices. One conflict needs dozens of such answers.

Laws that share no open axis cannot collide. So laws are grouped by shared axes, and each group is searched over its own
axes. The laws are compiled once; a subset only selects laws and widens domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from moedsl.facts.axes import BY_NAME, MEMORY_POLICIES, MESH, TRANSPORT_POLICIES
from moedsl.solver.laws import Compiled, Law, allowed, broken, obeying
from moedsl.solver.members import Member, inactive, without
from moedsl.solver.problem import lower
from moedsl.solver.table import Table
from moedsl.support import limits

CHUNKS = (64, 4096, 65_536)
"""Rows of the first, second and later chunks: most searches find a layout early or the space is small."""
Domains = Mapping[str, NDArray[np.int64]]


class Legality:
    """Answers whether subsets of the members of a compiled problem can hold together."""

    def __init__(self, c: Compiled, all_: Sequence[Member]) -> None:
        self._c, self._all = c, all_
        self._seen: dict[frozenset[tuple[str, str]], Domains] = {}

    def holds(self, active: Sequence[Member]) -> bool:
        """Whether some layout obeys the active members."""
        gone = inactive(self._all, active)
        ids = {m.key for m in gone if m.kind in ("law", "wish")}
        laws = [w for w in self._c.laws if not w.priced and w.rule.id not in ids]
        return satisfiable(self._c, self._domains(gone), laws)

    def _domains(self, gone: Sequence[Member]) -> Domains:
        """The domains of the axes without some members; only pins and candidates narrow domains."""
        opened = [m for m in gone if m.kind in ("pin", "candidates")]
        key = frozenset((m.kind, m.key) for m in opened)
        if key not in self._seen:
            self._seen[key] = domains_without(self._c, opened)
        return self._seen[key]


def domains_without(c: Compiled, gone: Sequence[Member]) -> Domains:
    """The domains of the axes without some pins and candidates; the experiment stays the same."""
    p = c.problem
    held = {n: p.values[n] for n in ("seq", "global_batch")}
    return lower(without(p.program, gone), p.gpus, held).domains


def satisfiable(c: Compiled, domains: Domains, laws: Sequence[Law]) -> bool:
    """Whether some values of the domains obey the laws; first those on policies alone, which are few to try."""
    single = {a: int(d[0]) for a, d in domains.items() if len(d) == 1}
    table = Table({}, {**c.problem.codes, **single}, c.lets)
    opened = [(law, law.needs - single.keys()) for law in laws]
    alone = [(law, needs) for law, needs in opened if needs.isdisjoint(MESH)]

    def some(groups: Iterable[Group]) -> bool:
        return all(_some(table, domains, sorted(open_, key=_ORDER.index), group) for open_, group in groups)

    return some(_groups(alone)) and some(g for g in _groups(opened) if not g[0].isdisjoint(MESH))


_ORDER = (*sorted(MESH, key=lambda a: BY_NAME[a].mesh == "experts"), *MEMORY_POLICIES, *TRANSPORT_POLICIES)
"""The mesh of attention with its batch before that of the experts, which few laws join with it."""


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
    """Search depth first: every axis in turn, each law as soon as its axes are bound.

    An axis is dropped after the last law that reads it, so the rows that differ only there are searched once.
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
    """Whether a problem has any legal layout at all."""
    return satisfiable(c, c.problem.domains, [w for w in c.laws if not w.priced])


def relaxed(c: Compiled, gone: Sequence[Member]) -> Compiled:
    """A compiled problem without some of its members."""
    dropped = frozenset(m.key for m in gone if m.kind in ("law", "wish"))
    problem = evolve(c.problem, domains=domains_without(c, gone))
    return evolve(c, problem=problem, laws=tuple(w for w in c.laws if w.rule.id not in dropped))

"""Find the names that a rule reads, directly or through the lets of a run."""

from __future__ import annotations

from collections.abc import Iterable

from moedsl.facts.symbols import COSTS, SAVES
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.rules.vectorizer import names


def reads(p: Program, r: Rule) -> frozenset[str]:
    """Every name that a rule of a program reads."""
    return closure(r.reads, p.of("let"))


def reads_price(r: Rule, lets: Iterable[Rule]) -> bool:
    """Whether a rule reads a price, or what follows from one."""
    return bool(closure(r.reads, lets) & (COSTS.keys() | SAVES.keys()))


def closure(used: Iterable[str], lets: Iterable[Rule]) -> frozenset[str]:
    """Add to names all that the lets among them read."""
    exprs = {r.name: r.expr for r in lets}
    todo, seen = [*used], set[str]()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += names(exprs[name]) if name in exprs else ()
    return frozenset(seen)

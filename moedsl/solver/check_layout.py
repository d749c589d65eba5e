"""Which laws a fully pinned run breaks, by the slow evaluator: the judge of a known layout, no search and no price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moedsl.checker.program import Program
from moedsl.rules.rule import Rule
from moedsl.rules.vectorizer import names
from moedsl.schema import axes
from moedsl.schema.symbols import COSTS
from moedsl.solver.lower import lower
from moedsl.solver.problem import Problem
from moedsl.solver.solve import environment, make_cost


def violations(program: Program, gpus: int) -> tuple[Rule, ...]:
    """The laws that the one layout of a fully pinned program breaks, in the order of the rules, but those it allows.

    Laws on memory and time are left out: they need prices. Raises ValueError where an axis is open.
    """
    problem = lower(program, gpus)
    env = environment(problem, make_cost(problem), pinned_row(problem))
    laws = [r for r in program.of("require") if r.id not in program.allows and not is_priced(r, program)]
    return tuple(r for r in laws if not r.holds(env))


def pinned_row(problem: Problem) -> Mapping[str, int]:
    """The code of every axis; raises ValueError where one may take several."""
    open_axes = [a.name for a in axes.AXES if len(problem.domains[a.name]) != 1]
    if open_axes:
        raise ValueError(f"not pinned: {', '.join(open_axes)}")
    return {a.name: int(problem.domains[a.name][0]) for a in axes.AXES}


def is_priced(rule: Rule, program: Program) -> bool:
    """Whether a rule reads a price, directly or through a let."""
    return reads_price(rule, program.of("let"))


def reads_price(rule: Rule, known: Iterable[Rule]) -> bool:
    """Whether a rule reads a price, directly or through one of the lets that are known."""
    lets = {r.name: r for r in known}
    used, todo = set[str](), [rule.expr, *([rule.when] if rule.when else [])]
    while todo:
        new = names(todo.pop()) - used
        used |= new
        todo += [lets[n].expr for n in new & lets.keys()]
    return bool(used & COSTS.keys())

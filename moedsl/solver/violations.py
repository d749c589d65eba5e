"""Find the laws that a fully pinned run breaks, with the scalar evaluator, without search or prices."""

from __future__ import annotations

from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.problem import lower, pinned_row
from moedsl.solver.reads import reads_price
from moedsl.solver.solve import environment, make_cost


def violations(program: Program, gpus: int) -> tuple[Rule, ...]:
    """The laws that the layout of a fully pinned program breaks, in the order of the rules, except those it allows.

    Laws on memory and time are left out because they need prices. Raises ValueError if an axis is open.
    """
    problem = lower(program, gpus)
    env = environment(problem, make_cost(problem), pinned_row(problem))
    laws = [r for r in program.of("require") if r.id not in program.allows and not reads_price(r, program.of("let"))]
    return tuple(r for r in laws if not r.holds(env))

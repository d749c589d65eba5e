"""What makes a run's speed no proxy for another's, as notes: the stdlib's rules say when and why."""

from __future__ import annotations

from moedsl.diagnostics.model import Diagnostic, note
from moedsl.rules.ids import RuleId
from moedsl.rules.interpreter import holds
from moedsl.solver.problem import Problem
from moedsl.syntax import ast

RULES = (RuleId.MOCK_DATA,)
"""`measured` members whose condition the run alone decides."""


def no_proxy(problem: Problem) -> list[Diagnostic]:
    """A note for each rule of RULES whose condition the run meets."""
    p = problem.program
    rules = (r for r in p.of("measured") if r.id in RULES and holds(r.when, problem.values))
    where = p.spans.get("data") or p.spans.get("vlm") or p.spans.get("model") or p.spans["hardware"]
    return [
        note("plan.no_proxy", r.expr.value, where, help='name real images: `data "path"`')
        for r in rules
        if isinstance(r.expr, ast.String)
    ]

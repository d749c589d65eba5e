"""Price every advice: the cost of following it, or the gain from dropping it if it is followed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.planner.notes.advice import unanswered
from moedsl.queries.explain.alternatives import prices
from moedsl.queries.explain.context import Context, Json
from moedsl.rules.interpreter import evaluate
from moedsl.solver.laws import Law, broken
from moedsl.solver.question import Answer, Question

PRICED = ("followed", "not followed")
"""The states of an advice that has a price."""


def questions(b: Context, laws: Iterable[Law]) -> list[Question]:
    """Ask for the layouts that price some advice."""
    states = [(law, _state(b, law)) for law in laws]
    return [_variant(law, state) for law, state in states if state in PRICED]


def priced(b: Context, laws: Iterable[Law], answers: Sequence[Answer]) -> list[Json]:
    """Price each advice by the answers to its `questions`."""
    states, left = [(law, _state(b, law)) for law in laws], iter(answers)
    return [_entry(b, law, state, next(left) if state in PRICED else None) for law, state in states]


def _state(b: Context, law: Law) -> str:
    """The state of an advice. Advice that is not applicable or independent of the layout has no price."""
    if not law.rule.holds(b.env):
        return "not followed" if law.needs else "independent of the layout"
    return "followed" if law.needs and law.rule.applies(b.env) and not _vacuous(b, law) else "not applicable"


def _vacuous(b: Context, law: Law) -> bool:
    """Whether `a => b` holds because `a` does not."""
    e = law.rule.expr
    return isinstance(e, ast.Binary) and e.op == "=>" and not evaluate(e.left, b.env)


def _variant(law: Law, state: str) -> Question:
    return Question(law=law) if state == "not followed" else Question(dropped=law.rule.id)


def _entry(b: Context, law: Law, state: str, f: Answer | None) -> Json:
    r = law.rule
    entry = {**b.cited(r), "text": print_expr(r.expr), "worth": r.worth, "wish": r.wish, "state": state}
    if f is None:
        return {**entry, "price": None}
    if f.row is None:
        return {**entry, "price": {"layout": None, "because": unanswered(law, b.program)}}
    # a layout that follows it too was there with it: the plan left it for one nearer to what has run
    row = b.row if state == "followed" and not broken([law], b.compiled.at(f.row)) else f.row
    return {**entry, "price": {"changes": row.changes(b.row.codes), **prices(b, row.step_time, row.peak_memory)}}

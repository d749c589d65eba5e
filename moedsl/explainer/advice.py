"""The price of every advice: what following costs where it is not followed, what dropping it gains where it is."""

from __future__ import annotations

from collections.abc import Iterable

from moedsl.explainer.alternatives import prices
from moedsl.explainer.context import Context, Json
from moedsl.rules.interpreter import evaluate
from moedsl.solver.laws import Law
from moedsl.solver.question import Answer, Question
from moedsl.syntax import ast
from moedsl.syntax.printer import print_expr


def priced(b: Context, laws: Iterable[Law]) -> list[Json]:
    """Each advice with its price, one search for all of them."""
    asked = [(law, _state(b, law)) for law in laws]
    variants = [_variant(law, state) for law, state in asked if state in ("followed", "not followed")]
    found = iter(b.answers(variants) if variants else [])
    return [_entry(b, w, s, next(found) if s in ("followed", "not followed") else None) for w, s in asked]


def _state(b: Context, law: Law) -> str:
    """Advice whose condition does not hold here, and advice that no layout decides, have no price."""
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
        return {**entry, "price": {"layout": None}}
    return {**entry, "price": {"changes": f.row.changes(b.row.codes), **prices(b, f.row.step_time, f.row.peak_memory)}}

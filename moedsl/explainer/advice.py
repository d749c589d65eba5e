"""The price of every advice: what following costs where it is not followed, what dropping it gains where it is."""

from __future__ import annotations

from collections.abc import Iterable

from moedsl.explainer.alternatives import changes, prices
from moedsl.rules.interpreter import evaluate, holds
from moedsl.solver.base import Base, Json
from moedsl.solver.table import Law
from moedsl.solver.variant import Found, Variant
from moedsl.syntax import ast
from moedsl.syntax.printer import print_expr


def priced(b: Base, laws: Iterable[Law]) -> list[Json]:
    """Each advice with its price, one search for all of them."""
    asked = [(law, _state(b, law)) for law in laws]
    variants = [_variant(law, state) for law, state in asked if state in ("followed", "not followed")]
    found = iter(b.answers(variants) if variants else [])
    return [_entry(b, w, s, next(found) if s in ("followed", "not followed") else None) for w, s in asked]


def _state(b: Base, law: Law) -> str:
    """Advice whose condition does not hold here, and advice that no layout decides, have no price."""
    applies = holds(law.rule.when, b.env, b.functions)
    applies = applies and not _vacuous(b, law)
    held = applies and holds(law.rule.expr, b.env, b.functions)
    if not law.needs:
        return "not for the layout to decide" if applies and not held else "no case here"
    return "not followed" if applies and not held else "followed" if applies else "no case here"


def _vacuous(b: Base, law: Law) -> bool:
    """Whether `a => b` holds because `a` does not."""
    e = law.rule.expr
    return isinstance(e, ast.Binary) and e.op == "=>" and not evaluate(e.left, b.env, b.functions)


def _variant(law: Law, state: str) -> Variant:
    return Variant(law=law) if state == "not followed" else Variant(dropped=law.rule.id)


def _entry(b: Base, law: Law, state: str, f: Found | None) -> Json:
    r = law.rule
    entry = {**b.cited(r), "text": print_expr(r.expr), "worth": r.worth, "wish": r.wish, "state": state}
    if f is None:
        return {**entry, "price": None}
    if f.row is None:
        return {**entry, "price": {"layout": None}}
    return {**entry, "price": {"changes": changes(b, f.row), **prices(b, f.row.step_time, f.row.peak_memory)}}

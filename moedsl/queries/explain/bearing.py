"""Find the rules that read a name, with the values of their parts and the alternatives that they refuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moedsl.facts.axes import json_value, named_value
from moedsl.facts.symbols import COSTS
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.queries.explain.context import Context, Json
from moedsl.rules.interpreter import evaluate
from moedsl.rules.rule import Rule
from moedsl.rules.vectorizer import names
from moedsl.solver.laws import closure, reads

_KINDS = ("require", "prefer")


def rules(b: Context, name: str, refused: Mapping[str, list[Any]]) -> list[Json]:
    """Laws, advice and the ranking that read a name; `refused` lists the alternatives that each rule refuses."""
    judged = [_rule(b, r, name, refused.get(r.id, [])) for r in _judging(b, name, refused)]
    return [*judged, *_rank(b, name)]


def _judging(b: Context, name: str, refused: Mapping[str, list[Any]]) -> Iterable[Rule]:
    """Rules that apply to this layout or refuse an alternative; rules that the run allows are included."""
    for r in b.program.rules:
        if r.kind not in _KINDS or name not in reads(b.program, r) | priced(b, r):
            continue
        if r.id in refused or r.applies(b.env):
            yield r


def priced(b: Context, r: Rule) -> frozenset[str]:
    """The axes that a rule reads through prices: all of them, if it reads a price."""
    return frozenset(b.row.codes) if reads(b.program, r) & COSTS.keys() else frozenset()


def _rule(b: Context, r: Rule, name: str, against: list[Any]) -> Json:
    return {
        **b.cited(r),
        "text": print_expr(r.expr),
        "applies": r.applies(b.env),
        "holds": r.holds(b.env),
        "allowed": r.id in b.program.allows,
        "wish": r.wish,
        "values": values(b, r.expr),
        "through": through(b, r, name),
        "tight": bool(against),
        "refuses": against,
    }


def values(b: Context, e: ast.Expr) -> Json:
    """The value of each name of an expression in the layout."""
    return {n: named_value(n, b.env[n]) for n in sorted(names(e)) if n in b.env}


def through(b: Context, r: Rule, name: str) -> list[str]:
    """The lets through which a rule reads a name; empty if the rule reads it directly."""
    direct = r.reads
    if name in direct:
        return []
    return sorted(
        n for n in direct if n in COSTS or (n in b.lets and name in closure(names(b.lets[n]), b.program.of("let")))
    )


def _rank(b: Context, name: str) -> list[Json]:
    """The ranking keys of the phase with their values; `bears` marks those that read the name, also through prices."""
    if not b.compiled.ranks:
        return []
    rule = b.compiled.ranks[0].rule
    keys = [
        {
            "text": print_expr(key.expr),
            "value": json_value(evaluate(key.expr, b.env)),
            "bears": name in closure(names(key.expr), b.program.of("let")) or key.priced,
        }
        for key in b.compiled.ranks
    ]
    return [{**b.cited(rule), "text": print_expr(rule.expr), "keys": keys}]

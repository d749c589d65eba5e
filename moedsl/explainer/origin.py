"""Where a value came from: pinned, defaulted, derived or chosen, by what and where that stands."""

from __future__ import annotations

from moedsl.checker.program import Pin
from moedsl.diagnostics.source import Span
from moedsl.explainer.context import Context, Json
from moedsl.explainer.tree import tree
from moedsl.rules.rule import Rule
from moedsl.schema import axes
from moedsl.solver.problem import first


def of_axis(b: Context, axis: axes.Axis) -> Json:
    """A pin, the only value that a rule leaves, or the phase's choice among several."""
    source, domain = b.chosen.problem.origins[axis.name], b.chosen.problem.domains[axis.name]
    if isinstance(source, Pin):
        return stated(b, source.span)
    if len(domain) > 1:
        among = [axis.decode(int(v)) for v in domain]
        return {**_by(b, source), "kind": "chosen", "among": among, "rank": b.compiled.ranks[0].rule.id}
    return {**_by(b, source), "kind": "defaulted"}


def stated(b: Context, span: Span) -> Json:
    """What the run file says there."""
    return {"kind": "pinned", "at": b.where(span)}


def _by(b: Context, r: Rule | None) -> Json:
    return b.cited(r) if r is not None else {"rule": None, "because": None, "cite": [], "at": None}


def of_let(b: Context, name: str) -> Json:
    """Derived by its expression; pinned where the run asks for one value of it."""
    wish = next((r for r in b.program.rules if r.wish and r.name == name), None)
    rule = next(r for r in b.program.of("let") if r.name == name)
    formula = tree(rule.expr, b.env, b.lets)
    if wish is not None:
        return {**stated(b, wish.span), "tree": formula}
    return {**b.cited(rule), "kind": "derived", "tree": formula}


def of_fixed(b: Context, name: str) -> Json:
    """What the run states outside its layout, or what a default says for it."""
    rule = b.chosen.problem.defaults.get(name)
    if rule is not None:
        return {**b.cited(rule), "kind": "defaulted", "tree": tree(rule.expr, b.env, b.lets)}
    statement = {"global_batch": "batch", "gpus": "hardware"}.get(name, name)
    if statement in b.program.spans:
        return stated(b, b.program.spans[statement])
    because = "what a run is where it says nothing else"
    return {"kind": "defaulted", "rule": None, "because": because, "cite": [], "at": None}


def of_setting(b: Context, kind: str, name: str) -> Json | None:
    """A `derive` or `env` rule whose condition holds."""
    rule = first(b.program, kind, name, b.env)
    return None if rule is None else {**b.cited(rule), "kind": "derived"}

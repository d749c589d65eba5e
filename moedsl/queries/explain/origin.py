"""Explain the origin of a value: pinned, defaulted, derived or chosen, with its rule or statement."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from moedsl.facts import axes
from moedsl.facts.symbols import COSTS, HARDWARE, MODEL
from moedsl.facts.units import GIB
from moedsl.queries.explain.context import Context, Json
from moedsl.rules.check.program import Pin
from moedsl.rules.rule import Rule
from moedsl.solver.infeasible.tree import tree
from moedsl.solver.problem import first_of
from moedsl.support.source import Span


def of_axis(b: Context, axis: axes.Axis) -> Json:
    """The origin of an axis: a pin, a rule with one value, or the phase's choice among several."""
    source, domain = b.chosen.problem.origins[axis.name], b.chosen.problem.domains[axis.name]
    if isinstance(source, Pin):
        return stated(b, source.span)
    if len(domain) > 1:
        among, rank, known = [axis.decode(int(v)) for v in domain], b.compiled.ranks[0].rule, b.chosen.preference
        near = known.reason(axis, b.chosen.solution.rows[0].codes[axis.name], rank.name) if known else ""
        said = {"near": near} if near else {}
        return {**_by(b, source), "kind": "chosen", "among": among, "rank": rank.id, **said}
    return {**_by(b, source), "kind": "defaulted"}


def stated(b: Context, span: Span) -> Json:
    """The origin of a value that the run file states at a span."""
    return {"kind": "pinned", "at": b.where(span)}


def unruled(kind: str, because: str, cite: Sequence[str] = ()) -> Json:
    """The origin of a value that neither a rule nor the run file gives."""
    return {"kind": kind, "rule": None, "because": because, "cite": [*cite], "at": None}


def _by(b: Context, r: Rule | None) -> Json:
    return b.cited(r) if r is not None else {"rule": None, "because": None, "cite": [], "at": None}


def of_let(b: Context, name: str) -> Json:
    """The origin of a let: derived by its expression, or pinned if the run requires one value."""
    wish = next((r for r in b.program.rules if r.wish and r.name == name), None)
    rule = next(r for r in b.program.of("let") if r.name == name)
    formula = tree(rule.expr, b.env, b.lets)
    if wish is not None:
        return {**stated(b, wish.span), "tree": formula}
    return {**b.cited(rule), "kind": "derived", "tree": formula}


_STATEMENTS = {
    "global_batch": "batch", "gpus": "hardware", "run_tokens": "for", "run_seconds": "for", "bridge_version": "target"
}  # fmt: skip
"""The statement that gives a value, where it has another name."""


def of_fixed(b: Context, name: str) -> Json:
    """The origin of a value outside the layout: a statement of the run, or a default."""
    rule = b.chosen.problem.defaults.get(name)
    if rule is not None:
        return {**b.cited(rule), "kind": "defaulted", "tree": tree(rule.expr, b.env, b.lets)}
    if name in COSTS:
        because = "the estimate of the chosen layout" if not isnan(b.env[name]) else "this search does not need it"
        return unruled("derived", because)
    statement = _STATEMENTS.get(name, name)
    if statement in b.program.spans and not (statement == "for" and not b.env[name]):
        return stated(b, b.program.spans[statement])
    for kind, names, declared in (("hardware", HARDWARE, b.program.hardware), ("model", MODEL, b.program.model)):
        if name in names:
            because = f"a fact of {kind} {declared.name}{_counted(b, name)}"
            source = b.program.hardware.sources.get(name) if kind == "hardware" else None
            return unruled("declared", because, [source] if source else [])
    return unruled("defaulted", "the default of the language")


def _counted(b: Context, name: str) -> str:
    """What a plan counts with in place of the memory of the data sheet."""
    if name != "memory":
        return ""
    h = b.program.hardware
    return (
        f": {h.memory / 1e9:g} GB by the data sheet. A plan counts with the {h.shown / GIB:.1f} GiB that the driver "
        f"shows (`visible`), of which a program is told {h.total / GIB:.1f} (`torch_total`)"
    )


def of_setting(b: Context, kind: str, name: str) -> Json | None:
    """The origin of a setting: a `derive` or `env` rule whose condition holds."""
    rule = first_of(b.program.named(kind, name), b.env)
    return None if rule is None else {**b.cited(rule), "kind": "derived"}

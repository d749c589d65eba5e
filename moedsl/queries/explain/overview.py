"""Explain a whole run: every decision in one line, every advice with its price, and the run file's own rules."""

from __future__ import annotations

from moedsl.facts import axes
from moedsl.facts.axes import json_value
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.planner.experiment import path_of
from moedsl.queries.explain import advice, origin
from moedsl.queries.explain.bearing import values
from moedsl.queries.explain.context import Context, Json
from moedsl.rules.interpreter import evaluate
from moedsl.rules.rule import Rule
from moedsl.solver.problem import first_of


def overview(b: Context) -> Json:
    """Collect all decisions of a run with their origins, the advice, and what the run file requires and allows."""
    p, laws = b.program, (*b.compiled.advice, *b.compiled.wishes)
    return {
        "version": 1,
        "kind": "overview",
        "run": p.name,
        "model": p.model.name,
        "hardware": p.hardware.name,
        "gpus": b.chosen.problem.gpus,
        "seq": b.chosen.problem.values["seq"],
        "phase": p.phase,
        "plan": {"step_time_s": b.row.step_time, "peak_gib": b.row.peak_memory / GIB},
        "decisions": [*_axes(b), *_lets(b), *_fixed(b), *_settings(b)],
        "advice": advice.priced(b, laws, b.answers(advice.questions(b, laws))),
        "own_rules": [_own(b, r) for r in p.of("require") if r.wish or not r.id.startswith("std.")],
        "allowed": [{"rule": a.rule, "because": a.because, "at": b.where(a.span)} for a in p.allows.values()],
    }


def _axes(b: Context) -> list[Json]:
    return [_line(a.name, b.env[a.name], origin.of_axis(b, a)) for a in axes.AXES]


def _lets(b: Context) -> list[Json]:
    return [_line(n, b.env[n], origin.of_let(b, n)) for n in axes.DERIVED]


def _fixed(b: Context) -> list[Json]:
    named = ("gpus", "seq", "global_batch", "phase", "task", "routing", "data")
    return [_line(n, b.env[n], origin.of_fixed(b, n)) for n in named]


def _settings(b: Context) -> list[Json]:
    out: list[Json] = []
    for kind in ("derive", "env"):
        for name in dict.fromkeys(r.name for r in b.program.of(kind)):
            rule = first_of(b.program.named(kind, name), b.env)
            if rule is not None and (kind == "env" or path_of(name) not in b.program.sets):
                out.append(_line(name, evaluate(rule.expr, b.env), {**b.cited(rule), "kind": "derived"}))
    sets = ((n, v, b.program.spans[n]) for n, v in b.program.sets.items())
    return [*out, *(_line(n, v, origin.stated(b, span)) for n, v, span in sets)]


def _line(name: str, value: object, source: Json) -> Json:
    keys = ("kind", "rule", "because", "at", "rank", "among")
    return {
        "name": name,
        "value": json_value(value),
        "origin": {k: source[k] for k in keys if source.get(k) is not None},
    }


def _own(b: Context, r: Rule) -> Json:
    """Explain a `require` of the run file in the plan's layout."""
    state = {"applies": r.applies(b.env), "holds": r.holds(b.env)}
    return {**b.cited(r), "text": print_expr(r.expr), **state, "values": values(b, r.expr)}

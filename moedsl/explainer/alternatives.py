"""Explain what each other value of a name would break or cost: with everything else fixed, and re-optimized."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from moedsl.explainer.context import Context, Json
from moedsl.explainer.tree import tree
from moedsl.rules.interpreter import evaluate
from moedsl.schema import axes
from moedsl.schema.axes import json_value
from moedsl.schema.units import GIB
from moedsl.solver.laws import broken
from moedsl.solver.neighbours import Neighbour, judged
from moedsl.solver.question import Answer
from moedsl.solver.table import Row
from moedsl.syntax.printer import print_expr


def of_axis(b: Context, axis: axes.Axis, answers: Mapping[int, Answer]) -> list[Json]:
    """Give an entry for each value except the plan's own."""
    near = {n.code: n for n in judged(b.compiled, b.chosen.cost, b.row, [(axis, v) for v in answers])}
    return [
        {
            "value": axis.decode(v),
            "same_otherwise": fixed(b, near[v]),
            "best": best(b, answers[v], {axis.name}, _alone(b, axis.name, v)),
        }
        for v in answers
        if v in near
    ]


def of_let(b: Context, name: str, answers: Mapping[int, Answer]) -> list[Json]:
    """Give an entry for each other value of a let. A let follows from the axes, so only other layouts change it."""
    return [
        {"value": v, "same_otherwise": None, "best": best(b, a, set())} for v, a in answers.items() if v != b.env[name]
    ]


def fixed(b: Context, n: Neighbour) -> Json:
    """The plan's layout with one value changed: the laws that it breaks, and its prices if the mesh is legal."""
    priced = not isnan(n.peak_memory)
    own = {**prices(b, n.step_time, n.peak_memory), "needed_gib": n.needed / GIB} if priced else {}
    return {"breaks": [] if n.refused_by is None else _breaks(b, n, priced), **own}


def _breaks(b: Context, n: Neighbour, priced: bool) -> list[Json]:
    """The laws that a neighbour breaks, as far as its values are known; for an isolation, those of every variant."""
    values = n.prices if priced else {}
    laws = [law for law in b.compiled.laws if priced or not law.priced]
    rules = dict.fromkeys(w.rule for w in broken(laws, b.compiled.table([{**n.codes, **values}])))
    env = b.chosen.environment(n.codes, values)
    return [{"rule": r.id, "because": r.because, "tree": tree(r.expr, env, b.lets)} for r in rules]


def prices(b: Context, step_time: float, peak_memory: float) -> Json:
    """Seconds and GiB, with their differences from the plan's."""
    return {
        "step_time_s": step_time,
        "peak_gib": peak_memory / GIB,
        "step_time_change": step_time / b.row.step_time - 1,
        "peak_change_gib": (peak_memory - b.row.peak_memory) / GIB,
    }


def _alone(b: Context, axis: str, code: int) -> list[str]:
    """The laws that refuse a value in every layout, because they read only this axis."""
    table = b.compiled.table([{**b.row.codes, axis: code}])
    return [w.rule.id for w in broken([w for w in b.compiled.laws if w.needs <= {axis}], table)]


def best(b: Context, f: Answer, queried: set[str], alone: Sequence[str] = ()) -> Json:
    """The best layout of a variant compared with the plan's, or what refuses it."""
    if f.row is None:
        least = f.least_needed / GIB if f.legal and f.least_needed < float("inf") else None
        return {"legal_layouts": f.legal, "least_gib": least, "refused_by": [*alone], "layout": None}
    return {
        "legal_layouts": f.legal,
        "layout": f.row.layout,
        "changes": {n: v for n, v in f.row.changes(b.row.codes).items() if n not in queried},
        **prices(b, f.row.step_time, f.row.peak_memory),
        "decided_by": decided_by(b, f.row),
        "against_advice": sorted({*b.compiled.unfollowed(f.row)} - b.unfollowed),
    }


def decided_by(b: Context, other: Row) -> Json | None:
    """The first key of the ranking in which the plan's layout and another differ, with both values."""
    env, keys = b.env_of(other), [*b.compiled.wishes, *b.compiled.ranks]
    for key, mine, theirs in zip(keys, b.row.keys, other.keys, strict=False):
        if mine != theirs:
            here, there = (json_value(evaluate(key.expr, e)) for e in (b.env, env))
            return {"key": print_expr(key.expr), "plan": here, "other": there}
    return None


def refusals(alternatives: Iterable[Json]) -> dict[str, list[Any]]:
    """The alternatives that each law refuses with everything else fixed."""
    out: dict[str, list[Any]] = {}
    for a in alternatives:
        for law in (a["same_otherwise"] or {"breaks": []})["breaks"]:
            out.setdefault(law["rule"], []).append(a["value"])
    return out

"""Explain what each other value of a name would break or cost: with everything else fixed, and re-optimized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any

from moedsl.facts import axes
from moedsl.facts.axes import json_value
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.queries.explain.context import Context, Json
from moedsl.rules.interpreter import evaluate
from moedsl.solver.infeasible.tree import tree
from moedsl.solver.laws import broken, broken_by_row
from moedsl.solver.neighbours import Neighbour, judged
from moedsl.solver.question import Answer
from moedsl.solver.table import Row


def of_axis(b: Context, axis: axes.Axis, answers: Mapping[int, Answer]) -> list[Json]:
    """Give an entry for each value except the plan's own."""
    near = judged(b.compiled, b.chosen.cost, b.row, [(axis, v) for v in answers])
    same = {n.code: fixed for n, fixed in zip(near, _fixed(b, near), strict=True)}
    return [
        {
            "value": axis.decode(v),
            "same_otherwise": same[v],
            "best": best(b, answers[v], {axis.name}, _alone(b, axis.name, v)),
        }
        for v in answers
        if v in same
    ]


def of_let(b: Context, name: str, answers: Mapping[int, Answer]) -> list[Json]:
    """Give an entry for each other value of a let. A let follows from the axes, so only other layouts change it."""
    return [
        {"value": v, "same_otherwise": None, "best": best(b, a, set())} for v, a in answers.items() if v != b.env[name]
    ]


def _fixed(b: Context, near: Sequence[Neighbour]) -> Iterator[Json]:
    """The plan's layout with one value changed, for each: the laws that it breaks, as far as its values are known, and
    its prices if the mesh is legal. For an isolation, the laws are those of every variant."""
    rows = [{**n.codes, **n.prices} for n in near]
    broken_there = broken_by_row(b.compiled.laws, b.compiled.table(rows)) if rows else []
    for n, laws in zip(near, broken_there, strict=True):
        priced = not isnan(n.peak_memory)
        own = {**prices(b, n.step_time, n.peak_memory), "needed_gib": n.needed / GIB} if priced else {}
        rules = dict.fromkeys(law.rule for law in laws if priced or not law.priced)
        env = b.chosen.environment(n.codes, n.prices if priced else {}) if rules else {}
        yield {
            "breaks": [{"rule": r.id, "because": r.because, "tree": tree(r.expr, env, b.lets)} for r in rules],
            **own,
        }


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

"""What each other value of a name would break or cost: with everything else fixed, and with everything else anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from moedsl.explainer.tree import tree
from moedsl.rules.interpreter import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.schema import axes
from moedsl.schema.axes import json_value
from moedsl.schema.symbols import COSTS
from moedsl.schema.units import GIB
from moedsl.solver.base import Base, Json
from moedsl.solver.neighbours import Neighbour, judged
from moedsl.solver.table import Row
from moedsl.solver.variant import Found
from moedsl.syntax.printer import print_expr


def of_axis(b: Base, axis: axes.Axis, found: Mapping[int, Found]) -> list[Json]:
    """One entry for each value but the plan's own."""
    near = {n.code: n for n in judged(b.compiled, b.chosen.cost, b.row, [(axis, v) for v in found])}
    return [
        {
            "value": axis.decode(v),
            "same_otherwise": fixed(b, near[v]),
            "best": best(b, found[v], {axis.name}, _alone(b, axis.name, v)),
        }
        for v in found
        if v in near
    ]


def of_let(b: Base, name: str, found: Mapping[int, Found]) -> list[Json]:
    """A let follows from the axes, so nothing is fixed otherwise: its other values are other layouts."""
    return [
        {"value": v, "same_otherwise": None, "best": best(b, f, set())} for v, f in found.items() if v != b.env[name]
    ]


def fixed(b: Base, n: Neighbour) -> Json:
    """The plan's layout with one value changed: what it breaks, else its prices against the plan's."""
    codes = {**b.row.codes, n.axis: n.code}
    step_time, peak_memory = float(n.step_time), float(n.peak_memory)
    if n.refused_by is None:
        return {"breaks": [], **prices(b, step_time, peak_memory)}
    if peak_memory == peak_memory:  # priced, so a law on prices refuses it
        spare = float(n.spare_memory)
        env = b.env_at(codes, peak_memory=peak_memory, spare_memory=spare, step_time=step_time, score=step_time)
        return {"breaks": [_broken(b, r, env) for r in broken(b, env)], **prices(b, step_time, peak_memory)}
    env = b.env_at(codes)
    return {"breaks": [_broken(b, r, env) for r in broken(b, env)]}


def broken(b: Base, env: Mapping[str, Any]) -> list[Rule]:
    """The laws that a layout breaks, as far as its values are known."""
    laws = [law for law in b.compiled.laws if not law.needs & COSTS.keys() or "peak_memory" in env]
    return [w.rule for w in laws if _applies(b, w.rule, env) and not holds(w.rule.expr, env, b.functions)]


def _applies(b: Base, r: Rule, env: Mapping[str, Any]) -> bool:
    return holds(r.when, env, b.functions)


def unfollowed(b: Base, env: Mapping[str, Any]) -> list[str]:
    """The advice that a layout does not follow, by id."""
    rules = (w.rule for w in (*b.compiled.advice, *b.compiled.wishes))
    return [r.id for r in rules if _applies(b, r, env) and not holds(r.expr, env, b.functions)]


def _broken(b: Base, r: Rule, env: Mapping[str, Any]) -> Json:
    return {"rule": r.id, "because": r.because, "tree": tree(r.expr, env, b.functions, b.lets)}


def prices(b: Base, step_time: float, peak_memory: float) -> Json:
    """Seconds and GiB, and how they compare with the plan's."""
    return {
        "step_time_s": step_time,
        "peak_gib": peak_memory / GIB,
        "step_time_change": step_time / b.row.step_time - 1,
        "peak_change_gib": (peak_memory - b.row.peak_memory) / GIB,
    }


def _alone(b: Base, axis: str, code: int) -> list[str]:
    """The laws that refuse a value whatever the rest of the layout is: they read nothing else of it."""
    env = b.env_at({**b.row.codes, axis: code})
    laws = (w for w in b.compiled.laws if w.needs <= {axis})
    return [w.rule.id for w in laws if _applies(b, w.rule, env) and not holds(w.rule.expr, env, b.functions)]


def best(b: Base, f: Found, asked: set[str], alone: Sequence[str] = ()) -> Json:
    """The best layout of a variant against the plan's, or how near it comes to one."""
    if f.row is None:
        least = f.least_memory / GIB if f.legal and f.least_memory < float("inf") else None
        return {"legal_layouts": f.legal, "least_gib": least, "refused_by": [*alone], "layout": None}
    return {
        "legal_layouts": f.legal,
        "layout": layout(b, f.row),
        "changes": {n: v for n, v in changes(b, f.row).items() if n not in asked},
        **prices(b, f.row.step_time, f.row.peak_memory),
        "decided_by": decided_by(b, f.row),
        "against_advice": sorted({*unfollowed(b, b.env_of(f.row))} - {*unfollowed(b, b.env)}),
    }


def layout(b: Base, row: Row) -> Json:
    """Every axis of a layout as the plan writes it."""
    return {a.name: a.decode(row.codes[a.name]) for a in axes.AXES}


def changes(b: Base, row: Row) -> Json:
    """What another layout has otherwise."""
    return {n: v for n, v in layout(b, row).items() if row.codes[n] != b.row.codes[n]}


def decided_by(b: Base, other: Row) -> Json | None:
    """The first key of the ranking in which the plan's layout and another differ, with both values."""
    env, keys = b.env_of(other), [*b.compiled.wishes, *b.compiled.ranks]
    for key, mine, theirs in zip(keys, b.row.keys, other.keys, strict=False):
        if mine != theirs:
            here, there = (json_value(evaluate(key.expr, e, b.functions)) for e in (b.env, env))
            return {"key": print_expr(key.expr), "plan": here, "other": there}
    return None


def refusals(alternatives: Iterable[Json]) -> dict[str, list[Any]]:
    """For each law the alternatives that it refuses with everything else fixed."""
    out: dict[str, list[Any]] = {}
    for a in alternatives:
        for law in (a["same_otherwise"] or {"breaks": []})["breaks"]:
            out.setdefault(law["rule"], []).append(a["value"])
    return out

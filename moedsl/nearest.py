"""The nearest layout to an impossible wish: which expression fails there, with the value of every part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl import ast
from moedsl.columns import names
from moedsl.ir import Program
from moedsl.lower import plain, with_lets
from moedsl.scalar import holds

GIB = 2**30


@frozen
class Nearest:
    """`summary` goes into the message, `values` into the diagnostic."""

    summary: str
    values: Mapping[str, Any]


def nearest(p: Program, gpus: int, laws: Sequence[Any], cost: Any, solve: Any, pins: Mapping[str, int]) -> Nearest:
    """Solves without what collides, puts the wishes back, and evaluates the laws there."""
    found = solve(p if laws else _without_price(p), gpus, keep=1)
    if not found.solution.rows:
        return Nearest("", {})
    row = {**found.solution.rows[0].codes, **pins}
    if not laws:
        peak = found.solution.rows[0].peak_memory / GIB
        capacity = p.hardware.memory / GIB
        return Nearest(f"the nearest needs {peak:.0f} of {capacity:.0f} GiB", {"peak_gib": round(peak, 1), "capacity_gib": round(capacity, 1)})
    env = with_lets(p, plain(row, found.problem), {"has_layout": lambda a, b: bool(cost.has_layout(a, b))})
    return _failing([m.rule for m in laws if m.rule is not None], env, cost)


def _without_price(p: Program) -> Program:
    """The program without laws on prices, so that the row that comes nearest to fitting is found."""
    free = tuple(r for r in p.rules if not (r.kind == "require" and names(r.expr) & {"peak_memory", "step_time"}))
    ranks = tuple(_by_memory(r) if r.kind == "rank" else r for r in free)
    return evolve(p, rules=ranks)


def _by_memory(r: Any) -> Any:
    return evolve(r, expr=ast.List((ast.Name("peak_memory", r.span),), r.span))


def _failing(rules: Sequence[Any], env: Mapping[str, Any], cost: Any) -> Nearest:
    fs = {"has_layout": lambda a, b: bool(cost.has_layout(a, b))}
    for r in rules:
        if not (holds(r.when, env, fs) and holds(r.expr, env, fs)):
            values = {n: _json(env[n]) for n in sorted(names(r.expr)) if n in env}
            return Nearest(f" ({', '.join(f'{k}={v}' for k, v in values.items())})", values)
    return Nearest("", {})


def _json(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value

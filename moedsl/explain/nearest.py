"""The nearest layout to an impossible wish: which expression fails there, with the value of every part of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl import ast
from moedsl.columns import names
from moedsl.ir import Program, Rule
from moedsl.lower import plain, with_lets
from moedsl.scalar import holds

GIB = 2**30


@frozen
class Nearest:
    """`summary` goes into the message, `values` into the diagnostic."""

    summary: str
    values: Mapping[str, Any]


def breaking(p: Program, gpus: int, laws: Sequence[Rule], cost: Any, solve: Any, pins: Mapping[str, int]) -> Nearest:
    """Solves without the wishes that collide, puts the pins back, and evaluates the laws there."""
    found = solve(p, gpus, keep=1)
    if not found.solution.rows:
        return Nearest("", {})
    row = {**found.solution.rows[0].codes, **pins}
    functions = {"has_layout": lambda a, b: bool(cost.has_layout(a, b))}
    env = with_lets(p, plain(row, found.problem), functions)
    for r in laws:
        if not (holds(r.when, env, functions) and holds(r.expr, env, functions)):
            values = {n: _json(env[n]) for n in sorted(names(r.expr)) if n in env}
            return Nearest(f" ({', '.join(f'{k}={v}' for k, v in values.items())})", values)
    return Nearest("", {})


def too_large(p: Program, gpus: int, solve: Any) -> Nearest:
    """The layout that needs the least memory, and what the laws leave it."""
    found = solve(_ranked_by(p, "peak_memory", ("peak_memory", "step_time")), gpus, keep=1)
    if not found.solution.rows:
        return Nearest("", {})
    headroom = with_lets(p, found.problem.values).get("headroom", 0)
    peak, capacity = found.solution.rows[0].peak_memory / GIB, p.hardware.memory / GIB
    values = {"peak_gib": round(peak, 1), "capacity_gib": round(capacity, 1), "headroom": headroom}
    left = f" with {headroom:.0%} of it kept free" if headroom else ""
    return Nearest(f"the nearest needs {peak:.1f} GiB of {capacity:.1f}{left}", values)


def too_slow(p: Program, gpus: int, solve: Any) -> Nearest:
    """The fastest layout that fits."""
    found = solve(_ranked_by(p, "step_time", ("step_time",)), gpus, keep=1)
    if not found.solution.rows:
        return Nearest("", {})
    seconds = found.solution.rows[0].step_time
    return Nearest(f"the fastest takes {seconds:.2f} s a step", {"step_time_s": round(seconds, 3)})


def _ranked_by(p: Program, price: str, dropped: tuple[str, ...]) -> Program:
    """The program without its laws on some prices, ranked by one."""
    kept = [r for r in p.rules if not (r.kind == "require" and names(r.expr) & set(dropped))]
    by_price = [evolve(r, expr=ast.List((ast.Name(price, r.span),), r.span)) if r.kind == "rank" else r for r in kept]
    return evolve(p, rules=tuple(by_price))


def _json(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value

"""Find the layout nearest to an impossible wish, and the expression that fails there, as a tree with each
part's value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from moedsl.facts import axes
from moedsl.facts.axes import named_value, show
from moedsl.facts.symbols import BUILTIN, BYTES, CASES, COSTS, MEMORY, RATES, SPARES, TIMES
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.rule import Rule
from moedsl.solver.conflicts import Member, without, written
from moedsl.solver.laws import SECONDS, Row, reads
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen, solve

Json = dict[str, Any]


@frozen
class Values:
    """Values of a layout: `summary` is for the message, `by_name` for the diagnostic."""

    summary: str = ""
    by_name: Mapping[str, Any] = field(factory=dict)


NOTHING = Values()


@frozen
class Nearest:
    """The nearest layout: what the message says about it, and `json` for the explanation."""

    values: Values = NOTHING
    json: Json | None = None


def anywhere(c: Chosen, core: Sequence[Member]) -> Values | None:
    """Return the values of a conflict's only law if they are the same in every layout; else None."""
    laws, domains = _broken(core), c.problem.domains
    rule = laws[0].rule if len(laws) == 1 else None
    differ = {*COSTS, *SPARES, *(a for a, d in domains.items() if len(d) > 1)}
    if rule is None or reads(c.problem.program, rule) & differ:
        return None
    return _values(c.environment({a: int(d[0]) for a, d in domains.items()}), rule)


def breaking(p: Program, gpus: int, core: Sequence[Member]) -> Nearest:
    """Find the best layout that breaks only one law of the conflict, and the values of that law there.

    If other laws refuse it too, use the best layout without the conflict's wishes, with the pins restored.
    """
    broken = _broken(core)
    for m in broken:
        chosen = solve(without(p, [m]), gpus, keep=1)
        if chosen.solution.rows and m.rule is not None:
            return _at(p, chosen, chosen.solution.rows[0].codes, m.rule, chosen.solution.rows[0])
    chosen = solve(without(p, [m for m in core if m.stated]), gpus, keep=1)
    rules = [m.rule for m in broken if m.rule is not None]
    if not rules or not chosen.solution.rows:
        return Nearest()
    pins = {m.key: m.code for m in core if m.kind == "pin"}
    return _at(p, chosen, {**chosen.solution.rows[0].codes, **pins}, rules[0], None)


def _at(p: Program, chosen: Chosen, codes: Mapping[str, int], r: Rule, row: Row | None) -> Nearest:
    env = chosen.environment(codes, row.prices if row else {})
    return Nearest(_values(env, r), _json(p, codes, row, r, env))


def _broken(core: Sequence[Member]) -> list[Member]:
    """Return the laws of a conflict that a layout may break; if there are none, the wishes."""
    return [m for m in core if m.kind == "law"] or [m for m in core if m.kind == "wish"]


_WITH_UNITS = (*BYTES, *RATES)


def _values(env: Json, r: Rule) -> Values:
    """Return the values of a rule's names."""
    values = {n: named_value(n, env[n]) for n in sorted(names(r.expr)) if n in env}
    summary = ", ".join(f"{k}={of_name(k, v) if k in _WITH_UNITS else written(v)}" for k, v in values.items())
    return Values(f" ({summary})" if summary else "", values)


def _json(p: Program, codes: Mapping[str, int], row: Row | None, r: Rule, env: Json) -> Json:
    """Return the layout, its prices if they are known, and the failing expression as a tree."""
    lets = {let.name: let.expr for let in p.of("let")}
    return {
        "layout": {a.name: a.decode(codes[a.name]) for a in axes.AXES},
        "step_time_s": row.step_time if row else None,
        "peak_gib": row.peak_memory / GIB if row else None,
        "rule": r.id,
        "because": r.because,
        "tree": tree(r.expr, env, lets),
    }


def too_large(p: Program, gpus: int, like: Search, above_limit: bool) -> Nearest:
    """Find the layout that needs the least memory, and compare it with the memory that the GPU has.

    If a limit of the user is the reason, say its memory in the units of that limit too.
    """
    chosen = solve(_ranked_by(p, "peak_memory", (*MEMORY, *SECONDS)), gpus, 1, like, must_fit=CASES[-1])
    if not chosen.solution.rows:
        return Nearest()
    row, shown = chosen.solution.rows[0], p.hardware.shown
    left = {name: float(chosen.cost.spare(row.codes, case)[0]) for name, case in SPARES.items()}
    env = chosen.environment(row.codes, {**row.prices, **left})
    least, best = ((shown - left[case]) / GIB for case in ("spare_at_low", "spare_at_best"))
    values = {"least_gib": round(least, 1), "best_gib": round(best, 1), "visible_gib": round(shown / GIB, 1)}
    json = _first_broken(p, row, env, MEMORY)
    summary = f"the nearest needs at least {least:.1f} GiB, {best:.1f} by the best estimate"
    if above_limit:
        summary = f"the least is a `peak_memory` of {row.peak_memory / 1e9:.1f} GB, {row.peak_memory / GIB:.1f} GiB"
    return Nearest(Values(f"{summary}; the GPU has {shown / GIB:.1f}", values), json)


def too_slow(p: Program, gpus: int, like: Search) -> Nearest:
    """Find the fastest layout that fits."""
    chosen = solve(_ranked_by(p, "step_time", SECONDS), gpus, 1, like)
    if not chosen.solution.rows:
        return Nearest()
    row = chosen.solution.rows[0]
    env = chosen.environment(row.codes, row.prices)
    json = _first_broken(p, row, env, SECONDS)
    tokens = float(chosen.cost.tokens_per_second_per_gpu(row.step_time))
    summary = f"the fastest takes {row.step_time:.2f} s a step, {tokens:,.0f} tokens/s/GPU"
    values = {"step_time_s": round(row.step_time, 3), "tokens_per_s_per_gpu": round(tokens, 1)}
    return Nearest(Values(summary, values), json)


def _first_broken(p: Program, row: Row, env: Json, prices: Iterable[str]) -> Json | None:
    """Return, as JSON, the first law on some prices that the layout breaks; None if it breaks none."""
    laws = (r for r in p.of("require") if r.id not in p.allows and p.rules.needs(r.reads) & {*prices})
    law = next((r for r in laws if not r.holds(env)), None)
    return None if law is None else _json(p, row.codes, row, law, env)


def _ranked_by(p: Program, price: str, dropped: Iterable[str]) -> Program:
    """Return a program that ranks layouts by one price, without the laws on the dropped prices."""
    dropped = {*dropped}
    rules = [r for r in p.rules if not (r.kind == "require" and p.rules.needs(r.reads) & dropped)]
    by_price = [evolve(r, expr=ast.List((ast.Name(price, r.span),), r.span)) if r.kind == "rank" else r for r in rules]
    return evolve(p, rules=p.rules.with_same_lets(by_price))


_NAME = re.compile(r"[\w.]+")


def tree(expr: ast.Expr, env: Mapping[str, Any], lets: Mapping[str, ast.Expr]) -> Json:
    """Return ``{text, value, parts}``, with a part for each operand that varies.

    A `let` is expanded into its expression only where it first appears: lets that use each other twice would double the
    tree each time.
    """
    return _tree(expr, env, dict(lets))


def _tree(expr: ast.Expr, env: Mapping[str, Any], closed: dict[str, ast.Expr]) -> Json:
    parts = (closed.pop(expr.id),) if isinstance(expr, ast.Name) and expr.id in closed else ast.operands(expr)
    return {
        "text": print_expr(expr),
        "value": named_value(expr.id if isinstance(expr, ast.Name) else "", evaluate(expr, env)),
        "parts": [_tree(e, env, closed) for e in parts if _varies(e, env)],
    }


def _varies(e: ast.Expr, env: Mapping[str, Any]) -> bool:
    """Whether the value of an expression differs from its text."""
    if isinstance(e, ast.Name):
        return e.id in env or "." in e.id
    if isinstance(e, ast.Call) and e.func.id == "version":
        return False
    return not isinstance(e, ast.Number | ast.Bool | ast.String) and not (
        isinstance(e, ast.List) and not any(_varies(i, env) for i in e.items)
    )


def lines(node: Mapping[str, Any], indent: str = "") -> list[str]:
    """Format the tree, one part per line; a repeated part appears once."""
    out = [f"{indent}{node['text']} = {of_expression(node['text'], node['value'])}"]
    seen = set[str]()
    for part in node["parts"]:
        if part["text"] not in seen:
            out += lines(part, indent + "  ")
        seen.add(part["text"])
    return out


def of_expression(text: str, value: Any) -> str:
    """Format the value of an expression: true or false for a condition, and as plans show it for a name."""
    if _NAME.fullmatch(text):
        return of_name(text, value)
    return str(value).lower() if isinstance(value, bool) else word(value)


def of_name(name: str, value: Any) -> str:
    """Format the value of a name in the unit that a person expects."""
    if value is None:
        return "not estimated"
    if name not in BUILTIN or isinstance(value, bool) or not isinstance(value, int | float):
        return word(value)
    if name in BYTES:
        return f"{value / GIB:.1f} GiB"
    if name in RATES:
        return f"{value / 1e9:,.4g} GB/s"
    if name in TIMES:
        return f"{value:.4g} s"
    return word(value) if isinstance(value, float) else str(value)


def word(value: Any) -> str:
    """Format a value as plans do, but short."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
    is_bytes = isinstance(value, int) and abs(value) >= GIB
    return f"{value / GIB:.1f} GiB" if is_bytes else show(value)

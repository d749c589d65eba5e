"""Every row of a small search space, one by one, with the scalar evaluator: the judge of the search."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from attrs import evolve

from moedsl.facts import axes
from moedsl.lang import ast
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.solver.problem import Problem

MESH = ("pp", "vpp", "tp", "cp", "etp", "ep", "micro_batch")
POLICIES = tuple(a.name for a in axes.AXES if a.name not in MESH)
KEEP = 5


def inline(e: Any, lets: dict[str, ast.Expr]) -> Any:
    """An expression with every let written out."""
    if isinstance(e, ast.Name):
        return inline(lets[e.id], lets) if e.id in lets else e
    if isinstance(e, ast.List):
        return evolve(e, items=tuple(inline(i, lets) for i in e.items))
    if isinstance(e, ast.Call):
        return evolve(e, args=tuple(inline(a, lets) for a in e.args))
    if isinstance(e, ast.Unary):
        return evolve(e, value=inline(e.value, lets))
    if isinstance(e, ast.Binary):
        return evolve(e, left=inline(e.left, lets), right=inline(e.right, lets))
    if isinstance(e, ast.If):
        return ast.If(inline(e.test, lets), inline(e.then, lets), inline(e.otherwise, lets), e.span)
    return e


def words_of(e: Any) -> set[str]:
    """Every name in an expression."""
    if isinstance(e, ast.Name):
        return {{"overlap.ep": "ep_overlap", "overlap.wgrad": "delay_wgrad"}.get(e.id, e.id)}
    parts = {
        ast.List: ("items",), ast.Call: ("args",), ast.Unary: ("value",), ast.Binary: ("left", "right"),
        ast.If: ("test", "then", "otherwise"),
    }.get(type(e), ())  # fmt: skip
    children = itertools.chain(*(v if isinstance(v, tuple) else (v,) for v in (getattr(e, p) for p in parts)))
    return set().union(*(words_of(c) for c in children))


SPARES = {"spare_memory": "high", "spare_at_best": "best", "spare_at_low": "low"}
PRICES = {"peak_memory", *SPARES, "step_time", "score"}
Law = tuple[Any, Any, Rule]
"""When it applies, what it says, and the rule."""


class Naive:
    """Every row, one by one, with the scalar evaluator."""

    def __init__(self, problem: Problem, prices: Any, has_layout: Any) -> None:
        self.problem, self.prices = problem, prices
        self.values = {**problem.values, "has_layout": functools.cache(lambda pp, vpp: bool(has_layout(pp, vpp)))}
        self.laws = [law for law in self.rules("require") if self.may_apply(law)]
        self.prefers = [law for law in self.rules("prefer") if self.may_apply(law)]
        ranks = sorted(self.rules("rank"), key=lambda x: x[2].id.startswith("std."))
        keys = next(e for w, e, _ in ranks if holds(w, self.problem.values))
        self.keys = keys.items if isinstance(keys, ast.List) else (keys,)
        self.reads: dict[str, list[str]] = {}
        self.asked: dict[tuple[Any, ...], bool] = {}

    def rules(self, kind: str) -> list[Law]:
        p = self.problem.program
        lets = {r.name: r.expr for r in p.of("let")}
        return [(r.when and inline(r.when, lets), inline(r.expr, lets), r) for r in p.of(kind) if r.id not in p.allows]

    def may_apply(self, law: Law) -> bool:
        """Whether its condition is open, or fixed and true."""
        return bool(words_of(law[0]) & {*MESH, *POLICIES, *PRICES}) or holds(law[0], self.values)

    def about(self, names: set[str]) -> list[Law]:
        return [law for law in self.laws if (words_of(law[0]) | words_of(law[1])) & names]

    def product(self, names: tuple[str, ...]) -> Iterator[dict[str, int]]:
        domains = [sorted(int(v) for v in self.problem.domains[n]) for n in names]
        yield from (dict(zip(names, values, strict=True)) for values in itertools.product(*domains))

    def broken(self, laws: list[Law], env: dict[str, Any]) -> bool:
        return any(self.breaks(law, env) for law in laws)

    def breaks(self, law: Law, env: dict[str, Any]) -> bool:
        """Asked once for the same values of what it reads, unless it reads a price."""
        when, expr, rule = law
        if rule.id not in self.reads:
            self.reads[rule.id] = sorted((words_of(when) | words_of(expr)) & {*MESH, *POLICIES, *PRICES})
        names = self.reads[rule.id]
        if PRICES & {*names}:
            return holds(when, env) and not holds(expr, env)
        key = (rule.id, *(env[n] for n in names))
        if key not in self.asked:
            self.asked[key] = holds(when, env) and not holds(expr, env)
        return self.asked[key]

    def meshes(self) -> list[dict[str, int]]:
        """The meshes that obey every law that speaks of nothing but meshes and what is fixed."""
        other = self.about({*POLICIES, *PRICES})
        laws, env = [law for law in self.laws if law not in other], dict(self.values)
        return [mesh for mesh in self.product(MESH) if not self.broken(laws, env | mesh)]

    def legal(self) -> list[tuple[dict[str, int], dict[str, Any]]]:
        """(row, every value) of each row that obeys the laws that need no price."""
        priced = self.about(PRICES)
        alone = [
            law
            for law in self.about({*POLICIES})
            if law not in priced and not (words_of(law[0]) | words_of(law[1])) & {*MESH}
        ]
        mixed = [law for law in self.about({*POLICIES}) if law not in priced and law not in alone]
        policies = [(codes, decoded(codes)) for codes in self.product(POLICIES)]
        policies = [(c, d) for c, d in policies if not self.broken(alone, self.values | d)]
        rows = ((mesh | c, {**self.values, **mesh, **d}) for mesh in self.meshes() for c, d in policies)
        return [(row, env) for row, env in rows if not self.broken(mixed, env)]

    def rows(self) -> list[tuple[tuple[float, ...], dict[str, int], float]]:
        """(rank, row, memory) of every row that also fits, best first."""
        found = self.legal()
        columns = {n: np.array([r[n] for r, _ in found]) for n in (*MESH, *POLICIES)}
        if not found:
            return []
        caps, out = self.about(PRICES), []
        for (row, env), prices in zip(found, self.priced(columns), strict=True):
            env |= prices
            b, t = env["peak_memory"], env["step_time"]
            env["score"] *= self.advice(env)
            if np.isfinite(b) and np.isfinite(t) and not self.broken(caps, env):
                out.append((self.rank(row, env), row, b))
        return sorted(out, key=lambda x: x[0])

    def priced(self, columns: dict[str, Any]) -> Iterator[dict[str, float]]:
        """Every price of each row."""
        time = self.prices.time(columns)
        spare = {n: self.prices.spare(columns, case) for n, case in SPARES.items()}
        by_name = {"peak_memory": self.prices.memory(columns), "step_time": time, "score": time, **spare}
        yield from ({n: float(column[i]) for n, column in by_name.items()} for i in range(len(time)))

    def advice(self, env: dict[str, Any]) -> float:
        factor = 1.0
        for law in self.prefers:
            if not law[2].wish and self.broken([law], env):
                factor *= 1 + law[2].worth
        return factor

    def rank(self, row: dict[str, int], env: dict[str, Any]) -> tuple[float, ...]:
        wishes = [float(self.broken([law], env)) for law in self.prefers if law[2].wish]
        values = [float(evaluate(k, env)) for k in self.keys]
        return (*wishes, *values, *(float(row[a.name]) for a in axes.AXES))

    def best(self, keep: int) -> list[tuple[tuple[float, ...], dict[str, int], float]]:
        """The best row of each mesh, best first."""
        seen: dict[tuple[int, ...], Any] = {}
        for found in self.rows():
            seen.setdefault(tuple(found[1][n] for n in MESH), found)
        return list(seen.values())[:keep]


def decoded(codes: dict[str, int]) -> dict[str, Any]:
    """Codes as plain values: words, sets of words, numbers."""
    values = {n: axes.BY_NAME[n].decode(v) for n, v in codes.items()}
    return {n: frozenset(v) if isinstance(v, list) else v for n, v in values.items()}

"""Compile the variants of an isolation: their joint laws, and the search for a layout that is legal for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.operators import Column
from moedsl.facts.symbols import COSTS, MEMORY
from moedsl.rules.check.program import Isolation, Pin, Program, Variant
from moedsl.rules.rule import Rule
from moedsl.solver.bounded_space import memory_prices
from moedsl.solver.laws import Compiled, Law, first_broken
from moedsl.solver.problem import Problem
from moedsl.solver.search import Search, Solution
from moedsl.solver.solve import KEEP, Chosen, solve
from moedsl.solver.table import Row, Table


@frozen
class Arm:
    """One variant, compiled. `problem` has the domains of the first variant except on the isolated axis."""

    variant: Variant
    chosen: Chosen

    def table(self, t: Table) -> Table:
        """Convert the rows of another arm to this one."""
        own = {a: np.full(t.rows, code) for a, code in self.variant.codes.items() if a in axes.BY_NAME}
        assumed = {n: t[n] for n in (*axes.BY_NAME, *COSTS) if n in t and n not in t.axes}
        return Table({**t.axes, **own}, {**self.chosen.problem.codes, **assumed}, self.chosen.compiled.lets)


def compile_arms(p: Program, gpus: int | None, must_fit: str) -> tuple[Arm, ...]:
    """Compile every variant of a program, with the defaults of the first, in one case of the memory estimate."""
    assert p.isolate is not None
    first, *others = p.isolate.variants
    base = _arm(p, first, gpus, must_fit, None)
    return (base, *(_arm(p, v, gpus, must_fit, base.chosen.problem) for v in others))


def _arm(p: Program, v: Variant, gpus: int | None, must_fit: str, base: Problem | None) -> Arm:
    q = _program(p, v)
    said = {"seq": "seq", "batch": "global_batch"}
    isolated = {said[n] for n in v.codes if n in said}
    fixed = {n: base.values[n] for n in said.values() if base is not None and n not in isolated}
    chosen = solve(q, q.gpus or gpus or 0, keep=0, must_fit=must_fit, **fixed)
    return Arm(v, chosen if base is None else _like(chosen, v, base))


def _program(p: Program, v: Variant) -> Program:
    """The program with a variant's values pinned in place of the isolation."""
    assert p.isolate is not None
    span = p.isolate.span
    pins = {a: Pin(a, code, span) for a, code in v.codes.items() if a in axes.BY_NAME}
    sizes: dict[str, Any] = {n: value for n, value in v.codes.items() if n not in axes.BY_NAME}
    name = f"{p.name}.{p.isolate.axis}_{v.label}"
    spans = {**p.spans, **dict.fromkeys(sizes, span)}
    alone = Isolation(p.isolate.axis, (v,), span)
    return evolve(p, name=name, pins={**p.pins, **pins}, spans=spans, isolate=alone, **sizes)


def _like(chosen: Chosen, v: Variant, base: Problem) -> Chosen:
    """Use the first variant's domains where a default or a phase would give this variant others."""
    own, problem = set(v.codes), chosen.problem
    domains = {a: problem.domains[a] if a in own else d for a, d in base.domains.items()}
    origins = {a: problem.origins[a] if a in own else o for a, o in base.origins.items()}
    problem = evolve(problem, domains=domains, origins=origins, defaults=base.defaults)
    return evolve(chosen, problem=problem, compiled=evolve(chosen.compiled, problem=problem))


def search(arms: Sequence[Arm], keep: int = KEEP) -> Solution:
    """Search the best layouts of the first arm that are legal for the others too."""
    first = arms[0].chosen
    return Search(with_laws(first.compiled, arms[1:]), first.cost, keep=keep).run()


def with_laws(c: Compiled, others: Sequence[Arm]) -> Compiled:
    return evolve(c, laws=(*c.laws, *(law for arm in others for law in joint_laws(arm))))


def joint_laws(arm: Arm) -> list[Law]:
    """Turn the laws of an arm into laws on another's rows; they no longer need what the variant fixes."""
    own = frozenset(arm.variant.codes)
    return [_priced(arm, law) if law.priced else _plain(arm, law, own) for law in arm.chosen.compiled.laws]


def _plain(arm: Arm, law: Law, own: frozenset[str]) -> Law:
    return evolve(law, needs=law.needs - own, value=lambda t: law.value(arm.table(t)))


def _priced(arm: Arm, law: Law) -> Law:
    """A law on prices, applied when every axis is bound, because the arm has its own prices."""

    def value(t: Table) -> Column:
        return law.value(priced_table(arm, t, law.needs))

    return evolve(law, needs=law.needs | frozenset(axes.BY_NAME), value=value)  # type: ignore[arg-type]


def priced_table(arm: Arm, t: Table, needs: frozenset[str]) -> Table:
    """The rows of another arm with this one's prices: its peak, and what else a law needs."""
    here, cost = arm.table(t), arm.chosen.cost
    memory = memory_prices(cost, [n for n in MEMORY if n in needs], here)
    return here.with_columns(**memory, **({"step_time": cost.time(here)} if "step_time" in needs else {}))


def price(arm: Arm, row: Row) -> Row:
    """A row of another arm, priced and ranked for this one by the search itself."""
    codes = {**row.codes, **{a: c for a, c in arm.variant.codes.items() if a in axes.BY_NAME}}
    compiled = arm.chosen.compiled
    problem = evolve(compiled.problem, domains={a: np.array([c]) for a, c in codes.items()})
    return Search(evolve(compiled, problem=problem), arm.chosen.cost).run().rows[0]


def broken(arm: Arm, row: Row) -> Rule | None:
    """The first law that a row of another arm breaks here."""
    c = arm.chosen.compiled
    law = first_broken(c.laws, priced_table(arm, c.table([row.codes]), frozenset(COSTS)))[0]
    return None if law is None else law.rule

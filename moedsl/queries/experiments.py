"""Compare the experiments of two chosen layouts without making their plans."""

from __future__ import annotations

from typing import Any

from moedsl.facts.symbols import VLM_WORDS
from moedsl.planner import experiment
from moedsl.rules.effects import of_rules
from moedsl.rules.interpreter import evaluate
from moedsl.solver.problem import first_of
from moedsl.solver.solve import Chosen


def another(a: Chosen, b: Chosen) -> list[str]:
    """The keywords and fields of Bridge that make two runs different experiments."""
    old, new = values(a), values(b)
    return [n for n in {**old, **new} if old.get(n) != new.get(n)]


def values(c: Chosen) -> dict[str, Any]:
    """The experiment's values for the best layout, as `experiment.values` gives them for its plan."""
    p, row = c.problem.program, c.solution.rows[0]
    env = c.environment(row.codes, row.prices)
    sizes = {n: int(env[n]) for n in ("global_batch", "seq")}
    fixed = {"data": p.data, "routing": p.routing, **{n: n in p.vlm for n in VLM_WORDS}}
    return experiment.values(
        p,
        c.problem.gpus,
        sizes | fixed | experiment.packing(c) | row.layout,
        _derived(c, env),
        of_rules(p.of("effect")),
    )


def _derived(c: Chosen, env: dict[str, Any]) -> dict[str, Any]:
    """The fields that follow from the layout, by the first rule of each that applies."""
    p = c.problem.program
    rules = {r.name: first_of(p.named("derive", r.name), env) for r in p.of("derive")}
    return {n: evaluate(r.expr, env) for n, r in rules.items() if r is not None}

"""What one rule of the stdlib says of one run, by the slow evaluator: the judge of the cases that each rule has."""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.compiler import load_stdlib
from moedsl.facts.symbols import SPARES
from moedsl.lang import ast
from moedsl.rules import collect
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.solver.laws import reads_price
from moedsl.solver.problem import Problem, lower, pinned_row
from moedsl.solver.solve import environment, make_cost
from moedsl.support.resources import stdlib_dir
from tests.helpers.layouts import checked, run_text, variant

CHOSEN = ("candidates", "default", "derive", "env", "rank")
"""Kinds of which the first whose condition holds is in force; a run's own rules stand before the stdlib's."""
JUDGED = ("require", "prefer", "measured", "symptom", *CHOSEN)


@frozen
class Run:
    """A run with every axis pinned, as the words of `layouts.DEFAULTS` with some replaced.

    `phase` is that of the run, `facts` replace facts of its model, `capability` the compute capability of its GPU,
    `also` is further text, and `must_fit` the case of the memory estimate.
    """

    layout: Mapping[str, Any]
    phase: str = "throughput"
    facts: tuple[tuple[str, int], ...] = ()
    capability: str | None = None
    also: str = ""
    must_fit: str = "high"

    @property
    def text(self) -> str:
        layout = dict(self.layout)
        head = ""
        if self.capability:
            head = _machine(layout["hardware"], self.capability)
            layout["hardware"] = "variant_gpu"
        body = variant(layout, dict(self.facts)) if self.facts else run_text(layout)
        return head + body.replace("throughput first", f"{self.phase} first") + self.also


def _machine(name: str, capability: str) -> str:
    """The declaration of a GPU of another compute capability."""
    text = (stdlib_dir() / "hardware" / f"{name}.moe").read_text(encoding="utf-8")
    text = text.replace(f"hardware {name} {{", "hardware variant_gpu {")
    text, n = re.subn(r"\bcapability [\d.]+", f"capability {capability}", text)
    assert n == 1
    return text


@cache
def known() -> dict[str, Rule]:
    """Every rule of the stdlib that judges a run, by its id; those that share one by ``ID/1``, ``ID/2``, in order."""
    found = [r for r in collect.collect(load_stdlib().rules)[0] if r.kind in JUDGED]
    times = Counter(r.id for r in found)
    seen = Counter[str]()
    out: dict[str, Rule] = {}
    for r in found:
        seen[r.id] += 1
        out[f"{r.id}/{seen[r.id]}" if times[r.id] > 1 else r.id] = r
    return out


@cache
def of_recipes() -> tuple[str, ...]:
    """The id of every rule of the stdlib in a block `of recipe`; tests/launch/test_rules.py has those of launches."""
    blocks = [(p, b) for p, b in load_stdlib().rules if b.subject is not None and b.subject.id == "recipe"]
    return tuple(
        f"{prefix}.{block.name.id}.{m.name.id}"
        for prefix, block in blocks
        for m in block.members
        if m.name is not None and not isinstance(m, ast.Let)
    )


def verdict(rule: Rule, run: Run | str) -> bool | None:
    """Whether a rule accepts a run (a symptom: finds a line of a log); None where a law or an advice says nothing of it."""
    if isinstance(run, str):
        assert isinstance(rule.expr, ast.String)
        return any(re.search(rule.expr.value, line) for line in run.split("\n"))
    program, _ = _problem(run.text, run.layout["gpus"], run.must_fit)
    env = _values(run, reads_price(rule, program.of("let")))
    if rule.kind in ("require", "prefer"):
        return holds(rule.expr, env) if _bears(rule, env) else None
    if rule.kind == "measured":
        return holds(rule.when, env)
    return _in_force(rule, program, env)


def in_run(run: Run) -> tuple[Program, Mapping[str, Any]]:
    """The program of a run, and every name of an expression with its value."""
    return _problem(run.text, run.layout["gpus"], run.must_fit)[0], _values(run, priced=False)


def _bears(rule: Rule, env: Mapping[str, Any]) -> bool:
    """Whether a rule's condition holds, and the left side of its implication."""
    asks = rule.expr.left if isinstance(rule.expr, ast.Binary) and rule.expr.op == "=>" else None
    return holds(rule.when, env) and holds(asks, env)


def _in_force(rule: Rule, program: Program, env: Mapping[str, Any]) -> bool:
    """Whether it is the first of its name that applies, and its value can be told."""
    rivals = [r for r in program.of(rule.kind) if rule.kind == "rank" or r.name == rule.name]
    rivals.sort(key=lambda r: r.id.startswith("std."))
    first = next((r for r in rivals if holds(r.when, env)), None)
    if first is None or first.span != rule.span:
        return False
    return rule.kind == "rank" or evaluate(rule.expr, env) is not None


@cache
def _problem(text: str, gpus: int, must_fit: str) -> tuple[Program, Problem]:
    result = checked(text)
    assert not result.failed, ([d.message for d in result.diagnostics], text)
    (program,) = result.programs
    return program, lower(program, gpus, {"must_fit": must_fit})


@cache
def _environment(text: str, gpus: int, must_fit: str) -> dict[str, Any]:
    problem = _problem(text, gpus, must_fit)[1]
    return environment(problem, make_cost(problem), pinned_row(problem))


def _values(run: Run, priced: bool) -> dict[str, Any]:
    """Every name of an expression with its value, the prices only where they are asked for."""
    gpus = run.layout["gpus"]
    env = dict(_environment(run.text, gpus, run.must_fit))
    if priced:
        problem = _problem(run.text, gpus, run.must_fit)[1]
        row = {n: np.array([code]) for n, code in pinned_row(problem).items()}
        cost = make_cost(problem)
        prices = {"peak_memory": float(cost.memory(row)[0]), "step_time": float(cost.time(row)[0])}
        prices |= {name: float(cost.spare(row, case)[0]) for name, case in SPARES.items()}
        env |= environment(problem, cost, pinned_row(problem), prices)
    return env

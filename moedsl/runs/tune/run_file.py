"""Write the run file of an experiment with another layout, and check that it is the same experiment."""

from __future__ import annotations

import os

from attrs import frozen

from moedsl.bridge.recipe_words import literal
from moedsl.compiler import compile_source
from moedsl.emit.settings import checkpoint_folder
from moedsl.facts import axes, recipes
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.planner.plan import Plan
from moedsl.rules.library import Library, used_name
from moedsl.runs.measured_runs import experiment
from moedsl.runs.tune.candidates import Codes
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.source import Source

_LENGTH = "train.train_iters"
"""The number of steps. `for` derives it from the goodput, which depends on the cluster."""


@frozen
class Base:
    """The program whose layout is varied: its text, its solution and its plan."""

    source: Source
    library: Library
    chosen: Chosen
    plan: Plan

    @property
    def start(self) -> Codes:
        """The layout that the plan chose."""
        return self.chosen.solution.rows[0].codes


@frozen
class RunFile:
    """A run file with its plan."""

    text: str
    plan: Plan


def machines(plan: Plan) -> str:
    """Return the number and type of a plan's GPUs; step times on other GPUs say nothing about them."""
    return f"{plan.gpus} {plan.hardware}"


def of_plan(plan: Plan) -> Source:
    """Return the run file of a plan, with the layout left open."""
    p, fields = plan.policy, {n: v for n, v in plan.derived.items() if n == _LENGTH} | dict(plan.set)
    data = [] if p.data == "mock" or plan.samples else [f"data {literal(p.data)}"]
    formats = f"pin moments={p.moments} grad_reduce={p.grad_reduce}"
    lines = [*experiment(plan), *data, formats, *(f"set {n} = {literal(v)}" for n, v in fields.items())]
    return Source(plan.name, "\n".join(lines) + "\n")


def base(source: Source) -> Base | list[Diagnostic]:
    """Compile the program to vary; returns errors unless it has exactly one run."""
    result = compile_source(source)
    if result.failed:
        return [d for d in result.diagnostics if d.is_error]
    if len(result.plans) != 1:
        return [error("tune.runs", source=source.name, count=len(result.plans))]
    return Base(source, result.library, result.chosen[0], result.plans[0])


def with_layout(b: Base, codes: Codes, remark: str, more: str = "") -> RunFile | Diagnostic:
    """Return the program with a layout pinned and `more` statements, or an error if it is not the same experiment."""
    p, domains = b.chosen.problem.program, b.chosen.problem.domains
    pins = {a.name: a.decode(codes[a.name]) for a in axes.AXES if a.name not in p.pins and len(domains[a.name]) > 1}
    # The result goes into another folder, so the paths of used files become absolute
    module, _ = parse(b.source)
    program = b.source.text
    for item in reversed(module.items if module else ()):
        if isinstance(item, ast.UseDecl):
            path = os.path.abspath(used_name(b.source, item))
            program = f'{program[: item.path.span.start]}"{path}"{program[item.path.span.end :]}'
    text = f"{program.rstrip()}\n\n# {remark}\n{recipes.pins(pins)}{more}"
    made = base(Source(b.source.name, text))
    if not isinstance(made, Base):
        return made[0]
    if made.start != codes:
        return error("tune.layout", source=b.source.name)
    if made.plan.experiment.fingerprint != b.plan.experiment.fingerprint:
        return error("tune.experiment:other-layout", source=b.source.name)
    return RunFile(text, made.plan)


def checkpoints_of(b: Base, name: str) -> str | Diagnostic:
    """Return the statement for a run's own checkpoint folder; empty if it writes no checkpoints.

    Without its own folder, it would resume from checkpoints of another layout.
    """
    folder = checkpoint_folder(b.plan)
    if folder is None:
        return ""
    if {"checkpoint.save", "checkpoint.load"} & b.plan.set.keys():
        return error("tune.checkpoints", source=b.source.name)
    return f'set checkpoint.save = "{folder}/{name}"\n'

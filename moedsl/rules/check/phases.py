"""Split a run with `workflow` into the phases fit, scale, profile and retune, each a program that is compiled alone.

Each phase starts from the plan of the one before: fit decides the number of GPUs, and profile keeps the layout of
scale. A phase is skipped if an earlier one has no plan, so that a failure is explained once.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from moedsl.lang import ast
from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic, Label, error

PHASES = {"fit": "fit", "scale": "scale", "profile": "profile", "retune": "throughput"}
"""The runs of a workflow in their order, and the phase of each."""


def phases(p: Program) -> list[Program]:
    """The run itself, or with `workflow` one program for each phase: main.fit, main.scale and so on."""
    if "workflow" not in p.spans:
        return [p]
    return [evolve(p, name=f"{p.name}.{word}", phase=phase, workflow=p.name) for word, phase in PHASES.items()]


def misplaced(fixed: Mapping[str, ast.Stmt]) -> list[Diagnostic]:
    """Report statements that a workflow excludes: a phase, a sweep or an isolation."""
    if "workflow" not in fixed:
        return []
    here = Label(fixed["workflow"].span, "every phase here")
    diagnostics: list[Diagnostic] = []
    if "phase" in fixed:
        text, help = "a workflow has all four phases and cannot name one", "drop `workflow` or the phase"
        diagnostics.append(error("check.workflow", text, fixed["phase"].span, here, help=help))
    if "sweep" in fixed:
        text, help = "a workflow can vary only its phases", "write a `run NAME { workflow ... }` for each value"
        diagnostics.append(error("check.workflow", text, fixed["sweep"].span, here, help=help))
    return diagnostics

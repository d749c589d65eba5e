"""`workflow`: the phases fit, scale, profile and retune of one run, each a program and a compile of its own.

Each phase starts from the plan of the one before: the number of GPUs is what fit settled, and profile takes the layout
of scale as it is. A phase is skipped where an earlier one has no plan, so that a failure is explained once.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from moedsl.checker.program import Program
from moedsl.diagnostics.model import Diagnostic, Label, error
from moedsl.syntax import ast

PHASES = {"fit": "fit", "scale": "scale", "profile": "profile", "retune": "throughput"}
"""The runs of a workflow in their order, and the phase of each."""


def phases(p: Program) -> list[Program]:
    """The run itself, or one program for each phase where it says `workflow`: main.fit, main.scale and so on."""
    if "workflow" not in p.spans:
        return [p]
    return [evolve(p, name=f"{p.name}.{word}", phase=phase, workflow=p.name) for word, phase in PHASES.items()]


def misplaced(fixed: Mapping[str, ast.Stmt]) -> list[Diagnostic]:
    """What a workflow excludes: naming one phase, and varying something beside it."""
    if "workflow" not in fixed:
        return []
    here = Label(fixed["workflow"].span, "every phase here")
    found: list[Diagnostic] = []
    if "phase" in fixed:
        text, help = "a workflow has all four phases, so it names none", "drop `workflow`, or the phase"
        found.append(error("check.workflow", text, fixed["phase"].span, here, help=help))
    if "sweep" in fixed:
        text, help = "a workflow varies nothing beside its phases", "write a `run NAME { workflow ... }` for each value"
        found.append(error("check.workflow", text, fixed["sweep"].span, here, help=help))
    return found

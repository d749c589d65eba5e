"""`workflow`: the phases fit, scale, profile and retune of one run, each a program and a compile of its own.

Each phase starts from the plan of the one before: the number of GPUs is what fit settled, and profile takes the layout
of scale as it is. A phase is skipped where an earlier one has no plan, so that a failure is explained once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from moedsl import ast
from moedsl.choose import Chosen, solve
from moedsl.choose import choose as choose_one
from moedsl.diagnostics import Diagnostic, Label, error
from moedsl.ir import Program

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


def choose(
    p: Program, earlier: Sequence[Chosen], progress: Callable[[str], None]
) -> tuple[tuple[Chosen, ...], list[Diagnostic]]:
    """The layout of one phase, from those of the phases before it; nothing where one of them has none."""
    before = [c for c in earlier if c.problem.program.workflow == p.workflow]
    if len(before) < [*PHASES.values()].index(p.phase):
        return (), []
    if before:
        p = evolve(p, gpus=before[0].problem.gpus)
    if p.phase == "profile":
        return (_unchanged(p, before[-1]),), []
    progress(f"{p.name}: solving")
    chosen, found = choose_one(p, progress)
    return (chosen,) if chosen is not None else (), found


def _unchanged(p: Program, scale: Chosen) -> Chosen:
    """The layout that scale chose, under the rules of profiling."""
    return evolve(solve(p, scale.problem.gpus, keep=0), solution=scale.solution)

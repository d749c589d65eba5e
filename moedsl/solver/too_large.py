"""Report what is too large if a search, or the reading of a file, reaches a limit."""

from __future__ import annotations

from moedsl.rules.check.program import Program
from moedsl.solver.problem import lower
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.limits import File, TooLarge

_AXES = 4


def diagnostic(reached: TooLarge) -> Diagnostic:
    """Name the run or the file, and the axes of the run that have the most values."""
    part = reached.part
    if isinstance(part, File):
        return error("read.too_large", part=part.name, limit=reached.limit)
    values: dict[str, object] = {}
    if isinstance(part, Program):
        domains = lower(part, part.gpus or part.hardware.gpus_per_node).domains
        largest = sorted(domains, key=lambda n: len(domains[n]), reverse=True)[:_AXES]
        values = {"domains": ", ".join(f"{len(domains[name])} values of {name}" for name in largest)}
    name = f"`{part.name}`" if isinstance(part, Program) else "the input"
    return error("solve.too_large", name=name, limit=reached.limit, values=values)

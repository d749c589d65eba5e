"""Report what is too large if a search, or the reading of a file, reaches a limit of time or memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from moedsl.checker.program import Program
from moedsl.diagnostics.model import Diagnostic, error
from moedsl.solver.problem import lower
from moedsl.support.limits import File, TooLarge

_AXES = 4


def diagnostic(reached: TooLarge) -> Diagnostic:
    """Name the run or the file, and the axes of a run with the most values."""
    part, limit = reached.part, reached.limit
    if isinstance(part, File):
        return error("read.too_large", f"{part.name} {limit}; reading it was stopped", help=part.help)
    p = cast("Program | None", part)
    text = f"{f'`{p.name}`' if p else 'the input'} {limit}: there is too much to search, and the search was stopped"
    help = "pin a value, state fewer `candidates`, give the number of GPUs, or write the runs into several files"
    values = {"domains": ", ".join(_largest(p))} if p else {}
    return error("solve.too_large", text, help=help, values=values)


def _largest(p: Program) -> Iterator[str]:
    """The axes of a run with the most values."""
    domains = lower(p, p.gpus or p.hardware.gpus_per_node).domains
    for name in sorted(domains, key=lambda n: len(domains[n]), reverse=True)[:_AXES]:
        yield f"{len(domains[name])} values of {name}"

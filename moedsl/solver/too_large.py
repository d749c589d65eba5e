"""Report what is too large if a search, or the reading of files, reaches a limit of time or memory."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.rules.check.program import Program
from moedsl.solver.problem import lower
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.limits import File, Place, TooLarge

_AXES = 4


def diagnostic(reached: TooLarge) -> Diagnostic:
    """Name the run or the file, how many were done before it, and the axes of a run with the most values."""
    several = [p for p in reached.places if p.done]
    if isinstance(reached.part, File):
        file = reached.part
        if several:
            text = f"the input {reached.limit}: {_done(several)} before reading was stopped at {file.name}"
            return error("read.too_large", text, help=("give the command fewer files at a time", file.help))
        return error("read.too_large", f"{file.name} {reached.limit}; reading it was stopped", help=file.help)
    p = reached.part if isinstance(reached.part, Program) else None
    values = {"domains": ", ".join(_largest(p))} if p else {}
    if p and several:
        text = f"the input {reached.limit}: {_done(several)} before the search was stopped at `{p.name}`"
        return error("solve.too_large", text, help=(*_fewer(several), _SMALLER), values=values)
    name = f"`{p.name}`" if p else "the input"
    text = f"{name} {reached.limit}: there is too much to search, and the search was stopped"
    return error("solve.too_large", text, help=f"{_SMALLER}, or write the runs into several files", values=values)


_SMALLER = "pin a value, state fewer `candidates`, give the number of GPUs"


def _done(several: list[Place]) -> str:
    """How many runs and files were done."""
    each = (f"{p.done:,} of {p.of:,} {_kind(p)} {'was' if p.done == 1 else 'were'} {p.did}" for p in several)
    return " and ".join(each)


def _fewer(several: list[Place]) -> Iterator[str]:
    """What to do about many runs or files."""
    if any(isinstance(p.part, File) for p in several):
        yield "give the command fewer files at a time"
    if any(not isinstance(p.part, File) for p in several):
        yield "`moedsl plan FILE --run NAME` plans one run; write the others into several files"


def _kind(p: Place) -> str:
    return "files" if isinstance(p.part, File) else "runs"


def _largest(p: Program) -> Iterator[str]:
    """The axes of a run with the most values."""
    domains = lower(p, p.gpus or p.hardware.gpus_per_node).domains
    for name in sorted(domains, key=lambda n: len(domains[n]), reverse=True)[:_AXES]:
        yield f"{len(domains[name])} values of {name}"

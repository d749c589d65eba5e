"""Run a command within the limits of time and memory, and report what is large in a program that reaches one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

from moedsl.support import limits

if TYPE_CHECKING:
    from moedsl.checker.program import Program

PLANS = ("compile", "explain", "plan", "report", "what_if")
"""Modules of the commands that only plan, and are bounded whole; of the others, `compile_source` is."""
_AXES = 4


def within(run: Callable[[Namespace], int], a: Namespace) -> int:
    """Run a command; if it reaches a limit, report that. Returns the exit code."""
    with limits.turned_on():
        try:
            with limits.bounded() if a.module in PLANS else nullcontext():
                return run(a)
        except limits.TooLarge as reached:
            limit, program = reached.limit, cast("Program | None", reached.run)
    return _refused(a, limit, program)


def _refused(a: Namespace, limit: str, p: Program | None) -> int:
    """Print what is large in the run that was stopped; returns the exit code."""
    from moedsl.cli import talk  # a command that ends in time has no need of it
    from moedsl.diagnostics.model import error

    text = f"{f'`{p.name}`' if p else 'the program'} {limit}: there is too much to search, and the command was stopped"
    help = "pin a value, state fewer `candidates`, give the number of GPUs, or write the runs into several files"
    values = {"domains": ", ".join(_largest(p))} if p else {}
    return talk.refused(a, [error("solve.too_large", text, help=help, values=values)])


def _largest(p: Program) -> Iterator[str]:
    """The axes of a run with the most values."""
    from moedsl.solver.problem import lower

    domains = lower(p, p.gpus or p.hardware.gpus_per_node).domains
    for name in sorted(domains, key=lambda n: len(domains[n]), reverse=True)[:_AXES]:
        yield f"{len(domains[name])} values of {name}"

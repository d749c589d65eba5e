"""Run a command within the limits of time and memory, and report what is too large if it reaches one."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext

from moedsl.support import limits

LONG = (
    "calibrate", "cancel", "data", "jobs", "logs", "lsp", "profile", "rehearse", "run", "serve", "tune", "watch",
    "weights",
)  # fmt: skip
"""Modules of the commands that fit, serve, train, wait or read traces of any size. Of these, what they plan is bounded;
of the others, all is."""


def within(run: Callable[[Namespace], int], a: Namespace) -> int:
    """Run a command; if it reaches a limit, report that. Returns the exit code."""
    with limits.turned_on():
        try:
            with nullcontext() if a.module in LONG else limits.bounded():
                return run(a)
        except limits.TooLarge as stopped:
            reached = stopped
    from moedsl.cli import talk  # a command that ends in time has no need of it
    from moedsl.solver.too_large import diagnostic

    return talk.refused(a, [diagnostic(reached)])

"""Stop a command that plans after a minute of a core, and report what is large in its program."""

from __future__ import annotations

import signal
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager

SECONDS = 55.0
"""Of a core; with the report a command needs less than 60."""
BOUNDED = ("check", "compile", "explain", "plan", "report", "what_if")
"""Modules of the commands that only plan."""
_RUNS, _AXES = 3, 4


class TooLarge(KeyboardInterrupt):
    """The limit, which undoes what Ctrl-C undoes."""


def within(run: Callable[[Namespace], int], a: Namespace) -> int:
    """Run a command; if it plans and reaches the limit, report that. Returns the exit code."""
    try:
        with _limited(a.module):
            return run(a)
    except TooLarge:
        return _refused(a)


@contextmanager
def _limited(module: str) -> Generator[None]:
    """Raise TooLarge in a command that plans, after its seconds."""

    def stop(*_: object) -> None:
        raise TooLarge

    if module not in BOUNDED:
        yield
        return
    try:
        before = signal.signal(signal.SIGPROF, stop)
    except ValueError:  # a thread of another program: it has its own limits
        yield
        return
    signal.setitimer(signal.ITIMER_PROF, SECONDS, 1)  # again, if an exception was lost in a callback
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _refused(a: Namespace) -> int:
    """Print what is large in the program of a command that was stopped; returns the exit code."""
    from moedsl.cli import talk  # a command that ends in time has no need of it
    from moedsl.diagnostics.model import error

    message = f"there is too much to search: the command was stopped after {SECONDS:g} s of a core"
    help = "pin a value, state fewer `candidates`, give the number of GPUs, or write the runs into several files"
    return talk.refused(a, [error("solve.too_large", message, help=help, values=dict(_sizes(a)))])


def _sizes(a: Namespace) -> Iterator[tuple[str, str]]:
    """The number of runs of a file, and the axes with the most values of the first ones."""
    from moedsl.cli import talk
    from moedsl.compiler import compile_source
    from moedsl.solver.problem import lower

    file = a.files[0] if getattr(a, "files", None) else getattr(a, "file", None)
    source = talk.source_of(Namespace(file=file, expression=a.expression))[0] if file != "-" else None
    programs = compile_source(source, "check", like=a.like).programs if source else ()
    if len(programs) > 1:
        yield "runs", str(len(programs))
    for p in programs[:_RUNS]:
        domains = lower(p, p.gpus or p.hardware.gpus_per_node).domains
        most = sorted(domains, key=lambda n: len(domains[n]), reverse=True)[:_AXES]
        yield p.name, ", ".join(f"{len(domains[n])} values of {n}" for n in most)

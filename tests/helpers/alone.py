"""Run a test in a fork of its worker, which may then signal itself."""

import multiprocessing
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def alone(test: Callable[P, None]) -> Callable[P, None]:
    """The test, run by a process of its own; its failure is on stderr."""

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        process = multiprocessing.get_context("fork").Process(target=test, args=args, kwargs=options)
        process.start()
        process.join()
        assert process.exitcode == 0

    return run

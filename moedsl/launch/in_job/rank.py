"""Run the program of one rank and say when and how it fails: `python3 moedsl_rank.py PROGRAM.py ARGUMENTS...`.

Every job includes this file unchanged; it needs no package, and nothing newer than Python 3.8. Of many ranks that fail,
the first is the cause, and only clocks can tell which that was: the others end seconds later, with other errors. If
MOEDSL_RANK_LOGS names a folder, the rank has a log of its own there (rank_log.py).
"""

from __future__ import annotations

import importlib
import io
import os
import runpy
import sys
from datetime import datetime, timezone

LONGEST = 1000
"""The most characters of an error in the line of a rank."""


def main(program: str) -> None:
    """Run the program in this process, as `python3 PROGRAM.py` does, but print each line when it is complete.

    Ranks share their output, and `-u`, with which the script starts them, would write each argument of `print` by
    itself. Without `-u`, a handler of signals that prints while the program prints ends it (a reentrant call).
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)
    try:
        runpy.run_path(program, run_name="__main__")
    except KeyboardInterrupt:
        raise
    except SystemExit as end:
        if end.code not in (None, 0):
            failed(f"exit code {end.code}" if isinstance(end.code, int) else str(end.code))
        raise
    except BaseException as problem:
        failed(f"{type(problem).__name__}: {problem}")
        record(problem)
        raise


def failed(error: str) -> None:
    """Write the line that `moedsl` looks for, in one call, so that lines of ranks do not mix."""
    os.write(2, f"{line(error)}\n".encode(errors="replace"))


def line(error: str) -> str:
    """The line of this rank's failure, now."""
    rank, node = os.environ.get("RANK", "0"), os.uname().nodename
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017, Python 3.11's
    text = " ".join(error.split())[:LONGEST]
    return f"moedsl: rank {rank} on {node} failed at {now}: {text}"


def record(problem: BaseException) -> None:
    """Tell torchrun the error, as torch's decorator `record` does; it prints the first one at the end."""
    if "TORCHELASTIC_ERROR_FILE" in os.environ and "torch" in sys.modules:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        get_error_handler().record_exception(problem)


def number() -> None:
    """Write the number of this process next to this file, for the script that signals ranks of torchrun."""
    path = os.path.join(
        os.path.dirname(os.path.abspath(__file__)), ".rank.{}".format(os.environ.get("LOCAL_RANK", "0"))
    )
    with open(path, "w") as file:
        file.write(f"{os.getpid()}\n")


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        number()
    if os.environ.get("MOEDSL_RANK_LOGS"):
        keep = importlib.import_module("moedsl_rank_log").keep
        keep(os.environ["MOEDSL_RANK_LOGS"], lambda: line("killed, or ended without an exit of Python"))
    del sys.argv[0]
    main(sys.argv[0])

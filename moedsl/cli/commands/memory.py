"""`moedsl memory SNAPSHOT`: what was allocated at the peak. Exit 1 if the snapshot cannot be read."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from moedsl.cli import talk
from moedsl.cli.traced import judged_by
from moedsl.diagnostics.model import Diagnostic, Label, error
from moedsl.diagnostics.source import Span
from moedsl.snapshot import plain_pickle, replay
from moedsl.snapshot.report import compare, report
from moedsl.snapshot.text import text
from moedsl.support import limits


def run(a: Namespace) -> int:
    judged = judged_by(a)
    if isinstance(judged, int):
        return judged
    classes, planned = judged
    memory = _read(Path(a.snapshot))
    if isinstance(memory, Diagnostic):
        return talk.refused(a, [memory])
    each = [report(Path(a.snapshot).name, one, classes) for one in memory]
    for r in each if planned else ():
        r["plans"] = [compare(r, p) for p in planned.plans] if planned else []
    _print(a, each)
    return 0


def _print(a: Namespace, each: list[dict[str, Any]]) -> None:
    if a.json:
        talk.print_json({"version": 1, "devices": each})
    else:
        talk.print_text(lambda: "\n".join(map(text, each)), end="")


def _read(path: Path) -> list[replay.Memory] | Diagnostic:
    """Read the devices of a snapshot, or say why not."""
    at = Label(Span(str(path), 0, 0))
    if Path(os.path.realpath(path)).is_fifo():  # a pipe of the shell has no name there, and is read
        return error("read.special", f"{path} is not a regular file", at, help="save it as a file first")
    try:
        with limits.of_part(limits.File(str(path))), path.open("rb") as stream:
            found = replay.devices(plain_pickle.load(stream))
    except FileNotFoundError:
        return error("read.missing", f"{path} does not exist", at, help="check the path")
    except IsADirectoryError:
        return error("read.directory", f"{path} is a directory", at, help="name one snapshot in it")
    except OSError as e:
        return error("read.denied", f"{path} cannot be read: {e.strerror or e}", at, help="check its permissions")
    except (plain_pickle.NotPlain, replay.NoSnapshot) as e:
        help = "give the file that `torch.cuda.memory._dump_snapshot` or Bridge's `record_memory_history` wrote"
        return error("memory.snapshot", f"{path} is no memory snapshot: {e}", at, help=help)
    if not any(m.peak for m in found):
        help = "record with `profiling.record_memory_history = true`, and write the snapshot before the job ends"
        return error("memory.empty", f"{path} has no allocation", at, help=help)
    return [m for m in found if m.peak]

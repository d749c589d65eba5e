"""Make the report of one or several traces as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from moedsl.runs.profile import opened, ranks, steps
from moedsl.runs.profile.budget import budget
from moedsl.runs.profile.kinds import Classes
from moedsl.runs.profile.trace import UNKNOWN, Trace
from moedsl.support.diagnostics import Diagnostic, Label, error, warning
from moedsl.support.source import Span

Json = dict[str, Any]
VERSION = 1
LONG = 5e6
"""Nanoseconds; of real kernels half are shorter by far."""
ENOUGH = 0.95
"""The share of operations whose launch is known, below which a remark says so."""


def reports(path: Path, classes: Classes, said: opened.Said) -> tuple[list[Json], list[Diagnostic]]:
    """Read the traces of a file, and divide the steps of each."""
    found = opened.traces(path, lambda text: classes.step(text) is not None, said)
    if isinstance(found, Diagnostic):
        return [], [found]
    each = [_one(t, path, classes) for t in found] or [_empty(path)]
    wrong = [r for r in each if isinstance(r, Diagnostic)]
    fine = [r for r in each if not isinstance(r, Diagnostic)]
    return fine, [_left_out(d) for d in wrong] if fine else wrong


def _left_out(wrong: Diagnostic) -> Diagnostic:
    """Say that a process or device has no steps, where others of its file have: an observer, or a loader of data."""
    return warning("profile.left_out", f"{wrong.message}; it is left out", *wrong.labels, help=wrong.help)


def _one(t: Trace, path: Path, classes: Classes) -> Json | Diagnostic:
    if not len(t.start):
        return _empty(path)
    found = steps.find(t, classes)
    if found is None or not found.used:
        text = (
            f"{t.name} has no steps: no range of the host names them, and neither the optimizer nor another operation "
            f"recurs{'; '.join(['', *t.warnings])}"
        )
        help = (
            "mark each step with an NVTX range such as `step 12`, or call `step()` of PyTorch's profiler",
            'name another range by `rules steps of trace { symptom mine: "PATTERN" ... }` in the file of --run',
        )
        return error("profile.no_steps", text, Label(Span(str(path), 0, 0)), help=help)
    about = {"trace": t.name, "tool": t.tool, "rank": t.rank, "world": t.world, "device_name": t.device}
    return about | {"on_cpu": t.on_cpu, "remarks": _remarks(t)} | budget(t, found, classes)


def _remarks(t: Trace) -> list[str]:
    """Say what limits the trace: what its tool warns of, and operations whose launch it does not have."""
    known = float(np.mean(t.launched != UNKNOWN))
    few = f"the trace has the launch of {known:.0%} of the operations: why the GPU was idle before others is unknown"
    middle = float(np.median(t.end - t.start))
    long = (
        f"half of the operations last more than {middle / 1e6:,.0f} ms: if the file counts nanoseconds instead of "
        "microseconds, all times are a thousandth of these"
    )
    some = ((known < ENOUGH and not t.on_cpu, few), (middle > LONG and not t.on_cpu, long))
    return [*t.warnings, *(text for holds, text in some if holds)]


def _empty(path: Path) -> Diagnostic:
    text = f"{path} has no operation of a device or of PyTorch"
    help = "trace CUDA (`nsys profile -t cuda,nvtx`), or let the profiler's schedule reach its active steps"
    return error("profile.empty", text, Label(Span(str(path), 0, 0)), help=help)


def whole(each: Sequence[Json]) -> tuple[Json, list[Diagnostic]]:
    """Join the reports of ranks: the figures of the representative of all, and a line for each rank."""
    groups = ranks.parts(each)
    chosen = [ranks.representative(each, part) for part in groups]
    shown = max(chosen, key=lambda i: each[i]["device"]["compute_s"])
    data = {"version": VERSION, **each[shown], "ranks": ranks.survey(each, groups)}
    if len(each) > 1:
        data |= {"parts": [each[i] for i in chosen], "spread": ranks.spread(each, groups)}
    if len(groups) == 1:
        return data, []
    text = f"the traces are of {len(groups)} different parts of the model, which are not compared with each other"
    named = "; ".join(", ".join(each[i]["trace"] for i in part) for part in groups)
    help = f"{named}. The table is of {each[shown]['trace']}, which computes most; --json has each part"
    return data, [warning("profile.parts", text, help=help)]

"""Make the report of a snapshot as JSON: the peak by kind, module and source, fragmentation, and the plan's table."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from moedsl.facts.units import GIB
from moedsl.planner.model.estimate import MEMORY
from moedsl.planner.model.plan import Plan
from moedsl.runs.profile.kinds import NO_CLASS, Classes
from moedsl.runs.snapshot.replay import Frames, Live, Memory
from moedsl.runs.snapshot.stages import NEAREST, Given, stage_of

Json = dict[str, Any]
SHOWN = 15
"""Sources that are listed."""
LIBRARIES = re.compile(
    r"/(torch|triton|transformer_engine|contextlib|functools|threading)(/|\.py)|^<|^\?\?|\.(cpp|cu|h|so)$"
)
"""Files that are not the model's: the source of an allocation is the first frame outside them."""
BEFORE = "before the history"
HISTORY = 100_000
"""The events that Bridge's `record_memory_history` keeps (bridge training/utils/train_utils.py:211)."""
ROWS: Mapping[str, tuple[str, ...]] = {
    "weights and gradients": ("weights", "gradients", "weights_or_gradients"),
    "optimizer": ("optimizer",),
    "activations and buffers": ("activations", "buffers", "graphs", "data"),
}
"""The kinds of a snapshot in each row of the comparison. In releases whose lines are not known, weights and gradients
are one; the working memory of a layer has the frames of its forward pass."""


def report(given: Given, memory: Memory, classes: Classes) -> Json:
    """Return the memory of one device."""
    kinds, sources = defaultdict[str, int](int), defaultdict[tuple[str, str], list[int]](lambda: [0, 0])
    modules = defaultdict[tuple[str, str], int](int)
    for one in memory.live:
        kind, source = _kind(one, classes), _source(one.frames)
        kinds[kind] += one.size
        modules[kind, _module(one.frames)] += one.size
        entry = sources[kind, source]
        entry[0] += one.size
        entry[1] += 1
    return {
        "snapshot": given.path.name, "rank": given.rank, "stage": given.stage, "device": memory.device,
        "peak_gib": memory.peak / GIB, "events": memory.events,
        "ended_by": memory.ended_by, "at_start_gib": memory.at_start / GIB, "at_end_gib": memory.at_end / GIB,
        "reserved_gib": memory.reserved / GIB, "over_time_gib": [round(b / GIB, 3) for b in memory.over_time],
        "fragmentation": {"inactive_gib": memory.inactive / GIB,
                          "share": memory.inactive / memory.reserved if memory.reserved else 0.0},
        "kinds": [{"kind": k, "gib": b / GIB, "share": b / memory.peak} for k, b in _largest(kinds)],
        "modules": [{"kind": k, "module": m, "gib": b / GIB} for (k, m), b in _largest(modules)[:SHOWN]],
        "sources": [{"kind": k, "source": s, "gib": b / GIB, "allocations": n}
                    for (k, s), (b, n) in sorted(sources.items(), key=lambda e: -e[1][0])[:SHOWN]],
        "remarks": _remarks(memory, kinds),
    }  # fmt: skip


def _largest(sizes: Mapping[Any, int]) -> list[tuple[Any, int]]:
    return sorted(sizes.items(), key=lambda e: -e[1])


def _kind(one: Live, classes: Classes) -> str:
    """Return the kind of an allocation, by the innermost frame that a pattern names."""
    if not one.frames:
        return BEFORE
    found = (classes.memory(f"{file}:{line} {function}") for file, line, function in one.frames)
    return next((k for k in found if k is not None), NO_CLASS)


def _source(frames: Frames) -> str:
    """Return the first frame outside libraries as `function@file.py:line`."""
    mine = next((f for f in frames if not LIBRARIES.search(f[0])), None)
    if mine is None:
        return BEFORE if not frames else f"{frames[0][2]}@{frames[0][0].rpartition('/')[2]}:{frames[0][1]}"
    return f"{mine[2]}@{mine[0].rpartition('/')[2]}:{mine[1]}"


def _module(frames: Frames) -> str:
    """Return the file of the first frame outside libraries, as `transformer/moe/experts`."""
    mine = next((f[0] for f in frames if not LIBRARIES.search(f[0])), "")
    return re.sub(r"^.*/(site-packages|dist-packages|opt|workspace)/|\.py$", "", mine) or "-"


def _remarks(memory: Memory, kinds: Mapping[str, int]) -> list[str]:
    some = (
        (memory.events == 0, "the snapshot has no history: the figures are of the moment when it was written"),
        (memory.events >= HISTORY, f"the history is full at {memory.events:,} events: what is older has no frames"),
        (memory.ended_by == "oom", "the allocator ran out of memory: the peak is without the allocation that failed"),
        (
            kinds.get(NO_CLASS, 0) > 0.05 * memory.peak,
            "more than 5% of the peak has no known kind: add patterns in `rules memory of trace`",
        ),
    )  # fmt: skip
    return [text for holds, text in some if holds]


def compare(r: Json, plan: Plan) -> Json:
    """Return the peak next to a stage of the plan's table: that of the snapshot, or the nearest if it is not known."""
    measured = {k["kind"]: k["gib"] for k in r["kinds"]}
    stages = plan.estimate.memory.stages
    known = stage_of(r["rank"], r["stage"], plan)
    at, by = known or (min(range(len(stages)), key=lambda i: abs(stages[i].total_gib - r["peak_gib"])), NEAREST)
    planned = stages[at]
    rows: list[Json] = [
        {"part": part, "measured_gib": sum(measured.get(k, 0.0) for k in kinds),
         "predicted_gib": sum(getattr(planned, f"{k}_gib") for k in kinds if k in MEMORY)}
        for part, kinds in ROWS.items()
    ]  # fmt: skip
    named = {k for kinds in ROWS.values() for k in kinds}
    rows.append({"part": "without a kind", "measured_gib": sum(s for k, s in measured.items() if k not in named),
                 "predicted_gib": 0.0})  # fmt: skip
    rows.append({"part": "peak", "measured_gib": r["peak_gib"], "predicted_gib": planned.total_gib})
    return {"run": plan.name, "stage": at, "stage_by": by, "of_stages": len(stages), "table": rows,
            "stages_gib": [s.total_gib for s in stages],
            "lower_gib": plan.estimate.memory.lower_gib, "upper_gib": plan.estimate.memory.upper_gib}  # fmt: skip

"""Report a snapshot as JSON and as text: the peak by kind, module and source, fragmentation, and the plan's table.

A snapshot states neither its rank nor its pipeline stage: the name of its file may, the user can, or the peak decides.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.facts import rank_groups
from moedsl.facts.units import GIB
from moedsl.planner.model.estimate import MEMORY
from moedsl.planner.model.plan import Plan
from moedsl.runs.profile.kinds import NO_CLASS, Classes
from moedsl.runs.snapshot.replay import Frames, Live, Memory
from moedsl.support.text import table, wrapped

RANK = re.compile(r"_(?:oom_rank-)?(\d{1,7})\.[^.]+$")
"""What Bridge adds to the name of each rank's file (bridge training/utils/train_utils.py:225, :840)."""
PP_FIRST = "dist.use_tp_pp_dp_mapping"
ONLY, GIVEN, BY_NAME, NEAREST = "only", "given", "name", "nearest"
"""How the stage is known: the plan has one, the user names it, by the rank in the file's name, or by the peak."""


@frozen
class Given:
    """A snapshot as a person names it: FILE, or FILE=STAGE."""

    path: Path
    stage: int | None

    @classmethod
    def of(cls, text: str) -> Given:
        path, sign, stage = text.rpartition("=")
        if sign and stage.isdecimal() and len(stage) < 8 and not Path(text).exists():
            return cls(Path(path), int(stage))
        return cls(Path(text), None)

    @property
    def rank(self) -> int | None:
        """The rank in the file's name, as Bridge writes it."""
        found = RANK.search(self.path.name)
        return int(found[1]) if found else None


def stage_of(rank: int | None, given: int | None, plan: Plan) -> tuple[int, str] | None:
    """Return the stage of a snapshot in a plan, and how it is known; None if it is not."""
    if given is not None:
        return given, GIVEN
    if plan.layout.pp == 1:
        return 0, ONLY
    if rank is None or rank >= plan.gpus:
        return None
    groups = rank_groups.groups(plan.layout.to_json(), plan.set.get(PP_FIRST) is True)
    return next(group.index(rank) for group in groups["PP"] if rank in group), BY_NAME


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
        # Return the file of the first frame outside libraries, as `transformer/moe/experts`
        mine = next((f[0] for f in one.frames if not LIBRARIES.search(f[0])), "")
        modules[kind, (re.sub(r"^.*/(site-packages|dist-packages|opt|workspace)/|\.py$", "", mine) or "-")] += one.size
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


def text(each: Sequence[Json]) -> str:
    """Print the report of each device, or of several ranks a table and the report of the fullest."""
    if len({r["snapshot"] for r in each}) < 2:
        return "\n".join(map(_one, each))
    plans = [[r["plans"][i] for r in each] for i in range(len(each[0].get("plans", ())))]
    fullest = max(each, key=lambda r: r["peak_gib"])
    blocks = [_ranks(each), *(_by_stage(each, p) for p in plans), ["The fullest of them (--json has each)"]]
    return "\n\n".join("\n".join(b) for b in blocks) + "\n\n" + _one(fullest)


def _one(r: Json) -> str:
    rows = [(k["kind"], _gib(k["gib"]), f"{k['share']:.1%}") for k in r["kinds"]]
    blocks = [
        _head(r),
        ["Live at the peak, by kind", *table(rows, "lr")],
        _modules(r),
        _sources(r),
        *(_compared(c, r["rank"]) for c in r.get("plans", ())),
    ]
    return "\n\n".join("\n".join(b) for b in blocks if b) + "\n"


def _ranks(each: Sequence[Json]) -> list[str]:
    """Print the peak of each rank by kind."""
    kinds = [*dict.fromkeys(k["kind"] for r in each for k in r["kinds"])]
    rows = [("snapshot", "rank", "peak", *kinds)]
    for r in each:
        sizes = {k["kind"]: f"{k['gib']:.1f}" for k in r["kinds"]}
        rank = "-" if r["rank"] is None else str(r["rank"])
        rows.append((r["snapshot"], rank, f"{r['peak_gib']:.1f}", *(sizes.get(k, "-") for k in kinds)))
    return ["Live at the peak, by rank and kind, GiB", *table(rows, "lr")]


def _by_stage(each: Sequence[Json], plans: Sequence[Json]) -> list[str]:
    """Print the peak of each rank next to that of its stage in the plan."""
    first = plans[0]
    rows = [("stage", "predicted", "measured", "difference", "of")]
    for stage in range(first["of_stages"]):
        mine = [(r, p) for r, p in zip(each, plans, strict=True) if p["stage"] == stage]
        for r, p in mine:
            peak = p["table"][-1]
            rows.append((str(stage), *_line(peak), f"{r['snapshot']}, {_known(p, r['rank'])}"))
        if not mine:
            rows.append((str(stage), _gib(first["stages_gib"][stage]), "-", "-", "no snapshot"))
    return [f"Compared with the plan of {first['run']}, by stage", *table(rows, "rrrrl")]


def _head(r: Json) -> list[str]:
    unused = r["fragmentation"]
    return [
        f"{r['snapshot']}: device {r['device']}, peak {_gib(r['peak_gib'])} in {r['events']:,} events",
        f"  {_gib(r['at_start_gib'])} before the first event, {_gib(r['at_end_gib'])} at the end",
        f"  reserved {_gib(r['reserved_gib'])} at the end, {unused['share']:.1%} unused",
        *(wrapped(text, "  remark: ", " " * 10) for text in r["remarks"]),
    ]


def _modules(r: Json) -> list[str]:
    rows = [(m["module"], m["kind"], _gib(m["gib"])) for m in r["modules"]]
    return ["Live at the peak, by module", *table([("module", "kind", "size"), *rows], "llr")]


def _sources(r: Json) -> list[str]:
    rows = [(s["source"], s["kind"], _gib(s["gib"]), f"{s['allocations']:,}") for s in r["sources"]]
    return ["Live at the peak, by source", *table([("source", "kind", "size", "allocations"), *rows], "llr")]


def _compared(c: Json, rank: int | None) -> list[str]:
    rows = [("", "predicted", "measured", "difference"), *((x["part"], *_line(x)) for x in c["table"])]
    head = f"Compared with the plan of {c['run']}, stage {c['stage']} of 0 to {c['of_stages'] - 1}: {_known(c, rank)}"
    return [
        wrapped(head, "", "  "),
        *table(rows, "lr"),
        f"  its fullest stage has {_gib(c['lower_gib'])} to {_gib(c['upper_gib'])}",
    ]


def _line(x: Json) -> tuple[str, str, str]:
    difference = f"{x['measured_gib'] - x['predicted_gib']:+.1f} GiB"
    return _gib(x["predicted_gib"]), _gib(x["measured_gib"]), difference


def _known(c: Json, rank: int | None) -> str:
    """Say how the stage is known."""
    return {
        ONLY: "the only one",
        GIVEN: "as given",
        BY_NAME: f"rank {rank} by the file's name",
        NEAREST: "the one whose total is nearest; give SNAPSHOT=STAGE if it is another",
    }[c["stage_by"]]


def _gib(size: float) -> str:
    return f"{size:.2f} GiB" if size < 1 else f"{size:.1f} GiB"

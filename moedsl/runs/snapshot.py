"""Read a snapshot of PyTorch's allocator, and report what was live at the peak: by kind, module and source.

A snapshot is a pickle of plain values, and is read without executing anything. Its history is replayed backwards from
the blocks that are allocated at the end, undoing each event. So the bytes at every moment of the history are known,
including those allocated before its first event.

A snapshot states neither its rank nor its pipeline stage: the stage is given by the user, follows from the rank in the
file's name, or is the one with the nearest peak.
"""

from __future__ import annotations

import io
import os
import pickle
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from attrs import frozen

from moedsl.facts import machines
from moedsl.facts.units import GIB
from moedsl.planner.estimate import MEMORY
from moedsl.planner.plan import Plan
from moedsl.runs.profile.steps import NO_CLASS, Classes
from moedsl.support.text import table, wrapped

LARGEST = 2 << 30
"""The most bytes of a pickle. A snapshot of the 100,000 events that Bridge records has far fewer."""


class NoSnapshot(ValueError):
    """Raised for a file that is damaged, is not a snapshot, or has more than plain values; says which."""


class _Plain(pickle.Unpickler):
    """Unpickles lists, dictionaries, numbers and strings; they need no globals, so looking one up is an error."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise NoSnapshot(f"it names {module}.{name}, and reading it would run code")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise NoSnapshot("it refers to another file")


def load(stream: BinaryIO) -> Any:
    """Read one value, of at most `LARGEST` bytes; raises NoSnapshot."""
    whole = stream if stream.seekable() else io.BytesIO(stream.read(LARGEST + 1))
    if whole.seek(0, os.SEEK_END) > LARGEST:
        raise NoSnapshot(f"it has more than {LARGEST >> 30} GiB")
    whole.seek(0)
    try:
        return _Plain(whole).load()
    except NoSnapshot:
        raise
    except MemoryError:  # a length beyond any memory
        raise NoSnapshot("it is damaged, or too large for the memory of this machine") from None
    except (pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError, OverflowError) as e:
        raise NoSnapshot(f"it is damaged or no pickle: {e}") from None


ALLOCATED = "active_allocated"
IN_USE = (ALLOCATED, "active_awaiting_free", "active_pending_free")
"""States of blocks that no other allocation can have; the last is of PyTorch 2.13 (csrc/cuda/memory_snapshot.cpp)."""
DRAWN = 500
ALLOC, FREE = "alloc", "free_requested"
Frames = tuple[tuple[str, int, str], ...]
"""File, line and function of each Python frame, the innermost first."""


@frozen
class Memory:
    """The memory of one device, in bytes."""

    device: int
    peak: int
    live: tuple[tuple[int, Frames], ...]
    """The bytes and frames of the allocations that were live at the peak; one without frames is older than the history,
    or from C++."""
    at_start: int
    """Bytes that were allocated before the first event of the history."""
    at_end: int
    reserved: int
    inactive: int
    """Reserved, but neither allocated nor awaiting a free."""
    events: int
    ended_by: str
    """oom if the history ends with an out-of-memory event, else empty."""
    over_time: tuple[int, ...]
    """The most bytes in each of at most `DRAWN` equal parts of the history."""


def devices(snapshot: Any) -> list[Memory]:
    """Read each device that has segments or a history; raises NoSnapshot."""
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise NoSnapshot("it has no list `segments`, which every snapshot of PyTorch's allocator has")
    traces = snapshot.get("device_traces") or []
    try:
        used = {int(s.get("device", 0)) for s in snapshot["segments"]} | {i for i, t in enumerate(traces) if t}
        return [
            _device(d, [s for s in snapshot["segments"] if s.get("device", 0) == d], (traces[d : d + 1] or [[]])[0])
            for d in sorted(used)
        ]
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as e:
        raise NoSnapshot(f"an entry of it is not as PyTorch writes it: {type(e).__name__} {e}") from None


def _device(device: int, segments: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Memory:
    blocks = list[tuple[int, Mapping[str, Any]]]()
    for s in segments:
        at = s["address"]
        for block in s["blocks"]:
            blocks.append((block.get("address", at), block))  # older snapshots state only the segment's address
            at += block["size"]
    now = {address: block for address, block in blocks if block["state"] == ALLOCATED}
    at_end = total = sum(_size(b) for b in now.values())
    peak, at = total, len(events)
    parts = [0] * min(DRAWN, max(len(events), 1))
    parts[-1] = total
    for i, event in reversed([*enumerate(events)]):
        sign = {ALLOC: 1, FREE: -1}.get(event["action"], 0)
        total -= sign * _size(event) if sign else 0
        part = i * len(parts) // len(events)
        parts[part] = max(parts[part], total)
        if total > peak:
            peak, at = total, i
    # What was live before event `at`: undo the events after it, and look up the frames of each allocation
    live: dict[int, tuple[int, Any]] = {}
    for address, block in now.items():
        history = block.get("history") or [{}]  # before PyTorch 2.1 the history has the frames
        live[address] = block["size"], block.get("frames") or history[0].get("frames") or ()
    for event in reversed(events[at:]):
        if event["action"] == ALLOC:
            live.pop(event["addr"], None)
        elif event["action"] == FREE:
            live[event["addr"]] = (event["size"], ())
    made = {e["addr"]: e.get("frames") for e in events[:at] if e["action"] == ALLOC}  # the last one at each address
    each = tuple(
        (size, tuple((str(f["filename"]), int(f["line"]), str(f["name"])) for f in made.get(a, frames) or ()))
        for a, (size, frames) in live.items()
    )
    reserved = sum(_size(s, "total_size") for s in segments)
    in_use = sum(_size(b) for _, b in blocks if b["state"] in IN_USE)
    return Memory(
        device, peak, each, total, at_end, reserved, reserved - in_use, len(events),
        "oom" if any(e["action"] == "oom" for e in events[-3:]) else "", tuple(parts),
    )  # fmt: skip


def _size(of: Mapping[str, Any], name: str = "size") -> int:
    """Return a size, which PyTorch writes as an integer of 64 bits; raises ValueError if it is not one."""
    size = of[name]
    if not isinstance(size, int) or not 0 <= size < 1 << 63:
        raise ValueError(f"`{name}` is not a number of bytes")
    return size


RANK = re.compile(r"_(?:oom_rank-)?(\d{1,7})\.[^.]+$")
"""Matches the rank that Bridge adds to the name of each rank's file (bridge training/utils/train_utils.py:225,
:840)."""
PP_FIRST = "dist.use_tp_pp_dp_mapping"
ONLY, GIVEN, BY_NAME, NEAREST = "only", "given", "name", "nearest"
"""How the stage is known: the plan has only one, the user gave it, the file's name has the rank, or its peak is
nearest."""


@frozen
class Given:
    """A snapshot as given on the command line: FILE, or FILE=STAGE."""

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
        """The rank in the file's name, as Bridge writes it; None if there is none."""
        found = RANK.search(self.path.name)
        return int(found[1]) if found else None


def stage_of(rank: int | None, given: int | None, plan: Plan) -> tuple[int, str] | None:
    """Return the pipeline stage of a snapshot, and how it is known; None if it is unknown."""
    if given is not None:
        return given, GIVEN
    if plan.layout.pp == 1:
        return 0, ONLY
    if rank is None or rank >= plan.gpus:
        return None
    groups = machines.rank_groups(plan.layout.to_json(), plan.set.get(PP_FIRST) is True)
    return next(group.index(rank) for group in groups["PP"] if rank in group), BY_NAME


Json = dict[str, Any]
SHOWN = 15
"""The most modules and the most sources that are listed."""
LIBRARIES = re.compile(
    r"/(torch|triton|transformer_engine|contextlib|functools|threading)(/|\.py)|^<|^\?\?|\.(cpp|cu|h|so)$"
)
"""Matches files of libraries: the source of an allocation is the first frame outside them."""
BEFORE = "before the history"
HISTORY = 100_000
"""The most events that Bridge's `record_memory_history` keeps (bridge training/utils/train_utils.py:211)."""
ROWS: Mapping[str, tuple[str, ...]] = {
    "weights and gradients": ("weights", "gradients", "weights_or_gradients"),
    "optimizer": ("optimizer",),
    "activations and buffers": ("activations", "buffers", "graphs", "data"),
}
"""The kinds of a snapshot in each row of the comparison. Weights and gradients are one kind in releases whose source
lines are not known; the working memory of a layer has the frames of its forward pass."""


def report(given: Given, memory: Memory, classes: Classes) -> Json:
    """Return the report on the memory of one device.

    An allocation's kind is from the innermost frame that matches a pattern; its source is the first frame outside
    libraries, as `function@file.py:line`, and its module is that frame's file, as `transformer/moe/experts`.
    """
    kinds, modules = defaultdict[str, int](int), defaultdict[tuple[str, str], int](int)
    sources = defaultdict[tuple[str, str], list[int]](lambda: [0, 0])
    for size, frames in memory.live:
        found = (classes.memory(f"{file}:{line} {function}") for file, line, function in frames)
        kind = next((k for k in found if k is not None), NO_CLASS) if frames else BEFORE
        mine = next((f for f in frames if not LIBRARIES.search(f[0])), None)
        module = re.sub(r"^.*/(site-packages|dist-packages|opt|workspace)/|\.py$", "", mine[0] if mine else "") or "-"
        shown = mine or next(iter(frames), None)
        source = f"{shown[2]}@{shown[0].rpartition('/')[2]}:{shown[1]}" if shown else BEFORE
        kinds[kind] += size
        modules[kind, module] += size
        sources[kind, source][0] += size
        sources[kind, source][1] += 1
    remarks = (
        (memory.events == 0, "the snapshot has no history: the figures are of the moment when it was written"),
        (memory.events >= HISTORY, f"the history is full at {memory.events:,} events: what is older has no frames"),
        (memory.ended_by == "oom", "the allocator ran out of memory: the peak is without the allocation that failed"),
        (
            kinds.get(NO_CLASS, 0) > 0.05 * memory.peak,
            "more than 5% of the peak has no known kind: add patterns in `rules memory of trace`",
        ),
    )
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
        "remarks": [text for holds, text in remarks if holds],
    }  # fmt: skip


def _largest(sizes: Mapping[Any, int]) -> list[tuple[Any, int]]:
    return sorted(sizes.items(), key=lambda e: -e[1])


def compare(r: Json, plan: Plan) -> Json:
    """Compare the peak with the plan's figures for the snapshot's stage, or for the stage with the nearest total."""
    measured = {k["kind"]: k["gib"] for k in r["kinds"]}
    stages = plan.estimate.memory.stages
    known = stage_of(r["rank"], r["stage"], plan)
    at, by = known or (min(range(len(stages)), key=lambda i: abs(stages[i].total_gib - r["peak_gib"])), NEAREST)
    planned = stages[at]
    named = {k for kinds in ROWS.values() for k in kinds}
    others = tuple(k for k in measured if k not in named)
    rows = [
        {"part": part, "measured_gib": sum(measured.get(k, 0.0) for k in kinds),
         "predicted_gib": sum((getattr(planned, f"{k}_gib") for k in kinds if k in MEMORY), 0.0)}
        for part, kinds in (*ROWS.items(), ("without a kind", others))
    ]  # fmt: skip
    rows.append({"part": "peak", "measured_gib": r["peak_gib"], "predicted_gib": planned.total_gib})
    return {"run": plan.name, "stage": at, "stage_by": by, "of_stages": len(stages), "table": rows,
            "stages_gib": [s.total_gib for s in stages],
            "lower_gib": plan.estimate.memory.lower_gib, "upper_gib": plan.estimate.memory.upper_gib}  # fmt: skip


def text(each: Sequence[Json]) -> str:
    """Format the report of each device.

    For several ranks, format the peak of each by kind and next to its stage in the plan, and the report of the fullest.
    """
    if len({r["snapshot"] for r in each}) < 2:
        return "\n".join(map(_one, each))
    kinds = [*dict.fromkeys(k["kind"] for r in each for k in r["kinds"])]
    rows = [("snapshot", "rank", "peak", *kinds)]
    for r in each:
        sizes = {k["kind"]: f"{k['gib']:.1f}" for k in r["kinds"]}
        rank = "-" if r["rank"] is None else str(r["rank"])
        rows.append((r["snapshot"], rank, f"{r['peak_gib']:.1f}", *(sizes.get(k, "-") for k in kinds)))
    blocks = [["Live at the peak, by rank and kind, GiB", *table(rows, "lr")]]
    for at, first in enumerate(each[0].get("plans", ())):
        rows = [("stage", "predicted", "measured", "difference", "of")]
        for stage in range(first["of_stages"]):
            mine = [(r, p) for r in each if (p := r["plans"][at])["stage"] == stage]
            rows += [(str(stage), *_line(p["table"][-1]), f"{r['snapshot']}, {_known(p, r['rank'])}") for r, p in mine]
            if not mine:
                rows.append((str(stage), _gib(first["stages_gib"][stage]), "-", "-", "no snapshot"))
        blocks.append([f"Compared with the plan of {first['run']}, by stage", *table(rows, "rrrrl")])
    blocks.append(["The fullest of them (--json has each)"])
    fullest = max(each, key=lambda r: r["peak_gib"])
    return "\n\n".join("\n".join(b) for b in blocks) + "\n\n" + _one(fullest)


def _one(r: Json) -> str:
    kinds = [(k["kind"], _gib(k["gib"]), f"{k['share']:.1%}") for k in r["kinds"]]
    modules = [(m["module"], m["kind"], _gib(m["gib"])) for m in r["modules"]]
    sources = [(s["source"], s["kind"], _gib(s["gib"]), f"{s['allocations']:,}") for s in r["sources"]]
    blocks = [
        [
            f"{r['snapshot']}: device {r['device']}, peak {_gib(r['peak_gib'])} in {r['events']:,} events",
            f"  {_gib(r['at_start_gib'])} before the first event, {_gib(r['at_end_gib'])} at the end",
            f"  reserved {_gib(r['reserved_gib'])} at the end, {r['fragmentation']['share']:.1%} unused",
            *(wrapped(text, "  remark: ", " " * 10) for text in r["remarks"]),
        ],
        ["Live at the peak, by kind", *table(kinds, "lr")],
        ["Live at the peak, by module", *table([("module", "kind", "size"), *modules], "llr")],
        ["Live at the peak, by source", *table([("source", "kind", "size", "allocations"), *sources], "llr")],
    ]
    for c in r.get("plans", ()):
        stage = f"stage {c['stage']} of 0 to {c['of_stages'] - 1}: {_known(c, r['rank'])}"
        rows = [("", "predicted", "measured", "difference"), *((x["part"], *_line(x)) for x in c["table"])]
        fullest = f"  its fullest stage has {_gib(c['lower_gib'])} to {_gib(c['upper_gib'])}"
        head = wrapped(f"Compared with the plan of {c['run']}, {stage}", "", "  ")
        blocks.append([head, *table(rows, "lr"), fullest])
    return "\n\n".join("\n".join(b) for b in blocks) + "\n"


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

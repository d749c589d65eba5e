"""The charts of a report as numbers for its template: schedule, trade-offs, ranks, and what was measured.

- The schedule on a timeline: when each rank runs which microbatch of which chunk. The order on a rank is
  Megatron-Core's (pipeline_parallel/schedules.py: 1F1B, and the interleaved 1F1B whose chunks take turns in groups of
  pp microbatches); the start of each follows from what it waits for. Times are in forward passes of one chunk.
- Memory against speed and GPUs against time: points with axes, from the plan's `pareto`.
- Each rank's GPU in node, NVLink domain, rack and rail, and its coordinates in both meshes. Megatron-Core numbers ranks
  tp fastest, then cp, dp, pp for attention, and etp, ep, edp, pp for the experts (megatron/core/parallel_state.py).
- The measured step next to the predicted one, one step of each stage, and memory over time: the figures that
  `moedsl profile --json` and `moedsl memory --json` print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.facts.axes import ATTENTION, EXPERTS, pairs
from moedsl.facts.machines import Machines
from moedsl.planner.plan import Plan, Priced
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.foreign import text_of
from moedsl.support.svg import decades, doubles, linear, shares

BACKWARD = 2.0
"""Forward passes that a backward takes."""


@frozen
class Slot:
    """One forward or backward of a microbatch in a chunk (virtual stage) of a rank."""

    rank: int
    chunk: int
    microbatch: int
    forward: bool
    start: float
    end: float


Step = tuple[bool, int, int]
"""The key (forward, chunk, microbatch)."""


def order(pp: int, vpp: int, microbatches: int, rank: int) -> list[Step]:
    """The order of a rank's work; `microbatches` is a multiple of pp if vpp is more than 1."""
    total = microbatches * vpp
    ahead = pp - rank - 1 if vpp == 1 else 2 * (pp - rank - 1) + (vpp - 1) * pp
    warm = min(ahead, total)
    forward = [(True, *_at(k, pp, vpp)) for k in range(total)]
    backward = [(False, vpp - 1 - chunk, m) for chunk, m in (_at(k, pp, vpp) for k in range(total))]
    steady = [s for pair in zip(forward[warm:], backward, strict=False) for s in pair]
    return [*forward[:warm], *steady, *backward[total - warm :]]


def _at(k: int, pp: int, vpp: int) -> tuple[int, int]:
    """The chunk and the microbatch of a rank's k-th forward."""
    if vpp == 1:
        return 0, k
    group, within = divmod(k, pp * vpp)
    return within // pp, group * pp + within % pp


def timeline(pp: int, vpp: int, microbatches: int) -> list[Slot]:
    """Every slot of one step, by rank and time. Without virtual stages, a chunk is the whole stage."""
    todo = {rank: order(pp, vpp, microbatches, rank) for rank in range(pp)}
    free = dict.fromkeys(todo, 0.0)
    done: dict[Step, float] = {}  # the end of each (forward, stage, microbatch); stages count chunks through all ranks
    out: list[Slot] = []
    while any(todo.values()):
        ready = list[tuple[int, float]]()
        for rank, steps in todo.items():
            if steps:
                forward, chunk, m = steps[0]
                stage, last = chunk * pp + rank, pp * vpp - 1
                if forward:
                    needs = (True, stage - 1, m) if stage else None
                else:
                    needs = (False, stage + 1, m) if stage < last else (True, stage, m)
                if needs is None or needs in done:
                    ready.append((rank, max(free[rank], done[needs] if needs else 0.0)))
        for rank, start in ready:
            forward, chunk, m = todo[rank].pop(0)
            end = start + (1.0 if forward else BACKWARD)
            free[rank] = done[forward, chunk * pp + rank, m] = end
            out.append(Slot(rank, chunk, m, forward, start, end))
    return sorted(out, key=lambda s: (s.rank, s.start))


def idle(slots: list[Slot]) -> float:
    """Share of the time in which ranks wait."""
    end = max(s.end for s in slots)
    ranks = len({s.rank for s in slots})
    return 1 - sum(s.end - s.start for s in slots) / (end * ranks)


Point = tuple[Priced, Mapping[str, Any] | None]
"""A layout and what differs from the plan; None for the plan itself."""
LEFT, RIGHT, TOP, BOTTOM = 60, 988, 12, 260
"""The box of the points; labels are to the left of it and below."""


@frozen
class Axis:
    """An axis from `low` to `high`; a `log` axis has equal steps for equal ratios."""

    name: str
    low: float
    high: float
    log: bool = False
    digits: int = 0
    """Decimals of its labels."""

    def share(self, value: float) -> float:
        """The position of a value on the axis, from 0 to 1; the middle if all values are equal."""
        low, high, v = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return 0.5 if high == low else (v - low) / (high - low)

    def ticks(self) -> list[float]:
        """The values with a tick; whole numbers double."""
        if not self.log:
            return linear(self.low, self.high)
        return decades(self.low, self.high) if self.digits else doubles(self.low, self.high)

    def text(self, value: float) -> str:
        """The label of a value."""
        return f"{value:,.{self.digits}f}"


def trades(p: Plan) -> list[dict[str, Any]]:
    """Both drawings; none for a plan without `pareto`."""
    if p.pareto is None:
        return []
    memory, gpus = p.pareto.memory_time, p.pareto.gpus_time.points
    lean: list[Point] = [*((f, f.changes) for f in memory.points), (memory.plan, None)]
    sized: list[Point] = [(f, None if f.plan else f.changes) for f in gpus]
    drawn = [_drawing("Memory against speed", lean, "peak_gib", "GiB on the most loaded rank", log=False)]
    return drawn + ([_drawing("GPUs against time", sized, "gpus", "GPUs", log=True)] if gpus else [])


def _drawing(title: str, points: Sequence[Point], key: str, unit: str, log: bool) -> dict[str, Any]:
    """Points with their tooltips, the line of the front, and both axes; a slower step is further up."""
    xs, ys = [getattr(f, key) for f, _ in points], [f.step_time_s for f, _ in points]
    x, y = Axis(unit, min(xs), max(xs), log), Axis("s a step", min(ys), max(ys), True, 2)

    def across(value: float) -> float:
        return LEFT + x.share(value) * (RIGHT - LEFT)

    def upwards(value: float) -> float:
        return BOTTOM - y.share(value) * (BOTTOM - TOP)

    dots = list[dict[str, Any]]()
    for (f, changes), value in zip(points, xs, strict=True):
        kind, other = ("plan", "the plan") if changes is None else ("better", pairs(changes) or "as the plan")
        tip = f"{x.text(value)} {unit}, {f.step_time_s:.2f} s a step: {other}"
        dots.append({"x": across(value), "y": upwards(f.step_time_s), "kind": kind, "title": tip})
    front = sorted((d["x"], d["y"]) for d in dots if d["kind"] != "plan" or key == "gpus")
    return {
        "title": title,
        "dots": dots,
        "line": " ".join(f"{a:.1f},{b:.1f}" for a, b in front),
        "x": x.name,
        "y": y.name,
        "across": [{"at": across(t), "text": f"{t:,.6g}"} for t in x.ticks()],
        "upwards": [{"at": upwards(t), "text": f"{t:,.4g}"} for t in y.ticks()],
    }


@frozen
class Rank:
    """One GPU: `attention` and `experts` are its coordinates in the order of `ATTENTION` and `EXPERTS`."""

    rank: int
    node: int
    domain: int
    rack: int
    rail: int
    attention: tuple[int, ...]
    experts: tuple[int, ...]

    @property
    def stage(self) -> int:
        return self.attention[-1]

    def shares(self, other: Rank, axis: str) -> bool:
        """Whether both are in one group of an axis: all other coordinates of its mesh are equal."""
        names, mine, theirs = (
            (ATTENTION, self.attention, other.attention)
            if axis in ATTENTION
            else (EXPERTS, self.experts, other.experts)
        )
        at = names.index(axis)
        return mine[:at] + mine[at + 1 :] == theirs[:at] + theirs[at + 1 :]


def place(layout: Mapping[str, Any], gpus: int, on: Machines) -> list[Rank]:
    """Every rank of the world."""
    attention, experts = ([int(layout[n]) for n in names] for names in (ATTENTION, EXPERTS))
    ranks = np.arange(gpus)
    racks = on.racks(ranks) if on.rack else on.domains(ranks)
    places = zip(on.nodes(ranks), on.domains(ranks), racks, on.on_rails(ranks), strict=True)
    return [
        Rank(r, int(node), int(domain), int(rack), int(rail), _digits(r, attention), _digits(r, experts))
        for r, (node, domain, rack, rail) in enumerate(places)
    ]


def _digits(rank: int, sizes: list[int]) -> tuple[int, ...]:
    """Mixed-radix digits, the fastest first."""
    out: list[int] = []
    for size in sizes:
        rank, digit = divmod(rank, size)
        out.append(digit)
    return tuple(out)


def expert_groups(ranks: list[Rank]) -> list[list[Rank]]:
    """The ranks by the group among which their tokens are exchanged: those of etp and ep."""
    return _by(ranks, lambda r: r.experts[2:])


def stages(ranks: list[Rank]) -> list[list[Rank]]:
    """The ranks by their pipeline stage."""
    return _by(ranks, lambda r: r.stage)


def _by(ranks: list[Rank], key: Callable[[Rank], Any]) -> list[list[Rank]]:
    found: dict[Any, list[Rank]] = {}
    for r in ranks:
        found.setdefault(key(r), []).append(r)
    return [*found.values()]


def crossing(ranks: list[Rank], axis: str, places: Sequence[str]) -> dict[str, int]:
    """On how many of each kind of place (domain, node, rack, rail) the group of rank 0 on an axis is."""
    group = [r for r in ranks if r.shares(ranks[0], axis)]
    return {place: len({getattr(r, place) for r in group}) for place in places}


Json = Mapping[str, Any]
BLOCKS = (("compute", "#3b6fb6"), ("communication", "#c9803a"), ("copies", "#5a9a5a"))
"""The blocks of a trace from top to bottom, with their colours."""
NEAREST = "nearest"
"""How `moedsl memory` knows a stage that is only a guess."""
DRAWN = 8
"""The most traces that are all drawn."""


@frozen
class Measured:
    """The JSON of a profile and of a memory snapshot, if given."""

    profile: Json | None = None
    memory: Json | None = None

    def view(self, name: str) -> dict[str, Any] | None:
        """What the page of the run of that name draws."""
        if self.profile is None and self.memory is None:
            return None
        tables, traces = list[Json](), list[Json]()
        if self.profile is not None:
            plans = {p["run"]: p for p in self.profile.get("plans", ())}
            if name in plans:
                for lines, by in ((plans[name]["walls"], "wall"), (plans[name]["table"], "part")):
                    seconds = [(line["predicted_s"], line["measured_s"] or 0.0) for line in lines]
                    longest = max((s or 0.0 for pair in seconds for s in pair), default=1.0)
                    rows = [
                        {**line, "name": line[by], "predicted_share": predicted / longest * 100,
                         "measured_share": measured / longest * 100}
                        for line, (predicted, measured) in zip(lines, seconds, strict=True)
                    ]  # fmt: skip
                    tables.append({"by": by, "rows": rows, "ticks": shares(longest)})
            # all traces are drawn, or of too many one of each stage
            traces = self.profile["ranks"] if len(self.profile["ranks"]) <= DRAWN else self.profile["parts"]
        return {
            "tables": tables,
            "stages": [_stage(t) for t in traces],
            "blocks": BLOCKS,
            "memory": [] if self.memory is None else [_curve(d, name) for d in self.memory["devices"]],
        }


NOTHING = Measured()


def read(profile: str | None, memory: str | None) -> Measured | Diagnostic:
    """Read the files; each is drawn once, so that a file without a figure is refused before the page is made."""
    each: list[Json | None] = []
    for path, command in ((profile, "profile"), (memory, "memory")):
        try:
            each.append(None if path is None else foreign.load_json(text_of(Path(path))))
            Measured(*each).view("")
            continue
        except FileNotFoundError:
            wrong = f"{path} does not exist"
        except OSError as problem:
            wrong = f"{path} cannot be read: {problem.strerror or problem}"
        except (ValueError, LookupError, TypeError, AttributeError) as problem:
            said = f"{type(problem).__name__} {problem}"
            wrong = f"{path} is not what `moedsl {command} --json` prints: {said}"
        help = f"write it with `moedsl {command} ... --run run.moe --json > {command}.json`"
        return error("profile.printed", wrong, help=help)
    return Measured(*each)


def _stage(trace: Json) -> dict[str, Any]:
    """One step of a trace: a row of boxes for each block."""
    line = trace["timeline"]
    step = line["step_s"]
    boxes = [
        {"row": row, "left": a * 1000, "width": (b - a) * 1000, "colour": colour,
         "title": f"{name}, {a * step:.4f} to {b * step:.4f} s"}
        for row, (name, colour) in enumerate(BLOCKS)
        for a, b in line[name]
    ]  # fmt: skip
    return {"trace": trace["trace"], "rank": trace["rank"], "step_s": step, "ticks": shares(step), "boxes": boxes}


def _curve(device: Json, name: str) -> dict[str, Any]:
    """Memory over the history, as a line in 1000 x 200, with the peak, ticks, and the value under each place."""
    gibs, peak = device["over_time_gib"], max(device["peak_gib"], 1e-9)
    step = 1000 / max(len(gibs) - 1, 1)
    plans = {p["run"]: p for p in device.get("plans", ()) if p.get("stage_by", NEAREST) != NEAREST}

    def height(share: float) -> float:
        return 195 - share * 190

    return {
        "device": device["device"],
        "snapshot": device["snapshot"] + (f", stage {plans[name]['stage']}" if name in plans else ""),
        "peak": device["peak_gib"],
        "line": " ".join(f"{i * step:.1f},{height(gib / peak):.1f}" for i, gib in enumerate(gibs)),
        "across": shares(device["events"]),
        "upwards": [{"at": height(t["at"] / 100), "text": t["text"]} for t in shares(peak)],
        "dots": [{"x": (i - 0.5) * step, "width": step, "gib": gib} for i, gib in enumerate(gibs)],
    }

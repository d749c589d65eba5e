"""The page of `moedsl report`: turn the numbers in the plan's JSON into shapes, and fill the template with them.

- The schedule on a timeline: when each rank runs which microbatch of which chunk. The order on a rank is
  Megatron-Core's (pipeline_parallel/schedules.py: 1F1B, and the interleaved 1F1B whose chunks take turns in groups of
  pp microbatches). A microbatch starts when what it waits for is done. Times are in forward passes of one chunk.
- Memory against speed and GPUs against time: points with axes, from the plan's `pareto`.
- Each rank's GPU in node, NVLink domain, rack and rail, and its coordinates in both meshes. Megatron-Core numbers ranks
  tp fastest, then cp, dp, pp for attention, and etp, ep, edp, pp for the experts (megatron/core/parallel_state.py).
- The measured step next to the predicted one, one step of each stage, and memory over time: the figures that
  `moedsl profile --json` and `moedsl memory --json` print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
import numpy as np
from attrs import frozen

from moedsl.facts.axes import ATTENTION, EXPERTS, pairs, show
from moedsl.facts.machines import Machines, machines
from moedsl.planner.estimate import MEMORY
from moedsl.planner.plan import Plan, Priced
from moedsl.planner.text import plan_text
from moedsl.support import foreign
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.foreign import text_of
from moedsl.support.svg import decades, doubles, linear, shares
from moedsl.support.text import ranges, visible

MOST_RANKS = 1024
"""The most ranks to draw; in a larger job, only the first NVLink domains are drawn."""
MOST_MICROBATCHES = 4
"""The most microbatches to draw for each pipeline stage; after them the pattern repeats."""
KINDS = {
    "dense": "dense", "moe": "MoE", "mamba": "Mamba", "attention": "attention", "delta": "delta net",
    "reuse": "MoE with shared keys", "window": "MoE with a window", "dense_window": "dense with a window", "mtp": "MTP",
}  # fmt: skip
"""Printed names of the kinds of layers."""
PLACES = {"rack": "racks", "domain": "NVLink domains", "node": "nodes", "rail": "rails"}
SIGN = '<meta name="generator" content="moedsl report">'
"""The marker that identifies a report."""
COLOURS = ("#3b6fb6", "#7aa6d6", "#c9803a", "#5a9a5a", "#a9a9a9", "#8a6bb0", "#c0504d", "#d8b24a", "#4aa3a3", "#6b6b6b")


def page(plans: Sequence[Plan], found: Measured | None = None) -> str:
    """Make one HTML document for all plans of a file, with what was measured; it loads nothing from elsewhere."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined, autoescape=True,
        finalize=_shown,
    )  # fmt: skip
    views = [
        {
            "plan": p,
            "text": plan_text(p),
            "memory": memory(p),
            "time": sorted(((s, k) for k, s in p.estimate.breakdown.items() if s > 0), key=lambda part: -part[0]),
            "time_ticks": shares(p.estimate.step_time_s),
            "decisions": [(d, show(d.value), d.origin + " (advice)" * bool(d.advice)) for d in p.decisions],
            "timeline": timeline(p),
            "trades": trades(p),
            "meshes": meshes(p),
            "measured": found.view(p.name) if found else None,
        }
        for p in plans
    ]
    return environment.get_template("report.html.j2").render(plans=views)


def _shown(value: Any) -> Any:
    """Show hidden characters of text as codes; leave what a macro has made unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


def memory(p: Plan) -> dict[str, Any]:
    """Make a stacked bar for each stage; widths are shares of the larger of capacity and worst case."""
    m, rows = p.estimate.memory, list[dict[str, Any]]()
    widest = max(m.visible_gib, m.worst_gib, *(s.total_gib for s in m.stages))
    for s in m.stages:
        gibs = [getattr(s, f"{kind}_gib") for kind in MEMORY]
        places = zip(MEMORY, gibs, accumulate(gibs, initial=0.0), COLOURS, strict=False)
        parts = [
            {"name": kind, "gib": gib, "left": at / widest * 100, "width": gib / widest * 100, "colour": colour}
            for kind, gib, at, colour in places
        ]
        # if all layers have experts, name them by what else differs
        said = {**KINDS, "moe": "attention"} if "delta" in s.layers else KINDS
        layers = ", ".join(f"{n} {said[kind]}" for kind, n in s.layers.items())
        rows.append({"stage": s.stage, "layers": layers, "total": s.total_gib, "parts": parts, "worst": None})
    most = max(rows, key=lambda row: row["total"])
    most["worst"] = {
        "gib": m.worst_gib, "left": most["total"] / widest * 100, "width": (m.worst_gib - most["total"]) / widest * 100,
    }  # fmt: skip
    lines = {"capacity": m.visible_gib / widest * 100}
    legend = [{"name": k, "colour": c} for k, c in zip(MEMORY, COLOURS, strict=False)]
    sizes = {"peak": m.peak_gib, "capacity": m.visible_gib, "verdict": m.verdict}
    return {"rows": rows, "lines": lines, "legend": legend, "ticks": shares(widest), **sizes}


def timeline(p: Plan) -> dict[str, Any] | None:
    """Draw the first microbatches of the schedule; None without a pipeline."""
    pp, vpp = p.layout.pp, p.layout.vpp
    if pp == 1:
        return None
    every = p.batch.num_microbatches
    drawn = min(every, MOST_MICROBATCHES * pp)
    slots = schedule(pp, vpp, drawn)
    end = max(s.end for s in slots)
    boxes = [
        {
            "row": s.rank,
            "left": s.start / end * 1000,
            "width": (s.end - s.start) / end * 1000,
            "kind": kind,
            "shade": 0.35 + 0.65 * (s.chunk + 1) / vpp,
            "title": f"stage {s.rank}, chunk {s.chunk}, microbatch {s.microbatch}, {kind}",
        }
        for s in slots
        for kind in ["forward" if s.forward else "backward"]
    ]
    whole = (pp - 1) / vpp / (every + (pp - 1) / vpp)
    sizes = {"rows": pp, "drawn": drawn, "every": every, "idle": idle(slots), "whole": whole}
    return {"boxes": boxes, "ticks": shares(end), **sizes}


def meshes(p: Plan) -> dict[str, Any]:
    """Draw both meshes over nodes, NVLink domains and racks, with the groups of rank 0 marked."""
    node, whole, layout = p.device.gpus_per_node, p.device.nvlink_domain, p.layout.to_json()
    known = (p.racks.nodes_per_rack, p.racks.rails or 0) if p.racks else ()
    on = machines(layout, p.gpus, node, whole, *known)
    world = place(layout, p.gpus, on)
    unit = max(on.domain, on.rack)
    drawn = world[: max(MOST_RANKS // unit, 1) * unit]
    places = [*(["rack"] if on.rack else []), "domain", "node", *(["rail"] if on.rails else [])]
    axes = dict.fromkeys((*ATTENTION, *EXPERTS))
    # How many expert groups stay on NVLink and in a rack, and the machines of each pipeline stage
    groups, numbered = expert_groups(world), [name for name in places if name != "rail"]
    rows = [
        {
            "stage": stage[0].stage,
            "gpus": len(stage),
            "groups": len(expert_groups(stage)),
            "on": [ranges(getattr(r, name) for r in stage) for name in numbered],
        }
        for stage in stages(world)
    ]
    within = {name: sum(len({getattr(r, name) for r in group}) == 1 for group in groups) for name in numbered}
    names = [PLACES[name] for name in numbered]
    return {
        "panels": [
            _expert_groups(drawn, on),
            _mesh(drawn, on, ATTENTION, "attention"),
            _mesh(drawn, on, EXPERTS, "experts"),
        ],
        "spans": [
            {"axis": a, "on": crossing(world, a, places), "size": sum(r.shares(world[0], a) for r in world)}
            for a in axes
        ],
        "places": [{"name": n, "title": PLACES[n]} for n in places],
        "machines": {"groups": len(groups), "within": within, "rows": rows, "places": names},
        "drawn": len(drawn),
        "gpus": len(world),
        "whole": whole,
        "on": on,
        "racks": p.racks,
    }


def _expert_groups(drawn: list[Rank], on: Machines) -> dict[str, Any]:
    """Draw the expert groups and pipeline stages on the machines; each GPU has the number of its group."""
    numbers = {r.rank: number for number, group in enumerate(expert_groups(drawn)) for r in group}

    def cell(r: Rank) -> dict[str, Any]:
        title = f"rank {r.rank}: expert group {numbers[r.rank]}, stage {r.stage}, node {r.node}"
        title += f", NVLink domain {r.domain}"
        title += f", rack {r.rack}" if on.rack else ""
        title += f", rail {r.rail}" if on.rails else ""
        return {"title": title, **_coloured(r), "mark": str(numbers[r.rank])}

    return _on_machines(drawn, on, cell, "expert groups by number")


def _mesh(drawn: list[Rank], on: Machines, names: tuple[str, ...], title: str) -> dict[str, Any]:
    """Draw one mesh on the machines; each GPU has the axes on which it is in one group with rank 0."""
    first = drawn[0]

    def cell(r: Rank) -> dict[str, Any]:
        coordinates = r.attention if names == ATTENTION else r.experts
        where = f"rank {r.rank}: " + " ".join(f"{n} {c}" for n, c in zip(names, coordinates, strict=True))
        if r is first:
            return {"title": f"{where} (with rank 0 in rank 0)", **_coloured(r), "marks": "first", "mark": "0"}
        together = [n for n in names if r.shares(first, n)]
        where += f" (with rank 0 in {', '.join(together)})" if together else ""
        mark = together[0] if together else ""
        return {"title": where, **_coloured(r), "marks": " ".join(together), "mark": mark}

    return _on_machines(drawn, on, cell, title)


def _on_machines(drawn: list[Rank], on: Machines, cell: Callable[[Rank], dict[str, Any]], title: str) -> dict[str, Any]:
    """Nest cells by rack, NVLink domain and node; without racks, all are in one rack that has no number."""
    racks: dict[int | None, dict[int, dict[int, list[dict[str, Any]]]]] = {}
    for r in drawn:
        rack = racks.setdefault(r.rack if on.rack else None, {})
        rack.setdefault(r.domain, {}).setdefault(r.node, []).append(cell(r))
    rails = [r.rail for r in drawn[: on.node]] if on.rails else []
    found = [
        {"rack": rack, "domains": [{"domain": d, "nodes": [*nodes.values()]} for d, nodes in domains.items()]}
        for rack, domains in racks.items()
    ]
    return {"title": title, "racks": found, "rails": rails}


def _coloured(r: Rank) -> dict[str, str]:
    """Return the stage's colour, and black or white for the text, whichever contrasts more."""
    colour = COLOURS[r.stage % len(COLOURS)]
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return {"colour": colour, "ink": "#000" if light > 0.18 else "#fff"}


BACKWARD = 2.0
"""Time of a backward pass, in forward passes."""


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
"""One piece of a rank's work: (forward, chunk, microbatch)."""


def order(pp: int, vpp: int, microbatches: int, rank: int) -> list[Step]:
    """Return the order of a rank's work; `microbatches` must be a multiple of pp if vpp is more than 1."""
    total = microbatches * vpp
    ahead = pp - rank - 1 if vpp == 1 else 2 * (pp - rank - 1) + (vpp - 1) * pp
    warm = min(ahead, total)
    # the chunk and the microbatch of the rank's k-th forward
    work = [(k % (pp * vpp) // pp, k // (pp * vpp) * pp + k % pp) for k in range(total)]
    forward, backward = [(True, *at) for at in work], [(False, vpp - 1 - chunk, m) for chunk, m in work]
    steady = [s for pair in zip(forward[warm:], backward, strict=False) for s in pair]
    return [*forward[:warm], *steady, *backward[total - warm :]]


def schedule(pp: int, vpp: int, microbatches: int) -> list[Slot]:
    """Return every slot of one step, sorted by rank and time; without virtual stages, a chunk is the whole stage."""
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
    """Return the share of time that ranks wait."""
    end = max(s.end for s in slots)
    ranks = len({s.rank for s in slots})
    return 1 - sum(s.end - s.start for s in slots) / (end * ranks)


Point = tuple[Priced, Mapping[str, Any] | None]
"""A layout and its changes from the plan, which are None for the plan itself."""
LEFT, RIGHT, TOP, BOTTOM = 60, 988, 12, 260
"""Edges of the plot area; labels are to the left of it and below."""


def trades(p: Plan) -> list[dict[str, Any]]:
    """Make both trade-off charts; an empty list for a plan without `pareto`."""
    if p.pareto is None:
        return []
    memory, gpus = p.pareto.memory_time, p.pareto.gpus_time.points
    lean: list[Point] = [*((f, f.changes) for f in memory.points), (memory.plan, None)]
    sized: list[Point] = [(f, None if f.plan else f.changes) for f in gpus]
    drawn = [_drawing("Memory against speed", lean, "peak_gib", "GiB on the most loaded rank", log=False)]
    return drawn + ([_drawing("GPUs against time", sized, "gpus", "GPUs", log=True)] if gpus else [])


def _drawing(title: str, points: Sequence[Point], key: str, unit: str, log: bool) -> dict[str, Any]:
    """Make a chart: points with tooltips, the Pareto front as a line, and both axes; step time is on a log scale."""
    xs, ys = [getattr(f, key) for f, _ in points], [f.step_time_s for f, _ in points]

    def share(value: float, of: Sequence[float], log: bool) -> float:
        low, high, v = (math.log(x) if log else x for x in (min(of), max(of), value))
        return 0.5 if high == low else (v - low) / (high - low)

    def across(value: float) -> float:
        return LEFT + share(value, xs, log) * (RIGHT - LEFT)

    def upwards(value: float) -> float:
        return BOTTOM - share(value, ys, True) * (BOTTOM - TOP)

    dots = list[dict[str, Any]]()
    for (f, changes), value in zip(points, xs, strict=True):
        kind, other = ("plan", "the plan") if changes is None else ("better", pairs(changes) or "as the plan")
        tip = f"{value:,.0f} {unit}, {f.step_time_s:.2f} s a step: {other}"
        dots.append({"x": across(value), "y": upwards(f.step_time_s), "kind": kind, "title": tip})
    front = sorted((d["x"], d["y"]) for d in dots if d["kind"] != "plan" or key == "gpus")
    return {
        "title": title,
        "dots": dots,
        "line": " ".join(f"{a:.1f},{b:.1f}" for a, b in front),
        "x": unit,
        "y": "s a step",
        "across": [{"at": across(t), "text": f"{t:,.6g}"} for t in (doubles if log else linear)(min(xs), max(xs))],
        "upwards": [{"at": upwards(t), "text": f"{t:,.4g}"} for t in decades(min(ys), max(ys))],
    }


@frozen
class Rank:
    """One GPU: `attention` and `experts` are its coordinates in the order of `ATTENTION` and `EXPERTS`."""

    rank: int
    node: int
    domain: int
    rack: int
    rail: int
    attention: Sequence[int]
    experts: Sequence[int]

    @property
    def stage(self) -> int:
        return self.attention[-1]

    def shares(self, other: Rank, axis: str) -> bool:
        """Whether both are in one group of an axis: all other coordinates of its mesh are equal."""
        names, mine, theirs = ATTENTION, self.attention, other.attention
        if axis not in ATTENTION:
            names, mine, theirs = EXPERTS, self.experts, other.experts
        return all(a == b for n, a, b in zip(names, mine, theirs, strict=True) if n != axis)


def place(layout: Mapping[str, Any], gpus: int, on: Machines) -> list[Rank]:
    """Return every rank with its machine and coordinates; the first axis of a mesh varies fastest."""
    ranks = np.arange(gpus)
    places = (on.nodes(ranks), on.domains(ranks), on.racks(ranks) if on.rack else on.domains(ranks), on.on_rails(ranks))
    meshes = (np.unravel_index(ranks, [int(layout[n]) for n in m], order="F") for m in (ATTENTION, EXPERTS))
    columns = (np.stack(c, axis=1).tolist() for c in (places, *meshes))
    return [Rank(r, *on_machines, *at) for r, (on_machines, *at) in enumerate(zip(*columns, strict=True))]


def expert_groups(ranks: list[Rank]) -> list[list[Rank]]:
    """Group the ranks that exchange tokens, along etp and ep; the ranks of a group are consecutive."""
    return [[*group] for _, group in groupby(ranks, lambda r: r.experts[2:])]


def stages(ranks: list[Rank]) -> list[list[Rank]]:
    """Group the ranks by pipeline stage; the ranks of a stage are consecutive."""
    return [[*stage] for _, stage in groupby(ranks, lambda r: r.stage)]


def crossing(ranks: list[Rank], axis: str, places: Sequence[str]) -> dict[str, int]:
    """Count how many of each of `places` (domain, node, rack, rail) the group of rank 0 on an axis spans."""
    group = [r for r in ranks if r.shares(ranks[0], axis)]
    return {place: len({getattr(r, place) for r in group}) for place in places}


Json = Mapping[str, Any]
BLOCKS = (("compute", "#3b6fb6"), ("communication", "#c9803a"), ("copies", "#5a9a5a"))
"""The blocks of a trace from top to bottom, with their colours."""
NEAREST = "nearest"
"""The value with which `moedsl memory` marks a stage that is only a guess."""
DRAWN = 8
"""All traces are drawn up to this number; of more, one for each stage."""


@frozen
class Measured:
    """The JSON of a profile and of a memory snapshot, if given."""

    profile: Json | None = None
    memory: Json | None = None

    def view(self, name: str) -> dict[str, Any] | None:
        """Return what the page draws for the run with that name; None if nothing was measured."""
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
            # draw all traces, or only one of each stage if there are too many
            traces = self.profile["ranks"] if len(self.profile["ranks"]) <= DRAWN else self.profile["parts"]
        stages = list[Json]()
        for t in traces:  # one step of each: a row of boxes for each block
            line, step = t["timeline"], t["timeline"]["step_s"]
            boxes = [
                {"row": row, "left": a * 1000, "width": (b - a) * 1000, "colour": colour,
                 "title": f"{name}, {a * step:.4f} to {b * step:.4f} s"}
                for row, (name, colour) in enumerate(BLOCKS)
                for a, b in line[name]
            ]  # fmt: skip
            named = {"trace": t["trace"], "rank": t["rank"], "step_s": step}
            stages.append({**named, "ticks": shares(step), "boxes": boxes})
        memory = [] if self.memory is None else [_curve(d, name) for d in self.memory["devices"]]
        return {"tables": tables, "stages": stages, "blocks": BLOCKS, "memory": memory}


def read_measured(profile: str | None, memory: str | None) -> Measured | Diagnostic:
    """Read the files and try to draw each, so that an incomplete file is rejected before the page is made."""
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


def _curve(device: Json, name: str) -> dict[str, Any]:
    """Draw memory over the history as a line in a 1000 x 200 box, with the peak, ticks, and the value at each point."""
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

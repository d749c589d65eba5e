"""Make the page: shapes from the numbers of the plan's JSON, filled into the template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from moedsl.facts.axes import show
from moedsl.facts.machines import Machines, machines
from moedsl.planner import charts
from moedsl.planner.charts import NOTHING, Measured
from moedsl.planner.memory import MEMORY
from moedsl.planner.plan import Plan
from moedsl.planner.text import plan_text
from moedsl.support.svg import shares
from moedsl.support.text import ranges, visible

MOST_RANKS = 1024
"""The most ranks to draw; of a larger world, the first NVLink domains."""
MOST_MICROBATCHES = 4
"""The most microbatches to draw for each pipeline stage; after them the pattern repeats."""
KINDS = {
    "dense": "dense", "moe": "MoE", "mamba": "Mamba", "attention": "attention", "delta": "delta net",
    "reuse": "MoE with shared keys", "window": "MoE with a window", "dense_window": "dense with a window", "mtp": "MTP",
}  # fmt: skip
"""A stage's layers in words."""
PLACES = {"rack": "racks", "domain": "NVLink domains", "node": "nodes", "rail": "rails"}
SIGN = '<meta name="generator" content="moedsl report">'
"""The marker by which a report is known."""
COLOURS = ("#3b6fb6", "#7aa6d6", "#c9803a", "#5a9a5a", "#a9a9a9", "#8a6bb0", "#c0504d", "#d8b24a", "#4aa3a3", "#6b6b6b")


def page(plans: Sequence[Plan], found: Measured = NOTHING) -> str:
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
            "time": bars(p.estimate.breakdown, p.estimate.step_time_s),
            "time_ticks": shares(p.estimate.step_time_s),
            "decisions": [(d, show(d.value), d.origin + " (advice)" * bool(d.advice)) for d in p.decisions],
            "timeline": timeline(p),
            "trades": charts.trades(p),
            "meshes": meshes(p),
            "measured": found.view(p.name),
        }
        for p in plans
    ]
    return environment.get_template("report.html.j2").render(plans=views)


def _shown(value: Any) -> Any:
    """Show hidden characters of a text by their codes; what a macro has made is done."""
    return visible(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value


def memory(p: Plan) -> dict[str, Any]:
    """Stacked bars, one for each stage, as shares of the larger of capacity and peak."""
    m, rows = p.estimate.memory, list[dict[str, Any]]()
    widest = max(m.visible_gib, m.worst_gib, *(s.total_gib for s in m.stages))
    for s in m.stages:
        parts, at = list[dict[str, Any]](), 0.0
        for kind, colour in zip(MEMORY, COLOURS, strict=False):
            gib = getattr(s, f"{kind}_gib")
            place = {"left": at / widest * 100, "width": gib / widest * 100}
            parts.append({"name": kind, "gib": gib, **place, "colour": colour})
            at += gib
        # if all layers have experts, they are told by their other difference
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


def bars(parts: Mapping[str, float], whole: float) -> list[dict[str, Any]]:
    """Seconds of the step by part, the largest first, without zeros."""
    shown = sorted(((k, v) for k, v in parts.items() if v > 0), key=lambda kv: -kv[1])
    return [{"name": k.replace("_", " "), "seconds": v, "share": v / whole * 100} for k, v in shown]


def timeline(p: Plan) -> dict[str, Any] | None:
    """The first microbatches of the schedule, as shares of their time; None without a pipeline."""
    pp, vpp = p.layout.pp, p.layout.vpp
    if pp == 1:
        return None
    every = p.batch.num_microbatches
    drawn = min(every, MOST_MICROBATCHES * pp)
    slots = charts.timeline(pp, vpp, drawn)
    end = max(s.end for s in slots)
    boxes = [
        {
            "row": s.rank,
            "left": s.start / end * 1000,
            "width": (s.end - s.start) / end * 1000,
            "kind": "forward" if s.forward else "backward",
            "shade": 0.35 + 0.65 * (s.chunk + 1) / vpp,
            "title": f"stage {s.rank}, chunk {s.chunk}, microbatch {s.microbatch}, "
            + ("forward" if s.forward else "backward"),
        }
        for s in slots
    ]
    whole = (pp - 1) / vpp / (every + (pp - 1) / vpp)
    idle = charts.idle(slots)
    sizes = {"rows": pp, "drawn": drawn, "every": every, "idle": idle, "whole": whole}
    return {"boxes": boxes, "ticks": shares(end), **sizes}


def meshes(p: Plan) -> dict[str, Any]:
    """Both meshes over nodes, NVLink domains and racks; the groups of rank 0 are marked."""
    node, whole, layout = p.device.gpus_per_node, p.device.nvlink_domain, p.layout.to_json()
    known = (p.racks.nodes_per_rack, p.racks.rails or 0) if p.racks else ()
    on = machines(layout, p.gpus, node, whole, *known)
    world = charts.place(layout, p.gpus, on)
    unit = max(on.domain, on.rack)
    drawn = world[: max(MOST_RANKS // unit, 1) * unit]
    places = [*(["rack"] if on.rack else []), "domain", "node", *(["rail"] if on.rails else [])]
    axes = dict.fromkeys((*charts.ATTENTION, *charts.EXPERTS))
    # How many expert groups stay on NVLink and in a rack, and the machines of each pipeline stage
    groups, numbered = charts.expert_groups(world), [name for name in places if name != "rail"]
    stages = [
        {
            "stage": stage[0].stage,
            "gpus": len(stage),
            "groups": len(charts.expert_groups(stage)),
            "on": [ranges(getattr(r, name) for r in stage) for name in numbered],
        }
        for stage in charts.stages(world)
    ]
    within = {name: sum(len({getattr(r, name) for r in group}) == 1 for group in groups) for name in numbered}
    names = [PLACES[name] for name in numbered]
    return {
        "panels": [
            _expert_groups(drawn, on),
            _mesh(drawn, on, charts.ATTENTION, "attention"),
            _mesh(drawn, on, charts.EXPERTS, "experts"),
        ],
        "spans": [
            {"axis": a, "on": charts.crossing(world, a, places), "size": sum(r.shares(world[0], a) for r in world)}
            for a in axes
        ],
        "places": [{"name": n, "title": PLACES[n]} for n in places],
        "machines": {"groups": len(groups), "within": within, "rows": stages, "places": names},
        "drawn": len(drawn),
        "gpus": len(world),
        "whole": whole,
        "on": on,
        "racks": p.racks,
    }


def _expert_groups(drawn: list[charts.Rank], on: Machines) -> dict[str, Any]:
    """The expert groups and pipeline stages on the machines, each GPU with the number of its group."""
    numbers = {r.rank: number for number, group in enumerate(charts.expert_groups(drawn)) for r in group}

    def cell(r: charts.Rank) -> dict[str, Any]:
        title = f"rank {r.rank}: expert group {numbers[r.rank]}, stage {r.stage}, node {r.node}"
        title += f", NVLink domain {r.domain}"
        title += f", rack {r.rack}" if on.rack else ""
        title += f", rail {r.rail}" if on.rails else ""
        return {"title": title, **_coloured(r), "mark": str(numbers[r.rank])}

    return _on_machines(drawn, on, cell, "expert groups by number")


def _mesh(drawn: list[charts.Rank], on: Machines, names: tuple[str, ...], title: str) -> dict[str, Any]:
    """One mesh on the machines, each GPU with the axes on which it is in a group of rank 0."""
    first = drawn[0]

    def cell(r: charts.Rank) -> dict[str, Any]:
        coordinates = r.attention if names == charts.ATTENTION else r.experts
        where = f"rank {r.rank}: " + " ".join(f"{n} {c}" for n, c in zip(names, coordinates, strict=True))
        if r is first:
            return {"title": f"{where} (with rank 0 in rank 0)", **_coloured(r), "marks": "first", "mark": "0"}
        together = [n for n in names if r.shares(first, n)]
        where += f" (with rank 0 in {', '.join(together)})" if together else ""
        mark = together[0] if together else ""
        return {"title": where, **_coloured(r), "marks": " ".join(together), "mark": mark}

    return _on_machines(drawn, on, cell, title)


def _on_machines(
    drawn: list[charts.Rank], on: Machines, cell: Callable[[charts.Rank], dict[str, Any]], title: str
) -> dict[str, Any]:
    """Cells by rack, NVLink domain and node; what is in no rack is in one without a number."""
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


def _coloured(r: charts.Rank) -> dict[str, str]:
    """The colour of the stage, and black or white, whichever stands out from it."""
    colour = COLOURS[r.stage % len(COLOURS)]
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    light = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    return {"colour": colour, "ink": "#000" if light > 0.18 else "#fff"}

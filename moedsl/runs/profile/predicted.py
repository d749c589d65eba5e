"""Compare the measured step with the plan's, part by part.

Each difference gets the constant that would explain it, and the largest loss the fixes that the rules know, priced from
the measured step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from moedsl.cost import Cost
from moedsl.facts import axes, calibration
from moedsl.planner.plan import Plan
from moedsl.runs.profile.steps import COMMUNICATION, COMPUTE
from moedsl.solver.solve import Chosen

Json = dict[str, Any]
Seconds = dict[str, float]
Codes = Mapping[str, int]
WORK: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "matrix products": ("matrix", ("gemm", "grouped_gemm")),
    "attention": ("attention", ("attention_forward", "attention_backward")),
    "scan": ("scan", ("scan",)),
}
"""For each part of compute: its kind of work in the prediction, and its classes in a trace."""
OPTIMIZER, PASSES, RECOMPUTE, VISION = "optimizer", "passes over memory", "recompute", "vision tower"
EXPERTS, PIPELINE, COLLECTIVES = "expert communication", "pipeline and bubble", "other collectives"
OFFLOADING, LAUNCHES, STRAGGLERS = "offloading", "launches", "stragglers"
WAITS, OTHER_IDLE = "waits for communication", "other idle time"
STEP: Mapping[str, tuple[str, ...]] = {
    RECOMPUTE: ("recompute",),
    OPTIMIZER: ("optimizer",),
    EXPERTS: ("expert_communication",),
    COLLECTIVES: ("tensor_communication", "context_communication", "data_communication"),
    PIPELINE: ("pipeline_communication", "bubble"),
    OFFLOADING: ("activation_offload",),
    LAUNCHES: ("launch", "step_overhead"),
    STRAGGLERS: ("stragglers",),
    WAITS: (),
    OTHER_IDLE: (),
}
"""For each other part of the table: its parts of the predicted step (`moedsl.cost.step.PARTS`)."""
WALLS: Mapping[str, tuple[str, ...]] = {
    "compute": (*WORK, PASSES, VISION, RECOMPUTE, OPTIMIZER),
    "communication": (EXPERTS, COLLECTIVES, PIPELINE, STRAGGLERS, WAITS),
    "host": (LAUNCHES,),
    "memory": (OFFLOADING,),
    "unresolved": (OTHER_IDLE,),
}
"""The table's parts in each wall."""
OF_EXPERTS = re.compile("alltoall|deepep_|hybridep_|nvshmem")
"""Matches the classes that move tokens to experts and back."""
HIDDEN = (RECOMPUTE, VISION, STRAGGLERS)
"""Parts that a trace cannot separate: the first two are in other compute, the last is in communication."""
ENOUGH = 0.01
"""A difference below this share of the measured step needs no explanation."""
MOVED = 1.05
"""The factor by which a constant is changed to see which parts depend on it."""
FOLLOWS = 0.1
"""A constant can explain a part only if the part changes by at least this share of the constant's change."""


def compare(r: Json, chosen: Chosen, plan: Plan) -> Json:
    """Compare a report with the plan: return the walls, the table by part, remarks, and fixes for the largest loss."""
    codes, cost = chosen.solution.rows[0].codes, chosen.cost
    theirs, mine = predicted(cost, codes), measured(r, plan)
    table = [_line(name, theirs[name], mine[name]) for name in theirs if theirs[name] or mine[name]]
    # The predicted parts with each constant of the speed estimate changed
    hw, k = cost.hardware, cost.hardware.constants
    each = {name: evolve(k, **{name: getattr(k, name) * MOVED}) for name in calibration.fitted(k)}
    moved = {n: predicted(evolve(cost, hardware=evolve(hw, constants=c)), codes) for n, c in each.items()}
    for line in table:
        differs = line["measured_s"] is not None and abs(line["difference_s"]) >= ENOUGH * r["step_s"]
        line["constant"] = _constant(line, theirs, moved, cost) if differs and not r["on_cpu"] else None
    whole = _line("step", plan.estimate.step_time_s, r["step_s"]) | {"constant": None}
    apart = sum(line["measured_s"] or 0.0 for line in table) - r["step_s"]
    walls = [_line(name, sum(theirs[p] for p in WALLS[name]), w["s"], "wall") for name, w in r["walls"].items()]
    return {"run": plan.name, "walls": walls, "table": [*table, whole], "remarks": remarks(r, plan, apart),
            "fixes": _fixes(r, chosen, plan, theirs, mine)}  # fmt: skip


def _line(name: str, predicted: float, measured: float | None, of: str = "part") -> Json:
    difference = None if measured is None else measured - predicted
    return {of: name, "predicted_s": predicted, "measured_s": measured, "difference_s": difference}


def predicted(cost: Cost, codes: Codes) -> Seconds:
    """Return the predicted seconds of each part; they sum to the step."""
    parts, work = cost.time_report(codes), cost.work_report(codes)
    out = {name: work.get(kind, 0.0) for name, (kind, _) in WORK.items()}
    out |= {PASSES: work["passes"], VISION: work.get("vision", 0.0)}
    return out | {name: sum(parts[p] for p in of) for name, of in STEP.items()}


def measured(r: Json, plan: Plan) -> dict[str, float | None]:
    """Return the measured seconds of each part; None where a trace cannot tell.

    Compute is the time that its classes are busy, communication and copies are the time that compute does not hide, and
    launches and the bubble are idle time.
    """
    busy = {c["class"]: c["busy_s"] for c in r["classes"] if c["wall"] == COMPUTE}
    out: dict[str, float | None] = {name: sum(busy.pop(c, 0.0) for c in of) for name, (_, of) in WORK.items()}
    out |= {OPTIMIZER: busy.pop("optimizer", 0.0), PASSES: sum(busy.values()), **dict.fromkeys(HIDDEN)}
    exposed = {c["class"]: c["exposed_s"] for c in r["classes"] if c["wall"] == COMMUNICATION}
    if plan.layout.pp == 1:
        exposed["alltoall"] = exposed.pop("send_receive", 0.0) + exposed.get("alltoall", 0.0)
    sent = exposed.pop("pipeline", 0.0)
    experts = sum(s for name, s in exposed.items() if OF_EXPERTS.match(name))
    idle = r["idle"]["by_cause"]
    return out | {
        EXPERTS: experts, COLLECTIVES: sum(exposed.values()) - experts, PIPELINE: sent + idle["bubble"],
        OFFLOADING: r["walls"]["memory"]["s"], LAUNCHES: idle["launch"],
        WAITS: idle["communication"], OTHER_IDLE: idle["dependency"] + idle["unresolved"],
    }  # fmt: skip


def _constant(line: Json, theirs: Seconds, moved: Mapping[str, Seconds], cost: Cost) -> Json | None:
    """Return the constant on which the part depends most, and the value that would give the measured seconds; or None.

    If seconds fall as the constant grows, it is a rate, and they follow a power of it. Otherwise it is a term of them,
    and they grow linearly.
    """
    name, seconds = line["part"], line["measured_s"]
    if not theirs[name] or not seconds:
        return None
    slopes = {c: (parts[name] / theirs[name] - 1) / (MOVED - 1) for c, parts in moved.items()}
    most = max(slopes, key=lambda c: abs(slopes[c]))
    if abs(slopes[most]) < FOLLOWS:
        return None
    k = cost.hardware.constants
    known, now = k.known[most], k.stated(most)
    grown, slope = seconds / theirs[name], slopes[most]
    value = now * (grown ** (1 / slope) if slope < 0 else 1 + (grown - 1) / slope)
    return {"name": most, "value": now, "would_be": value, "unit": known.unit, "about": known.about,
            "possible": known.low <= value <= known.high}  # fmt: skip


def _fixes(r: Json, chosen: Chosen, plan: Plan, theirs: Seconds, mine: Mapping[str, float | None]) -> Json | None:
    """Estimate the fixes that the rules know for the largest loss, from the measured step; None if they know none.

    Each part's predicted change is scaled by the part's measured over predicted seconds, so a part that took no time
    gains nothing. A part that the trace cannot tell, or that a fix adds, is scaled like the whole step.
    """
    wall = r["largest_loss"]
    fix = plan.walls.fixes.get(wall)
    if fix is None:
        return None
    row = chosen.solution.rows[0]
    whole = r["step_s"] / plan.estimate.step_time_s
    ratio = {name: whole if s is None or not theirs[name] else s / theirs[name] for name, s in mine.items()}
    tried: list[Json] = []
    for t in fix.here:
        if not t.against_plan.startswith("refused"):
            axis = axes.BY_NAME[t.axis]
            new = predicted(chosen.cost, {**row.codes, t.axis: axis.encode(t.value)})
            change = sum((new[name] - theirs[name]) * ratio[name] for name in new)
            tried.append({"axis": t.axis, "value": axes.json_value(t.value), "step_s": r["step_s"] + change,
                          "change": change / r["step_s"], "predicted": t.against_plan})  # fmt: skip
    return {"wall": wall, "rule": fix.rule, "fix": fix.fix, "cite": list(fix.cite),
            "tried": sorted(tried, key=lambda f: f["step_s"])}  # fmt: skip


def remarks(r: Json, plan: Plan, apart: float) -> list[str]:
    """Return the caveats of the comparison; `apart` is the sum of the measured parts less the step, in seconds."""
    # Whether the trace's device name contains the plan's hardware, or the trace names no device
    device = r["device_name"] or plan.hardware
    same_gpu = plan.hardware.lower() in device.lower().replace(" ", "")
    more, counts = ("longer", "several of them") if apart > 0 else ("shorter", "none of them")
    some = (
        (
            abs(apart) >= ENOUGH * r["step_s"],
            f"the measured parts are {abs(apart) * 1e3:,.1f} ms {more} than the step: what overlaps counts in {counts}",
        ),
        (plan.layout.pp > 1, "the prediction is of the slowest stage; a trace of another stage computes less"),
        (r["on_cpu"], "the trace is of a CPU, and the plan of a GPU: only shares can be compared"),
        (not same_gpu, f"the trace is of {r['device_name']}, the plan of {plan.hardware}"),
        (r["world"] not in (None, plan.gpus), f"the trace is of {r['world']} ranks, the plan of {plan.gpus} GPUs"),
    )
    return [text for holds, text in some if holds]

"""Both fronts as tables and plots, from their JSON."""

from __future__ import annotations

from collections.abc import Sequence

from moedsl.queries.plot import Mark, axis, scatter
from moedsl.queries.tables import NUMBERS, Json, budget_note, cost, cost_head, figures_table, numbers
from moedsl.schema.axes import pairs
from moedsl.support.text import short, tokens, wrapped

MOST_POINTS = 12
"""Points of a front that a table shows; JSON has all."""


def pareto_text(p: Json, found: Json) -> str:
    """Both fronts, each as a table and a plot."""
    return f"{_memory_time(p, found['memory_time'])}\n\n{_gpus_time(p, found['gpus_time'])}\n"


def _memory_time(p: Json, m: Json) -> str:
    points, plan = m["points"], m["plan"]
    on = f"{p['name']}: memory against speed on {p['gpus']} {p['hardware']}"
    head = f"{on}, {len(points)} layouts that none beats in both"
    kept = thinned(points)
    rows = [("", *NUMBERS, *cost_head(plan), "other than the plan")]
    rows += [("o", *numbers(f), *cost(f), pairs(f["changes"]) or "the plan") for f in kept]
    rows += [("P", *numbers(plan), *cost(plan), _standing(m))]
    lines = [head, *figures_table(rows), *budget_note(plan)]
    if len(kept) < len(points):
        lines.append(f"  {len(kept)} of {len(points)} are shown; --json has all")
    return "\n".join([*lines, "", _memory_plot(points, plan)])


def _standing(m: Json) -> str:
    """Where the plan is: on the front, or the fastest that beats it and why the run ranks that one behind."""
    ahead = [m["points"][i] for i in m["plan"]["beaten_by"]]
    if not ahead:
        return "the plan, on the front"
    fastest = min(ahead, key=lambda f: f["step_time_s"])
    faster = 100 * (fastest["step_time_s"] / m["plan"]["step_time_s"] - 1)
    return f"the plan; {pairs(fastest['changes'])} is {faster:+.1f}% step time{_behind(fastest, m['plan'])}"


def _behind(point: Json, plan: Json) -> str:
    """Why a layout that beats the plan is not it: the key that decides; of the step with its advice, that advice."""
    decides = point["behind"]
    if decides is None:
        return ""
    left = [short(i) for i in point["against_advice"] if i not in plan["against_advice"]]
    if decides["key"] == "score" and left:
        return f", leaving {', '.join(left)}"
    by = f"`{decides['key']}` {decides['value']:.4g} against {decides['plan']:.4g}"
    return f", and behind by {short(decides['rule'])}: {by}"


def thinned(points: Sequence[Json]) -> list[Json]:
    """At most `MOST_POINTS` of a front: both ends, and equal steps between."""
    if len(points) <= MOST_POINTS:
        return list(points)
    return [points[round(i * (len(points) - 1) / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]


def _memory_plot(points: Sequence[Json], plan: Json) -> str:
    every = [*points, plan]
    x = axis("peak GiB", [f["peak_gib"] for f in every])
    y = axis("seconds a step", [f["step_time_s"] for f in every], log=True, digits=2)
    marks = [Mark(f["peak_gib"], f["step_time_s"]) for f in points]
    return scatter(x, y, [*marks, Mark(plan["peak_gib"], plan["step_time_s"], "P")])


def _gpus_time(p: Json, g: Json) -> str:
    if not g["points"]:
        return f"{p['name']}: no number of {p['hardware']} fits this step"
    b = p["batch"]
    head = (
        f"{p['name']}: GPUs against time at {b['global_batch']} sequences of {tokens(b['seq'])} a step; "
        f"{g['fewest']} {p['hardware']} are the fewest"
    )
    rows = [("GPUs", *NUMBERS, *cost_head(g["points"][0]), "", "other than the plan")]
    rows += [(str(f["gpus"]), *numbers(f), *cost(f), _at(f), pairs(f["changes"])) for f in g["points"]]
    lines = [head, *figures_table(rows), *budget_note(g["points"][0])]
    if g["without"]:
        lines.append(wrapped(f"no layout on {', '.join(map(str, g['without']))}"))
    return "\n".join([*lines, "", _gpus_plot(g["points"])])


def _at(f: Json) -> str:
    where = "" if f["on_front"] else "slower"
    return f"P {where}".rstrip() if f["plan"] else where or "o"


def _gpus_plot(points: Sequence[Json]) -> str:
    x = axis("GPUs", [f["gpus"] for f in points], log=True)
    y = axis("seconds a step", [f["step_time_s"] for f in points], log=True, digits=2)
    return scatter(x, y, [Mark(f["gpus"], f["step_time_s"], _at(f)[0]) for f in points])

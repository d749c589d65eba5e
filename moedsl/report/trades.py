"""Draw memory against speed and GPUs against time: points in a box of 1000 x 260, from the plan's `pareto`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.planner.model.plan import Plan
from moedsl.schema.axes import pairs

Json = Mapping[str, Any]
WIDTH, HEIGHT, MARGIN = 1000, 260, 12


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

    def text(self, value: float) -> str:
        """The label of a value."""
        return f"{value:,.{self.digits}f}"


def trades(p: Plan) -> list[dict[str, Any]]:
    """Both drawings; none for a plan without `pareto`."""
    if p.pareto is None:
        return []
    memory, gpus = p.pareto["memory_time"], p.pareto["gpus_time"]["points"]
    lean = [*memory["points"], {**memory["plan"], "changes": {}, "plan": True}]
    drawn = [_drawing("Memory against speed", lean, "peak_gib", "GiB on the most loaded rank", log=False)]
    return drawn + ([_drawing("GPUs against time", gpus, "gpus", "GPUs", log=True)] if gpus else [])


def _drawing(title: str, points: Sequence[Json], key: str, unit: str, log: bool) -> dict[str, Any]:
    xs, ys = [f[key] for f in points], [f["step_time_s"] for f in points]
    x, y = Axis(unit, min(xs), max(xs), log), Axis("s a step", min(ys), max(ys), True, 2)
    dots = [_dot(f, x.share(f[key]), y.share(f["step_time_s"]), f"{x.text(f[key])} {unit}") for f in points]
    front = sorted((d["x"], d["y"]) for d in dots if d["kind"] != "plan" or key == "gpus")
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in front)
    return {"title": title, "dots": dots, "line": line, "x": _ends(x), "y": _ends(y)}


def _ends(a: Axis) -> dict[str, str]:
    return {"name": a.name, "low": a.text(a.low), "high": a.text(a.high)}


def _dot(f: Json, x: float, y: float, what: str) -> dict[str, Any]:
    """A point with its tooltip; a slower step is further up."""
    kind = "plan" if f.get("plan") else "better"
    other = "the plan" if kind == "plan" else pairs(f["changes"]) or "as the plan"
    at = {"x": MARGIN + x * (WIDTH - 2 * MARGIN), "y": HEIGHT - MARGIN - y * (HEIGHT - 2 * MARGIN)}
    return {**at, "kind": kind, "title": f"{what}, {f['step_time_s']:.2f} s a step: {other}"}

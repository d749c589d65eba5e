"""Draw memory against speed and GPUs against time: points with axes, from the plan's `pareto`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.facts.axes import pairs
from moedsl.planner.model.answers import Priced
from moedsl.planner.model.plan import Plan
from moedsl.support.svg import decades, doubles, linear

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
    xs, ys = [getattr(f, key) for f, _ in points], [f.step_time_s for f, _ in points]
    x, y = Axis(unit, min(xs), max(xs), log), Axis("s a step", min(ys), max(ys), True, 2)
    dots = [_dot(p, x.share(v), y.share(t), f"{x.text(v)} {unit}") for p, v, t in zip(points, xs, ys, strict=True)]
    front = sorted((d["x"], d["y"]) for d in dots if d["kind"] != "plan" or key == "gpus")
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in front)
    across = [{"at": _across(x.share(t)), "text": f"{t:,.6g}"} for t in x.ticks()]
    upwards = [{"at": _upwards(y.share(t)), "text": f"{t:,.4g}"} for t in y.ticks()]
    return {"title": title, "dots": dots, "line": line, "x": x.name, "y": y.name, "across": across, "upwards": upwards}


def _across(share: float) -> float:
    return LEFT + share * (RIGHT - LEFT)


def _upwards(share: float) -> float:
    return BOTTOM - share * (BOTTOM - TOP)


def _dot(point: Point, x: float, y: float, what: str) -> dict[str, Any]:
    """A point with its tooltip; a slower step is further up."""
    f, changes = point
    kind, other = ("plan", "the plan") if changes is None else ("better", pairs(changes) or "as the plan")
    return {"x": _across(x), "y": _upwards(y), "kind": kind, "title": f"{what}, {f.step_time_s:.2f} s a step: {other}"}

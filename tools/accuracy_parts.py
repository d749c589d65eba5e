"""Write the part of docs/accuracy.md on profiles: what the parts of a real step took, and what the estimate says.

A line of stdlib/calibration/profiles.jsonl is a measured run (`runs.read`) with the pipeline stage that was profiled
and the seconds of its parts in a step. Their names are those of `PARTS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from moedsl.runs.measured_runs import Measured, read

FILE = Path(__file__).parents[1] / "stdlib/calibration/profiles.jsonl"
GOAL = 0.2
ON_STREAM = ("compute", "recompute", "expert_communication", "tensor_communication")
Report = Mapping[str, float]
PARTS: Mapping[str, Callable[[float, Report], float]] = {
    "step": lambda whole, at: whole,
    "expert products": lambda whole, at: at["experts"],
    "other kernels on the main stream": lambda whole, at: sum(at[part] for part in ON_STREAM) - at["experts"],
    "sends between stages": lambda whole, at: at["between_stages"],
    "reduce-scatter of gradients": lambda whole, at: at["reduction"],
}
"""A part of a step, from the seconds of the step and those of the stage."""


@frozen
class Part:
    """One part of a profiled step in seconds, measured and estimated."""

    run: Measured
    source: str
    name: str
    measured: float
    said: float
    how: str
    """How the measured figure comes from the profile."""
    why: str
    """Why the estimate is far off, if it is."""

    @property
    def error(self) -> float:
        return self.said / self.measured - 1


def parts() -> list[Part]:
    """Read the lines of the file."""
    _, runs, found = read(FILE)
    if found:
        sys.exit("\n".join(d.message for d in found))
    lines = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    return [p for r, line in zip(runs, lines, strict=True) for p in _parts(r, line)]


def _parts(r: Measured, line: Mapping[str, Any]) -> Iterator[Part]:
    whole, at = float(r.cost.time(r.row)[0]), r.cost.stage_report(r.row, line["stage"])
    for name, p in line["parts"].items():
        yield Part(r, line["source"], name, p["seconds"], PARTS[name](whole, at), p["how"], p.get("why", ""))


def profiles() -> Iterator[str]:
    """Yield the lines of Markdown."""
    each = parts()
    reached = sum(abs(p.error) <= GOAL for p in each)
    yield f"{reached} of {len(each)} parts are within {GOAL:.0%}. No constant was fitted to them.\n"
    yield "| profile | model | part | measured, s | estimated, s | error | from | why |"
    yield "|---|---|---|---|---|---|---|---|"
    for p in each:
        why = p.why if abs(p.error) > GOAL else ""
        yield (
            f"| {p.source} | {p.run.model} | {p.name} | {p.measured:.3g} | {p.said:.3g} | {p.error:+.0%} | {p.how} "
            f"| {why} |"
        )

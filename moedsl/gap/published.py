"""Find the published run that is nearest to a run: of its model and GPU, with its precision, length and routing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import log2
from typing import Any

from attrs import frozen

from moedsl.calibrate.runs import Measured, of_line
from moedsl.diagnostics.source import Span
from moedsl.gap.settings import State
from moedsl.schema import axes
from moedsl.support.resources import stdlib_dir

RUNS = "calibration/published.jsonl"
_SAID = re.compile(r"(\w+) x (\d+); .*?seq (\d+); .*?precision (\w+); routing (\w+)")
_PIN = re.compile(r"(\w+)=(\d+)\b")
_SIZES = tuple(a.name for a in axes.AXES if a.name in axes.MESH and a.kind == "int")


@frozen
class Published:
    """A published run with its line."""

    line: Mapping[str, Any]
    run: Measured

    @property
    def state(self) -> State:
        return State(self.run.cost, self.run.row)


def nearest(here: State) -> Published | None:
    """Return the nearest published run; None if none is of this model and GPU."""
    found = min(_lines(here), key=lambda pair: pair[0], default=None)
    if found is None:
        return None
    path = stdlib_dir() / RUNS
    run = of_line(found[1], 1, path.parent, Span(str(path), 0, 0))
    assert isinstance(run, Measured), found[1]  # the stdlib's own runs compile
    return Published(json.loads(found[1]), run)


def _lines(here: State) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield each line of the model and GPU with its distance; of equals the newest release is nearest."""
    start = f'"run": "{here.cost.model.name}; {here.cost.hardware.name} x '
    precision = axes.BY_NAME["precision"].decode(here.codes["precision"])
    for line in (stdlib_dir() / RUNS).read_text(encoding="utf-8").splitlines():
        said = _SAID.search(line) if start in line else None
        if said:
            _, gpus, seq, format, routing = said.groups()
            data = json.loads(line)
            pins = {n: int(v) for n, v in _PIN.findall(data["run"].split("pin ")[-1])}
            yield (
                (format != precision, routing != here.cost.routing, abs(log2(int(seq) / here.cost.seq)),
                 abs(log2(int(gpus) / here.cost.gpus)), _mesh(here, pins), -_date(data.get("release", ""))), line,
            )  # fmt: skip


def _mesh(here: State, pins: Mapping[str, int]) -> float:
    """Count the doublings of sizes between two layouts."""
    return sum(abs(log2(here.codes[n] / pins.get(n, axes.BY_NAME[n].off))) for n in _SIZES)


def _date(release: str) -> int:
    """Order releases (26.08, 2026-07-31) by year and month."""
    year, month = [*map(int, re.findall(r"\d+", release)[:2]), 0, 0][:2]
    return (year % 100) * 12 + month

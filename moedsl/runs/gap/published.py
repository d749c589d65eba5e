"""Find the published run that is nearest to a run: of its model and GPU, with its precision, length and routing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import log2
from typing import Any

from attrs import frozen

from moedsl.facts import axes
from moedsl.runs.calibrate.runs import Measured, of_line
from moedsl.runs.gap.settings import State
from moedsl.solver.uncertainty import RUNS, doublings, published, sizes
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Span

_SAID = re.compile(r"(\w+) x (\d+); .*?seq (\d+); .*?precision (\w+); routing (\w+)")


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
    precision = axes.BY_NAME["precision"].decode(here.codes["precision"])
    for line in published(here.cost.model.name, here.cost.hardware.name):
        if said := _SAID.search(line):
            _, gpus, seq, format, routing = said.groups()
            data = json.loads(line)
            mesh = doublings(here.codes, sizes(data["run"]))
            yield (
                (format != precision, routing != here.cost.routing, abs(log2(int(seq) / here.cost.seq)),
                 abs(log2(int(gpus) / here.cost.gpus)), mesh, -_date(data.get("release", ""))), line,
            )  # fmt: skip


def _date(release: str) -> int:
    """Order releases (26.08, 2026-07-31) by year and month."""
    year, month = [*map(int, re.findall(r"\d+", release)[:2]), 0, 0][:2]
    return (year % 100) * 12 + month

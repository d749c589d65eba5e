"""What was tried: the layout of each run, and what it measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from moedsl.cost import Cost
from moedsl.diagnose.edit import ran_out, refused_gib
from moedsl.diagnose.scan import symptoms
from moedsl.rules.library import Library
from moedsl.runs.results.compare import RATE
from moedsl.runs.results.gather import Run
from moedsl.runs.results.log import read_all
from moedsl.runs.results.measure import FAILED, OK, UNFINISHED, measure
from moedsl.runs.results.numbers import Given, Numbers, numbers

REFUSED = "refused_gib"
"""The key of a row with the GiB that a run asked for and did not get."""
ERROR = 0.01
"""The error of a run's median, as a log, if it has too few steps to know it."""
Codes = Mapping[str, int]


@frozen
class Tried:
    """One layout: the step that its useful tokens mean, or None if it failed."""

    name: str
    codes: Codes
    step: float | None
    error: float = ERROR
    """The standard error of the log of the step."""
    out_of_memory: bool = False
    refused_gib: float = 0.0
    """What it asked for and did not get, if memory ran out."""


def row(run: Run, library: Library) -> dict[str, Any]:
    """Measure a run that has a plan: its row of `moedsl results`, and `REFUSED`."""
    (sizes,) = numbers([run], Given())
    assert isinstance(sizes, Numbers)  # a plan has them
    log = read_all(run.logs, symptoms(library))
    refused = refused_gib(s for r in log.reports for s in r.sightings)
    return {**measure(run, log, sizes, None), REFUSED: refused}


def tried(name: str, codes: Codes, cost: Cost, row: Mapping[str, Any]) -> Tried | None:
    """Read a row of `moedsl results`; None if the run neither measured anything nor failed."""
    rate = row[RATE]
    if row["status"] in (OK, UNFINISHED) and rate:
        tokens = cost.global_batch * cost.seq * row["useful_share"]
        error = rate["error"] / rate["median"] if rate["error"] else ERROR
        return Tried(name, codes, tokens / (rate["median"] * cost.gpus), max(error, 1e-4))
    if row["status"] != FAILED:
        return None
    memory = any(ran_out(s["id"]) for s in row["symptoms"])
    return Tried(name, codes, None, out_of_memory=memory, refused_gib=row[REFUSED])


def best(every: Sequence[Tried]) -> Tried | None:
    """Return the fastest run, None if none measured anything."""
    return min((t for t in every if t.step), key=lambda t: t.step or 0.0, default=None)


def columns(each: Iterable[Codes]) -> dict[str, NDArray[np.int64]]:
    """Put layouts into columns."""
    rows = [*each]
    return {n: np.array([r[n] for r in rows], np.int64) for n in rows[0]}

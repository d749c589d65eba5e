"""Tell runs apart whose plans differ and have one name: each gets the place of its plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from moedsl.planner.model.plan import Plan
from moedsl.runs.results.gather import PLAN, Run

_WHAT_RUNS = ("model", "hf", "hardware", "gpus", "task", "target", "layout", "batch", "policy", "derived", "env", "set")
"""The parts of a plan that decide what is run; runs of plans that agree in them repeat one run."""


def told_apart(runs: Sequence[Run]) -> list[Run]:
    """Add its plan's place to the name of each run that shares its name with another plan's run."""
    shared = [r for r in runs if r.plan and any(o.name == r.name and not _is_same(o.plan, r.plan) for o in runs)]
    if not shared:
        return list(runs)
    common = os.path.commonpath([_place(r) for r in shared])
    return [evolve(r, place=_first_place(r, shared, common)) if r in shared else r for r in runs]


def _is_same(one: Plan | None, other: Plan) -> bool:
    return one is not None and _what_runs(one) == _what_runs(other)


def _what_runs(plan: Plan) -> dict[str, Any]:
    json = plan.to_json()
    return {part: json.get(part) for part in _WHAT_RUNS}


def _first_place(run: Run, shared: Sequence[Run], common: str) -> str:
    """The place of the first run of the same plan, so that repetitions keep one name."""
    first = next(o for o in shared if o.plan and run.plan and o.name == run.name and _is_same(o.plan, run.plan))
    return os.path.relpath(_place(first), common)


def _place(run: Run) -> str:
    """The folder of a plan.json, or the file if it has a name of its own."""
    assert run.plan_file is not None
    path = run.plan_file.resolve()
    return str(path.parent if path.name == PLAN else path)

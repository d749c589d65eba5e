"""Write measured runs as lines for `moedsl calibrate`, each with its layout pinned as in its plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.facts.units import GIB
from moedsl.planner.model.plan import Plan
from moedsl.runs.results.compare import RATE
from moedsl.runs.results.contradictions import unfit
from moedsl.runs.results.measure import OK, UNFINISHED
from moedsl.runs.results.program import run_text

Json = Mapping[str, Any]


def lines(pairs: Sequence[tuple[Plan | None, Json]]) -> str:
    """Write JSON lines of the plans with their results; runs without a plan or without figures have none, nor has one
    whose log contradicts its plan."""
    figures = [(plan, r) for plan, r in pairs if plan and r[RATE] and r["status"] in (OK, UNFINISHED)]
    rows = [_line(plan, r) for plan, r in figures if not unfit(plan, r)]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _line(plan: Plan, r: Json) -> dict[str, Any]:
    """Write one line; calibration counts every token, useful or not."""
    row = {"id": r["name"], "run": run_text(plan), "tokens_per_s_per_gpu": r[RATE]["median"] / r["useful_share"]}
    return row if r["peak_gib"] is None else {**row, "peak_gb": r["peak_gib"] * GIB / 1e9}

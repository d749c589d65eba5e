"""Write a plan as the program of its run, with its layout pinned as in the plan."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from moedsl.facts.axes import AXES, POLICY, written
from moedsl.planner.experiment import settings
from moedsl.planner.model.plan import Plan
from moedsl.runs.calibrate.runs import Measured, of_line
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.source import Span

_PINNED = [a.name for a in AXES if a.section == "layout"] + [n for n in POLICY if n != "precision"]


def run_text(plan: Plan) -> str:
    """Write the run file that declares, states and pins everything that the plan decided."""
    values = settings(plan.layout, plan.policy)
    pins = "pin " + " ".join(f"{k}={written(values[k])}" for k in _PINNED)
    stages = plan.layout.pipeline_layout
    return "; ".join(
        [*experiment(plan), f"micro_batch {plan.batch.micro_batch}", pins,
         *([f'pin pipeline_layout="{stages}"'] if stages else [])]
    )  # fmt: skip


def experiment(plan: Plan) -> list[str]:
    """Write the declarations and statements of a plan without its layout and its policies."""
    batch, policy = plan.batch, plan.policy
    frozen = [w for w in ("vision", "projection", "language") if getattr(policy, f"freeze_{w}")]
    return [
        *([plan.declared] if plan.declared else []),
        f"model {plan.model}",
        f"{plan.hardware} x {plan.gpus}",
        f"{plan.phase} first",
        f"seq {batch.seq}",
        f"batch {batch.global_batch}",
        f"precision {policy.precision}",
        f"task {plan.task}",
        f"routing {policy.routing}",
        *([f"vlm {' '.join(f'freeze_{w}' for w in frozen)}"] if frozen else []),
    ]


def priced(plan: Plan) -> Measured | Sequence[Diagnostic]:
    """Return what the estimate sees of a plan, or why its program does not compile here."""
    line = json.dumps({"run": run_text(plan), "id": plan.name})
    return of_line(line, 1, Path(), Span(plan.name, 0, 0))

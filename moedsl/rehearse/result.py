"""Write the result of a rehearsal as JSON: what was run, what it has of the plan, what was checked, why it failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, frozen

from moedsl.compiler import load_stdlib
from moedsl.diagnose import scan
from moedsl.diagnose import text as diagnose_text
from moedsl.planner.model.plan import Plan
from moedsl.rehearse.checks import Check
from moedsl.rehearse.cpu.config import changes
from moedsl.rehearse.launch import Outcome
from moedsl.rehearse.notes import KINDS
from moedsl.rehearse.prepare import Prepared
from moedsl.rehearse.shrink import Rehearsal

Json = dict[str, Any]


@frozen
class Result:
    """One rehearsal. `outcome` is None if it was only shown; `diagnosis` is of the log of a rank that failed."""

    rehearsal: Rehearsal
    plan: Plan
    """The plan that was rehearsed."""
    device: str
    """cpu or gpu."""
    prepared: Prepared | None = None
    outcome: Outcome | None = None
    checks: tuple[Check, ...] = ()
    diagnosis: Mapping[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Whether training finished and every check passes; true for a rehearsal that was only shown."""
        return self.outcome is None or (self.outcome.failure is None and all(c.ok for c in self.checks))


def to_json(r: Result) -> Json:
    """The JSON of `moedsl rehearse --json`, one object a run."""
    small = r.rehearsal
    names = ("seq", "micro_batch", "num_microbatches", "global_batch")
    return {
        "name": small.name,
        "ok": r.ok,
        "device": r.device,
        "ranks": small.ranks,
        "layout": {**small.layout, "pipeline_layout": small.pipeline_layout},
        "plan": {k: getattr(r.plan.layout, k) for k in (*small.layout, "pipeline_layout")},
        "batch": {name: getattr(small, name) for name in names},
        **{kind.replace(" ", "_"): [n.to_json() for n in small.notes if n.kind == kind] for kind in KINDS},
        "replaced": [asdict(c) for c in changes(small.model.linear)] if r.device == "cpu" else [],
        "trained": _trained(r),
    }


def _trained(r: Result) -> Json | None:
    if r.outcome is None or r.prepared is None:
        return None
    failure = r.outcome.failure
    last = r.outcome.answers[-1]["losses"] if r.outcome.answers else []
    return {
        "seconds": r.outcome.seconds,
        "iterations": r.prepared.iterations,
        "losses": last,
        "checks": [asdict(c) for c in r.checks],
        "failure": None if failure is None else {**asdict(failure), "diagnosis": r.diagnosis},
    }


def diagnosis(prepared: Prepared, outcome: Outcome) -> dict[str, Any] | None:
    """Diagnose the log of the rank that failed, as `moedsl diagnose --json` does; None if no rank failed."""
    if outcome.failure is None or outcome.failure.rank is None:
        return None
    log = prepared.folder / f"rank_{outcome.failure.rank}.log"
    if not log.exists():
        return None
    with log.open("rb") as stream:
        report = scan.diagnose(log.name, scan.blocks(stream), scan.symptoms(load_stdlib()))
    return diagnose_text.to_json(report, {})

"""Print the recipe that Megatron Bridge ships for the model and the GPUs of a plan."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.facts.axes import pairs
from moedsl.planner.model.plan import Plan
from moedsl.planner.model.shipped import ShippedRecipe
from moedsl.support.text import counted, wrapped


def shipped_text(p: Plan, r: ShippedRecipe) -> str:
    """Print its name, its layout, both predictions, and the command that shows the differences."""
    return "\n".join([f"NVIDIA's recipe  {r.name}", *(wrapped(line, rest="    ") for line in _lines(p, r))])


def _lines(p: Plan, r: ShippedRecipe) -> Iterator[str]:
    yield f"layout: {pairs(r.layout)}"
    yield _compared(p, r)
    if r.written_for:
        yield f"written for {pairs(r.written_for)}"
    if r.others:
        yield f"{counted(len(r.others), 'other recipe')} for this model on {p.gpus} {p.hardware}: {', '.join(r.others)}"
    if r.changes:
        yield f"moedsl diff FILE --like {r.name}"


def _compared(p: Plan, r: ShippedRecipe) -> str:
    """Write the prediction of the recipe's layout and that of the plan."""
    if r.step_time_s is None or r.peak_gib is None:
        return f"refused in this run by {r.refused_by}: {r.because}"
    if not r.changes:
        return "this plan has its layout"
    e = p.estimate
    here = f"{e.step_time_s:.2f} s a step, {e.memory.peak_gib:.1f} GiB, {e.memory.verdict}"
    theirs = f"{r.step_time_s:.2f} s a step ({r.against_plan}), {r.peak_gib:.1f} GiB, {r.verdict}"
    return f"at this run's batch {theirs}; this plan {here}"

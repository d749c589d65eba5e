"""Compare the plan with the recipe that Megatron Bridge ships for its model and GPUs, at the run's own batch.

Both layouts are priced by the same estimate, with the same batch, length and number formats. A recipe for another
number of GPUs is not shown: the data parallel size, and with it the layout, would be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, log2
from typing import Any

from attrs import evolve

from moedsl.cost.bounds import verdict
from moedsl.facts import axes
from moedsl.facts.recipes import Shipped
from moedsl.facts.units import GIB
from moedsl.facts.values import stages
from moedsl.planner.model.sections import ShippedRecipe
from moedsl.rules.check.program import Pin, Program
from moedsl.solver import neighbours
from moedsl.solver.problem import pinned_row
from moedsl.solver.solve import Chosen, solve
from moedsl.solver.table import Row
from moedsl.support.text import change

_PIPELINE = "pipeline_layout"
Values = Mapping[str, Any]


def nearest(found: Sequence[Shipped], chosen: Chosen, row: Row, pipeline: str | None) -> ShippedRecipe:
    """The recipe nearest to the run among those for its model, GPU, number of GPUs and task, priced.

    `pipeline` is the pipeline layout of the plan.
    """
    run = _experiment(chosen, row)
    best, *others = sorted(found, key=lambda r: _distance(r, run))
    own = {"seq": best.seq, "global_batch": best.batch, "mtp_layers": best.mtp_layers, **best.formats}
    return ShippedRecipe(
        name=best.name,
        target=best.target,
        layout=dict(best.layout),
        written_for={n: v for n, v in own.items() if v != run[n]},
        others=tuple(n for n in dict.fromkeys(r.name for r in others) if n != best.name),
        **_priced(best, chosen, row, pipeline),
    )


def _experiment(chosen: Chosen, row: Row) -> Values:
    """What a recipe was written for, as this run has it."""
    formats = {a.name: a.decode(row.codes[a.name]) for a in axes.AXES if a.is_format}
    c = chosen.problem
    own = {"seq": c.values["seq"], "global_batch": c.global_batch, "mtp_layers": c.program.model.mtp_layers}
    return {**own, **formats}


def _distance(r: Shipped, run: Values) -> tuple[Any, ...]:
    """How far a recipe's own run is from this one: its precision, then its length; of equals the plainest name."""
    return r.formats["precision"] != run["precision"], abs(log2(r.seq / run["seq"])), not r.tuned, len(r.name)


def _priced(r: Shipped, chosen: Chosen, row: Row, pipeline: str | None) -> dict[str, Any]:
    """The differences of a recipe's layout from the plan, and its cost or the law that refuses it."""
    p = _pinned(chosen.problem.program, r, row)
    theirs = solve(p, chosen.problem.gpus, keep=0, global_batch=chosen.problem.global_batch)
    codes = pinned_row(theirs.problem)
    found = neighbours.repriced(theirs.compiled, theirs.cost, evolve(row, codes=codes))
    law = next((x for x in p.of("require") if x.id == found.refused_by), None)
    # The axes that differ from the plan, and the pipeline layout if its stages do
    changes, text = evolve(row, codes=codes).changes(row.codes), r.layout.get(_PIPELINE)
    same = text is None or (pipeline is not None and stages(text) == stages(pipeline))
    out: dict[str, Any] = {"changes": (changes if same else {**changes, _PIPELINE: text})}
    out |= {"refused_by": law and law.id, "because": law and law.because}
    if isnan(found.step_time):
        return out | dict.fromkeys(("step_time_s", "peak_gib", "verdict", "against_plan"))
    more = float(found.peak_memory - row.peak_memory) / GIB
    return out | {
        "step_time_s": float(found.step_time),
        "peak_gib": float(found.peak_memory) / GIB,
        "verdict": verdict(theirs.cost, codes),
        "against_plan": change(float(found.step_time) / row.step_time - 1, more),
    }


def codes_of(layout: Values, row: Row) -> dict[str, int]:
    """A recipe's layout with the run's own number formats."""
    codes = {a.name: a.encode(layout[a.name]) if a.name in layout else a.off for a in axes.AXES}
    return codes | {a.name: row.codes[a.name] for a in axes.AXES if a.is_format}


def _pinned(p: Program, r: Shipped, row: Row) -> Program:
    """The run with the recipe's layout and its own number formats."""
    codes = codes_of(r.layout, row)
    where = p.spans["hardware"]
    return evolve(p, pins={n: Pin(n, c, where) for n, c in codes.items()}, pipeline_layout=r.layout.get(_PIPELINE))

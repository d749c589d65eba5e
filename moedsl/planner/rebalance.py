"""Balance the pipeline stages, and show the gain where Megatron's even split makes the last stage the slowest.

The even split counts only layers, so the stage with the loss and MTP has more work than the others. A plan uses the
even split where the layers divide, because it is Megatron's default; the balanced layout is shown as an alternative.
"""

from __future__ import annotations

from attrs import evolve

from moedsl.cost import pipeline
from moedsl.solver import neighbours
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row

WORTH = 0.01
"""Least share of the step that a layout must save to be shown."""


def rebalanced(chosen: Chosen, row: Row) -> tuple[str, Row] | None:
    """The most balanced layout of the plan's stages, with its prices.

    None if the plan has this layout, or if the layout breaks a law or saves less than `WORTH`.
    """
    p, pp, vpp = chosen.problem.program, row.codes["pp"], row.codes["vpp"]
    if pp == 1 or p.pipeline_layout is not None or pipeline.layout_string(p.model, pp, vpp) is not None:
        return None
    text = pipeline.balanced(p.model, pp, vpp)
    if text is None:
        return None
    other = neighbours.repriced(chosen.compiled, evolve(chosen.cost, layout=text), row)
    if other.refused_by is not None or other.step_time > (1 - WORTH) * row.step_time:
        return None
    prices = {**other.prices, "score": row.score + other.step_time - row.step_time}
    return text, evolve(row, prices=prices)

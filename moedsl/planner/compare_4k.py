"""The same run at 4K tokens: what the long sequence changed in the layout, and what it did to the batch."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from moedsl.checker.program import Pin, Program
from moedsl.planner.model.decisions import Difference
from moedsl.planner.model.plan import Against4k, Batch, Layout
from moedsl.schema import axes
from moedsl.solver.solve import Chosen, solve
from moedsl.support.text import counted, tokens

SHORT = 4096
LONG = 32768
"""Tokens from which a plan is compared with its twin."""
FREED = tuple(a.name for a in axes.AXES if a.section == "layout" or a.kind == "set" or (a.kind == "enum" and a.opened))
"""Axes that the twin chooses anew, pinned or not: the layout, sets of modules, and words that every phase chooses. The
microbatch, the flags of overlap and the formats are the plan's."""


@frozen
class Twin:
    """The best layout of the run at 4K tokens and what it says of the plan. Sizes of a batch are sequences."""

    dp: int
    num_microbatches: int
    global_batch: int
    codes: Mapping[str, int]
    """Its axes, encoded as in a column."""


def long_twin(chosen: Chosen, batch: Batch) -> Twin | None:
    """The twin of a plan; None where the plan is short, or where its twin has no layout."""
    if batch.seq < LONG:
        return None
    return twin(chosen.problem.program, chosen.problem.gpus, chosen.solution.rows[0].codes, batch)


def twin(p: Program, gpus: int, codes: Mapping[str, int], batch: Batch) -> Twin | None:
    """The run at 4K tokens with as many tokens a step on the same GPUs; None where its own wishes leave no layout."""
    sequences = batch.global_batch * batch.seq // SHORT
    found = solve(_shortened(p, codes), gpus, keep=1, seq=SHORT, global_batch=sequences)
    if not found.solution.rows:
        return None
    row = found.solution.rows[0].codes
    dp = gpus // (row["tp"] * row["cp"] * row["pp"])
    return Twin(dp, sequences // (dp * row["micro_batch"]), sequences, row)


def _shortened(p: Program, codes: Mapping[str, int]) -> Program:
    """The program with what a length decides set free, and every other axis as the plan has it.

    What the run states of derived values is meant for its own length, and goes.
    """
    anywhere = next(iter(p.spans.values()))
    kept = {a.name: Pin(a.name, codes[a.name], anywhere) for a in axes.AXES if a.name not in FREED}
    rules = tuple(r for r in p.rules if not (r.wish and r.name in axes.DERIVED))
    return evolve(p, pins=kept, rules=rules, pipeline_layout=None)


def against(t: Twin, layout: Layout, batch: Batch) -> Against4k:
    """What the plan's DP does to its batch: the twin's batch accumulated here, and the twin's accumulation's batch."""
    each = layout.dp * batch.micro_batch
    same_batch, same_steps = -(-t.global_batch // each), t.num_microbatches * each
    short, same = counted(t.num_microbatches, "microbatch"), counted(same_batch, "microbatch")
    text = (
        f"dp {layout.dp} at {tokens(batch.seq)} against {t.dp} at {tokens(SHORT)}, where the same tokens are "
        f"{t.global_batch} sequences in {short}: here {t.global_batch} sequences would "
        f"take {same}, and {short} hold {same_steps} sequences"
    )
    return Against4k(SHORT, t.dp, t.num_microbatches, t.global_batch, same_batch, same_steps, text)


def changes(t: Twin, codes: Mapping[str, int]) -> tuple[Difference, ...]:
    """The axes that the twin has otherwise: each with its value at 4K and in the plan."""
    named = [axes.BY_NAME[n] for n in FREED if t.codes[n] != codes[n]]
    return tuple(Difference(a.name, a.decode(t.codes[a.name]), a.decode(codes[a.name])) for a in named)

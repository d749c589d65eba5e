"""Compare a plan with the same run at 4K tokens: what the long sequence changes in the layout and the batch."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.planner.model.decisions import Difference
from moedsl.planner.model.plan import Against4k, Batch, Layout
from moedsl.rules.check.program import Pin, Program
from moedsl.solver.solve import Chosen, solve
from moedsl.support.text import counted, tokens

SHORT = 4096
LONG = 32768
"""Shortest sequence whose plan is compared with its twin, in tokens."""
FREED = tuple(a.name for a in axes.AXES if a.section == "layout" or a.kind == "set" or (a.kind == "enum" and a.opened))
"""Axes that the twin chooses again, pinned or not: the layout, sets of modules, and words that every phase chooses. The
microbatch, the overlap flags and the number formats stay as in the plan."""


@frozen
class Twin:
    """The best layout of the run at 4K tokens. Batch sizes are in sequences."""

    dp: int
    num_microbatches: int
    global_batch: int
    codes: Mapping[str, int]
    """Values of the axes, encoded as in a column."""


def long_twin(chosen: Chosen, batch: Batch) -> Twin | None:
    """The twin of a plan; None if the sequence is short or the twin has no layout."""
    if batch.seq < LONG:
        return None
    return twin(chosen.problem.program, chosen.problem.gpus, chosen.solution.rows[0].codes, batch)


def twin(p: Program, gpus: int, codes: Mapping[str, int], batch: Batch) -> Twin | None:
    """Solve the run at 4K tokens with as many tokens a step on the same GPUs; None if it has no layout."""
    sequences = batch.global_batch * batch.seq // SHORT
    short = solve(_shortened(p, codes), gpus, keep=1, seq=SHORT, global_batch=sequences)
    if not short.solution.rows:
        return None
    row = short.solution.rows[0].codes
    dp = gpus // (row["tp"] * row["cp"] * row["pp"])
    return Twin(dp, sequences // (dp * row["micro_batch"]), sequences, row)


def _shortened(p: Program, codes: Mapping[str, int]) -> Program:
    """Free the axes in FREED, and pin every other axis to the plan's value.

    Requirements on derived values are dropped: they are meant for the run's own length.
    """
    anywhere = next(iter(p.spans.values()))
    pins = {a.name: Pin(a.name, codes[a.name], anywhere) for a in axes.AXES if a.name not in FREED}
    rules = tuple(r for r in p.rules if not (r.wish and r.name in axes.DERIVED))
    same = len(rules) == len(p.rules)  # the same rules keep their lookups
    return evolve(p, pins=pins, rules=p.rules if same else rules, pipeline_layout=None)


def against(t: Twin, layout: Layout, batch: Batch) -> Against4k:
    """Compare batches: microbatches here for the twin's batch, and the batch here for the twin's microbatches."""
    each = layout.dp * batch.micro_batch
    same_batch, same_steps = -(-t.global_batch // each), t.num_microbatches * each
    short, same = counted(t.num_microbatches, "microbatch"), counted(same_batch, "microbatch")
    text = (
        f"dp is {layout.dp} at {tokens(batch.seq)} and {t.dp} at {tokens(SHORT)}. At {tokens(SHORT)}, the same tokens "
        f"are {t.global_batch} sequences in {short}. Here, {t.global_batch} sequences would need {same}; "
        f"{short} hold {same_steps} sequences"
    )
    return Against4k(SHORT, t.dp, t.num_microbatches, t.global_batch, same_batch, same_steps, text)


def changes(t: Twin, codes: Mapping[str, int]) -> tuple[Difference, ...]:
    """The axes in which the twin differs, each with its value at 4K and in the plan."""
    named = [axes.BY_NAME[n] for n in FREED if t.codes[n] != codes[n]]
    return tuple(Difference(a.name, a.decode(t.codes[a.name]), a.decode(codes[a.name])) for a in named)

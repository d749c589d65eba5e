"""The same run at 4K tokens: what the long sequence changed in the layout, and what it did to the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from moedsl.checker.program import Pin, Program
from moedsl.schema import axes
from moedsl.solver.solve import Chosen, solve
from moedsl.support.text import counted, tokens

SHORT = 4096
LONG = 32768
"""Tokens from which a plan is compared with its twin."""
FREED = tuple(a.name for a in axes.AXES if a.section == "layout" or a.kind == "set" or (a.kind == "enum" and a.opened))
"""Axes that the twin chooses anew, pinned or not: the layout, sets of modules, and words that every phase chooses. The
microbatch, the flags of overlap and the formats are the plan's."""
Values = Mapping[str, Any]


@frozen
class Twin:
    """The best layout of the run at 4K tokens and what it says of the plan. Sizes of a batch are sequences."""

    dp: int
    num_microbatches: int
    global_batch: int
    codes: Mapping[str, int]
    """Its axes, encoded as in a column."""


def compared(plan: dict[str, Any], chosen: Chosen) -> dict[str, Any]:
    """The plan with `batch.against_4k` and `against_4k.changes`.

    As it is where it is short, or where its twin has no layout.
    """
    if plan["batch"]["seq"] < LONG:
        return plan
    codes = chosen.solution.rows[0].codes
    short = twin(chosen.problem.program, chosen.problem.gpus, codes, plan["batch"])
    if short is None:
        return plan
    batch = {**plan["batch"], "against_4k": against(short, plan["layout"], plan["batch"])}
    return {**plan, "batch": batch, "against_4k": {"changes": changes(short, codes)}}


def twin(p: Program, gpus: int, codes: Mapping[str, int], batch: Values) -> Twin | None:
    """The run at 4K tokens with as many tokens a step on the same GPUs; None where its own wishes leave no layout."""
    sequences = batch["global_batch"] * batch["seq"] // SHORT
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


def against(t: Twin, layout: Values, batch: Values) -> dict[str, Any]:
    """What the plan's DP does to its batch: the twin's batch accumulated here, and the twin's accumulation's batch.

    `layout` and `batch` are those of the plan's JSON. `text` says the other keys in a sentence.
    """
    each = layout["dp"] * batch["micro_batch"]
    same_batch, same_steps = -(-t.global_batch // each), t.num_microbatches * each
    short, same = counted(t.num_microbatches, "microbatch"), counted(same_batch, "microbatch")
    text = (
        f"dp {layout['dp']} at {tokens(batch['seq'])} against {t.dp} at {tokens(SHORT)}, where the same tokens are "
        f"{t.global_batch} sequences in {short}: here {t.global_batch} sequences would "
        f"take {same}, and {short} hold {same_steps} sequences"
    )
    return {
        "seq": SHORT, "dp": t.dp, "num_microbatches": t.num_microbatches, "global_batch": t.global_batch,
        "accumulation_for_same_batch": same_batch, "batch_for_same_accumulation": same_steps, "text": text,
    }  # fmt: skip


def changes(t: Twin, codes: Mapping[str, int]) -> list[dict[str, Any]]:
    """The axes that the twin has otherwise: each with its value at 4K and in the plan."""
    named = [axes.BY_NAME[n] for n in FREED if t.codes[n] != codes[n]]
    return [{"name": a.name, "at_4k": a.decode(t.codes[a.name]), "here": a.decode(codes[a.name])} for a in named]

"""Print several plans as one table, before the details of each."""

from __future__ import annotations

from collections.abc import Sequence

from moedsl.facts.axes import SIZES
from moedsl.planner.model.plan import Plan
from moedsl.support.text import table, tokens, wrapped


def runs_text(plans: Sequence[Plan], width: int) -> str:
    """Print what all runs have in common, then a line for each with the rest, its speed, memory and verdict."""
    each = [_given(p) for p in plans]
    common = {k: v for k, v in each[0].items() if all(e[k] == v for e in each)}
    names = [k for k in each[0] if k not in common]
    rows = [(p.name, *(e[k] for k in names), *_figures(p)) for p, e in zip(plans, each, strict=True)]
    heads = ("run", *names, "s a step", "tokens/s/GPU", "GiB", "verdict")
    lines = table([heads, *rows], "l" + "r" * (len(heads) - 2) + "l")
    shared = ", ".join(f"{k}\xa0{v}" for k, v in common.items())  # a line ends between two of them
    shared = [wrapped(shared, f"{len(plans)} runs: ", "  ", width).replace("\xa0", " ")]
    return "\n".join([*shared, *lines]) + "\n"


def _given(p: Plan) -> dict[str, str]:
    """What runs of a file may have in common."""
    sizes = {n: str(getattr(p.layout, n)) for n in SIZES}
    return {"model": p.model, "hardware": p.hardware, "GPUs": str(p.gpus), "length": tokens(p.batch.seq), **sizes}


def _figures(p: Plan) -> tuple[str, ...]:
    e = p.estimate
    rate = f"{e.useful_tokens_per_s_per_gpu:,.0f}"
    return f"{e.step_time_s:.2f}", rate, f"{e.memory.peak_gib:.1f}", e.memory.verdict

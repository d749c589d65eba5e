"""Know what a recipe's validation runs: how often, how many batches, and of which size."""

from __future__ import annotations

from moedsl.facts.common import COMMON

ITERATIONS, INTERVAL, BATCH = (f"validation.{n}" for n in ("eval_iters", "eval_interval", "eval_global_batch_size"))


def iterations(task: str, mock: bool) -> int:
    """Batches of one validation; random tokens need none."""
    return 0 if mock else COMMON[task].values[ITERATIONS]


def interval(task: str) -> int:
    """Steps between two validations."""
    return COMMON[task].values[INTERVAL]


def smallest_batch(micro_batch: int, dp: int, pp: int, vpp: int) -> int:
    """One microbatch for each replica (bridge training/config.py:1335, training/eval.py:145); PP of them with virtual
    stages (core pipeline_parallel/schedules.py:1134)."""
    return micro_batch * dp * (pp if vpp > 1 else 1)

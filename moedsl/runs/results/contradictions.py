"""Find where a log contradicts the plan of its run: another global batch, starts of different speeds, TFLOPS of another
model or number of GPUs, or a speed that the GPU does not have.

TFLOPS over tokens/s are the FLOPs of a token, which Bridge counts as `moedsl.cost.flops` does: MoE, MTP and windows
have their own terms, and recomputation has none. Of 167 runs of text that NVIDIA published with both, the count is 0.99
to 1.01 of ours in 133 and 0.83 to 1.05 in all: older releases count each layer of GPT-OSS as windowed, and a mean of
TFLOPS is above those of the mean step. Five layers of Moonlight on one H200 log 1.00. `APART` is wider than all of
these, and half or twice the GPUs are beyond it; another length, which changes only attention's share, may be within.
Fine-tuning and images are not judged: there Bridge counts the tokens and patches of the samples that it meets
(training/utils/flop_utils.py:425), which no plan knows.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.planner.model.plan import Plan
from moedsl.runs.calibrate.runs import Measured, above_peak, priced
from moedsl.runs.results.gather import Numbers

Json = dict[str, Any]
BATCH, RESTART, STARTS, FLOPS, PEAK = "batch", "restart", "starts", "flops", "peak"
UNFIT = (BATCH, STARTS, FLOPS, PEAK)
"""What makes the figures those of no one run, or of another one."""
APART = 1.3
"""The ratio of two counts of FLOPs of a token from which on they are not of one run."""
LINES = 10
"""The lines after the warm-up from which on the speed of a start is known."""
SPEEDS = 1.1
"""The ratio of the speeds of two starts from which on one median misstates both."""


@frozen
class Timed:
    """A measured line of the log: the last rank's, or rank 0's."""

    seconds: float
    global_batch: int
    tflops: float | None


def contradictions(
    plan: Plan | None,
    n: Numbers,
    batches: Sequence[int],
    starts: Sequence[Sequence[Timed]],
    earlier: Sequence[int] = (),
    rank_0: Sequence[Timed] = (),
) -> list[Json]:
    """Return what contradicts, as `id` and `text`: `batches` are those that the log states, in order, `starts` the
    measured lines of each attempt, and `earlier` the batches of starts that do not count. The lines of `rank_0` have
    TFLOPS where the others have none."""
    found = {BATCH: _batch(n, batches), RESTART: _restart(batches, earlier)}
    each = [t for start in starts for t in start]
    if len(batches) < 2:  # a ramp-up has steps of several speeds
        found[STARTS] = _starts(starts)
    if plan is not None and each:
        found |= {FLOPS: _flops(plan, n, each) or _flops(plan, n, rank_0), PEAK: _peak(plan, n, each)}
    return [{"id": id, "text": text} for id, text in found.items() if text]


def unfit(plan: Plan, row: Mapping[str, Any]) -> list[str]:
    """Return why the figures of a row are not those of its plan."""
    found = said(row, UNFIT)
    if not found and (len(row["batches"]) > 1 or row["global_batch"] != plan.batch.global_batch):
        found = [f"its batch ramps up to {plan.batch.global_batch:,}, and a line has one batch"]
    return found


def said(row: Mapping[str, Any], ids: Sequence[str]) -> list[str]:
    """Return the contradictions of a row with these ids."""
    return [w["text"] for w in row["warnings"] if w["id"] in ids]


def _batch(n: Numbers, batches: Sequence[int]) -> str | None:
    """Another batch is another experiment. One that still ramps up to the full one is not."""
    if not batches or n.global_batch is None or batches[-1] == n.global_batch:
        return None
    if batches[-1] < n.global_batch and (n.ramps_up or batches[0] < batches[-1]):
        return None
    stated = f"its log states a global batch of {batches[-1]:,}"
    if n.source == "given":
        return f"{stated}, --global-batch {n.global_batch:,}: the log's counts"
    return (
        f"{stated}, its {n.source} {n.global_batch:,}: that is another experiment, so it is not compared with the"
        f" {n.source}; compile the program with `batch {batches[-1]}`, and give LOG=PLAN"
    )


def _restart(batches: Sequence[int], earlier: Sequence[int]) -> str | None:
    if not batches or not earlier:
        return None
    was = " and ".join(f"{b:,}" for b in earlier)
    return f"its log had a global batch of {was} before a restart with {batches[-1]:,}: only the steps since then count"


def _starts(starts: Sequence[Sequence[Timed]]) -> str | None:
    """Compare the starts that have enough lines."""
    known = [a for a in starts if len(a) >= LINES]
    rates = [statistics.median(t.global_batch / t.seconds for t in a) for a in known]
    if len(rates) < 2 or max(rates) < SPEEDS * min(rates):
        return None
    times = " and ".join(f"{statistics.median(t.seconds for t in a):.2f}" for a in known)
    return f"its {len(known)} starts differ in speed, {times} s a step, and the figures mix them: look at the machines"


def _flops(plan: Plan, n: Numbers, each: Sequence[Timed]) -> str | None:
    """Compare the FLOPs of a token that the log counts with the plan's."""
    logged = [t.tflops * 1e12 * t.seconds * n.gpus / (t.global_batch * n.seq) for t in each if t.tflops]
    e = plan.estimate
    if not logged or plan.task != "pretrain" or e.parts:
        return None
    counted, own = statistics.median(logged), e.model_tflops_per_gpu * 1e12 / e.tokens_per_s_per_gpu
    if 1 / APART <= counted / own <= APART:
        return None
    return (
        f"its log counts {counted / 1e9:.3g} GFLOPs a token, {counted / own:.3g} times the {own / 1e9:.3g} of its plan:"
        " another model, length or number of GPUs ran, or its times are of another unit; give LOG=PLAN with the plan of"
        " what ran"
    )


def _peak(plan: Plan, n: Numbers, each: Sequence[Timed]) -> str | None:
    """Compare the speed with the peak of the GPU. What is not above the plan's speed is below the peak, and a program
    that does not compile here has none."""
    rate = statistics.median(t.global_batch * n.seq / t.seconds for t in each) / n.gpus
    made = priced(plan) if rate > plan.estimate.tokens_per_s_per_gpu else None
    return above_peak(made, rate) if isinstance(made, Measured) else None

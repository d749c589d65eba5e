"""Read one line of a training log, as Megatron Bridge and Megatron-LM format it.

The iteration line is `training_log`'s: bridge training/utils/train_utils.py:1173-1225, which the last rank prints, and
core's megatron/training/training.py:2844. A value is printed only if it is at least zero (train_utils.py:1208), so a
line with a NaN loss has no loss. Rank 0 also prints `Step Time` (train_utils.py:1135), and the first rank of each
data-parallel group its memory for two iterations (train_utils.py:1231), in GB; Megatron-LM in MiB
(megatron/training/utils/common_utils.py:323). Rank 0 prints when a checkpoint is written whole
(training/checkpointing.py:1441, 1480), and the time before the first step (`barrier_and_log`, core
megatron/training/utils/log_utils.py:147).

Two detectors name slow ranks: nvidia-resiliency-ext those below its threshold (bridge training/nvrx_straggler.py:223,
with its StragglerId of rank and node), Megatron-Core the fastest and the slowest of an interval (core
megatron/core/utils.py:1772).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from attrs import frozen

COUNT, DECIMAL = r"[0-9]{1,15}", r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
"""Numbers that a run can have; Python refuses longer ones, and a log may be damaged."""
_ITERATION = re.compile(rf"(?:\[([\d :.-]+)\] +)?iteration +({COUNT})/ *({COUNT}) \|(.*)")
_MEMORY = re.compile(rf"\[Rank ({COUNT})\][^\[\]]* memory \((GB|MB)\) \|(.*)")
_STEP = re.compile(rf"Step Time : ({DECIMAL})s GPU utilization: ({DECIMAL})MODEL_TFLOP/s/GPU")
_SAVED = re.compile(rf"successfully saved (?:local )?checkpoint from iteration +({COUNT})")
_CLOCK = re.compile(r"\[[^\[\]]+\] datetime: ([\d-]+ [\d:]+)")
_NVRX = re.compile(r"STRAGGLER DETECTION WARNING: Some GPUs .*Affected ranks: (.*)")
_NAMED = re.compile(rf"rank=({COUNT}), node='([^']*)'")
_SLOWEST = re.compile(rf"MnRtt/Rnk: ({DECIMAL})ms/{COUNT} \| MxRtt/Rnk: ({DECIMAL})ms/({COUNT})")
_LEAST, _MOST = 1e-6, 1e15
"""Bounds of a measured amount."""
_PEAK = {"GB": ("mem-max-allocated-gigabytes", 1e9), "MB": ("max allocated", 2**20)}
WORDS = (b" iteration ", b" memory (", b"Step Time :", b"] datetime: ", b"STRAGGLER DETECTION", b"MnRtt/Rnk")
"""Words of the lines that matter."""


@frozen
class Step:
    """One iteration line: averages over the iterations since the line before it."""

    stamp: str
    """The time at the start of the line, or ""."""
    iteration: int
    of: int
    """The number of iterations of the run."""
    seconds: float
    """Seconds of one iteration."""
    global_batch: int | None
    """Sequences."""
    loss: float | None
    """`lm loss`; None if the line has none."""
    grad_norm: float | None
    tflops: float | None
    """Model TFLOP/s of a GPU, if the run logs its throughput."""
    skipped: int
    """Iterations whose update was skipped, among those of the line."""
    nan: int
    """Skipped iterations with a NaN loss."""


@frozen
class Memory:
    """The peak of one rank, as torch.cuda.max_memory_allocated counts it, in bytes."""

    rank: int
    peak: float


@frozen
class StepTime:
    """Rank 0's own line: seconds of an iteration to 10 ms, and model TFLOP/s of a GPU."""

    seconds: float
    tflops: float


@frozen
class Saved:
    """A checkpoint is written whole; a background save, some steps after its own."""

    iteration: int


@frozen
class Clock:
    """The time of a moment before or after the steps."""

    stamp: str


@frozen
class Slow:
    """Slow ranks, with the node of each if the line names it."""

    nodes: Mapping[int, str | None]
    ratio: float | None
    """The time of the slowest rank over that of the fastest, if the line has both."""


Line = Step | Memory | StepTime | Saved | Clock | Slow


def read(text: str) -> Line | None:
    """Read a line; None for a line of another kind."""
    if found := _ITERATION.search(text):
        return _step(found)
    if found := _SAVED.search(text):
        return Saved(int(found[1]))
    if found := _CLOCK.search(text):
        return Clock(found[1])
    if found := _NVRX.search(text):
        return Slow({int(rank): node for rank, node in _NAMED.findall(found[1])}, None)
    if found := _SLOWEST.search(text):
        least, most = float(found[1]), float(found[2])
        return Slow({int(found[3]): None}, most / least if least else None)
    if found := _MEMORY.search(text):
        return _memory(found)
    if found := _STEP.search(text):
        return StepTime(float(found[1]), float(found[2]))
    return None


def _step(found: re.Match[str]) -> Step | None:
    fields = _fields(found[4])
    elapsed = _amount(fields, "elapsed time per iteration (ms)")
    if elapsed is None or not int(found[2]):
        return None
    batch = _amount(fields, "global batch size")
    return Step(
        stamp=found[1] or "",
        iteration=int(found[2]),
        of=int(found[3]),
        seconds=elapsed / 1000,
        global_batch=None if batch is None else int(batch),
        loss=fields.get("lm loss"),
        grad_norm=fields.get("grad norm"),
        tflops=_amount(fields, "throughput per GPU (TFLOP/s/GPU)"),
        skipped=int(_amount(fields, "number of skipped iterations") or 0),
        nan=int(_amount(fields, "number of nan iterations") or 0),
    )


def _memory(found: re.Match[str]) -> Memory | None:
    name, unit = _PEAK[found[2]]
    value = _amount(_fields(found[3]), name)
    return None if value is None else Memory(int(found[1]), value * unit)


def _fields(text: str) -> Mapping[str, float]:
    """Read `name: value` between bars; values that are not numeric are left out."""
    parts = (part.rpartition(":") for part in text.split("|"))
    return {name.strip(): number for name, _, value in parts if (number := _number(value)) is not None}


def _amount(fields: Mapping[str, float], name: str) -> float | None:
    """A field that is above zero and finite; None for another one."""
    value = fields.get(name, math.nan)
    return value if _LEAST <= value <= _MOST else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def is_number(step: Step) -> bool:
    """Whether all values of the line are finite."""
    said = (step.loss, step.grad_norm)
    return step.nan == 0 and all(x is None or math.isfinite(x) for x in said)

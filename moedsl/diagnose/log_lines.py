"""Read the lines that Megatron Bridge and Megatron-LM print about a run: iterations, memory, checkpoints, slow ranks.

`training_log` prints the iteration line (bridge training/utils/train_utils.py:1173-1225, on the last rank; core
megatron/training/training.py:2844). A value is printed only if it is at least zero (train_utils.py:1208), so a line has
no loss if the loss is NaN. The line ends with `number of nan iterations: N |`, but a killed job may have cut it
anywhere, even with the next job's text after it.

Rank 0 also prints `Step Time` (train_utils.py:1135). For two iterations, the first rank of each data-parallel group
prints its memory, in GB (train_utils.py:1231); Megatron-LM prints it in MiB
(megatron/training/utils/common_utils.py:323). Rank 0 prints when a checkpoint is completely written
(training/checkpointing.py:1441, 1480), and the time before the first step (`barrier_and_log`, core
megatron/training/utils/log_utils.py:147).

Two detectors name slow ranks: nvidia-resiliency-ext names those below its threshold (bridge
training/nvrx_straggler.py:223, with its StragglerId of rank and node); Megatron-Core names the fastest and the slowest
rank of an interval (core megatron/core/utils.py:1772).

`Health` checks the iteration lines: NaN or infinite values, growing gradients, skipped and slower steps.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from attrs import define, field, frozen

COUNT, DECIMAL = r"[0-9]{1,15}", r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
"""Patterns for the numbers in a log; their length is limited because a damaged log may have longer ones."""
_ITERATION = re.compile(rf"(?:\[([\d :.-]+)\] +)?iteration +({COUNT})/ *({COUNT}) \|(.*)")
_BEGINS = [re.compile(p) for p in (rf"iteration +{COUNT}/ *{COUNT} \|", rf"\[Rank {COUNT}\] \(after ", "Step Time :")]
_STAMP = re.compile(r"\[[\d :.-]{1,40}\] +$")
_END = "number of nan iterations"
_MEMORY = re.compile(rf"\[Rank ({COUNT})\][^\[\]]* memory \((GB|MB)\) \|(.*)")
_STEP = re.compile(rf"Step Time : ({DECIMAL})s GPU utilization: ({DECIMAL})MODEL_TFLOP/s/GPU")
_SAVED = re.compile(rf"successfully saved (?:local )?checkpoint from iteration +({COUNT})")
_CLOCK = re.compile(r"\[[^\[\]]+\] datetime: ([\d-]+ [\d:]+)")
_NVRX = re.compile(r"STRAGGLER DETECTION WARNING: Some GPUs .*Affected ranks: (.*)")
_NAMED = re.compile(rf"rank=({COUNT}), node='([^']*)'")
_SLOWEST = re.compile(rf"MnRtt/Rnk: ({DECIMAL})ms/{COUNT} \| MxRtt/Rnk: ({DECIMAL})ms/({COUNT})")
_LEAST, _MOST = 1e-6, 1e15
"""Smallest and largest amount that is believed."""
_PEAK = {"GB": ("mem-max-allocated-gigabytes", 1e9), "MB": ("max allocated", 2**20)}
WORDS = (b" iteration ", b" memory (", b"Step Time :", b"] datetime: ", b"STRAGGLER DETECTION", b"MnRtt/Rnk",
         b"'iteration': '", b"'global_step/max_steps': '", b"train_step_timing in s")  # fmt: skip
"""Texts that mark the lines to read."""
LONGEST = 1 << 13
"""The most bytes that are read of a line, before its mark and in all."""


@frozen
class Step:
    """One iteration line: averages over the iterations since the line before it."""

    stamp: str
    """The time at the start of the line; "" if it has none."""
    iteration: int
    of: int
    """The number of iterations of the run."""
    seconds: float
    """Seconds of one iteration."""
    global_batch: int | None
    """Sequences in a step."""
    loss: float | None
    """`lm loss`; None if the line has no loss."""
    grad_norm: float | None
    tflops: float | None
    """Model TFLOP/s of a GPU; None if the run does not log its throughput."""
    skipped: int
    """Number of iterations covered by the line whose update was skipped."""
    nan: int
    """Skipped iterations with a NaN loss."""
    has_end: bool
    """Whether the line has the field that ends it, so that it was not cut."""


@frozen
class Memory:
    """The peak memory of one rank in bytes, as torch.cuda.max_memory_allocated counts it."""

    rank: int
    peak: float


@frozen
class StepTime:
    """Rank 0's own line: seconds of an iteration to 10 ms, and model TFLOP/s of a GPU."""

    seconds: float
    tflops: float


@frozen
class Saved:
    """A checkpoint that is completely written; a background save is reported some steps after its `iteration`."""

    iteration: int


@frozen
class Clock:
    """A time that the run prints before or after its steps."""

    stamp: str


@frozen
class Slow:
    """Slow ranks, with the node of each if the line names it."""

    nodes: Mapping[int, str | None]
    ratio: float | None
    """Time of the slowest rank over time of the fastest; None if the line lacks one."""


Line = Step | Memory | StepTime | Saved | Clock | Slow


def split_line(text: str) -> Iterator[str]:
    """Split a line of text where another one begins: a line that was cut has no newline before the next job's line."""
    starts = sorted(found.start() for begins in _BEGINS for found in begins.finditer(text))[1:]
    stamps = [_STAMP.search(text, max(0, at - 60), at) for at in starts]
    cuts = [stamp.start() if stamp else at for stamp, at in zip(stamps, starts, strict=True)]
    yield from (text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)]))


def read_line(text: str) -> Line | None:
    """Read a line of Megatron Bridge or Megatron-LM; None for any other line."""
    if found := _ITERATION.search(text):
        fields = _fields(found[4])
        elapsed, batch = (_amount(fields, n) for n in ("elapsed time per iteration (ms)", "global batch size"))
        if elapsed is None or not int(found[2]):
            return None
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
            nan=int(_amount(fields, _END) or 0),
            has_end=_END in fields,
        )
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
        name, unit = _PEAK[found[2]]
        value = _amount(_fields(found[3]), name)
        return None if value is None else Memory(int(found[1]), value * unit)
    if found := _STEP.search(text):
        return StepTime(float(found[1]), float(found[2]))
    return None


_SWIFT = re.compile(rf"\{{.*'(?:iteration|global_step/max_steps)': '({COUNT})/({COUNT})'.*\}}")
_NEMO = re.compile(rf"iteration ({COUNT})/({COUNT}) \|(.*)")


def lines_of_others(text: str) -> Iterator[Line]:
    """Read a step line that ms-swift or NeMo 2 prints.

    ms-swift prints a dictionary; its memory is what PyTorch reserved, not the peak that was allocated, and is left out.
    NeMo 2 counts iterations from 0 and prints memory in bytes.
    """
    if found := _SWIFT.search(text):
        with suppress(ValueError, SyntaxError):  # a line that was cut
            said = ast.literal_eval(found[0])
            per_step = said.get("elapsed_time_per_iteration") or said.get("train_speed(s/it)")
            rate = said.get("train_speed(iter/s)")
            seconds = per_step or (1 / rate if rate else 0)
            if _LEAST <= seconds <= _MOST:
                loss, norm = (said.get(name) for name in ("loss", "grad_norm"))
                yield Step("", int(found[1]), int(found[2]), float(seconds), None, loss, norm, None, 0, 0, True)
    elif found := _NEMO.search(text):
        fields = _fields(f"{found[3]}|")
        seconds, batch = (_amount(fields, name) for name in ("train_step_timing in s", "global_batch_size"))
        if seconds is not None:
            loss, norm = (fields.get(name) for name in ("reduced_train_loss", "grad_norm"))
            whole = None if batch is None else int(batch)
            yield Step("", int(found[1]) + 1, int(found[2]) + 1, seconds, whole, loss, norm, None, 0, 0, True)
            if peak := _amount(fields, "peak_memory_usage"):
                yield Memory(0, peak)


def _fields(text: str) -> Mapping[str, float]:
    """Read each `name: value` that a bar ends; leave out values that are not numbers.

    A last value without a bar is left out too: the line was cut, perhaps in the middle of a number."""
    fields = dict[str, float]()
    for part in text.split("|")[:-1]:
        name, _, value = part.rpartition(":")
        with suppress(ValueError):
            fields[name.strip()] = float(value.partition("/")[0])  # Primus adds the mean so far: 5012.1/5010.3
    return fields


def _amount(fields: Mapping[str, float], name: str) -> float | None:
    """Return a field that is above zero and finite; None otherwise."""
    value = fields.get(name, math.nan)
    return value if _LEAST <= value <= _MOST else None


def time_of(stamp: str) -> float | None:
    """Convert a time stamp to seconds by the node's clock; None if the text is not a time."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def lines(block: bytes) -> Iterator[tuple[int, Line]]:
    """Read the lines of a block, in order, each with its byte offset in the block."""
    at = {word: block.find(word) for word in WORDS}
    while (found := min((p for p in at.values() if p >= 0), default=-1)) >= 0:
        start, end = block.rfind(b"\n", 0, found) + 1, block.find(b"\n", found)
        end = len(block) if end < 0 else end
        for text in split_line(block[max(start, found - LONGEST) : end][:LONGEST].decode("utf-8", errors="replace")):
            if line := read_line(text):
                yield start, line
            else:
                yield from ((start, line) for line in lines_of_others(text))
        at = {word: block.find(word, end) if 0 <= p < end else p for word, p in at.items()}


def lines_with(words: Sequence[bytes], block: bytes) -> Iterator[str]:
    """Decode the lines of a block that contain one of `words`."""
    for line in block.splitlines():
        if any(word in line for word in words):
            yield line.decode("utf-8", errors="replace")


GROWS = 1.5
"""A gradient norm that grows by this factor from line to line is running away."""
GROWN_LINES = 3
"""Number of consecutive lines that must grow."""
LARGE = 1000.0
"""A gradient norm that stable pretraining does not have for several lines: gradients are clipped to about 1."""
SLOWER = 1.25
"""Recent steps count as slower if they take this many times the first steps."""
FEW = 8
"""Number of first and of recent lines whose speeds are compared."""
WARM_UP = 2
"""Number of first lines that the comparison of speeds leaves out."""


@frozen
class Finding:
    """Something wrong with the steps of a run; rules in symptoms_training.moe match its text and name the cause."""

    line: int
    text: str


@define
class Health:
    """Collects what the iteration lines of one attempt show, line by line.

    If a line has no loss although earlier lines had one, the loss is NaN, unless the line was cut and so lacks its end.
    """

    last: Step | None = None
    _line: int = 0
    _lines: int = 0
    _not_finite: tuple[int, Step] | None = None
    _had_loss: bool = False
    _had_end: bool = False
    _norms: deque[Step] = field(factory=lambda: deque(maxlen=GROWN_LINES))
    _grew: tuple[int, Step, Step] | None = None
    _skipped: tuple[int, Step] | None = None
    _batch: int | None = None
    _first: list[float] = field(factory=list)
    _recent: deque[float] = field(factory=lambda: deque(maxlen=FEW))

    @property
    def nan(self) -> int | None:
        """The iteration of the first line whose loss or gradient norm is not finite; None if there is none."""
        return self._not_finite[1].iteration if self._not_finite else None

    def add(self, step: Step, line: int = 0) -> None:
        """Add the next line of an attempt."""
        self.last, self._line = step, line
        self._lines += 1
        is_cut = self._had_end and not step.has_end
        is_lost = self._had_loss and step.loss is None and not is_cut
        if self._not_finite is None and (is_lost or not is_finite(step)):
            self._not_finite = line, step
        self._had_loss |= step.loss is not None
        self._had_end |= step.has_end
        if step.skipped and is_finite(step) and self._skipped is None:
            self._skipped = line, step
        if step.grad_norm is not None and is_finite(step):
            self._add_norm(step, line)
        if self._first and step.global_batch != self._batch:  # a ramp-up: compare only steps of one batch size
            self._first, self._recent = [], deque(maxlen=FEW)
        self._batch = step.global_batch
        if self._lines > WARM_UP:
            (self._first if len(self._first) < FEW else self._recent).append(step.seconds)

    def _add_norm(self, step: Step, line: int) -> None:
        self._norms.append(step)
        norms = [s.grad_norm or 0.0 for s in self._norms]
        grows = all(b >= GROWS * a for a, b in itertools.pairwise(norms))
        if norms[-1] <= LARGE:
            self._grew = None
        elif len(norms) == GROWN_LINES and (grows or min(norms) > LARGE):
            self._grew = line, self._norms[0], step

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, the gravest first."""
        if self._not_finite is not None:
            line, step = self._not_finite
            what = "loss" if step.grad_norm is None or math.isfinite(step.grad_norm) else "gradient norm"
            yield Finding(line, f"moedsl: {what} is not finite at iteration {step.iteration}")
        if self._grew is not None:
            line, a, b = self._grew
            text = f"moedsl: gradient norm grows to {b.grad_norm:,.0f} at iteration {b.iteration}"
            yield Finding(line, f"{text}, from {a.grad_norm:,.0f} at {a.iteration}")
        if self._skipped is not None:
            line, step = self._skipped
            yield Finding(line, f"moedsl: iterations are skipped, first at iteration {step.iteration}")
        if self.last is not None and len(self._recent) >= FEW:
            before, now = statistics.median(self._first), statistics.median(self._recent)
            if now > SLOWER * before:
                yield Finding(self._line, f"moedsl: steps take {now:.2f} s now and {before:.2f} s at first")


def is_finite(step: Step) -> bool:
    """Whether all values of a line are finite."""
    return step.nan == 0 and all(x is None or math.isfinite(x) for x in (step.loss, step.grad_norm))

"""Read the logs of one run, as Megatron Bridge and Megatron-LM print them: attempts, memory, and what went wrong.

The iteration line is `training_log`'s: bridge training/utils/train_utils.py:1173-1225, which the last rank prints, and
core's megatron/training/training.py:2844. A value is printed only if it is at least zero (train_utils.py:1208), so a
line with a NaN loss has no loss. The line ends with `number of nan iterations: N |`; a killed job may have cut it
anywhere, even with the next job's text after it. Rank 0 also prints `Step Time` (train_utils.py:1135), and the first
rank of each data-parallel group its memory for two iterations (train_utils.py:1231), in GB; Megatron-LM in MiB
(megatron/training/utils/common_utils.py:323). Rank 0 prints when a checkpoint is written whole
(training/checkpointing.py:1441, 1480), and the time before the first step (`barrier_and_log`, core
megatron/training/utils/log_utils.py:147).

Two detectors name slow ranks: nvidia-resiliency-ext those below its threshold (bridge training/nvrx_straggler.py:223,
with its StragglerId of rank and node), Megatron-Core the fastest and the slowest of an interval (core
megatron/core/utils.py:1772).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from attrs import define, field, frozen

from moedsl.diagnose import scan
from moedsl.diagnose.scan import Report, Scan, Symptom

COUNT, DECIMAL = r"[0-9]{1,15}", r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
"""Numbers that a run can have; Python refuses longer ones, and a log may be damaged."""
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
    has_end: bool
    """Whether it has the field that ends a line."""


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


def split_line(text: str) -> Iterator[str]:
    """Split a line of text where another one begins: one that was cut has no newline before the next job's."""
    starts = sorted(found.start() for begins in _BEGINS for found in begins.finditer(text))[1:]
    stamps = [_STAMP.search(text, max(0, at - 60), at) for at in starts]
    cuts = [stamp.start() if stamp else at for stamp, at in zip(stamps, starts, strict=True)]
    yield from (text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)]))


def read_line(text: str) -> Line | None:
    """Read a line; None for a line of another kind."""
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


def _fields(text: str) -> Mapping[str, float]:
    """Read `name: value` before a bar; values that are not numeric are left out, and so is one that no bar ends: a line
    that was cut may have only its first digits."""
    fields = dict[str, float]()
    for part in text.split("|")[:-1]:
        name, _, value = part.rpartition(":")
        with suppress(ValueError):
            fields[name.strip()] = float(value)
    return fields


def _amount(fields: Mapping[str, float], name: str) -> float | None:
    """A field that is above zero and finite; None for another one."""
    value = fields.get(name, math.nan)
    return value if _LEAST <= value <= _MOST else None


def time_of(stamp: str) -> float | None:
    """Read the time of a line, in seconds of the node's clock; None if it is none."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except ValueError:
        return None


def is_number(step: Step) -> bool:
    """Whether all values of the line are finite."""
    return step.nan == 0 and all(x is None or math.isfinite(x) for x in (step.loss, step.grad_norm))


Attempt = Sequence[Step]
"""A row of iteration lines with growing numbers; a requeued job begins another one."""


def first_nan(attempt: Attempt) -> int | None:
    """The iteration of the first line whose loss or gradient is NaN.

    A loss that earlier lines had is NaN if a later line has none, unless that line was cut: it then has no end either.
    """
    had_loss = had_end = False
    for step in attempt:
        is_cut = had_end and not step.has_end
        if (had_loss and step.loss is None and not is_cut) or not is_number(step):
            return step.iteration
        had_loss |= step.loss is not None
        had_end |= step.has_end
    return None


_BROKEN = re.compile(rb"Traceback \(most recent call last|ChildFailedError|srun: error|slurmstepd: error")


@define
class Reading:
    """What the lines of one log say, which is read block by block."""

    scan: Scan
    attempts: list[list[Step]] = field(factory=list)
    """A repeated line counts once: two ranks may print it."""
    step_times: list[StepTime] = field(factory=list)
    peak: float | None = None
    """Bytes at the peak of the fullest rank that printed them."""
    saves: list[int] = field(factory=list)
    """The iterations of the checkpoints that are written whole."""
    slow: list[tuple[int, Slow]] = field(factory=list)
    """The reports of slow ranks, each with the iteration after which it came."""
    began: float | None = None
    """The first time that is named before the first iteration line."""
    broken: bool = False
    """Whether the log has a traceback or a launcher's error."""
    _seen: set[Step] = field(factory=set)

    def block(self, block: bytes) -> None:
        """Read a block of whole lines."""
        self.scan.block(block)
        self.broken = self.broken or bool(_BROKEN.search(block))
        for line in lines(block):
            last = self.attempts[-1][-1].iteration if self.attempts else 0
            match line:
                case Step() if line not in self._seen:
                    self._seen.add(line)
                    if not self.attempts or line.iteration <= last:
                        self.attempts.append([])
                    self.attempts[-1].append(line)
                case StepTime():
                    self.step_times.append(line)
                case Memory():
                    self.peak = max(self.peak or 0.0, line.peak)
                case Saved():
                    self.saves.append(line.iteration)
                case Slow():
                    self.slow.append((last, line))
                case Clock() if self.began is None and not self.attempts:
                    self.began = time_of(line.stamp)
                case _:
                    pass


@frozen
class Log:
    """All logs of one run."""

    files: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()
    step_times: Sequence[StepTime] = ()
    peak: float | None = None
    """Bytes at the peak of the fullest rank that printed them."""
    reports: tuple[Report, ...] = ()
    """The report of `diagnose` on each file."""
    earlier: tuple[int, ...] = ()
    """The batches of attempts that do not count (`measure.last_settings`)."""
    broken: bool = False
    """Whether the log has a traceback or a launcher's error."""


def read_all(paths: Sequence[Path], known: Sequence[Symptom]) -> Log:
    """Read the logs of one run together. Raises OSError if a file cannot be read."""
    each = [Reading(Scan(known)) for _ in paths]
    for path, reading in zip(paths, each, strict=True):
        for block in blocks_of(path):
            reading.block(block)
    return Log(
        tuple(map(str, paths)),
        merged([r.attempts for r in each]),
        max((r.step_times for r in each), key=len, default=()),
        max((r.peak for r in each if r.peak is not None), default=None),
        tuple(r.scan.report(str(path)) for path, r in zip(paths, each, strict=True)),
        broken=any(r.broken for r in each),
    )


def merged(each: Sequence[Sequence[Attempt]]) -> tuple[Attempt, ...]:
    """The attempts of several logs in the order of their times; without times, of the logs.

    A line in several logs, such as a rank's and the job's, counts once.
    """
    seen: set[Step] = set()
    found: list[tuple[float, int, Attempt]] = []
    for i, attempts in sorted(enumerate(each), key=lambda g: -sum(map(len, g[1]))):
        fresh = [a for a in (tuple(s for s in a if s not in seen) for a in attempts) if a]
        found += [(time_of(a[0].stamp) or 0.0, i, a) for a in fresh]
        seen.update(s for a in fresh for s in a)
    return tuple(a for _, _, a in sorted(found, key=lambda f: f[:2]))


def blocks_of(path: Path) -> Iterator[bytes]:
    """Read a log in blocks of whole lines."""
    with path.open("rb") as stream:
        yield from scan.blocks(stream)


def lines(block: bytes) -> Iterator[Line]:
    """Read the lines of a block, in order."""
    for text in lines_with(WORDS, block):
        yield from filter(None, map(read_line, split_line(text)))


def lines_with(words: Sequence[bytes], block: bytes) -> Iterator[str]:
    """Decode the lines of a block that have one of the words."""
    for line in block.splitlines():
        if any(word in line for word in words):
            yield line.decode("utf-8", errors="replace")


@frozen
class Sample:
    """One iteration line after the warm-up, with the iterations (start, end] of its average."""

    start: int
    step: Step

    @property
    def trained(self) -> float:
        """The share of the iterations whose update was applied."""
        covered = self.step.iteration - self.start
        return max(0.0, (covered - self.step.skipped) / covered)


def samples(attempt: Attempt, warmup: int) -> list[Sample]:
    """The lines that average no iteration of the first `warmup` of an attempt."""
    origin = before(attempt)
    starts = [origin, *(s.iteration for s in attempt[:-1])]
    return [Sample(a, s) for a, s in zip(starts, attempt, strict=True) if a - origin >= warmup]


def before(attempt: Attempt) -> int:
    """The iteration before an attempt: as far before its first line as its second is after it. The interval of a single
    line is unknown, so it counts from the start."""
    return max(0, 2 * attempt[0].iteration - attempt[1].iteration) if len(attempt) > 1 else 0

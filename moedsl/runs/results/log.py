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
from moedsl.diagnose.scan import Report, Symptom

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
    said = (step.loss, step.grad_norm)
    return step.nan == 0 and all(x is None or math.isfinite(x) for x in said)


@define
class NanSearch:
    """Find the first line of an attempt whose loss or gradient is NaN, line by line.

    A loss that earlier lines had is NaN if a later line has none, unless that line was cut: it then has no end either.
    """

    found: int | None = None
    """The iteration of that line."""
    _had_loss: bool = False
    _had_end: bool = False

    def add(self, step: Step) -> None:
        """Add the next line."""
        is_cut = self._had_end and not step.has_end
        is_lost = self._had_loss and step.loss is None and not is_cut
        if self.found is None and (is_lost or not is_number(step)):
            self.found = step.iteration
        self._had_loss |= step.loss is not None
        self._had_end |= step.has_end


_BROKEN = re.compile(rb"Traceback \(most recent call last|ChildFailedError|srun: error|slurmstepd: error")
Attempt = tuple[Step, ...]


@frozen
class Log:
    """All logs of one run. An attempt is a row of iteration lines with growing numbers; a requeued job adds one."""

    files: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()
    step_times: tuple[StepTime, ...] = ()
    memory: tuple[Memory, ...] = ()
    reports: tuple[Report, ...] = field(factory=tuple)
    """The report of `diagnose` on each file."""
    earlier: tuple[int, ...] = ()
    """The batches of attempts that do not count (`measure.last_settings`)."""
    broken: bool = False
    """Whether the log has a traceback or a launcher's error."""

    @property
    def peak(self) -> float | None:
        """Bytes at the peak of the fullest rank that printed them."""
        return max((m.peak for m in self.memory), default=None)

    @property
    def last(self) -> Step | None:
        """The iteration line that is furthest."""
        return max((a[-1] for a in self.attempts), key=lambda s: s.iteration, default=None)


def read_all(paths: Sequence[Path], known: Sequence[Symptom]) -> Log:
    """Read the logs of one run together.

    A line in several files, such as a rank's and the job's, counts once. The attempts are in the order of their times;
    without times, of the files. Raises OSError if a file cannot be read.
    """
    each = [_read_file(path, known) for path in paths]
    seen: set[Step] = set()
    found: list[tuple[float, int, Attempt]] = []
    for i, log in sorted(enumerate(each), key=lambda g: -sum(map(len, g[1].attempts))):
        fresh = [a for a in (tuple(s for s in a if s not in seen) for a in log.attempts) if a]
        found += [(time_of(a[0].stamp) or 0.0, i, a) for a in fresh]
        seen.update(s for a in fresh for s in a)
    attempts = [a for _, _, a in sorted(found, key=lambda f: f[:2])]
    times = max((g.step_times for g in each), key=len, default=())
    return Log(
        tuple(map(str, paths)),
        tuple(attempts),
        times,
        tuple(m for g in each for m in g.memory),
        tuple(r for g in each for r in g.reports),
        broken=any(g.broken for g in each),
    )


def _read_file(path: Path, known: Sequence[Symptom]) -> Log:
    """Read one file; a new attempt begins where the number of the iteration does not grow, and a repeated line counts
    once."""
    said, broken, symptoms = list[Line](), False, scan.Scan(known)
    for block in blocks_of(path):
        said += lines(block)
        symptoms.block(block)
        broken = broken or bool(_BROKEN.search(block))
    attempts = list[list[Step]]()
    for step in dict.fromkeys(s for s in said if isinstance(s, Step)):
        if not attempts or step.iteration <= attempts[-1][-1].iteration:
            attempts.append([])
        attempts[-1].append(step)
    return Log(
        (str(path),),
        tuple(map(tuple, attempts)),
        tuple(s for s in said if isinstance(s, StepTime)),
        tuple(s for s in said if isinstance(s, Memory)),
        (symptoms.report(str(path)),),
        broken=broken,
    )


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


def samples(attempt: Attempt, warmup: int) -> list[Sample]:
    """The lines that average no iteration of the first `warmup` of an attempt."""
    origin = _before(attempt)
    starts = [origin, *(s.iteration for s in attempt[:-1])]
    return [Sample(a, s) for a, s in zip(starts, attempt, strict=True) if a - origin >= warmup]


def iterations(attempt: Attempt) -> int:
    """Count the iterations of an attempt."""
    return attempt[-1].iteration - _before(attempt)


def _before(attempt: Attempt) -> int:
    """The iteration before an attempt: as far before its first line as its second is after it. The interval of a single
    line is unknown, so it counts from the start."""
    pairs = list(itertools.pairwise(attempt[:2]))
    return max(0, 2 * pairs[0][0].iteration - pairs[0][1].iteration) if pairs else 0

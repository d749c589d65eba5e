"""Read the logs of one run together: its attempts, its memory, and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import define, field, frozen

from moedsl.diagnose import health, scan
from moedsl.diagnose.log_lines import Clock, Memory, Saved, Slow, Step, StepTime, time_of
from moedsl.diagnose.scan import Report, Scan, Symptom

Attempt = Sequence[Step]
"""A row of iteration lines with growing numbers; a requeued job begins another one."""


def first_nan(attempt: Attempt) -> int | None:
    """The iteration of the first line whose loss or gradient is NaN."""
    judged = health.Health()
    for step in attempt:
        judged.add(step)
    return judged.nan


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
        self.broken = self.broken or bool(_BROKEN.search(block))
        for line in self.scan.block(block):
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

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
"""Iteration lines with growing numbers; a requeued job begins another attempt."""


def first_nan(attempt: Attempt) -> int | None:
    """Return the iteration of the first line whose loss or gradient is NaN; None if there is none."""
    judged = health.Health()
    for step in attempt:
        judged.add(step)
    return judged.nan


_BROKEN = re.compile(rb"Traceback \(most recent call last|ChildFailedError|srun: error|slurmstepd: error")


@define
class Reading:
    """What was parsed from one log, which is read block by block."""

    scan: Scan
    attempts: list[list[Step]] = field(factory=list)
    """A repeated line counts once: two ranks may print it."""
    step_times: list[StepTime] = field(factory=list)
    peak: float | None = None
    """Peak bytes of the fullest rank that printed them; None if none did."""
    saves: list[int] = field(factory=list)
    """The iterations of the checkpoints that were written completely."""
    slow: list[tuple[int, Slow]] = field(factory=list)
    """The reports of slow ranks, each with the iteration after which it came."""
    began: float | None = None
    """The first time in the log before its first iteration line; None if there is none."""
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
    """What was parsed from all logs of one run."""

    files: tuple[str, ...]
    attempts: tuple[Attempt, ...] = ()
    step_times: Sequence[StepTime] = ()
    peak: float | None = None
    """Peak bytes of the fullest rank that printed them; None if none did."""
    reports: tuple[Report, ...] = ()
    """The report of `diagnose` on each file."""
    earlier: tuple[int, ...] = ()
    """The batch sizes of attempts that do not count (`measure.last_settings`)."""
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
    """Merge the attempts of several logs in the order of their times, or of the logs if lines have no times.

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
    """Yield a log in blocks of whole lines."""
    with path.open("rb") as stream:
        yield from scan.blocks(stream)


@frozen
class Sample:
    """One iteration line after the warm-up; it averages the iterations after `start`, up to its own."""

    start: int
    step: Step

    @property
    def trained(self) -> float:
        """The share of its iterations whose update was applied."""
        covered = self.step.iteration - self.start
        return max(0.0, (covered - self.step.skipped) / covered)


def samples(attempt: Attempt, warmup: int) -> list[Sample]:
    """Return the lines of an attempt that average none of its first `warmup` iterations."""
    origin = before(attempt)
    starts = [origin, *(s.iteration for s in attempt[:-1])]
    return [Sample(a, s) for a, s in zip(starts, attempt, strict=True) if a - origin >= warmup]


def before(attempt: Attempt) -> int:
    """Return the iteration before an attempt.

    The first line is taken to cover as many iterations as the second. With a single line that is unknown, so it is 0.
    """
    return max(0, 2 * attempt[0].iteration - attempt[1].iteration) if len(attempt) > 1 else 0

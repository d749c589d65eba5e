"""Read the logs of one run: its attempts, its memory, and what went wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from attrs import field, frozen

from moedsl.diagnose import scan
from moedsl.diagnose.scan import Report, Symptom
from moedsl.runs.results.line import WORDS, Line, Memory, Step, StepTime, parts, read, time_of

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
    """The batches of attempts that do not count (batches.py)."""
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
    each = [_one(path, known) for path in paths]
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


def _one(path: Path, known: Sequence[Symptom]) -> Log:
    said, broken = list[Line](), False
    with path.open("rb") as stream:
        for block in scan.blocks(stream):
            said += lines(block)
            broken = broken or bool(_BROKEN.search(block))
    with path.open("rb") as stream:
        report = scan.diagnose(str(path), scan.blocks(stream), known)
    attempts = tuple(_attempts(s for s in said if isinstance(s, Step)))
    times = tuple(s for s in said if isinstance(s, StepTime))
    memory = tuple(s for s in said if isinstance(s, Memory))
    return Log((str(path),), attempts, times, memory, (report,), broken=broken)


def lines(block: bytes) -> Iterator[Line]:
    """Read the lines of a block, in order."""
    for line in block.splitlines():
        if any(w in line for w in WORDS):
            yield from filter(None, map(read, parts(line.decode("utf-8", errors="replace"))))


def _attempts(steps: Iterable[Step]) -> Iterator[Attempt]:
    """Split where the number of the iteration does not grow; a repeated line counts once."""
    current: list[Step] = []
    for step in dict.fromkeys(steps):
        if current and step.iteration <= current[-1].iteration:
            yield tuple(current)
            current = []
        current.append(step)
    if current:
        yield tuple(current)


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

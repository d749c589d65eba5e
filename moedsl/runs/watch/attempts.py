"""The attempts of a run in a few numbers for each line, and what their time was spent on.

An attempt is a row of iteration lines with growing numbers. A restart begins another one, from the last checkpoint.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from attrs import define, field, frozen

from moedsl.runs.results.line import NanSearch, Step, time_of

RECENT = 100
"""The lines that the present speed follows from."""


@define
class Attempt:
    """One attempt, which may still grow."""

    first: Step
    began: float | None = None
    """The earliest time that the log names before its first line."""
    last: Step = field(init=False)
    recent: deque[Step] = field(factory=lambda: deque(maxlen=RECENT))
    ends: array[int] = field(factory=lambda: array("q"))
    """The iteration of each line."""
    trained: array[float] = field(factory=lambda: array("d"))
    """The seconds of the steps from the first line until each line."""
    losses: array[float] = field(factory=lambda: array("d"))
    search: NanSearch = field(factory=NanSearch)

    def __attrs_post_init__(self) -> None:
        self.add(self.first)

    def add(self, step: Step) -> None:
        """Add the next line."""
        steps = step.iteration - self.ends[-1] if self.ends else 0
        before = self.trained[-1] if self.trained else 0.0
        self.search.add(step)
        self.last = step
        self.recent.append(step)
        self.ends.append(step.iteration)
        self.trained.append(before + step.seconds * steps)
        self.losses.append(math.nan if step.loss is None else step.loss)

    @property
    def nan(self) -> int | None:
        """The first iteration whose loss or gradient is NaN."""
        return self.search.found

    @property
    def origin(self) -> int:
        """The iteration before its first: the first line covers as many as the second, or only its own."""
        covers = self.ends[1] - self.ends[0] if len(self.ends) > 1 else 1
        return max(0, self.first.iteration - covers)

    def seconds(self, until: int | None = None) -> float:
        """The seconds of its steps until an iteration, or of all."""
        lines = len(self.ends) if until is None else bisect_right(self.ends, until)
        return self.trained[lines - 1] + self._of_first() if lines else 0.0

    def _of_first(self) -> float:
        return self.first.seconds * (self.first.iteration - self.origin)

    @property
    def start(self) -> float | None:
        """The time at which its first step began."""
        at = time_of(self.first.stamp)
        return None if at is None else at - self._of_first()

    @property
    def end(self) -> float | None:
        return time_of(self.last.stamp)

    def pace(self) -> float:
        """Seconds of a recent iteration with all that happened between two; without times, the middle of the steps."""
        one, other = time_of(self.recent[0].stamp), self.end
        steps = self.last.iteration - self.recent[0].iteration
        if one is None or other is None or not steps or other <= one:
            return sorted(s.seconds for s in self.recent)[len(self.recent) // 2]
        return (other - one) / steps


def merged(each: Iterable[Attempt]) -> list[Attempt]:
    """The attempts of all logs in their order; one that two logs have counts once."""
    found: dict[Step, Attempt] = {}
    for attempt in each:
        other = found.get(attempt.first)
        if other is None or len(other.ends) < len(attempt.ends):
            found[attempt.first] = attempt
    return sorted(found.values(), key=lambda a: time_of(a.first.stamp) or 0.0)


@frozen
class Spent:
    """Seconds since the first time that a log names."""

    elapsed: float
    trains: float
    """Steps that are kept."""
    repeats: float
    """Steps that a restart trained again."""
    returns: float
    """Before the first step of each attempt."""

    @property
    def stops(self) -> float:
        """Between steps: saves, evaluation, and what else holds a run up."""
        return max(0.0, self.elapsed - self.trains - self.repeats - self.returns)


def spent(attempts: Sequence[Attempt], quiet: float) -> Spent | None:
    """Split the time of a run, with `quiet` seconds after its last line; None without times of its lines."""
    times = [(a.start, a.end) for a in attempts]
    known = [(one, other) for one, other in times if one is not None and other is not None]
    if not known or len(known) < len(times):
        return None
    begins = min(known[0][0], attempts[0].began or math.inf)
    elapsed = known[-1][1] - begins + quiet
    if elapsed <= 0:
        return None
    kept = sum(a.seconds(min((b.origin for b in attempts[i + 1 :]), default=None)) for i, a in enumerate(attempts))
    waits = [known[0][0] - begins, *(b[0] - a[1] for a, b in pairwise(known))]
    return Spent(
        elapsed, min(kept, elapsed), sum(a.seconds() for a in attempts) - kept, sum(max(0.0, w) for w in waits)
    )

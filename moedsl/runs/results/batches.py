"""Tell a global batch that ramps up (rampup_batch_size) from a restart with another batch: only a ramp-up grows, and it
ends with the full batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from moedsl.runs.results.line import Step
from moedsl.runs.results.log import Attempt, Log


def last_settings(log: Log, full: int | None) -> Log:
    """Return a log with the attempts at its end that go on with each other's batch: steps before a restart with another
    one are other steps. `full` is the batch of the plan, if it is known."""
    pieces = [piece for attempt in log.attempts for piece in _pieces(attempt, full)]
    first = max(len(pieces) - 1, 0)
    while first > 0 and _goes_on(pieces[first - 1], pieces[first], full):
        first -= 1
    return evolve(log, attempts=tuple(pieces[first:]), earlier=tuple(batches(pieces[:first]))) if first else log


def batches(attempts: Iterable[Iterable[Step]]) -> list[int]:
    """Return the batches that the lines state, each once, in order."""
    return list(dict.fromkeys(s.global_batch for a in attempts for s in a if s.global_batch))


def _pieces(attempt: Attempt, full: int | None) -> Iterator[Attempt]:
    """Split where the batch falls, or grows from the full one: there a job with other settings went on."""
    begin, before = 0, None
    for i, step in enumerate(attempt):
        batch = step.global_batch or before
        if before and batch and (batch < before or (full and before == full < batch)):
            yield attempt[begin:i]
            begin = i
        before = batch
    yield attempt[begin:]


def _goes_on(one: Attempt, other: Attempt, full: int | None) -> bool:
    """Whether a later attempt begins with the batch that the one before had at that step, or with one that has grown
    since."""
    first = next(iter(batches([other])), None)
    at = [s.global_batch for s in one if s.global_batch and s.iteration <= other[0].iteration]
    before = at[-1] if at else next(iter(batches([one])), None)
    if before is None or first is None or before == first:
        return True
    return before < first and before != full and (len(batches([one])) > 1 or len(batches([other])) > 1)

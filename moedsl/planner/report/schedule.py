"""Lay the pipeline schedule on a timeline: when each rank runs which microbatch of which chunk.

The order on a rank is Megatron-Core's (pipeline_parallel/schedules.py: 1F1B, and the interleaved 1F1B whose chunks take
turns in groups of pp microbatches); the start of each follows from what it waits for. Times are in forward passes of
one chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

BACKWARD = 2.0
"""Forward passes that a backward takes."""


@frozen
class Slot:
    """One forward or backward of a microbatch in a chunk (virtual stage) of a rank."""

    rank: int
    chunk: int
    microbatch: int
    forward: bool
    start: float
    end: float


Step = tuple[bool, int, int]
"""The key (forward, chunk, microbatch)."""


def order(pp: int, vpp: int, microbatches: int, rank: int) -> list[Step]:
    """The order of a rank's work; `microbatches` is a multiple of pp if vpp is more than 1."""
    total = microbatches * vpp
    ahead = pp - rank - 1 if vpp == 1 else 2 * (pp - rank - 1) + (vpp - 1) * pp
    warm = min(ahead, total)
    forward = [(True, *_at(k, pp, vpp)) for k in range(total)]
    backward = [(False, vpp - 1 - chunk, m) for chunk, m in (_at(k, pp, vpp) for k in range(total))]
    steady = [s for pair in zip(forward[warm:], backward, strict=False) for s in pair]
    return [*forward[:warm], *steady, *backward[total - warm :]]


def _at(k: int, pp: int, vpp: int) -> tuple[int, int]:
    """The chunk and the microbatch of a rank's k-th forward."""
    if vpp == 1:
        return 0, k
    group, within = divmod(k, pp * vpp)
    return within // pp, group * pp + within % pp


def timeline(pp: int, vpp: int, microbatches: int) -> list[Slot]:
    """Every slot of one step, by rank and time. Without virtual stages, a chunk is the whole stage."""
    todo = {rank: order(pp, vpp, microbatches, rank) for rank in range(pp)}
    free = dict.fromkeys(todo, 0.0)
    done: dict[tuple[bool, int, int], float] = {}
    out: list[Slot] = []
    last = pp * vpp - 1
    while any(todo.values()):
        ready = [(rank, start) for rank, start in _ready(todo, free, done, pp, last)]
        for rank, start in ready:
            forward, chunk, m = todo[rank].pop(0)
            end = start + (1.0 if forward else BACKWARD)
            free[rank] = done[forward, chunk * pp + rank, m] = end
            out.append(Slot(rank, chunk, m, forward, start, end))
    return sorted(out, key=lambda s: (s.rank, s.start))


def _ready(
    todo: dict[int, list[Step]], free: dict[int, float], done: dict[tuple[bool, int, int], float], pp: int, last: int
) -> Iterator[tuple[int, float]]:
    """Ranks whose next slot can start, with its start."""
    for rank, steps in todo.items():
        if not steps:
            continue
        forward, chunk, m = steps[0]
        stage = chunk * pp + rank
        if forward:
            needs = (True, stage - 1, m) if stage else None
        else:
            needs = (False, stage + 1, m) if stage < last else (True, stage, m)
        if needs is None or needs in done:
            yield rank, max(free[rank], done[needs] if needs else 0.0)


def idle(slots: list[Slot]) -> float:
    """Share of the time in which ranks wait."""
    end = max(s.end for s in slots)
    ranks = len({s.rank for s in slots})
    return 1 - sum(s.end - s.start for s in slots) / (end * ranks)

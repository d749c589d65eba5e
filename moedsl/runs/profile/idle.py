"""Say why a device is idle: the next operation was launched late, or waited for communication or for another stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moedsl.runs.profile import intervals
from moedsl.runs.profile.intervals import Union
from moedsl.runs.profile.kinds import COMMUNICATION, Kind
from moedsl.runs.profile.trace import UNKNOWN
from moedsl.runs.profile.window import Window

LAUNCH, WAIT, BUBBLE, DEPENDENCY, UNRESOLVED = CAUSES = (
    "launch", "communication", "bubble", "dependency", "unresolved",
)  # fmt: skip
"""The host launched late; a collective was awaited; another stage was; another operation was; the trace cannot tell."""
PIPELINE = Kind(COMMUNICATION, "pipeline")


def idle(w: Window, busy: Union, kinds: Sequence[Kind], on_cpu: bool) -> dict[str, int]:
    """Return the idle nanoseconds of a window by cause. On a CPU, Python runs between its operations."""
    out: dict[str, int] = dict.fromkeys(CAUSES, 0)
    by_end = np.argsort(w.ends, kind="stable")
    gaps = intervals.gaps(busy, w.start, w.end)
    nexts = np.searchsorted(w.starts, gaps.end).tolist()
    lasts = np.searchsorted(w.ends[by_end], gaps.start).tolist()
    ended: list[int] = w.kind[by_end].tolist()
    launches: list[int] = [*w.launched.tolist(), w.after[0]]
    begun: list[int] = [*w.kind.tolist(), w.after[1]]
    for begin, end, following, last in zip(gaps.start.tolist(), gaps.end.tolist(), nexts, lasts, strict=True):
        before = kinds[ended[last]] if last < len(ended) and begin > w.start else None
        after = kinds[begun[following]] if begun[following] != UNKNOWN else None
        out[LAUNCH if on_cpu else _cause(begin, launches[following], (before, after))] += end - begin
    return out


def _cause(begin: int, launched: int, around: tuple[Kind | None, ...]) -> str:
    """Return the cause of a gap, by the launch of the operation after it and the operations on both sides."""
    if launched == UNKNOWN:
        return UNRESOLVED
    if launched >= begin:
        return LAUNCH
    if PIPELINE in around:
        return BUBBLE
    return WAIT if any(k is not None and k.block == COMMUNICATION for k in around) else DEPENDENCY

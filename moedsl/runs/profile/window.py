"""Cut the operations of one step out of a trace, with the class of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import frozen

from moedsl.runs.profile import intervals
from moedsl.runs.profile.intervals import Union
from moedsl.runs.profile.kinds import COMMUNICATION, Classes, Kind
from moedsl.runs.profile.trace import UNKNOWN, Ints, Trace


@frozen
class Numbers:
    """The classes of a trace, numbered."""

    kinds: Sequence[Kind]
    of_text: Ints
    """For each of the trace's texts, the number of its class."""
    collectives: Sequence[tuple[str, str]]
    """The class and process group of collectives whose group is known."""
    of_collective: Ints
    """For each of the trace's texts, the number of its collective, or UNKNOWN."""

    @classmethod
    def of(cls, t: Trace, classes: Classes) -> Numbers:
        each = [classes.of(*text, t.on_cpu) for text in t.texts]
        number = {k: i for i, k in enumerate(dict.fromkeys(each))}
        sent = [(k.name, g) if g and k.block == COMMUNICATION else None for k, g in zip(each, t.groups, strict=True)]
        place = {c: i for i, c in enumerate(dict.fromkeys(filter(None, sent)))}
        return cls(
            list(number), np.array([number[k] for k in each], np.int64),
            list(place), np.array([UNKNOWN if c is None else place[c] for c in sent], np.int64),
        )  # fmt: skip

    def block(self, name: str) -> list[int]:
        """Return the numbers of the classes of a block."""
        return [i for i, k in enumerate(self.kinds) if k.block == name]


@frozen
class Window:
    """The operations of one step, clipped to it, in the order of their starts."""

    start: int
    end: int
    starts: Ints
    ends: Ints
    kind: Ints
    text: Ints
    launched: Ints
    begun: Ints
    """1 where an operation starts in the window."""
    after: tuple[int, int]
    """Launch and class of the first operation after the window; UNKNOWN if there is none."""

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def work(self) -> Ints:
        return self.ends - self.starts

    def union(self, mask: Any) -> Union:
        return intervals.union(self.starts[mask], self.ends[mask])


def cut(t: Trace, numbers: Numbers, start: int, end: int) -> Window:
    """Cut a window out of a trace."""
    mine = (t.start < end) & (t.end > start)
    begin, text = t.start[mine], t.text[mine]
    following = int(np.searchsorted(t.start, end))
    after = (UNKNOWN, UNKNOWN)
    if following < len(t.start):
        after = int(t.launched[following]), int(numbers.of_text[t.text[following]])
    return Window(
        start, end, np.maximum(begin, start), np.minimum(t.end[mine], end), numbers.of_text[text], text,
        t.launched[mine], (begin >= start) * t.first[mine], after,
    )  # fmt: skip

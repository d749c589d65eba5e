"""Measure a file of samples in bounded memory and time: the number of samples by length."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO

from attrs import frozen

from moedsl.runs.samples.lines import NotASample, Sample, read

BLOCKS = 64
"""A file is read in as many parts, in an order that makes one which is not read to the end be read all over."""
_STRIDE = 39
"""Parts from one to the next: the golden ratio of 64, which leaves the gaps alike."""
WHOLE = 1 << 22
"""A file of as many bytes has one part."""
MOST_LINE = 1 << 26
"""Bytes of a line."""
EXACT = 1 << 16
"""Lengths up to this are counted one by one, longer ones in steps."""
_STEP = 1 << 8
_OFTEN = 64
"""Lines between two looks at the clock."""

Tokens = Callable[[Sample], int]


class BadLine(ValueError):
    """A line that is no sample: its number, and the reason."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(reason)
        self.number, self.reason = number, reason


@frozen
class Measured:
    """The samples of a file."""

    counts: Counter[int]
    """The number of samples by their tokens."""
    keys: Counter[tuple[str, ...]]
    """The number of samples by the keys that were read."""
    share: float
    """The part of the file that was read."""
    unanswered: int = 0
    """The conversations without a turn of the assistant."""


def measure(file: BinaryIO, tokens: Tokens, seconds: float, progress: Callable[[str], None]) -> Measured:
    """Count the tokens of each sample; of a file that takes longer, of as many as the time allows. Raises BadLine."""
    size = file.seek(0, os.SEEK_END)
    ends = _blocks(size)
    counts, keys, done, unanswered = Counter[int](), Counter[tuple[str, ...]](), 0, 0
    start = told = time.monotonic()
    for begin, end in ends:
        at = begin
        for i, (at, line) in enumerate(_lines(file, begin, end)):
            try:
                sample = read(line)
            except NotASample as e:
                raise BadLine(_number(file, at), str(e)) from e
            n = tokens(sample)
            counts[n if n <= EXACT else round(n / _STEP) * _STEP] += 1
            keys[sample.keys] += 1
            unanswered += not sample.is_answered
            now = time.monotonic() if i % _OFTEN == 0 else told
            if now - told > 1:
                told = now
                progress(f"{counts.total():,} samples, {(done + at - begin) / size:.0%} of the file")
            if now - start > seconds:
                return Measured(counts, keys, (done + at - begin) / size, unanswered)
        done += end - begin
    return Measured(counts, keys, 1.0, unanswered)


def _blocks(size: int) -> list[tuple[int, int]]:
    """The first and last byte of each part, in an order whose every beginning lies all over the file."""
    n = BLOCKS if size > WHOLE else 1
    return [(size * at // n, size * (at + 1) // n) for at in (i * _STRIDE % n for i in range(n))]


def _lines(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines that start in a part, with their positions; empty ones are none."""
    file.seek(max(begin - 1, 0))
    if begin:
        file.readline(MOST_LINE)  # the end of the line that the part before has
    while (at := file.tell()) < end:
        line = file.readline(MOST_LINE)
        if len(line) == MOST_LINE:
            raise BadLine(_number(file, at), f"is longer than {MOST_LINE >> 20} MiB")
        if line.strip():
            yield at, line


def _number(file: BinaryIO, at: int) -> int:
    """The number of the line at a position."""
    file.seek(0)
    number = 1
    while (left := at - file.tell()) > 0:
        number += file.read(min(left, 1 << 20)).count(b"\n")
    return number

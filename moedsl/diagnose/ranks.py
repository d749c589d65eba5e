"""Find the rank that failed first: in the lines that ranks of moedsl's jobs write, and in torchrun's last words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attrs import frozen

MARK = "moedsl: rank "
"""The beginning of the line that a rank writes when it fails (launch/rank.py)."""
_OF_RANK = re.compile(rb"moedsl: rank (?P<rank>\d+) on (?P<node>\S+) failed at (?P<time>\S+): (?P<error>[^\r\n]+)")
_OF_TORCHRUN = re.compile(
    rb"Root Cause \(first observed failure\):\s+\[\d+\]:\s+time\s*: (?P<time>\S+)\s+host\s*: (?P<node>\S+)\s+"
    rb"rank\s*: (?P<rank>\d+)[^\n]*\s+exitcode\s*: (?P<code>-?\d+)[^\n]*\s+error_file:[^\n]*\s+"
    rb"traceback : (?P<error>[^\n]*(?:\n(?!=====)[^\n]*)*)"
)
"""The table of torch.distributed.elastic.multiprocessing.errors.ChildFailedError."""
_NO_TRACEBACK = b"To enable traceback see"


@frozen
class Failure:
    """One rank that failed."""

    rank: int
    node: str
    time: str
    """As the log writes it; a rank's own line has UTC."""
    error: str
    from_rank: bool = True
    """Whether the rank wrote it itself; torchrun's clock is that of its poll."""


def failures(block: bytes) -> Iterator[Failure]:
    """The failures that some lines of a log name."""
    for m in _OF_RANK.finditer(block):
        yield Failure(int(m["rank"]), _text(m["node"]), _text(m["time"]), _text(m["error"]))
    if b"Root Cause" in block:
        for m in _OF_TORCHRUN.finditer(block):
            error = f"exit code {_text(m['code'])}" if m["error"].startswith(_NO_TRACEBACK) else _last(m["error"])
            yield Failure(int(m["rank"]), _text(m["node"]), _text(m["time"]), error, from_rank=False)


def first(found: Iterable[Failure]) -> Failure | None:
    """The first one; a rank's own line before torchrun's, whose clock is in another zone."""
    return min(found, key=lambda f: (not f.from_rank, f.time), default=None)


def text(f: Failure) -> str:
    """Write a failure in one line."""
    return f"rank {f.rank} on {f.node}" + (f" at {f.time}" if f.time else "") + f": {f.error}"


def _text(part: bytes) -> str:
    return part.decode("utf-8", errors="replace").strip()


def _last(traceback: bytes) -> str:
    return _text(traceback).splitlines()[-1].strip()

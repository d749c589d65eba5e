"""Collect the errors in a log: each exception with its traceback, by rank, and what loggers write as errors.

A traceback may lack its head or its end, or be indented by a launcher; lines of several ranks may alternate. The text
of an exception may continue for some lines.
"""

from __future__ import annotations

import re

import re2
from attrs import define, evolve, field, frozen

from moedsl.rules.patterns import OPTIONS

MOST = 200
"""The most different errors that are kept. The first ones stay, since later ones are mostly consequences."""
FRAMES = 60
"""The most frames that are kept of a traceback, counted from its end."""
TEXT_LINES = 12
"""The most lines of an exception's text."""
_SCREEN = re2.compile(
    r'File "|[A-Za-z_](Error|Exception|Interrupt|Exit)\b|\b(ERROR|CRITICAL|FATAL)\b|Traceback \(most recent', OPTIONS
)
_RANKS = re.compile(
    r"^\s*(?:\[(?:rank|default)(?P<a>\d+)\]:?\s?|(?P<b>\d+): |moedsl: rank (?P<c>\d+) on \S+ failed at \S+: )"
)
_HEAD = re.compile(r"Traceback \(most recent call last\)")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<function>\S+)')
_EXCEPTION = re.compile(r"^\s*(?:[EF] +)?(?P<kind>(?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?:: ?(?P<text>.*))?$")
_LIKE_ONE = re.compile(r"(Error|Exception|Interrupt|Exit|Failure|Timeout|Warning|OutOfMemory|Refused)$")
_LOGGED = re.compile(r"^(?P<before>.{0,160}?)\b(?:ERROR|CRITICAL|FATAL)\b[\]: -]*(?P<text>.*)$")
_MODULE = re.compile(r"^(?:[\w.]+:\s*)+")
_ENDS_TEXT = re.compile(
    r"^\s*(?:\[?\d{4}-\d\d-\d\d|\[[A-Z]?\d{2,}|(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\b|iteration +\d|"
    r"During handling of the above|The above exception was|=====|-----|srun:|slurmstepd:|torch\.distributed\.elastic)"
)
_LAUNCHERS = ("ChildFailedError", "SignalException", "CalledProcessError", "RendezvousGracefulExitError")
"""Exceptions of launchers."""


@frozen
class Frame:
    """One level of a traceback; `code` is its source line, empty if the log lacks it."""

    file: str
    line: int
    function: str
    code: str = ""


@frozen
class Error:
    """One exception, or a line that a logger wrote (`kind` is "logged"). Lines are counted from 1."""

    line: int
    kind: str
    """The exception's class without its module."""
    text: str
    """The message, joined to one line."""
    rank: int | None = None
    frames: tuple[Frame, ...] = ()
    first_line: int = 0
    """The first line of its traceback."""
    ranks: tuple[int, ...] = ()
    """All ranks with the same error."""


@define
class _Rank:
    """What one rank has written so far of its current traceback."""

    frames: list[Frame] = field(factory=list)
    first_line: int = 0
    error: Error | None = None
    more: int = 0
    """Number of further lines read so far."""


@define
class Errors:
    """Collects errors from the lines of a log, which may still grow."""

    found: dict[tuple[str, str], Error] = field(factory=dict)
    launcher_error: int = 0
    """The last line with a launcher's exception, which only reports another process's error."""
    _ranks: dict[int | None, _Rank] = field(factory=dict)
    """The ranks whose traceback or message is not finished."""

    def may_have(self, piece: bytes) -> bool:
        """Whether a piece of the log can matter: it looks like an error, or some rank's traceback is not finished."""
        return bool(self._ranks) or _SCREEN.search(piece) is not None

    def add(self, number: int, line: str) -> None:
        """Read the next line."""
        rank, text = split_rank(line)
        of = self._ranks.get(rank) or _Rank()
        if _HEAD.search(text):
            self._keep(of)
            self._ranks[rank] = _Rank(first_line=number)
        elif found := _FRAME.match(text):
            if of.error is not None:
                self._keep(of)
                of = _Rank()
            self._ranks[rank] = of
            of.first_line = of.first_line or number
            of.frames = [*of.frames[1 - FRAMES :], Frame(found["file"], int(found["line"]), found["function"])]
        elif of.error is not None:
            self._go_on(of, number, text)
        elif of.frames and text[:1].isspace() and not of.frames[-1].code and not _is_exception(text):
            of.frames[-1] = evolve(of.frames[-1], code=text.strip())
        elif (e := _EXCEPTION.match(text)) and e["kind"].rpartition(".")[2] in _LAUNCHERS:
            self.launcher_error = number
        elif (e := _EXCEPTION.match(text)) and (of.frames or _LIKE_ONE.search(e["kind"])):
            kind = e["kind"].rpartition(".")[2]
            of.error = Error(number, kind, (e["text"] or "").strip(), rank, tuple(of.frames), of.first_line or number)
            self._ranks[rank], of.more = of, 0
        elif e := _LOGGED.match(text):
            self._count(Error(number, "logged", _MODULE.sub("", e["text"]).strip(), rank, first_line=number))
        elif of.frames:
            of.more += 1
            if of.more > TEXT_LINES:  # a traceback without its end
                del self._ranks[rank]

    def errors(self) -> list[Error]:
        """Return every error so far, in the order of the log."""
        unfinished = Errors(found=dict(self.found))
        for of in self._ranks.values():
            unfinished._keep(of)
        return sorted(unfinished.found.values(), key=lambda e: e.line)

    def _go_on(self, of: _Rank, number: int, text: str) -> None:
        """Add a line to an exception's text, or end the text and read the line as the next one."""
        assert of.error is not None
        if of.more >= TEXT_LINES or _ENDS_TEXT.match(text) or _is_exception(text):
            rank = of.error.rank
            self._keep(of)
            del self._ranks[rank]
            if text.strip():
                self.add(number, text if rank is None else f"[rank{rank}]: {text}")
            return
        of.more += 1
        of.error = evolve(of.error, text=f"{of.error.text} {text.strip()}".strip())

    def _keep(self, of: _Rank) -> None:
        if of.error is not None:
            self._count(of.error)

    def _count(self, e: Error) -> None:
        """Keep an error only once, with all ranks that have it."""
        key = e.kind, re.sub(r"\d+", "0", e.text[:200])
        seen = self.found.get(key)
        if seen is None and len(self.found) < MOST:
            self.found[key] = evolve(e, ranks=() if e.rank is None else (e.rank,))
        elif seen is not None:
            ranks = tuple(sorted({*seen.ranks, *(() if e.rank is None else (e.rank,))}))
            self.found[key] = evolve(seen, ranks=ranks, frames=seen.frames or e.frames)


def _is_exception(text: str) -> bool:
    found = _EXCEPTION.match(text)
    return found is not None and _LIKE_ONE.search(found["kind"]) is not None


def split_rank(line: str) -> tuple[int | None, str]:
    """Split a line into its rank, which launchers write before it (sometimes twice), and the rest."""
    rank = None
    while found := _RANKS.match(line):
        rank, line = int(next(filter(None, found.groups()))), line[found.end() :]
    return rank, line

"""Search a log of any size, block by block: for known symptoms, the first failed rank, and the last error-like line.

RE2's own filter (FilteredRE2) knows the literal texts that every match of an expression contains. It screens pieces of
a log, and then lines; an expression is tried only on lines that contain its texts.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import BinaryIO

import re2
from attrs import define, evolve, field, frozen

from moedsl.diagnose import log_lines
from moedsl.diagnose.errors import Error, Errors, split_rank
from moedsl.diagnose.log_lines import Finding, Health, Line, Step
from moedsl.rules import collect
from moedsl.rules.library import Library
from moedsl.rules.patterns import OPTIONS, Pattern, compiled
from moedsl.rules.rule import Rule

BLOCK = 4 << 20
"""Bytes to read at once."""
PIECE = 1 << 16
"""Bytes of whole lines that the filter screens at once."""
LONGEST = 1 << 20
"""The most bytes of a line."""
DETAILS = 4
"""The most different values of a named group that a symptom reports."""
TAIL = 40
"""Number of last lines that are kept."""
LONGEST_ERROR = 4096
"""The most bytes of a line that are read for an exception."""
SHOWN = 300
"""The most characters of a line that a report shows."""
_ANSI = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)")
_NOISE = re.compile(rb"ChildFailedError|SignalException|errors\.py|Traceback \(most recent|number of nan iterations")
_RATE = re.compile(rb"learning rate: +([0-9.]{1,15}(?:[eE][-+]?[0-9]{1,3})?) ")
"""A part of the iteration line (bridge training/utils/train_utils.py:1201)."""
_BINARY = bytes(b for b in range(32) if b not in b"\t\n\r\x1b\f\b") + b"\x7f"


@frozen
class Symptom:
    """One symptom of the stdlib or of a run file, prepared for the search."""

    rule: Rule
    text: str
    """The regular expression."""
    pattern: Pattern


@frozen
class Sighting:
    """A symptom that was found: its first line (from 1), that line's text without colours and rank, and the count."""

    rule: Rule
    line: int
    text: str
    count: int
    ranks: tuple[int, ...] = ()
    """The ranks that its lines name."""
    details: Mapping[str, str] = field(factory=dict)
    """What the pattern's named groups matched; different values are joined by semicolons."""
    learning_rate: float | None = None
    """The last learning rate above zero that the log shows up to the first line."""
    last_line: int = 0
    """The last line with the symptom."""


@frozen
class Report:
    """The report on a log: number of lines, symptoms by their first line, the last line that looks like an error."""

    name: str
    lines: int
    sightings: tuple[Sighting, ...]
    last_error: tuple[int, str] | None
    first_failure: Failure | None = None
    """The rank that failed first, if the log names it."""
    errors: tuple[Error, ...] = ()
    """Every different exception and logged error, in the order of their first lines."""
    findings: tuple[Finding, ...] = ()
    """What is wrong with the steps of the last attempt."""
    steps: int = 0
    """How many iteration lines the log has."""
    last_step: int = 0
    """The line number of the last iteration line."""

    last: Step | None = None
    """The last iteration line."""
    tail: tuple[Error, ...] = ()
    """The last lines of the log, as errors without a class."""
    launcher_error: int = 0
    """The last line in which a launcher says that a rank failed."""

    def unmarked(self) -> tuple[Error, ...]:
        """Return `tail` if the log has neither errors nor iteration lines; else nothing."""
        return () if self.steps or self.errors else self.tail

    @property
    def standing(self) -> tuple[Sighting, ...]:
        """The symptoms after which no step was logged."""
        return tuple(s for s in self.sightings if s.last_line > self.last_step)

    @property
    def alarms(self) -> tuple[Sighting, ...]:
        """The symptoms after which no step was logged, and those at the last step."""
        return tuple(s for s in self.sightings if s.last_line >= self.last_step)

    @property
    def is_healthy(self) -> bool:
        """Whether the run ended well or continues: it has steps without findings, and no error after the last step."""
        after = [self.launcher_error, *(e.line for e in self.errors)]
        if self.last_error and not (self.last and self.last.iteration >= self.last.of):
            after.append(self.last_error[0])
        is_over = bool(self.first_failure or self.standing) or max(after, default=0) > self.last_step
        return self.steps > 0 and not is_over and not self.findings


def symptoms(library: Library) -> tuple[Symptom, ...]:
    """Prepare every valid symptom of a library, in the order of the files."""
    return tuple(symptom(r) for r in collect.of_library(library)[0] if r.kind == "symptom")


def symptom(rule: Rule) -> Symptom:
    """Prepare a symptom rule; raises UnusablePattern if its regular expression is not usable."""
    text = getattr(rule.expr, "value", "")
    return Symptom(rule, text, compiled(text))


@lru_cache(maxsize=8)
def _filter_of(patterns: tuple[str, ...]) -> re2.Filter:
    """Make RE2's filter for these expressions; its matches are indices into the tuple."""
    made = re2.Filter()
    for pattern in patterns:
        made.Add(pattern, OPTIONS)
    made.Compile()
    return made


def is_binary(start: bytes) -> bool:
    """Whether the first bytes of a file are not text: more than a tenth are control characters."""
    return len(start) > 0 and len(start) - len(start.translate(None, _BINARY)) > len(start) / 10


def diagnose(name: str, stream: Iterable[bytes], known: Sequence[Symptom]) -> Report:
    """Report on a log, given as blocks of whole lines."""
    scan = Scan(known)
    for block in stream:
        scan.block(block)
    return scan.report(name)


class Part(bytes):
    """A part of a line that is longer than `LONGEST`. It has newlines for the search, and ends no line of the log."""


def blocks(stream: BinaryIO, size: int = BLOCK) -> Iterator[bytes]:
    """Split a stream into blocks that end with a line; a line longer than `LONGEST` comes in several `Part`s."""
    rest = b""
    while data := stream.read(size):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > LONGEST:
            yield from _broken(data)
            rest = b""
            continue
        rest = data[end:]
        if end:
            yield data[:end]
    if rest:
        yield from _broken(rest) if len(rest) > LONGEST else (rest,)


def _broken(part: bytes) -> Iterator[Part]:
    """Break a part of a long line at carriage returns, which progress bars write, and at blanks within PIECE bytes."""
    start = 0
    while start < len(part):
        piece = part[start : start + PIECE]
        blank = piece.rfind(b" ") + 1 if len(part) - start > PIECE else 0
        piece = piece[:blank] if blank else piece
        start += len(piece)
        yield Part(piece.replace(b"\r", b"\n"))


@define
class Scan:
    """Reads the blocks of one log, which may still grow."""

    known: Sequence[Symptom]
    lines: int = 0
    """Number of finished lines so far."""
    unfinished: bool = False
    found: dict[str, Sighting] = field(factory=dict)
    last_error: tuple[int, str] | None = None
    first_failure: Failure | None = None
    learning_rate: float | None = None
    """The last learning rate above zero in the blocks so far."""
    errors: Errors = field(factory=Errors)
    health: Health = field(factory=Health)
    steps: int = 0
    last_step: int = 0
    tail: deque[Error] = field(factory=lambda: deque(maxlen=TAIL))
    _in_part: bool = False

    def block(self, block: bytes) -> list[Line]:
        """Read a block of whole lines, or a `Part`; return the lines that a run prints about its progress."""
        self._in_part = isinstance(block, Part)
        block = _ANSI.sub(b"", block) if b"\x1b" in block else block
        for s, start in self._candidates(block) if self.known else ():
            self._try(s, block, start)
        at = _last_error(block)
        if at is not None:
            _, text = split_rank(_line(block, at))
            self.last_error = self._number(block, at), text.strip()[:SHOWN]
        self.first_failure = first_to_fail([*filter(None, [self.first_failure]), *failures(block)])
        self.learning_rate = self._rate(block, len(block))
        printed = self._printed(block)
        self._follow(block)
        self.lines += self._count(block)
        self.unfinished = self._in_part or not block.endswith(b"\n")
        return printed

    def _candidates(self, block: bytes) -> Iterator[tuple[Symptom, int]]:
        """Yield each symptom that a line may show, with the line's start in the block, in the order of the lines."""
        may_match = _filter_of(tuple(s.text for s in self.known)).Match
        start = 0
        for piece in _pieces(block):
            if may_match(piece, potential=True):
                at = start
                for line in BytesIO(piece):
                    for index in may_match(line, potential=True) or ():
                        yield self.known[index], at
                    at += len(line)
            start += len(piece)

    def report(self, name: str) -> Report:
        """Report on what was read so far."""
        findings = tuple(self.health.findings())
        seen = dict(self.found)
        for finding in findings:
            for s in self.known:
                if s.rule.id not in seen and (match := s.pattern.search(finding.text)):
                    details = {n: v for n, v in match.groupdict().items() if v}
                    seen[s.rule.id] = Sighting(
                        s.rule, finding.line, finding.text, 1, (), details, self.learning_rate, self.last_step
                    )
        found = sorted(seen.values(), key=lambda s: s.line)
        return Report(
            name,
            self.lines + self.unfinished,
            tuple(found),
            self.last_error,
            self.first_failure,
            tuple(self.errors.errors()),
            findings,
            self.steps,
            self.last_step,
            self.health.last,
            tuple(self.tail),
            self.errors.launcher_error,
        )

    def _printed(self, block: bytes) -> list[Line]:
        """Return the lines that a run prints about its progress, and check its steps."""
        out: list[Line] = []
        number, before = self.lines + 1, 0
        for start, line in log_lines.lines(block):
            number, before = number + self._count(block, before, start), start
            out.append(line)
            if isinstance(line, Step):
                before_it = self.health.last.iteration if self.health.last else 0
                if line.iteration < before_it:
                    self.health = Health()  # a new attempt
                if line.iteration != before_it:  # two ranks may print the same line
                    self.health.add(line, number)
                self.steps, self.last_step = self.steps + 1, number
        return out

    def _follow(self, block: bytes) -> None:
        """Read the exceptions of a block, and keep its last lines."""
        last = max(len(block) - SHOWN * TAIL, 0)
        for i, line in [*self._numbered(block[last:], self._number(block, last))][-TAIL:]:
            rank, text = split_rank(line[:LONGEST_ERROR].decode("utf-8", errors="replace"))
            self.tail.append(Error(i, "", text.strip(), rank, first_line=i))
        number = self.lines + 1
        for piece in _pieces(block):
            if self.errors.may_have(piece):
                for i, line in self._numbered(piece, number):
                    if self.errors.may_have(line):
                        self.errors.add(i, line[:LONGEST_ERROR].decode("utf-8", errors="replace").rstrip())
            number += self._count(piece)

    def _try(self, s: Symptom, block: bytes, start: int) -> None:
        text = _line(block, start)
        match = s.pattern.search(text)
        if match is None:
            return
        rank, text = split_rank(text)
        text, seen = text.strip(), self.found.get(s.rule.id)
        of_line = () if rank is None else (rank,)
        if seen is not None:
            ranks = tuple(sorted({*seen.ranks, *of_line})) if of_line else seen.ranks
            details = dict(seen.details)
            for name, value in match.groupdict().items():
                if value and value not in details.get(name, "") and details.get(name, "").count("; ") < DETAILS - 1:
                    details[name] = f"{details[name]}; {value}" if name in details else value
            number = self._number(block, start)
            count = seen.count + (number > seen.last_line)  # parts of one line count once
            self.found[s.rule.id] = evolve(seen, details=details, count=count, ranks=ranks, last_line=number)
            return
        matched = match.group()  # a report shows this part even if the line is long
        at = text.find(matched)
        if at + len(matched) <= SHOWN or at <= SHOWN // 2:
            shown = text[:SHOWN]
        else:
            shown = f"{text[: SHOWN // 2].rstrip()} ... {text[at : at + SHOWN // 2]}"
        details = {name: value for name, value in match.groupdict().items() if value}
        rate = self._rate(block, _end(block, start))
        number = self._number(block, start)
        self.found[s.rule.id] = Sighting(s.rule, number, shown, 1, of_line, details, rate, number)

    def _rate(self, block: bytes, end: int) -> float | None:
        """Return the last learning rate above zero in a block before `end`, or in earlier blocks."""
        at = block.rfind(b"learning rate: ", 0, end)
        while at >= 0:
            found = _RATE.match(block, at, end)
            with suppress(ValueError):  # the number may be damaged
                if found is not None and (rate := float(found[1])):
                    return rate
            at = block.rfind(b"learning rate: ", 0, at)
        return self.learning_rate

    def _count(self, block: bytes, start: int = 0, end: int | None = None) -> int:
        """Count the lines that end in a part of a block."""
        return 0 if self._in_part else block.count(b"\n", start, end)

    def _number(self, block: bytes, start: int) -> int:
        return self.lines + self._count(block, 0, start) + 1

    def _numbered(self, text: bytes, number: int) -> Iterator[tuple[int, bytes]]:
        """Yield lines with their numbers, the first of which is `number`; carriage returns only separate."""
        for line in text.splitlines(keepends=True):
            yield number, line
            number += self._count(line)


def _pieces(block: bytes) -> Iterator[bytes]:
    """Split a block into pieces of whole lines."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", start + PIECE) + 1 or len(block)
        yield block[start:end]
        start = end


def _line(block: bytes, start: int) -> str:
    return block[start : _end(block, start)].decode("utf-8", errors="replace").strip("\r\x00 ")


def _end(block: bytes, start: int) -> int:
    end = block.find(b"\n", start)
    return end if end >= 0 else len(block)


def _last_error(block: bytes) -> int | None:
    """Return the offset of the last line that looks like an error, except lines of launchers and tracebacks."""
    last = {w: block.rfind(w) for w in _WORDS}
    for _ in range(200):
        found = max(last.values())
        if found < 0:
            return None
        start = block.rfind(b"\n", 0, found) + 1
        if not _NOISE.search(block, start, _end(block, found)):
            return start
        last = {w: block.rfind(w, 0, start) if at >= start else at for w, at in last.items()}
    return None


_WORDS = (b"Error", b"ERROR", b"Exception", b"FATAL", b"Segmentation fault", b"core dumped", b"Killed", b"rror: ")


MARK = "moedsl: rank "
"""The beginning of the line that a rank writes when it fails (launch/in_job/rank.py)."""
_OF_RANK = re.compile(rb"moedsl: rank (?P<rank>\d+) on (?P<node>\S+) failed at (?P<time>\S+): (?P<error>[^\r\n]+)")
_OF_TORCHRUN = re.compile(
    rb"Root Cause \(first observed failure\):\s+\[\d+\]:\s+time\s*: (?P<time>\S+)\s+host\s*: (?P<node>\S+)\s+"
    rb"rank\s*: (?P<rank>\d+)[^\n]*\s+exitcode\s*: (?P<code>-?\d+)[^\n]*\s+error_file:[^\n]*\s+"
    rb"traceback : (?P<error>[^\n]*(?:\n(?!=====)[^\n]*)*)"
)
"""The table that torch.distributed.elastic.multiprocessing.errors.ChildFailedError prints."""
_NO_TRACEBACK = b"To enable traceback see"


@frozen
class Failure:
    """One rank that failed."""

    rank: int
    node: str
    time: str
    """The time as the log writes it; a rank's own line has UTC."""
    error: str
    from_rank: bool = True
    """Whether the rank itself wrote it; torchrun writes the time at which it polled the rank."""


def failures(block: bytes) -> Iterator[Failure]:
    """Yield the failures that the lines of a block name."""
    for m in _OF_RANK.finditer(block):
        yield Failure(int(m["rank"]), _text(m["node"]), _text(m["time"]), _text(m["error"]))
    if b"Root Cause" in block:
        for m in _OF_TORCHRUN.finditer(block):
            error = _text(m["error"]).splitlines()[-1].strip()
            if m["error"].startswith(_NO_TRACEBACK):
                error = f"exit code {_text(m['code'])}"
            yield Failure(int(m["rank"]), _text(m["node"]), _text(m["time"]), error, from_rank=False)


def first_to_fail(found: Iterable[Failure]) -> Failure | None:
    """Return the first failure; ranks' own lines precede torchrun's, whose times are in another zone."""
    return min(found, key=lambda f: (not f.from_rank, f.time), default=None)


def failure_text(f: Failure) -> str:
    """Write a failure in one line."""
    return f"rank {f.rank} on {f.node}" + (f" at {f.time}" if f.time else "") + f": {f.error}"


def _text(part: bytes) -> str:
    return part.decode("utf-8", errors="replace").strip()

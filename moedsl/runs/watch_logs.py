"""Follow the logs of runs, each new line once, and keep what their lines say: attempts, memory, checkpoints, slow ranks
and symptoms.

An attempt is a row of iteration lines with growing numbers. A restart begins another one, from the last checkpoint. Of
each line only a few numbers are kept. The runs of a target are found again and again: new logs appear while it is
followed.
"""

from __future__ import annotations

import io
import math
import os
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field, frozen

from moedsl.diagnose import scan
from moedsl.diagnose.scan import Scan, Symptom
from moedsl.launch import follow, store
from moedsl.launch.store import Job
from moedsl.planner.plan import Plan
from moedsl.runs.results.gather import DAMAGED, PLAN, disambiguate, gather, job_logs, read_plan
from moedsl.runs.results.log import Clock, Memory, NanSearch, Saved, Slow, Step, lines, time_of
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.foreign import Until

LAST = 64 << 20
"""The most bytes of a file that the first call reads: those at its end."""
UNFINISHED_S = 60.0
"""Seconds after which a line without an end counts as whole."""


class Feed(Protocol):
    """A log that may grow."""

    @property
    def name(self) -> str: ...

    @property
    def changed(self) -> float | None:
        """The time of its newest lines; None before its first."""
        ...

    def blocks(self, whole: bool) -> Iterator[bytes]:
        """The new lines; an unfinished last one only if `whole`."""
        ...


@define
class File:
    """A file on this machine. A file that is cut or replaced is read from its start."""

    path: Path
    changed: float | None = None
    offset: int = 0
    skipped: int = 0
    """The bytes before those that were read."""
    inode: int | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def blocks(self, whole: bool) -> Iterator[bytes]:
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:  # between two files of a rotation
            return
        with stream:
            about = os.fstat(stream.fileno())
            self.changed = about.st_mtime
            whole = whole or time.time() - about.st_mtime > UNFINISHED_S
            if self.inode is None and about.st_size > LAST:
                stream.seek(about.st_size - LAST)
                stream.readline()
                self.offset = self.skipped = stream.tell()
            elif self.inode != about.st_ino or about.st_size < self.offset:
                self.offset = 0
            self.inode = about.st_ino
            stream.seek(self.offset)
            for block in scan.blocks(io.BufferedReader(Until(stream))):
                if not whole and not block.endswith(b"\n") and len(block) <= scan.LONGEST:
                    return
                self.offset += len(block)
                yield block


@define
class Tunnel:
    """The logs of a Slurm job that are read through ssh."""

    name: str
    reader: Any
    """moedsl.launch.follow.Reader"""
    changed: float | None = None

    def blocks(self, whole: bool) -> Iterator[bytes]:
        if lines := self.reader.more(whole):
            self.changed = time.time()
            yield "".join(f"{line}\n" for line in lines).encode(errors="replace")


@define
class Pods:
    """The logs of a job's pods."""

    name: str
    executor: Any
    changed: float | None = None
    seen: dict[str, str] = field(factory=dict)

    def blocks(self, whole: bool) -> Iterator[bytes]:
        from moedsl.launch import follow

        out = io.StringIO()
        follow.print_logs(self.executor, self.name, False, out, self.seen)
        if text := out.getvalue():
            self.changed = time.time()
            yield text.encode(errors="replace")


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


REPORTS = 10
"""The newest reports that count."""
APART = 1.1
"""The slowest rank's time over the fastest's from which on it is a straggler: one rank is always the slowest."""


@frozen
class Found:
    """A report of a detector, and the iteration after which it came."""

    iteration: int
    slow: Slow

    @property
    def because(self) -> str:
        if self.slow.ratio is None:
            return "below the threshold of nvidia-resiliency-ext"
        return f"{self.slow.ratio:.2f} times the time of the fastest rank"


def stragglers(found: Sequence[Found], per_node: int | None) -> list[dict[str, Any]]:
    """List the slow nodes, those of most reports first; a node that no line names has a number, counted from 0."""
    newest = sorted(found, key=lambda f: f.iteration)[-REPORTS:]
    reports = [f for f in newest if f.slow.ratio is None or f.slow.ratio >= APART]
    named = {rank: node for f in reports for rank, node in f.slow.nodes.items() if node}
    by_node: dict[str, set[int]] = {}
    for rank in sorted({rank for f in reports for rank in f.slow.nodes}):
        place = f"node {rank // per_node}" if per_node else f"the node of rank {rank}"
        by_node.setdefault(named.get(rank, place), set()).add(rank)
    rows = list[dict[str, Any]]()
    for node, ranks in by_node.items():
        mine = [f for f in reports if ranks & f.slow.nodes.keys()]
        rows.append({"node": node, "ranks": sorted(ranks), "in_reports": len(mine),
                     "at_iteration": mine[-1].iteration, "because": mine[-1].because,
                     "reports": len(newest)})  # fmt: skip
    return sorted(rows, key=lambda r: -r["in_reports"])


@define
class Reading:
    """One log, and what was read of it."""

    feed: Feed
    scan: Scan
    attempts: list[Attempt] = field(factory=list)
    peak: float | None = None
    """Bytes at the peak of the fullest rank that printed them."""
    saves: list[int] = field(factory=list)
    """The iterations of the checkpoints that are written whole."""
    slow: list[Found] = field(factory=list)
    _clock: float | None = None
    """The first time that is named after the last iteration line."""

    def more(self, whole: bool) -> None:
        """Read what the log has gained."""
        for block in self.feed.blocks(whole):
            self.scan.block(block)
            for line in lines(block):
                if isinstance(line, Step):
                    now = self.attempts[-1] if self.attempts else None
                    if now is not None and line.iteration > now.last.iteration:
                        now.add(line)
                    elif now is None or line != now.last:  # two ranks may print one line
                        self.attempts.append(Attempt(line, self._clock))
                    self._clock = None
                elif isinstance(line, Memory):
                    self.peak = max(self.peak or 0.0, line.peak)
                elif isinstance(line, Saved):
                    self.saves.append(line.iteration)
                elif isinstance(line, Slow):
                    self.slow.append(Found(self.attempts[-1].last.iteration if self.attempts else 0, line))
                elif isinstance(line, Clock) and self._clock is None:
                    self._clock = time_of(line.stamp)


@define
class Watched:
    """One run: its logs, its plan, and the jobs of a scheduler that run it."""

    name: str
    plan: Plan | None
    damaged: Diagnostic | None = None
    """Why its plan.json cannot be read."""
    logs: dict[str, Reading] = field(factory=dict)
    jobs: list[Job] | None = None
    """None if no scheduler is asked."""

    def attempts(self) -> list[Attempt]:
        return merged(a for log in self.logs.values() for a in log.attempts)

    @property
    def is_over(self) -> bool:
        """Whether nothing more can happen."""
        if self.jobs is not None:
            return all(job.ended for job in self.jobs)
        return any(a.last.iteration >= a.last.of for a in self.attempts()[-1:])

    @property
    def changed(self) -> float | None:
        """The time of its newest line."""
        return max((log.feed.changed for log in self.logs.values() if log.feed.changed), default=None)


class Source(Protocol):
    """The runs of a target."""

    def more(self) -> list[Watched]:
        """Read what is new, and return all runs."""
        ...


@define
class _Runs:
    """The runs that were found so far, by their names."""

    known: Sequence[Symptom]
    runs: dict[str, Watched] = field(factory=dict)

    def add(self, name: str, plan: Plan | Diagnostic | None, feeds: Iterable[Feed]) -> Watched:
        """Add the logs of a run that are new."""
        damaged = plan if isinstance(plan, Diagnostic) else None
        run = self.runs.setdefault(name, Watched(name, plan if isinstance(plan, Plan) else None, damaged))
        for feed in feeds:
            run.logs.setdefault(feed.name, Reading(feed, Scan(self.known)))
        return run


@define
class Paths:
    """A log, `LOG=PLAN`, or a folder, whose files are listed again each time."""

    target: str
    found: _Runs

    def more(self) -> list[Watched]:
        for run in disambiguate(gather([self.target])[0]):
            self.found.add(run.name, run.plan or run.damaged, map(File, run.logs))
        for run in self.found.runs.values():
            for log in run.logs.values():
                log.more(whole=False)
        return list(self.found.runs.values())


@define
class Jobs:
    """An experiment. All jobs with one plan, as those of a chain, are one run."""

    experiment: store.Experiment
    found: _Runs

    def more(self) -> list[Watched]:
        for run in self.found.runs.values():
            run.jobs = []
        for job in self.experiment.jobs():
            plan = read_plan(Path(job.folder) / PLAN)
            feeds = list(self._feeds(job))
            run = self.found.add(plan.name if isinstance(plan, Plan) else job.name, plan, feeds)
            run.jobs = [*(run.jobs or ()), job]
            for feed in feeds:
                run.logs[feed.name].more(job.ended)
        return list(self.found.runs.values())

    def _feeds(self, job: store.Job) -> Iterator[Feed]:
        """The logs of a job, wherever they are."""
        if not job.handle:
            return
        nemo_run, executor = store.nemo_run(), self.experiment.executor(job.name)
        if isinstance(executor, nemo_run.KubeflowExecutor):
            yield Pods(job.handle, executor)
        elif isinstance(executor, nemo_run.SlurmExecutor):
            if isinstance(self.experiment.tunnel(job.name), nemo_run.LocalTunnel):
                yield from map(File, job_logs(Path(self.experiment.log_folder(job.name))))
            elif (reader := follow.reader(self.experiment, job, "log*", "sbatch*")) is not None:
                yield Tunnel(f"{job.name} {job.number}", reader)


def source(target: str, known: Sequence[Symptom]) -> Source | Diagnostic:
    """Find what a target names, or report why there is nothing to follow."""
    if not os.path.exists(target) and "/" not in target and target in store.known():
        opened = store.has_nemo_run() or store.find(target)
        return opened if isinstance(opened, Diagnostic) else Jobs(opened, _Runs(known))
    found = [d for d in gather([target])[1] if d.id != DAMAGED]  # the run is shown, with a warning
    return found[0] if found else Paths(target, _Runs(known))

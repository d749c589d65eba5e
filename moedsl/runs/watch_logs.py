"""Follow the growing logs of runs, reading each line once: attempts, memory, checkpoints, slow ranks and symptoms.

A restart begins another attempt, from the last checkpoint. The target is searched on every read, because new logs
appear meanwhile.
"""

from __future__ import annotations

import io
import math
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from moedsl.diagnose import scan
from moedsl.diagnose.log_lines import Slow, time_of
from moedsl.diagnose.scan import Scan, Symptom
from moedsl.launch import follow, store
from moedsl.launch.store import Job
from moedsl.planner.plan import Plan
from moedsl.runs.results import measure
from moedsl.runs.results.gather import DAMAGED, PLAN, disambiguate, gather, job_logs, read_plan
from moedsl.runs.results.measure import Attempt, before, merged
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.foreign import Until

LAST = 64 << 20
"""The most bytes that the first call reads of a file, from its end."""
UNFINISHED_S = 60.0
"""Seconds after which a line without a newline counts as complete."""


@define
class File:
    """A growing log on this machine; a truncated or replaced file is read again from its start."""

    path: Path
    changed: float | None = None
    """The file's modification time at the last read; None before the first read."""
    offset: int = 0
    inode: int | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def blocks(self, whole: bool) -> Iterator[bytes]:
        """Yield the new lines in blocks; an unfinished last line only if `whole`, or after UNFINISHED_S."""
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:  # between two files of a log rotation
            return
        with stream:
            about = os.fstat(stream.fileno())
            self.changed = about.st_mtime
            whole = whole or time.time() - about.st_mtime > UNFINISHED_S
            if self.inode is None and about.st_size > LAST:
                stream.seek(about.st_size - LAST)
                stream.readline()
                self.offset = stream.tell()
            elif self.inode != about.st_ino or about.st_size < self.offset:
                self.offset = 0
            self.inode = about.st_ino
            stream.seek(self.offset)
            for block in scan.blocks(io.BufferedReader(Until(stream))):
                if not whole and not block.endswith(b"\n") and not isinstance(block, scan.Part):
                    return
                self.offset += len(block)
                yield block


@define
class Remote:
    """Logs on another machine."""

    name: str
    ask: Callable[[bool], str]
    """Returns the new text; its argument says whether to include an unfinished last line."""
    changed: float | None = None

    def blocks(self, whole: bool) -> Iterator[bytes]:
        if text := self.ask(whole):
            self.changed = time.time()
            yield text.encode(errors="replace")


Feed = File | Remote


def pods(handle: str, executor: Any) -> Remote:
    """Return the logs of a job's pods, as one feed."""
    seen: dict[str, str] = {}

    def ask(_whole: bool) -> str:
        out = io.StringIO()
        follow.print_logs(executor, handle, False, out, seen)
        return out.getvalue()

    return Remote(handle, ask)


RECENT = 100
"""How many of the newest lines the current speed is computed from."""


def origin(attempt: Attempt) -> int:
    """Return the iteration before an attempt.

    Its first line is taken to cover as many iterations as the second; a single line covers only its own.
    """
    return before(attempt) if len(attempt) > 1 else max(0, attempt[0].iteration - 1)


def times(attempt: Attempt) -> tuple[float, float] | None:
    """Return when an attempt's first step began and its last line was printed; None if a line has no time."""
    first, end = time_of(attempt[0].stamp), time_of(attempt[-1].stamp)
    if first is None or end is None:
        return None
    return first - attempt[0].seconds * (attempt[0].iteration - origin(attempt)), end


def trained(attempt: Attempt, until: float = math.inf) -> float:
    """Return the seconds of an attempt's steps, all or until an iteration."""
    starts = [origin(attempt), *(s.iteration for s in attempt)]
    return sum(s.seconds * (s.iteration - a) for a, s in zip(starts, attempt, strict=False) if s.iteration <= until)


def pace(attempt: Attempt) -> float:
    """Return the seconds from one recent iteration to the next, pauses included; the median step if lines have no
    times."""
    recent = attempt[-RECENT:]
    one, other = time_of(recent[0].stamp), time_of(recent[-1].stamp)
    steps = recent[-1].iteration - recent[0].iteration
    if one is None or other is None or not steps or other <= one:
        return sorted(s.seconds for s in recent)[len(recent) // 2]
    return (other - one) / steps


@frozen
class Spent:
    """How the seconds since the first time in a log were spent."""

    elapsed: float
    trains: float
    """In steps that were kept."""
    repeats: float
    """In steps that a restart trained again."""
    returns: float
    """Before the first step of each attempt."""

    @property
    def stops(self) -> float:
        """Between steps: saves, evaluation and other pauses."""
        return max(0.0, self.elapsed - self.trains - self.repeats - self.returns)


def spent(attempts: Sequence[Attempt], began: float, quiet: float) -> Spent | None:
    """Split the time of a run; None if its lines have no times.

    The time starts when the run `began`, or with its first step if that is earlier, and ends `quiet` seconds after its
    last line.
    """
    known = [t for t in map(times, attempts) if t is not None]
    if not known or len(known) < len(attempts):
        return None
    begins = min(known[0][0], began)
    elapsed = known[-1][1] - begins + quiet
    if elapsed <= 0:
        return None
    kept = sum(trained(a, min(map(origin, attempts[i + 1 :]), default=math.inf)) for i, a in enumerate(attempts))
    waits = [known[0][0] - begins, *(b[0] - a[1] for a, b in pairwise(known))]
    return Spent(elapsed, min(kept, elapsed), sum(map(trained, attempts)) - kept, sum(max(0.0, w) for w in waits))


REPORTS = 10
"""How many of the newest reports count."""
APART = 1.1
"""From this ratio to the fastest rank's time on, the slowest rank is a straggler: one rank is always the slowest."""


@frozen
class Straggler:
    """A slow node, its slow ranks, and how many detector reports name it."""

    node: str
    ranks: list[int]
    in_reports: int
    at_iteration: int
    """The iteration before the last of these reports."""
    because: str
    reports: int
    """The number of all reports that count."""


def stragglers(found: Sequence[tuple[int, Slow]], per_node: int | None) -> list[Straggler]:
    """List the slow nodes, most reports first; a node that no report names is identified by its number, from 0."""
    newest = sorted(found, key=lambda f: f[0])[-REPORTS:]
    reports = [(at, slow) for at, slow in newest if slow.ratio is None or slow.ratio >= APART]
    named = {rank: node for _, slow in reports for rank, node in slow.nodes.items() if node}
    by_node: dict[str, set[int]] = {}
    for rank in sorted({rank for _, slow in reports for rank in slow.nodes}):
        place = f"node {rank // per_node}" if per_node else f"the node of rank {rank}"
        by_node.setdefault(named.get(rank, place), set()).add(rank)
    rows = list[Straggler]()
    for node, ranks in by_node.items():
        mine = [(at, slow.ratio) for at, slow in reports if ranks & slow.nodes.keys()]
        at, ratio = mine[-1]
        because = "below the threshold of nvidia-resiliency-ext"
        if ratio is not None:
            because = f"{ratio:.2f} times the time of the fastest rank"
        rows.append(Straggler(node, sorted(ranks), len(mine), at, because, len(newest)))
    return sorted(rows, key=lambda r: -r.in_reports)


@define
class Reading(measure.Reading):
    """A followed log, and what was read from it."""

    feed: Feed = field(kw_only=True)

    def more(self, whole: bool) -> None:
        """Read the new lines of the log."""
        for block in self.feed.blocks(whole):
            self.block(block)


@define
class Watched:
    """One run: its logs, its plan, and its scheduler jobs."""

    name: str
    plan: Plan | None
    damaged: Diagnostic | None = None
    """Why its plan.json cannot be read."""
    logs: dict[str, Reading] = field(factory=dict)
    jobs: list[Job] | None = None
    """Its scheduler jobs; None if the target is not an experiment."""

    def attempts(self) -> Sequence[Attempt]:
        return merged([r.attempts for r in self.logs.values()])

    @property
    def is_over(self) -> bool:
        """Whether all jobs have ended; without jobs, whether the last attempt has reached its last iteration."""
        if self.jobs is not None:
            return all(job.ended for job in self.jobs)
        return any(a[-1].iteration >= a[-1].of for a in self.attempts()[-1:])

    @property
    def changed(self) -> float | None:
        """When its logs last changed; None if none was read."""
        return max((r.feed.changed for r in self.logs.values() if r.feed.changed), default=None)


@define
class Source(ABC):
    """Follows the runs of a target; `runs` are those found so far, by name."""

    known: Sequence[Symptom]
    runs: dict[str, Watched] = field(factory=dict, kw_only=True)

    def add(self, name: str, plan: Plan | Diagnostic | None, feeds: Iterable[Feed]) -> Watched:
        """Add a run and its logs where they are new, and return the run."""
        damaged = plan if isinstance(plan, Diagnostic) else None
        run = self.runs.setdefault(name, Watched(name, plan if isinstance(plan, Plan) else None, damaged))
        for feed in feeds:
            run.logs.setdefault(feed.name, Reading(Scan(self.known), feed=feed))
        return run

    @abstractmethod
    def more(self) -> list[Watched]:
        """Read the new lines, and return all runs."""


@define
class Paths(Source):
    """Follows a log, `LOG=PLAN`, or a folder, whose files are listed again on every read."""

    target: str

    def more(self) -> list[Watched]:
        for run in disambiguate(gather([self.target])[0]):
            self.add(run.name, run.plan or run.damaged, map(File, run.logs))
        for reading in (reading for run in self.runs.values() for reading in run.logs.values()):
            reading.more(whole=False)
        return list(self.runs.values())


@define
class Jobs(Source):
    """Follows an experiment; all jobs with one plan, such as a chain, are one run."""

    experiment: store.Experiment

    def more(self) -> list[Watched]:
        for run in self.runs.values():
            run.jobs = []
        for job in self.experiment.jobs():
            plan = read_plan(Path(job.folder) / PLAN)
            feeds = list(self._feeds(job))
            run = self.add(plan.name if isinstance(plan, Plan) else job.name, plan, feeds)
            run.jobs = [*(run.jobs or ()), job]
            for feed in feeds:
                run.logs[feed.name].more(job.ended)
        return list(self.runs.values())

    def _feeds(self, job: store.Job) -> Iterator[Feed]:
        """Yield a job's logs, local or remote."""
        if not job.handle:
            return
        nemo_run, executor = store.nemo_run(), self.experiment.executor(job.name)
        if isinstance(executor, nemo_run.KubeflowExecutor):
            yield pods(job.handle, executor)
        elif isinstance(executor, nemo_run.SlurmExecutor):
            if isinstance(self.experiment.tunnel(job.name), nemo_run.LocalTunnel):
                yield from map(File, job_logs(Path(self.experiment.log_folder(job.name))))
            elif (reader := follow.reader(self.experiment, job, "log*", "sbatch*")) is not None:
                ask = reader.more
                yield Remote(f"{job.name} {job.number}", lambda whole: "".join(f"{line}\n" for line in ask(whole)))


def source(target: str, known: Sequence[Symptom]) -> Source | Diagnostic:
    """Find what a target names, or report why there is nothing to follow."""
    if not os.path.exists(target) and "/" not in target and target in store.known():
        opened = store.has_nemo_run() or store.find(target)
        return opened if isinstance(opened, Diagnostic) else Jobs(known, opened)
    found = [d for d in gather([target])[1] if d.id != DAMAGED]  # a run with a damaged plan is shown, with a warning
    return found[0] if found else Paths(known, target)

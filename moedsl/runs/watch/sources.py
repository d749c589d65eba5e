"""Find the runs of a target again and again: new logs appear while it is followed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from attrs import define, field

from moedsl.diagnose.scan import Scan, Symptom
from moedsl.launch import logs, store
from moedsl.planner.model.plan import Plan
from moedsl.runs.results.gather import DAMAGED, PLAN, gather, job_logs, read_plan, told_apart
from moedsl.runs.watch.reading import Feed, File, Pods, Reading, Tunnel
from moedsl.runs.watch.view import Watched
from moedsl.support.diagnostics import Diagnostic


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
        for run in told_apart(gather([self.target])[0]):
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
            elif (reader := logs.reader(self.experiment, job, "log*", "sbatch*")) is not None:
                yield Tunnel(f"{job.name} {job.number}", reader)


def source(target: str, known: Sequence[Symptom]) -> Source | Diagnostic:
    """Find what a target names, or report why there is nothing to follow."""
    if not os.path.exists(target) and "/" not in target and target in store.known():
        opened = store.has_nemo_run() or store.find(target)
        return opened if isinstance(opened, Diagnostic) else Jobs(opened, _Runs(known))
    found = [d for d in gather([target])[1] if d.id != DAMAGED]  # the run is shown, with a warning
    return found[0] if found else Paths(target, _Runs(known))

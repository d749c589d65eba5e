"""`moedsl tune FILE --cluster C --budget N`: the loop by itself. Exit 1 if a job cannot be submitted or measured."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from moedsl.cli import console
from moedsl.cli.commands import run as run_command
from moedsl.lang import reader
from moedsl.launch import follow
from moedsl.launch.store import Job
from moedsl.rules.check import cluster_rules
from moedsl.runs.results.gather import experiment_folder, job_logs
from moedsl.runs.tune import loop, run_file
from moedsl.runs.tune.loop import LOST, Ends, tune
from moedsl.support.diagnostics import Diagnostic, error


def run(a: Namespace) -> int:
    source, found = reader.read(a.file)
    base = run_file.base(source) if source else [*found]
    if not isinstance(base, run_file.Base):
        return console.refused(a, base, {source.name: source} if source else {})
    wrong = _refused(a, base)
    folder = Path(a.output or f"{Path(a.file).stem}_tune")
    opened = wrong or loop.opened(folder, base.plan.experiment.fingerprint, run_file.machines(base.plan))
    if isinstance(opened, Diagnostic):
        return console.refused(a, [opened])
    try:
        ended = tune(base, opened, Cluster(a.cluster, a.no_preflight), Ends(a.budget, a.stop), _say)
    except KeyboardInterrupt:
        print("\nthe job goes on without this process; the same command goes on from here", file=sys.stderr)
        return 130
    if isinstance(ended, Diagnostic):
        return console.refused(a, [ended])
    return ended or _print(a, opened)


def _print(a: Namespace, done: loop.Journal) -> int:
    if a.json:
        print((done.folder / loop.FILE).read_text(encoding="utf-8"), end="")
    else:
        print(done.table, end="")
    return 0


def _refused(a: Namespace, base: run_file.Base) -> Diagnostic | None:
    """Say why the cluster cannot run jobs one after the other from here."""
    cluster, found = cluster_rules.choose(base.library, a.cluster)
    if cluster is None:
        return found[0]
    if cluster.executor == "kubeflow":
        return follow.no_kubectl()
    if cluster.executor != "local":
        return None
    return error("tune.local")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@frozen
class Cluster:
    """Jobs of `moedsl run` on one cluster."""

    name: str
    no_preflight: bool

    def submit(self, file: Path, named: Callable[[str], None]) -> int:
        """Submit as `moedsl run FILE --cluster --detach` does."""
        options = {"expression": None, "like": "", "run": None, "dryrun": False, "json": False, "sequential": False,
                   "exclude_bad": False}  # fmt: skip
        words = Namespace(file=str(file), cluster=self.name, detach=True, no_preflight=self.no_preflight, **options)
        return run_command.run(words, named)

    def wait(self, id: str) -> Sequence[Path] | Diagnostic:
        """Wait as `moedsl logs ID -f` does, and fetch the logs. A connection that is lost is made again."""
        from moedsl.launch import nemo

        for pause in nemo.PAUSES_S:
            found = self._wait(id)
            if not isinstance(found, Diagnostic) or found.id != nemo.NO_CONNECTION or not nemo.was_open():
                return found
            _say(f"{found.message}; trying again in {pause:.0f} s")
            time.sleep(pause)
            nemo.try_again()
        return self._wait(id)

    def _wait(self, id: str) -> Sequence[Path] | Diagnostic:
        from moedsl.launch import follow, nemo, store

        experiment = store.find(id)
        if isinstance(experiment, Diagnostic):
            return experiment
        try:
            jobs = follow.wait(experiment)
        except nemo.failures() as problem:
            if not experiment.is_far:
                raise
            return experiment.disconnected(problem)
        if all(job.state == store.NOT_SUBMITTED for job in jobs):
            return error(LOST, f"{id} was not submitted", help="`moedsl jobs` lists what was")
        folder = experiment_folder(id)
        assert folder is not None  # it was found above
        return folder if isinstance(folder, Diagnostic) else _written(id, jobs, job_logs(folder))


def _written(id: str, jobs: Sequence[Job], logs: Sequence[Path]) -> Sequence[Path] | Diagnostic:
    """Return the logs, or say that a job succeeded and its log is not there, which is no result of its layout."""
    if any(log.stat().st_size for log in logs) or not any(job.state == "SUCCEEDED" for job in jobs):
        return logs
    return error("tune.no_log", name=id, folder=jobs[0].folder)

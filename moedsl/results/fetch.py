"""The folder of an experiment that `moedsl run` submitted, with the logs of its jobs in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from moedsl.diagnostics.model import Diagnostic
from moedsl.results.log_files import PLAN, has_logs

FETCHED = "log-fetched.out"


def folder(id: str) -> Path | Diagnostic | None:
    """Where an experiment's jobs have their plans and logs; None where no experiment has that id.

    Logs that lie on the cluster, behind an SSH tunnel or in pods, are fetched as they are now.
    """
    from moedsl.launch import store

    home = store.known().get(id)
    if home is None:
        return None
    found = home / "experiments" / id.rpartition("_")[0] / id
    tasks = [plan.parent for plan in found.glob(f"*/{PLAN}")]
    if tasks and all(has_logs(task, but=FETCHED) for task in tasks):
        return found
    wrong = store.has_nemo_run()
    opened = wrong or store.open_experiment(home, id)
    if isinstance(opened, Diagnostic):
        return opened
    for job in (job for job in opened.jobs() if job.handle):
        _fetch(opened, job)
    return found


def _fetch(experiment: Any, job: Any) -> None:
    from moedsl.launch import logs

    with (Path(job.folder) / FETCHED).open("w", encoding="utf-8") as out:
        reader = logs.reader(experiment, job)
        if reader is not None:
            logs.print_lines(reader.more(whole=True), out)
        else:
            logs.print_elsewhere(experiment, job, False, out)

"""`moedsl jobs [ID]`: list submitted jobs with their states."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from moedsl.cli import console
from moedsl.launch import follow, store
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.text import counted


def run(a: Namespace) -> int:
    wrong = store.has_nemo_run()
    if wrong:
        return console.refused(a, [wrong])
    opened = [store.find(a.id)] if a.id else [store.open_experiment(home, id) for id, home in _newest(a.last)]
    found = [one for one in opened if isinstance(one, Diagnostic)]
    if a.id and found:
        return console.refused(a, found)
    experiments = [one for one in opened if isinstance(one, store.Experiment)]
    if a.json:
        console.print_json({"version": 1, "experiments": [_json(one) for one in experiments]})
    elif a.id:
        _each(experiments)
    elif experiments or not found:
        _table(experiments)
    console.say(found, {})
    return 0


def _newest(count: int) -> list[tuple[str, Path]]:
    return list(store.known().items())[:count]


def _json(experiment: store.Experiment) -> dict[str, object]:
    jobs = experiment.jobs()
    return {"id": experiment.id, "state": store.worst(jobs), "jobs": [job.to_json() for job in jobs]}


def _each(experiments: list[store.Experiment]) -> None:
    for job in (job for one in experiments for job in one.jobs()):
        print(f"{job.name}  {job.number or '-'}  {follow.state(job)}  {job.folder}")


def _table(experiments: list[store.Experiment]) -> None:
    if not experiments:
        print(f"no experiments in {store.homes_text()}")
        return
    width = max(len(one.id) for one in experiments)
    for one in experiments:
        jobs = one.jobs()
        numbers = " ".join(job.number or "-" for job in jobs)
        print(f"{one.id:{width}}  {store.worst(jobs):13}  {counted(len(jobs), 'job')}: {numbers}")

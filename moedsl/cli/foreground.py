"""Launch from the command line: submit, print the id, wait with the states, and explain failures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from moedsl.cli import console
from moedsl.launch import follow, nemo, store
from moedsl.launch.submit import Task, submit
from moedsl.planner.plan import Plan

Plans = Mapping[str, Plan]


def run(
    tasks: Sequence[Task],
    title: str,
    home: Path,
    detach: bool = False,
    plans: Plans = MappingProxyType({}),
    named: Callable[[str], None] | None = None,
    bad: list[str] | None = None,
) -> int:
    """Submit and wait. Exit code: 0 if all succeeded (or, detached, were submitted), 1 if not, 130 after Ctrl-C.

    `named` gets the id before the submission; without it, only the id is on stdout. `plans`, by the names of tasks, are
    stored with their logs. If `bad` is a list, it gets the nodes that a job named as bad, and all jobs are cancelled.
    """
    done = submit(tasks, title, home, named or _name)
    console.say([done.why_not] if done.why_not else [], {})
    if done.signal and not done.why_not:
        print("all submitted jobs were cancelled", file=sys.stderr)
    if done.signal:
        return 128 + done.signal
    if done.experiment is None:
        return 1
    return _submitted(done.experiment, detach, plans, bad)


def _keep(experiment: store.Experiment, plans: Plans) -> None:
    """Write plan.json into the folder of each job, where `moedsl results` reads it with the log."""
    for job in experiment.of_nemo.jobs:
        if job.id in plans:
            text = json.dumps(plans[job.id].to_json(), indent=2, ensure_ascii=False) + "\n"
            (Path(job.executor.job_dir) / "plan.json").write_text(text, encoding="utf-8")


def _name(id: str) -> None:
    print(id, flush=True)


def _detached(experiment: store.Experiment) -> int:
    for job in experiment.names:
        print(f"{job}  {store.number_of(experiment.handles[job])}", file=sys.stderr)
    _say_how(experiment)
    return 0


def _submitted(experiment: store.Experiment, detach: bool, plans: Plans, bad: list[str] | None) -> int:
    try:
        _keep(experiment, plans)
        return _detached(experiment) if detach else _ended(experiment, bad)
    except KeyboardInterrupt:
        print("\nthe jobs go on without this process", file=sys.stderr)
        _say_how(experiment)
        return 130
    except nemo.failures() as problem:
        if not experiment.is_far:
            raise
        console.say([experiment.disconnected(problem)], {})
        _say_how(experiment)
        return 1


def _ended(experiment: store.Experiment, bad: list[str] | None) -> int:
    """Wait for all jobs, or until one has failed with bad nodes, which go into `bad`; the exit code."""
    asked = set[str]()

    def names_bad(jobs: Sequence[store.Job]) -> bool:
        if bad is None:
            return False
        for job in (job for job in jobs if job.state == "FAILED" and job.name not in asked):
            asked.add(job.name)
            bad.extend(follow.bad_nodes(experiment, job))
        return bool(bad)

    jobs = follow.wait(experiment, enough=names_bad)
    code = follow.report(experiment, [job for job in jobs if job.ended])
    if bad:
        experiment.cancel()
    return code


def _say_how(experiment: store.Experiment) -> None:
    for words in ("jobs {}", "watch {}", "logs {} -f", "results {}", "cancel {}"):
        print(f"  moedsl {words.format(experiment.id)}", file=sys.stderr)

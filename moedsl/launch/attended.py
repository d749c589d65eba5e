"""A launch from the command line: submit, say the id, wait with the states, and say why what failed did."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from moedsl.commands import talk
from moedsl.launch import follow, store
from moedsl.launch.submit import Task, submit


def run(tasks: Sequence[Task], title: str, home: Path, detach: bool = False) -> int:
    """The exit code: 0 all succeeded (or, detached, were submitted), 1 not, 130 after Ctrl-C.

    The id is the only thing on stdout, and comes before the submission.
    """
    done = submit(tasks, title, home, _name)
    talk.say([done.why_not] if done.why_not else [], {})
    if done.signal:
        print("nothing of it is left with the scheduler" if not done.why_not else "", file=sys.stderr)
        return 128 + done.signal
    if done.experiment is None:
        return 1
    return _detached(done.experiment) if detach else _waited(done.experiment)


def _name(id: str) -> None:
    print(id, flush=True)


def _detached(experiment: store.Experiment) -> int:
    for job in experiment.names:
        print(f"{job}  {experiment.handles[job]}", file=sys.stderr)
    _say_how(experiment)
    return 0


def _waited(experiment: store.Experiment) -> int:
    try:
        return follow.report(experiment, follow.wait(experiment))
    except KeyboardInterrupt:
        print("\nthe jobs go on without this process", file=sys.stderr)
        _say_how(experiment)
        return 130


def _say_how(experiment: store.Experiment) -> None:
    for words in (f"jobs {experiment.id}", f"logs {experiment.id} -f", f"cancel {experiment.id}"):
        print(f"  moedsl {words}", file=sys.stderr)

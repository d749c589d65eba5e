"""Say whether a job of a chain trains: `python3 moedsl_chain.py FOLDER STEPS`, which every task runs before its ranks.

Every job of a chain includes this file unchanged; it needs no package, and nothing newer than Python 3.8. Bridge writes
the step of the last checkpoint into a file of the folder. All tasks judge alike: the file does not change before the
first step, and of the starts that the first task writes down, a task reads those of other jobs. With a third argument,
the number of jobs, the first task judges the end of a job whose ranks have ended without an error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NOTHING = "and saved nothing"
"""A job says so that does not start because of those before it."""
OF_CHAIN = "of the chain was the last:"
"""The last job says so if the run is not complete."""
TRACKER, STARTS = "latest_checkpointed_iteration.txt", "moedsl_starts.txt"
COMPLETE, HOPELESS, UNFINISHED = 90, 91, 92
"""Exit codes: there is nothing left to train; further starts would fail as the last ones did; no job is left."""
MOST = 3
"""Starts in a row from the same step until the chain ends, as many as NVIDIA's ft_launcher allows."""


def main(folder: Path, steps: int, job: str, first: bool) -> int:
    """Judge a start of `job`; the `first` task writes it down."""
    step, starts = saved(folder), folder / STARTS
    if step >= steps:
        print(f"moedsl: step {step} of {steps}: the run is complete", file=sys.stderr)
        return COMPLETE
    lines = [line.split() for line in starts.read_text().splitlines()] if starts.exists() else []
    before = [int(line[1]) for line in lines if line[0] != job]
    if before[-MOST:] == [step] * MOST:
        jobs = " ".join(line[0] for line in lines if line[0] != job)
        print(f"moedsl: {MOST} jobs in a row began at step {step} {NOTHING}: {jobs}", file=sys.stderr)
        return HOPELESS
    if first:
        print(f"moedsl: goes on from step {step} of {steps}", file=sys.stderr)
        folder.mkdir(parents=True, exist_ok=True)
        with starts.open("a") as file:
            file.write(f"{job} {step}\n")
    return 0


def saved(folder: Path) -> int:
    """The step of the last checkpoint; 0 if there is none."""
    tracker = folder / TRACKER
    return int(tracker.read_text().split()[0]) if tracker.exists() else 0


def ended(folder: Path, steps: int, job: int, jobs: int) -> int:
    """Judge the end of a job: the last one fails if the run is not complete."""
    step = saved(folder)
    if job < jobs or step >= steps:
        return 0
    print(f"moedsl: job {job} {OF_CHAIN} step {step} of {steps} is saved; submit the run again", file=sys.stderr)
    return UNFINISHED


if __name__ == "__main__":
    environment = os.environ
    if len(sys.argv) > 3:
        number = int(environment["SLURM_JOB_NAME"].rpartition(".")[2])
        sys.exit(ended(Path(sys.argv[1]), int(sys.argv[2]), number, int(sys.argv[3])))
    restart = f"{environment['SLURM_JOB_ID']}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), restart, environment["SLURM_PROCID"] == "0"))

"""Say whether a job of a chain trains: `python3 moedsl_chain.py FOLDER STEPS`, which every task runs before its ranks.

Every job of a chain includes this file unchanged; it needs no package, and nothing newer than Python 3.8. Bridge writes
the step of the last checkpoint into a file of the folder. All tasks judge alike: the file does not change before the
first step, and of the starts that the first task writes down, a task reads those of other jobs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

NOTHING = "and saved nothing"
"""A job says so that does not start because of those before it."""
TRACKER, STARTS = "latest_checkpointed_iteration.txt", "moedsl_starts.txt"
COMPLETE, HOPELESS = 90, 91
"""Exit codes: there is nothing left to train; further starts would fail as the last ones did."""
MOST = 3
"""Starts in a row from the same step until the chain ends, as many as NVIDIA's ft_launcher allows."""


def main(folder: Path, steps: int, job: str, first: bool) -> int:
    """Judge a start of `job`; the `first` task writes it down."""
    tracker, starts = folder / TRACKER, folder / STARTS
    step = int(tracker.read_text().split()[0]) if tracker.exists() else 0
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


if __name__ == "__main__":
    environment = os.environ
    restart = f"{environment['SLURM_JOB_ID']}.{environment.get('SLURM_RESTART_COUNT', '0')}"
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), restart, environment["SLURM_PROCID"] == "0"))

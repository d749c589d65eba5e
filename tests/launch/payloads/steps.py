"""A stand-in for training, on the CPU: it counts steps and writes them where Megatron Bridge writes its checkpoints.

Its arguments are the folder, the steps, and what each start does: `kill` ends rank 1 by SIGKILL at its third step, `slow`
waits for the signal before the time limit, `hang` never takes a third step and hears no signal, `fail` raises before the
first step, `part` saves its third step and ends, `train` trains.
"""

import os
import signal
import sys
import time
from pathlib import Path

folder, steps, starts = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
tracker, rank = folder / "latest_checkpointed_iteration.txt", int(os.environ["RANK"])
job = f"{os.environ['SLURM_JOB_ID']}.{os.environ.get('SLURM_RESTART_COUNT', '0')} "
begun = folder / "moedsl_starts.txt"
while not (begun.exists() and any(line.startswith(job) for line in begun.read_text().splitlines())):
    time.sleep(0.05)  # the first task writes it
start = len(begun.read_text().splitlines())
does = starts[min(start, len(starts)) - 1]
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))


def save(step):
    if rank == 0:
        tracker.with_suffix(".new").write_text(f"{step}")
        tracker.with_suffix(".new").rename(tracker)


begin = int(tracker.read_text()) if tracker.exists() else 0
if does == "fail":
    raise FileNotFoundError("no data")
for step in range(begin + 1, steps + 1):
    time.sleep(1.0 if does == "slow" else 0.2)
    if rank == 0:
        with (folder / "trained.txt").open("a") as file:
            file.write(f"{start} {step}\n")
    if does == "kill" and step == begin + 3 and rank == 1:
        time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "hang" and step == begin + 3:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if told or (does == "part" and step == begin + 3):
        save(step)
        sys.exit(0)
    if does == "kill" and step == begin + 3:
        time.sleep(60)
    if (does != "slow" and step % 2 == 0) or step == steps:
        save(step)

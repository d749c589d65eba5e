"""Which number Slurm gave to a job: NeMo-Run's own list, and accounting if the list does not have it.

A launcher that is killed while sbatch runs has a job that it knows nothing of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_SUBMITTED = "sacct --noheader --allocations --parsable2 --starttime=now-7days --format=JobID,SubmitLine"
"""What sbatch was called with (Slurm 21.08 and later); the script's path has the experiment's id in it."""


def use(path: Path) -> None:
    """Makes `path` NeMo-Run's list (nemo_run 0.11.1 run/torchx_backend/schedulers/slurm.py:69)."""
    _scheduler().SLURM_JOB_DIRS = str(path)


def listed(job_dir: str) -> str:
    """The last number on the list for a job of that folder, or nothing (schedulers/slurm.py:495)."""
    numbers = [number for number, (folder, _, _) in _scheduler()._get_job_dirs().items() if folder == job_dir]
    return numbers[-1] if numbers else ""


def accounted(tunnel: Any, script: str) -> str:
    """The number of the last job of a week that was submitted with that script, or nothing."""
    lines = tunnel.run(_SUBMITTED, hide=True, warn=True).stdout.splitlines()
    pairs = (line.split("|", 1) for line in lines if "|" in line)
    numbers = [number for number, command in pairs if command.split()[-1:] == [script]]
    return numbers[-1] if numbers else ""


def enlist(number: str, job_dir: str, tunnel: Any, log_folder: str) -> None:
    """Puts a job on the list, without which NeMo-Run neither asks for it nor cancels it."""
    if listed(job_dir) != number:
        _scheduler()._save_job_dir(number, job_dir, tunnel, f"{log_folder}/log*")


def _scheduler() -> Any:
    from nemo_run.run.torchx_backend.schedulers import slurm

    return slurm

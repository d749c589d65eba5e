"""Make the arguments of NeMo-Run's Slurm executor, and find the number that Slurm gave to a job.

NeMo-Run's list has the numbers. Accounting has those that are not on the list, because the launcher was killed while
sbatch ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moedsl.launch.derive import Launch
from moedsl.launch.quote import word
from moedsl.rules.check.clusters.facts import Cluster

_PARAMETERS = ("exclusive", "mem")
"""Derived parameters of sbatch for which the executor has an argument; others go into `additional_parameters`."""


def arguments(launch: Launch, cluster: Cluster) -> dict[str, Any]:
    """The executor's arguments by name, without tunnel and packager, and without empty ones.

    NeMo-Run joins those of srun with spaces into a line of the sbatch file, so they are words of bash.
    """
    derived = {s.name: s.value for s in launch.sbatch}
    of = {s.name: s.value for s in launch.settings}
    said = {
        "account": cluster.account,
        "partition": cluster.partition,
        "qos": cluster.qos,
        "time": cluster.time,
        "job_name_prefix": prefix(cluster),
        "nodes": launch.allocated,
        "ntasks_per_node": launch.tasks_per_node,
        **_gpus(launch, cluster),
        **{n: derived.pop(n, None) for n in _PARAMETERS},
        "signal": f"TERM@{of['preempt_time']}" if "preempt_time" in of else "",
        "setup_lines": "\n".join(_setup_lines(of)),
        "segment": launch.segment,
        "retries": cluster.retries,
        "container_image": word(cluster.container) if cluster.container else "",
        "container_mounts": [word(m) for m in cluster.mounts],
        "container_env": list(launch.secrets),  # the script sets every other variable
        "srun_args": srun_arguments(launch, cluster),
        "additional_parameters": {**derived, **cluster.sbatch},
    }
    return {"account": None, **{n: v for n, v in said.items() if v}, "poll_estimated_start_time": False}


def _setup_lines(settings: Mapping[str, Any]) -> Iterator[str]:
    """Write what the script of the job does before it starts the ranks."""
    if "requeue" in settings:
        yield f'scontrol update jobid="$SLURM_JOB_ID" requeue={settings["requeue"]}'
    if "first_node_check" in settings:
        yield _FIRST_NODE.format(seconds=settings["first_node_check"])


_FIRST_NODE = """allocated=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
srun --overlap --no-kill --nodes=1 --ntasks=1 --nodelist="${{allocated[1]}}" bash -c '
  while [[ "$(sinfo -hN -n "$0" -o %T | tail -1)" != down* ]]; do sleep {seconds}; done
  scontrol requeue "$SLURM_JOB_ID" || scancel "$SLURM_JOB_ID"' "${{allocated[0]}}" &"""
"""End a job that lost its first node, or start it again, from the second node; no other process can know of it."""


def _gpus(launch: Launch, cluster: Cluster) -> dict[str, Any]:
    """The request for GPUs; on some clusters jobs get whole nodes with all GPUs."""
    words = {"gpus_per_node": launch.gpus_per_node, "gres": f"gpu:{launch.gpus_per_node}"}
    return {n: v for n, v in words.items() if n == cluster.request}


def prefix(cluster: Cluster) -> str:
    """The prefix of Slurm's job names; NeMo-Run's default needs an account."""
    said = f"{cluster.account}-{cluster.account.rsplit('_', 1)[-1]}." if cluster.account else "moedsl."
    return cluster.job_name_prefix or said


def srun_arguments(launch: Launch, cluster: Cluster) -> list[str]:
    """The derived arguments, except those that the cluster overrides, then the cluster's."""
    stated = {a.split("=", 1)[0] for a in cluster.srun_args}
    said = [
        (f"--{s.name}" if s.value is True else f"--{s.name}={s.text}")
        for s in launch.srun
        if f"--{s.name}" not in stated
    ] + list(cluster.srun_args)
    return [word(argument) for argument in said]


def ssh(cluster: Cluster) -> dict[str, Any]:
    """The arguments of an SSHTunnel; the key is on this machine, the folder on the cluster."""
    said = {"host": cluster.host, "user": cluster.user, "port": cluster.port, "identity": cluster.identity}
    expanded = said | {"identity": os.path.expanduser(cluster.identity)}
    return {n: v for n, v in expanded.items() if v} | {"job_dir": cluster.job_dir}


_SUBMITTED = "sacct --noheader --allocations --parsable2 --starttime=now-7days --format=JobID,SubmitLine"
"""The command line of sbatch (Slurm 21.08 and later); the script's path has the experiment's id."""


def use_list(path: Path) -> None:
    """Make `path` NeMo-Run's list of jobs (nemo_run 0.11.1 run/torchx_backend/schedulers/slurm.py:69)."""
    _scheduler().SLURM_JOB_DIRS = str(path)


def listed(job_dir: str) -> str:
    """The last number on the list for a job of that folder, or nothing (schedulers/slurm.py:495)."""
    numbers = [number for number, (folder, _, _) in _scheduler()._get_job_dirs().items() if folder == job_dir]
    return numbers[-1] if numbers else ""


def accounted(tunnel: Any, script: str) -> str:
    """The number of the last job of the past week that was submitted with that script, or nothing."""
    lines = tunnel.run(_SUBMITTED, hide=True, warn=True).stdout.splitlines()
    pairs = (line.split("|", 1) for line in lines if "|" in line)
    numbers = [number for number, command in pairs if command.split()[-1:] == [script]]
    return numbers[-1] if numbers else ""


def enlist(number: str, job_dir: str, tunnel: Any, log_folder: str) -> None:
    """Put a job on the list; NeMo-Run needs this to query and cancel it."""
    if listed(job_dir) != number:
        _scheduler()._save_job_dir(number, job_dir, tunnel, f"{log_folder}/log*")


def _scheduler() -> Any:
    from nemo_run.run.torchx_backend.schedulers import slurm

    return slurm

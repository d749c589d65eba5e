"""Slurm: the arguments of NeMo-Run's executor as plain values, and the number that Slurm gave to a job.

NeMo-Run's own list has the numbers; accounting has those that are not on the list, because a launcher was killed while
sbatch ran.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from moedsl.checker.clusters.arguments import Setting
from moedsl.checker.clusters.facts import Cluster
from moedsl.launch.derive import Launch
from moedsl.launch.quote import word

_PARAMETERS = ("exclusive", "mem", "signal")
"""Derived parameters of sbatch that the executor has an argument for; others go into `additional_parameters`."""


def arguments(launch: Launch, cluster: Cluster) -> dict[str, Any]:
    """The executor's arguments by name, without tunnel and packager; what says nothing is left out.

    NeMo-Run joins those of srun with blanks into a line of the sbatch file, so they are words of bash.
    """
    derived = {s.name: s.value for s in launch.sbatch}
    said = {
        "account": cluster.account,
        "partition": cluster.partition,
        "qos": cluster.qos,
        "time": cluster.time,
        "job_name_prefix": prefix(cluster),
        "nodes": launch.nodes,
        "ntasks_per_node": launch.tasks_per_node,
        **_gpus(launch, cluster),
        **{n: derived.pop(n, None) for n in _PARAMETERS},
        "segment": launch.segment,
        "container_image": word(cluster.container) if cluster.container else "",
        "container_mounts": [word(m) for m in cluster.mounts],
        "container_env": list(launch.secrets),  # the script sets every other variable
        "srun_args": srun_arguments(launch, cluster),
        "additional_parameters": {**derived, **cluster.sbatch},
    }
    return {"account": None, **{n: v for n, v in said.items() if v}, "poll_estimated_start_time": False}


def _gpus(launch: Launch, cluster: Cluster) -> dict[str, Any]:
    """How the GPUs of a node are asked for; on some clusters a node is whole and has them all."""
    words = {"gpus_per_node": launch.gpus_per_node, "gres": f"gpu:{launch.gpus_per_node}"}
    return {n: v for n, v in words.items() if n == cluster.request}


def prefix(cluster: Cluster) -> str:
    """What Slurm's job names start with; NeMo-Run's own default fails without an account."""
    said = f"{cluster.account}-{cluster.account.rsplit('_', 1)[-1]}." if cluster.account else "moedsl."
    return cluster.job_name_prefix or said


def srun_arguments(launch: Launch, cluster: Cluster) -> list[str]:
    """The derived arguments, but those that the cluster states otherwise, then the cluster's."""
    stated = {a.split("=", 1)[0] for a in cluster.srun_args}
    said = [_option(s) for s in launch.srun if f"--{s.name}" not in stated] + list(cluster.srun_args)
    return [word(argument) for argument in said]


def _option(s: Setting) -> str:
    return f"--{s.name}" if s.value is True else f"--{s.name}={s.text}"


def ssh(cluster: Cluster) -> dict[str, Any]:
    """The arguments of an SSHTunnel; the key's file is this machine's, the folder the cluster's."""
    said = {"host": cluster.host, "user": cluster.user, "port": cluster.port, "identity": cluster.identity}
    expanded = said | {"identity": os.path.expanduser(cluster.identity)}
    return {n: v for n, v in expanded.items() if v} | {"job_dir": cluster.job_dir}


_SUBMITTED = "sacct --noheader --allocations --parsable2 --starttime=now-7days --format=JobID,SubmitLine"
"""What sbatch was called with (Slurm 21.08 and later); the script's path has the experiment's id in it."""


def use_list(path: Path) -> None:
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

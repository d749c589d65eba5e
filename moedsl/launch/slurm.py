"""What NeMo-Run's SlurmExecutor is given, as plain values: the run and the script that a person keeps use the same."""

from __future__ import annotations

import os
from typing import Any

from moedsl.checker.clusters.facts import Cluster
from moedsl.checker.clusters.setting import Setting
from moedsl.launch.launch import Launch
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

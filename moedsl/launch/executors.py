"""Launch and cluster -> NeMo-Run's executor and experiment. Importing NeMo-Run takes seconds: only functions do it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moedsl.checker.clusters.facts import Cluster
from moedsl.launch import kubeflow, slurm
from moedsl.launch.derive import Launch
from moedsl.launch.nemo import HOME
from moedsl.launch.script import Payload, script

if TYPE_CHECKING:
    import nemo_run


def home(cluster: Cluster) -> Path:
    """Where NeMo-Run keeps experiments on this machine.

    Through a local tunnel nothing is copied, so it must be where the nodes read: the cluster's `job_dir`. A cluster
    behind ssh has a folder of its own: NeMo-Run's list of jobs goes by their numbers, which two clusters may both give.
    """
    own = Path(os.environ.get(HOME) or "~/.nemo_run").expanduser().absolute()
    if cluster.tunnel == "ssh":
        return own / "clusters" / cluster.name
    return Path(cluster.job_dir).expanduser().absolute() if cluster.job_dir else own


def use_home(folder: Path) -> None:
    """Makes NeMo-Run keep everything in `folder`; before its first import, since its modules remember it."""
    os.environ[HOME] = str(folder)
    from nemo_run.config import set_nemorun_home

    set_nemorun_home(str(folder))


def remote_dir(cluster: Cluster, base: Path) -> str:
    """The folder that holds experiments as the cluster sees it; NeMo-Run adds the experiment's title and id."""
    return cluster.job_dir if cluster.tunnel == "ssh" else str(base / "experiments")


def executor(launch: Launch, cluster: Cluster, base: Path) -> nemo_run.Executor:
    """The executor of a launch; `base` is what `home` says, or another folder for a dry run's own."""
    return _MAKE[launch.executor](launch, cluster, base)


def _local(_: Launch, __: Cluster, ___: Path) -> Any:
    import nemo_run

    return nemo_run.LocalExecutor()  # the script has the environment, and starts torchrun itself


def _slurm(launch: Launch, cluster: Cluster, base: Path) -> Any:
    import nemo_run

    packager = nemo_run.Packager()  # the script has its files inside
    return nemo_run.SlurmExecutor(**slurm.arguments(launch, cluster), tunnel=tunnel(cluster, base), packager=packager)


def tunnel(cluster: Cluster, base: Path) -> Any:
    """How commands reach the cluster: from this login node itself, or through ssh."""
    import nemo_run

    if cluster.tunnel == "ssh":
        return nemo_run.SSHTunnel(**slurm.ssh(cluster))
    return nemo_run.LocalTunnel(job_dir=remote_dir(cluster, base))


def _kubeflow(launch: Launch, cluster: Cluster, _: Path) -> Any:
    return kubeflow.executor(launch, cluster)


_MAKE: dict[str, Any] = {"local": _local, "slurm": _slurm, "kubeflow": _kubeflow}


def task(launch: Launch, cluster: Cluster, payload: Payload) -> nemo_run.Script:
    """The job's script as NeMo-Run's task."""
    import nemo_run

    if launch.executor == "kubeflow":
        return kubeflow.task(launch, cluster, payload)

    return nemo_run.Script(inline=script(launch, cluster, payload))

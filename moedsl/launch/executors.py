"""Make NeMo-Run's executor from a launch and a cluster. Importing NeMo-Run takes seconds, so only functions do it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moedsl.launch import kubeflow, slurm
from moedsl.launch.derive import Launch
from moedsl.launch.nemo import HOME
from moedsl.launch.script import Payload, script
from moedsl.rules.check.clusters.facts import Cluster

if TYPE_CHECKING:
    import nemo_run


def home(cluster: Cluster) -> Path:
    """The folder where NeMo-Run keeps experiments on this machine.

    A local tunnel copies nothing, so the nodes must read this folder: it is the cluster's `job_dir`. A cluster over ssh
    has a folder of its own, because NeMo-Run's list of jobs has their numbers, which two clusters may both use.
    """
    own = Path(os.environ.get(HOME) or "~/.nemo_run").expanduser().absolute()
    if cluster.tunnel == "ssh":
        return own / "clusters" / cluster.name
    return Path(cluster.job_dir).expanduser().absolute() if cluster.job_dir else own


def use_home(folder: Path) -> None:
    """Make NeMo-Run keep everything in `folder`; call it before its first import, because its modules read it then."""
    os.environ[HOME] = str(folder)
    from nemo_run.config import set_nemorun_home

    set_nemorun_home(str(folder))


def remote_dir(cluster: Cluster, base: Path) -> str:
    """The folder of experiments as the cluster sees it; NeMo-Run appends the experiment's title and id."""
    return cluster.job_dir if cluster.tunnel == "ssh" else str(base / "experiments")


def executor(launch: Launch, cluster: Cluster, base: Path) -> nemo_run.Executor:
    """Make the executor of a launch; `base` is `home(cluster)`, or a temporary folder of a dry run."""
    return _MAKE[launch.executor](launch, cluster, base)


def _local(_: Launch, __: Cluster, ___: Path) -> Any:
    import nemo_run

    return nemo_run.LocalExecutor()  # the script has the environment, and starts torchrun itself


def _slurm(launch: Launch, cluster: Cluster, base: Path) -> Any:
    import nemo_run

    packager = nemo_run.Packager()  # the script has its files inside
    return nemo_run.SlurmExecutor(**slurm.arguments(launch, cluster), tunnel=tunnel(cluster, base), packager=packager)


def tunnel(cluster: Cluster, base: Path) -> Any:
    """Make the tunnel for commands: local on a login node, or ssh."""
    import nemo_run

    if cluster.tunnel == "ssh":
        return nemo_run.SSHTunnel(**slurm.ssh(cluster))
    return nemo_run.LocalTunnel(job_dir=remote_dir(cluster, base))


def _kubeflow(launch: Launch, cluster: Cluster, _: Path) -> Any:
    return kubeflow.executor(launch, cluster)


_MAKE: dict[str, Any] = {"local": _local, "slurm": _slurm, "kubeflow": _kubeflow}


def task(launch: Launch, cluster: Cluster, payload: Payload) -> nemo_run.Script:
    """Make NeMo-Run's task with the job's script."""
    import nemo_run

    if launch.executor == "kubeflow":
        return kubeflow.task(launch, cluster, payload)

    return nemo_run.Script(inline=script(launch, cluster, payload))

"""Launch and cluster -> NeMo-Run's executor and experiment. Importing NeMo-Run takes seconds: only functions do it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moedsl.launch.facts import Cluster
from moedsl.launch.launch import Launch, Setting
from moedsl.launch.script import Payload, script

if TYPE_CHECKING:
    import nemo_run

HOME = "NEMORUN_HOME"


def home(cluster: Cluster) -> Path:
    """Where NeMo-Run keeps experiments on this machine.

    Through a local tunnel nothing is copied, so it must be where the nodes read: the cluster's `job_dir`.
    """
    shared = cluster.job_dir if cluster.tunnel == "local" else ""
    return Path(shared or os.environ.get(HOME) or "~/.nemo_run").expanduser().absolute()


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

    gpus = {"gpus_per_node": launch.gpus_per_node} if cluster.request == "gpus_per_node" else {}
    gres = {"gres": f"gpu:{launch.gpus_per_node}"} if cluster.request == "gres" else {}
    stated = {n: getattr(cluster, n) or None for n in ("account", "partition", "qos")}
    derived = {s.name: s.value for s in launch.sbatch}
    known = {n: derived.pop(n, None) for n in ("exclusive", "mem", "signal")}
    return nemo_run.SlurmExecutor(
        **stated,
        **known,
        **gpus,
        **gres,
        job_name_prefix=prefix(cluster),
        time=cluster.time,
        nodes=launch.nodes,
        ntasks_per_node=launch.tasks_per_node,
        segment=launch.segment or None,
        container_image=cluster.container or None,
        container_mounts=list(cluster.mounts),
        container_env=list(launch.secrets) or None,  # the script sets every other variable
        srun_args=srun_arguments(launch, cluster),
        additional_parameters={**derived, **cluster.sbatch},
        tunnel=tunnel(cluster, base),
        packager=nemo_run.Packager(),  # the script has its files inside
        poll_estimated_start_time=False,
    )


def prefix(cluster: Cluster) -> str:
    """What Slurm's job names start with; NeMo-Run's own default fails without an account."""
    said = f"{cluster.account}-{cluster.account.rsplit('_', 1)[-1]}." if cluster.account else "moedsl."
    return cluster.job_name_prefix or said


def srun_arguments(launch: Launch, cluster: Cluster) -> list[str]:
    """The derived arguments, but those that the cluster states otherwise, then the cluster's."""
    stated = {a.split("=", 1)[0] for a in cluster.srun_args}
    return [_option(s) for s in launch.srun if f"--{s.name}" not in stated] + list(cluster.srun_args)


def _option(s: Setting) -> str:
    return f"--{s.name}" if s.value is True else f"--{s.name}={s.text}"


def tunnel(cluster: Cluster, base: Path) -> Any:
    """How commands reach the cluster: from this login node itself, or through ssh."""
    import nemo_run

    folder = remote_dir(cluster, base)
    if cluster.tunnel == "local":
        return nemo_run.LocalTunnel(job_dir=folder)
    identity = os.path.expanduser(cluster.identity) or None
    return nemo_run.SSHTunnel(
        host=cluster.host, user=cluster.user, port=cluster.port or None, identity=identity, job_dir=folder
    )


_MAKE: dict[str, Any] = {"local": _local, "slurm": _slurm}


def task(launch: Launch, cluster: Cluster, payload: Payload) -> nemo_run.Script:
    """The job's script as NeMo-Run's task."""
    import nemo_run

    return nemo_run.Script(inline=script(launch, cluster, payload))


def experiment_id(title: str, base: Path) -> str:
    """The first id of a title that no experiment has: ``TITLE_0``, ``TITLE_1``."""
    folder = base / "experiments" / title
    taken = {p.name for p in folder.iterdir()} if folder.is_dir() else set[str]()
    return next(i for i in (f"{title}_{n}" for n in range(len(taken) + 1)) if i not in taken)

"""Make NeMo-Run's executor from a launch and a cluster, and find the Slurm id of a job.

NeMo-Run's list has the job ids. If a launcher was killed while sbatch ran, the list lacks the id, and Slurm's
accounting has it. Importing NeMo-Run takes seconds, so only functions do it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moedsl.launch import kubeflow, nemo
from moedsl.launch.derive import Launch
from moedsl.launch.nemo import HOME
from moedsl.launch.script import Payload, script, word
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.resources import user_home

if TYPE_CHECKING:
    import nemo_run


def home(cluster: Cluster) -> Path:
    """Return the folder on this machine where NeMo-Run keeps experiments.

    A local tunnel copies nothing, so the nodes must read this folder: it is the cluster's `job_dir`. A cluster over ssh
    has its own folder, because NeMo-Run's list of jobs is keyed by job id, and two clusters may use the same ids.
    """
    if cluster.tunnel == "ssh":
        return own_home() / "clusters" / cluster.name
    return Path(cluster.job_dir).expanduser().absolute() if cluster.job_dir else own_home()


def own_home() -> Path:
    """Return NeMo-Run's own folder of experiments: ``$NEMORUN_HOME`` or ``~/.nemo_run``."""
    named = os.environ.get(HOME)
    return Path(named).expanduser().absolute() if named else user_home() / ".nemo_run"


def use_home(folder: Path) -> None:
    """Make NeMo-Run keep everything in `folder`.

    Call this before NeMo-Run is first imported, because its modules read the variable on import.
    """
    os.environ[HOME] = str(folder)
    from nemo_run.config import set_nemorun_home

    set_nemorun_home(str(folder))


def remote_dir(cluster: Cluster, base: Path) -> str:
    """Return the folder of experiments as the cluster sees it; NeMo-Run appends the experiment's title and id."""
    return cluster.job_dir if cluster.tunnel == "ssh" else str(base / "experiments")


def executor(launch: Launch, cluster: Cluster, base: Path) -> nemo_run.Executor:
    """Make the executor of a launch; `base` is `home(cluster)`."""
    run = nemo.nemo_run()
    if launch.executor == "kubeflow":  # reads the kubeconfig; may raise errors of the kubernetes package
        return run.KubeflowExecutor(**kubeflow.arguments(launch, cluster))
    if launch.executor == "local":
        return run.LocalExecutor()  # the script sets the environment and starts torchrun
    packager = run.Packager()  # the script has its files inside
    return run.SlurmExecutor(**slurm_arguments(launch, cluster), tunnel=tunnel(cluster, base), packager=packager)


def tunnel(cluster: Cluster, base: Path) -> Any:
    """Make the tunnel for commands: local on a login node, or ssh."""
    if cluster.tunnel == "ssh":
        return nemo.nemo_run().SSHTunnel(**ssh_arguments(cluster))
    return nemo.nemo_run().LocalTunnel(job_dir=remote_dir(cluster, base))


def task(launch: Launch, cluster: Cluster, payload: Payload) -> nemo_run.Script:
    """Make NeMo-Run's task from the script.

    For Kubernetes, the script is the container's command: an inline script would be a file on this machine, which pods
    cannot read.
    """
    Script = nemo.nemo_run().Script  # noqa: N806
    if launch.executor == "kubeflow":
        shell, flag, text = kubeflow.command(launch, cluster, payload)
        return Script(path=flag, args=[kubeflow.for_template(text)], entrypoint=shell)
    return Script(inline=script(launch, cluster, payload))


_PARAMETERS = ("exclusive", "mem")
"""Derived sbatch parameters that are arguments of the executor; all others go into `additional_parameters`."""


def slurm_arguments(launch: Launch, cluster: Cluster) -> dict[str, Any]:
    """Return the executor's arguments by name, except the tunnel, the packager and empty ones.

    NeMo-Run joins srun's arguments with spaces into a line of the sbatch file, so each is quoted for bash. No GPUs are
    requested on clusters that allocate whole nodes.
    """
    derived = {s.name: s.value for s in launch.sbatch}
    of = {s.name: s.value for s in launch.settings}
    gpus = {"gpus_per_node": launch.gpus_per_node, "gres": f"gpu:{launch.gpus_per_node}"}
    setup: list[str] = []  # bash lines of the sbatch file before srun
    if "requeue" in of:
        setup.append(f'scontrol update jobid="$SLURM_JOB_ID" requeue={of["requeue"]}')
    if "first_node_check" in of:
        setup.append(_FIRST_NODE.format(seconds=of["first_node_check"]))
    said = {
        "account": cluster.account,
        "partition": cluster.partition,
        "qos": cluster.qos,
        "time": cluster.time,
        "job_name_prefix": job_name_prefix(cluster),
        "nodes": launch.allocated,
        "ntasks_per_node": launch.tasks_per_node,
        **{n: v for n, v in gpus.items() if n == cluster.request},
        **{n: derived.pop(n, None) for n in _PARAMETERS},
        "signal": f"TERM@{of['preempt_time']}" if "preempt_time" in of else "",
        "setup_lines": "\n".join(setup),
        "segment": launch.segment,
        "retries": cluster.retries,
        "container_image": word(cluster.container) if cluster.container else "",
        "container_mounts": [word(m) for m in cluster.mounts],
        "container_env": list(launch.secrets),  # the script sets every other variable
        "srun_args": srun_arguments(launch, cluster),
        "additional_parameters": {**derived, **cluster.sbatch},
    }
    return {"account": None, **{n: v for n, v in said.items() if v}, "poll_estimated_start_time": False}


_FIRST_NODE = """allocated=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
srun --overlap --no-kill --nodes=1 --ntasks=1 --nodelist="${{allocated[1]}}" bash -c '
  while [[ "$(sinfo -hN -n "$0" -o %T | tail -1)" != down* ]]; do sleep {seconds}; done
  scontrol requeue "$SLURM_JOB_ID" || scancel "$SLURM_JOB_ID"' "${{allocated[0]}}" &"""
"""Bash that runs on the second node and requeues the job, or cancels it, when the first node is down.

No other process can notice that the first node is lost.
"""


def job_name_prefix(cluster: Cluster) -> str:
    """Return the prefix of Slurm's job names; NeMo-Run's default prefix needs an account."""
    said = f"{cluster.account}-{cluster.account.rsplit('_', 1)[-1]}." if cluster.account else "moedsl."
    return cluster.job_name_prefix or said


def srun_arguments(launch: Launch, cluster: Cluster) -> list[str]:
    """Return srun's arguments, quoted for bash: derived ones that the cluster does not override, then the cluster's."""
    derived = [s for s in launch.srun if s.origin != "cluster"]
    said = [f"--{s.name}" if s.value is True else f"--{s.name}={s.text}" for s in derived]
    return [word(argument) for argument in (*said, *cluster.srun_args)]


def ssh_arguments(cluster: Cluster) -> dict[str, Any]:
    """Return the arguments of an SSHTunnel; `identity` is a path on this machine, `job_dir` a path on the cluster."""
    said = {"host": cluster.host, "user": cluster.user, "port": cluster.port, "identity": cluster.identity}
    expanded = said | {"identity": os.path.expanduser(cluster.identity)}
    return {n: v for n, v in expanded.items() if v} | {"job_dir": cluster.job_dir}


_SUBMITTED = "sacct --noheader --allocations --parsable2 --starttime=now-7days --format=JobID,SubmitLine"
"""The sacct command that lists recent jobs with their sbatch command lines (SubmitLine: Slurm 21.08 and later).

The path of the script at the end of a command line contains the experiment's id.
"""


def use_list(path: Path) -> None:
    """Make `path` NeMo-Run's list of jobs (nemo_run 0.11.1 run/torchx_backend/schedulers/slurm.py:69)."""
    _scheduler().SLURM_JOB_DIRS = str(path)


def listed_number(job_dir: str) -> str:
    """Return the last listed id of a job with that folder, or an empty string (schedulers/slurm.py:495)."""
    numbers = [number for number, (folder, _, _) in _scheduler()._get_job_dirs().items() if folder == job_dir]
    return numbers[-1] if numbers else ""


def accounted_number(tunnel: Any, script: str) -> str:
    """Return the id of the last job submitted with that script in the past week, or an empty string."""
    lines = tunnel.run(_SUBMITTED, hide=True, warn=True).stdout.splitlines()
    pairs = (line.split("|", 1) for line in lines if "|" in line)
    numbers = [number for number, command in pairs if command.split()[-1:] == [script]]
    return numbers[-1] if numbers else ""


def enlist(number: str, job_dir: str, tunnel: Any, log_folder: str) -> None:
    """Add a job to NeMo-Run's list, so that NeMo-Run can query and cancel it."""
    if listed_number(job_dir) != number:
        _scheduler()._save_job_dir(number, job_dir, tunnel, f"{log_folder}/log*")


def _scheduler() -> Any:
    from nemo_run.run.torchx_backend.schedulers import slurm

    return slurm

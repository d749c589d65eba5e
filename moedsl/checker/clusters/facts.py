"""What a cluster is made of: the facts that `cluster NAME { ... }` may state, their kinds, and for whom they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

EXECUTORS = ("local", "slurm", "kubeflow")
TUNNELS = ("local", "ssh")
LAUNCHERS = ("srun", "torchrun")
REQUESTS = ("gpus_per_node", "gres", "none")


@frozen
class Kind:
    """How a fact is written: `form` is one of the readers in `cluster.py`; `words` are the only ones of a word.

    `of` names the executors that read it; for another it is an error.
    """

    form: str
    of: tuple[str, ...] = EXECUTORS
    words: tuple[str, ...] = ()


def _fact(form: str, default: Any, *of: str, words: tuple[str, ...] = ()) -> Any:
    return attrs.field(default=default, metadata={"kind": Kind(form, of or EXECUTORS, words)})


@frozen
class Cluster:
    """One place where jobs run. Paths are those of the place itself; nothing in it is a secret's value."""

    name: str
    executor: str = _fact("word", attrs.NOTHING, words=EXECUTORS)
    default: bool = _fact("flag", False)
    """Whether a bare `--cluster` takes it where several are known."""
    hardware: str = _fact("word", "")
    """The GPU type, by its name in the language."""
    gpus_per_node: int = _fact("whole", 0)
    """0 is what the hardware says."""
    nodes: int = _fact("whole", 0)
    """The most that one job may take; 0 is no limit."""
    topology: bool = _fact("flag", True, "slurm")
    """Whether the scheduler knows NVLink domains (Slurm's topology/block), so that `--segment` means something."""
    account: str = _fact("token", "", "slurm")
    partition: str = _fact("token", "", "slurm")
    qos: str = _fact("token", "", "slurm")
    time: str = _fact("time", "04:00:00", "slurm")
    """The limit of a job, as Slurm writes it."""
    job_name_prefix: str = _fact("token", "", "slurm")
    request: str = _fact("word", "gpus_per_node", "slurm", words=REQUESTS)
    """How GPUs are asked for: `--gpus-per-node`, `--gres=gpu:N`, or not at all where nodes are given whole."""
    launcher: str = _fact("word", "srun", "slurm", words=LAUNCHERS)
    """srun starts one process a GPU; torchrun one a node that starts the others."""
    container: str = _fact("text", "", "slurm", "kubeflow")
    """The image of the job; without one it runs on the node itself."""
    mounts: tuple[str, ...] = _fact("mounts", (), "slurm", "kubeflow")
    """``/on/the/node:/in/the/container``, and ``:ro`` where it is only read."""
    python: str = _fact("path", "", "slurm", "kubeflow")
    """The interpreter of the job; empty is the ``python3`` of its PATH."""
    env: Mapping[str, str] = _fact("variables", {})
    """Variables of every rank; they win over what is derived."""
    secrets: tuple[str, ...] = _fact("names", ())
    """Names of variables that the job inherits; their values are written nowhere."""
    offline: bool = _fact("flag", False)
    """Whether nodes cannot reach the Hugging Face hub, or must not."""
    tunnel: str = _fact("word", "local", "slurm", words=TUNNELS)
    """local where `moedsl run` itself is on a login node, ssh from elsewhere."""
    host: str = _fact("host", "", "slurm")
    user: str = _fact("host", "", "slurm")
    port: int = _fact("whole", 0, "slurm")
    """0 is what the ssh configuration says, else 22."""
    identity: str = _fact("path", "", "slurm")
    """The private key's file on this machine."""
    job_dir: str = _fact("path", "")
    """Where scripts and logs of jobs go, on a file system that the nodes share."""
    srun_args: tuple[str, ...] = _fact("options", (), "slurm")
    """Further arguments of srun; one that names a derived argument replaces it."""
    sbatch: Mapping[str, str] = _fact("sbatch", {}, "slurm")
    """Further parameters of sbatch, by their long names."""
    context: str = _fact("token", "", "kubeflow")
    """The context of the kubeconfig; empty is its current one."""
    namespace: str = _fact("token", "default", "kubeflow")
    runtime: str = _fact("token", "torch-distributed", "kubeflow")
    """The ClusterTrainingRuntime that a TrainJob refers to."""
    queue: str = _fact("token", "", "kubeflow")
    """Kueue's local queue."""
    pvc: str = _fact("token", "", "kubeflow")
    """The persistent volume claim that jobs share."""
    pvc_path: str = _fact("path", "/workspace", "kubeflow")
    image_pull_secrets: tuple[str, ...] = _fact("tokens", (), "kubeflow")
    secret: str = _fact("token", "moedsl", "kubeflow")
    """The Kubernetes Secret whose keys are the names in `secrets`."""
    service_account: str = _fact("token", "", "kubeflow")
    node_selector: Mapping[str, str] = _fact("selector", {}, "kubeflow")
    """Labels that a node has to have: ``["nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"]``."""
    shm: str = _fact("token", "", "kubeflow")
    """The size of /dev/shm, as Kubernetes writes it (64Gi)."""


def kinds() -> dict[str, Kind]:
    """The facts by name."""
    return {f.name: f.metadata["kind"] for f in attrs.fields(Cluster) if "kind" in f.metadata}


NEEDS: Mapping[str, tuple[str, ...]] = {"local": (), "slurm": ("hardware",), "kubeflow": ("hardware", "container")}
"""What an executor cannot do without."""

"""Define the facts that `cluster NAME { ... }` may state, their kinds, and the executors that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

from moedsl.facts.facts import Hardware, Site

EXECUTORS = ("local", "slurm", "kubeflow")
TUNNELS = ("local", "ssh")
LAUNCHERS = ("srun", "torchrun")
REQUESTS = ("gpus_per_node", "gres", "none")
TOPOLOGIES = ("on", "off", "block", "tree")
FABRICS = ("infiniband", "roce", "efa", "gib", "tcpx", "tcpxo")


@frozen
class Kind:
    """How a fact is written: `form` names a reader in `cluster_reader.py`; `words` are the values that a word may have.

    `of` are the executors that read the fact; stating it for another executor is an error.
    """

    form: str
    of: tuple[str, ...] = EXECUTORS
    words: tuple[str, ...] = ()


def _fact(form: str, default: Any, *of: str, words: tuple[str, ...] = ()) -> Any:
    return attrs.field(default=default, metadata={"kind": Kind(form, of or EXECUTORS, words)})


@frozen
class Cluster:
    """A cluster where jobs run. Paths are on the cluster; no fact contains a secret's value."""

    name: str
    executor: str = _fact("word", attrs.NOTHING, words=EXECUTORS)
    default: bool = _fact("flag", False)
    """Whether `--cluster` without a name chooses this one of several clusters."""
    hardware: str = _fact("word", "")
    """The GPU type, by its name in the language."""
    gpus_per_node: int = _fact("whole", 0)
    """0 means the hardware's number."""
    nodes: int = _fact("whole", 0)
    """Maximum nodes of one job; 0 means no limit."""
    topology: str = _fact("word", "on", "slurm", words=TOPOLOGIES)
    """What the scheduler knows about the network: block (NVLink domains or racks are blocks, `--segment`), tree (racks
    are below switches of a tree, `--switches`), on (domains are blocks and racks are switches), or off."""
    nodes_per_rack: int = _fact("whole", 0, "slurm", "kubeflow")
    """Nodes below the same leaf switches: a rack or a scalable unit; 0 means unknown."""
    rails: int = _fact("whole", 0, "slurm", "kubeflow")
    """Network adapters of a node with a leaf switch each; 0 means unknown. Fewer than its GPUs divide what the hardware
    states for a port among them, unless the cluster states the network."""
    network: float = _fact("rate", 0.0, "slurm", "kubeflow")
    """Bytes/s of one GPU between NVLink domains, in one direction: ``25 GB/s``; 0 means the hardware's."""
    node_network: float = _fact("rate", 0.0, "slurm", "kubeflow")
    """The same of a whole node, which its GPUs share: ``400 GB/s``."""
    oversubscription: float = _fact("multiple", 1.0, "slurm", "kubeflow")
    """Ports of a rack (`nodes_per_rack`) for one port of its uplinks: 2 for a tree with 2:1."""
    nvlink_domain: int = _fact("whole", 0, "slurm", "kubeflow")
    """GPUs that NVLink connects; 0 means the hardware's."""
    host_speed: float = _fact("ratio", 1.0)
    """How fast the processors launch kernels, relative to the ones of the calibration."""
    node_memory: float = _fact("size", 0.0)
    """Host memory of a node: ``2 TB``; 0 means unknown."""
    fabric: str = _fact("word", "", "slurm", "kubeflow", words=FABRICS)
    """The network between nodes: efa is AWS's; gib, tcpx and tcpxo (GPUDirect-TCPX, -TCPXO) are Google Cloud's."""
    hca: tuple[str, ...] = _fact("hca", (), "slurm", "kubeflow")
    """The InfiniBand or RoCE adapters of a node that a job may use: ``["mlx5_0", "mlx5_3:1"]``."""
    gid_index: int = _fact("whole", 0, "slurm", "kubeflow")
    """The entry in the adapters' GID table that RoCE uses; 0 lets NCCL choose."""
    env_script: str = _fact("path", "", "slurm", "kubeflow")
    """A script in the image that sets variables; each rank's shell reads it before it sets the job's variables."""
    numa: bool = _fact("flag", True, "slurm", "kubeflow")
    """Whether each rank is bound to the CPUs and the memory of its GPU's NUMA node."""
    rank_logs: bool = _fact("flag", False, "slurm")
    """Whether each rank also writes its own log into the job's folder."""
    node_check: bool = _fact("flag", False, "slurm")
    """Whether a job compares its nodes before its ranks start, and ends if one is bad."""
    account: str = _fact("token", "", "slurm")
    partition: str = _fact("token", "", "slurm")
    qos: str = _fact("token", "", "slurm")
    time: str = _fact("time", "04:00:00", "slurm")
    """The time limit of a job, in Slurm's notation; "0" is no limit."""
    chain: bool = _fact("flag", False, "slurm")
    """Whether a run longer than `time` becomes a chain of jobs, each of which resumes from the last checkpoint."""
    retries: int = _fact("whole", 0, "slurm")
    """How often a failed job is started again."""
    requeue: bool = _fact("flag", True, "slurm")
    """Whether Slurm restarts a job that lost a node or was preempted."""
    spare_nodes: int = _fact("whole", 0, "slurm")
    """Nodes of a job that wait to replace a lost one."""
    job_name_prefix: str = _fact("token", "", "slurm")
    request: str = _fact("word", "gpus_per_node", "slurm", words=REQUESTS)
    """How GPUs are requested: `--gpus-per-node`, `--gres=gpu:N`, or not at all if jobs get whole nodes."""
    launcher: str = _fact("word", "srun", "slurm", words=LAUNCHERS)
    """srun starts one process per GPU; torchrun starts one per node, which starts the others."""
    container: str = _fact("text", "", "slurm", "kubeflow")
    """The image of the job; empty: the job runs on the node itself."""
    mounts: tuple[str, ...] = _fact("mounts", (), "slurm", "kubeflow")
    """``/on/the/node:/in/the/container``, with ``:ro`` if it is read-only."""
    python: str = _fact("path", "", "slurm", "kubeflow")
    """The job's interpreter; empty means the ``python3`` on its PATH."""
    megatron_lm: str = _fact("path", "")
    """A checkout of Megatron-LM, as the job sees it, for `run --backend megatron_lm`."""
    env: Mapping[str, str] = _fact("variables", {})
    """Variables of every rank; they override derived variables."""
    secrets: tuple[str, ...] = _fact("names", ())
    """Names of variables that the job inherits; their values are never written."""
    offline: bool = _fact("flag", False)
    """Whether nodes cannot reach the Hugging Face hub, or must not."""
    tunnel: str = _fact("word", "local", "slurm", words=TUNNELS)
    """local if `moedsl run` runs on a login node, ssh from elsewhere."""
    host: str = _fact("host", "", "slurm")
    user: str = _fact("host", "", "slurm")
    port: int = _fact("whole", 0, "slurm")
    """0 means the port in the ssh configuration, else 22."""
    identity: str = _fact("path", "", "slurm")
    """The private key's file on this machine."""
    job_dir: str = _fact("path", "")
    """The folder for scripts and logs of jobs, on a shared file system."""
    weights_dir: str = _fact("path", "")
    """The folder of weights imported from Hugging Face, as the job sees it."""
    srun_args: tuple[str, ...] = _fact("options", (), "slurm")
    """More arguments of srun; they override derived arguments with the same name."""
    sbatch: Mapping[str, str] = _fact("sbatch", {}, "slurm")
    """More parameters of sbatch, by their long names."""
    context: str = _fact("token", "", "kubeflow")
    """The kubeconfig context; empty means the current one."""
    namespace: str = _fact("namespace", "default", "kubeflow")
    runtime: str = _fact("object", "torch-distributed", "kubeflow")
    """The ClusterTrainingRuntime that a TrainJob refers to."""
    queue: str = _fact("object", "", "kubeflow")
    """The local queue of Kueue."""
    priority: str = _fact("object", "", "kubeflow")
    """Kueue's WorkloadPriorityClass."""
    pvc: str = _fact("object", "", "kubeflow")
    """The persistent volume claim that jobs share."""
    pvc_path: str = _fact("path", "/workspace", "kubeflow")
    image_pull_secrets: tuple[str, ...] = _fact("objects", (), "kubeflow")
    secret: str = _fact("object", "moedsl", "kubeflow")
    """The Kubernetes Secret whose keys are the names in `secrets`."""
    service_account: str = _fact("object", "", "kubeflow")
    node_selector: Mapping[str, str] = _fact("selector", {}, "kubeflow")
    """Labels that a node must have: ``["nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"]``."""
    affinity: tuple[str, ...] = _fact("requirements", (), "kubeflow")
    """Requirements on a node's labels: ``["pool in (a, b)", "!spot"]``."""
    colocate: str = _fact("key", "", "kubeflow")
    """A node label with the same value on all nodes of a job: ``"nvidia.com/gpu.clique"``."""
    tolerations: tuple[str, ...] = _fact("tolerations", (), "kubeflow")
    """Node taints that jobs tolerate: ``["nvidia.com/gpu", "pool=moe:NoSchedule"]``."""
    required_topology: str = _fact("key", "", "kubeflow")
    """The level of Kueue's topology within which a job must be placed, as a node label."""
    preferred_topology: str = _fact("key", "", "kubeflow")
    """The level of Kueue's topology within which a job is placed if it fits."""
    slice_topology: str = _fact("key", "", "kubeflow")
    """The level of Kueue's topology that contains each segment of a job: an NVLink domain."""
    labels: Mapping[str, str] = _fact("selector", {}, "kubeflow")
    """Labels of the job and its pods."""
    annotations: Mapping[str, str] = _fact("annotations", {}, "kubeflow")
    """Annotations of the pods."""
    interfaces: Mapping[str, str] = _fact("interfaces", {}, "kubeflow")
    """Additional interfaces of a pod on GKE, each with its network: ``["eth2=rdma-0", "eth3=rdma-1"]``."""
    resources: Mapping[str, str] = _fact("resources", {}, "kubeflow")
    """Resources of each pod besides its GPUs: ``["rdma/ib=8", "cpu=96", "memory=1500Gi"]``."""
    privileged: bool = _fact("flag", False, "kubeflow")
    """Whether a pod's container is privileged."""
    shm: str = _fact("quantity", "", "kubeflow")
    """The size of /dev/shm in Kubernetes notation (64Gi)."""
    storage_write: float = _fact("rate", 0.0)
    """Write rate of the shared file system for all nodes of a job together: ``200 GB/s``; 0 means the calibration's."""
    gpu_mtbf_days: int = _fact("whole", 0)
    """Mean days of training per GPU between failures that end the job; 0 means the calibration's."""
    most_lost_minutes: int = _fact("whole", 0)
    """Maximum minutes of training to lose to one failure; 0 means the rules' default."""

    local_disk: str = _fact("path", "")
    """A folder on each node's own disk, for checkpoints between those on the shared file system."""

    def machine(self, h: Hardware) -> Hardware:
        """Return the hardware as this cluster has it: what it states of its network, its hosts and its racks. Another
        machine than the cluster's stays as it is."""
        if self.hardware not in ("", h.name, h.kind):
            return h
        node = self.gpus_per_node or h.gpus_per_node
        port = h.network * min(self.rails or node, node) / node
        return attrs.evolve(
            h,
            nvlink_domain=self.nvlink_domain or h.nvlink_domain,
            network=self.network or self.node_network / node or port,
            host_speed=self.host_speed if self.host_speed != 1 else h.host_speed,
            node_memory=self.node_memory or h.node_memory,
            rack_gpus=self.nodes_per_rack * node or h.rack_gpus,
            oversubscription=self.oversubscription if self.oversubscription != 1 else h.oversubscription,
        )

    @property
    def site(self) -> Site:
        """Return what a plan reads from the cluster."""
        times = 86400.0 * self.gpu_mtbf_days, 60.0 * self.most_lost_minutes
        return Site(self.storage_write, *times, self.local_disk, self.nodes_per_rack, self.rails, self.chain)


def kinds() -> dict[str, Kind]:
    """Return the kind of each fact, by name."""
    return {f.name: f.metadata["kind"] for f in attrs.fields(Cluster) if "kind" in f.metadata}


NEEDS: Mapping[str, tuple[str, ...]] = {"local": (), "slurm": ("hardware",), "kubeflow": ("hardware", "container")}
"""The facts that each executor requires."""

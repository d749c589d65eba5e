"""Each rule of a launch has a case that it accepts and one that it rejects; a rule without them fails here.

A law or an advice is asked of a job that it lets pass and of one that it reports; a derived value or a variable, of a
job that gets the value by this rule and of one that gets another by it, or none.
"""

from collections import Counter
from typing import Any

import pytest
from attrs import evolve, frozen

from moedsl.compiler import compile_source
from moedsl.launch.derive import derive
from moedsl.planner.checkpoints import Checkpoints, Shares
from moedsl.planner.plan import Plan
from moedsl.rules.check import cluster_rules
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.rule import Rule
from moedsl.support.source import Source
from tests.helpers.plans import changed
from tests.helpers.tables import table_of
from tests.launch.launches import cluster, launch, library, plan, slurm

Job = tuple[Plan, Cluster]


@frozen
class Judged:
    """Of `require` and `prefer`."""

    accepted: Job
    rejected: Job


@frozen
class Derived:
    """Of `derive` and `env`: `value` by the rule for the job `by_it`; `instead` for the `other`, None for nothing."""

    by_it: Job
    value: Any
    other: Job
    instead: Any = None


def job(gpus: int = 16, facts: str = "", ep: int = 8, on: str = "h100", field: str = "") -> Job:
    """A job of GPUs `on` a Slurm cluster of the same with those facts; the recipe sets `field` to true."""
    return changed(plan(on, gpus, {"ep": ep}), set={field: True} if field else {}), slurm(on, facts)


def spread(name: str, dispatcher: str, ep: int = 16) -> Job:
    """A job of 16 H100s on that fabric, whose expert groups are on two nodes."""
    return plan("h100", 16, {"ep": ep}, dispatcher=dispatcher), slurm("h100", f"container image; fabric {name}")


def elsewhere(hardware: str) -> Job:
    """An H100 job on a Slurm cluster of that hardware."""
    return job()[0], slurm(hardware)


def pods(on: str, facts: str, **policy: Any) -> Job:
    """A job of 16 GPUs on a Kubernetes cluster with those facts."""
    return plan(on, 16, {"ep": 8}, **policy), cluster(f"executor kubeflow; hardware {on}; container image; {facts}")


def told(facts: str) -> Job:
    """A job on a Kubernetes cluster with those facts that saves when a signal tells it to end."""
    given, on = pods("h100", facts)
    return changed(given, set={"train.exit_signal_handler": True}), on


def fabric(name: str, facts: str = "", on: str = "h100", **policy: Any) -> Job:
    """A job of 16 GPUs on a Slurm cluster with that fabric and an image."""
    return plan(on, 16, {"ep": 8}, **policy), slurm(on, f"container image; fabric {name}; {facts}")


def wide(ep: int, dispatcher: str) -> Job:
    """72 nodes of NVL72 domains with 18 nodes: an expert group of 96 fits into none."""
    return plan("gb200", 288, {"ep": ep, "pp": 3}, dispatcher=dispatcher), slurm("gb200")


def racked(nodes: int, facts: str = "") -> Job:
    """Eight nodes, expert groups on two of them, and racks of that many."""
    return plan("h100", 64, {"ep": 16}), slurm("h100", f"nodes_per_rack {nodes}; {facts}")


def corpus(fields: dict[str, str]) -> Job:
    """A job on a corpus of its own that sets those fields."""
    given, on = job()
    return changed(given, policy={"data": "/data/corpus"}, set=fields), on


H100 = job()
GB200 = job(on="gb200")
LOCAL = (job()[0], cluster("executor local; hardware h100"))
IMAGE = job(facts='container "nvcr.io/nvidia/nemo:26.02"')
USER_BUFFERS = job(field="ddp.nccl_ub")
OFFLOAD = job(field="model.fine_grained_activation_offloading")
HANDLER = job(field="train.exit_signal_handler")
EFA, GIB, TCPX, TCPXO = fabric("efa"), fabric("gib"), fabric("tcpx"), fabric("tcpxo")
GKE = 'interfaces ["eth1=vpc1"]; fabric'
PODS_GIB, PODS_TCPX, PODS_TCPXO = pods("h200", f"{GKE} gib"), pods("h100", f"{GKE} tcpx"), pods("h100", f"{GKE} tcpxo")
PODS_EFA = pods("h100", "fabric efa")
HCA = 'hca [mlx5_0, "mlx5_3:1"]'
ADAPTERS = fabric("infiniband", HCA, dispatcher="deepep")
ROCE = fabric("roce", "gid_index 3", dispatcher="deepep")


def restarts(facts: str = "", field: str = "") -> Job:
    """A job with in-process restart that also sets `field` to true."""
    given, on = job(facts=facts)
    return changed(given, set={"inprocess_restart.enabled": True} | ({field: True} if field else {})), on


def chain(time: str = "", without: str = "", chain: str = "on") -> Job:
    """A job of a chain of 5,000 steps; the run does not set one of the fields that it needs."""
    given, on = job(facts=f"chain {chain}; {time}")
    fields = {"train.train_iters": 5000, "checkpoint.save": "/shared/run", "train.exit_signal_handler": True}
    return changed(given, set={n: v for n, v in fields.items() if n != without}), on


def hourly(steps: int) -> Job:
    """A job of steps of one second on a Kubernetes cluster, with a failure every hour."""
    given, on = pods("h100", "")
    shares = Shares(trains=1.0, saves=0.0, repeats=0.0, returns=0.0)
    saves = Checkpoints(
        saved=True, size_gb=1.0, bytes_per_parameter=14.0, async_save=True, blocked_s=0.0, write_s=1.0, load_s=1.0,
        interval_steps=60, interval_s=60.0, best_interval_s=60.0, because="", kept=None, kept_gb=None,
        failure_every_s=3600.0, return_s=0.0, goodput=shares,
    )  # fmt: skip
    return evolve(changed(given, set={"train.train_iters": steps}), checkpoints=saves), on


def under_ft(facts: str = "") -> Job:
    """A job with fault tolerance."""
    given, on = job(facts=facts)
    return changed(given, set={"ft.enable_ft_package": True, "checkpoint.save": "/shared/run"}), on


def by_rules(block: str, by_it: Job, other: Job, values: dict[str, Any]) -> dict[str, Derived]:
    """The cases of values that `by_it` has by rules of one block, and `other` has not."""
    return {block + name: Derived(by_it, value, other) for name, value in values.items()}


RESTARTS = restarts()
FT, SPARE = under_ft(), under_ft("spare_nodes 1")

CASES: dict[str, Judged | Derived] = {
    "std.launch.gpus_per_node": Derived(H100, 8, GB200, 4),
    "std.launch.nodes": Derived(job(64), 8, job(64, on="gb200"), 16),
    "std.launch.tasks_per_node": Derived(H100, 8, job(facts="launcher torchrun"), 1),
    "std.launch.ranks_per_node": Derived(H100, 8, job(4, ep=4), 4),
    "std.launch.whole_nodes": Judged(H100, job(12, ep=4)),
    "std.launch.enough_nodes": Judged(job(64, "nodes 8"), job(64, "nodes 7")),
    "std.launch.hardware": Judged(elsewhere("h100"), elsewhere("gb200")),
    "std.launch.numa_binding": Derived(H100, True, job(facts="numa off")),
    "std.launch.cores_per_rank": Derived(job(on="b300"), 2, job(on="b200")),
    "std.fabric.NCCL_NET_GDR_LEVEL": Derived(GB200, "PHB", job(on="gb300")),
    "std.fabric.NCCL_NET_GDR_C2C": Derived(GB200, 1, job(on="gb300")),
    "std.verbs.NCCL_IB_HCA": Derived(ADAPTERS, "=mlx5_0,mlx5_3:1", fabric("infiniband")),
    "std.verbs.NVSHMEM_HCA_LIST": Derived(ADAPTERS, "mlx5_0,mlx5_3:1", fabric("infiniband", HCA)),
    "std.verbs.NCCL_IB_GID_INDEX": Derived(ROCE, 3, fabric("infiniband", "gid_index 3")),
    "std.verbs.NVSHMEM_IB_GID_INDEX": Derived(ROCE, 3, fabric("roce", "gid_index 3")),
    "std.efa.FI_PROVIDER": Derived(EFA, "efa", GIB),
    "std.efa.FI_EFA_USE_HUGE_PAGE": Derived(EFA, 0, GIB),
    "std.efa.NCCL_NET_PLUGIN": Derived(EFA, "/opt/amazon/ofi-nccl/lib/libnccl-net.so", job(facts="fabric efa")),
    "std.efa.NVSHMEM_REMOTE_TRANSPORT": Derived(fabric("efa", dispatcher="deepep"), "libfabric", EFA),
    "std.efa.NVSHMEM_LIBFABRIC_PROVIDER": Derived(fabric("efa", dispatcher="deepep"), "efa", EFA),
    "std.gib.NCCL_NET": Derived(GIB, "gIB", EFA),
    "std.gib.NCCL_SOCKET_IFNAME": Derived(pods("h200", "fabric gib"), "eth0,eth1", GIB),
    "std.tcpxo.hardware": Judged(TCPXO, fabric("tcpxo", on="h200")),
    "std.tcpxo.NCCL_NET": Derived(TCPXO, "FasTrak", pods("h100", "fabric tcpxo")),
    **by_rules("std.tcpxo.", TCPXO, GIB, {
        "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices", "NCCL_FASTRAK_USE_SNAP": 1,
        "NCCL_FASTRAK_USE_LLCM": 1, "NCCL_FASTRAK_NUM_FLOWS": 2, "NCCL_CROSS_NIC": 0, "NCCL_ALGO": "Ring,Tree",
        "NCCL_PROTO": "Simple", "NCCL_NET_GDR_LEVEL": "PIX",
    }),
    **by_rules("std.tcpx.", TCPX, TCPXO, {
        "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1,eth2,eth3,eth4", "NCCL_GPUDIRECTTCPX_CTRL_DEV": "eth0",
        "NCCL_GPUDIRECTTCPX_FORCE_ACK": 0, "NCCL_SOCKET_IFNAME": "eth0",
    }),
    "std.tcpx.NCCL_GPUDIRECTTCPX_TX_BINDINGS": Derived(
        TCPX, "eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177", TCPXO
    ),
    "std.tcpx.NCCL_GPUDIRECTTCPX_RX_BINDINGS": Derived(
        TCPX, "eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191", TCPXO
    ),
    "std.tcpx.hardware": Judged(TCPX, fabric("tcpx", on="h200")),
    "std.tcpx.NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": Derived(TCPX, 50000, PODS_TCPX, 500000),
    "std.tcpx.NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": Derived(TCPX, "/run/tcpx", PODS_TCPX, "/tmp"),
    "std.tcpx.LD_LIBRARY_PATH": Derived(
        TCPX, "/usr/local/nvidia/lib64:/usr/local/tcpx/lib64", job(facts="fabric tcpx")
    ),
    **by_rules("std.tcpx_pods.", PODS_TCPX, TCPX, {
        "NCCL_CROSS_NIC": 0, "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_NSOCKS_PERTHREAD": 4,
        "NCCL_SOCKET_NTHREADS": 1, "NCCL_NET_GDR_LEVEL": "PIX", "NCCL_DYNAMIC_CHUNK_SIZE": 524288,
        "NCCL_P2P_PXN_LEVEL": 0, "NCCL_P2P_NET_CHUNKSIZE": 524288, "NCCL_P2P_PCI_CHUNKSIZE": 524288,
        "NCCL_P2P_NVL_CHUNKSIZE": 1048576, "NCCL_BUFFSIZE": 4194304, "NCCL_MAX_NCHANNELS": 8,
        "NCCL_MIN_NCHANNELS": 8,
    }),
    **by_rules("std.tcpxo_pods.", PODS_TCPXO, TCPXO, {
        "NCCL_FASTRAK_CTRL_DEV": "eth0", "NCCL_FASTRAK_IFNAME": "eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8",
        "NCCL_SOCKET_IFNAME": "eth0",
    }),
    "std.experts_between_nodes.reached_by_rdma": Judged(spread("tcpxo", "alltoall"), spread("tcpxo", "hybridep")),
    "std.experts_between_nodes.hybridep_has_verbs": Judged(spread("efa", "deepep"), spread("efa", "hybridep")),
    "std.gke.pod.mounts/1": Derived(
        PODS_GIB, "/home/kubernetes/bin/nvidia:/usr/local/nvidia,/home/kubernetes/bin/gib:/usr/local/gib", PODS_TCPX
    ),
    "std.gke.pod.mounts/2": Derived(
        PODS_TCPXO,
        "/home/kubernetes/bin/nvidia:/usr/local/nvidia,/dev/aperture_devices:/dev/aperture_devices",
        PODS_GIB,
    ),
    "std.gke.pod.mounts/3": Derived(PODS_TCPX, "/home/kubernetes/bin/nvidia/lib64:/usr/local/nvidia/lib64", PODS_EFA),
    "std.gke.LD_LIBRARY_PATH": Derived(PODS_GIB, "/usr/local/nvidia/lib64", PODS_EFA),
    "std.gke.networks_are_named": Judged(PODS_GIB, pods("h200", "fabric gib")),
    "std.daemon.daemon_has_a_field": Judged(PODS_GIB, PODS_TCPX),
    "std.collisions.net_is_of_tcpx": Judged(
        fabric("tcpx", "env { NCCL_NET GPUDirectTCPX_v7 }"), fabric("tcpx", "env { NCCL_NET IB }")
    ),
    "std.collisions.hca_is_used": Judged(fabric("infiniband", HCA), fabric("efa", HCA)),
    "std.collisions.hca_once": Judged(
        fabric("roce", "env { NCCL_IB_HCA mlx5_1 }"), fabric("roce", f"{HCA}; env {{ NCCL_IB_HCA mlx5_1 }}")
    ),
    "std.collisions.net_is_of_fabric": Judged(
        fabric("gib", "env { NCCL_NET gIB }"), fabric("infiniband", "env { NCCL_NET gIB }")
    ),
    "std.collisions.provider_is_efa": Judged(
        job(facts="env { FI_PROVIDER tcp }"), fabric("efa", "env { FI_PROVIDER tcp }")
    ),
    "std.collisions.verbs_are_on": Judged(
        fabric("efa", "env { NCCL_IB_DISABLE 1 }"), fabric("roce", "env { NCCL_IB_DISABLE 1 }")
    ),
    "std.fault_tolerance.on_slurm": Judged(FT, (FT[0], LOCAL[1])),
    "std.fault_tolerance.saves": Judged(FT, job(field="ft.enable_ft_package")),
    **by_rules("std.fault_tolerance.", FT, H100, {
        "ft_launcher.max_restarts": 3, "ft_launcher.setup": 1800, "ft_launcher.step": 180,
        "ft_launcher.checkpointing": 420, "ft_launcher.ft_rank_out_of_section_timeout": 300,
        "srun.kill_on_bad_exit": "0", "srun.wait": "0",
    }),
    "std.spare_nodes.under_ft_launcher": Judged(SPARE, job(facts="spare_nodes 1")),
    **by_rules("std.spare_nodes.", SPARE, FT, {
        "sbatch.no_kill": True, "srun.no_kill": True, "first_node_check": 30,
    }),
    "std.again.may_requeue": Judged(job(facts="retries 2"), job(facts="retries 2; requeue off")),
    "std.again.requeue": Derived(job(facts="requeue off"), 0, H100),
    "std.chain.length": Judged(chain(), chain(without="train.train_iters")),
    "std.chain.folder": Judged(chain(), chain(without="checkpoint.save")),
    "std.chain.saves_at_its_end": Judged(chain(), chain(without="train.exit_signal_handler")),
    "std.chain.limited": Judged(chain(), chain('time "0-00"')),
    "std.spectrum_x.without_its_plugin": Judged(
        spread('roce; env { NCCL_NET_PLUGIN none; NCCL_NET IB }', "alltoall"), spread("roce", "alltoall")
    ),
    "std.chain.time_to_train": Judged(chain(), chain('time "00:16:00"')),
    "std.chain.jobs": Derived(chain('time "00:20:00"'), 22, job(field="train.exit_signal_handler")),
    "std.one_job.within_its_limit": Judged(chain(chain="off"), chain('time "01:00:00"', chain="off")),
    "std.pods_that_fail.none_expected": Judged(hourly(3000), hourly(5000)),
    "std.inprocess_restart.started_by_srun": Judged(RESTARTS, restarts("launcher torchrun")),
    "std.inprocess_restart.no_user_buffers": Judged(RESTARTS, restarts(field="ddp.nccl_ub")),
    **by_rules("std.inprocess_restart.", RESTARTS, H100, {
        "srun.kill_on_bad_exit": "0", "srun.wait": "0", "TORCH_CPP_LOG_LEVEL": "error",
        "TORCH_NCCL_RETHROW_CUDA_ERRORS": 0, "NCCL_NVLS_ENABLE": 0,
    }),
    "std.pods.pod.efa_devices": Derived(PODS_EFA, 32, pods("h100", "fabric gib")),
    "std.pods.pod.device_folder": Derived(PODS_EFA, "/dev/infiniband", pods("h100", "fabric gib")),
    "std.pods.pod.shm": Derived(PODS_EFA, True, pods("h100", 'fabric efa; shm "64Gi"')),
    "std.pods.pod.privileged": Derived(pods("h100", "privileged on"), True, pods("h100", "fabric gib")),
    "std.pods.queue_for_priority": Judged(pods("h100", "priority high; queue moe"), pods("h100", "priority high")),
    "std.pods.queue_for_topology": Judged(
        pods("h100", "queue moe; required_topology rack"), pods("h100", "preferred_topology rack")
    ),
    "std.pods.one_topology": Judged(
        pods("h100", "queue moe; required_topology rack"),
        pods("h100", "queue moe; required_topology rack; preferred_topology rack"),
    ),
    "std.segment.hybridep_holds": Judged(wide(48, "hybridep"), wide(96, "hybridep")),
    "std.segment.expert_groups_hold": Judged(wide(48, "alltoall"), wide(96, "alltoall")),
    "std.segment.segment/1": Derived(job(72, on="gb200"), 18, job(72, "topology off", on="gb200")),
    "std.segment.segment/2": Derived(wide(96, "alltoall"), 18, wide(48, "alltoall")),
    "std.nvlink_domains.scheduler_is_asked": Judged(
        pods("gb200", 'colocate "nvidia.com/gpu.clique"'), pods("gb200", "queue moe")
    ),
    "std.racks.expert_groups_hold": Judged(racked(4), racked(1, "topology block")),
    "std.racks.scheduler_is_asked": Judged(racked(4), racked(4, "topology off")),
    "std.racks.switches_keep_groups": Judged(racked(4), racked(3)),
    "std.racks.sbatch.switches": Derived(racked(4), 2, racked(4, "topology block")),
    "std.racks.segment": Derived(racked(3, "topology block"), 2, racked(4)),
    "std.checkpoints.checkpoints_outlive": Judged(corpus({"checkpoint.save": "/shared/run"}), corpus({})),
    **by_rules("std.slurm.", H100, LOCAL, {
        "srun.mpi": "pmix", "sbatch.exclusive": True, "sbatch.mem": "0",
    }),
    "std.slurm.srun.no_container_mount_home": Derived(IMAGE, True, H100),
    "std.slurm.srun.container_writable": Derived(IMAGE, True, H100),
    "std.slurm.preempt_time": Derived(HANDLER, 62, H100),
    "std.torchrun.PET_SHUTDOWN_TIMEOUT": Derived(
        job(facts="launcher torchrun", field="train.exit_signal_handler"), 62, HANDLER
    ),
    "std.ranks_alone.signal_ranks": Derived(
        job(facts="launcher torchrun", field="train.exit_signal_handler"), True, HANDLER
    ),
    "std.grace_period.has_a_field": Judged(pods("h100", ""), told("")),
    **by_rules("std.process.", USER_BUFFERS, H100, {
        "NCCL_NVLS_ENABLE": 1, "NCCL_CTA_POLICY": 1, "PYTORCH_CUDA_ALLOC_CONF": "", "NCCL_GRAPH_REGISTER": "",
    }),
    "std.process.NVTE_CPU_OFFLOAD_V1": Derived(OFFLOAD, 1, H100),
    "std.process.TOKENIZERS_PARALLELISM": Derived(H100, "False", job(facts="env { TOKENIZERS_PARALLELISM true }")),
    "std.process.HF_HUB_OFFLINE": Derived(job(facts="offline on"), 1, H100, 0),
}  # fmt: skip


def known() -> dict[str, Rule]:
    """Every rule of a launch but a `let`, by its id; those that share one by ``ID/1``, ``ID/2``, in order."""
    mine = [r for r in cluster_rules.read(library())[0].rules if r.kind != "let"]
    times, seen = Counter(r.id for r in mine), Counter[str]()
    out: dict[str, Rule] = {}
    for r in mine:
        seen[r.id] += 1
        out[f"{r.id}/{seen[r.id]}" if times[r.id] > 1 else r.id] = r
    return out


KNOWN = known()
VALUES = ("derive", "env")
ADD = "add `{}` to CASES: a job that it accepts and one that it rejects"


@pytest.mark.parametrize("name", [n for n, r in KNOWN.items() if r.kind not in VALUES])
def test_rule_that_judges(name: str) -> None:
    case = CASES.get(name)
    assert isinstance(case, Judged), ADD.format(name)
    assert KNOWN[name].id in said(case.rejected)
    assert said(case.accepted) == []


@pytest.mark.parametrize("name", [n for n, r in KNOWN.items() if r.kind in VALUES])
def test_rule_that_derives(name: str) -> None:
    case = CASES.get(name)
    assert isinstance(case, Derived), ADD.format(name)
    assert value(KNOWN[name], case.by_it) == case.value != case.instead
    assert value(KNOWN[name], case.other) == case.instead


def test_no_case_is_of_a_rule_that_is_gone() -> None:
    assert CASES.keys() - KNOWN.keys() == set()


def said(made: Job) -> list[str]:
    """The ids of what deriving reports."""
    return [d.id for d in derive(*made, library())[1]]


def value(rule: Rule, made: Job) -> Any:
    """What the launch of a job has by that rule; None where it has nothing by it."""
    derived = launch(*made)
    settings = (
        *derived.environment, *derived.ft_launcher, *derived.srun, *derived.sbatch, *derived.pods, *derived.settings,
    )  # fmt: skip
    return next((s.value for s in settings if (s.rule, s.because) == (rule.id, rule.because)), None)


@pytest.mark.parametrize("of", ["", "of launch"])
@pytest.mark.parametrize("name", ["RANK", "SLURM_NTASKS", "IFS", "MOEDSL_FILES"])
def test_a_rule_gives_no_variable_that_is_somebody_elses(name: str, of: str) -> None:
    text = f'rules ours {of} {{ env {name} = "x" because "we say so" cite ours "page 1" }}\n'
    result = compile_source(Source("run.moe", f"qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first\n{text}"))
    assert [d.id for d in result.diagnostics if d.is_error] == ["check.variable"]


@pytest.mark.parametrize("of", ["", "of launch"])
@pytest.mark.parametrize("said", ['HF_TOKEN = "short"', 'NOTE = "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH"'])
def test_a_rule_holds_no_secret(said: str, of: str) -> None:
    text = f'rules ours {of} {{ env {said} because "we say so" cite ours "page 1" }}\n'
    result = compile_source(Source("run.moe", f"qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first\n{text}"))
    assert [d.id for d in result.diagnostics if d.is_error] == ["check.secret"]


@pytest.mark.parametrize(("said", "id"), table_of("launch", "a derived argument is one line that nothing else decides"))
def test_a_derived_argument_is_one_line_that_nothing_else_decides(said: str, id: str) -> None:
    text = f'rules ours of launch {{ derive {said} because "we say so" cite ours "page 1" }}\n'
    result = compile_source(Source("run.moe", f"qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first\n{text}"))
    assert [d.id for d in result.diagnostics if d.is_error] == [id]


def test_a_derived_argument_that_is_computed_is_one_line() -> None:
    text = """rules ours of launch {
      derive sbatch.comment = if nodes > 1 then "a\\nb" else "c" because "we say so" cite ours "page 1"
    }
    qwen3_30b_a3b; h100 x 16; seq 4k"""
    own = compile_source(Source("run.moe", text), stop_after="check").library
    assert [d.id for d in derive(plan("h100", 16, {"ep": 8}), slurm("h100"), own)[1]] == ["check.cluster"]
    assert not derive(plan("h100", 8, {"ep": 8}), slurm("h100"), own)[1]


@pytest.mark.parametrize("of", ["", "of launch"])
def test_a_rule_does_not_choose_what_this_machine_loads(of: str) -> None:
    text = f'rules ours {of} {{ env LD_PRELOAD = "/tmp/x.so" because "we say so" cite ours "page 1" }}\n'
    result = compile_source(Source("run.moe", f"qwen3_30b_a3b; h100 x 8; seq 4k; batch 64; fit first\n{text}"))
    (made,) = result.plans
    assert [d.id for d in derive(made, cluster("executor local"), result.library)[1]] == ["check.cluster"]
    assert not derive(made, slurm("h100"), result.library)[1]


def test_data_holds_no_secret() -> None:
    text = 'qwen3_30b_a3b; h100 x 16; seq 4k; batch 64; fit first; data "https://user:hunter2pass@store.example/text"'
    assert [d.id for d in compile_source(Source("run.moe", text), stop_after="check").diagnostics] == ["check.secret"]

"""Kubeflow: the TrainJob byte for byte, each of the real definition, values that come through, and Google's fabrics.

The judges are the schema of Kubeflow's own packages (tests/data/extract_kubernetes_schemas.py) with closed objects, so
that a field that a release does not have is an error here, where the API server would drop it without a word; and xpk
and SkyPilot themselves (tests/data/extract_google_fabrics.py ran xpk's decorators), which say what a pod on Google
Cloud has.
"""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from moedsl.cli.main import main
from moedsl.compiler import compile_source
from moedsl.launch import dryrun, kubeflow
from moedsl.launch.derive import Launch, derive
from moedsl.launch.script import Payload
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.check.cluster_reader import Setting
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.tables import table_of
from tests.launch import launches
from tests.launch.kube_api import Api, expanded
from tests.launch.launches import Capture, Patch, cluster, ids, launch, plan, slurm

HERE = Path(__file__).resolve().parent
ENTRY = "import json, os, sys\nprint(json.dumps({'env': dict(os.environ), 'argv': sys.argv[1:]}))\n"


class Manifest(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    file_extension = "yaml"


@pytest.fixture(scope="session")
def launched() -> tuple[Launch, Cluster]:
    """The run on its cluster."""
    return launches.kube_launched()


def with_values(launch: Launch, values: dict[str, str]) -> Launch:
    return evolve(launch, environment=tuple(Setting(n, v, "cluster", None, None) for n, v in values.items()))


def run_container(body: dict[str, Any], folder: Path, secrets: dict[str, str]) -> dict[str, Any]:
    """What the ranks print, run as the kubelet does, with a `torch.distributed.run` that only starts the program.

    It fills in torchrun's macros as torch does (torch 2.13 distributed/elastic/utils/api.py:54).
    """
    stand_in = folder / "torch" / "distributed"
    stand_in.mkdir(parents=True, exist_ok=True)
    for package in (stand_in, stand_in.parent):
        (package / "__init__.py").touch()
    (stand_in / "run.py").write_text(
        "import os, string, sys\n"
        "at = next(i for i, a in enumerate(sys.argv) if a.endswith('.py') and i)\n"
        "arguments = [string.Template(a).safe_substitute(local_rank=0) for a in sys.argv[at + 1:]]\n"
        "os.environ['LOCAL_RANK'] = '0'\n"
        "os.execv(sys.executable, [sys.executable, sys.argv[at], *arguments])\n"
    )
    trainer = body["spec"]["trainer"]
    variables = {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "head", "PET_MASTER_PORT": "29400", **secrets}
    words = [expanded(w, variables) for w in trainer["command"]]
    base = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(words, env=base | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# ---------------------------------------------------------------- the manifest


def test_a_manifest_byte_for_byte(launched: tuple[Launch, Cluster], snapshot: SnapshotAssertion) -> None:
    made, on = launched
    job = (made, Payload({"recipe.py": ENTRY}))
    sent = dryrun.dryrun([job], on)
    assert sent == dryrun.dryrun([job], on)
    assert sent.files["trainjob.yaml"] == snapshot(extension_class=Manifest)


def test_a_manifest_needs_no_kubeconfig(launched: tuple[Launch, Cluster], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert kubeflow.manifest(*launched, Payload({"recipe.py": ENTRY}))["kind"] == "TrainJob"


def test_what_a_cluster_states_is_in_the_manifest(launched: tuple[Launch, Cluster]) -> None:
    body = yaml.safe_load(kubeflow.text(kubeflow.manifest(*launched, Payload({"recipe.py": ENTRY}))))
    trainer, override = body["spec"]["trainer"], pod_of(body)
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (2, 8)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "8"}
    assert trainer["env"] == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "HF_TOKEN"}}}
    ]
    assert body["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "moe"}
    assert body["metadata"]["namespace"] == "training"
    (container,) = override["spec"]["containers"]
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert set(mounts) == {"/cache", "/workspace", "/dev/shm"}
    assert mounts["/cache"]["readOnly"] is True
    assert {v["name"] for v in override["spec"]["volumes"]} == {m["name"] for m in mounts.values()}
    assert override["spec"]["nodeSelector"] == {"gpu": "H100"}


def test_a_script_that_is_too_long_is_refused(launched: tuple[Launch, Cluster]) -> None:
    assert kubeflow.refusal(*launched, Payload({"recipe.py": ENTRY})) is None
    refused = kubeflow.refusal(*launched, Payload({"recipe.py": "#" * kubeflow.LIMIT}))
    assert refused is not None and refused.id == "launch.too_long"


# ---------------------------------------------------------------- values survive


def test_values_reach_the_rank(launched: tuple[Launch, Cluster], tmp_path: Path) -> None:
    launch, cluster = launched
    payload = Payload({"recipe.py": ENTRY}, arguments=tuple(launches.HARD.values()))
    body = yaml.safe_load(kubeflow.text(kubeflow.manifest(with_values(launch, launches.HARD), cluster, payload)))
    said = run_container(body, tmp_path, {"HF_TOKEN": "$(HOME) it's secret"})
    assert {n: said["env"][n] for n in launches.HARD} == launches.HARD
    assert said["argv"] == list(launches.HARD.values())
    assert said["env"]["HF_TOKEN"] == "$(HOME) it's secret"


def test_nothing_of_a_value_is_run(launched: tuple[Launch, Cluster], tmp_path: Path) -> None:
    launch, cluster = launched
    marker = tmp_path / "ran"
    bad = {
        "A": f"$(touch {marker})",
        "B": f"`touch {marker}`",
        "C": f"'; touch {marker}; '",
        "D": f"\n touch {marker}\n",
    }
    payload = Payload({"recipe.py": ENTRY}, arguments=tuple(bad.values()))
    said = run_container(kubeflow.manifest(with_values(launch, bad), cluster, payload), tmp_path, {"HF_TOKEN": "x"})
    assert {n: said["env"][n] for n in bad} == bad
    assert not marker.exists()


@given(st.text(alphabet=st.sampled_from("$(){}aH \\'\"\n"), max_size=40))
def test_the_kubelet_gives_back_what_was_written(text: str) -> None:
    assert expanded(kubeflow.for_kubelet(text), {"H": "x", "a": "y", "": "z"}) == text


@given(st.text(alphabet=st.sampled_from("$(){}a_ \n"), max_size=40))
def test_nemo_run_gives_back_what_was_written(text: str) -> None:
    """NeMo-Run fills its macros into each argument."""
    from nemo_run.core.execution.base import ExecutorMacros

    macros = ExecutorMacros(
        head_node_ip_var="A", nproc_per_node_var="B", num_nodes_var="C", node_rank_var="D", het_group_host_var="E"
    )
    whole = text + "${head_node_ip_var} $node_rank_var"
    assert macros.substitute(kubeflow.for_template(whole)) == whole


# ---------------------------------------------------------------- what is refused


def test_another_context_is_refused(tmp_path: Path, monkeypatch: Any, launched: tuple[Launch, Cluster]) -> None:
    """NeMo-Run takes the current context; a job must not go to another cluster than the one that is named."""
    from kubernetes.config import kube_config

    with Api() as api:
        monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(api.kubeconfig(tmp_path)))
        _, cluster = launched
        assert kubeflow.context_refusal(cluster) is None
        assert kubeflow.context_refusal(evolve(cluster, context="test")) is None
        refused = kubeflow.context_refusal(evolve(cluster, context="production"))
    assert refused is not None
    assert "use-context production" in refused.help[0]


def test_jobs_that_cannot_wait_for_each_other_are_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "run.moe").write_text(f"{launches.KUBE_RUN}\nsweep micro_batch in 1, 2\n")
    words = ["run", str(tmp_path / "run.moe"), "--cluster", "--dryrun", "--sequential"]
    assert main(words) == 1
    assert "error[launch.sequential]" in capsys.readouterr().err


def test_a_machine_without_a_kubeconfig_is_told_so(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    from kubernetes.config import kube_config

    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    (tmp_path / "run.moe").write_text(launches.KUBE_RUN)
    for more in ([], ["--no-preflight"]):
        assert main(["run", str(tmp_path / "run.moe"), "--cluster", *more]) == 1
        said = capsys.readouterr().err
        assert "error[launch.kube_context]" in said and "set KUBECONFIG" in said


PODS = 'executor kubeflow; hardware {}; container "nvcr.io/nvidia/nemo:26.06"'
EVERY_FACT = table_of("launch", "kubeflow: every fact")
NETWORKS = '["eth1=vpc1", "eth2=vpc2"]'
FACTS = {
    "none": PODS.format("h100"),
    "eks": f"{PODS.format('h100')}; fabric efa",
    "gke": f'{PODS.format("h200")}; fabric gib; queue moe; interfaces ["eth2=rdma-0"]',
    "tcpx": f"{PODS.format('h100')}; fabric tcpx; interfaces {NETWORKS}",
    "tcpxo": f"{PODS.format('h100')}; fabric tcpxo; interfaces {NETWORKS}",
    "every": f"{PODS.format('gb200')}; fabric gib; {EVERY_FACT}",
}
RELEASES = ("2.2.1", "2.3.0")
"""The packages of Kubeflow Trainer that judge."""


@cache
def validator(release: str) -> Draft202012Validator:
    schemas = json.loads((ROOT / "tests/data/trainjob_schemas.json").read_text(encoding="utf-8"))
    return Draft202012Validator(schemas[release])


def wrong(body: dict[str, Any], release: str) -> list[str]:
    """What a release's definition says against a manifest."""
    return [f"{e.json_path}: {e.message[:300]}" for e in validator(release).iter_errors(body)]


def made(facts: str, gpus: int = 64) -> tuple[dict[str, Any], Cluster]:
    """The manifest of a job of those GPUs, as it is read back from its YAML."""
    on = cluster(facts)
    job = launch(plan(on.hardware, gpus, {"ep": 8}), on)
    text = kubeflow.text(kubeflow.manifest(job, on, Payload({"recipe.py": "pass\n"})))
    return yaml.load(text, yaml.CSafeLoader), on


@pytest.mark.parametrize("facts", FACTS)
def test_a_manifest_is_of_the_real_definition(facts: str) -> None:
    body, _ = made(FACTS[facts])
    for release in RELEASES:
        assert wrong(body, release) == []


def test_a_field_that_no_definition_has_is_found() -> None:
    body, _ = made(FACTS["eks"])
    body["spec"]["trainer"]["securityContext"] = {"privileged": True}
    for release in RELEASES:
        assert wrong(body, release)


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    """The settings of pods."""
    (patch,) = body["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    return job["template"]["spec"]["template"]


def test_every_fact_is_in_the_manifest() -> None:
    body, _ = made(FACTS["every"])
    pod = pod_of(body)
    spec = pod["spec"]
    assert body["metadata"]["labels"] == {
        "example.org/team": "moe", "kueue.x-k8s.io/queue-name": "moe", "kueue.x-k8s.io/priority-class": "high"
    }  # fmt: skip
    assert pod["metadata"]["labels"]["example.org/team"] == "moe"
    assert pod["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-required-topology": "cloud.google.com/gce-topology-block",
        "kueue.x-k8s.io/podset-slice-required-topology": "cloud.google.com/gce-topology-subblock",
        "kueue.x-k8s.io/podset-slice-size": "16",
        "networking.gke.io/default-interface": "eth0",
        "networking.gke.io/interfaces": '[{"interfaceName":"eth0","network":"default"},'
        '{"interfaceName":"eth2","network":"rdma-0"},'
        '{"interfaceName":"eth3","network":"rdma-1"}]',
        "example.org/note": "a b",
    }
    assert spec["tolerations"] == [
        {"operator": "Exists", "key": "nvidia.com/gpu"},
        {"operator": "Equal", "key": "pool", "value": "moe", "effect": "NoSchedule"},
    ]
    (nodes,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert nodes["matchExpressions"] == [
        {"key": "pool", "operator": "In", "values": ["moe", "dense"]},
        {"key": "zone", "operator": "NotIn", "values": ["c"]},
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "example.org/spot", "operator": "DoesNotExist"},
    ]
    (pods,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert pods["topologyKey"] == "nvidia.com/gpu.clique"
    assert pods["labelSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (container,) = spec["containers"]
    assert body["spec"]["trainer"]["resourcesPerNode"]["limits"] == {
        "nvidia.com/gpu": "4", "rdma/ib": "8", "cpu": "96", "memory": "1500Gi"
    }  # fmt: skip
    assert container["securityContext"] == {"privileged": True}
    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in container["volumeMounts"]}


@pytest.mark.parametrize("facts", FACTS)
def test_shared_memory_is_the_nodes(facts: str) -> None:
    """A container's own /dev/shm has 64 MiB."""
    body, on = made(FACTS[facts])
    spec = pod_of(body)["spec"]
    (name,) = (m["name"] for m in spec["containers"][0]["volumeMounts"] if m["mountPath"] == "/dev/shm")
    (volume,) = (v for v in spec["volumes"] if v["name"] == name)
    assert volume["emptyDir"] == {"medium": "Memory", **({"sizeLimit": on.shm} if on.shm else {})}


def test_a_rule_of_the_run_leaves_shared_memory_to_the_runtime() -> None:
    text = """rules ours of launch { derive pod.shm = false because "the runtime mounts it" cite ours "page 1" }
    qwen3_30b_a3b; h100 x 16; seq 4k"""
    own = compile_source(Source("run.moe", text), stop_after="check").library
    on = cluster(FACTS["eks"])
    job, _ = derive(plan("h100", 16, {"ep": 8}), on, own)
    assert job is not None
    spec = pod_of(kubeflow.manifest(job, on, Payload({"recipe.py": "pass\n"})))["spec"]
    assert [v["name"] for v in spec["volumes"]] == ["devices"]


def test_efa_gets_its_devices_and_the_cluster_may_state_their_number() -> None:
    body, _ = made(FACTS["eks"])
    spec = pod_of(body)["spec"]
    assert body["spec"]["trainer"]["resourcesPerNode"]["requests"]["vpc.amazonaws.com/efa"] == "32"
    assert spec["containers"][0]["securityContext"] == {"privileged": True}
    assert {"name": "devices", "hostPath": {"path": "/dev/infiniband"}} in spec["volumes"]
    fewer, _ = made(f'{FACTS["eks"]}; resources ["vpc.amazonaws.com/efa=16"]')
    assert fewer["spec"]["trainer"]["resourcesPerNode"]["requests"]["vpc.amazonaws.com/efa"] == "16"


@pytest.mark.parametrize(("fact", "id"), table_of("launch", "kubeflow: a mistake in a fact"))  # fmt: skip
def test_a_mistake_in_a_fact_is_a_diagnostic(fact: str, id: str) -> None:
    from tests.launch.launches import read

    assert [d.id for d in read(f"{PODS.format('h100')}; {fact}")[1]] == [id]


def test_a_slice_is_a_part_of_a_rack() -> None:
    """Eight nodes with groups of one node each: four of the six nodes of a rack divide them."""
    facts = f"{PODS.format('h100')}; queue moe; nodes_per_rack 6"
    body, _ = made(f'{facts}; slice_topology "cloud.google.com/gce-topology-subblock"')
    annotations = pod_of(body)["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-slice-size"] == "4"
    assert ids(plan("h100", 64, {"ep": 8}), cluster(facts)) == [("warning", "std.racks.scheduler_is_asked")]


def test_what_kueue_reads_needs_a_queue() -> None:
    on = cluster(f"{PODS.format('h100')}; priority high")
    assert ids(plan("h100", 16, {"ep": 8}), on) == [("error", "std.pods.queue_for_priority")]


THEIRS = json.loads((ROOT / "tests/data/google_fabrics.json").read_text(encoding="utf-8"))
FABRICS = {"gib": "gke", "tcpx": "tcpx", "tcpxo": "tcpxo"}
Json = dict[str, Any]


def ours(fabric: str) -> Json:
    return pod_of(made(FACTS[FABRICS[fabric]], 16)[0])


def mounts(pod: Json, container: Json) -> dict[str, str]:
    """What a container sees at each path: a folder of the node, memory, or a folder that the containers share."""
    volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
    return {m["mountPath"]: _source(volumes[m["name"]]) for m in container["volumeMounts"]}


def _source(volume: Json) -> str:
    """The ranks and the daemon of TCPX share a folder: xpk takes one of the node, SkyPilot an empty one."""
    if volume.get("emptyDir", {}).get("medium"):
        return "memory"
    return "shared" if "emptyDir" in volume or volume["hostPath"]["path"] == "/run/tcpx" else volume["hostPath"]["path"]


@pytest.mark.parametrize("fabric", FABRICS)
def test_the_ranks_see_what_xpk_mounts(fabric: str) -> None:
    """But for the folder of the daemon's sockets: no TrainJob has a field for the daemon, so the runtime states both."""
    pod, theirs = ours(fabric), THEIRS["pods"][fabric]
    wanted = mounts(theirs, theirs["spec"]["containers"][0])
    assert mounts(pod, pod["spec"]["containers"][0]) == {at: what for at, what in wanted.items() if what != "shared"}


@pytest.mark.parametrize("fabric", FABRICS)
def test_annotations_are_those_of_xpk(fabric: str) -> None:
    """But for the networks, whose names are the cluster's own, and for the devices of the daemon."""
    pod, theirs = ours(fabric)["metadata"]["annotations"], THEIRS["pods"][fabric]["metadata"]["annotations"]
    networks = "networking.gke.io/interfaces"
    wanted = {n: text for n, text in theirs.items() if not n.startswith("devices.gke.io")}
    assert pod | {networks: ""} == wanted | {networks: ""}
    assert json.loads(pod[networks])[0] == json.loads(theirs[networks])[0]


def test_a_mount_of_the_cluster_wins() -> None:
    """The API server takes no two mounts at one path."""
    pod = pod_of(made(f'{FACTS["gke"]}; mounts ["/opt/gib:/usr/local/gib"]', 16)[0])
    seen = mounts(pod, pod["spec"]["containers"][0])
    assert len(seen) == len(pod["spec"]["containers"][0]["volumeMounts"]) and seen["/usr/local/gib"] == "/opt/gib"


def variables(environment: Any) -> dict[str, str]:
    return {s.name: s.text for s in environment}


def test_tcpx_has_the_published_variables() -> None:
    """All of them but the number of GPUs, which a pod with whole nodes does not need, on machines and in pods.

    SkyPilot's list for pods also has the folder of the plugin on machines, which xpk leaves out.
    """
    job = launch(plan("h100", 16, {"ep": 8}), slurm("h100", "container image; fabric tcpx"))
    assert THEIRS["machines"].items() <= variables(job.environment).items()
    mine = exported("tcpx")
    published = {n: text for n, text in THEIRS["variables"]["tcpx"].items() if n != "CUDA_VISIBLE_DEVICES"}
    assert published.pop("LD_LIBRARY_PATH").split(":")[0] == mine["LD_LIBRARY_PATH"]
    assert published.items() <= mine.items()


def test_tcpxo_in_pods_names_the_interfaces() -> None:
    """Of the tuner and of LL128 Google's newer charts say nothing."""
    known = ("LD_LIBRARY_PATH", "NCCL_FASTRAK_", "NCCL_SOCKET_IFNAME", "NCCL_CROSS_NIC", "NCCL_ALGO")
    published = {n: text for n, text in THEIRS["variables"]["tcpxo"].items() if n.startswith(known)}
    assert len(published) == 7 and published.items() <= exported("tcpxo").items()


def exported(fabric: str) -> dict[str, str]:
    """The variables of the ranks in pods."""
    return variables(launch(plan("h100", 16, {"ep": 8}), cluster(FACTS[fabric])).environment)

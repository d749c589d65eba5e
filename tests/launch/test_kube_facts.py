"""What a Kubernetes cluster states is in the manifest, and each manifest is one of the real definition of a TrainJob or a JobSet.

The judge is the schema of Kubeflow's own packages (tests/data/extract_kubernetes_schemas.py), with closed objects: a field
that a release does not have is an error here, where the API server would drop it without a word.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from moedsl.compiler import compile_source
from moedsl.launch import kubeflow
from moedsl.launch.derive import derive
from moedsl.launch.script import Payload
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
from tests.helpers.plans import changed
from tests.launch.launches import cluster, ids, launch, plan

PODS = 'executor kubeflow; hardware {}; container "nvcr.io/nvidia/nemo:26.06"'
EVERY_FACT = """namespace training; queue moe; priority high
    pvc "shared-data"; pvc_path "/workspace"; mounts ["/raid:/cache:ro"]; shm "64Gi"; image_pull_secrets [registry]
    secret tokens; secrets [HF_TOKEN]; service_account trainer; env { NOTE "two words" }
    node_selector ["nvidia.com/gpu.product=NVIDIA-GB200"]
    affinity ["pool in (moe, dense)", "zone notin (c)", "nvidia.com/gpu", "!example.org/spot"]
    colocate "nvidia.com/gpu.clique"; tolerations ["nvidia.com/gpu", "pool=moe:NoSchedule"]
    required_topology "cloud.google.com/gce-topology-block"
    slice_topology "cloud.google.com/gce-topology-subblock"
    labels ["example.org/team=moe"]; annotations ["example.org/note=a b"]
    interfaces ["eth2=rdma-0", "eth3=rdma-1"]; resources ["rdma/ib=8", "cpu=96", "memory=1500Gi"]; privileged on"""
NETWORKS = '["eth1=vpc1", "eth2=vpc2"]'
FACTS = {
    "none": PODS.format("h100"),
    "eks": f"{PODS.format('h100')}; fabric efa",
    "gke": f'{PODS.format("h200")}; fabric gib; queue moe; interfaces ["eth2=rdma-0"]',
    "tcpx": f"{PODS.format('h100')}; fabric tcpx; interfaces {NETWORKS}",
    "tcpxo": f"{PODS.format('h100')}; fabric tcpxo; interfaces {NETWORKS}",
    "every": f"{PODS.format('gb200')}; fabric gib; {EVERY_FACT}",
}
RELEASES = {"2.1": ("2.1.0",), "2.2": ("2.2.1", "2.3.0"), "none": ("2.1.0", "2.2.1", "2.3.0")}
"""The packages that judge a word of `trainer`."""


@cache
def validator(kind: str, release: str) -> Draft202012Validator:
    schemas = json.loads((ROOT / f"tests/data/{kind.lower()}_schemas.json").read_text(encoding="utf-8"))
    return Draft202012Validator(schemas[release])


def wrong(body: dict[str, Any], release: str) -> list[str]:
    """What a release's definition says against a manifest."""
    found = validator(body["kind"], release).iter_errors(body)
    return [f"{e.json_path}: {e.message[:300]}" for e in found]


def made(facts: str, gpus: int = 64) -> tuple[dict[str, Any], Cluster]:
    """The manifest of a job of those GPUs, as it is read back from its YAML."""
    on = cluster(facts)
    job = launch(plan(on.hardware, gpus, {"ep": 8}), on)
    text = kubeflow.text(kubeflow.manifest(job, on, Payload({"recipe.py": "pass\n"})))
    return yaml.load(text, yaml.CSafeLoader), on


@pytest.mark.parametrize("trainer", RELEASES)
@pytest.mark.parametrize("facts", FACTS)
def test_a_manifest_is_of_the_real_definition(facts: str, trainer: str) -> None:
    body, _ = made(f"{FACTS[facts]}; trainer {trainer}")
    for release in RELEASES[trainer]:
        assert wrong(body, release) == []


@pytest.mark.parametrize(("trainer", "other"), [("2.1", "2.2.1"), ("2.1", "2.3.0"), ("2.2", "2.1.0")])
def test_another_release_would_drop_the_pods_settings(trainer: str, other: str) -> None:
    body, _ = made(f"{FACTS['every']}; trainer {trainer}")
    assert wrong(body, other)


def test_a_field_that_no_definition_has_is_found() -> None:
    body, _ = made(FACTS["eks"])
    body["spec"]["trainer"]["securityContext"] = {"privileged": True}
    jobset, _ = made(f"{FACTS['eks']}; trainer none")
    pod_of(jobset)["spec"]["containers"][0]["numNodes"] = 2
    for release in ("2.1.0", "2.2.1", "2.3.0"):
        assert wrong(body, release) and wrong(jobset, release)


def pod_of(body: dict[str, Any]) -> dict[str, Any]:
    """The settings of pods in each form."""
    if body["kind"] == "JobSet":
        (job,) = body["spec"]["replicatedJobs"]
        return job["template"]["spec"]["template"]
    if "runtimePatches" in body["spec"]:
        (patch,) = body["spec"]["runtimePatches"]
        (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        return job["template"]["spec"]["template"]
    (override,) = body["spec"]["podTemplateOverrides"]
    return override


@pytest.mark.parametrize("trainer", RELEASES)
def test_every_fact_is_in_the_manifest(trainer: str) -> None:
    body, _ = made(f"{FACTS['every']}; trainer {trainer}")
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
    resources = container.get("resources") or body["spec"]["trainer"]["resourcesPerNode"]
    assert resources["limits"] == {
        "nvidia.com/gpu": "4", "rdma/ib": "8", "cpu": "96", "memory": "1500Gi"
    }  # fmt: skip
    assert ("securityContext" in container) == (trainer != "2.1")
    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in container["volumeMounts"]}


def test_a_jobset_has_a_pod_for_each_node_and_says_where_they_meet() -> None:
    """Names of hosts as JobSet's definition of `network` and of a replicated job describes them."""
    body, _ = made(f"{FACTS['eks']}; trainer none")
    name, (job,) = body["metadata"]["name"], body["spec"]["replicatedJobs"]
    indexed, (container,) = job["template"]["spec"], pod_of(body)["spec"]["containers"]
    assert (indexed["completionMode"], indexed["parallelism"], indexed["completions"]) == ("Indexed", 8, 8)
    assert (indexed["backoffLimit"], pod_of(body)["spec"]["restartPolicy"]) == (0, "Never")
    env = {e["name"]: e.get("value") for e in container["env"]}
    assert env["PET_MASTER_ADDR"] == f"{name}-{job['name']}-0-0.{body['spec']['network']['subdomain']}"
    assert (env["PET_NNODES"], env["PET_NPROC_PER_NODE"]) == ("8", "8")
    trainjob, _ = made(FACTS["eks"])
    assert container["command"] == trainjob["spec"]["trainer"]["command"]


def test_a_pod_that_saves_at_a_signal_has_the_time() -> None:
    """torchrun kills its ranks and the kubelet the pod after the same seconds; both take 30 by default."""
    on = cluster(f"{FACTS['none']}; trainer none")
    given = changed(plan("h100", 16, {"ep": 8}), set={"train.exit_signal_handler": True})
    body = kubeflow.manifest(launch(given, on), on, Payload({"recipe.py": "pass\n"}))
    assert all(wrong(body, release) == [] for release in RELEASES["none"])
    pod = pod_of(body)["spec"]
    assert pod["terminationGracePeriodSeconds"] == 62
    assert "export PET_SHUTDOWN_TIMEOUT=62" in pod["containers"][0]["command"][2]
    assert "terminationGracePeriodSeconds" not in pod_of(made(f"{FACTS['none']}; trainer none")[0])["spec"]


@pytest.mark.parametrize("trainer", RELEASES)
@pytest.mark.parametrize("facts", FACTS)
def test_shared_memory_is_the_nodes(facts: str, trainer: str) -> None:
    """A container's own /dev/shm has 64 MiB."""
    body, on = made(f"{FACTS[facts]}; trainer {trainer}")
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
    body, _ = made(f"{FACTS['eks']}; trainer 2.2")
    spec = pod_of(body)["spec"]
    assert body["spec"]["trainer"]["resourcesPerNode"]["requests"]["vpc.amazonaws.com/efa"] == "32"
    assert spec["containers"][0]["securityContext"] == {"privileged": True}
    assert {"name": "devices", "hostPath": {"path": "/dev/infiniband"}} in spec["volumes"]
    fewer, _ = made(f'{FACTS["eks"]}; trainer 2.2; resources ["vpc.amazonaws.com/efa=16"]')
    assert fewer["spec"]["trainer"]["resourcesPerNode"]["requests"]["vpc.amazonaws.com/efa"] == "16"


@pytest.mark.parametrize(
    ("fact", "id"),
    [
        ("trainer 2.7", "check.unknown_word"),
        ('trainer none; runtime "torch-distributed"', "check.cluster"),
        ('tolerations ["pool=moe:Never"]', "check.cluster"),
        ('affinity ["pool in moe"]', "check.cluster"),
        ('colocate "a b"', "check.cluster"),
        ('resources ["rdma/ib=many"]', "check.cluster"),
        ('interfaces ["rdma-0"]', "check.cluster"),
        ('labels ["team=a b"]', "check.cluster"),
        ('annotations ["a\\nb=c"]', "check.cluster"),
    ],
)
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

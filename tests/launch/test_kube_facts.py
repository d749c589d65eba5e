"""What a Kubernetes cluster states is in the manifest, and each manifest is one of the real definition of a TrainJob.

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
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.source import Source
from tests.helpers.paths import ROOT
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


@pytest.mark.parametrize(
    ("fact", "id"),
    [
        ("trainer 2.2", "check.unknown_fact"),
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

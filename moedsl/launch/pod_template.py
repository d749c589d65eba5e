"""Make what a TrainJob says of its pods: where they run, what they mount, and what their container may do.

NeMo-Run has arguments for most of it, but writes them as `podTemplateOverrides`, a field that only Kubeflow Trainer 2.1
has. Releases from 2.2 on have `runtimePatches` (kubeflow-trainer-api 2.1.0, 2.2.1 and 2.3.0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from moedsl.launch.derive import Launch
from moedsl.rules.check.clusters.facts import Cluster

Json = dict[str, Any]
JOB = "node"
"""The name that Kubeflow's runtimes give to the job of the ranks, and to its container."""
JOBSET = "jobset.sigs.k8s.io/jobset-name"
"""The label of all pods of a job."""
MANAGED = {"app.kubernetes.io/managed-by": "moedsl"}
_EFA = "vpc.amazonaws.com/efa"
_KUEUE = "kueue.x-k8s.io/podset-"
_REQUIREMENT = re.compile(r"(?P<key>\S+) (?P<operator>in|notin) \((?P<values>.*)\)")
_TOLERATION = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^:]*))?(?::(?P<effect>.*))?")


def pod_spec(launch: Launch, cluster: Cluster) -> Json:
    """The part of a TrainJob's `spec` for its pods; empty if there is nothing to say."""
    template = {name: part for name, part in _template(launch, cluster).items() if part}
    if not template:
        return {}
    jobs = [{"name": JOB, "template": {"spec": {"template": template}}}]
    patch = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"runtimePatches": [{"manager": MANAGED["app.kubernetes.io/managed-by"], "trainingRuntimeSpec": patch}]}


def resources(launch: Launch, cluster: Cluster) -> dict[str, str]:
    """The resources of a pod besides its GPUs; what the cluster states wins."""
    efa = _pod(launch).get("efa_devices")
    return ({_EFA: efa} if efa else {}) | dict(cluster.resources)


def _pod(launch: Launch) -> dict[str, str]:
    return {s.name: s.text for s in launch.pods}


def _template(launch: Launch, cluster: Cluster) -> Json:
    labels = {**(MANAGED if cluster.colocate else {}), **cluster.labels}
    metadata = {"labels": labels, "annotations": _annotations(launch, cluster)}
    volumes, container = _volumes(launch, cluster), _container(launch, cluster)
    spec = {
        "volumes": [volume for volume, _ in volumes],
        "imagePullSecrets": [{"name": name} for name in cluster.image_pull_secrets],
        "tolerations": [toleration(text) for text in cluster.tolerations],
        "affinity": _affinity(cluster),
        "containers": [{"name": JOB, **container}] if container else [],
        "nodeSelector": dict(cluster.node_selector),
        "serviceAccountName": cluster.service_account,
    }
    parts = {"metadata": metadata, "spec": spec}
    return {part: {name: value for name, value in fields.items() if value} for part, fields in parts.items()}


def _annotations(launch: Launch, cluster: Cluster) -> dict[str, str]:
    """The annotations of pods: the cluster's, and those that Kueue and GKE read."""
    levels = {
        "required-topology": cluster.required_topology,
        "preferred-topology": cluster.preferred_topology,
        "slice-required-topology": cluster.slice_topology if launch.segment else "",
        "slice-size": str(launch.segment) if cluster.slice_topology and launch.segment else "",
    }
    kueue = {f"{_KUEUE}{name}": level for name, level in levels.items() if level}
    return {**kueue, **_networks(cluster.interfaces), **cluster.annotations}


def _networks(interfaces: Mapping[str, str]) -> dict[str, str]:
    """The annotations of a pod's networks on GKE: its own network at eth0 first, then those of `interfaces`."""
    if not interfaces:
        return {}
    networks = [
        {"interfaceName": name, "network": network}
        for name, network in ({"eth0": "default"} | dict(interfaces)).items()
    ]
    said = json.dumps(networks, separators=(",", ":"))
    return {"networking.gke.io/default-interface": "eth0", "networking.gke.io/interfaces": said}


def toleration(text: str) -> Json:
    """A toleration as the API server has it, from a taint as kubectl writes it."""
    found = _TOLERATION.fullmatch(text)
    assert found is not None  # the checker has read it
    given = {name: part for name, part in found.groupdict().items() if part is not None}
    return {"operator": "Equal" if "value" in given else "Exists", **given}


def _affinity(cluster: Cluster) -> Json:
    """The nodes of a pod by their labels, and by the nodes of the job's other pods."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = [{"matchExpressions": [requirement(text) for text in cluster.affinity]}]
    nodes = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}} if cluster.affinity else {}
    same_job = {"labelSelector": {"matchLabels": MANAGED}, "matchLabelKeys": [JOBSET]}
    pods = {"podAffinity": {required: [{**same_job, "topologyKey": cluster.colocate}]}} if cluster.colocate else {}
    return {**nodes, **pods}


def requirement(text: str) -> Json:
    """A requirement as the API server has it, from one as kubectl writes it."""
    found = _REQUIREMENT.fullmatch(text)
    if found is None:
        return {"key": text.removeprefix("!"), "operator": "DoesNotExist" if text.startswith("!") else "Exists"}
    operator = {"in": "In", "notin": "NotIn"}[found["operator"]]
    return {"key": found["key"], "operator": operator, "values": re.split(", ?", found["values"])}


def _container(launch: Launch, cluster: Cluster) -> Json:
    """The settings of the ranks' container."""
    mounts = [mount for _, mount in _volumes(launch, cluster)]
    privileged = _pod(launch).get("privileged") == "1"
    parts = {"volumeMounts": mounts, "securityContext": {"privileged": True} if privileged else {}}
    return {name: part for name, part in parts.items() if part}


def _volumes(launch: Launch, cluster: Cluster) -> list[tuple[Json, Json]]:
    """Each volume with its mount: folders of the node, the shared claim, devices, and memory for /dev/shm, which data
    loaders and NCCL use.
    """
    pairs = [_host(f"mount-{i}", mount) for i, mount in enumerate(cluster.mounts)]
    if mounts := _pod(launch).get("mounts"):  # the folders of the node that a rule mounts
        pairs += [_host(f"fabric-{i}", mount) for i, mount in enumerate(mounts.split(","))]
    if cluster.pvc:
        volume = {"name": "shared", "persistentVolumeClaim": {"claimName": cluster.pvc}}
        pairs.append((volume, {"name": "shared", "mountPath": cluster.pvc_path}))
    if folder := _pod(launch).get("device_folder"):
        pairs.append(({"name": "devices", "hostPath": {"path": folder}}, {"name": "devices", "mountPath": folder}))
    if cluster.shm or _pod(launch).get("shm") == "1":
        limit = {"sizeLimit": cluster.shm} if cluster.shm else {}
        volume = {"name": "shm", "emptyDir": {"medium": "Memory", **limit}}
        pairs.append((volume, {"name": "shm", "mountPath": "/dev/shm"}))
    first = {pair[1]["mountPath"]: pair for pair in reversed(pairs)}  # the cluster's own mounts win
    return [pair for pair in pairs if first[pair[1]["mountPath"]] is pair]


def _host(name: str, mount: str) -> tuple[Json, Json]:
    """A volume and its mount for ``/on/the/node:/in/the/container``, with ``:ro`` if it is only read."""
    source, target, *options = mount.split(":")
    read_only = {"readOnly": True} if "ro" in ",".join(options).split(",") else {}
    return {"name": name, "hostPath": {"path": source}}, {"name": name, "mountPath": target, **read_only}

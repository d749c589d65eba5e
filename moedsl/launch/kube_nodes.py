"""Read which nodes of a Kubernetes cluster its scheduler gives to a job's pods: by labels, taints and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moedsl.launch.nodes import Node, type_words
from moedsl.launch.pod_template import requirement, toleration
from moedsl.rules.check.clusters.facts import Cluster

_GPU = "nvidia.com/gpu"
_OWN = "node.kubernetes.io/"
"""The start of taints by which Kubernetes itself says that a node is not ready."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def of_kubernetes(items: Iterable[Any], cluster: Cluster) -> list[Node]:
    """The nodes of the kubernetes package whose labels fit the cluster's facts.

    A taint of the GPUs' own name is tolerated: admission adds that toleration (ExtendedResourceToleration). With a
    queue, so are all: a flavor of Kueue may add tolerations.
    """
    tolerated = [toleration(text) for text in cluster.tolerations]
    out: list[Node] = []
    for item in items:
        labels = item.metadata.labels or {}
        if not _fits(labels, cluster):
            continue
        taints = [t for t in item.spec.taints or () if t.effect in _KEEPS_AWAY]
        own = [t for t in taints if t.key.startswith(_OWN)]
        foreign = [t for t in taints if t not in own and t.key != _GPU and not cluster.queue]
        kept_out = next((t for t in foreign if not any(_tolerates(one, t) for one in tolerated)), None)
        gpus = (item.status.allocatable or {}).get(_GPU)
        types = frozenset(type_words(labels.get(f"{_GPU}.product", "")))
        up = not item.spec.unschedulable and not own
        out.append(Node(item.metadata.name, int(gpus or 0), types, up, _text(kept_out)))
    return out


def _fits(labels: Mapping[str, str], cluster: Cluster) -> bool:
    selected = all(labels.get(k) == v for k, v in cluster.node_selector.items())
    return selected and all(_satisfies(labels, requirement(text)) for text in cluster.affinity)


def _satisfies(labels: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    value, operator = labels.get(wanted["key"]), wanted["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    return (value in wanted["values"]) == (operator == "In")


def _tolerates(one: Mapping[str, str], taint: Any) -> bool:
    fits = one["operator"] == "Exists" or one["value"] == (taint.value or "")
    return one["key"] == taint.key and fits and one.get("effect", taint.effect) == taint.effect


def _text(taint: Any) -> str:
    """A taint as kubectl writes it."""
    if taint is None:
        return ""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"

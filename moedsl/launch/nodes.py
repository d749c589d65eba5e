"""Read which nodes Slurm or Kubernetes would give to a job, and judge whether they are enough and of the right kind."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.launch.derive import Launch
from moedsl.launch.kubeflow import requirement, toleration
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error, warning

SINFO = "sinfo --noheader --Node --format='%P|%N|%G|%t|%f'"
"""Partition (the default one with a star), node, generic resources, state and features."""
_GPU = re.compile(r"\bgpu(?::([^:,()]+))?:(\d+)")
_TYPE = re.compile(r"(?:gb|gh|vr|[abhlv])\d{2,3}s?")
"""A word that names a GPU: h100 of nvidia_h100_80gb_hbm3."""
_AWAY = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "futr")
"""The starts of sinfo's short states in which a node accepts no job."""
HELP = "--no-preflight submits without asking"


@frozen
class Node:
    """One node, with what a launch reads of it."""

    name: str
    gpus: int | None
    """None if the scheduler does not report it."""
    types: frozenset[str]
    """Words that name its GPUs; may be empty."""
    up: bool
    taint: str = ""
    """What keeps the job's pods away, as kubectl writes it."""


def of_sinfo(text: str, partition: str) -> list[Node]:
    """The nodes of a partition, or of several separated by commas; for "", of the default one."""
    wanted = set(partition.split(",")) if partition else None
    rows = (line.split("|", 4) for line in text.splitlines() if line.count("|") >= 4)
    found: dict[str, Node] = {}
    for name, node, gres, state, features in rows:
        if name.endswith("*") if wanted is None else name.rstrip("*") in wanted:
            found[node] = _node(node, gres, state, features)
    return list(found.values())


def _node(name: str, gres: str, state: str, features: str) -> Node:
    found = [(kind or "", int(count)) for kind, count in _GPU.findall(gres)]
    types = {w for kind, _ in found for w in type_words(kind)} or set(type_words(features))
    gpus = sum(count for _, count in found) if found else None
    return Node(name, gpus, frozenset(types), not state.lower().startswith(_AWAY))


def type_words(text: str) -> list[str]:
    """The words of a text that name a GPU, in lower case."""
    return [w for w in re.split(r"[^a-z0-9]+", text.lower()) if _TYPE.fullmatch(w)]


def judge(nodes: Sequence[Node], launch: Launch, hardware: str, place: str) -> list[Diagnostic]:
    """Report why nodes do not fit a launch; `place` names them in messages. A scheduler says a100 of an a100_80gb."""
    if not nodes:
        return [error("preflight.nodes", f"{place} has no nodes", help=HELP)]
    right = [n for n in nodes if not n.types or {hardware, *type_words(hardware)} & n.types]
    if not right:
        types = ", ".join(sorted({t for n in nodes for t in n.types}))
        text = f"the plan is for {hardware}; the GPUs of {place} are {types}"
        return [error("preflight.gpu_type", text, help="name another partition or cluster, or plan for its GPUs")]
    large = [n for n in right if n.gpus is None or n.gpus >= launch.gpus_per_node]
    fit = [n for n in large if not n.taint]
    if len(fit) < launch.allocated <= len(large):
        return [_kept_away(large, len(fit), launch, place)]
    if len(fit) < launch.allocated:
        return [_too_few(right, fit, launch, place)]
    up = sum(n.up for n in fit)
    if up < launch.allocated:
        text = f"the job would wait for nodes: it needs {launch.allocated}, and {up} of {len(fit)} in {place} are up"
        return [
            warning(
                "preflight.nodes_down", text, help="ask the operators of the cluster when the other nodes come back"
            )
        ]
    return []


def _kept_away(large: Sequence[Node], fit: int, launch: Launch, place: str) -> Diagnostic:
    taints = sorted({n.taint for n in large if n.taint})
    text = f"the job needs {launch.allocated} nodes, and {place} has {fit} whose taints it tolerates, of {len(large)}"
    listed = ", ".join(f'"{taint}"' for taint in taints)
    return error("preflight.nodes", text, help=(f"write `tolerations [{listed}]` into the cluster", HELP))


def _too_few(right: Sequence[Node], fit: Sequence[Node], launch: Launch, place: str) -> Diagnostic:
    most = max((n.gpus for n in right if n.gpus is not None), default=0)
    text = f"the job needs {launch.allocated} nodes with {launch.gpus_per_node} GPUs, and {place} has {len(fit)}"
    more = f"; its nodes have {most}" if not fit else ""
    values = {"nodes": len(right), "gpus_per_node": most}
    return error(
        "preflight.nodes", text + more, help=("plan with fewer GPUs, or name another partition", HELP), values=values
    )


def without(cluster: Cluster, bad: Sequence[str]) -> Cluster:
    """The cluster whose jobs leave some nodes out, in addition to those that it leaves out."""
    excluded = [n for n in (cluster.sbatch.get("exclude", ""), *bad) if n]
    return evolve(cluster, sbatch={**cluster.sbatch, "exclude": ",".join(excluded)})


def place(cluster: Cluster) -> str:
    """Name the nodes of a cluster in messages."""
    if cluster.executor == "kubeflow":
        chosen = ", ".join([*(f"{k}={v}" for k, v in cluster.node_selector.items()), *cluster.affinity])
        return f"cluster {cluster.name}" + (f" with {chosen}" if chosen else "")
    return f"partition {cluster.partition}" if cluster.partition else f"the default partition of {cluster.name}"


_RESOURCE = "nvidia.com/gpu"
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
        foreign = [t for t in taints if t not in own and t.key != _RESOURCE and not cluster.queue]
        kept_out = next((t for t in foreign if not any(_tolerates(one, t) for one in tolerated)), None)
        gpus = (item.status.allocatable or {}).get(_RESOURCE)
        types = frozenset(type_words(labels.get(f"{_RESOURCE}.product", "")))
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

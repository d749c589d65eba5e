"""Check before a submission what would otherwise fail hours later.

This checks the recipe with Bridge, the nodes, the paths, and whether the Hugging Face hub gives the job its model.
in_job/head_check.py checks the rest inside the job.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from subprocess import PIPE
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from attrs import evolve, frozen

from moedsl.launch import executors, kubeflow, nemo, script
from moedsl.launch.derive import Launch, node_path, unmounted_paths
from moedsl.launch.in_job.head_check import MARKS
from moedsl.launch.script import Job, word
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.library import Library
from moedsl.support import children
from moedsl.support.diagnostics import Diagnostic, error, note, warning
from moedsl.support.source import Source

SKIPPED = note("preflight.skipped")
Progress = Callable[[str], object]


def before(
    jobs: Sequence[Job], cluster: Cluster, source: Source, library: Library, progress: Progress
) -> list[Diagnostic]:
    """Run every check that this machine can do; errors prevent the submission, and notes name skipped checks."""
    found = bridge([j.plan for j in jobs], source, library, progress)
    imported = {p for j in jobs for p in script.imported_folders(j.plan)}
    paths = list(dict.fromkeys(p for j in jobs for p in script.input_paths(j.plan) if p not in imported))
    checkpoints = {p for j in jobs for p in script.input_checkpoints(j.plan)}
    written = list(dict.fromkeys(p for j in jobs for p in _saved(j.plan)))
    if cluster.executor == "local":
        said = _local(paths_command(paths, cluster, written, checkpoints))
        return found + path_errors(said, paths, cluster, written)
    found += unmounted([j.plan for j in jobs], cluster)
    progress(f"asking cluster {cluster.name} for its nodes")
    if cluster.executor == "kubeflow":
        return found + kubernetes(jobs, cluster)
    return found + slurm(jobs, cluster, paths, written, checkpoints)


def unmounted(plans: Sequence[Plan], cluster: Cluster) -> list[Diagnostic]:
    """Report paths that the runs use but their container cannot see."""
    paths = (p for plan in plans for p in (*script.input_paths(plan), *script.imported_folders(plan), *_saved(plan)))
    return unmounted_paths([*dict.fromkeys(paths)], cluster)


def absent(folders: Sequence[str], cluster: Cluster) -> list[str]:
    """Return the folders that do not exist on the cluster; all of them if the cluster cannot be asked."""
    command = paths_command(folders, cluster)
    if cluster.executor == "local":
        said = _local(command)
    elif cluster.executor == "kubeflow" or isinstance(tunnel := _tunnel(cluster), Diagnostic):
        return [*folders]
    else:
        with nemo.no_input():
            said = tunnel.run(command, hide=True, warn=True).stdout
    return [folders[number] for what, number in _answers(said) if what == "missing"]


def _saved(plan: Plan) -> list[str]:
    """Return the absolute folder where the run saves checkpoints; an empty list if it saves in the job's folder."""
    folder = plan.set.get("checkpoint.save")
    return [folder] if isinstance(folder, str) and folder.startswith("/") else []


def _local(command: str) -> str:
    return children.run(["bash", "-c", command], stdout=PIPE, stderr=PIPE).stdout


def bridge(plans: Sequence[Plan], source: Source, library: Library, progress: Progress) -> list[Diagnostic]:
    """Check each recipe with the real Megatron Bridge, as `moedsl verify` does; a note if Bridge is not installed."""
    from moedsl.bridge.verify import client
    from moedsl.emit.artifact import files_of
    from moedsl.support.files import write_all

    if not client.is_installed():
        return [note("preflight.no_bridge", help=client.INSTALL)]
    progress("asking the real Megatron Bridge about the recipe (about ten seconds)")
    with tempfile.TemporaryDirectory(prefix="moedsl-") as temporary:
        folders = [Path(temporary) / plan.name for plan in plans]
        for plan, folder in zip(plans, folders, strict=True):
            write_all(folder, files_of(plan, source, library))
        reports = client.verify([str(folder) for folder in folders], 2)
    found: list[Diagnostic] = []
    for plan, report in zip(plans, reports, strict=True):
        if not report.ok:
            said = [r.message for r in report.refusals]
            said += [f"{m.field} is {m.resolved}, planned {m.planned}" for m in report.mismatches]
            cites = tuple(f"bridge {r.where}" for r in report.refusals)
            found.append(error("preflight.bridge", run=plan.name, why="; ".join(said) or report.message, cites=cites))
    return found


def slurm(
    jobs: Sequence[Job],
    cluster: Cluster,
    paths: Sequence[str],
    written: Sequence[str] = (),
    checkpoints: Container[str] = (),
) -> list[Diagnostic]:
    """Check the partition's nodes, and paths on the login node, with two commands through the cluster's tunnel."""
    tunnel = _tunnel(cluster)
    if isinstance(tunnel, Diagnostic):
        return [tunnel]
    with nemo.no_input():
        said = tunnel.run(SINFO, hide=True, warn=True)
        there = tunnel.run(paths_command(paths, cluster, written, checkpoints), hide=True, warn=True).stdout
    if not said.ok:
        words = "; ".join(said.stderr.strip().splitlines()) or f"exit code {said.exited}"
        return [error("preflight.nodes:cluster", cluster=cluster.name, words=words, help=HELP)]
    found = _judge_for_each(of_sinfo(said.stdout, cluster.partition), jobs, cluster)
    return found + path_errors(there, paths, cluster, written)


def _tunnel(cluster: Cluster) -> Any:
    """Return an open tunnel to the login node, or a diagnostic that explains the failure."""
    made = executors.tunnel(cluster, executors.home(cluster))
    try:
        nemo.connect(made)
    except (Exception, SystemExit) as problem:  # SystemExit is how NeMo-Run's SSH tunnel gives up
        said = {"host": cluster.host or "this machine", "cluster": cluster.name, "why_not": nemo.why_not(problem)}
        return error("preflight.tunnel:connection", help=nemo.try_it(cluster.user, cluster.host), **said)
    return made


def kubernetes(jobs: Sequence[Job], cluster: Cluster) -> list[Diagnostic]:
    """Check that the cluster serves the TrainJob resource and has nodes that fit the jobs.

    If this account may not list nodes, a note says so.
    """
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    wrong = kubeflow.context_refusal(cluster)
    if wrong is not None:
        return [wrong]
    try:
        config.load_kube_config(context=cluster.context or None)
        try:
            kinds: Any = client.CustomObjectsApi().get_api_resources(kubeflow.GROUP, kubeflow.VERSION)
        except ApiException as answer:
            if answer.status != 404:
                raise
            kinds = None
        if kinds is None or all(kind.name != kubeflow.PLURAL for kind in kinds.resources):
            of = f"{kubeflow.GROUP}/{kubeflow.VERSION}"
            return [error("preflight.no_kind", cluster=cluster.name, plural=kubeflow.PLURAL, of=of)]
        found = _lacking_keys(cluster)
        listed: Any = client.CoreV1Api().list_node()
    except ApiException as answer:
        return [note("preflight.unasked", cluster=cluster.name, reason=answer.reason)]
    except (config.ConfigException, HTTPError) as problem:
        return [error("preflight.tunnel:api", cluster=cluster.name, problem=problem)]
    return found + _judge_for_each(of_kubernetes(listed.items, cluster), jobs, cluster)


def _lacking_keys(cluster: Cluster) -> list[Diagnostic]:
    """Report secrets that the cluster's Secret lacks: a pod that refers to one never starts. The values are dropped."""
    from kubernetes import client
    from kubernetes.client.exceptions import ApiException

    if not cluster.secrets:
        return []
    said = {"secret": cluster.secret, "namespace": cluster.namespace}
    try:
        held: Any = client.CoreV1Api().read_namespaced_secret(cluster.secret, cluster.namespace)
        keys = frozenset(held.data or ())
    except ApiException as answer:
        if answer.status != 404:
            return [note("preflight.unasked_secret", reason=answer.reason, **said)]
        keys = frozenset[str]()
    missing = [n for n in cluster.secrets if n not in keys]
    literals = " ".join(f'--from-literal={n}="${n}"' for n in missing)
    return [error("preflight.secret", missing=", ".join(missing), literals=literals, **said)] if missing else []


def _judge_for_each(nodes: Sequence[Node], jobs: Sequence[Job], cluster: Cluster) -> list[Diagnostic]:
    """Check the nodes for each job of an experiment, and report a message that several jobs cause only once."""
    if cluster.executor == "kubeflow":
        chosen = ", ".join([*(f"{k}={v}" for k, v in cluster.node_selector.items()), *cluster.affinity])
        place = f"cluster {cluster.name}" + (f" with {chosen}" if chosen else "")
    else:
        place = f"partition {cluster.partition}" if cluster.partition else f"the default partition of {cluster.name}"
    found = [d for j in jobs for d in judge_nodes(nodes, j.launch, j.plan.hardware, place)]
    first = {d.message: d for d in reversed(found)}
    return [d for d in found if first[d.message] is d]


ENDPOINT = "https://huggingface.co"
TOKEN = "HF_TOKEN"
SECONDS = 10.0
_HUB_SAYS = {
    "GatedRepo": "is gated",
    "RepoNotFound": "does not exist, or is private",
    "RevisionNotFound": "has no such revision",
    "EntryNotFound": "has no config.json",
}
"""The meaning of the hub's X-Error-Code (huggingface_hub/utils/_http.py:841)."""


def hub_refusals(model: str, revision: str | None, cluster: Cluster) -> list[Diagnostic]:
    """Report why the hub does not give a job the model's configuration, which the hub gates like the weights."""
    if cluster.offline:
        return []
    endpoint = os.environ.get("HF_ENDPOINT") or ENDPOINT
    inherits = cluster.executor == "local" or TOKEN in cluster.secrets
    token = os.environ.get(TOKEN) if inherits else None
    address = f"{endpoint.rstrip('/')}/{quote(model)}/resolve/{quote(revision or 'main')}/config.json"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(address, method="HEAD", headers=headers), timeout=SECONDS):
            return []
    except HTTPError as answer:
        if answer.code < 500:
            why = _HUB_SAYS.get(answer.headers.get("X-Error-Code", ""), f"is not given: {answer.code} {answer.reason}")
            ask = f"write `secrets [{TOKEN}]` into the cluster, and export {TOKEN}"
            if inherits:
                ask = f"export {TOKEN}=... with a token of an account that may read it"
            if token:
                ask = f"accept its terms on the page of the model with the account of {TOKEN}"
            return [error("preflight.gated", model=model, why=why, help=f"{ask}, or name another model")]
        problem: Exception = answer
    except (OSError, HTTPException, ValueError) as refused:
        problem = refused
    return [note("preflight.hub", model=model, problem=problem)]


def paths_command(
    paths: Sequence[str], cluster: Cluster, written: Sequence[str] = (), checkpoints: Container[str] = ()
) -> str:
    """Return bash that prints ``missing N``, ``unfinished N`` or ``unwritable N`` for each wrong path, with its index.

    A path exists if it does itself, or if an indexed dataset's .idx or .bin file does. A path in `checkpoints` must be
    a complete checkpoint. For a folder in `written`, the nearest existing parent must be a writable folder.
    """

    tests: list[str] = []
    for number, path in enumerate(paths):
        if (there := node_path(path, cluster)) is not None:
            exists = " || ".join(f"test -e {word(there + end)}" for end in ("", ".idx", ".bin"))
            tests.append(f"{exists} || echo missing {number}")
    for number, path in enumerate(paths):
        if path in checkpoints and (there := node_path(path, cluster)) is not None:
            whole = " || ".join(f"test -e {word(f'{there}/{mark}')}" for mark in MARKS)
            tests.append(f"! test -e {word(there)} || {whole} || echo unfinished {number}")
    for number, path in enumerate(written):
        if (there := node_path(path, cluster)) is not None:
            nearest = f'd={word(there)}; while ! test -e "$d"; do d="$(dirname "$d")"; done'
            tests.append(f'{nearest}; {{ test -d "$d" && test -w "$d"; }} || echo unwritable {number}')
    return "; ".join(tests) or "true"


def _answers(output: str) -> list[tuple[str, int]]:
    """Parse the output of `paths_command`: pairs of a problem and the path's index."""
    found = re.findall(r"^(missing|unfinished|unwritable) (\d+)$", output, re.MULTILINE)
    return [(what, int(number)) for what, number in found]


def path_errors(output: str, paths: Sequence[str], cluster: Cluster, written: Sequence[str] = ()) -> list[Diagnostic]:
    """Turn the output of `paths_command` into errors."""
    found: list[Diagnostic] = []
    for what, number in _answers(output):
        if what == "missing":
            there = node_path(paths[number], cluster)
            where = "" if there == paths[number] else f" (it is {there} outside the container)"
            found.append(error("preflight.path:missing", path=paths[number], cluster=cluster.name, where=where))
        elif what == "unfinished":
            found.append(error("preflight.checkpoint", path=paths[number], cluster=cluster.name))
        else:
            found.append(error("preflight.path:writable", path=written[number], cluster=cluster.name))
    return found


SINFO = "sinfo --noheader --Node --format='%P|%N|%G|%t|%f'"
"""Print partition (the default one with a star), node, generic resources, state and features."""
_GPU = re.compile(r"\bgpu(?::([^:,()]+))?:(\d+)")
_TYPE = re.compile(r"(?:gb|gh|vr|[abhlv])\d{2,3}s?")
"""A word that names a GPU, such as h100 in nvidia_h100_80gb_hbm3."""
_AWAY = ("down", "drain", "drng", "fail", "maint", "unk", "inval", "futr")
"""Prefixes of sinfo's short names for states in which a node accepts no job."""
HELP = "--no-preflight submits without asking"


@frozen
class Node:
    """A node as its scheduler reports it."""

    name: str
    gpus: int | None
    """Number of GPUs; None if the scheduler does not report it."""
    types: frozenset[str]
    """Words that name the node's GPUs, such as h100; may be empty."""
    up: bool
    taint: str = ""
    """The taint that keeps the job's pods away, in kubectl's notation; empty if there is none."""


def of_sinfo(text: str, partition: str) -> list[Node]:
    """Parse the nodes of a partition, or of several separated by commas; "" means the default partition."""
    wanted = set(partition.split(",")) if partition else None
    rows = (line.split("|", 4) for line in text.splitlines() if line.count("|") >= 4)
    found: dict[str, Node] = {}
    for name, node, gres, state, features in rows:
        if name.endswith("*") if wanted is None else name.rstrip("*") in wanted:
            gpus = [(kind or "", int(count)) for kind, count in _GPU.findall(gres)]
            types = {w for kind, _ in gpus for w in type_words(kind)} or set(type_words(features))
            up = not state.lower().startswith(_AWAY)
            found[node] = Node(node, sum(count for _, count in gpus) if gpus else None, frozenset(types), up)
    return list(found.values())


def type_words(text: str) -> list[str]:
    """Return the words of a text that name a GPU, in lower case."""
    return [w for w in re.split(r"[^a-z0-9]+", text.lower()) if _TYPE.fullmatch(w)]


def judge_nodes(nodes: Sequence[Node], launch: Launch, hardware: str, place: str) -> list[Diagnostic]:
    """Report why nodes do not fit a launch; `place` names the nodes in messages.

    A scheduler may report the hardware a100_80gb as a100.
    """
    wanted = launch.allocated
    if not nodes:
        return [error("preflight.nodes:nodes", place=place, help=HELP)]
    right = [n for n in nodes if not n.types or {hardware, *type_words(hardware)} & n.types]
    if not right:
        types = ", ".join(sorted({t for n in nodes for t in n.types}))
        return [error("preflight.gpu_type", hardware=hardware, place=place, types=types)]
    large = [n for n in right if n.gpus is None or n.gpus >= launch.gpus_per_node]
    fit = [n for n in large if not n.taint]
    if len(fit) < wanted <= len(large):
        taints = ", ".join(f'"{taint}"' for taint in sorted({n.taint for n in large if n.taint}))
        help = (f"write `tolerations [{taints}]` into the cluster", HELP)
        said = {"allocated": wanted, "place": place, "fit": len(fit), "count": len(large)}
        return [error("preflight.nodes:job", help=help, **said)]
    if len(fit) < wanted:
        most = max((n.gpus for n in right if n.gpus is not None), default=0)
        text = f"the job needs {wanted} nodes with {launch.gpus_per_node} GPUs, and {place} has {len(fit)}"
        text += f"; its nodes have {most}" if not fit else ""
        help = ("plan with fewer GPUs, or name another partition", HELP)
        return [error("preflight.nodes", text, help=help, values={"nodes": len(right), "gpus_per_node": most})]
    up = sum(n.up for n in fit)
    if up < wanted:
        return [warning("preflight.nodes_down", allocated=wanted, up=up, count=len(fit), place=place)]
    return []


def without_nodes(cluster: Cluster, bad: Sequence[str]) -> Cluster:
    """Return the cluster with more nodes excluded from its jobs."""
    excluded = [n for n in (cluster.sbatch.get("exclude", ""), *bad) if n]
    return evolve(cluster, sbatch={**cluster.sbatch, "exclude": ",".join(excluded)})


_RESOURCE = "nvidia.com/gpu"
_OWN = "node.kubernetes.io/"
"""The prefix of taints with which Kubernetes itself marks a node that is not ready."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")


def of_kubernetes(items: Iterable[Any], cluster: Cluster) -> list[Node]:
    """Convert the kubernetes package's nodes whose labels match the cluster's node selector and affinity.

    A taint named like the GPU resource keeps no pods away: admission adds the toleration (ExtendedResourceToleration).
    If the cluster has a queue, no foreign taint does, because a Kueue flavor may add tolerations.
    """
    tolerations = [kubeflow.toleration(text) for text in cluster.tolerations]
    requirements = [kubeflow.requirement(text) for text in cluster.affinity]
    out: list[Node] = []
    for item in items:
        labels = item.metadata.labels or {}
        selected = all(labels.get(k) == v for k, v in cluster.node_selector.items())
        if not selected or not all(_satisfies(labels, wanted) for wanted in requirements):
            continue
        taints = [t for t in item.spec.taints or () if t.effect in _KEEPS_AWAY]
        own = [t for t in taints if t.key.startswith(_OWN)]
        foreign = [t for t in taints if t not in own and t.key != _RESOURCE and not cluster.queue]
        kept_out = next((t for t in foreign if not any(_tolerates(one, t) for one in tolerations)), None)
        taint = f"{'='.join(filter(None, (kept_out.key, kept_out.value)))}:{kept_out.effect}" if kept_out else ""
        gpus = int((item.status.allocatable or {}).get(_RESOURCE) or 0)
        types = frozenset(type_words(labels.get(f"{_RESOURCE}.product", "")))
        up = not item.spec.unschedulable and not own
        out.append(Node(item.metadata.name, gpus, types, up, taint))
    return out


def _satisfies(labels: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    value, operator = labels.get(wanted["key"]), wanted["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    return (value in wanted["values"]) == (operator == "In")


def _tolerates(one: Mapping[str, str], taint: Any) -> bool:
    fits = one["operator"] == "Exists" or one["value"] == (taint.value or "")
    return one["key"] == taint.key and fits and one.get("effect", taint.effect) == taint.effect

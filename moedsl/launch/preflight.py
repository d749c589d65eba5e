"""Check before a submission what would fail hours later: the recipe with Bridge, nodes, paths, and whether the Hugging
Face hub gives the job its model. in_job/head_check.py checks the rest inside the job.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from attrs import evolve, frozen

from moedsl.launch import derive, script
from moedsl.launch.derive import Launch, node_path
from moedsl.launch.in_job.head_check import MARKS
from moedsl.launch.kubeflow import requirement, toleration
from moedsl.launch.nemo import no_input
from moedsl.launch.script import word
from moedsl.planner.plan import Plan
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, error, note, warning
from moedsl.support.source import Source

SKIPPED = note("preflight.skipped")
Progress = Callable[[str], object]


@frozen
class Checked:
    """One job to check before its submission."""

    plan: Plan
    launch: Launch


def before(
    jobs: Sequence[Checked], cluster: Cluster, source: Source, library: Library, progress: Progress
) -> list[Diagnostic]:
    """Run every check that is possible from here; errors stop the run, and notes name skipped checks."""
    found = bridge([j.plan for j in jobs], source, library, progress)
    imported = {p for j in jobs for p in script.imported_folders(j.plan)}
    paths = list(dict.fromkeys(p for j in jobs for p in script.input_paths(j.plan) if p not in imported))
    checkpoints = {p for j in jobs for p in script.input_checkpoints(j.plan)}
    written = list(dict.fromkeys(p for j in jobs for p in saved(j.plan)))
    if cluster.executor == "local":
        said = _local(paths_command(paths, cluster, written, checkpoints))
        return found + path_errors(said, paths, cluster, written)
    found += unmounted([j.plan for j in jobs], cluster)
    progress(f"asking cluster {cluster.name} for its nodes")
    if cluster.executor == "kubeflow":
        return found + kubernetes(jobs, cluster)
    return found + slurm(jobs, cluster, paths, written, checkpoints)


def unmounted(plans: Sequence[Plan], cluster: Cluster) -> list[Diagnostic]:
    """Report paths of runs that their container cannot see."""
    paths = (p for plan in plans for p in (*script.input_paths(plan), *script.imported_folders(plan), *saved(plan)))
    return derive.unmounted_paths([*dict.fromkeys(paths)], cluster)


def absent(folders: Sequence[str], cluster: Cluster) -> list[str]:
    """Return those of some folders that are not on the cluster; all where nobody can be asked."""
    command = paths_command(folders, cluster)
    if cluster.executor == "local":
        said = _local(command)
    elif cluster.executor == "kubeflow" or isinstance(tunnel := _tunnel(cluster), Diagnostic):
        return [*folders]
    else:
        with no_input():
            said = tunnel.run(command, hide=True, warn=True).stdout
    return [folders[int(line.split()[1])] for line in said.splitlines() if line.startswith("missing ")]


def saved(plan: Plan) -> list[str]:
    """The folders where the run keeps checkpoints, if it names any; else it is the job's folder."""
    folder = plan.set.get("checkpoint.save")
    return [folder] if isinstance(folder, str) and folder.startswith("/") else []


def bridge(plans: Sequence[Plan], source: Source, library: Library, progress: Progress) -> list[Diagnostic]:
    """Check each recipe with the real Megatron Bridge, as `moedsl verify` does; a note if it is not installed."""
    from moedsl.bridge.verify import client
    from moedsl.bridge.verify.client import INSTALL, is_installed

    if not is_installed():
        return [note("preflight.no_bridge", help=INSTALL)]
    progress("asking the real Megatron Bridge about the recipe (about ten seconds)")
    with tempfile.TemporaryDirectory(prefix="moedsl-") as temporary:
        folders = [_written(plan, Path(temporary) / plan.name, source, library) for plan in plans]
        reports = client.verify(folders, 2)
    pairs = zip(plans, reports, strict=True)
    return [_refused(plan.name, r) for plan, r in pairs if not r.ok]


def _written(plan: Plan, folder: Path, source: Source, library: Library) -> str:
    from moedsl.emit.artifact import files_of
    from moedsl.support.files import write_all

    write_all(folder, files_of(plan, source, library))
    return str(folder)


def _refused(name: str, report: Any) -> Diagnostic:
    said = [r.message for r in report.refusals] + [
        f"{m.field} is {m.resolved}, planned {m.planned}" for m in report.mismatches
    ]
    cites = tuple(f"bridge {r.where}" for r in report.refusals)
    return error("preflight.bridge", name=name, value="; ".join(said) or report.message, cites=cites)


def slurm(
    jobs: Sequence[Checked],
    cluster: Cluster,
    paths: Sequence[str],
    written: Sequence[str] = (),
    checkpoints: Container[str] = (),
) -> list[Diagnostic]:
    """Check the partition's nodes, and paths on the login node, with two commands through the cluster's tunnel."""
    tunnel = _tunnel(cluster)
    if isinstance(tunnel, Diagnostic):
        return [tunnel]
    with no_input():
        said = tunnel.run(SINFO, hide=True, warn=True)
        there = tunnel.run(paths_command(paths, cluster, written, checkpoints), hide=True, warn=True).stdout
    if not said.ok:
        words = "; ".join(said.stderr.strip().splitlines()) or f"exit code {said.exited}"
        return [error("preflight.nodes:cluster", cluster=cluster.name, words=words, help=HELP)]
    known = of_sinfo(said.stdout, cluster.partition)
    found = [d for j in jobs for d in judge_nodes(known, j.launch, j.plan.hardware, nodes_place(cluster))]
    return _once(found) + path_errors(there, paths, cluster, written)


def _tunnel(cluster: Cluster) -> Any:
    """Open a tunnel to the login node, or report why that fails."""
    from moedsl.launch import executors, nemo, store

    store.nemo_run()
    made = executors.tunnel(cluster, executors.home(cluster))
    try:
        nemo.connect(made)
    except (Exception, SystemExit) as problem:  # SystemExit is how NeMo-Run's SSH tunnel gives up
        why_not = nemo.why_not(problem)
        return error(
            "preflight.tunnel:connection",
            value=cluster.host or "this machine",
            cluster=cluster.name,
            why_not=why_not,
            help=nemo.try_it(cluster.user, cluster.host),
        )
    return made


def kubernetes(jobs: Sequence[Checked], cluster: Cluster) -> list[Diagnostic]:
    """Check that the cluster has the kind of the jobs, and its nodes, if this account may list them."""
    from kubernetes import client, config
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    from moedsl.launch import kubeflow

    wrong = kubeflow.context_refusal(cluster)
    if wrong is not None:
        return [wrong]
    try:
        config.load_kube_config(context=cluster.context or None)
        if not _serves(kubeflow.GROUP, kubeflow.VERSION, kubeflow.PLURAL):
            of = f"{kubeflow.GROUP}/{kubeflow.VERSION}"
            return [error("preflight.no_kind", cluster=cluster.name, plural=kubeflow.PLURAL, of=of)]
        listed: Any = client.CoreV1Api().list_node()
    except ApiException as answer:
        return [note("preflight.unasked", cluster=cluster.name, reason=answer.reason)]
    except (config.ConfigException, HTTPError) as problem:
        return [error("preflight.tunnel:api", cluster=cluster.name, problem=problem)]
    known = of_kubernetes(listed.items, cluster)
    return _once([d for j in jobs for d in judge_nodes(known, j.launch, j.plan.hardware, nodes_place(cluster))])


def _serves(group: str, version: str, plural: str) -> bool:
    """Whether the API server has a kind of object, as its definitions say."""
    from kubernetes import client
    from kubernetes.client.exceptions import ApiException

    try:
        listed: Any = client.CustomObjectsApi().get_api_resources(group, version)
    except ApiException as answer:
        if answer.status == 404:
            return False
        raise
    return any(resource.name == plural for resource in listed.resources)


def _once(found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Drop duplicates, which several jobs of one experiment cause."""
    return [d for i, d in enumerate(found) if d.message not in {e.message for e in found[:i]}]


def _local(command: str) -> str:
    import subprocess

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=dict(os.environ))
    return done.stdout


ENDPOINT = "https://huggingface.co"
TOKEN = "HF_TOKEN"
SECONDS = 10.0
_WHY = {
    "GatedRepo": "is gated",
    "RepoNotFound": "does not exist, or is private",
    "RevisionNotFound": "has no such revision",
    "EntryNotFound": "has no config.json",
}
"""What the hub's X-Error-Code means (huggingface_hub/utils/_http.py:841)."""


def hub_refusals(model: str, revision: str | None, cluster: Cluster) -> list[Diagnostic]:
    """Report why the hub does not give a job the configuration of a model, which it guards as it does the weights."""
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
            return [_kept_by_hub(model, answer, inherits, bool(token))]
        problem: Exception = answer
    except (OSError, HTTPException, ValueError) as refused:
        problem = refused
    return [note("preflight.hub", model=model, problem=problem)]


def _kept_by_hub(model: str, answer: HTTPError, inherits: bool, has_token: bool) -> Diagnostic:
    why = _WHY.get(answer.headers.get("X-Error-Code", ""), f"is not given: {answer.code} {answer.reason}")
    if has_token:
        help = f"accept its terms on the page of the model with the account of {TOKEN}, or name another model"
    elif inherits:
        help = f"export {TOKEN}=... with a token of an account that may read it, or name another model"
    else:
        help = f"write `secrets [{TOKEN}]` into the cluster, and export {TOKEN}, or name another model"
    return error("preflight.gated", model=model, why=why, help=help)


def paths_command(
    paths: Sequence[str], cluster: Cluster, written: Sequence[str] = (), checkpoints: Container[str] = ()
) -> str:
    """Write bash that prints the number of each missing path; for an indexed dataset, of its files.

    A path in `checkpoints` must be a whole one. For a folder in `written`, the nearest existing parent must be a
    writable folder.
    """
    read = [_read(number, there) for number, there in _node_paths(paths, cluster)]
    read += [_whole(number, there) for number, there in _node_paths(paths, cluster) if paths[number] in checkpoints]
    write = [_write(number, there) for number, there in _node_paths(written, cluster)]
    return "; ".join([*read, *write]) or "true"


def _node_paths(paths: Sequence[str], cluster: Cluster) -> Iterator[tuple[int, str]]:
    """The number and the path on the node of each path that the node has."""
    for number, path in enumerate(paths):
        there = node_path(path, cluster)
        if there is not None:
            yield number, there


def _read(number: int, there: str) -> str:
    said = " || ".join(f"test -e {word(there + end)}" for end in ("", ".idx", ".bin"))
    return f"{said} || echo missing {number}"


def _whole(number: int, there: str) -> str:
    said = " || ".join(f"test -e {word(f'{there}/{mark}')}" for mark in MARKS)
    return f"! test -e {word(there)} || {said} || echo unfinished {number}"


def _write(number: int, there: str) -> str:
    nearest = f'd={word(there)}; while ! test -e "$d"; do d="$(dirname "$d")"; done'
    return f'{nearest}; {{ test -d "$d" && test -w "$d"; }} || echo unwritable {number}'


def path_errors(output: str, paths: Sequence[str], cluster: Cluster, written: Sequence[str] = ()) -> list[Diagnostic]:
    """Turn the output of `command` into errors."""
    of = {"missing": (_missing_path, paths), "unfinished": (_unfinished, paths), "unwritable": (_unwritable, written)}
    said = [line.split() for line in output.splitlines() if line.split(" ")[0] in of]
    return [of[what][0](of[what][1][int(n)], cluster) for what, n in said]


def _unfinished(path: str, cluster: Cluster) -> Diagnostic:
    return error("preflight.checkpoint", path=path, cluster=cluster.name)


def _unwritable(path: str, cluster: Cluster) -> Diagnostic:
    return error("preflight.path:writable", path=path, cluster=cluster.name)


def _missing_path(path: str, cluster: Cluster) -> Diagnostic:
    there = node_path(path, cluster)
    where = "" if there == path else f" (it is {there} outside the container)"
    return error("preflight.path:missing", path=path, cluster=cluster.name, where=where)


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


def judge_nodes(nodes: Sequence[Node], launch: Launch, hardware: str, place: str) -> list[Diagnostic]:
    """Report why nodes do not fit a launch; `place` names them in messages. A scheduler says a100 of an a100_80gb."""
    if not nodes:
        return [error("preflight.nodes:nodes", place=place, help=HELP)]
    right = [n for n in nodes if not n.types or {hardware, *type_words(hardware)} & n.types]
    if not right:
        types = ", ".join(sorted({t for n in nodes for t in n.types}))
        return [error("preflight.gpu_type", hardware=hardware, place=place, types=types)]
    large = [n for n in right if n.gpus is None or n.gpus >= launch.gpus_per_node]
    fit = [n for n in large if not n.taint]
    if len(fit) < launch.allocated <= len(large):
        return [_kept_away(large, len(fit), launch, place)]
    if len(fit) < launch.allocated:
        return [_too_few(right, fit, launch, place)]
    up = sum(n.up for n in fit)
    if up < launch.allocated:
        return [warning("preflight.nodes_down", allocated=launch.allocated, up=up, count=len(fit), place=place)]
    return []


def _kept_away(large: Sequence[Node], fit: int, launch: Launch, place: str) -> Diagnostic:
    taints = sorted({n.taint for n in large if n.taint})
    listed = ", ".join(f'"{taint}"' for taint in taints)
    return error(
        "preflight.nodes:job",
        allocated=launch.allocated,
        place=place,
        fit=fit,
        count=len(large),
        help=(f"write `tolerations [{listed}]` into the cluster", HELP),
    )


def _too_few(right: Sequence[Node], fit: Sequence[Node], launch: Launch, place: str) -> Diagnostic:
    most = max((n.gpus for n in right if n.gpus is not None), default=0)
    text = f"the job needs {launch.allocated} nodes with {launch.gpus_per_node} GPUs, and {place} has {len(fit)}"
    more = f"; its nodes have {most}" if not fit else ""
    values = {"nodes": len(right), "gpus_per_node": most}
    return error(
        "preflight.nodes", text + more, help=("plan with fewer GPUs, or name another partition", HELP), values=values
    )


def without_nodes(cluster: Cluster, bad: Sequence[str]) -> Cluster:
    """The cluster whose jobs leave some nodes out, in addition to those that it leaves out."""
    excluded = [n for n in (cluster.sbatch.get("exclude", ""), *bad) if n]
    return evolve(cluster, sbatch={**cluster.sbatch, "exclude": ",".join(excluded)})


def nodes_place(cluster: Cluster) -> str:
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
        out.append(Node(item.metadata.name, int(gpus or 0), types, up, _taint_text(kept_out)))
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


def _taint_text(taint: Any) -> str:
    """A taint as kubectl writes it."""
    if taint is None:
        return ""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"

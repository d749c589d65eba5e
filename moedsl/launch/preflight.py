"""Check before a submission what would fail hours later: the recipe with Bridge, nodes, paths, and whether the Hugging
Face hub gives the job its model. in_job/head_check.py checks the rest inside the job.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Container, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from attrs import frozen

from moedsl.launch import head, mounts, nodes, weights
from moedsl.launch.derive import Launch
from moedsl.launch.nemo import no_input
from moedsl.planner.model.plan import Plan
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.rules.library import Library
from moedsl.support.diagnostics import Diagnostic, error, note
from moedsl.support.source import Source

SKIPPED = note("preflight.skipped", "preflight skipped: recipe, paths and the cluster's GPUs are not checked")
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
    imported = {p for j in jobs for p in weights.folders(j.plan)}
    paths = list(dict.fromkeys(p for j in jobs for p in head.paths(j.plan) if p not in imported))
    checkpoints = {p for j in jobs for p in head.checkpoints(j.plan)}
    written = list(dict.fromkeys(p for j in jobs for p in saved(j.plan)))
    if cluster.executor == "local":
        said = _local(mounts.command(paths, cluster, written, checkpoints))
        return found + mounts.missing(said, paths, cluster, written)
    found += unmounted([j.plan for j in jobs], cluster)
    progress(f"asking cluster {cluster.name} for its nodes")
    if cluster.executor == "kubeflow":
        return found + kubernetes(jobs, cluster)
    return found + slurm(jobs, cluster, paths, written, checkpoints)


def unmounted(plans: Sequence[Plan], cluster: Cluster) -> list[Diagnostic]:
    """Report paths of runs that their container cannot see."""
    paths = (p for plan in plans for p in (*head.paths(plan), *weights.folders(plan), *saved(plan)))
    return mounts.unmounted([*dict.fromkeys(paths)], cluster)


def absent(folders: Sequence[str], cluster: Cluster) -> list[str]:
    """Return those of some folders that are not on the cluster; all where nobody can be asked."""
    command = mounts.command(folders, cluster)
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
    from moedsl.bridge.verify import client as oracle
    from moedsl.bridge.verify.client import INSTALL, is_installed

    if not is_installed():
        text = "Megatron Bridge is not installed here, so it has not checked the recipe"
        return [note("preflight.no_bridge", text, help=INSTALL)]
    progress("asking the real Megatron Bridge about the recipe (about ten seconds)")
    with tempfile.TemporaryDirectory(prefix="moedsl-") as temporary:
        folders = [_written(plan, Path(temporary) / plan.name, source, library) for plan in plans]
        reports = oracle.verify(folders, 2)
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
    text = f"Megatron Bridge refuses the recipe of {name}: {'; '.join(said) or report.message}"
    return error("preflight.bridge", text, cites=cites, help="`moedsl verify` of the run file gives details")


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
        said = tunnel.run(nodes.SINFO, hide=True, warn=True)
        there = tunnel.run(mounts.command(paths, cluster, written, checkpoints), hide=True, warn=True).stdout
    if not said.ok:
        words = "; ".join(said.stderr.strip().splitlines()) or f"exit code {said.exited}"
        text = f"the nodes of cluster {cluster.name} are not known: sinfo says {words}"
        return [error("preflight.nodes", text, help=nodes.HELP)]
    known = nodes.of_sinfo(said.stdout, cluster.partition)
    found = [d for j in jobs for d in nodes.judge(known, j.launch, j.plan.hardware, nodes.place(cluster))]
    return _once(found) + mounts.missing(there, paths, cluster, written)


def _tunnel(cluster: Cluster) -> Any:
    """Open a tunnel to the login node, or report why that fails."""
    from moedsl.launch import connections, executors, store

    store.nemo_run()
    made = executors.tunnel(cluster, executors.home(cluster))
    try:
        connections.connect(made)
    except (Exception, SystemExit) as problem:  # SystemExit is how NeMo-Run's SSH tunnel gives up
        why_not = connections.why_not(problem)
        text = f"no connection to {cluster.host or 'this machine'} of cluster {cluster.name}: {why_not}"
        return error("preflight.tunnel", text, help=connections.try_it(cluster.user, cluster.host))
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
            text = f"cluster {cluster.name} has no {kubeflow.PLURAL} of {of}, so it would take no job"
            help = "install Kubeflow Trainer there; `kubectl get crd` lists what the cluster has"
            return [error("preflight.no_kind", text, help=help)]
        listed: Any = client.CoreV1Api().list_node()
    except ApiException as answer:
        text = f"the nodes of cluster {cluster.name} cannot be listed: the API server answers {answer.reason}"
        return [note("preflight.unasked", text, help="the job checks its GPUs itself in its first seconds")]
    except (config.ConfigException, HTTPError) as problem:
        text = f"the API server of cluster {cluster.name} cannot be reached: {problem}"
        return [error("preflight.tunnel", text, help="try `kubectl get nodes`")]
    known = nodes.of_kubernetes(listed.items, cluster)
    return _once([d for j in jobs for d in nodes.judge(known, j.launch, j.plan.hardware, nodes.place(cluster))])


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
    text = f"the Hugging Face hub did not answer whether the job may read {model}: {problem}"
    return [note("preflight.hub", text, help="the job that imports the weights asks it")]


def _kept_by_hub(model: str, answer: HTTPError, inherits: bool, has_token: bool) -> Diagnostic:
    why = _WHY.get(answer.headers.get("X-Error-Code", ""), f"is not given: {answer.code} {answer.reason}")
    text = f"{model} on Hugging Face {why}"
    if has_token:
        help = f"accept its terms on the page of the model with the account of {TOKEN}, or name another model"
    elif inherits:
        help = f"export {TOKEN}=... with a token of an account that may read it, or name another model"
    else:
        help = f"write `secrets [{TOKEN}]` into the cluster, and export {TOKEN}, or name another model"
    return error("preflight.gated", text, help=help)

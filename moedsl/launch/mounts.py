"""Map paths of a job to paths on the node, through the mounts of its container."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from pathlib import PurePosixPath

from moedsl.launch.in_job.head_check import MARKS
from moedsl.launch.quote import word
from moedsl.planner.model.plan import Plan
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error


def outside(path: str, cluster: Cluster) -> str | None:
    """The path on the node of a job's path; None if no mount has it."""
    if not cluster.container:
        return path
    for mount in sorted(cluster.mounts, key=lambda m: -len(m.split(":")[1])):
        source, target = mount.split(":")[:2]
        if PurePosixPath(path).is_relative_to(target):
            return str(PurePosixPath(source) / PurePosixPath(path).relative_to(target))
    return None


def unmounted(paths: Sequence[str], cluster: Cluster) -> list[Diagnostic]:
    """Report paths that the container cannot see; paths on a shared claim are inside it."""
    return [_unmounted(p, cluster) for p in paths if outside(p, cluster) is None and not in_claim(p, cluster)]


def in_claim(path: str, cluster: Cluster) -> bool:
    """Whether a path lies on the persistent volume of a Kubernetes cluster."""
    return bool(cluster.pvc) and PurePosixPath(path).is_relative_to(cluster.pvc_path)


def _unmounted(path: str, cluster: Cluster) -> Diagnostic:
    targets = [*(m.split(":")[1] for m in cluster.mounts), *([cluster.pvc_path] if cluster.pvc else [])]
    text = f"{path} is in no mount of cluster {cluster.name}; its container mounts {', '.join(targets) or 'nothing'}"
    return error("preflight.path", text, help=_way_in(path, cluster))


def _way_in(path: str, cluster: Cluster) -> str:
    """Write how the container sees a folder."""
    if cluster.pvc:
        there = PurePosixPath(cluster.pvc_path, path.lstrip("/"))
        return f"name a folder of the claim {cluster.pvc}, which is mounted at {cluster.pvc_path}: {there}"
    if not path.startswith("/"):
        return f"a job runs in another folder: write the absolute path of {path}"
    if cluster.executor != "kubeflow":
        return f'add it to the cluster: mounts ["{path}:{path}"]'
    top = "/" + path.lstrip("/").partition("/")[0]
    return (
        f'add the claim that has it to the cluster: pvc "CLAIM"; pvc_path "{top}". '
        f'If all nodes share that folder: mounts ["{top}:{top}"]'
    )


def unkept(plan: Plan, cluster: Cluster) -> list[Diagnostic]:
    """Refuse checkpoints in a pod's own file system."""
    folder = plan.set.get("checkpoint.save", None if plan.policy.data == "mock" else "")
    if cluster.executor != "kubeflow" or not isinstance(folder, str) or folder.startswith("/") or "://" in folder:
        return []
    said = f"checkpoint.save is {folder}" if folder else "checkpoint.save is not set"
    text = f"{said}: pods would save into their own file systems, which no other pod sees and which go with the pod"
    help = (_way_in("/checkpoints", cluster), "write it as `set checkpoint.save`; `none` there saves nothing")
    return [error("launch.checkpoints", text, help=help)]


def command(
    paths: Sequence[str], cluster: Cluster, written: Sequence[str] = (), checkpoints: Container[str] = ()
) -> str:
    """Write bash that prints the number of each missing path; for an indexed dataset, of its files.

    A path in `checkpoints` must be a whole one. For a folder in `written`, the nearest existing parent must be a
    writable folder.
    """
    read = [_read(number, there) for number, there in _outside(paths, cluster)]
    read += [_whole(number, there) for number, there in _outside(paths, cluster) if paths[number] in checkpoints]
    write = [_write(number, there) for number, there in _outside(written, cluster)]
    return "; ".join([*read, *write]) or "true"


def _outside(paths: Sequence[str], cluster: Cluster) -> Iterator[tuple[int, str]]:
    """The number and the path on the node of each path that the node has."""
    for number, path in enumerate(paths):
        there = outside(path, cluster)
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


def missing(output: str, paths: Sequence[str], cluster: Cluster, written: Sequence[str] = ()) -> list[Diagnostic]:
    """Turn the output of `command` into errors."""
    of = {"missing": (_missing, paths), "unfinished": (_unfinished, paths), "unwritable": (_unwritable, written)}
    said = [line.split() for line in output.splitlines() if line.split(" ")[0] in of]
    return [of[what][0](of[what][1][int(n)], cluster) for what, n in said]


def _unfinished(path: str, cluster: Cluster) -> Diagnostic:
    text = f"{path} on cluster {cluster.name} is no whole checkpoint"
    help = "an import or a save that did not finish leaves such a folder: remove it, or name another one"
    return error("preflight.checkpoint", text, help=help)


def _unwritable(path: str, cluster: Cluster) -> Diagnostic:
    text = f"{path} is not writable on cluster {cluster.name}, so no checkpoint can be saved"
    help = "name another folder in `checkpoint.save`; use --no-preflight if only the compute nodes see it"
    return error("preflight.path", text, help=help)


def _missing(path: str, cluster: Cluster) -> Diagnostic:
    there = outside(path, cluster)
    where = "" if there == path else f" (it is {there} outside the container)"
    help = "correct the path; use --no-preflight if only the compute nodes see it"
    return error("preflight.path", f"{path} does not exist on cluster {cluster.name}{where}", help=help)

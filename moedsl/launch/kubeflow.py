"""Make NeMo-Run's executor for Kubernetes, its task and the TrainJob from a launch and a cluster.

The script is the container's command, so a job needs no volume. On the way, two programs expand text after a dollar
sign: NeMo-Run fills its macros into every argument (nemo_run core/execution/base.py:70, Python's `string.Template`),
and the kubelet expands ``$(NAME)`` and ``$$`` in a container's command (Kubernetes' reference of `Container.command`).
The script is escaped for both, so that it arrives unchanged.

Pods (`pod_spec`): NeMo-Run has arguments for most settings, but writes them as `podTemplateOverrides`, a field that
only Kubeflow Trainer 2.1 has. Releases from 2.2 on have `runtimePatches` (kubeflow-trainer-api 2.1.0, 2.2.1 and 2.3.0).

NeMo-Run's list of jobs (`keep`, `found`, `enlist`) stays complete even if a launcher is killed. NeMo-Run draws a random
name when it posts a job (nemo_run 0.11.1 core/execution/kubeflow.py:304), and writes it down afterwards. Here the name
is drawn and written first, so that another process can ask the API server for the job. The list is one file in a home,
which each launch reads and rewrites (run/torchx_backend/schedulers/kubeflow.py:230). Launches therefore lock it, and a
missing job is added again, because NeMo-Run queries only listed jobs. A query builds only the executor of its own job.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from moedsl.launch import nemo
from moedsl.launch.derive import Launch
from moedsl.launch.script import Payload, script
from moedsl.rules.check.cluster_facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error

if TYPE_CHECKING:
    import nemo_run

DIGITS = "000000"
"""Placeholder for the six digits that NeMo-Run appends to a job's name (core/execution/kubeflow.py:321)."""
GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
LIMIT = 128 << 10
"""The most bytes of one argument of a process on Linux (MAX_ARG_STRLEN)."""
Json = dict[str, Any]


def arguments(launch: Launch, cluster: Cluster) -> Json:
    """Return the executor's arguments by name, as plain values; secrets are references to a Secret of the cluster."""
    kueue = {QUEUE: cluster.queue, PRIORITY: cluster.priority}
    secrets = {name: {"secretKeyRef": {"name": cluster.secret, "key": name}} for name in launch.secrets}
    efa = _pod(launch).get("efa_devices")
    resources = ({_EFA: efa} if efa else {}) | dict(cluster.resources)  # in addition to GPUs
    return {
        "runtime_ref": cluster.runtime,
        "namespace": cluster.namespace,
        "image": cluster.container,
        "num_nodes": launch.nodes,
        "gpus_per_node": launch.gpus_per_node,
        "nprocs_per_node": launch.ranks_per_node,
        "train_job_basename": launch.name,
        "labels": {**cluster.labels, **{name: word for name, word in kueue.items() if word}},
        "env_list": [{"name": name, "valueFrom": value} for name, value in secrets.items()],
        "extra_resource_requests": resources,
        "extra_resource_limits": dict(resources),
        "spec_kwargs": pod_spec(launch, cluster),
    }


def command(launch: Launch, cluster: Cluster, payload: Payload) -> list[str]:
    """Make the container's command, escaped for the kubelet."""
    return ["/bin/bash", "-c", for_kubelet(script(launch, cluster, payload))]


def for_kubelet(text: str) -> str:
    """Escape a text for the kubelet: double each dollar sign before ``(`` or another dollar sign."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def for_template(text: str) -> str:
    """Escape a text for `string.Template.safe_substitute`."""
    return text.replace("$", "$$")


def refusal(launch: Launch, cluster: Cluster, payload: Payload) -> Diagnostic | None:
    """Report a script that is too long to be one argument of a Linux command."""
    size = len(command(launch, cluster, payload)[2])
    return error("launch.too_long", size=size, limit=LIMIT) if size >= LIMIT else None


def manifest(launch: Launch, cluster: Cluster, payload: Payload) -> Json:
    """Make the job that NeMo-Run posts, except for the six digits of its name; this needs no kubeconfig."""
    with offline():
        made = nemo.nemo_run().KubeflowExecutor(**arguments(launch, cluster))
    name = made._trainjob_name(launch.name)[: -len(DIGITS)] + DIGITS  # pyright: ignore[reportPrivateUsage]
    return made.get_job_body(name, command(launch, cluster, payload))


@contextmanager
def offline() -> Generator[None]:
    """Keep NeMo-Run's executor from reading a kubeconfig, which a manifest does not need."""
    with patch.object(nemo.nemo_run().KubeflowExecutor, "_load_kube_clients", lambda self: None):
        yield


def text(body: Json) -> str:
    """Format a manifest as YAML for `kubectl create -f`, with the script as a multi-line block."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes multi-line strings as blocks."""

    def of_text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, of_text)
    return yaml.dump(body, Dumper=Dumper, sort_keys=False, width=2**31, allow_unicode=False)


def context_refusal(cluster: Cluster) -> Diagnostic | None:
    """Report a job that would go to another cluster or to none.

    NeMo-Run always uses the kubeconfig's current context, or in a pod without a kubeconfig, the pod's own cluster.
    """
    from kubernetes import config

    if not cluster.context and "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    try:
        _, current = config.list_kube_config_contexts()
    except config.ConfigException as problem:
        return unread(f"cluster {cluster.name}", problem)
    if cluster.context in ("", current["name"]):
        return None
    has = f"the current context of the kubeconfig is {current['name']}"
    return error("launch.kube_context:cluster", cluster=cluster.name, context=cluster.context, has=has)


def unread(whose: str, problem: Exception) -> Diagnostic:
    """Report that the kubeconfig of a cluster or an experiment cannot be read."""
    return error("launch.kube_context:kubeconfig", whose=whose, reason=str(problem).splitlines()[0])


def job_name(handle: str) -> str:
    """Return the job's name from NeMo-Run's handle, ``kubeflow://nemo_run/EXPERIMENT___TASK___NAME``."""
    return handle.rpartition("___")[2]


DELETED = "CANCELLED", "it was deleted from the cluster"


def lost(executor: nemo_run.KubeflowExecutor, handle: str) -> tuple[str, str] | None:
    """Return the state of a job that the API server does not show, with the reason; None if the server shows the job.

    NeMo-Run reports such a job as PENDING, whether it was deleted or the server does not answer.
    """
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    place = {"group": GROUP, "version": VERSION, "plural": PLURAL, "namespace": executor.namespace}
    try:
        api = executor._custom_objects_api  # pyright: ignore[reportPrivateUsage]
        api.get_namespaced_custom_object(**place, name=job_name(handle))
    except ApiException as answer:
        return DELETED if answer.status == 404 else ("UNKNOWN", str(answer.reason))
    except HTTPError:
        return "UNKNOWN", "the API server does not answer"
    return None


JOB = "node"
"""The name of the job that runs the ranks, and of its container, in Kubeflow's runtimes."""
JOBSET = "jobset.sigs.k8s.io/jobset-name"
"""The label of all pods of a job; its value is the job's name."""
MANAGED = {"app.kubernetes.io/managed-by": "moedsl"}
_EFA = "vpc.amazonaws.com/efa"
_KUEUE = "kueue.x-k8s.io/podset-"
_REQUIREMENT = re.compile(r"(?P<key>\S+) (?P<operator>in|notin) \((?P<values>.*)\)")
_TOLERATION = re.compile(r"(?P<key>[^=:]+)(?:=(?P<value>[^:]*))?(?::(?P<effect>.*))?")


def pod_spec(launch: Launch, cluster: Cluster) -> Json:
    """Return the part of a TrainJob's `spec` that configures its pods; empty if they need no configuration."""
    annotations = {
        f"{_KUEUE}required-topology": cluster.required_topology,
        f"{_KUEUE}preferred-topology": cluster.preferred_topology,
        f"{_KUEUE}slice-required-topology": cluster.slice_topology if launch.segment else "",
        f"{_KUEUE}slice-size": str(launch.segment) if cluster.slice_topology and launch.segment else "",
    }
    if cluster.interfaces:  # GKE reads a pod's networks: its own network at eth0 first
        networks = {"eth0": "default"} | dict(cluster.interfaces)
        each = [{"interfaceName": name, "network": network} for name, network in networks.items()]
        annotations["networking.gke.io/default-interface"] = "eth0"
        annotations["networking.gke.io/interfaces"] = json.dumps(each, separators=(",", ":"))
    volumes = _volumes(launch, cluster)
    container = {
        "volumeMounts": [mount for _, mount in volumes],
        "securityContext": {"privileged": True} if _pod(launch).get("privileged") == "1" else {},
    }
    required, affinity = "requiredDuringSchedulingIgnoredDuringExecution", Json()
    if cluster.affinity:  # matches labels of nodes
        terms = [{"matchExpressions": [requirement(text) for text in cluster.affinity]}]
        affinity["nodeAffinity"] = {required: {"nodeSelectorTerms": terms}}
    if cluster.colocate:  # same topology domain as the job's other pods
        same_job = {"labelSelector": {"matchLabels": MANAGED}, "matchLabelKeys": [JOBSET]}
        affinity["podAffinity"] = {required: [{**same_job, "topologyKey": cluster.colocate}]}
    metadata = {
        "labels": {**(MANAGED if cluster.colocate else {}), **cluster.labels},
        "annotations": {**_filled(annotations), **cluster.annotations},
    }
    spec = {
        "volumes": [volume for volume, _ in volumes],
        "imagePullSecrets": [{"name": name} for name in cluster.image_pull_secrets],
        "tolerations": [toleration(text) for text in cluster.tolerations],
        "affinity": affinity,
        "containers": [{"name": JOB, **_filled(container)}] if _filled(container) else [],
        "nodeSelector": dict(cluster.node_selector),
        "serviceAccountName": cluster.service_account,
    }
    template = _filled({"metadata": _filled(metadata), "spec": _filled(spec)})
    if not template:
        return {}
    jobs = [{"name": JOB, "template": {"spec": {"template": template}}}]
    patch = {"template": {"spec": {"replicatedJobs": jobs}}}
    return {"runtimePatches": [{"manager": MANAGED["app.kubernetes.io/managed-by"], "trainingRuntimeSpec": patch}]}


def _filled(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value}


def _pod(launch: Launch) -> dict[str, str]:
    return {s.name: s.text for s in launch.pods}


def toleration(text: str) -> Json:
    """Convert a taint in kubectl's notation into a toleration for the API server."""
    found = _TOLERATION.fullmatch(text)
    assert found is not None  # the checker has read it
    given = {name: part for name, part in found.groupdict().items() if part is not None}
    return {"operator": "Equal" if "value" in given else "Exists", **given}


def requirement(text: str) -> Json:
    """Convert a label requirement in kubectl's notation into one for the API server."""
    found = _REQUIREMENT.fullmatch(text)
    if found is None:
        return {"key": text.removeprefix("!"), "operator": "DoesNotExist" if text.startswith("!") else "Exists"}
    operator = {"in": "In", "notin": "NotIn"}[found["operator"]]
    return {"key": found["key"], "operator": operator, "values": re.split(", ?", found["values"])}


def _volumes(launch: Launch, cluster: Cluster) -> list[tuple[Json, Json]]:
    """Return each volume with its mount.

    These are folders of the node, the shared volume claim, devices, and memory for /dev/shm, which data loaders and
    NCCL use. For the same mount path, the cluster's own mount wins.
    """
    pod, pairs = _pod(launch), list[tuple[Json, Json]]()

    def add(name: str, path: str, source: Json, **options: bool) -> None:
        pairs.append(({"name": name, **source}, {"name": name, "mountPath": path, **options}))

    of_rules = pod["mounts"].split(",") if pod.get("mounts") else []
    folders = {f"mount-{i}": mount for i, mount in enumerate(cluster.mounts)}
    folders |= {f"fabric-{i}": mount for i, mount in enumerate(of_rules)}
    for name, mount in folders.items():  # /on/the/node:/in/the/container, with :ro if it is only read
        source, target, *options = mount.split(":")
        read_only = {"readOnly": True} if "ro" in ",".join(options).split(",") else {}
        add(name, target, {"hostPath": {"path": source}}, **read_only)
    if cluster.pvc:
        add("shared", cluster.pvc_path, {"persistentVolumeClaim": {"claimName": cluster.pvc}})
    if folder := pod.get("device_folder"):
        add("devices", folder, {"hostPath": {"path": folder}})
    if cluster.shm or pod.get("shm") == "1":
        limit = {"sizeLimit": cluster.shm} if cluster.shm else {}
        add("shm", "/dev/shm", {"emptyDir": {"medium": "Memory", **limit}})
    first = {mount["mountPath"]: mount for _, mount in reversed(pairs)}
    return [(volume, mount) for volume, mount in pairs if first[mount["mountPath"]] is mount]


LIST, TURN = ".kubeflow_jobs.json", ".kubeflow_jobs.turn"


def keep(jobs: Iterable[Any], file: Path) -> None:
    """Draw a name for each of NeMo-Run's jobs, and write the names to a file by job id."""
    scheduler()
    names = {job.id: job.executor._trainjob_name(job.id) for job in jobs}
    file.write_text(json.dumps(names), encoding="utf-8")


def file_of(home: Path, id: str) -> Path:
    """Return the file that has the names of an experiment's jobs until all are listed.

    It is outside the experiment's folder, which NeMo-Run itself must create.
    """
    return home / "experiments" / id.rpartition("_")[0] / f".{id}.trainjobs.json"


def found(job: Any, id: str, file: Path) -> str:
    """Return NeMo-Run's handle of a job that was posted but not listed, and list it; empty if none was posted."""
    name = json.loads(file.read_text(encoding="utf-8")).get(job.id) if file.exists() else None
    if name is None:
        return ""
    handle = f"kubeflow://nemo_run/{id}___{job.id}___{name}"
    if not _is_listed(handle) and lost(job.executor, handle) == DELETED:
        return ""
    enlist(handle, job.executor)
    return handle


def enlist(handle: str, executor: Any) -> None:
    """Add a job to NeMo-Run's list if it is missing, so that NeMo-Run can query and cancel it."""
    if not _is_listed(handle):
        key, name = handle.rpartition("/")[2], job_name(handle)
        scheduler()._save_job_dir(key, job_status="Unknown", executor=executor, job_name=name)


def _is_listed(handle: str) -> bool:
    return handle.rpartition("/")[2] in scheduler()._get_job_dirs()


@cache
def scheduler() -> Any:
    """Return NeMo-Run's scheduler module, patched so that only one process at a time reads or writes its list."""
    from nemo_run.run.torchx_backend.schedulers import kubeflow as module

    known: Any = module  # NeMo-Run has no public list
    known._save_job_dir = _in_turn(known._save_job_dir)
    known._get_job_dirs = _in_turn(_listed)
    return known


def _in_turn(work: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that only one process of this home runs it at a time."""

    @wraps(work)
    def call(*words: Any, **named: Any) -> Any:
        home = _home()
        home.mkdir(parents=True, exist_ok=True)
        with (home / TURN).open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            return work(*words, **named)

    return call


def _home() -> Path:
    from nemo_run.config import get_nemorun_home

    return Path(get_nemorun_home())


def _listed() -> dict[str, Any]:
    """Read the list of jobs; delete a list that a killed launcher left incomplete, and return no jobs."""
    file = _home() / LIST
    try:
        return _Listed(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
    except json.JSONDecodeError:
        file.unlink()  # each experiment adds its own jobs again
        return {}


class _Listed(dict[str, Any]):
    """The listed jobs, where `get` builds only the executor of the requested job.

    NeMo-Run would build every job's executor, each of which reads the kubeconfig.
    """

    def get(self, key: str, default: Any = None) -> Any:
        job = super().get(key, default)
        if job and isinstance(job.get("executor"), str):
            module = scheduler()
            job["executor"] = module.fdl.build(module.ZlibJSONSerializer().deserialize(job["executor"]))
        return job

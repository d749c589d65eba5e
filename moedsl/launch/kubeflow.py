"""Make NeMo-Run's executor for Kubernetes, its task and the TrainJob from a launch and a cluster.

The script is the container's command, so that a job needs no volume. Two programs on the way replace words that begin
with a dollar: NeMo-Run fills its macros into every argument (nemo_run core/execution/base.py:70, Python's
`string.Template`), and the kubelet expands ``$(NAME)`` and ``$$`` in a container's command (Kubernetes' reference of
`Container.command`). Both are escaped, so that the script arrives unchanged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from moedsl.launch import nemo, pod_template
from moedsl.launch.derive import Launch
from moedsl.launch.script import Payload, script
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error

if TYPE_CHECKING:
    import nemo_run

DIGITS = "000000"
"""Six digits in a manifest, instead of those that NeMo-Run appends to a job's name (core/execution/kubeflow.py:321)."""
GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
LIMIT = 128 << 10
"""The most bytes of one argument of a process on Linux (MAX_ARG_STRLEN)."""
Json = dict[str, Any]


def executor(launch: Launch, cluster: Cluster) -> nemo_run.KubeflowExecutor:
    """Make the executor; it reads the kubeconfig, and raises the errors of the kubernetes package."""
    return nemo.nemo_run().KubeflowExecutor(**arguments(launch, cluster))


def arguments(launch: Launch, cluster: Cluster) -> Json:
    """The executor's arguments by name, as plain values."""
    return {
        "runtime_ref": cluster.runtime,
        "namespace": cluster.namespace,
        "image": cluster.container,
        "num_nodes": launch.nodes,
        "gpus_per_node": launch.gpus_per_node,
        "nprocs_per_node": launch.ranks_per_node,
        "train_job_basename": launch.name,
        "labels": _labels(cluster),
        "env_list": [_secret(name, cluster) for name in launch.secrets],
        "extra_resource_requests": pod_template.resources(launch, cluster),
        "extra_resource_limits": pod_template.resources(launch, cluster),
        "spec_kwargs": pod_template.pod_spec(launch, cluster),
    }


def _labels(cluster: Cluster) -> dict[str, str]:
    """The labels of the job: the cluster's, and those that Kueue reads."""
    kueue = {QUEUE: cluster.queue, PRIORITY: cluster.priority}
    return {**cluster.labels, **{name: word for name, word in kueue.items() if word}}


def _secret(name: str, cluster: Cluster) -> Json:
    """A variable whose value stays in the cluster: a key of its Secret."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": cluster.secret, "key": name}}}


def command(launch: Launch, cluster: Cluster, payload: Payload) -> list[str]:
    """Make the container's command, escaped for the kubelet."""
    return ["/bin/bash", "-c", for_kubelet(script(launch, cluster, payload))]


def for_kubelet(text: str) -> str:
    """Escape a text for the kubelet, with the dollars of ``$(`` and ``$$`` doubled."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def for_template(text: str) -> str:
    """Escape a text for `string.Template.safe_substitute`."""
    return text.replace("$", "$$")


def task(launch: Launch, cluster: Cluster, payload: Payload) -> nemo_run.Script:
    """Make NeMo-Run's task; an inline script would be a file on this machine, which no pod has."""
    import nemo_run

    shell, flag, text = command(launch, cluster, payload)
    return nemo_run.Script(path=flag, args=[for_template(text)], entrypoint=shell)


def refusal(launch: Launch, cluster: Cluster, payload: Payload) -> Diagnostic | None:
    """Refuse a script that is too long for a command of Linux."""
    size = len(command(launch, cluster, payload)[2])
    if size < LIMIT:
        return None
    text = f"the job's script has {size:,} bytes; the limit of one process argument is {LIMIT:,}"
    return error("launch.too_long", text, help="put large files of the run into the image or onto a volume")


def manifest(launch: Launch, cluster: Cluster, payload: Payload) -> Json:
    """Make the job that NeMo-Run posts, except for the six digits of its name. It needs no kubeconfig."""
    with offline():
        made = executor(launch, cluster)
    name = made._trainjob_name(launch.name)[: -len(DIGITS)] + DIGITS  # pyright: ignore[reportPrivateUsage]
    return made.get_job_body(name, command(launch, cluster, payload))


@contextmanager
def offline() -> Generator[None]:
    """Keep NeMo-Run's executor from reading a kubeconfig, which a manifest does not need."""
    KubeflowExecutor = nemo.nemo_run().KubeflowExecutor  # noqa: N806
    with patch.object(KubeflowExecutor, "_load_kube_clients", lambda self: None):
        yield


def text(body: Json) -> str:
    """Write a manifest as YAML for `kubectl create -f`, with its script as lines."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Write texts of several lines as blocks."""

    def of_text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, of_text)
    return yaml.dump(body, Dumper=Dumper, sort_keys=False, width=2**31, allow_unicode=False)


def context_refusal(cluster: Cluster) -> Diagnostic | None:
    """Refuse a job that would go to another cluster or to none.

    NeMo-Run uses the kubeconfig's current context and names none; in a pod without a kubeconfig it uses the pod's
    cluster.
    """
    from kubernetes import config

    if not cluster.context and "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    try:
        _, current = config.list_kube_config_contexts()
    except no_kubeconfig() as problem:
        return unread(f"cluster {cluster.name}", problem)
    if cluster.context in ("", current["name"]):
        return None
    has = f"the current context of the kubeconfig is {current['name']}"
    message = f"cluster {cluster.name} uses context {cluster.context}; {has}"
    return error("launch.kube_context", message, help=f"kubectl config use-context {cluster.context}")


def no_kubeconfig() -> tuple[type[Exception], ...]:
    """The exceptions of a kubeconfig that is missing or cannot be read."""
    from kubernetes.config import ConfigException

    return (ConfigException,)


def unread(whose: str, problem: Exception) -> Diagnostic:
    """Report that the kubeconfig of a cluster or an experiment cannot be read."""
    text = f"the kubeconfig of {whose} cannot be read: {str(problem).splitlines()[0]}"
    return error("launch.kube_context", text, help="set KUBECONFIG to its file, or keep it in ~/.kube/config")


def job_name(handle: str) -> str:
    """The name of the job in NeMo-Run's handle, ``kubeflow://nemo_run/EXPERIMENT___TASK___NAME``."""
    return handle.rpartition("___")[2]


DELETED = "CANCELLED", "it was deleted from the cluster"


def lost(executor: nemo_run.KubeflowExecutor, handle: str) -> tuple[str, str] | None:
    """The state of a job that the API server does not show, with the reason; None if the server shows it.

    NeMo-Run calls such a job PENDING if it was deleted or the server does not answer.
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

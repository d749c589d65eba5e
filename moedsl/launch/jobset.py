"""Run a job on a Kubernetes cluster that has JobSet and no Kubeflow Trainer.

NeMo-Run posts TrainJobs only, from which Kubeflow Trainer makes JobSets. This executor makes the JobSet itself, with
the variables of Kubeflow's torch runtime. `compile --emit launch` copies this file, so it imports only NeMo-Run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nemo_run import Experiment, KubeflowExecutor
from nemo_run.run.torchx_backend.schedulers.api import EXECUTOR_MAPPING

GROUP, VERSION, PLURAL = "jobset.x-k8s.io", "v1alpha2", "jobsets"
JOB, PORT = "node", 29500
"""The name of the only replicated job and of its container, and the port where its ranks meet."""
_PLACE = {"group": GROUP, "version": VERSION, "plural": PLURAL}
_INDEX = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
Json = dict[str, Any]


@dataclass(kw_only=True)
class JobSetExecutor(KubeflowExecutor):
    """NeMo-Run's executor for TrainJobs, which posts JobSets; `spec_kwargs` has the `template` of the pods."""

    @property
    def _custom_objects_api(self) -> Any:
        return _JobSets(super()._custom_objects_api)

    def get_job_body(self, name: str, command: list[str]) -> Json:
        """Make the JobSet: the pod with index 0 has a stable host name, where the ranks of all pods meet."""
        body = super().get_job_body(name, command)
        trainer, template = body["spec"]["trainer"], body["spec"]["template"]
        given = template.get("spec", {})
        container = {
            **next(iter(given.get("containers", [])), {"name": JOB}),
            "image": trainer["image"],
            "command": trainer["command"],
            "env": [*_meeting(name, trainer), *trainer["env"]],
            "resources": trainer["resourcesPerNode"],
        }
        nodes = trainer["numNodes"]
        pods = {**template, "spec": {"restartPolicy": "Never", **given, "containers": [container]}}
        indexed = {"completionMode": "Indexed", "parallelism": nodes, "completions": nodes, "backoffLimit": 0}
        job = {"name": JOB, "replicas": 1, "template": {"spec": {**indexed, "template": pods}}}
        network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": name}
        spec = {"network": network, "failurePolicy": {"maxRestarts": 0}, "replicatedJobs": [job]}
        return {**body, "apiVersion": f"{GROUP}/{VERSION}", "kind": "JobSet", "spec": spec}


def _meeting(name: str, trainer: Json) -> list[Json]:
    """The variables that Kubeflow's torch runtime gives to each pod."""
    values = {
        "PET_NNODES": {"value": str(trainer["numNodes"])},
        "PET_NPROC_PER_NODE": {"value": str(trainer["numProcPerNode"])},
        "PET_NODE_RANK": {"valueFrom": _INDEX},
        "PET_MASTER_ADDR": {"value": f"{name}-{JOB}-0-0.{name}"},
        "PET_MASTER_PORT": {"value": str(PORT)},
    }
    return [{"name": variable, **value} for variable, value in values.items()]


class _JobSets:
    """The API of custom objects, which answers with JobSets where NeMo-Run asks for TrainJobs."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def create_namespaced_custom_object(self, **asked: Any) -> Any:
        return self._api.create_namespaced_custom_object(**asked | _PLACE)

    def delete_namespaced_custom_object(self, **asked: Any) -> Any:
        return self._api.delete_namespaced_custom_object(**asked | _PLACE)

    def get_namespaced_custom_object(self, **asked: Any) -> Json:
        """Ask for a JobSet; Kubeflow Trainer copies its counts of jobs into `jobsStatus` of the TrainJob."""
        found = self._api.get_namespaced_custom_object(**asked | _PLACE)
        status = found.get("status", {})
        return {**found, "status": {**status, "jobsStatus": status.get("replicatedJobsStatus", [])}}


EXECUTOR_MAPPING[JobSetExecutor] = EXECUTOR_MAPPING[KubeflowExecutor]
_known: Any = Experiment  # NeMo-Run has no public list of the executors that run several jobs at once
_known._PARALLEL_SUPPORTED_EXECUTORS = (*_known._PARALLEL_SUPPORTED_EXECUTORS, JobSetExecutor)

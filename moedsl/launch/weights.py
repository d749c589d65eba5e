"""Make the jobs that import weights of Hugging Face before a run, or export what it trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from attrs import evolve

from moedsl.facts.families import family
from moedsl.facts.weights import FIELD, imported
from moedsl.launch import head
from moedsl.launch.derive import Launch
from moedsl.launch.script import Payload
from moedsl.planner.model.plan import Plan
from moedsl.rules.check.clusters.facts import Cluster
from moedsl.support.diagnostics import Diagnostic, error

CONVERT, WANTED = "convert.py", "weights.json"
"""The names of convert.py and of what it reads in a job."""


def placed(plan: Plan, cluster: Cluster) -> Plan:
    """The plan whose imported weights lie in the cluster's folder for them, if it names one."""
    if plan.hub_weights is None or not cluster.weights_dir:
        return plan
    return evolve(plan, set={**plan.set, FIELD: imported(plan.hub_weights, cluster.weights_dir)})


def folders(plan: Plan) -> list[str]:
    """The folder of the weights that are imported before the run, if it has such weights."""
    return [str(plan.set[FIELD])] if plan.hub_weights else []


def refusals(plan: Plan, cluster: Cluster) -> list[Diagnostic]:
    """Report why weights cannot be imported for this plan there."""
    if plan.hub_weights is None:
        return []
    if cluster.executor != "local" and not cluster.weights_dir:
        text = f"cluster {cluster.name} names no folder for the weights of {plan.hub_weights}"
        return [error("launch.weights", text, help='write `weights_dir "/a/shared/folder"` into the cluster')]
    return []


def importing(plan: Plan, launch: Launch) -> tuple[Launch, Payload]:
    """The job that imports the weights of a plan."""
    wanted = {"action": "import", "model": plan.hub_weights, "folder": plan.set[FIELD]}
    return _job(plan, launch, "import", wanted)


def exporting(plan: Plan, launch: Launch, checkpoint: str, folder: str) -> tuple[Launch, Payload]:
    """The job that exports a checkpoint of a plan's run."""
    adapters = plan.task == "peft"
    wanted = {"action": "export", "model": plan.hub_weights or plan.hf, "folder": folder, "checkpoint": checkpoint,
              "adapters": adapters}  # fmt: skip
    return _job(plan, launch, "export", wanted)


def _job(plan: Plan, launch: Launch, action: str, wanted: Mapping[str, Any]) -> tuple[Launch, Payload]:
    """One rank on one node: Bridge converts in the memory of one process."""
    one = evolve(
        launch, name=f"{launch.name}.{action}", nodes=1, gpus_per_node=1, tasks_per_node=1, ranks_per_node=1,
        numa_binding=False, segment=0, spare_nodes=0, ft_launcher=(), settings=(), chain=None,
    )  # fmt: skip
    options: dict[str, Any] = {"revision": plan.revision} if plan.revision and wanted["model"] == plan.hf else {}
    if family(plan.family).remote_code:
        options["trust_remote_code"] = True
    said = {**wanted, "options": options}  # of `from_hf_pretrained`
    sources = {CONVERT: "convert.py", head.PROGRAM: "head_check.py"}
    texts = {
        name: files("moedsl.launch.in_job").joinpath(source).read_text("utf-8") for name, source in sources.items()
    }
    return one, Payload({**texts, WANTED: json.dumps(said, indent=1) + "\n"}, entry=CONVERT)

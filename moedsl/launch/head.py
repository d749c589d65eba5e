"""Add the preflight check to a job: the plan's expectations, and the bash that starts the check."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

from attrs import evolve

from moedsl.launch.derive import Launch
from moedsl.launch.quote import word
from moedsl.launch.script import Payload
from moedsl.planner.model.plan import Plan
from moedsl.rules.check.clusters.facts import Cluster

PROGRAM, EXPECTED = "preflight.py", "preflight.json"
NODES, NODES_EXPECTED = "node_check.py", "node_check.json"
_WEIGHT = re.compile(r"[0-9.eE+-]+")
_BUFFERS = {"deepep": "Buffer", "hybridep": "HybridEPBuffer"}
"""The name that Megatron-Core imports from deep_ep for each backend (core transformer/moe/fused_a2a.py:11, :271)."""


def with_head(payload: Payload, plan: Plan, launch: Launch, cluster: Cluster) -> Payload:
    """Add the check and its expectations to a payload, and the check of the nodes if the cluster has it."""
    made = _with(payload, cluster, PROGRAM, "head_check.py", EXPECTED, expected(plan, launch))
    if not cluster.node_check:
        return made
    return _with(made, cluster, NODES, "node_check.py", NODES_EXPECTED, nodes_expected(plan, launch))


def _with(payload: Payload, cluster: Cluster, name: str, source: str, asks: str, expected: dict[str, Any]) -> Payload:
    more = {name: files("moedsl.launch.in_job").joinpath(source).read_text(encoding="utf-8"),
            asks: json.dumps(expected, indent=1) + "\n"}  # fmt: skip
    python = word(cluster.python) if cluster.python else "python3"
    start = f'{python} "$MOEDSL_FILES/{name}" "$MOEDSL_FILES/{asks}" || exit "$?"\n'
    return evolve(payload, files={**payload.files, **more}, preflight=payload.preflight + start)


def nodes_expected(plan: Plan, launch: Launch) -> dict[str, Any]:
    """The expectations that node_check.py reads; without a folder of checkpoints it writes where the job starts."""
    folder = plan.set.get("checkpoint.save")
    rates = {"network": launch.network, "nvlink": launch.nvlink}
    return {"gpus": launch.gpus_per_node, **rates, "folder": str(folder or ".")}


def expected(plan: Plan, launch: Launch) -> dict[str, Any]:
    """The expectations that head_check.py reads."""
    device = plan.device
    gpu = {"count": launch.ranks_per_node, "name": gpu_word(device.name), "capability": list(device.capability),
           "memory": device.memory}  # fmt: skip
    needs = [{"product": n.product, "at_least": n.at_least, "because": n.because} for n in plan.needs]
    target = plan.target.to_json()
    return {
        "target": target,
        "needs": needs,
        "modules": modules(plan),
        "gpus": gpu,
        "paths": paths(plan),
        "checkpoints": checkpoints(plan),
        "hf": plan.hf,
        "revision": plan.revision,
    }


def gpu_word(name: str) -> str:
    """The word of a device's name that identifies the GPU: H100 of `NVIDIA H100 80GB HBM3`, else the last."""
    words = re.split(r"[^A-Za-z0-9]+", name)
    return next((w for w in words if re.fullmatch(r"[A-Z]+\d+[A-Z]*", w)), words[-1])


def modules(plan: Plan) -> list[dict[str, str]]:
    """List the packages that the plan's dispatcher calls, in addition to Bridge's own."""
    dispatcher = plan.policy.dispatcher
    if dispatcher not in _BUFFERS:
        return []
    return [{"module": "deep_ep", "attribute": _BUFFERS[dispatcher], "because": f"dispatcher={dispatcher}"}]


def paths(plan: Plan) -> list[str]:
    """Data, checkpoints and the folder of an own model that the run reads, as the job sees them.

    A run that loads from the folder where it saves may start without it.
    """
    named = plan.samples is not None and plan.samples.source == "hf"
    data = [] if plan.policy.data == "mock" or named else _corpora(plan) or [plan.policy.data]
    model = [plan.hf] if plan.hf.startswith("/") else []
    return list(dict.fromkeys([*data, *checkpoints(plan), *model]))


def _corpora(plan: Plan) -> list[str]:
    """The prefixes of a mixture without their weights (core datasets/utils.py:49); empty if there is none."""
    stated = plan.set.get("dataset.data_path") or ()
    words = stated.split() if isinstance(stated, str) else map(str, stated)
    return [word for word in words if not _WEIGHT.fullmatch(word)]


def checkpoints(plan: Plan) -> list[str]:
    """List the checkpoints from which the run starts."""
    load, save, pretrained = (plan.set.get(f"checkpoint.{n}") for n in ("load", "save", "pretrained_checkpoint"))
    return [str(p) for p in (load if load != save else None, pretrained) if p]

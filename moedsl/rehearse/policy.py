"""Choose the policies of a rehearsal, and describe what is kept, shrunk, or not rehearsed.

A CPU runs some policies as planned; the others are off, with the reason in a `Note`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.facts.axes import BY_NAME
from moedsl.planner.model.plan import Plan

KEPT, SHRUNK, LEFT_OUT = "kept", "shrunk", "not rehearsed"
KINDS = (KEPT, SHRUNK, LEFT_OUT)


@frozen
class Note:
    """One thing of the plan: `kind` is kept, shrunk or not rehearsed; `here` is its value in the rehearsal."""

    what: str
    kind: str
    plan: Any
    here: Any
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "plan": self.plan, "here": self.here, "because": self.because}


def sized(what: str, plan: Any, here: Any) -> Note:
    """Note a size: kept if it is equal, else shrunk."""
    return Note(what, KEPT if plan == here else SHRUNK, plan, here)


OFF: Mapping[str, str] = {
    "precision": "lower formats are Transformer Engine's kernels, which need a GPU",
    "dispatcher": "the same tokens reach the same experts, by gloo's all-to-all: the kernels of {} need GPUs",
    "cuda_graph": "there are no graphs on a CPU",
    "delay_wgrad": "Transformer Engine's linears delay them",
    "offload": "all memory is host memory",
    "offload_modules": "all memory is host memory",
    "sharding": "Megatron FSDP needs CUDA streams: the distributed optimizer runs in its place",
    "moments": "lower formats need Transformer Engine's fused Adam",
}
"""Policies that a rehearsal turns off, with the reason on a CPU; {} is the plan's value."""
AS_PLANNED = ("recompute", "ep_overlap", "grad_reduce")
ALWAYS: tuple[Note, ...] = (
    Note("kernels", LEFT_OUT, "Transformer Engine, cuDNN, fused kernels", "PyTorch on the CPU", "there is no GPU"),
    Note("core attention", LEFT_OUT, "Transformer Engine's, with its context-parallel ring or all-to-all",
         "softmax(QK)V over keys gathered from the context-parallel group", "Megatron-Core's own has neither"),
    Note("communication", LEFT_OUT, "NCCL, overlapped with the computation", "gloo, one operation after the other",
         "overlapped schedules run as planned, but hide nothing"),
    Note("memory and speed", LEFT_OUT, "as estimated", None, "a small model on a CPU shows neither"),
)  # fmt: skip
"""Parts of every plan that no rehearsal on a CPU has."""
DELTA_NETS = Note(
    "gated delta nets", LEFT_OUT, "fla's convolution, scan and norm of queries and keys",
    "Megatron-Core's own convolution and scan in PyTorch, and moedsl's own norm", "fla's kernels need a GPU",
)  # fmt: skip
SPARSE = Note(
    "sparse attention", LEFT_OUT, "cuDNN's and FlashMLA's kernels", "Megatron-Core's own path in PyTorch",
    "these kernels need a GPU",
)  # fmt: skip
"""Parts of a model that a rehearsal on a CPU does not have."""
ON_GPUS: tuple[Note, ...] = (
    Note("memory and speed", LEFT_OUT, "as estimated", None, "a small model shows neither"),
    Note("between nodes", LEFT_OUT, "the cluster's network", None, "every rank is on this machine"),
)
"""Parts of every plan that no rehearsal on this machine's GPUs has."""
_PLAIN = "a rehearsal on GPUs uses the option that needs no other package"


def pinned(policy: Mapping[str, Any], ep: int) -> dict[str, Any]:
    """The policies of the small run, by axis: as planned, or off if a CPU cannot run them.

    Without expert parallelism, because there are too few ranks, there is nothing to overlap.
    """
    same = {name: policy[name] for name in AS_PLANNED}
    overlap = bool(policy["ep_overlap"] and ep > 1)
    return {**same, "ep_overlap": overlap, **{name: BY_NAME[name].decode(BY_NAME[name].off) for name in OFF}}


def notes(plan: Plan, here: Mapping[str, Any], on_gpus: bool = False) -> list[Note]:
    """Note each policy, the task and the data; then what no rehearsal has. `here` are the policies of the small run."""
    policy = plan.policy.to_json()
    reasons = {**dict.fromkeys(AS_PLANNED, "there is no expert parallelism to overlap"), **OFF}
    out = list[Note]()
    for name, why in reasons.items():
        planned, because = policy[name], _PLAIN if on_gpus else why.format(policy[name])
        same = planned == here[name]
        out.append(Note(name, KEPT, planned, planned) if same else Note(name, LEFT_OUT, planned, here[name], because))
    out.append(Note("routing", KEPT, policy["routing"], policy["routing"]))
    if plan.task != "pretrain":
        out.append(Note("task", LEFT_OUT, plan.task, "pretrain", "fine-tuning starts from weights of the real sizes"))
    if plan.adapter:
        on = f"{plan.adapter.method} of rank {plan.adapter.rank} on {', '.join(plan.adapter.targets)}"
        out.append(Note("adapter", LEFT_OUT, on, "none", "Bridge adds it to weights of a checkpoint"))
    if policy["data"] != "mock":
        out.append(Note("data", LEFT_OUT, policy["data"], "mock", "the data and its tokenizer are on the cluster"))
    return [*out, *(ON_GPUS if on_gpus else ALWAYS)]


def in_place_of(task: str) -> str:
    """What runs in the place of a task, in a sentence; empty for pretraining."""
    what = {"sft": "the weights that it starts from", "peft": "its adapters and the weights that they are added to"}
    without = what.get(task)
    trains = "a rehearsal trains every weight of the small model, from random values"
    return f"{trains}: `task {task}`, with {without}, is not rehearsed" if without else ""

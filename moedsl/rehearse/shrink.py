"""Shrink a plan and its model to a rehearsal: the same shape, small enough for a few processes of one machine.

A CPU runs some policies as planned; the others are off, with the reason in a `Note`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve, field, frozen

from moedsl.facts.axes import BY_NAME
from moedsl.facts.facts import Model
from moedsl.planner.plan import Plan
from moedsl.rehearse import sizes
from moedsl.rehearse.sizes import KEPT, LEFT_OUT, Note, sized

RANKS = 8
"""The most processes by default."""
SEQ = 64
"""Tokens of a sequence for each of the cp x tp ranks that share it."""
NOT_CARRIED = (
    "profiling.", "checkpoint.", "dataset.", "tokenizer.", "train.train_iters", "mixed_precision.",
    "scheduler.", "validation.",
)  # fmt: skip
"""Fields that a run file may set and a rehearsal drops: they name the cluster's files, or do not work on a CPU."""


@frozen
class Rehearsal:
    """A small run. All sizes are its own, not the plan's."""

    name: str
    """The plan's name."""
    model: Model
    hardware: str
    layout: Mapping[str, int]
    """The sizes of tp cp dp pp vpp ep etp edp."""
    pipeline_layout: str | None
    """The pipeline layout as Megatron writes it; None if the plan has none and layers divide evenly."""
    seq: int
    micro_batch: int
    num_microbatches: int
    policy: Mapping[str, Any]
    routing: str
    sets: Mapping[str, Any] = field(factory=dict)
    """Fields that the run file sets and the rehearsal keeps."""
    notes: tuple[Note, ...] = ()

    @property
    def ranks(self) -> int:
        """The number of processes: tp x cp x dp x pp."""
        return self.layout["tp"] * self.layout["cp"] * self.layout["dp"] * self.layout["pp"]

    @property
    def global_batch(self) -> int:
        """Sequences of a step."""
        return self.micro_batch * self.num_microbatches * self.layout["dp"]


def shrink(plan: Plan, model: Model, ranks: int = RANKS, hardware: str = "", on_gpus: bool = False) -> Rehearsal:
    """Return the rehearsal of a plan of `model` on at most `ranks` processes (docs/internals.md); a pure function.

    `hardware` replaces the plan's if that is not in the stdlib. The small model's `hf`, the folder of its config.json,
    is still empty.
    """
    big, batch = plan.layout, plan.batch
    mesh = sizes.smallest(big.to_json(), ranks)
    pp, vpp = mesh["pp"], 2 if big.vpp > 1 and mesh["pp"] > 1 else 1
    if model.hybrid:
        parts = sizes.segments((big.pipeline_layout or model.layer_pattern).split("|"), pp)
        pattern, layout = "".join(parts), "|".join(parts)
        layers = len(pattern)
    else:
        planned = sizes.layout_of(big.pipeline_layout, model, big.pp, big.vpp)
        chunks = sizes.shortened(planned, pp, vpp, int(model.dense_layers > 0 or model.linear))
        chunks = sizes.paired(chunks) if model.linear else sizes.keyed(chunks) if model.indexer_every > 1 else chunks
        layers, pattern, layout = sum(c.layers for c in chunks), "", "|".join(c.text for c in chunks)
    seq = SEQ * mesh["cp"] * mesh["tp"]
    # Microbatches: 1 stays 1, else at most two for each stage, a multiple of pp for an interleaved schedule
    most = min(batch.num_microbatches, 2 * pp)
    made = Rehearsal(
        name=plan.name, model=sizes.narrow(model, f"{model.name}_rehearsal", mesh, layers, seq, pattern),
        hardware=hardware or plan.hardware, layout={**mesh, "vpp": vpp},
        pipeline_layout=layout if big.pipeline_layout and pp > 1 else None, seq=seq,
        micro_batch=min(batch.micro_batch, 2),
        num_microbatches=1 if batch.num_microbatches == 1 else max(pp, most - most % pp),
        policy=pinned(plan.policy.to_json(), mesh["ep"]), routing=plan.policy.routing,
        sets={k: v for k, v in plan.set.items() if not k.startswith(NOT_CARRIED)},
    )  # fmt: skip
    return evolve(made, notes=tuple(_notes(made, plan, model, on_gpus)))


def _notes(r: Rehearsal, plan: Plan, model: Model, on_gpus: bool) -> Iterator[Note]:
    """Note what the rehearsal of a plan keeps, shrinks and leaves out."""
    big, batch = plan.layout, plan.batch
    yield from sizes.axis_notes(big.to_json(), {a: r.layout[a] for a in sizes.AXES})
    if big.vpp > 1 and r.layout["vpp"] == 1:
        yield Note("vpp", LEFT_OUT, big.vpp, 1, "virtual stages need a pipeline")
    else:
        yield sized("vpp", big.vpp, r.layout["vpp"])
    yield sized("pipeline layout", big.pipeline_layout or "even", r.pipeline_layout or "even")
    yield sized("sequence_parallel", big.sequence_parallel, r.layout["tp"] > 1)
    yield from (sized(n, getattr(batch, n), getattr(r, n)) for n in BATCH)
    yield from sizes.fact_notes(model, r.model)
    for k, v in plan.set.items():
        because = "files, lengths and formats of the cluster's run"
        yield Note(f"set {k}", KEPT, v, r.sets[k]) if k in r.sets else Note(f"set {k}", LEFT_OUT, v, None, because)
    if r.hardware != plan.hardware:
        yield Note("hardware", LEFT_OUT, plan.hardware, r.hardware, "its declaration is in the run file")
    if model.linear and not on_gpus:
        yield DELTA_NETS
    if model.sparse and not on_gpus:
        yield SPARSE
    yield from policy_notes(plan, r.policy, on_gpus)


BATCH = ("seq", "micro_batch", "num_microbatches", "global_batch")
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
    """Return the policies of the small run, by axis: as planned, or off if a CPU cannot run them.

    If there are too few ranks for expert parallelism, its overlap is off too.
    """
    same = {name: policy[name] for name in AS_PLANNED}
    overlap = bool(policy["ep_overlap"] and ep > 1)
    return {**same, "ep_overlap": overlap, **{name: BY_NAME[name].decode(BY_NAME[name].off) for name in OFF}}


def policy_notes(plan: Plan, here: Mapping[str, Any], on_gpus: bool = False) -> list[Note]:
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
    """Say what runs instead of a fine-tuning task; empty for pretraining."""
    what = {"sft": "the weights that it starts from", "peft": "its adapters and the weights that they are added to"}
    without = what.get(task)
    trains = "a rehearsal trains every weight of the small model, from random values"
    return f"{trains}: `task {task}`, with {without}, is not rehearsed" if without else ""

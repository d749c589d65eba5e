"""A plan's layout, batch, policy, samples and adapter, and the racks on which its groups are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import Attribute, field, fields, frozen, make_class

from moedsl.cost import adapters, parameters, pipeline
from moedsl.facts import axes
from moedsl.facts.axes import json_value, show
from moedsl.facts.facts import Hardware, Site
from moedsl.facts.fine_tuning import OF_MLP, TARGETS
from moedsl.facts.machines import machines, rows, spans
from moedsl.facts.symbols import VLM_WORDS
from moedsl.planner.estimate import held_by
from moedsl.rules.check.program import Program
from moedsl.rules.stdlib import LetName
from moedsl.support.json_form import JsonForm
from moedsl.support.text import counted, table, wrapped

_TYPES = {"int": "int", "flag": "bool", "enum": "str", "set": "Sequence[str]"}


def _with_axes(*first: str) -> Callable[[type, list[Attribute[Any]]], list[Attribute[Any]]]:
    """Make an attrs hook that puts these axes first among a class's fields, and adds those that the class lacks."""

    def fields_of(cls: type, stated: list[Attribute[Any]]) -> list[Attribute[Any]]:
        more = [n for n in first if n not in cls.__annotations__]
        cls.__annotations__ |= {n: _TYPES[axes.BY_NAME[n].kind] for n in more}
        added = fields(make_class(cls.__name__, {n: field() for n in more})) if more else ()
        by_name = {f.name: f for f in (*stated, *added)}
        return [by_name.pop(n) for n in first] + [*by_name.values()]

    return fields_of


@frozen(field_transformer=_with_axes(*axes.LAYOUT))
class Layout(JsonForm):
    """The parallel layout: sizes of the meshes of attention and experts."""

    tp: int
    """Tensor parallel size."""
    cp: int
    """Context parallel size."""
    dp: int
    """Data parallel size."""
    pp: int
    """Pipeline parallel size."""
    vpp: int
    """Virtual pipeline stages of a rank."""
    ep: int
    """Expert parallel size."""
    etp: int
    """Tensor parallel size of the experts."""
    edp: int
    """Data parallel size of the experts."""
    sequence_parallel: bool
    pipeline_layout: str | None
    """Layers of each stage as Megatron writes them; null if they divide evenly."""


@frozen
class Against4k(JsonForm):
    """The batch compared with the batch of the same run at 4k, with equal tokens a step."""

    seq: int
    dp: int
    num_microbatches: int
    global_batch: int
    accumulation_for_same_batch: int
    """Microbatches needed here for as many sequences as at 4k."""
    batch_for_same_accumulation: int
    """Sequences in a step here with as many microbatches as at 4k."""
    text: str


@frozen(field_transformer=_with_axes("global_batch", *axes.BATCH))
class Batch(JsonForm):
    """The batch of a step."""

    global_batch: int
    """Sequences of a step."""
    micro_batch: int
    """Sequences of a microbatch."""
    num_microbatches: int
    """Microbatches of each replica in a step."""
    seq: int
    """Tokens of a sequence."""
    against_4k: Against4k | None = None


@frozen(field_transformer=_with_axes(*axes.POLICY))
class Policy(JsonForm):
    """How the run computes, communicates and stores its state."""

    precision: str
    dispatcher: str
    recompute: Sequence[str]
    """Modules whose activations are recomputed; full is every layer."""
    offload: str
    offload_modules: Sequence[str]
    cuda_graph: Sequence[str]
    """Modules that run as CUDA graphs."""
    ep_overlap: bool
    delay_wgrad: bool
    sharding: str
    """optimizer: the distributed optimizer; fsdp: Megatron FSDP."""
    moments: str
    """Number format of Adam's moments."""
    grad_reduce: str
    """Number format of the gradient reduction."""
    data: str
    routing: str
    freeze_vision: bool
    freeze_projection: bool
    freeze_language: bool


@frozen
class SamplesPlan(JsonForm):
    """How fine-tuning on text fills its sequences with samples."""

    source: str
    """folder: JSONL on the cluster; hf: a data set of Hugging Face."""
    split: str | None
    subset: str | None
    pack: bool
    """Whether a sequence holds several samples; otherwise one, padded to the full length."""
    multiple: int
    """Each packed sample is padded to a multiple of this many tokens."""
    lengths: Sequence[float]
    """Tokens in a sample for each of equally large groups of samples, as the run states; empty if it does not."""
    per_sequence: float | None
    """Mean number of samples in a sequence; null if `lengths` is empty."""
    span: float | None
    """Mean over tokens of the length of the sample that contains the token; null if `lengths` is empty."""


@frozen
class AdapterPlan(JsonForm):
    """What `task peft` trains instead of all weights."""

    method: str
    """lora, dora or canonical_lora."""
    rank: int
    alpha: int
    dropout: float
    targets: Sequence[str]
    """Megatron's names of the modules that have an adapter."""
    experts: str
    """shared: one adapter for all experts of a layer; each: one for each expert; outer: one for each expert,
    but all share the side at the hidden state; none: routed experts have no adapter."""
    normalized: bool
    """Whether the rank of expert adapters is divided by the experts that a token is routed to."""
    regather: bool
    """Whether an input that TP gathers is gathered again in backward."""
    params: int
    """Parameters of the adapters, each counted once."""
    share: float
    """`params` over all parameters of the model."""


def layout(p: Program, env: Mapping[str, Any]) -> Layout:
    sizes = {n: int(env[n]) for n in axes.LAYOUT}
    stages = p.pipeline_layout or pipeline.layout_string(p.model, sizes["pp"], sizes["vpp"])
    return Layout(**sizes, sequence_parallel=bool(env["sequence_parallel"]), pipeline_layout=stages)


def batch(env: Mapping[str, Any]) -> Batch:
    sizes: dict[str, Any] = {k: int(env[k]) for k in ("global_batch", *axes.BATCH, "seq")}
    return Batch(**sizes)


def policy(p: Program, env: Mapping[str, Any]) -> Policy:
    frozen: dict[str, Any] = {w: w in p.vlm for w in VLM_WORDS}
    return Policy(**{n: json_value(env[n]) for n in axes.POLICY}, data=p.data, routing=p.routing, **frozen)


def samples(p: Program, env: Mapping[str, Any]) -> SamplesPlan | None:
    """Describe how samples fill the sequences; None if the run reads no samples."""
    s, held = p.samples, held_by(p, env)
    if s is None:
        return None
    known = {"per_sequence": held.samples if held else None, "span": held.span if held else None}
    pack, multiple = bool(env["pack"]), int(env[LetName.SAMPLE_MULTIPLE])
    return SamplesPlan(s.source, s.split, s.subset, pack, multiple, [json_value(n) for n in s.lengths], **known)


def adapter(p: Program) -> AdapterPlan | None:
    """Describe the adapters that are trained instead of all weights; None if all weights are trained."""
    a, whole = p.adapter, pipeline.layout_for(p.model, 1, 1)
    if a is None or whole is None:
        return None
    params = adapters.stage(p.model, a, whole, 0, 1, 1, 1).total
    return AdapterPlan(
        a.method, a.rank, a.alpha, a.dropout, [t for t in TARGETS if t in a.targets], a.experts, a.normalized,
        a.regather, params, params / parameters.unique(p.model),
    )  # fmt: skip


def meshes(m: Layout) -> dict[str, str]:
    """Write both meshes, and the layers of each stage if they do not divide evenly."""
    shapes = (a.name for a in axes.AXES if a.role == "shape" and a.section == "layout" and a.is_on(getattr(m, a.name)))
    attention, experts = (" x ".join(f"{n} {getattr(m, n)}" for n in names) for names in (axes.ATTENTION, axes.EXPERTS))
    attention = ", ".join([attention, *(f"{n} {getattr(m, n)}" for n in shapes)])
    layers = {"layers": m.pipeline_layout} if m.pipeline_layout else {}
    return {"attention": attention, "experts": experts, **layers}


def policies(q: Policy) -> list[str]:
    """List the policies with their values; quiet ones only if they are on."""
    known = sorted((a for a in axes.AXES if a.section == "policy"), key=lambda a: (a.quiet, a.place, a.role != "moved"))
    words = [a for a in known if not a.quiet or (a.kind != "flag" and a.is_on(getattr(q, a.name)))]
    flags = [a.name for a in known if a.quiet and a.kind == "flag"]
    on = [n for n in (*VLM_WORDS, *flags) if getattr(q, n)]
    return [*(f"{a.name} {show(getattr(q, a.name))}" for a in words), *on]


_OF_EXPERTS = {
    "shared": "one adapter for all experts of a layer",
    "each": "one adapter for each expert",
    "outer": "one adapter for each expert, whose side at the hidden state all share",
    "none": "none on routed experts",
}


def adapter_text(a: AdapterPlan) -> str:
    """Print what adapters are trained, and their share of the model."""
    rank = f"{a.method} of rank {a.rank}, alpha {a.alpha}" + (f", dropout {a.dropout:g}" if a.dropout else "")
    rest = [", ".join(a.targets), *([_OF_EXPERTS[a.experts]] if not {*a.targets}.isdisjoint(OF_MLP) else [])]
    rest += ["experts have the rank over the experts of a token"] if a.normalized else []
    trained = (
        f"{a.params / 1e6:,.1f}M parameters are trained, {100 * a.share:.2g}% of the model; all weights are frozen"
    )
    return "\n".join(["Adapter", wrapped(f"{rank}: {'; '.join(rest)}"), wrapped(trained)])


@frozen
class AxisOnRacks(JsonForm):
    """The racks and rails that one axis's groups span."""

    axis: str
    size: int
    """Ranks in a group."""
    racks: int
    """Racks that the most spread-out group spans."""
    rails: int | None
    """Rails that the most spread-out group spans; null if the cluster states no rails."""


@frozen
class Racks(JsonForm):
    """The racks of the job, if its nodes are allocated rack by rack."""

    nodes_per_rack: int
    """Nodes below one leaf switch (or one switch for each rail), as the cluster states."""
    nodes_used: int
    """Nodes that the job uses in each rack, so that expert groups stay whole."""
    racks: int
    """Number of racks that the job uses."""
    rails: int | None
    """Network adapters of a node, each with its own switch; null if the cluster states none."""
    expert_groups: int
    """Number of groups of ep x etp ranks, which exchange tokens."""
    expert_groups_inside: int
    """Number of expert groups that stay within a rack."""
    axes: tuple[AxisOnRacks, ...]


def racks(layout: Mapping[str, Any], gpus: int, h: Hardware, site: Site) -> Racks | None:
    """Find the racks of a job; None if the cluster states no racks, or if the job is on one node."""
    node = h.gpus_per_node
    if not site.nodes_per_rack or gpus <= node:
        return None
    on = machines(layout, gpus, node, h.nvlink_domain, site.nodes_per_rack, site.rails)
    experts = spans(rows(layout, "etp", "ep"), on.racks)
    # for each axis, the group that spans the most racks or rails
    groups = {a: rows(layout, a) for a in dict.fromkeys((*axes.ATTENTION, *axes.EXPERTS)) if layout[a] > 1}
    most = {a: [int(spans(g, at).max()) for at in (on.racks, on.on_rails)] for a, g in groups.items()}
    return Racks(
        nodes_per_rack=site.nodes_per_rack,
        nodes_used=min(on.rack, gpus) // node,
        racks=int(on.racks(np.array([gpus - 1]))[0]) + 1,
        rails=site.rails or None,
        expert_groups=len(experts),
        expert_groups_inside=int(np.count_nonzero(experts == 1)),
        axes=tuple(AxisOnRacks(a, layout[a], r, rails if on.rails else None) for a, (r, rails) in most.items()),
    )


def racks_summary(r: Racks) -> str:
    """Write which groups stay in a rack, in one line."""
    outside = r.expert_groups - r.expert_groups_inside
    inside = f"{outside} of {r.expert_groups} expert groups cross racks" if outside else "every expert group is in one"
    crossing = [f"{a.axis} is on {a.racks}" for a in r.axes if a.racks > 1]
    crosses = f"; a group of {', '.join(crossing)}" if crossing else ""
    return f"{r.racks} of {counted(r.nodes_per_rack, 'node')} each: {inside}{crosses}"


def racks_text(r: Racks) -> str:
    """Print the racks of the job, and the racks and rails of each axis."""
    rails = f"; {counted(r.rails, 'rail')} of each node" if r.rails else ""
    rows = [("axis", "ranks", "racks", *(["rails"] if r.rails else []))]
    rows += [(a.axis, str(a.size), str(a.racks), *([str(a.rails)] if r.rails else [])) for a in r.axes]
    used = f"the job takes {r.nodes_used} of {counted(r.nodes_per_rack, 'node')} in each{rails}"
    return "\n".join(["Racks", wrapped(racks_summary(r)), wrapped(used), *table(rows, "l")])

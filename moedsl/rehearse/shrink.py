"""Shrink a plan and its model to a rehearsal: the same shape, small enough for a few processes of one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from moedsl.cost import pipeline
from moedsl.facts.facts import Model
from moedsl.planner.model.plan import Plan
from moedsl.rehearse import policy, sizes
from moedsl.rehearse.policy import KEPT, LEFT_OUT, Note, sized

RANKS = 8
"""The most processes by default."""
SEQ = 64
"""Tokens of a sequence for each context-parallel and tensor-parallel rank."""
NOT_CARRIED = (
    "profiling.", "checkpoint.", "dataset.", "tokenizer.", "train.train_iters", "mixed_precision.",
    "scheduler.", "validation.",
)  # fmt: skip
"""Fields that a run file may set and a rehearsal drops: they name the cluster's files, or do not work on a CPU."""


@frozen
class Rehearsal:
    """A small run. All sizes are its own, not the plan's."""

    name: str
    """Values of the plan."""
    model: Model
    hardware: str
    layout: Mapping[str, int]
    """tp cp dp pp vpp ep etp edp."""
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
    """Make the rehearsal of a plan (docs/internals.md) of `model` on at most `ranks` processes. Pure.

    `hardware` is used if the plan's own is not in the stdlib. The small model's `hf`, the folder of its config.json, is
    still empty.
    """
    big = plan.layout
    mesh = sizes.smallest(big.to_json(), ranks)
    vpp = 2 if big.vpp > 1 and mesh["pp"] > 1 else 1
    layers, pattern, layout = _shortened(plan, model, mesh["pp"], vpp)
    seq = SEQ * mesh["cp"] * mesh["tp"]
    small = sizes.narrow(model, f"{model.name}_rehearsal", mesh, layers, seq, pattern)
    text = layout if big.pipeline_layout and mesh["pp"] > 1 else None
    batch = plan.batch
    made = Rehearsal(
        name=plan.name,
        model=small,
        hardware=hardware or plan.hardware,
        layout={**mesh, "vpp": vpp},
        pipeline_layout=text,
        seq=seq,
        micro_batch=min(batch.micro_batch, 2),
        num_microbatches=_microbatches(batch.num_microbatches, mesh["pp"]),
        policy=policy.pinned(plan.policy.to_json(), mesh["ep"]),
        routing=plan.policy.routing,
        sets={k: v for k, v in plan.set.items() if not k.startswith(NOT_CARRIED)},
    )
    return _with_notes(made, plan, model, on_gpus)


def _shortened(plan: Plan, model: Model, pp: int, vpp: int) -> tuple[int, str, str]:
    """Choose layers, a hybrid's pattern, and the layout in Megatron's letters."""
    if model.hybrid:
        parts = sizes.segments((plan.layout.pipeline_layout or model.layer_pattern).split("|"), pp)
        return len("".join(parts)), "".join(parts), "|".join(parts)
    chunks = sizes.shortened(_layout(plan, model), pp, vpp, int(model.dense_layers > 0 or model.linear))
    chunks = sizes.paired(chunks) if model.linear else sizes.keyed(chunks) if model.indexer_every > 1 else chunks
    return sum(c.layers for c in chunks), "", sizes.text(chunks)


def _layout(plan: Plan, model: Model) -> pipeline.Layout:
    """The plan's chunks; a plan has a layout."""
    layout = plan.layout
    text, pp, vpp = layout.pipeline_layout, layout.pp, layout.vpp
    found = pipeline.parse_layout(text, model, pp, vpp)[0] if text else pipeline.layout_for(model, pp, vpp)
    assert found is not None, f"a plan without a layout: {text}"
    return found


def _microbatches(planned: int, pp: int) -> int:
    """Microbatches: 1 stays 1; else at most two for each stage, in whole groups of pp for an interleaved schedule."""
    most = min(planned, 2 * pp)
    return 1 if planned == 1 else max(pp, most - most % pp)


def _with_notes(r: Rehearsal, plan: Plan, model: Model, on_gpus: bool) -> Rehearsal:
    big, batch = plan.layout, plan.batch
    own = [
        *sizes.axis_notes(big.to_json(), {a: r.layout[a] for a in sizes.AXES}),
        Note("vpp", LEFT_OUT, big.vpp, 1, "virtual stages need a pipeline")
        if big.vpp > 1 and r.layout["vpp"] == 1
        else sized("vpp", big.vpp, r.layout["vpp"]),
        sized("pipeline layout", big.pipeline_layout or "even", r.pipeline_layout or "even"),
        sized("sequence_parallel", big.sequence_parallel, r.layout["tp"] > 1),
        sized("seq", batch.seq, r.seq),
        sized("micro_batch", batch.micro_batch, r.micro_batch),
        sized("num_microbatches", batch.num_microbatches, r.num_microbatches),
        sized("global_batch", batch.global_batch, r.global_batch),
        *sizes.fact_notes(model, r.model),
        *_sets(plan, r),
    ]
    if r.hardware != plan.hardware:
        own.append(Note("hardware", LEFT_OUT, plan.hardware, r.hardware, "its declaration is in the run file"))
    if model.linear and not on_gpus:
        own.append(policy.DELTA_NETS)
    if model.sparse and not on_gpus:
        own.append(policy.SPARSE)
    return evolve(r, notes=(*own, *policy.notes(plan, r.policy, on_gpus)))


def _sets(plan: Plan, r: Rehearsal) -> list[Note]:
    """Note each `set` of the run file."""
    return [
        Note(f"set {k}", KEPT, v, r.sets[k])
        if k in r.sets
        else Note(f"set {k}", LEFT_OUT, v, None, "files, lengths and formats of the cluster's run")
        for k, v in plan.set.items()
    ]

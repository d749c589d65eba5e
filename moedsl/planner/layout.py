"""The layout of a plan, its batch and its policy, and what it reads and trains: samples and adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import Attribute, field, fields, frozen, make_class

from moedsl.facts import axes
from moedsl.support.json_form import JsonForm

_TYPES = {"int": "int", "flag": "bool", "enum": "str", "set": "Sequence[str]"}


def _with_axes(*first: str) -> Callable[[type, list[Attribute[Any]]], list[Attribute[Any]]]:
    """Make a hook of attrs that gives a class these fields first, and a field for each axis that it does not state."""

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
    """The batch compared with that of the same run at 4k tokens and as many tokens a step."""

    seq: int
    dp: int
    num_microbatches: int
    global_batch: int
    accumulation_for_same_batch: int
    """Microbatches that the batch at 4k would need here."""
    batch_for_same_accumulation: int
    """Sequences here in as many microbatches as at 4k."""
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
    """A packed sample is padded to a multiple of as many tokens."""
    lengths: Sequence[float]
    """Tokens of a sample in equally large groups, as the run states them; empty if it does not."""
    per_sequence: float | None
    """Samples of a sequence in the mean; null without lengths."""
    span: float | None
    """Tokens of the sample that a token is in, in the mean over the tokens; null without lengths."""


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
    """shared: one adapter for all experts of a layer; each: one for each; outer: one for each,
    whose side at the hidden state all share; none: routed experts have none."""
    normalized: bool
    """Whether experts have the rank over the experts of a token."""
    regather: bool
    """Whether an input that TP gathers is gathered again in backward."""
    params: int
    """Parameters of the adapters, each counted once."""
    share: float
    """The same over all parameters of the model."""

"""The plan: everything that was decided for one run. `plan.json` is its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import Attribute, field, fields, frozen, make_class

from moedsl.facts import axes
from moedsl.planner.model.answers import Pareto, Ranked, TokenCost
from moedsl.planner.model.decisions import (
    Advice,
    Allowed,
    Alternative,
    Compared4k,
    Decision,
    Experiment,
    Measured,
    MoreGpus,
)
from moedsl.planner.model.estimate import Estimate
from moedsl.planner.model.sections import Checkpoints, Ladder, Racks, RanksBy, ShippedRecipe, Walls
from moedsl.support.json_form import JsonForm

VERSION = 1
_STEPS = "train.train_iters"
_MESHES = (("attention", axes.ATTENTION), ("experts", axes.EXPERTS))


@frozen
class Target(JsonForm):
    """The software that the recipe is for."""

    bridge: str
    """Release of Megatron Bridge."""
    torch: str | None = None
    """Version in the container, if the run states it."""
    transformer_engine: str | None = None
    """Version in the container, if the run states it."""


@frozen
class Need(JsonForm):
    """The least version of a product in the container."""

    product: str
    at_least: str
    rule: str
    because: str | None


@frozen
class Device(JsonForm):
    """The GPU, as Bridge queries it."""

    name: str
    capability: tuple[int, ...]
    """CUDA compute capability, major and minor."""
    memory: int
    """Bytes that torch tells as the total."""
    sms: int
    """Streaming multiprocessors."""
    gpus_per_node: int
    nvlink_domain: int
    """GPUs that NVLink connects."""


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


@frozen
class Search(JsonForm):
    """The extent of the search."""

    legal_layouts: int
    rows_priced: int
    ranks_by: RanksBy | None = None
    """The ranking whose best layout this is."""


@frozen
class Member(JsonForm):
    """The value that `isolate` or `sweep` gives this run."""

    of: str
    """The run of the file."""
    axis: str
    value: str


@frozen(kw_only=True)
class Plan(JsonForm):
    """Everything that was decided for one run, with costs and reasons."""

    version: int
    name: str
    model: str
    hf: str
    """Hugging Face id."""
    revision: str | None = None
    """The commit of the Hugging Face repository, if it is known."""
    family: str
    hardware: str
    gpus: int
    phase: str
    """fit, scale, profile or throughput."""
    task: str
    """pretrain, sft or peft."""
    target: Target
    needs: tuple[Need, ...]
    device: Device
    layout: Layout
    batch: Batch
    policy: Policy
    samples: SamplesPlan | None = None
    """With `task sft` or `task peft` on the text of `data`."""
    adapter: AdapterPlan | None = None
    """With `task peft`."""
    derived: Mapping[str, Any]
    """Bridge fields that follow from the layout."""
    env: Mapping[str, Any]
    """Environment variables of the job."""
    set: Mapping[str, Any]
    """Bridge fields that the run file sets."""
    declared: str | None = None
    """The model, hardware and calibrations that the run file declares and the plan needs, as their text."""
    hub_weights: str | None = None
    """The model of Hugging Face whose weights are imported before the run."""
    estimate: Estimate
    checkpoints: Checkpoints | None = None
    """Null in plans of earlier versions."""
    racks: Racks | None = None
    """Where groups are in the racks that the cluster of the file states; null if it states none."""
    walls: Walls
    decisions: tuple[Decision, ...]
    advice: tuple[Advice, ...]
    allowed: tuple[Allowed, ...]
    measured: tuple[Measured, ...]
    diagnostics: Sequence[Mapping[str, Any]]
    """Warnings and notes, as `moedsl check --json` prints them."""
    alternatives: tuple[Alternative, ...]
    """The next best layouts."""
    rebalanced: Alternative | None = None
    """The same layout with balanced pipeline stages, if that is faster."""
    shipped: ShippedRecipe | None = None
    """The recipe that Megatron Bridge ships for this model, GPU, number of GPUs and task."""
    steps: tuple[MoreGpus, ...]
    """The gain from more GPUs."""
    search: Search
    isolation: Member | None = None
    sweep: Member | None = None
    experiment: Experiment
    against_4k: Compared4k | None = None
    """Only for sequences of 32k tokens or more."""
    ladder: Ladder | None = None
    """With --ladder, and for a workflow."""
    top: tuple[Ranked, ...] | None = None
    """With --top: the best layouts."""
    pareto: Pareto | None = None
    """With --pareto: memory against speed, and GPUs against time."""
    budget: TokenCost | None = None
    """With --tokens: steps, days, GPU-hours and cost."""

    @property
    def train_steps(self) -> int:
        """The steps that the run states; 0 if it leaves them to the recipe."""
        return int((self.set.get(_STEPS) or self.derived.get(_STEPS)) or 0)

    def html(self) -> str:
        """Show the plan as HTML, as a notebook does."""
        from moedsl.planner.model import html  # only notebooks need it

        sizes = self.layout
        meshes = [(title, "  ".join(f"{n} {getattr(sizes, n)}" for n in names)) for title, names in _MESHES]
        batch = f"{self.batch.global_batch} x {self.batch.seq} tokens, {self.batch.num_microbatches} microbatches"
        title = f"{self.name}: {self.model} on {self.gpus} {self.hardware}, {self.phase} first"
        return html.page(title, [*meshes, ("batch", batch)], self.estimate, self.decisions)

    _repr_html_ = html

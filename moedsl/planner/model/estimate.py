"""The estimates of a plan: memory by stage, time by part of the step, and a VLM's parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.support.json_form import ABSENT, Absent, JsonForm

MEMORY = ("weights", "gradients", "optimizer", "activations", "buffers")
"""What memory holds, as `Stage` and `Part` have it in GiB."""


@frozen
class Stage(JsonForm):
    """One pipeline stage on its most loaded rank."""

    stage: int
    """Position in the pipeline, from 0."""
    layers: Mapping[str, int]
    """Number of layers by kind."""
    params: int
    """Parameters on a rank."""
    expert_params: int
    """Parameters of routed experts among these."""
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    buffers_gib: float
    total_gib: float


@frozen
class Range(JsonForm):
    """A term that is known only within bounds."""

    name: str
    lower_gib: float
    """Low case, GiB; of an uncertain term relative to its best estimate."""
    upper_gib: float
    """High case, GiB."""
    because: str


@frozen
class Outside(JsonForm):
    """Memory that torch does not allocate: CUDA, NCCL, DeepEP."""

    lower_gib: float
    upper_gib: float
    parts: tuple[Range, ...]


@frozen
class CertainLayout(JsonForm):
    """The best layout that FITS."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    peak_gib: float
    step_time_s: float
    against_plan: str


@frozen
class Certain(JsonForm):
    """The best layout that FITS, for a plan that is TIGHT."""

    within: float | None
    """How much longer its step may be, as a share; null if every layout was tried."""
    layout: CertainLayout | None


@frozen
class Faster(JsonForm):
    """The faster layout that `risk oom` chooses."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    peak_gib: float
    lower_gib: float
    """Low case of all memory on the GPU."""
    upper_gib: float
    """High case of all memory on the GPU: more than it has."""
    step_time_s: float
    against_plan: str
    statement: str
    """What the run file has to state."""


@frozen
class Memory(JsonForm):
    """The memory of the most loaded rank, GiB."""

    peak_gib: float
    """Best estimate of the peak."""
    capacity_gib: float
    """Memory of the GPU by its data sheet; a plan counts with `visible_gib`."""
    stages: tuple[Stage, ...]
    covers: str
    """What the estimate includes."""
    lower_gib: float
    """Low case of the peak, with memory outside torch."""
    upper_gib: float
    """High case of the peak, with memory outside torch."""
    visible_gib: float
    """Memory that the driver shows, in which all memory on the GPU must fit; the page prints it."""
    verdict: str
    """FITS, TIGHT or DOES NOT FIT."""
    because: str
    unknown: tuple[Range, ...]
    """Uncertain terms."""
    unused_gib: float
    """Memory that torch's allocator holds unused in the high case."""
    outside: Outside
    certain: Certain | None = None
    """Only for a plan that is TIGHT."""
    faster: Faster | None = None
    """Only for a plan that FITS."""

    @property
    def worst_gib(self) -> float:
        """The high case of all memory on the GPU: in torch, unused in its allocator, and outside."""
        return self.upper_gib + self.unused_gib + self.outside.upper_gib


@frozen
class Covers(JsonForm):
    """What the estimate of time includes."""

    step_time: str


@frozen
class Part(JsonForm):
    """One part of a VLM on a rank of the first stage."""

    part: str
    params: int
    weights_gib: float
    gradients_gib: float
    optimizer_gib: float
    activations_gib: float
    buffers_gib: float
    total_gib: float
    time_s: float
    """Seconds of a step."""
    share: float
    """Share of the step."""


@frozen
class Freeze(JsonForm):
    """The gain from freezing a part of a VLM on this layout."""

    name: str
    frozen: bool
    """Whether the run freezes it."""
    peak_gib: float
    step_time: float
    """Change of the step as a share."""
    effect: str


@frozen
class VisionNote(JsonForm):
    """Advice for a vision encoder that takes a large share of the step."""

    rule: str
    share: float
    because: str | None
    fix: str | None
    cite: tuple[str, ...]


@frozen
class Leaning(JsonForm):
    """A constant that the step leans on, or a part of its time that differs from run to run."""

    constant: str
    """Its name; "uneven tokens" and "launches" are parts of the time."""
    moves: float
    """How far one standard deviation of it moves the step, as a share."""
    about: str


@frozen
class Interval(JsonForm):
    """The interval in which nine of ten steps lie."""

    lower_s: float
    upper_s: float
    leans_on: tuple[Leaning, ...]
    """What moves it most."""
    unlike: tuple[str, ...]
    """How the run differs from all that the constants were fitted to; each makes the interval wider."""


@frozen
class Estimate(JsonForm):
    """Predicted memory and speed."""

    memory: Memory
    step_time_s: float
    """Seconds of a step."""
    tokens_per_s_per_gpu: float
    model_tflops_per_gpu: float
    breakdown: Mapping[str, float]
    """Seconds of a step by part."""
    covers: Covers
    useful_share: float
    """Share of a sequence that trains the decoder."""
    useful_tokens_per_s_per_gpu: float
    interval: Interval | None = None
    """Null in plans of earlier versions."""
    parts: tuple[Part, ...] | None = None
    """A VLM's encoder, projector and decoder."""
    freeze: tuple[Freeze, ...] | None = None
    vision_note: VisionNote | Absent | None = ABSENT

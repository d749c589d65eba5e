"""The plan: everything that was decided for one run, as records whose JSON is `plan.json`.

After it come the sections that only options add (the best layouts, memory against speed, GPUs against time, a budget of
tokens), then its HTML for notebooks, which has no script and suits dark and light pages.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.facts import axes
from moedsl.facts.axes import show
from moedsl.planner.advice import Advice
from moedsl.planner.checkpoints import Checkpoints
from moedsl.planner.container import Device, Need, Target
from moedsl.planner.decisions import Allowed, Decision, Measured
from moedsl.planner.estimate import Estimate, Memory
from moedsl.planner.experiment import Experiment
from moedsl.planner.ladder import Ladder, RanksBy
from moedsl.planner.layout import AdapterPlan, Batch, Layout, Policy, Racks, SamplesPlan
from moedsl.planner.other_layouts import Alternative, Compared4k, MoreGpus, ShippedRecipe
from moedsl.planner.simpler import Simpler
from moedsl.planner.training import Training
from moedsl.planner.walls import Walls
from moedsl.support.json_form import ABSENT, Absent, JsonForm
from moedsl.support.text import visible

VERSION = 1
_MESHES = (("attention", axes.ATTENTION), ("experts", axes.EXPERTS))


@frozen
class Search(JsonForm):
    """How many layouts were searched, and how they were ranked."""

    legal_layouts: int
    rows_priced: int
    ranks_by: RanksBy | None = None
    """The ranking by which this layout is the best."""


@frozen
class Member(JsonForm):
    """The value that `isolate` or `sweep` gives this run."""

    of: str
    """The name of the run in the file."""
    axis: str
    value: str

    @classmethod
    def of_run(cls, run: str, axis: str, value: str) -> Member:
        """Make the record of a run named `NAME.AXIS_VALUE`."""
        return cls(run.removesuffix(f".{axis}_{value}"), axis, value)


@frozen(kw_only=True, repr=False)
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
    """Only with `task sft` or `task peft` on text `data`."""
    adapter: AdapterPlan | None = None
    """Only with `task peft`."""
    derived: Mapping[str, Any]
    """Bridge fields that follow from the layout."""
    env: Mapping[str, Any]
    """Environment variables of the job."""
    set: Mapping[str, Any]
    """Bridge fields that the run file sets."""
    declared: str | None = None
    """Source text of the model, hardware and calibrations that the run file declares and the plan needs."""
    hub_weights: str | None = None
    """The Hugging Face model whose weights are imported before the run."""
    estimate: Estimate
    checkpoints: Checkpoints | None = None
    """Null in plans of earlier versions."""
    training: Training | None = None
    """Null in plans of earlier versions."""
    racks: Racks | None = None
    """How groups spread over racks; null if the run file's cluster states no racks."""
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
    simpler: Simpler | None = None
    """The simplest layout with a step at most 5% longer (or `--within`), for runs that rank by time."""
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
    """Only with --ladder, or for a workflow."""
    top: tuple[Ranked, ...] | None = None
    """With --top: the best layouts."""
    pareto: Pareto | None = None
    """With --pareto: memory against speed, and GPUs against time."""
    budget: TokenCost | None = None
    """With --tokens: steps, days, GPU-hours and cost."""

    @property
    def train_steps(self) -> int:
        """The steps that the run states; 0 if it leaves them to the recipe."""
        return int((self.set.get("train.train_iters") or self.derived.get("train.train_iters")) or 0)

    def __repr__(self) -> str:
        e = self.estimate
        return (
            f"<Plan {self.name}: {self.model} on {self.gpus} {self.hardware}, {self.phase} first, "
            f"{e.memory.verdict}, {e.step_time_s:.2f} s a step>"
        )

    def html(self) -> str:
        """Return meshes, speed, memory of each stage, and decisions with reasons as HTML for a notebook."""
        e, b = self.estimate, self.batch
        title = f"{self.name}: {self.model} on {self.gpus} {self.hardware}, {self.phase} first"
        sizes = [(mesh, "  ".join(f"{n} {getattr(self.layout, n)}" for n in names)) for mesh, names in _MESHES]
        sizes.append(("batch", f"{b.global_batch} x {b.seq} tokens, {b.num_microbatches} microbatches"))
        speed = (
            f"{e.step_time_s:.2f} s a step, {e.tokens_per_s_per_gpu:,.0f} tokens/s/GPU, "
            f"{e.model_tflops_per_gpu:.0f} model TFLOPS/GPU"
        )
        reasons = [("name", "value", "origin", "reason")]
        reasons += [(d.name, show(d.value), d.origin, d.because or "") for d in self.decisions]
        decisions = f"<summary>{len(self.decisions)} decisions</summary>{html_table(reasons)}"
        return (
            f"<div style='color:inherit;font-family:monospace;font-size:12px'><b>{escape(title)}</b>{html_table(sizes)}"
            f"<div style='margin-top:6px'><b>Speed</b> {escape(speed)}</div>{_memory_html(e.memory)}"
            f"<details style='margin-top:6px'>{decisions}</details></div>"
        )

    _repr_html_ = html


@frozen
class TokenCost(JsonForm):
    """The steps, time and cost to train on a number of tokens."""

    tokens: int
    steps: int
    days: float
    gpu_hours: float
    price_per_gpu_hour: float | None = None
    cost: float | None = None


@frozen(kw_only=True)
class Priced(JsonForm):
    """Speed, memory and cost of a layout."""

    gpus: int
    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    peak_gib: float
    gpu_hours_per_billion_tokens: float
    verdict: str | None = None
    """FITS, TIGHT or DOES NOT FIT; absent in the Pareto front of memory and speed."""
    budget: TokenCost | None = None
    """With --tokens."""


@frozen(kw_only=True)
class Compared(Priced):
    """A layout compared with the plan's layout."""

    layout: Mapping[str, Any]
    """Every axis with its value."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""


@frozen(kw_only=True, field_transformer=lambda _, fields: sorted(fields, key=lambda f: f.name != "rank"))
class Ranked(Compared):
    """One of the best layouts."""

    rank: int
    against_advice: Sequence[str]


@frozen
class Behind(JsonForm):
    """The first ranking key that puts the plan above a layout that beats it in memory and speed."""

    rule: str
    key: str
    value: float
    plan: float


@frozen(kw_only=True)
class FrontPoint(Compared):
    """A layout on the Pareto front: no other one beats it in both memory and step time."""

    against_advice: Sequence[str]
    behind: Behind | Absent | None = ABSENT
    """Only for a layout that beats the plan; null if other runs share the plan's layout."""


@frozen(kw_only=True)
class Standing(Priced):
    """The plan compared with the Pareto front."""

    on_front: bool
    beaten_by: tuple[int, ...]
    """Indices of the points that beat the plan."""
    against_advice: Sequence[str]


@frozen
class MemoryTime(JsonForm):
    """Memory against speed, the smallest memory first."""

    points: tuple[FrontPoint, ...]
    plan: Standing


@frozen(kw_only=True)
class GpusPoint(Compared):
    """The best layout on a number of GPUs."""

    plan: bool
    """Whether the plan uses this number of GPUs."""
    on_front: bool
    """Whether no smaller number of GPUs is as fast."""


@frozen
class GpusTime(JsonForm):
    """GPUs against time at the batch of the plan."""

    fewest: int | None
    points: tuple[GpusPoint, ...]
    without: tuple[int, ...]
    """Numbers of GPUs without a layout."""


@frozen
class Pareto(JsonForm):
    """Memory against speed, and GPUs against time."""

    memory_time: MemoryTime
    gpus_time: GpusTime


COLOURS = {
    "weights": "#3b6fb6", "gradients": "#7aa6d6", "optimizer": "#c9803a", "activations": "#5a9a5a",
    "buffers": "#9a9a9a",
}  # fmt: skip
_CELL = "text-align:left;padding:1px 10px 1px 0;vertical-align:top;background:none"


def escape(text: str) -> str:
    """Escape text for HTML and show its hidden characters."""
    return html.escape(visible(text))


def _memory_html(m: Memory) -> str:
    """Draw the memory of each stage as a bar."""
    widest = max([m.visible_gib, *(s.total_gib for s in m.stages)])
    head = f"{m.peak_gib:.1f} of {m.visible_gib:.1f} GiB on the most loaded rank: {m.verdict}"
    legend = " ".join(f"<span style='color:{c}'>&#9632;</span> {kind}" for kind, c in COLOURS.items())
    bars = ""
    for s in m.stages:
        parts = "".join(
            f"<div title='{kind} {gib:.1f} GiB' style='height:12px;background:{colour};{width}'></div>"
            for kind, colour in COLOURS.items()
            for gib in [getattr(s, f"{kind}_gib")]
            for width in [f"width:{100 * gib / widest:.2f}%"]
        )
        label = f"<div style='width:13em'>stage {s.stage}: {s.total_gib:.1f} GiB</div>"
        drawn = f"<div style='display:flex;flex:1;border:1px solid currentColor;opacity:0.9'>{parts}</div>"
        bars += f"<div style='display:flex;max-width:700px;margin:2px 0'>{label}{drawn}</div>"
    return f"<div style='margin-top:6px'><b>Memory</b> {escape(head)}<br>{legend}{bars}</div>"


def html_table(rows: Iterable[Sequence[str]]) -> str:
    """Format rows of text as an HTML table."""
    cells = ("".join(f"<td style='{_CELL}'>{escape(c)}</td>" for c in row) for row in rows)
    return "<table style='border-collapse:collapse'>" + "".join(f"<tr>{r}</tr>" for r in cells) + "</table>"

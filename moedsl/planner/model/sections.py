"""The records of a plan's sections, in the order in which the text shows them.

- `Walls`: memory, communication and compute, the share that each takes, and the effect of its fixes.
- `Ladder`: what a phase may change, and what the next phases add.
- `ShippedRecipe`: the recipe that Megatron Bridge ships for the model and GPUs, priced as the run is.
- `Racks`: where the groups of a plan are in racks and on rails.
- `Checkpoints`: how the run saves, what failures cost it, and the share of time that trains.

planner/walls.py, ladder.py, shipped.py, racks.py and checkpoints.py build them; text/sections.py prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.facts import recipes
from moedsl.support.json_form import ABSENT, Absent, JsonForm


@frozen
class Note(JsonForm):
    """The result of a rule for a run like this one."""

    rule: str
    says: Any
    because: str | None
    cite: tuple[str, ...]


@frozen
class BoughtBack(JsonForm):
    """Memory that one policy saves, and what it costs."""

    by: str
    """The axis."""
    value: Any
    gib: float
    paid_s: float
    """Seconds of the step."""


@frozen
class MemoryWall(JsonForm):
    """The memory wall; shares are of the GPU's memory, except `paid`."""

    share: float
    """Share at the peak."""
    bought_back: tuple[BoughtBack, ...]
    paid_s: float
    """Seconds of the step that saving memory costs."""
    paid: float
    """`paid_s` as a share of the step."""
    graphs_gib: float
    """Memory of CUDA graphs."""


@frozen
class CommunicationWall(JsonForm):
    """Exposed communication by the parallelism that causes it."""

    share: float
    """Share of the step."""
    seconds: Mapping[str, float]
    bubble_s: float
    """The pipeline bubble, which `seconds` counts under pp."""
    shares: Mapping[str, float]


@frozen
class HostWall(JsonForm):
    """Time that the GPU waits for kernel launches."""

    share: float
    """Share of the step."""


@frozen
class Compute(JsonForm):
    """Time of kernels by kind of work."""

    share: float
    """Share of the step."""
    seconds: Mapping[str, float]
    shares: Mapping[str, float]


@frozen
class Try(JsonForm):
    """The effect of changing one axis of this layout."""

    axis: str
    value: Any
    helps: bool
    against_plan: str
    changes: str
    """execution, experiment or benchmark."""


@frozen
class WallFix(JsonForm):
    """How to recognise a wall, and what helps."""

    rule: str
    looks: str | None
    confirm: str | None
    fix: str | None
    cite: tuple[str, ...]
    here: tuple[Try, ...]


@frozen
class Mfu(JsonForm):
    """Model FLOPs utilisation."""

    precision: str
    share: float
    """Share of the dense peak in this precision."""
    of_bf16: float
    """Share of the dense peak in BF16."""


@frozen
class Walls(JsonForm):
    """The walls of the plan, and the one that loses most of the step."""

    memory: MemoryWall
    communication: CommunicationWall
    host: HostWall
    compute: Compute
    dominant: str
    """The wall that loses most of the step; compute if none loses much."""
    usual: Note | None
    """The dominant wall that is usual on this hardware."""
    fixes: Mapping[str, WallFix]
    """Fixes by wall."""
    notes: tuple[Note, ...]
    mfu: Mfu


@frozen
class RanksBy(JsonForm):
    """The rule by which a phase ranks layouts."""

    rule: str
    because: str | None
    cite: tuple[str, ...]


@frozen
class Opened(JsonForm):
    """An axis and the values that a phase allows it."""

    axis: str
    values: tuple[Any, ...]
    rule: str | None
    because: str | None
    cite: tuple[str, ...]
    advice: bool
    """Whether a rule narrows the values further than the laws do."""


@frozen(kw_only=True)
class Gain(JsonForm):
    """A layout compared with another one."""

    phase: str | None = None
    """The earlier phase, if the other layout is from one."""
    changes: Mapping[str, Any]
    """Axes with their new values."""
    step_time_s: float
    peak_gib: float
    speedup: float


@frozen
class NextPhase(JsonForm):
    """A later phase; it has no figures if no layout fits."""

    phase: str
    opens: tuple[Opened, ...]
    solved: bool
    changes: Mapping[str, Any] | None = None
    step_time_s: float | None = None
    peak_gib: float | None = None
    speedup: float | None = None


@frozen
class Folding(JsonForm):
    """Whether attention and experts have meshes of their own."""

    folded: bool
    shared_mesh: Gain | Absent | None = ABSENT
    """The best layout with one mesh for both; null if none fits."""


@frozen
class Ladder(JsonForm):
    """One phase of the workflow, the phase before it and the next phases."""

    phase: str
    ranks_by: RanksBy
    open: tuple[Opened, ...]
    held: tuple[Opened, ...]
    from_: Gain | None
    """The gain of this phase over the one before it."""
    next: tuple[NextPhase, ...]
    folding: Folding
    notes: tuple[Note, ...]


@frozen
class ShippedRecipe(JsonForm):
    """A recipe of Bridge's for this model, GPU, number of GPUs and task, with this run's batch and number formats."""

    name: str
    """The function; `--like` takes it."""
    target: str
    """module:function, for lint, verify and diff."""
    layout: Mapping[str, Any]
    """Each axis that it turns on, and its pipeline layout."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with the recipe's values."""
    written_for: Mapping[str, Any]
    """The length, batch and number formats of the recipe that differ from those of this run."""
    refused_by: str | None
    """The law that its layout breaks in this run."""
    because: str | None
    """The reason of that law."""
    step_time_s: float | None
    """Null if Megatron would refuse the layout."""
    peak_gib: float | None
    """Null if Megatron would refuse the layout."""
    verdict: str | None
    """FITS, TIGHT or DOES NOT FIT."""
    against_plan: str | None
    """The difference from the plan in words."""
    others: tuple[str, ...]
    """Further recipes for the same model, GPU, number of GPUs and task."""

    @property
    def is_benchmark(self) -> bool:
        """Whether it is one of the recipes of NVIDIA's benchmarks, which are not made to train with."""
        return recipes.of_benchmark(self.target)


@frozen
class AxisOnRacks(JsonForm):
    """The groups of one axis."""

    axis: str
    size: int
    """Ranks of a group."""
    racks: int
    """Racks of the group that is on most of them."""
    rails: int | None
    """Rails of the group that is on most of them; null if the cluster states none."""


@frozen
class Racks(JsonForm):
    """The racks of the job, if its nodes are given out rack by rack."""

    nodes_per_rack: int
    """Nodes below one leaf switch, or one for each rail, as the cluster states them."""
    nodes_used: int
    """Nodes of a rack that the job takes, so that expert groups stay whole."""
    racks: int
    """Racks of the job."""
    rails: int | None
    """Network adapters of a node that have a switch each; null if the cluster states none."""
    expert_groups: int
    """Groups among which tokens are exchanged: those of ep and etp."""
    expert_groups_inside: int
    """Those within a rack."""
    axes: tuple[AxisOnRacks, ...]


@frozen
class Shares(JsonForm):
    """Shares of a month; together they are 1."""

    trains: float
    """Steps that are kept: the goodput."""
    saves: float
    """Training waits for checkpoints."""
    repeats: float
    """Steps that a failure takes back."""
    returns: float
    """From failures until training goes on."""
    validates: float = 0.0
    """Validation, which trains nothing."""


@frozen
class LocalCheckpoints(JsonForm):
    """Saves on the nodes' own disks, to which a run returns after a failure that leaves every node in its place."""

    folder: str
    interval_steps: int
    blocked_s: float
    """How long training waits for one."""
    node_gb: float
    """Space of one on a node's disk, 10^9 bytes."""
    share: float
    """The share of failures that leave every node in its place."""


@frozen
class Checkpoints(JsonForm):
    """Checkpoints and failures."""

    saved: bool
    """Whether the recipe saves any: with mock data it does so only if the run names a folder."""
    size_gb: float
    """One checkpoint, 10^9 bytes."""
    bytes_per_parameter: float
    """Bytes of a saved parameter: its weight, master copy and moments."""
    async_save: bool
    blocked_s: float
    """How long training waits for one."""
    write_s: float
    """From the start of a save until it can be returned to."""
    load_s: float
    interval_steps: int
    interval_s: float
    best_interval_s: float
    """The interval that keeps most training, before limits."""
    because: str
    """Why the interval is as it is."""
    kept: int | None
    """How many stay on the file system; null if all."""
    kept_gb: float | None
    """Space of those that stay, and of the one that is written; null if all stay."""
    failure_every_s: float
    """Mean time between failures on these GPUs."""
    return_s: float
    """From a failure until training goes on: detection, restart, load."""
    goodput: Shares
    local: LocalCheckpoints | None = None
    """Only where the cluster has `local_disk`, ranks restart within the job, and it adds goodput."""
    chain: bool = False
    """Whether the cluster runs it as a chain of jobs, whose starts and ends come on top."""

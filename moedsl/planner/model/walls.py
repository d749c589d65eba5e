"""The Three Walls of a plan, and compute: the share that each takes, and what its fixes would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moedsl.support.record import Record, record


@record
class Note(Record):
    """What a rule says of a run like this one."""

    rule: str
    says: Any
    because: str | None
    cite: tuple[str, ...]


@record
class BoughtBack(Record):
    """Memory that one policy saves, and what it costs."""

    by: str
    """The axis."""
    value: Any
    gib: float
    paid_s: float
    """Seconds of the step."""


@record
class MemoryWall(Record):
    """Shares are of the GPU's memory, but `paid` of the step."""

    share: float
    """Peak."""
    allowed: float
    """What the phase allows."""
    bought_back: tuple[BoughtBack, ...]
    paid_s: float
    """Seconds of the step that saving memory costs."""
    paid: float
    """The same as a share of the step."""
    graphs_gib: float
    """Memory of CUDA graphs."""


@record
class CommunicationWall(Record):
    """Exposed communication by the parallelism that causes it."""

    share: float
    """Of the step."""
    seconds: Mapping[str, float]
    bubble_s: float
    """The pipeline bubble, which `seconds` counts under pp."""
    shares: Mapping[str, float]


@record
class HostWall(Record):
    """Time that the GPU waits for kernel launches."""

    share: float
    """Of the step."""


@record
class Compute(Record):
    """Time of kernels by kind of work."""

    share: float
    """Of the step."""
    seconds: Mapping[str, float]
    shares: Mapping[str, float]


@record
class Try(Record):
    """What changing one axis does to this layout."""

    axis: str
    value: Any
    helps: bool
    against_plan: str
    changes: str
    """execution, experiment or benchmark."""


@record
class WallFix(Record):
    """How a wall is recognised and what helps."""

    rule: str
    looks: str | None
    confirm: str | None
    fix: str | None
    cite: tuple[str, ...]
    here: tuple[Try, ...]


@record
class Mfu(Record):
    """Model FLOPs utilisation."""

    precision: str
    share: float
    """Of the dense peak in this precision."""
    of_bf16: float
    """Of the dense peak in BF16."""


@record
class Walls(Record):
    """Which wall the plan stands at."""

    memory: MemoryWall
    communication: CommunicationWall
    host: HostWall
    compute: Compute
    dominant: str
    usual: Note | None
    """The wall at which this hardware usually stands."""
    fixes: Mapping[str, WallFix]
    """By wall."""
    notes: tuple[Note, ...]
    mfu: Mfu

"""The Three Walls of a plan, and compute: the share that each takes, and the effect of its fixes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.support.json_form import JsonForm


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

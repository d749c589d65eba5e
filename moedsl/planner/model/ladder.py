"""The ladder: what a phase may change, and what the next phases open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.planner.model.walls import Note
from moedsl.support.record import ABSENT, Absent, Record, record


@record
class RanksBy(Record):
    """The rule by which a phase ranks layouts."""

    rule: str
    because: str | None
    cite: tuple[str, ...]


@record
class Opened(Record):
    """An axis and the values that a phase allows it."""

    axis: str
    values: tuple[Any, ...]
    rule: str | None
    because: str | None
    cite: tuple[str, ...]
    advice: bool
    """Whether a rule narrows the values, and not the laws alone."""


@frozen(kw_only=True, eq=False, repr=False)
class Gain(Record):
    """Another layout against the one before it."""

    phase: str | None = None
    """The phase before, where it is of another phase."""
    changes: Mapping[str, Any]
    """Axes with their new values."""
    step_time_s: float
    peak_gib: float
    speedup: float


@record
class NextPhase(Record):
    """A phase ahead; without figures where no layout of it fits."""

    phase: str
    opens: tuple[Opened, ...]
    solved: bool
    changes: Mapping[str, Any] | None = None
    step_time_s: float | None = None
    peak_gib: float | None = None
    speedup: float | None = None


@record
class Folding(Record):
    """Whether attention and experts have meshes of their own."""

    folded: bool
    shared_mesh: Gain | Absent | None = ABSENT
    """The best layout with one mesh for both; null where none fits."""


@record
class Ladder(Record):
    """One phase of the workflow, the one before it and those ahead."""

    phase: str
    ranks_by: RanksBy
    open: tuple[Opened, ...]
    held: tuple[Opened, ...]
    from_: Gain | None
    """What this phase gained over the one before it."""
    next: tuple[NextPhase, ...]
    folding: Folding
    notes: tuple[Note, ...]

"""The ladder: what a phase may change, and what the next phases add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.planner.model.walls import Note
from moedsl.support.json_form import ABSENT, Absent, JsonForm


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

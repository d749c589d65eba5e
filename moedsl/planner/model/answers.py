"""The sections of a plan on request: the best layouts, memory against speed, GPUs against time, and a budget of
tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.support.json_form import ABSENT, Absent, JsonForm


@frozen
class TokenCost(JsonForm):
    """The steps, time and cost of a number of tokens."""

    tokens: int
    steps: int
    days: float
    gpu_hours: float
    price_per_gpu_hour: float | None = None
    cost: float | None = None


@frozen(kw_only=True)
class Priced(JsonForm):
    """The figures of a layout."""

    gpus: int
    step_time_s: float
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    peak_gib: float
    gpu_hours_per_billion_tokens: float
    verdict: str | None = None
    """FITS, TIGHT or DOES NOT FIT; absent in the front of memory against speed."""
    budget: TokenCost | None = None
    """With --tokens."""


@frozen(kw_only=True)
class Compared(Priced):
    """A layout compared with that of the plan."""

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
    """The first key of the ranking by which a layout that beats the plan ranks lower."""

    rule: str
    key: str
    value: float
    plan: float


@frozen(kw_only=True)
class FrontPoint(Compared):
    """A layout that no other one beats in both memory and step time."""

    against_advice: Sequence[str]
    behind: Behind | Absent | None = ABSENT
    """Only for a layout that beats the plan; null if other runs share the plan's layout."""


@frozen(kw_only=True)
class Standing(Priced):
    """The plan compared with the front."""

    on_front: bool
    beaten_by: tuple[int, ...]
    """Positions of the points that beat it."""
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
    """Whether the plan has this number."""
    on_front: bool
    """Whether no smaller number is as fast."""


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

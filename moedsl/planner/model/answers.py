"""The sections of a plan on request: the best layouts, memory against speed, GPUs against time, and a budget of
tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.support.record import ABSENT, Absent, Record


class TokenCost(Record):
    """The steps, time and cost of a number of tokens."""

    tokens: int
    steps: int
    days: float
    gpu_hours: float
    price_per_gpu_hour: float | None = None
    cost: float | None = None


class Priced(Record, kw_only=True):
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


class Compared(Priced, kw_only=True):
    """A layout compared with that of the plan."""

    layout: Mapping[str, Any]
    """Every axis with its value."""
    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""


class Ranked(Compared, first=("rank",), kw_only=True):
    """One of the best layouts."""

    rank: int
    against_advice: Sequence[str]


class Behind(Record):
    """The first key of the ranking by which a layout that beats the plan ranks lower."""

    rule: str
    key: str
    value: float
    plan: float


class FrontPoint(Compared, kw_only=True):
    """A layout that no other one beats in both memory and step time."""

    against_advice: Sequence[str]
    behind: Behind | Absent | None = ABSENT
    """Only for a layout that beats the plan; null if other runs share the plan's layout."""


class Standing(Priced, kw_only=True):
    """The plan compared with the front."""

    on_front: bool
    beaten_by: tuple[int, ...]
    """Positions of the points that beat it."""
    against_advice: Sequence[str]


class MemoryTime(Record):
    """Memory against speed, the smallest memory first."""

    points: tuple[FrontPoint, ...]
    plan: Standing


class GpusPoint(Compared, kw_only=True):
    """The best layout on a number of GPUs."""

    plan: bool
    """Whether the plan has this number."""
    on_front: bool
    """Whether no smaller number is as fast."""


class GpusTime(Record):
    """GPUs against time at the batch of the plan."""

    fewest: int | None
    points: tuple[GpusPoint, ...]
    without: tuple[int, ...]
    """Numbers of GPUs without a layout."""


class Pareto(Record):
    """Memory against speed, and GPUs against time."""

    memory_time: MemoryTime
    gpus_time: GpusTime

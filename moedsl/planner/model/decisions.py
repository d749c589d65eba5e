"""The decisions of a plan: values with origins and reasons, advice, other layouts, and the experiment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.facts.axes import show
from moedsl.support.json_form import ABSENT, Absent, JsonForm


@frozen
class OtherValue(JsonForm):
    """Another value of an axis, and its effect on this layout."""

    value: Any
    effect: str
    step_time: float | None = None
    """Change of the step as a share; absent if a law refuses the value."""


@frozen(kw_only=True)
class Decision(JsonForm):
    """One value of the plan and why it is so."""

    name: str
    value: Any
    origin: str
    """pinned, defaulted, derived or chosen."""
    rule: str | None
    because: str | None
    cite: tuple[str, ...]
    alternatives: tuple[OtherValue, ...]
    advice: bool | None = None
    """For an axis: whether the value comes from advice, not from a law or a pin."""
    among: str | Absent | None = ABSENT
    """For an axis: the rule that gives the advice."""
    effect: str
    """What changing it changes: execution, experiment or benchmark."""

    @property
    def told(self) -> str:
        """Its reason; of a pin also what the run would choose without it."""
        free = [f"without the pin {show(a.value)}, {a.effect}" for a in self.alternatives if self.origin == "pinned"]
        return "; ".join([self.because or "", *free])


@frozen
class Advice(JsonForm):
    """One advice of the rules."""

    rule: str
    followed: bool
    """Whether the layout follows it or it does not apply."""
    because: str | None
    cite: tuple[str, ...]
    worth: float | None
    """Share of the step time that following it is worth."""
    cost: str | None
    """What following it would cost; null if it is followed."""


@frozen
class Allowed(JsonForm):
    """A rule that the run file suspends."""

    rule: str
    because: str | None


@frozen
class Measured(JsonForm):
    """A published result of a run like this one."""

    rule: str
    result: Any
    because: str | None
    cite: tuple[str, ...]


@frozen
class Alternative(JsonForm):
    """Another layout."""

    changes: Mapping[str, Any]
    """Axes that differ from the plan, with their values."""
    against_advice: tuple[str, ...]
    """Advice that the plan follows and this layout does not."""
    step_time_s: float
    useful_tokens_per_s_per_gpu: float
    peak_gib: float
    against_plan: str


@frozen
class MoreGpus(JsonForm):
    """The best layout on more GPUs with the same batch."""

    gpus: int
    step_time_s: float
    speedup: float
    changes: Mapping[str, Any]


@frozen
class Benchmark(JsonForm):
    """A value that makes the run a benchmark: its trained model is useless."""

    name: str
    value: Any
    because: str | None


@frozen
class Experiment(JsonForm):
    """What two runs must share for their losses to be compared."""

    values: Mapping[str, Any]
    fingerprint: str
    """Hash of the values and of the architecture."""
    origins: Mapping[str, str]
    """pinned, defaulted, derived or chosen, by name."""
    benchmark: tuple[Benchmark, ...]


@frozen
class Difference(JsonForm):
    """An axis whose value differs in the same run at 4k tokens."""

    name: str
    at_4k: Any
    here: Any


@frozen
class Compared4k(JsonForm):
    """The layout compared with that of the same run at 4k tokens."""

    changes: tuple[Difference, ...]

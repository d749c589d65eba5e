"""The decisions of a plan: values with origins and reasons, advice, other layouts, and the experiment."""

from __future__ import annotations

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

"""What an edit must do for a symptom besides change the plan: where memory ran out, the predicted peak goes down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moedsl.rules.rule import Rule

Plan = Mapping[str, Any]
Judge = Callable[[Plan, Plan], "str | None"]
"""Why a plan is no way out of the one before it; None where it may be one."""
MEMORY = "memory"
"""A symptom of this name, or whose name ends in ``_memory``, is one of insufficient memory."""


def judge(rule: Rule) -> Judge:
    """How the edits of a symptom are judged."""
    return lower_peak if rule.name == MEMORY or rule.name.endswith(f"_{MEMORY}") else anything


def anything(_: Plan, __: Plan) -> None:
    """Any change of the plan may help."""


def lower_peak(before: Plan, after: Plan) -> str | None:
    """The predicted peak of `after` has to be below that of `before`."""
    was, now = (p["estimate"]["memory"]["peak_gib"] for p in (before, after))
    return None if now < was else f"its peak is predicted at {now:.1f} GiB, no lower than {was:.1f}"

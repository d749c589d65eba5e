"""Judge whether an edit helps against a symptom: for insufficient memory, the predicted peak must fall."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moedsl.rules.rule import Rule

Plan = Mapping[str, Any]
Judge = Callable[[Plan, Plan], "str | None"]
"""Explain why a plan does not solve the problem of the one before it; None if it may."""
MEMORY = "memory"
"""Symptoms with this name, or a name that ends in ``_memory``, mean insufficient memory."""


def judge(rule: Rule) -> Judge:
    """Choose the judge for the edits of a symptom."""
    return lower_peak if rule.name == MEMORY or rule.name.endswith(f"_{MEMORY}") else anything


def anything(_: Plan, __: Plan) -> None:
    """Accept any change of the plan."""


def lower_peak(before: Plan, after: Plan) -> str | None:
    """Require a lower predicted peak in `after` than in `before`."""
    was, now = (p["estimate"]["memory"]["peak_gib"] for p in (before, after))
    return None if now < was else f"its peak is predicted at {now:.1f} GiB, no lower than {was:.1f}"

"""Compare the values of a sweep by useful tokens, because runs of different sequence lengths do different work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.planner.model.plan import Member, Plan
from moedsl.rules.check.program import Program
from moedsl.support.text import table


def member(p: Program) -> Member | None:
    """The section `sweep` of a plan: run, axis and value; None if the run has no sweep."""
    if p.sweep is None:
        return None
    axis, _ = p.sweep
    of, _, value = p.name.rpartition(f".{axis}_")
    return Member(of, axis, value)


def comparisons(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Compare the values of each sweep among the plans, in their order."""
    groups: dict[tuple[str, str], list[tuple[Member, Plan]]] = {}
    for p in plans:
        if p.sweep:
            groups.setdefault((p.sweep.of, p.sweep.axis), []).append((p.sweep, p))
    return [{"of": of, "axis": axis, "values": _values(g)} for (of, axis), g in groups.items() if len(g) > 1]


def _values(plans: Sequence[tuple[Member, Plan]]) -> list[dict[str, Any]]:
    rates = [p.estimate.useful_tokens_per_s_per_gpu for _, p in plans]
    return [
        {
            "name": p.name,
            "value": member.value,
            "step_time_s": p.estimate.step_time_s,
            "useful_tokens_per_s_per_gpu": rate,
            "speedup": rate / rates[0],
            "peak_gib": p.estimate.memory.peak_gib,
        }
        for (member, p), rate in zip(plans, rates, strict=True)
    ]


def text(c: Mapping[str, Any]) -> str:
    """Print a comparison, with the best value marked."""
    best = max(v["useful_tokens_per_s_per_gpu"] for v in c["values"])
    rows = [(c["axis"], "s a step", "useful tokens/s/GPU", "speedup", "peak GiB", "")]
    rows += [_row(v, v["useful_tokens_per_s_per_gpu"] == best) for v in c["values"]]
    return "\n".join([f"{c['of']}: sweep of {c['axis']}, compared by useful tokens", *table(rows)]) + "\n"


def _row(v: Mapping[str, Any], best: bool) -> tuple[str, ...]:
    rate = f"{v['useful_tokens_per_s_per_gpu']:,.0f}"
    shown = (v["value"], f"{v['step_time_s']:.2f}", rate, f"{v['speedup']:.3f}x", f"{v['peak_gib']:.1f}")
    return (*shown, "best" if best else "")

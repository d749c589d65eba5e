"""The values of a sweep side by side, by useful tokens: runs with other sequences differ in effective work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.checker.program import Program
from moedsl.support.text import table

Json = Mapping[str, Any]


def member(p: Program) -> dict[str, Any]:
    """`sweep` of a plan: whose value this is, of which axis; nothing for another run."""
    if p.sweep is None:
        return {}
    axis, _ = p.sweep
    of, _, value = p.name.rpartition(f".{axis}_")
    return {"sweep": {"of": of, "axis": axis, "value": value}}


def comparisons(plans: Sequence[Json]) -> list[dict[str, Any]]:
    """One comparison for each sweep among the plans, its values in their order."""
    groups: dict[tuple[str, str], list[Json]] = {}
    for p in plans:
        if "sweep" in p:
            groups.setdefault((p["sweep"]["of"], p["sweep"]["axis"]), []).append(p)
    return [{"of": of, "axis": axis, "values": _values(g)} for (of, axis), g in groups.items() if len(g) > 1]


def _values(plans: Sequence[Json]) -> list[dict[str, Any]]:
    rates = [p["estimate"]["useful_tokens_per_s_per_gpu"] for p in plans]
    return [
        {
            "name": p["name"],
            "value": p["sweep"]["value"],
            "step_time_s": p["estimate"]["step_time_s"],
            "useful_tokens_per_s_per_gpu": rate,
            "speedup": rate / rates[0],
            "peak_gib": p["estimate"]["memory"]["peak_gib"],
        }
        for p, rate in zip(plans, rates, strict=True)
    ]


def text(c: Json) -> str:
    """A comparison as a person reads it; the best is marked."""
    best = max(v["useful_tokens_per_s_per_gpu"] for v in c["values"])
    rows = [(c["axis"], "s a step", "useful tokens/s/GPU", "speedup", "peak GiB", "")]
    rows += [_row(v, v["useful_tokens_per_s_per_gpu"] == best) for v in c["values"]]
    return "\n".join([f"{c['of']}: sweep of {c['axis']}, compared by useful tokens", *table(rows)]) + "\n"


def _row(v: Json, best: bool) -> tuple[str, ...]:
    rate = f"{v['useful_tokens_per_s_per_gpu']:,.0f}"
    shown = (v["value"], f"{v['step_time_s']:.2f}", rate, f"{v['speedup']:.3f}x", f"{v['peak_gib']:.1f}")
    return (*shown, "best" if best else "")

"""The bounds of a plan's memory as JSON and as text: least, best, most, what lies outside torch, and the verdict."""

from __future__ import annotations

from typing import Any

from moedsl.cost import Cost
from moedsl.cost.bounds import bounds
from moedsl.cost.outside import HELD_BACK
from moedsl.schema import axes
from moedsl.schema.units import GIB
from moedsl.solver.table import Row
from moedsl.support.text import wrapped

Json = dict[str, Any]


def memory_bounds(cost: Cost, row: Row) -> Json:
    """The keys that `estimate.memory` has beside the best figure; GiB."""
    b = bounds(cost, {name: int(code) for name, code in row.codes.items()})
    beside = b.beside
    return {
        "lower_gib": b.least / GIB,
        "upper_gib": b.most / GIB,
        "visible_gib": b.visible / GIB,
        "verdict": b.verdict,
        "because": b.because,
        "unknown": [_range(s.name, s.least, s.most, s.because) for s in b.spread],
        "unused_gib": b.most * HELD_BACK / GIB,
        "outside": {
            "lower_gib": beside[0] / GIB,
            "upper_gib": beside[1] / GIB,
            "parts": [_range(p.name, p.least, p.most, p.because) for p in b.outside],
        },
    }


def _range(name: str, least: float, most: float, because: str) -> Json:
    return {"name": name, "lower_gib": least / GIB, "upper_gib": most / GIB, "because": because}


def _certain_text(said: Json | None) -> list[str]:
    """What a layout that FITS would cost, of a plan that is TIGHT."""
    if said is None:
        return []
    if said["layout"] is None:
        near = "" if said["within"] is None else f" and that is within {said['within']:.0%} of this"
        return [f"nothing FITS that the run leaves open{near}"]
    changes = ", ".join(f"{name} {axes.written(value)}" for name, value in said["layout"]["changes"].items())
    return [f"the nearest that FITS: {said['layout']['against_plan']}, with {changes}"]


def bounds_text(m: Json) -> str:
    """The verdict, what moves the figure, and what lies outside torch."""
    out = m["outside"]
    parts = ", ".join(f"{p['name']} {p['lower_gib']:.1f} to {p['upper_gib']:.1f}" for p in out["parts"])
    seen = [u for u in m["unknown"] if max(-u["lower_gib"], u["upper_gib"]) >= 0.05]
    moves = ", ".join(f"{u['name']} {u['lower_gib']:+.1f} to {u['upper_gib']:+.1f}" for u in seen)
    lines = [
        f"{m['verdict']}: {m['because']}",
        f"{m['lower_gib']:.1f} to {m['upper_gib']:.1f} GiB: {moves}",
        f"outside torch {out['lower_gib']:.1f} to {out['upper_gib']:.1f} GiB: {parts}",
        *_certain_text(m.get("certain")),
    ]
    return "\n".join(wrapped(s, "  ", "    ") for s in lines)

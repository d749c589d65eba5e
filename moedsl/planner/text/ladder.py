"""The ladder as text: what this phase may change, what the next would try and is predicted to buy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from moedsl.schema.axes import pairs, said
from moedsl.support.text import wrapped

Json = Mapping[str, Any]
NAMES = {"throughput": "retune (throughput first)"}


def ladder_text(p: Json) -> str:
    """The section `Ladder` of a plan; empty for a plan without one."""
    if "ladder" not in p:
        return ""
    return "Ladder\n" + "\n".join(_lines(p["ladder"]))


def _lines(ladder: Json) -> Iterator[str]:
    what = ladder["ranks_by"]["because"] if ladder["open"] else "nothing to choose"
    yield wrapped(f"{_name(ladder['phase'])}: {what}", "  ", "    ")
    if ladder["from"]:
        yield f"  since {_name(ladder['from']['phase'])}: {_gain(ladder['from'])}"
    for verb, kind in (("may change", "open"), ("holds", "held")):
        for because, entries in _by_reason(ladder[kind]).items():
            axes = "; ".join(_entry(e) for e in entries)
            yield wrapped(f"{verb} {axes} ({because})", "    ", "      ")
    for step in ladder["next"]:
        yield from _step(step)
    yield from _folding(ladder["folding"])
    for note in ladder["notes"]:
        yield wrapped(f"{note['says']}: {note['because']}", "  ", "    ")


def _by_reason(entries: Iterable[Json]) -> dict[str, list[Json]]:
    """Axes that one rule opens or holds stand together."""
    out: dict[str, list[Json]] = {}
    for entry in entries:
        out.setdefault(_because(entry), []).append(entry)
    return out


def _name(phase: str) -> str:
    return NAMES.get(phase, phase)


def _entry(entry: Json) -> str:
    """An axis with its values; where no rule lists them, by its name."""
    return f"{entry['axis']} {_values(entry)}" if entry["advice"] else entry["axis"]


def _because(entry: Json) -> str:
    return f"advice: {entry['because']}" if entry["advice"] else entry["because"]


def _values(entry: Json) -> str:
    return ", ".join(map(said, entry["values"]))


def _step(step: Json) -> Iterator[str]:
    """One phase ahead."""
    if not step["solved"]:
        yield f"  next {_name(step['phase'])}: no layout of it fits"
        return
    if step["phase"] == "profile":
        yield "  next profile: this layout, unchanged, with the profiler on for a few steps"
        return
    opens = "; ".join(f"{o['axis']} {_values(o)}" for o in step["opens"]) or "nothing new"
    yield wrapped(f"next {_name(step['phase'])} may also try {opens}", "  ", "    ")
    yield f"    predicted: {_gain(step)}"


def _gain(step: Json) -> str:
    changes = pairs(step["changes"])
    with_ = f" with {changes}" if changes else ", nothing changed"
    return f"{step['step_time_s']:.2f} s a step, {step['speedup']:.2f}x as fast, {step['peak_gib']:.1f} GiB{with_}"


def _folding(folding: Json) -> Iterator[str]:
    if "shared_mesh" not in folding:
        return
    shared = folding["shared_mesh"]
    if shared is None:
        yield "  parallel folding: no layout with one mesh for attention and experts fits"
        return
    slower = (1 / shared["speedup"] - 1) * 100
    yield f"  parallel folding: one mesh for attention and experts would be {slower:+.1f}% step time"

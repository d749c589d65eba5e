"""Print the ladder: what this phase may change, what the next phase would try, and its predicted gain."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.facts.axes import pairs, show
from moedsl.planner.model.ladder import Folding, Gain, Ladder, NextPhase, Opened
from moedsl.planner.model.plan import Plan
from moedsl.support.json_form import ABSENT
from moedsl.support.text import wrapped

NAMES = {"throughput": "retune (throughput first)"}


def ladder_text(p: Plan) -> str:
    """Print the section `Ladder` of a plan; empty for a plan without one."""
    if p.ladder is None:
        return ""
    return "Ladder\n" + "\n".join(_lines(p.ladder))


def _lines(ladder: Ladder) -> Iterator[str]:
    what = ladder.ranks_by.because if ladder.open else "nothing to choose"
    yield wrapped(f"{_name(ladder.phase)}: {what}", "  ", "    ")
    if ladder.from_:
        yield f"  since {_name(ladder.from_.phase or '')}: {_gain(ladder.from_)}"
    for verb, opened in (("may change", ladder.open), ("holds", ladder.held)):
        # Group axes by the rule that opens or holds them
        out: dict[str, list[Opened]] = {}
        for entry in opened:
            out.setdefault(_because(entry), []).append(entry)
        for because, entries in out.items():
            axes = "; ".join(_entry(e) for e in entries)
            yield wrapped(f"{verb} {axes} ({because})", "    ", "      ")
    for step in ladder.next:
        yield from _step(step)
    yield from _folding(ladder.folding)
    for note in ladder.notes:
        yield wrapped(f"{note.says}: {note.because}", "  ", "    ")


def _name(phase: str) -> str:
    return NAMES.get(phase, phase)


def _entry(entry: Opened) -> str:
    """Print an axis, with its values if a rule lists them."""
    return f"{entry.axis} {_values(entry)}" if entry.advice else entry.axis


def _because(entry: Opened) -> str:
    return f"advice: {entry.because}" if entry.advice else entry.because or ""


def _values(entry: Opened) -> str:
    return ", ".join(map(show, entry.values))


def _step(step: NextPhase) -> Iterator[str]:
    """Print one later phase."""
    if not step.solved:
        yield f"  next {_name(step.phase)}: no layout fits"
        return
    if step.phase == "profile":
        yield "  next profile: this layout, unchanged, with the profiler on for a few steps"
        return
    opens = "; ".join(f"{o.axis} {_values(o)}" for o in step.opens) or "nothing new"
    yield wrapped(f"next {_name(step.phase)} may also try {opens}", "  ", "    ")
    yield f"    predicted: {_gain(step)}"


def _gain(step: Gain | NextPhase) -> str:
    changes = pairs(step.changes or {})
    with_ = f" with {changes}" if changes else ", nothing changed"
    speed = f"{step.step_time_s or 0:.2f} s a step, {step.speedup or 0:.2f}x as fast"
    return f"{speed}, {step.peak_gib or 0:.1f} GiB{with_}"


def _folding(folding: Folding) -> Iterator[str]:
    shared = folding.shared_mesh
    if shared is ABSENT:
        return
    if shared is None:
        yield "  parallel folding: no layout with one mesh for attention and experts fits"
        return
    slower = (1 / shared.speedup - 1) * 100
    yield f"  parallel folding: one mesh for attention and experts would be {slower:+.1f}% step time"

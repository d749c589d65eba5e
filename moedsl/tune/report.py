"""Make the report of what was tried and what is next, and print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from moedsl.planner import useful
from moedsl.results.compare import RATE
from moedsl.schema import axes
from moedsl.schema.axes import show
from moedsl.solver.solve import Chosen
from moedsl.support.text import table, wrapped
from moedsl.tune.candidates import Candidate, is_enough
from moedsl.tune.evidence import Codes, Tried, best, columns

Json = dict[str, Any]
SHOWN = 8
"""The candidates that are printed."""


def report(chosen: Chosen, start: Codes, done: Sequence[Tried], found: Sequence[Candidate], stop: float) -> Json:
    """Return the runs so far, the fastest, the candidates, the next experiment and why there is none."""
    fastest = best(done)
    base = fastest.codes if fastest else start
    steps = chosen.cost.time(columns([t.codes for t in done])) if done else []
    enough = is_enough(found, stop)
    return {
        "run": chosen.problem.program.name,
        "tried": [_tried(t, base, float(s), chosen) for t, s in zip(done, steps, strict=True)],
        "fastest": fastest.name if fastest else None,
        "layout": {n: axes.json_value(axes.BY_NAME[n].decode(c)) for n, c in base.items() if n in axes.BY_NAME},
        "candidates": [_json(c, base) for c in found],
        "next": None if enough else _json(found[0], base),
        "stop": _why(found, stop) if enough else None,
    }


def _tried(t: Tried, base: Codes, predicted: float, chosen: Chosen) -> Json:
    rate = useful.rate(chosen, t.codes, t.step) if t.step else None
    return {
        "name": t.name,
        "changes": {n: axes.json_value(axes.BY_NAME[n].decode(c)) for n, c in t.codes.items() if c != base[n]},
        "step_s": t.step,
        "predicted_step_s": predicted,
        RATE: rate,
        "out_of_memory": t.out_of_memory,
    }


def _json(c: Candidate, base: Codes) -> Json:
    axis = axes.BY_NAME[c.axis]
    return {"axis": c.axis, "from": axes.json_value(axis.decode(base[c.axis])), "to": axes.json_value(c.value),
            "gain": c.gain, "low": c.low, "high": c.high, "expected": c.expected}  # fmt: skip


def _why(found: Sequence[Candidate], stop: float) -> str:
    if not found:
        return "every single change was tried, is refused, does not fit, or changes the experiment"
    c = found[0]
    return f"the best change left, {c.axis} {show(c.value)}, is expected to gain {c.expected:.1%}, less than {stop:.1%}"


def text(r: Mapping[str, Any]) -> str:
    """Print a report from its JSON."""
    lines = [f"{r['run']}: {len(r['tried'])} tried"]
    if r["tried"]:
        head = ("", "s a step", "predicted", "useful tokens/s/GPU", "compared with the fastest")
        lines += table([head, *(_row(t, r["fastest"]) for t in r["tried"])], "lrrrl")
    if r["candidates"]:
        head = ("one change", "", "gain", "nine of ten", "expected")
        lines += ["", *table([head, *map(_cells, r["candidates"][:SHOWN])], "llrrr")]
    last = f"stop: {r['stop']}" if r["next"] is None else f"next: {candidate(r['next'])}; {_kept(r['next'])}"
    return "\n".join([*lines, "", wrapped(last, "", "  ", width=110)]) + "\n"


def _kept(c: Mapping[str, Any]) -> str:
    return f"{c['expected']:.1%} can be expected, because it is kept only if it is faster"


def _row(t: Json, fastest: str | None) -> tuple[str, ...]:
    changes = " ".join(f"{n}={show(v)}" for n, v in t["changes"].items())
    if t["step_s"] is None:
        why = "out of memory" if t["out_of_memory"] else "failed"
        return t["name"], why, f"{t['predicted_step_s']:.2f}", "", changes
    said = "fastest" if t["name"] == fastest else changes
    return (t["name"], f"{t['step_s']:.2f}", f"{t['predicted_step_s']:.2f}", f"{t[RATE]:,.0f}", said)


def _cells(c: Json) -> tuple[str, ...]:
    return (c["axis"], f"{show(c['from'])} -> {show(c['to'])}", f"{c['gain']:+.1%}",
            f"{c['low']:+.1%} to {c['high']:+.1%}", f"{c['expected']:.2%}")  # fmt: skip


def candidate(c: Mapping[str, Any]) -> str:
    """Write a candidate in one line."""
    return (f"{c['axis']} {show(c['from'])} -> {show(c['to'])}, {c['gain']:+.1%} "
            f"({c['low']:+.1%} to {c['high']:+.1%})")  # fmt: skip

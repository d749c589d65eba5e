"""Compare NVIDIA's three long-context layouts with moedsl's choice for the same runs, in docs/long_context.md.

Run it to rewrite the table; tests/docs/test_long_context.py fails if the page is stale.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve

from moedsl.compiler import choose, compile_source
from moedsl.facts import axes
from moedsl.planner.build import make_plan
from moedsl.planner.plan import Plan
from moedsl.rules.check.program import Program
from moedsl.support.source import Source

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "long_context.md"
RUNS = ("long_deepseek_v3_128k", "long_deepseek_v3_256k", "long_qwen3_235b_128k")
BEGIN, END = "<!-- compared: begin -->", "<!-- compared: end -->"
EXPERIMENT = [a.name for a in axes.AXES if a.kind == "enum" and not a.opened]
"""Axes that keep the document's values, because they are not part of the layout."""
LAYOUT = ("tp", "cp", "dp", "pp", "vpp", "ep", "edp")
POLICY = ("dispatcher", "recompute", "offload", "cuda_graph", "ep_overlap")


def block() -> str:
    """Write the table as Markdown."""
    return "\n\n".join(compared(name) for name in RUNS) + "\n"


@cache
def plans(name: str) -> tuple[Plan, Plan]:
    """Plan the example as in the document, and the same run with no axis of the layout pinned."""
    path = ROOT / "examples" / "long_context" / f"{name}.moe"
    result = compile_source(Source(f"examples/long_context/{name}.moe", path.read_text(encoding="utf-8")))
    assert not result.failed, result.diagnostics
    return result.plans[0], _plan(_open(result.programs[0]))


def _open(p: Program) -> Program:
    pins = {n: pin for n, pin in p.pins.items() if n in EXPERIMENT}
    return evolve(p, pins=pins, rules=tuple(r for r in p.rules if not (r.wish and r.kind == "require")))


def _plan(p: Program) -> Plan:
    chosen, found = choose(p, lambda _: None)
    assert chosen is not None, found
    return make_plan(chosen, [], {})


def compared(name: str) -> str:
    """Write the table of one example as Markdown."""
    theirs, ours = plans(name)
    lines = [f"### `examples/long_context/{name}.moe`", "", "| | document | chosen | |", "| --- | --- | --- | --- |"]
    lines += [f"| {n} | {a} | {b} | {why} |" for n, a, b, why in (*_layout(theirs, ours), *_prices(theirs, ours))]
    return "\n".join(lines)


def _layout(theirs: Plan, ours: Plan) -> Iterator[tuple[str, str, str, str]]:
    """Yield the differences, with the plan's reason for its own value."""
    why = {d.name: d.because or "" for d in ours.decisions}
    for part, names in (("layout", LAYOUT), ("batch", ("micro_batch", "num_microbatches")), ("policy", POLICY)):
        for n in names:
            value = getattr(getattr(theirs, part), n)
            a, b = _word(value), _word(getattr(getattr(ours, part), n))
            if a != b:
                yield n, a, b, _effect(ours, n, value) if n in axes.BY_NAME else why[n]


def _effect(ours: Plan, name: str, value: Any) -> str:
    """Describe the effect of the document's value in the chosen layout, all else equal."""
    decision = next(d for d in ours.decisions if d.name == name)
    found = (a.effect for a in decision.alternatives if a.value == value)
    return f"{_word(value)} here: {next(found, 'not among what the phase tries')}"


def _prices(theirs: Plan, ours: Plan) -> Iterator[tuple[str, str, str, str]]:
    a, b = theirs.estimate, ours.estimate
    peaks = [e.memory.peak_gib for e in (a, b)]
    yield "peak, GiB", f"{peaks[0]:.1f}", f"{peaks[1]:.1f}", f"{peaks[1] - peaks[0]:+.1f}"
    times = [e.step_time_s for e in (a, b)]
    yield "step, s", f"{times[0]:.2f}", f"{times[1]:.2f}", f"{100 * (times[1] / times[0] - 1):+.1f}%"
    for part in sorted(a.breakdown, key=lambda k: -abs(b.breakdown[k] - a.breakdown[k])):
        change = b.breakdown[part] - a.breakdown[part]
        if abs(change) > 0.01 * times[0]:
            yield f"of it {part}", f"{a.breakdown[part]:.2f}", f"{b.breakdown[part]:.2f}", f"{change:+.2f} s"


def _word(v: Any) -> str:
    if isinstance(v, bool):
        return "on" if v else "off"
    return " ".join(v) or "none" if isinstance(v, list) else str(v)


def rewritten(page: str) -> str:
    """Return the page with the current table."""
    return re.sub(f"{BEGIN}.*{END}", lambda _: f"{BEGIN}\n\n{block()}\n{END}", page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

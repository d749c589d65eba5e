"""Make the report of what was tried and what is next; print it, and draw it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import accumulate
from typing import Any

from attrs import evolve

from moedsl.facts import axes
from moedsl.facts.axes import show
from moedsl.facts.units import GIB
from moedsl.planner import useful
from moedsl.runs.results.measure import RATE
from moedsl.runs.tune.candidates import Candidate, why_enough
from moedsl.runs.tune.evidence import Codes, Tried, best, columns
from moedsl.solver import uncertainty
from moedsl.solver.solve import Chosen
from moedsl.support import svg
from moedsl.support.text import table, wrapped

Json = dict[str, Any]
SHOWN = 8
"""The candidates that are printed."""
_AREA = svg.Area(80.0, 30.0, 900.0, 280.0, (0.0, 0.0), (1.0, 1.0))
"""The diagram in the picture; the legend is on its right, and labels hang down to the right of their job."""
_WIDTH, _HEIGHT = 1200, 500
_BLUE, _GREY, _RED = "#3b6fb6", "#999", "#c0504d"


def report(chosen: Chosen, start: Codes, done: Sequence[Tried], found: Sequence[Candidate], stop: float) -> Json:
    """Return the runs so far, the fastest, the candidates, the next experiment and why there is none."""
    fastest = best(done)
    base = fastest.codes if fastest else start
    enough = why_enough(done, found, stop)
    return {
        "run": chosen.problem.program.name,
        "tried": [{**_tried(t, base, chosen), **p} for t, p in zip(done, _predicted(done, chosen), strict=True)],
        "fastest": fastest.name if fastest else None,
        "layout": {n: axes.json_value(axes.BY_NAME[n].decode(c)) for n, c in base.items() if n in axes.BY_NAME},
        "candidates": [_json(c, base, fastest) for c in found],
        "next": None if enough else _json(found[0], base, fastest),
        "stop": enough,
    }


def _tried(t: Tried, base: Codes, chosen: Chosen) -> Json:
    rate = useful.rate(chosen, t.codes, t.step) if t.step else None
    return {
        "name": t.name,
        "changes": {n: axes.json_value(axes.BY_NAME[n].decode(c)) for n, c in t.codes.items() if c != base[n]},
        "step_s": t.step,
        RATE: rate,
        "out_of_memory": t.out_of_memory,
        "refused_gib": t.refused_gib if t.out_of_memory else None,
    }


def _predicted(done: Sequence[Tried], chosen: Chosen) -> Iterator[Json]:
    """Yield what the estimate says of each run: its step with the interval, and its memory."""
    if not done:
        return
    cols = columns([t.codes for t in done])
    steps = chosen.cost.time(cols)
    slopes, peaks = uncertainty.leaning(chosen.cost, cols, steps), chosen.cost.memory(cols) / GIB
    for step, slope, peak in zip(steps.tolist(), slopes, peaks.tolist(), strict=True):
        factor = uncertainty.doubt(chosen.cost, slope).factor
        yield {"predicted_step_s": step, "lower_s": step / factor, "upper_s": step * factor,
               "predicted_peak_gib": peak}  # fmt: skip


def _json(c: Candidate, base: Codes, fastest: Tried | None) -> Json:
    """Write a candidate; there is no gain where there is nothing measured to gain over."""
    axis, over = axes.BY_NAME[c.axis], fastest is not None
    return {"axis": c.axis, "from": axes.json_value(axis.decode(base[c.axis])), "to": axes.json_value(c.value),
            "gain": c.gain if over else None, "low": c.low if over else None, "high": c.high if over else None,
            "expected": c.expected if over else None, "step_s": c.step, "peak_gib": c.peak / GIB}  # fmt: skip


def text(r: Mapping[str, Any]) -> str:
    """Print a report from its JSON."""
    lines = [f"{r['run']}: {len(r['tried'])} tried"]
    if r["tried"]:
        compared = "compared with the fastest" if r["fastest"] else "compared with the plan"
        head = ("", "s a step", "predicted", "GiB", "useful tokens/s/GPU", compared)
        lines += table([head, *(_row(t, r["fastest"]) for t in r["tried"])], "lrrrrl")
    if r["candidates"]:
        gains = ("gain", "nine of ten", "expected") if r["fastest"] else ()
        head = ("one change", "", *gains, "s a step", "GiB")
        lines += ["", *table([head, *map(_cells, r["candidates"][:SHOWN])], "llr")]
    last = f"stop: {r['stop']}" if r["next"] is None else f"next: {candidate(r['next'])}{_kept(r['next'])}"
    said = [*filter(None, map(_remark, r["tried"])), last]
    return "\n".join([*lines, "", *(wrapped(line, "", "  ", width=110) for line in said)]) + "\n"


def _remark(t: Json) -> str | None:
    """Say what the estimate missed of a run, if so."""
    if t["out_of_memory"]:
        lacked = f"{t['refused_gib']:.1f} GiB less, which it asked for and did not get" if t["refused_gib"] else "less"
        return f"{t['name']} ran out of memory: what is tried next is predicted to need {lacked}"
    if t["step_s"] is None or t["lower_s"] <= t["step_s"] <= t["upper_s"]:
        return None
    interval = f"{t['lower_s']:.2f} to {t['upper_s']:.2f} s"
    return (f"{t['name']}: the measured step is outside the interval of nine in ten runs, {interval}; "
            "`moedsl gap` says what may make it so")  # fmt: skip


def _kept(c: Json) -> str:
    if c["expected"] is None:
        return ""
    return f"; {c['expected']:.1%} can be expected, because it is kept only if it is faster"


def _row(t: Json, fastest: str | None) -> tuple[str, ...]:
    changes = " ".join(f"{n}={show(v)}" for n, v in t["changes"].items())
    predicted = (f"{t['predicted_step_s']:.2f}", f"{t['predicted_peak_gib']:.1f}")
    if t["step_s"] is None:
        return t["name"], "out of memory" if t["out_of_memory"] else "failed", *predicted, "", changes
    said = "fastest" if t["name"] == fastest else changes
    return (t["name"], f"{t['step_s']:.2f}", *predicted, f"{t[RATE]:,.0f}", said)


def _cells(c: Json) -> tuple[str, ...]:
    return (c["axis"], f"{show(c['from'])} -> {show(c['to'])}", *_gains(c), f"{c['step_s']:.2f}",
            f"{c['peak_gib']:.1f}")  # fmt: skip


def _gains(c: Json) -> tuple[str, ...]:
    if c["gain"] is None:
        return ()
    return f"{c['gain']:+.1%}", f"{c['low']:+.1%} to {c['high']:+.1%}", f"{c['expected']:.2%}"


def candidate(c: Mapping[str, Any]) -> str:
    """Write a candidate in one line: its gain, or what it takes where nothing was measured to gain over."""
    change = f"{c['axis']} {show(c['from'])} -> {show(c['to'])}"
    if c["gain"] is None:
        return f"{change}, {c['step_s']:.2f} s a step and {c['peak_gib']:.1f} GiB predicted"
    return f"{change}, {c['gain']:+.1%} ({c['low']:+.1%} to {c['high']:+.1%})"


def picture(tried: Sequence[Json], changes: Sequence[Mapping[str, Any] | None]) -> str:
    """Draw the jobs from left to right as SVG: the speed of each, what was expected of its change, the fastest so far.

    `tried` is of the report, and `changes` are the candidates that the jobs tried, None for the plan itself.
    """
    rates = [t[RATE] or 0.0 for t in tried]
    best = [*accumulate(rates, max)]
    spans = [
        (best[i - 1] * (1 + c["low"]), best[i - 1] * (1 + c["high"]))
        if i and c and c["gain"] is not None and best[i - 1]
        else None
        for i, c in enumerate(changes)
    ]
    top = 1.05 * (max([*rates, *(high for s in spans if s for high in s)]) or 1.0)
    area = evolve(_AREA, highest=(len(tried), top))
    left, right = area.left, area.left + area.width
    shapes: list[str] = []
    for tick in svg.shares(top):
        _, y = area.at(0, tick["at"] / 100 * top)
        shapes.append(svg.element("line", x1=left, x2=right, y1=y, y2=y, stroke="#ddd"))
        shapes.append(svg.element("text", tick["text"], x=left - 8, y=y + 4, text_anchor="end"))
    shapes.append(svg.element("text", "useful tokens/s/GPU", x=8, y=area.top - 12))
    for i, (t, c, span) in enumerate(zip(tried, changes, spans, strict=True)):
        x, y = area.at(i + 0.5, rates[i])
        if span:
            said = svg.element("title", "nine of ten were expected here")
            shapes.append(_bar(x, area.at(0, span[0])[1], area.at(0, span[1])[1], said))
        shapes.append(_point(x, y) if rates[i] else _cross(x, y))
        label = escape(f"{t['name']}: {c['axis']} {show(c['to'])}" if c else f"{t['name']}: the plan")
        place = f"translate({x + 4:.1f} {area.top + area.height + 14:.1f}) rotate(40)"
        shapes.append(svg.element("text", label, transform=place))
    shapes.append(svg.polyline([area.at(i + 0.5, b) for i, b in enumerate(best) if b], fill="none", stroke=_BLUE))
    x, y = right + 40, area.top + 10
    marks = (
        (_point(x, y), "measured"),
        (svg.polyline([(x - 12, y + 24), (x + 12, y + 24)], stroke=_BLUE), "the fastest so far"),
        (_bar(x, y + 40, y + 56), "nine of ten expected"),
        (_cross(x, y + 72), "failed"),
    )
    for n, (mark, name) in enumerate(marks):
        shapes.append(mark + svg.element("text", name, x=x + 20, y=y + 24 * n + 4))
    return svg.picture(_WIDTH, _HEIGHT, "Useful tokens/s/GPU of each job", shapes)


def _bar(x: float, low: float, high: float, *inside: str) -> str:
    return svg.element("line", *inside, x1=x, x2=x, y1=low, y2=high, stroke=_GREY, stroke_width=6, stroke_opacity=0.4)


def _point(x: float, y: float) -> str:
    return svg.element("circle", cx=x, cy=y, r=4, fill=_BLUE)


def _cross(x: float, y: float) -> str:
    return svg.element("path", d=f"M{x - 5:.1f} {y - 5:.1f} l10 10 m0 -10 l-10 10", stroke=_RED, stroke_width=2)

"""Propose and print the next experiment: the single change to the fastest layout with the largest expected gain.

Measured steps also inform about other layouts. The log of a step is the log of its estimate plus three normal errors:
the constants' (slopes times their errors, with the covariance of their fit, `moedsl.solver.uncertainty`), the machine's
(the interval of the plan), and the layout's (`FAR`, `NEAR`, from published runs), which correlates less the further
layouts are apart. Measured steps observe these errors linearly, so the posterior of any other layout's step is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import accumulate
from math import erf, exp, pi, sqrt
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from moedsl.cost import Cost
from moedsl.cost.rows import Floats
from moedsl.diagnose.edit import missing_gib, ran_out, saves
from moedsl.diagnose.scan import symptoms
from moedsl.facts import axes
from moedsl.facts.axes import show
from moedsl.facts.units import GIB
from moedsl.planner import estimate
from moedsl.rules.library import Library
from moedsl.rules.rule import EXECUTION
from moedsl.runs.results.gather import Given, Numbers, Run, numbers
from moedsl.runs.results.log import read_all
from moedsl.runs.results.measure import FAILED, OK, RATE, UNFINISHED, measure
from moedsl.solver import neighbours, uncertainty
from moedsl.solver.laws import Row
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.solve import Chosen
from moedsl.solver.uncertainty import NINE_OF_TEN
from moedsl.support import svg
from moedsl.support.text import table, wrapped


@frozen
class Candidate:
    """One change, and its predicted gain in useful tokens/s, as a share."""

    axis: str
    code: int
    codes: Codes
    gain: float
    """The most likely gain, which can be negative."""
    low: float
    high: float
    """Nine of ten gains are between `low` and `high`."""
    expected: float
    """The mean gain if the change is kept only where it is faster."""
    step: float
    """The expected seconds of a step."""
    peak: float
    """The predicted peak memory in bytes."""

    @property
    def value(self) -> Any:
        return axes.BY_NAME[self.axis].decode(self.code)


def candidates(chosen: Chosen, start: Codes, done: Sequence[Tried]) -> list[Candidate]:
    """Predict every single change to the fastest layout (`start` before any was measured), the most promising first.

    Left out are layouts that were tried, break a law, do not fit or change the experiment; and, after a run ran out of
    memory, those that do not need enough less than it. Empty if every run failed for another reason.
    """
    fastest = best(done)
    base = fastest.codes if fastest else start
    if _tells_nothing(done):
        return []
    effects = chosen.problem.program.effects
    known_codes, failed = [t.codes for t in done], [t for t in done if t.out_of_memory]
    peaks = chosen.cost.memory(columns([t.codes for t in failed])) / GIB if failed else []
    new = list[Neighbour]()
    for n in neighbours.neighbours(chosen.compiled, chosen.cost, Row(base, {}, ())):
        axis = axes.BY_NAME[n.axis]
        same = all(effects.word(axis.name, axis.decode(c)) == EXECUTION for c in (n.code, base[n.axis]))
        peak = n.peak_memory / GIB
        fits = all(saves(float(was), peak, t.refused_gib) for was, t in zip(peaks, failed, strict=True))
        if n.refused_by is None and same and n.codes not in known_codes and fits:
            new.append(n)
    if not new:
        return []
    logs = known(chosen.cost, [base, *(n.codes for n in new)], done)
    found = list[Candidate]()
    for i, n in enumerate(new, 1):
        gain, spread = logs.gain(i, 0)
        low, high = (exp(gain + side * NINE_OF_TEN * spread) - 1 for side in (-1, 1))
        mean, step = expected(gain, spread), exp(float(logs.log_step[i]))
        found.append(Candidate(n.axis, n.code, n.codes, exp(gain) - 1, low, high, mean, step, n.peak_memory))
    return sorted(found, key=lambda c: -c.expected if fastest else c.step)


def expected(gain: float, spread: float) -> float:
    """Return the mean of max(gain, 0) for a normal `gain` with standard deviation `spread`."""
    if spread == 0:
        return max(gain, 0.0)
    z = gain / spread
    return spread * exp(-z * z / 2) / sqrt(2 * pi) + gain * (1 + erf(z / sqrt(2))) / 2


def why_enough(done: Sequence[Tried], found: Sequence[Candidate], stop: float) -> str | None:
    """Say why no change is worth another run; None if one is.

    Before any run has measured a step, any change that fits is worth one.
    """
    if _tells_nothing(done):
        return "no run measured a step, and memory ran out in none: `moedsl diagnose` reads why they failed"
    if not found:
        return "every single change was tried, is refused, does not fit, or changes the experiment"
    c = found[0]
    if best(done) is None or c.expected >= stop:
        return None
    of = f"{c.axis} {axes.show(c.value)}"
    return f"the best change left, {of}, is expected to gain {c.expected:.1%}, less than {stop:.1%}"


def _tells_nothing(done: Sequence[Tried]) -> bool:
    """Whether every run failed, and none by running out of memory: another layout would not help."""
    return bool(done) and not any(t.step or t.out_of_memory for t in done)


REFUSED = "refused_gib"
"""The key in a row for the GiB that a run asked for and did not get."""
ERROR = 0.01
"""The assumed error of a run's log median step, if it has too few steps to measure that."""
Codes = Mapping[str, int]


@frozen
class Tried:
    """One tried layout, and its step in seconds, from its useful tokens/s; None if it failed."""

    name: str
    codes: Codes
    step: float | None
    error: float = ERROR
    """The standard error of the log of the step."""
    out_of_memory: bool = False
    refused_gib: float = 0.0
    """The GiB that it asked for and did not get, if memory ran out."""


def row(run: Run, library: Library) -> dict[str, Any]:
    """Measure a run that has a plan, and return its row of `moedsl results` with `REFUSED` added."""
    (sizes,) = numbers([run], Given())
    assert isinstance(sizes, Numbers)  # a plan gives all numbers
    log = read_all(run.logs, symptoms(library))
    refused = missing_gib(s for r in log.reports for s in r.sightings)
    return {**measure(run, log, sizes, None), REFUSED: refused}


def tried(name: str, codes: Codes, cost: Cost, row: Mapping[str, Any]) -> Tried | None:
    """Read a row of `moedsl results`; None if the run neither measured anything nor failed."""
    rate = row[RATE]
    if row["status"] in (OK, UNFINISHED) and rate:
        tokens = cost.global_batch * cost.seq * row["useful_share"]
        error = rate["error"] / rate["median"] if rate["error"] else ERROR
        return Tried(name, codes, tokens / (rate["median"] * cost.gpus), max(error, 1e-4))
    if row["status"] != FAILED:
        return None
    memory = any(ran_out(s["id"]) for s in row["symptoms"])
    return Tried(name, codes, None, out_of_memory=memory, refused_gib=row[REFUSED])


def best(every: Sequence[Tried]) -> Tried | None:
    """Return the fastest run; None if none measured a step."""
    return min((t for t in every if t.step), key=lambda t: t.step or 0.0, default=None)


def columns(each: Iterable[Codes]) -> dict[str, NDArray[np.int64]]:
    """Return the layouts as one array for each axis."""
    rows = [*each]
    return {n: np.array([r[n] for r in rows], np.int64) for n in rows[0]}


FAR = 0.1
"""The standard deviation, as a log, of the difference of two unrelated layouts that the constants do not explain."""
NEAR = 0.2
"""The distance at which the errors of two layouts correlate by 1/e. Both values are the most likely ones for the pairs
of published runs of one model and GPU (tests/tune/test_posterior.py)."""


@frozen
class Known:
    """The log steps of some layouts: their means and their covariance."""

    log_step: Floats = field(eq=False)
    covariance: Floats = field(eq=False)

    def gain(self, of: int, over: int) -> tuple[float, float]:
        """Return the mean and the standard deviation of the log speed-up of layout `of` over layout `over`."""
        c = self.covariance
        spread = c[of, of] + c[over, over] - 2 * c[of, over]
        return float(self.log_step[over] - self.log_step[of]), float(np.sqrt(max(spread, 0.0)))


def known(cost: Cost, layouts: Sequence[Codes], measured: Sequence[Tried]) -> Known:
    """Return the posterior of the layouts' log steps, given the measured layouts that have a step."""
    seen = [t for t in measured if t.step]
    cols = columns([*layouts, *(t.codes for t in seen)])
    steps = cost.time(cols)
    slopes = uncertainty.leaning(cost, cols, steps)
    loads = uncertainty.loads(cost, slopes)
    n, logs = len(layouts), np.log(steps)
    off = np.log([t.step or np.nan for t in seen]) - logs[n:]
    machine = max(uncertainty.doubt(cost, slopes[0]).spread, abs(float(off.mean())) if seen else 0.0)
    prior = loads @ loads.T + machine**2 + FAR**2 / 2 * shared(parts(cost, cols, steps))
    if not seen:
        return Known(logs, prior)
    noise = np.diag([t.error**2 for t in seen])
    weights = np.linalg.solve(prior[n:, n:] + noise, prior[n:, :n]).T
    return Known(logs[:n] + weights @ off, prior[:n, :n] - weights @ prior[n:, :n])


def parts(cost: Cost, cols: uncertainty.Columns, steps: Floats) -> Floats:
    """Return a row for each layout: each machine constant's share of the step, and the log of the step.

    The distance of two layouts is that of their rows, so no list has to say which axes matter.
    """
    moves = dict.fromkeys(cost.hardware.constants.known, uncertainty.NUDGE)
    return np.column_stack([uncertainty.slopes(cost, cols, steps, moves), np.log(steps)])


def shared(each: Floats) -> Floats:
    """Return the correlation of the layouts' errors: 1 for equal rows of `parts`, falling exponentially with their
    distance.

    The distance is the sum of absolute differences, so this is a product of exponential kernels and positive
    semidefinite.
    """
    return np.exp(-np.array([np.abs(each - row).sum(axis=1) for row in each]) / NEAR)


Json = dict[str, Any]
CHECK = (
    "first: the fastest run is slower than its interval. `moedsl gap` says what its log shows; `moedsl profile` of a "
    "traced step on two nodes tells a slow node or network from the layout; a preflight with `node_check on` tests the "
    "nodes"
)
"""The advice before another experiment, if the fastest run is slower than its interval."""
SHOWN = 8
"""The most candidates that are printed."""
_AREA = svg.Area(80.0, 30.0, 900.0, 280.0, (0.0, 0.0), (1.0, 1.0))
"""The diagram in the picture: the legend is on its right, and the jobs' labels hang below it."""
_WIDTH, _HEIGHT = 1200, 500
_BLUE, _GREY, _RED = "#3b6fb6", "#999", "#c0504d"


def report(chosen: Chosen, start: Codes, done: Sequence[Tried], found: Sequence[Candidate], stop: float) -> Json:
    """Return the tried runs with their estimates, the fastest, the candidates, and the next experiment or why there is
    none."""
    fastest = best(done)
    base = fastest.codes if fastest else start
    enough = why_enough(done, found, stop)
    each, slow = list[Json](), False
    for t in done:
        cols = columns([t.codes])
        (step,), (peak,) = chosen.cost.time(cols).tolist(), (chosen.cost.memory(cols) / GIB).tolist()
        factor = uncertainty.doubt(chosen.cost, uncertainty.leaning(chosen.cost, cols, np.array([step]))[0]).factor
        slow |= t is fastest and (t.step or 0.0) > step * factor
        each.append({
            "name": t.name,
            "changes": {n: axes.json_value(axes.BY_NAME[n].decode(c)) for n, c in t.codes.items() if c != base[n]},
            "step_s": t.step,
            RATE: estimate.useful_rate(chosen, t.codes, t.step) if t.step else None,
            "out_of_memory": t.out_of_memory,
            "refused_gib": t.refused_gib if t.out_of_memory else None,
            "predicted_step_s": step, "lower_s": step / factor, "upper_s": step * factor, "predicted_peak_gib": peak,
        })  # fmt: skip
    # Whatever makes the run slower than its interval also hides small gains, so only a change with a predicted gain is
    # next
    gaining = [c for c in found if not slow or c.gain > 0]
    if not gaining and not enough:
        enough = (
            "no single change is expected to be faster, and the run is slower than its interval: find out why first"
        )
    return {
        "run": chosen.problem.program.name,
        "tried": each,
        "fastest": fastest.name if fastest else None,
        "layout": {n: axes.json_value(axes.BY_NAME[n].decode(c)) for n, c in base.items() if n in axes.BY_NAME},
        "candidates": [_json(c, base, fastest) for c in found],
        "check": CHECK if slow else None,
        "next": None if enough else _json(gaining[0], base, fastest),
        "stop": enough,
    }


def _json(c: Candidate, base: Codes, fastest: Tried | None) -> Json:
    """Return a candidate as JSON; its gains are None if no run has measured a step."""
    axis = axes.BY_NAME[c.axis]
    gains = {n: getattr(c, n) if fastest else None for n in ("gain", "low", "high", "expected")}
    return {"axis": c.axis, "from": axes.json_value(axis.decode(base[c.axis])), "to": axes.json_value(c.value),
            **gains, "step_s": c.step, "peak_gib": c.peak / GIB}  # fmt: skip


def text(r: Mapping[str, Any]) -> str:
    """Format a report as text, from its JSON."""
    lines, notes = [f"{r['run']}: {len(r['tried'])} tried"], list[str]()
    if r["tried"]:
        compared = "compared with the fastest" if r["fastest"] else "compared with the plan"
        rows = [("", "s a step", "predicted", "GiB", "useful tokens/s/GPU", compared)]
        for t in r["tried"]:
            changes = " ".join(f"{n}={show(v)}" for n, v in t["changes"].items())
            step = "out of memory" if t["out_of_memory"] else "failed"
            rate = ""
            if t["step_s"] is not None:
                step, rate = f"{t['step_s']:.2f}", f"{t[RATE]:,.0f}"
                changes = "fastest" if t["name"] == r["fastest"] else changes
            predicted = (f"{t['predicted_step_s']:.2f}", f"{t['predicted_peak_gib']:.1f}")
            rows.append((t["name"], step, *predicted, rate, changes))
            # Where the estimate missed the run
            if t["out_of_memory"]:
                lacked = f"{t['refused_gib'] or 0:.1f} GiB less, which it asked for and did not get"
                less = lacked if t["refused_gib"] else "less"
                notes.append(f"{t['name']} ran out of memory: what is tried next is predicted to need {less}")
            elif t["step_s"] is not None and not t["lower_s"] <= t["step_s"] <= t["upper_s"]:
                outside = f"outside the interval of nine in ten runs, {t['lower_s']:.2f} to {t['upper_s']:.2f} s"
                notes.append(f"{t['name']}: the measured step is {outside}; `moedsl gap` says what may make it so")
        lines += table(rows, "lrrrrl")
    if r["candidates"]:
        gains = ("gain", "nine of ten", "expected") if r["fastest"] else ()
        found: list[tuple[str, ...]] = [("one change", "", *gains, "s a step", "GiB")]
        for c in r["candidates"][:SHOWN]:
            cells = [c["axis"], f"{show(c['from'])} -> {show(c['to'])}"]
            if c["gain"] is not None:
                cells += [f"{c['gain']:+.1%}", f"{c['low']:+.1%} to {c['high']:+.1%}", f"{c['expected']:.2%}"]
            found.append((*cells, f"{c['step_s']:.2f}", f"{c['peak_gib']:.1f}"))
        lines += ["", *table(found, "llr")]
    last = f"stop: {r['stop']}"
    if c := r["next"]:
        last = f"next: {candidate(c)}"
        if c["expected"] is not None:
            last += f"; {c['expected']:.1%} can be expected, because it is kept only if it is faster"
    checks = [r["check"]] if r["check"] else []
    return "\n".join([*lines, "", *(wrapped(line, "", "  ", width=110) for line in (*notes, *checks, last))]) + "\n"


def candidate(c: Mapping[str, Any]) -> str:
    """Format a candidate in one line: its gain, or its predicted step and memory if no run has measured a step."""
    change = f"{c['axis']} {show(c['from'])} -> {show(c['to'])}"
    if c["gain"] is None:
        return f"{change}, {c['step_s']:.2f} s a step and {c['peak_gib']:.1f} GiB predicted"
    return f"{change}, {c['gain']:+.1%} ({c['low']:+.1%} to {c['high']:+.1%})"


def picture(tried: Sequence[Json], changes: Sequence[Mapping[str, Any] | None]) -> str:
    """Draw the jobs from left to right as SVG: each speed, the range expected of each change, and the fastest so far.

    `tried` is the report's list, and `changes` are the candidates that the jobs tried, None for the plan itself.
    """
    rates = [t[RATE] or 0.0 for t in tried]
    best = [*accumulate(rates, max)]
    spans = [
        [best[i - 1] * (1 + c[end]) for end in ("low", "high")] if i and c and c["gain"] is not None else []
        for i, c in enumerate(changes)
    ]
    top = 1.05 * (max([*rates, *(high for span in spans for high in span)]) or 1.0)
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
        if any(span):
            said = svg.element("title", "nine of ten were expected here")
            low, high = (area.at(0, end)[1] for end in span)
            shapes.append(_bar(x, low, high, said))
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

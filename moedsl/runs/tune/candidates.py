"""Propose the next experiment: one change to the fastest layout so far, by the gain that can be expected of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import erf, exp, pi, sqrt
from typing import Any

from attrs import evolve, frozen

from moedsl.diagnose.edit import saves
from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.rules.effects import EXECUTION, of_rules
from moedsl.runs.tune.evidence import Codes, Known, Tried, best, columns, known
from moedsl.solver import neighbours
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.solver.uncertainty import NINE_OF_TEN


@frozen
class Candidate:
    """One change and what it should gain in useful tokens, as a share."""

    axis: str
    code: int
    codes: Codes
    gain: float
    """The most likely gain, which can be negative."""
    low: float
    high: float
    """Nine of ten gains are between."""
    expected: float
    """The mean gain if the change is kept only where it is faster."""
    step: float
    """The seconds of a step that are expected."""
    peak: float
    """The predicted bytes at the peak of its memory."""

    @property
    def value(self) -> Any:
        return axes.BY_NAME[self.axis].decode(self.code)


def candidates(chosen: Chosen, start: Codes, done: Sequence[Tried]) -> list[Candidate]:
    """Price every single change to the fastest layout so far (`start` before any was measured), the most promising
    first. What was tried, breaks a law, does not fit or changes the experiment is left out, and after a run that ran
    out of memory what is not enough below it. There is none if every run failed for another reason."""
    fastest = best(done)
    base = fastest.codes if fastest else start
    new = [] if _tells_nothing(done) else [*_new(chosen, base, done)]
    if not new:
        return []
    layouts = [base, *(n.codes for n in new)]
    logs = known(chosen.cost, layouts, done)
    found = [_candidate(n, layouts[i], logs, i) for i, n in enumerate(new, 1)]
    return sorted(found, key=lambda c: -c.expected if fastest else c.step)


def _candidate(n: Neighbour, codes: Codes, logs: Known, at: int) -> Candidate:
    gain, spread = logs.gain(at, 0)
    low, high = (exp(gain + side * NINE_OF_TEN * spread) - 1 for side in (-1, 1))
    step = exp(float(logs.log_step[at]))
    return Candidate(n.axis, n.code, codes, exp(gain) - 1, low, high, expected(gain, spread), step, n.peak_memory)


def expected(gain: float, spread: float) -> float:
    """Return the mean of a normal gain where it is positive."""
    if spread == 0:
        return max(gain, 0.0)
    z = gain / spread
    return spread * exp(-z * z / 2) / sqrt(2 * pi) + gain * (1 + erf(z / sqrt(2))) / 2


def _new(chosen: Chosen, base: Codes, done: Sequence[Tried]) -> Iterator[Neighbour]:
    effects = of_rules(chosen.problem.program.of("effect"))
    row = Row(base, {}, ())
    known_codes = [t.codes for t in done]
    failed = [t for t in done if t.out_of_memory]
    peaks = chosen.cost.memory(columns([t.codes for t in failed])) / GIB if failed else []
    too_much = [(float(peak), t.refused_gib) for peak, t in zip(peaks, failed, strict=True)]
    for n in neighbours.neighbours(chosen.compiled, chosen.cost, row):
        axis = axes.BY_NAME[n.axis]
        same = all(effects.word(axis.name, axis.decode(c)) == EXECUTION for c in (n.code, base[n.axis]))
        fresh = n.codes not in known_codes
        fits = all(saves(was, n.peak_memory / GIB, refused) for was, refused in too_much)
        if n.refused_by is None and same and fresh and fits:
            yield n


def why_enough(done: Sequence[Tried], found: Sequence[Candidate], stop: float) -> str | None:
    """Say why no change is worth another run, if so. Before any run has measured a step, one that fits is."""
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
    """Whether every run failed for a reason that no layout cures."""
    return bool(done) and not any(t.step or t.out_of_memory for t in done)


def changed(row: Row, codes: Codes) -> dict[str, Any]:
    """The axes in which a layout differs from another one, with its values."""
    return evolve(row, codes=codes).changes(row.codes)

"""Propose the next experiment: one change to the fastest layout so far, by the gain that can be expected of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import erf, exp, pi, sqrt
from typing import Any

from attrs import evolve, frozen

from moedsl.rules.effects import EXECUTION, of_rules
from moedsl.schema import axes
from moedsl.solver import neighbours
from moedsl.solver.neighbours import Neighbour
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.solver.uncertainty import NINE_OF_TEN
from moedsl.tune.evidence import Codes, Tried, best
from moedsl.tune.posterior import known

STOP = 0.01
"""The expected gain below which no further run is worth it, as a share of the speed."""


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

    @property
    def value(self) -> Any:
        return axes.BY_NAME[self.axis].decode(self.code)


def candidates(chosen: Chosen, start: Codes, done: Sequence[Tried]) -> list[Candidate]:
    """Price every single change to the fastest layout so far (`start` before any was measured), the most promising
    first. What was tried, breaks a law, does not fit or changes the experiment is left out."""
    fastest = best(done)
    base = fastest.codes if fastest else start
    new = [*_new(chosen, base, done)]
    if not new:
        return []
    layouts = [base, *({**base, n.axis: n.code} for n in new)]
    logs = known(chosen.cost, layouts, done)
    found = [_candidate(n, layouts[i], *logs.gain(i, 0)) for i, n in enumerate(new, 1)]
    return sorted(found, key=lambda c: -c.expected)


def _candidate(n: Neighbour, codes: Codes, gain: float, spread: float) -> Candidate:
    low, high = (exp(gain + side * NINE_OF_TEN * spread) - 1 for side in (-1, 1))
    return Candidate(n.axis, n.code, codes, exp(gain) - 1, low, high, expected(gain, spread))


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
    too_much = min((_peak(chosen, t.codes) for t in done if t.out_of_memory), default=float("inf"))
    for n in neighbours.neighbours(chosen.compiled, chosen.cost, row):
        axis = axes.BY_NAME[n.axis]
        same = all(effects.word(axis.name, axis.decode(c)) == EXECUTION for c in (n.code, base[n.axis]))
        fresh = {**base, n.axis: n.code} not in known_codes
        if n.refused_by is None and same and fresh and n.peak_memory < too_much:
            yield n


def _peak(chosen: Chosen, codes: Codes) -> float:
    return neighbours.repriced(chosen.compiled, chosen.cost, Row(codes, {}, ())).peak_memory


def is_enough(found: Sequence[Candidate], stop: float) -> bool:
    """Whether no change is worth another run."""
    return not found or found[0].expected < stop


def changed(row: Row, codes: Codes) -> dict[str, Any]:
    """The axes in which a layout differs from another one, with its values."""
    return evolve(row, codes=codes).changes(row.codes)

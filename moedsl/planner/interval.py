"""How well the step of a plan is known, and which other layouts are too close to it for the estimate to tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen

from moedsl.cost import Cost
from moedsl.facts.axes import AXES
from moedsl.planner.model.estimate import Interval, Leaning
from moedsl.solver import uncertainty
from moedsl.solver.table import Row

Layouts = Sequence[tuple[Mapping[str, int], float]]
"""Codes of a layout with its step time."""


@frozen
class Known:
    """The interval of the plan's step, and the codes of layouts whose steps cannot be told from it."""

    interval: Interval
    close: frozenset[tuple[int, ...]]

    def is_close(self, codes: Mapping[str, int]) -> bool:
        return _key(codes) in self.close


def known(cost: Cost, row: Row, others: Layouts) -> Known:
    """Price the plan and other layouts with every constant moved, all at once."""
    every = [(row.codes, row.step_time), *others]
    cols = {name: np.array([codes[name] for codes, _ in every]) for name in row.codes}
    steps = np.array([t for _, t in every])
    slope = uncertainty.leaning(cost, cols, steps)
    with np.errstate(invalid="ignore"):
        near = np.abs(np.log(steps[1:] / steps[0])) < uncertainty.apart(cost, slope[1:] - slope[0])
    close = near & np.isfinite(slope[1:]).all(axis=1)
    doubt = uncertainty.doubt(cost, slope[0])
    keys = (_key(codes) for (codes, _), c in zip(others, close, strict=True) if c)
    return Known(_interval(row.step_time, doubt), frozenset(keys))


def _key(codes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(codes[a.name] for a in AXES)


def _interval(step_time: float, d: uncertainty.Doubt) -> Interval:
    leans = tuple(Leaning(t.name, t.moves, t.about) for t in d.leans_on)
    return Interval(step_time / d.factor, step_time * d.factor, leans, d.unlike)

"""Fit the uncertain terms of the memory estimate to measured peaks, and judge them on runs kept back.

A term that a generation states counts as known, and its range as gone. So a term is only stated if the runs determine
it, and none is if the peaks of runs that were kept back come out no better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.facts.calibration import Constants
from moedsl.runs.calibrate.runs import Measured, batches

Floats = NDArray[np.float64]
TERMS = ("uneven_natural", "uneven_balanced", "torch_other", "dispatch_copies", "loss_te", "loss_native")
"""The constants of the estimate's cases (`moedsl.cost.cases`) that have a range."""
EXACT = 0.01
"""The error of a good estimate, as a log ratio: the median of published peaks is 0.9% (docs/accuracy.md)."""
NINE_OF_TEN = 1.645
SEEN = 0.001
"""A term matters to runs of which it moves a peak by this share, from one end of its range to the other."""
DETERMINED = 0.7
"""A term is stated if the runs narrow it to this share of its range, or more."""
BETTER = 0.9
"""The share of the error before that runs kept back may have left."""
STEPS = 12
STILL = 1e-6
"""The share of a term's unit below which a step ends the search."""


@frozen
class MemoryFit:
    """What the peaks of some runs say."""

    constants: Constants
    runs: int
    terms: tuple[str, ...]
    """The terms that matter to these runs."""
    moved: tuple[str, ...] = ()
    """Those that are stated."""
    errors: tuple[float, float, float] | None = None
    """Median errors: before, in the fit, and of runs kept back; None if the runs are too few for the terms."""

    @property
    def helps(self) -> bool:
        """Whether runs kept back come out better than before, by more than chance may do."""
        return self.errors is not None and self.errors[2] < BETTER * self.errors[0]


def fit_memory(runs: Sequence[Measured], start: Constants) -> MemoryFit:
    """Fit to the runs of one architecture that measured their peak; each is also kept back once."""
    some = [r for r in runs if r.peak]
    # The terms that have a range here and move the peak of a run
    out = list[str]()
    for name in TERMS if some else ():
        ends = start.ends(name)
        low, high = (_peaks(some, evolve(start, **{name: ends[end]})) for end in ("low", "high"))
        if np.any(np.abs(high / low - 1) > SEEN):
            out.append(name)
    terms = tuple(out)
    if not terms or len(some) <= len(terms):
        return MemoryFit(start, len(some), terms)
    said, known = _stated(some, start, terms)
    kept_back = [_errors([r], _stated([o for o in some if o is not r], start, terms)[0])[0] for r in some]
    before, fitted, judged = map(_middle, (_errors(some, start), _errors(some, said), np.array(kept_back)))
    fit = MemoryFit(said, len(some), terms, known, (before, fitted, judged))
    return fit if fit.helps else evolve(fit, constants=start, moved=())


def _stated(runs: Sequence[Measured], start: Constants, terms: Sequence[str]) -> tuple[Constants, tuple[str, ...]]:
    """Fit all terms, and state those that the runs determine."""
    found, spread = _search(runs, start, terms)
    known = tuple(t for t, s in zip(terms, spread, strict=True) if s < DETERMINED)
    return evolve(start, **{t: getattr(found, t) for t in known}), known


def _middle(errors: Floats) -> float:
    return float(np.median(np.abs(np.expm1(-errors))))


def _peaks(runs: Sequence[Measured], constants: Constants) -> Floats:
    """Estimate the peak of every run, in bytes, in order."""
    out = np.empty(len(runs))
    for b in batches(runs):
        cost = evolve(b.cost, hardware=evolve(b.cost.hardware, constants=constants))
        out[list(b.at)] = cost.memory(b.columns)
    return out


def _errors(runs: Sequence[Measured], constants: Constants) -> Floats:
    """Log of measured over estimated peak, by run."""
    return np.log(np.array([(r.peak or np.nan) * 1e9 for r in runs]) / _peaks(runs, constants))


def _search(runs: Sequence[Measured], start: Constants, terms: Sequence[str]) -> tuple[Constants, Floats]:
    """Take Gauss and Newton's steps within the ranges; return the constants, and how far each may still move as a share
    of its range. A term that no run tells stays."""
    ends = [start.ends(t) for t in terms]
    low, high = (np.array([e[end] for e in ends]) for end in ("low", "high"))
    first, unit = np.array([e["best"] for e in ends]), (high - low) / (2 * NINE_OF_TEN)

    def at(x: Floats) -> Constants:
        return evolve(start, **dict(zip(terms, map(float, x), strict=True)))

    x, slope, square = first, np.zeros((len(runs), len(terms))), np.eye(len(terms))
    for _ in range(STEPS):
        off = _errors(runs, at(x)) / EXACT
        for i in range(len(terms)):
            step = unit[i] / 10 if x[i] + unit[i] / 10 <= high[i] else -unit[i] / 10
            y = x.copy()
            y[i] += step
            slope[:, i] = (off - _errors(runs, at(y)) / EXACT) / (step / unit[i])
        square = slope.T @ slope + np.eye(len(terms))
        before, x = x, np.clip(x + unit * np.linalg.solve(square, slope.T @ off - (x - first) / unit), low, high)
        if np.all(np.abs(x - before) <= STILL * unit):
            break
    return at(x), np.sqrt(np.diag(np.linalg.inv(square)))

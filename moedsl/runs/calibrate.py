"""Fit the constants of the estimates to measured runs by SciPy's least squares, and print the fit.

Of speed: it minimises the squared log of measured over predicted speed, in units of a good estimate's error, and the
squared distance of each constant from its start, in units of its spread: a constant that no run depends on stays. Runs
that differ only in their date share one vote, and a run far from all others loses its own (Cauchy weights).

Of memory: the uncertain terms of the estimate are fitted to measured peaks, and judged on runs kept back. A term that a
generation states counts as known, and its range as gone. So a term is only stated if the runs determine it, and none is
if the peaks of runs that were kept back come out no better.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.facts.calibration import Constants, fitted
from moedsl.runs.measured_runs import Measured, batches, predicted, with_constants
from moedsl.support.diagnostics import Diagnostic, error
from moedsl.support.text import counted

Floats = NDArray[np.float64]
EXACT = 0.08
"""The error of a good estimate, as a log ratio."""
FAR = 2 * EXACT
"""The error at which a run starts to lose its vote."""
ROUNDS, STEPS, STILL = 3, 20, 1e-4
"""Rounds of weights; in each the most evaluations of the search, and the change of its sum of squares that ends it."""
NUDGE = 1e-3
"""The step in the logarithm of a constant by which slopes are taken."""
Progress = Callable[[str], None]


@frozen
class Fit:
    """The fitted constants, and those that the runs moved by more than a tenth of their spread."""

    constants: Constants
    moved: tuple[str, ...]


def lacks_scipy() -> Diagnostic | None:
    """Report that SciPy is not installed."""
    if find_spec("scipy") is None:
        return error("calibrate.no_scipy")
    return None


def fit(
    runs: Sequence[Measured], start: Constants, progress: Progress = lambda _: None, near: Constants | None = None
) -> Fit:
    """Fit the constants of one architecture to the runs on it that measured their speed.

    The search begins at the constants `near` if they are given, else at `start`. It needs SciPy.
    """
    least_squares: Any = import_module("scipy.optimize").least_squares  # half a second, and of an extra
    known = fitted(start)
    low, high = (np.log([getattr(c, end) * c.scale for c in known.values()]) for end in ("low", "high"))
    x0, x = (np.log([getattr(k, name) for name in known]) for k in (start, near or start))
    spread = np.array([c.spread for c in known.values()])
    asked, measured = batches(runs), np.log([r.tokens or np.nan for r in runs])

    def off(x: Floats) -> Floats:
        return measured - np.log(predicted(asked, _constants(start, x)))

    def residuals(x: Floats, weights: Floats) -> Floats:
        return np.concatenate([weights / EXACT * off(x), (x - x0) / spread])

    def jacobian(x: Floats, weights: Floats) -> Floats:
        """By forward differences; backward at the end of a range. All constants are moved in one pricing."""
        steps = np.where(x + NUDGE <= high, NUDGE, -NUDGE)
        here, *moved = off(np.vstack([x, x + np.diag(steps)]))
        slopes = (np.array(moved) - here).T / steps
        return np.vstack([(weights / EXACT)[:, None] * slopes, np.diag(1 / spread)])

    votes = weights = _votes(runs)
    for i in range(ROUNDS):
        progress(f"fitting {len(runs)} runs, round {i + 1} of {ROUNDS}")
        within = np.clip(x, low, high)
        x = least_squares(residuals, within, jacobian, (low, high), ftol=STILL, max_nfev=STEPS, args=(weights,)).x
        weights = votes * _kept(off(x))
    moved = tuple(n for n, far in zip(known, np.abs(x - x0) > spread / 10, strict=True) if far)
    return Fit(_constants(start, x), moved)


def errors(runs: Sequence[Measured], constants: Constants | None = None) -> Floats:
    """Log of measured over predicted speed, by run."""
    measured = np.array([r.tokens or np.nan for r in runs])
    return np.log(measured / predicted(batches(runs), constants))


def precision(runs: Sequence[Measured], off: Floats) -> Floats:
    """Return how much each run with these errors tells: one over the variance of its log, its share of a vote, and what
    a run far from all others keeps of it."""
    return (_votes(runs) * _kept(off) / EXACT) ** 2


def _kept(off: Floats) -> Floats:
    return 1 / np.sqrt(1 + (off / FAR) ** 2)


def _constants(start: Constants, x: Floats) -> Constants:
    """Take the constants from their logs, of one machine or of several, (machines, constants)."""
    values = map(float, np.exp(x)) if x.ndim == 1 else np.exp(x).T[..., None]
    return evolve(start, **dict(zip(fitted(start), values, strict=True)))


def _votes(runs: Sequence[Measured]) -> Floats:
    keys = [(r.gpu, r.model, r.cost.gpus, r.cost.seq, r.cost.routing, *sorted(r.row.items())) for r in runs]
    shared = Counter(keys)
    return np.array([1 / np.sqrt(shared[k]) for k in keys])


def declaration(arch: str, found: Fit, runs: Sequence[Measured]) -> str:
    """Write ``calibration ARCH { ... }``: three digits of each constant that a fit may move, its meaning, and whether
    the runs moved it; then what else the generation states."""
    gpus = ", ".join(sorted({r.gpu for r in runs}))
    some = f"{counted(len(runs), 'run')} on {gpus}"
    head = f"# Fitted by `moedsl calibrate` to {some}. Constants not from the runs are unchanged.\n"
    k, lines = found.constants, list[str]()
    for name, c in k.known.items():
        if c.spread or k.stated(name) != c.value:
            kept = "" if name in found.moved else " (not from the runs)"
            lines.append(f"  {name} {rounded(k.stated(name)):g}  # {c.about}{kept}")
    return head + f"calibration {arch} {{\n" + "\n".join(lines) + "\n}\n"


def rounded(value: float) -> float:
    """Round to three significant digits."""
    return float(f"{value:.3g}")


def changes(before: Constants, found: Fit) -> Iterator[str]:
    """Print one line for each constant that the runs moved."""
    for name in found.moved:
        values = " -> ".join(f"{k.stated(name):>8.3g}" for k in (before, found.constants))
        yield f"  {name:<10} {values}   {before.known[name].about}"


def verdict(runs: Sequence[Measured], before: Constants, found: Fit) -> str:
    """Print the median error over the runs, with the constants before and after."""
    was, now = (_median_error(errors(runs, c)) for c in (before, found.constants))
    return f"median error of the estimate {was:.1%} -> {now:.1%} over {counted(len(runs), 'run')} (those of the fit)"


def _median_error(logs: Floats) -> float:
    """The median of the errors, as shares, of logs of measured over predicted."""
    return float(np.median(np.abs(np.expm1(-logs))))


def of_memory(f: MemoryFit) -> str:
    """Print how far the estimate is from the measured peaks, or why nothing is fitted to them."""
    if f.errors is None:
        few = f"{f.runs} measured {'peak is' if f.runs == 1 else 'peaks are'} too few for {len(f.terms)} constants"
        return f"memory: {few} ({', '.join(f.terms)}), so none is fitted; give at least {len(f.terms) + 1}"
    before, fitted_, kept = f.errors
    some = counted(f.runs, "run")
    said = f"memory: median error {before:.1%} -> {fitted_:.1%} over {some}, {kept:.1%} on runs kept back"
    if not f.helps:
        return f"{said}: no better than before, so none of its constants is stated"
    return f"{said}; stated: {', '.join(f.moved) or 'none, because these runs determine none'}"


TERMS = ("uneven_natural", "uneven_balanced", "torch_other", "dispatch_copies", "loss_te", "loss_native")
"""The constants of the estimate's cases (`moedsl.cost.cases`) that have a range."""
EXACT_PEAK = 0.01
"""The error of a good estimate, as a log ratio: the median of published peaks is 0.9% (docs/accuracy.md)."""
NINE_OF_TEN = 1.645
SEEN = 0.001
"""A term matters to runs of which it moves a peak by this share, from one end of its range to the other."""
DETERMINED = 0.7
"""A term is stated if the runs narrow it to this share of its range, or more."""
BETTER = 0.9
"""The share of the error before that runs kept back may have left."""
PEAK_STEPS = 12
PEAK_STILL = 1e-6
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
    ends = {name: start.ends(name) for name in (TERMS if some else ())}
    peaks = {n: [_peaks(some, evolve(start, **{n: e[end]})) for end in ("low", "high")] for n, e in ends.items()}
    terms = tuple(n for n, (low, high) in peaks.items() if np.any(np.abs(high / low - 1) > SEEN))
    if not terms or len(some) <= len(terms):
        return MemoryFit(start, len(some), terms)
    said, known = _stated(some, start, terms)
    kept_back = [_errors([r], _stated([o for o in some if o is not r], start, terms)[0])[0] for r in some]
    before, fitted, judged = map(_median_error, (_errors(some, start), _errors(some, said), np.array(kept_back)))
    fit = MemoryFit(said, len(some), terms, known, (before, fitted, judged))
    return fit if fit.helps else evolve(fit, constants=start, moved=())


def _stated(runs: Sequence[Measured], start: Constants, terms: Sequence[str]) -> tuple[Constants, tuple[str, ...]]:
    """Fit all terms by Gauss and Newton's steps within their ranges, and state those that the runs determine: how far
    each may still move is a small share of its range. A term that no run tells stays."""
    ends = [start.ends(t) for t in terms]
    low, high = (np.array([e[end] for e in ends]) for end in ("low", "high"))
    first, unit = np.array([e["best"] for e in ends]), (high - low) / (2 * NINE_OF_TEN)

    def at(x: Floats) -> Constants:
        return evolve(start, **dict(zip(terms, map(float, x), strict=True)))

    x, slope, square = first, np.zeros((len(runs), len(terms))), np.eye(len(terms))
    for _ in range(PEAK_STEPS):
        off = _errors(runs, at(x)) / EXACT_PEAK
        for i in range(len(terms)):
            step = unit[i] / 10 if x[i] + unit[i] / 10 <= high[i] else -unit[i] / 10
            y = x.copy()
            y[i] += step
            slope[:, i] = (off - _errors(runs, at(y)) / EXACT_PEAK) / (step / unit[i])
        square = slope.T @ slope + np.eye(len(terms))
        before, x = x, np.clip(x + unit * np.linalg.solve(square, slope.T @ off - (x - first) / unit), low, high)
        if np.all(np.abs(x - before) <= PEAK_STILL * unit):
            break
    spread = np.sqrt(np.diag(np.linalg.inv(square)))
    known = {t: float(v) for t, v, s in zip(terms, x, spread, strict=True) if s < DETERMINED}
    return evolve(start, **known), tuple(known)


def _peaks(runs: Sequence[Measured], constants: Constants) -> Floats:
    """Estimate the peak of every run, in bytes, in order."""
    out = np.empty(len(runs))
    for b in batches(runs):
        out[list(b.at)] = with_constants(b.cost, constants).memory(b.columns)
    return out


def _errors(runs: Sequence[Measured], constants: Constants) -> Floats:
    """Log of measured over estimated peak, by run."""
    return np.log(np.array([(r.peak or np.nan) * 1e9 for r in runs]) / _peaks(runs, constants))

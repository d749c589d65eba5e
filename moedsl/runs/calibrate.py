"""Fit the constants of the speed and memory estimates to measured runs, and print the fit.

Speed: SciPy's least squares minimises the squared log of measured over predicted speed, in units of a good estimate's
error, plus the squared distance of each constant from its start, in units of its spread: a constant that no run depends
on stays. Runs that differ only in their date share one vote, and outliers lose theirs (Cauchy weights).

Memory: the estimate's uncertain terms are fitted to measured peaks, and checked by leaving each run out once. A term
that a generation's `calibration` states has no range any more. So a term is stated only if the runs determine it, and
none is stated if left-out peaks are predicted no better than before.
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
"""Reweighting rounds, the most evaluations in each, and the relative change of the sum of squares that ends one."""
NUDGE = 1e-3
"""The finite-difference step, in the log of a constant."""
Progress = Callable[[str], None]


@frozen
class Fit:
    """The fitted constants; `moved` names each that the runs moved by more than a tenth of its spread."""

    constants: Constants
    moved: tuple[str, ...]


def lacks_scipy() -> Diagnostic | None:
    """Return an error if SciPy is not installed, else None."""
    if find_spec("scipy") is None:
        return error("calibrate.no_scipy")
    return None


def fit(
    runs: Sequence[Measured], start: Constants, progress: Progress = lambda _: None, near: Constants | None = None
) -> Fit:
    """Fit the speed constants of one architecture to the runs with a measured speed; needs SciPy.

    The search begins at the constants `near` if they are given, else at `start`.
    """
    least_squares: Any = import_module("scipy.optimize").least_squares  # half a second; an optional dependency
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
        """Return forward differences, backward at the upper end of a range; one estimate prices all moved constants."""
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
    """Return the log of measured over predicted speed of each run."""
    measured = np.array([r.tokens or np.nan for r in runs])
    return np.log(measured / predicted(batches(runs), constants))


def precision(runs: Sequence[Measured], off: Floats) -> Floats:
    """Return each run's weight: one over the variance of its log speed, reduced for repeated runs and for outliers."""
    return (_votes(runs) * _kept(off) / EXACT) ** 2


def _kept(off: Floats) -> Floats:
    return 1 / np.sqrt(1 + (off / FAR) ** 2)


def _constants(start: Constants, x: Floats) -> Constants:
    """Return `start` with the constants whose logs are `x`: [constants], or [machines, constants] for several
    machines."""
    values = map(float, np.exp(x)) if x.ndim == 1 else np.exp(x).T[..., None]
    return evolve(start, **dict(zip(fitted(start), values, strict=True)))


def _votes(runs: Sequence[Measured]) -> Floats:
    keys = [(r.gpu, r.model, r.cost.gpus, r.cost.seq, r.cost.routing, *sorted(r.row.items())) for r in runs]
    shared = Counter(keys)
    return np.array([1 / np.sqrt(shared[k]) for k in keys])


def declaration(arch: str, found: Fit, runs: Sequence[Measured]) -> str:
    """Format ``calibration ARCH { ... }``.

    It has each constant that a fit may move or that the generation states, to three digits, with its meaning and
    whether the runs moved it.
    """
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
    """Yield a line for each constant that the runs moved."""
    for name in found.moved:
        values = " -> ".join(f"{k.stated(name):>8.3g}" for k in (before, found.constants))
        yield f"  {name:<10} {values}   {before.known[name].about}"


def verdict(runs: Sequence[Measured], before: Constants, found: Fit) -> str:
    """Format the median error over the runs, with the constants before and after the fit."""
    was, now = (_median_error(errors(runs, c)) for c in (before, found.constants))
    return f"median error of the estimate {was:.1%} -> {now:.1%} over {counted(len(runs), 'run')} (those of the fit)"


def _median_error(logs: Floats) -> float:
    """Return the median error as a share, from logs of measured over predicted."""
    return float(np.median(np.abs(np.expm1(-logs))))


def of_memory(f: MemoryFit) -> str:
    """Format the errors of the estimate against measured peaks, or say why nothing was fitted to them."""
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
"""The memory constants that can have a range (`moedsl.cost.cases`)."""
EXACT_PEAK = 0.01
"""The error of a good estimate, as a log ratio: the median over published peaks is 0.9% (docs/accuracy.md)."""
NINE_OF_TEN = 1.645
SEEN = 0.001
"""A term matters if moving it across its range changes the peak of a run by more than this share."""
DETERMINED = 0.7
"""A term is stated if the runs narrow it to less than this share of its range."""
BETTER = 0.9
"""A fit is used only if the error on left-out runs is below this share of the error before the fit."""
PEAK_STEPS = 12
PEAK_STILL = 1e-6
"""The search ends when every step is below this share of its term's unit."""


@frozen
class MemoryFit:
    """The memory constants fitted to measured peaks, and the errors of the fit."""

    constants: Constants
    runs: int
    terms: tuple[str, ...]
    """The terms that matter to these runs."""
    moved: tuple[str, ...] = ()
    """The terms that are stated."""
    errors: tuple[float, float, float] | None = None
    """Median errors: before the fit, after it, and on left-out runs; None if there are too few runs for the terms."""

    @property
    def helps(self) -> bool:
        """Whether left-out runs are predicted better than before, by more than chance (BETTER)."""
        return self.errors is not None and self.errors[2] < BETTER * self.errors[0]


def fit_memory(runs: Sequence[Measured], start: Constants) -> MemoryFit:
    """Fit the memory terms to one architecture's runs with a measured peak; each is also left out once."""
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
    """Fit all terms by Gauss-Newton within their ranges; return the constants, and the names of the stated terms.

    A term is stated if the runs determine it: its remaining spread is a small share of its range. Others stay.
    """
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
    """Return the log of measured over estimated peak of each run."""
    return np.log(np.array([(r.peak or np.nan) * 1e9 for r in runs]) / _peaks(runs, constants))

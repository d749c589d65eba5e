"""Estimate runs that the constants have not seen: leave out a group of them, fit to the others, ask for the group.

The rival predicts each run with one TFLOPS figure for its GPU and precision, the median of the runs that it has seen
(of the GPU, and of all, where it has seen none).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import MappingProxyType

import numpy as np
from accuracy_groups import Key, Prediction, speed
from accuracy_interval import Slopes, resembles, spreads
from attrs import frozen

from moedsl.facts.calibration import Constants, first_guess
from moedsl.runs.calibrate import fit
from moedsl.runs.measured_runs import Measured


@frozen
class Fold:
    """One group of runs on one architecture: what is fitted to, and what is asked for."""

    name: str
    left: str
    seen: Sequence[Measured]
    unseen: Sequence[Measured]


def folds(runs: Sequence[Measured], groups: Mapping[str, Key], more: Sequence[Measured] = ()) -> Iterator[Fold]:
    """Yield a fold for each group that leaves runs of its architecture to fit to. `more` are only asked for."""
    for name, key in groups.items():
        for arch in sorted({r.arch for r in runs}):
            there, asked = ([r for r in some if r.arch == arch] for some in (runs, [*runs, *more]))
            for left in sorted({k for r in asked if (k := key(r)) is not None}):
                seen = [r for r in there if key(r) != left]
                if seen:
                    yield Fold(name, left, seen, [r for r in asked if key(r) == left])


def left_out(
    some: Sequence[Fold], slope: Slopes = MappingProxyType({}), share: Slopes = MappingProxyType({}), workers: int = 1
) -> dict[str, list[Prediction]]:
    """Return the predictions by the name of the grouping; with slopes and shares also how far the constants leave them
    open, and whether they resemble what was fitted to."""
    _JOBS[:] = [f.seen for f in some]
    out: dict[str, list[Prediction]] = {f.name: [] for f in some}
    for f, constants in zip(some, _fits(workers), strict=True):
        open_ = spreads(f.unseen, f.seen, constants, slope) if slope else [0.0] * len(f.unseen)
        for r, spread in zip(f.unseen, open_, strict=True):
            like = not share or resembles(r, f.seen, spread, share)
            out[f.name].append(Prediction(r, f.left, r.predicted(constants), rival(r, f.seen), spread, like))
    return out


_JOBS: list[Sequence[Measured]] = []
"""What the processes of `left_out` fit, which they inherit: runs are too large to send."""


def _fits(workers: int) -> list[Constants]:
    same = {tuple(r.id for r in seen): i for i, seen in reversed([*enumerate(_JOBS)])}
    if workers == 1:
        found = {i: _fitted(i) for i in same.values()}
    else:
        with ProcessPoolExecutor(workers, get_context("fork")) as pool:
            found = dict(zip(same.values(), pool.map(_fitted, same.values()), strict=True))
    return [found[same[tuple(r.id for r in seen)]] for seen in _JOBS]


def _fitted(number: int) -> Constants:
    seen = _JOBS[number]
    stated = seen[0].cost.hardware.constants
    return fit(seen, first_guess(stated), near=stated).constants


def rival(r: Measured, seen: Sequence[Measured]) -> float:
    """Estimate a run with one TFLOPS figure for its GPU and precision."""
    near = [s for s in seen if (s.gpu, s.precision) == (r.gpu, r.precision)]
    some = near or [s for s in seen if s.gpu == r.gpu] or list(seen)
    tflops = float(np.median([speed(s) * _flops(s) for s in some]))
    return tflops / _flops(r)


def _flops(r: Measured) -> float:
    """Count the model FLOPs of a token."""
    second = r.cost.global_batch * r.cost.seq / r.cost.gpus
    return float(r.cost.model_tflops_per_gpu(1.0, int(r.row["tp"]))) / second

"""How far the estimates are from runs that the constants have not seen, and how far the simplest rival is.

Leave-one-model-out and leave-one-GPU-out: the constants are fitted to all other runs of the architecture and asked for
the one left out. The rival predicts each run with one TFLOPS figure for its GPU and precision, the median of the runs
that it has seen (of the GPU, and of all, where it has seen none).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from attrs import frozen

from moedsl.calibrate.fit import Floats, Progress, fit
from moedsl.calibrate.runs import Measured
from moedsl.schema.calibration import first_guess

Key = Callable[[Measured], str]


@frozen
class Prediction:
    """Tokens/s of a GPU: measured, estimated without having seen `left`, and by the rival."""

    run: Measured
    left: str
    said: float
    rival: float

    @property
    def error(self) -> float:
        """Estimate over measurement, less one."""
        return self.said / _measured(self.run) - 1

    @property
    def rival_error(self) -> float:
        return self.rival / _measured(self.run) - 1


@frozen
class Summary:
    """Of some predictions: sizes are shares, `rank` is Spearman's correlation."""

    runs: int
    median: float
    worst: float
    within_20: float
    rank: float
    rival_median: float


def left_out(runs: Sequence[Measured], key: Key, progress: Progress = lambda _: None) -> list[Prediction]:
    """A prediction for each run, by constants that saw no run of the same key; of a key that has its whole
    architecture to itself there is none."""
    out: list[Prediction] = []
    for arch in sorted({r.arch for r in runs}):
        there = [r for r in runs if r.arch == arch]
        for left in sorted({key(r) for r in there}):
            seen = [r for r in there if key(r) != left]
            if seen:
                progress(f"leaving out {left} on {arch}")
                constants = fit(seen, first_guess(there[0].cost.hardware.constants.watts)).constants
                unseen = (r for r in there if key(r) == left)
                out += [Prediction(r, left, r.predicted(constants), _rival(r, seen)) for r in unseen]
    return out


def summary(predictions: Sequence[Prediction]) -> Summary:
    """Return median and worst error, the share within 20%, the rank correlation, and the baseline's error."""
    error = np.abs([p.error for p in predictions])
    rival = np.abs([p.rival_error for p in predictions])
    measured = np.array([_measured(p.run) for p in predictions])
    return Summary(
        runs=len(predictions),
        median=float(np.median(error)),
        worst=float(error.max()),
        within_20=float(np.mean(error < 0.2)),
        rank=rank_correlation(measured, np.array([p.said for p in predictions])),
        rival_median=float(np.median(rival)),
    )


def by_left(predictions: Sequence[Prediction]) -> Iterator[tuple[str, Summary]]:
    """The summary of each key that was left out."""
    for left in sorted({p.left for p in predictions}):
        yield left, summary([p for p in predictions if p.left == left])


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: the correlation of the ranks, ties sharing theirs."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(x: Floats) -> Floats:
    _, inverse, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[inverse]


def _measured(r: Measured) -> float:
    assert r.tokens is not None
    return r.tokens


def _rival(r: Measured, seen: Sequence[Measured]) -> float:
    """One TFLOPS figure for a GPU and precision."""
    near = [s for s in seen if (s.gpu, s.precision) == (r.gpu, r.precision)]
    some = near or [s for s in seen if s.gpu == r.gpu] or list(seen)
    tflops = float(np.median([_measured(s) * _flops(s) for s in some]))
    return tflops / _flops(r)


def _flops(r: Measured) -> float:
    """Model FLOPs of a token."""
    second = r.cost.global_batch * r.cost.seq / r.cost.gpus
    return float(r.cost.model_tflops_per_gpu(1.0, int(r.row["tp"]))) / second

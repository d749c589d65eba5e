"""The groups of measured runs that `make accuracy` leaves out in turn, and how far the estimates of a group are off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from moedsl.runs.calibrate import Floats
from moedsl.runs.measured_runs import Measured
from moedsl.solver.uncertainty import family

Key = Callable[[Measured], str | None]
"""The group of a run; None if the run is in no group, and always seen."""
RELEASES = ("25.11", "26.02", "26.04", "26.06", "26.08")
UNKNOWN = "not known why"
MEDIAN, WITHIN_20, BIAS = 0.08, 0.90, 0.05
"""The goals for each group: the most median error and bias, and the least share within 20%."""


def age(r: Measured) -> str | None:
    """Return the last release at the run's date."""
    date = re.match(r"(?:20)?(\d\d)[.-](\d\d)", r.release)
    return max((x for x in RELEASES if date and x <= f"{date[1]}.{date[2]}"), default=None)


GROUPS: dict[str, Key] = {
    "model": lambda r: r.model,
    "GPU": lambda r: r.gpu,
    "scale": lambda r: "above 1,024 GPUs" if r.cost.gpus > 1024 else None,
    "routing": lambda r: "natural" if r.cost.routing == "natural" else None,
    "attention": lambda r: family(r.cost.model),
    "length": lambda r: "above 8k tokens" if r.cost.seq > 8192 else None,
    "age": age,
}


@frozen
class Prediction:
    """Tokens/s of a GPU: measured, estimated, and by the rival."""

    run: Measured
    left: str
    said: float
    rival: float
    spread: float = 0.0
    """The standard deviation of its log that comes from the constants."""
    like: bool = True
    """Whether the run resembles those that the constants were fitted to."""

    @property
    def error(self) -> float:
        """Estimate over measurement, less one."""
        return self.said / speed(self.run) - 1

    @property
    def rival_error(self) -> float:
        return self.rival / speed(self.run) - 1


@frozen
class Summary:
    """Of some predictions: sizes are shares, `bias` is the median with its sign, `rank` is Spearman's correlation."""

    runs: int
    median: float
    ninety: float
    bias: float
    within_20: float
    rank: float
    rival_median: float

    @property
    def reaches_goals(self) -> bool:
        return self.median <= MEDIAN and self.within_20 >= WITHIN_20 and abs(self.bias) <= BIAS


def summary(predictions: Sequence[Prediction]) -> Summary:
    """Return the errors of some predictions."""
    signed = np.array([p.error for p in predictions])
    measured = np.array([speed(p.run) for p in predictions])
    return Summary(
        runs=len(predictions),
        median=float(np.median(np.abs(signed))),
        ninety=float(np.quantile(np.abs(signed), 0.9)),
        bias=float(np.median(signed)),
        within_20=float(np.mean(np.abs(signed) < 0.2)),
        rank=rank_correlation(measured, np.array([p.said for p in predictions])),
        rival_median=float(np.median(np.abs([p.rival_error for p in predictions]))),
    )


def by_left(predictions: Sequence[Prediction]) -> Iterator[tuple[str, Summary]]:
    """Yield the summary of each group."""
    for left in sorted({p.left for p in predictions}):
        yield left, summary([p for p in predictions if p.left == left])


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's: the correlation of the ranks, ties sharing theirs; of equal values there is none."""
    ranks = _ranks(a), _ranks(b)
    return float(np.corrcoef(*ranks)[0, 1]) if all(np.ptp(r) for r in ranks) else float("nan")


def _ranks(x: Floats) -> Floats:
    _, inverse, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[inverse]


def speed(r: Measured) -> float:
    """Return the measured tokens/s of a GPU."""
    assert r.tokens is not None
    return r.tokens


def table(predictions: Sequence[Prediction], name: str, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield one row of Markdown for each group, and one for all; `reasons` are those of groups that miss the goals."""
    yield (
        f"| {name} | runs | median error | 90% within | bias | within 20% | rank | rival's median "
        "| with them in the fit | goals |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    seen = [evolve(p, said=p.run.predicted()) for p in predictions]
    for (left, s), (_, fitted) in zip(by_left(predictions), by_left(seen), strict=True):
        why = reasons.get(f"{name} {left}", UNKNOWN)
        yield _row(left, s, fitted, "reached" if s.reaches_goals else f"missed: {why}")
    whole = summary(predictions)
    yield _row("**all**", whole, summary(seen), "reached" if whole.reaches_goals else "missed")


def _row(left: str, s: Summary, fitted: Summary, goals: str) -> str:
    rank = "" if np.isnan(s.rank) else f"{s.rank:.2f}"
    return (
        f"| {left} | {s.runs} | {s.median:.1%} | {s.ninety:.0%} | {s.bias:+.1%} | {s.within_20:.0%} | {rank} "
        f"| {s.rival_median:.0%} | {fitted.median:.1%}, {fitted.bias:+.1%} | {goals} |"
    )

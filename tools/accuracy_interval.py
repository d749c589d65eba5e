"""Write stdlib/calibration/uncertainty.json, and judge the intervals that follow from it on runs left out of a fit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_groups import Prediction
from attrs import asdict, evolve, frozen
from numpy.typing import NDArray

from moedsl.compiler import load_stdlib
from moedsl.facts.calibration import Constant, Constants
from moedsl.runs.calibrate import Floats, errors, precision
from moedsl.runs.measured_runs import Measured, batches
from moedsl.solver import uncertainty
from moedsl.solver.uncertainty import NINE_OF_TEN, Unexplained, family

FILE = Path(__file__).parents[1] / "stdlib" / uncertainty.FILE
WIDEST = 0.25
"""The goal for the width of an interval over its middle, where a run resembles those of the fit."""
FURTHER = {
    "ampere": ("a100_80gb", "hopper", ("bf16",)),
    "rubin": ("vr200", "blackwell", ("bf16", "fp8_current", "mxfp8", "nvfp4")),
}
"""A GPU of each generation without published runs of MoE models, and the generation and formats of the runs that show
what its steps would lean on."""
TOLD = 0.4
"""The part of the deviation by the constants that counts on a generation with runs, for a run unlike those of the fit.
The errors of such runs that were left out grow with about half of it where it is up to 15%, and not beyond, where it
comes from the ranges of launches. The errors of runs that resemble those of the fit do not grow with it."""
OUTSIDE = 20.0
"""What a run outside of its interval costs, for each unit that it is outside, in widths: two over the share of runs
that may be outside (the interval score of Gneiting and Raftery, 2007)."""
STEPS = (0.5, 0.7, 0.85, 0.93, 1.075, 1.18, 1.4, 2.0)
KEPT = 16
"""The constants of a generation that are kept: those that move the runs most. Each costs a plan one millisecond."""
LAUNCHES = [*uncertainty.ADDED].index("launches")
Slopes = Mapping[str, Floats]
"""d log(step) / d log(constant) by run and constant."""


def slopes(runs: Sequence[Measured]) -> Slopes:
    """Price every run with every constant moved."""
    out: dict[str, Floats] = {}
    for b in batches(runs):
        names = tuple(b.cost.hardware.constants.known)
        moved = uncertainty.slopes(b.cost, b.columns, b.cost.time(b.columns), dict.fromkeys(names, uncertainty.NUDGE))
        out |= {runs[i].id: row for i, row in zip(b.at, moved, strict=True)}
    return out


def shares(runs: Sequence[Measured]) -> Slopes:
    """Return what each of `uncertainty.ADDED` adds to each run, as a share."""
    out: dict[str, Floats] = {}
    for b in batches(runs):
        found = uncertainty.added(b.cost, b.columns, b.cost.time(b.columns))
        out |= {runs[i].id: row for i, row in zip(b.at, found, strict=True)}
    return out


def covariance(seen: Sequence[Measured], c: Constants, slope: Slopes) -> Floats:
    """Return the covariance of the logs of constants that were fitted to these runs of one architecture."""
    prior = np.array([_prior(known) ** 2 for known in c.known.values()])
    moved = np.array([slope[r.id] for r in seen]).reshape(len(seen), len(prior))
    told = precision(seen, errors(seen, c)) if seen else np.zeros(0)
    free = prior > 0
    moved = moved * free
    precise = (moved.T * told) @ moved + np.diag(1 / np.where(free, prior, 1))
    return np.linalg.inv(precise) * np.outer(free, free)


def _prior(c: Constant) -> float:
    """Return the standard deviation of the log of a constant before any run is known: its spread, or a quarter of its
    range. The power limit at which others are stated is exact."""
    if c.name == "watts":
        return 0.0
    if c.spread:
        return c.spread
    return float(np.log(c.high / c.low) / 4 if c.low > 0 else np.log(c.high / c.value) / 2)


def spreads(unseen: Sequence[Measured], seen: Sequence[Measured], c: Constants, slope: Slopes) -> list[float]:
    """Return the standard deviation of the log of each unseen run's step that comes from the constants."""
    moved = covariance(seen, c, slope)
    return [float(np.sqrt(slope[r.id] @ moved @ slope[r.id])) for r in unseen]


def resembles(r: Measured, seen: Sequence[Measured], spread: float, share: Slopes) -> bool:
    """Tell whether a run is within what a fit has seen: GPU, attention, number of GPUs, length, what its step leans on,
    and what launches add. Its measurement does not count."""
    return not [*uncertainty.unlike(r.cost, known(seen), TOLD * spread, share[r.id][LAUNCHES])]


def known(seen: Sequence[Measured]) -> uncertainty.Seen:
    """Return what runs of one architecture are, without the covariance."""
    routed = [r for r in seen if r.cost.model.dense_layers < r.cost.model.layers]
    return uncertainty.Seen(
        (),
        np.zeros((0, 0)),
        tuple(sorted({family(r.cost.model) for r in routed})),
        tuple(sorted({r.gpu for r in routed})),
        max((r.cost.gpus for r in seen), default=0),
        max((r.cost.seq for r in seen), default=0),
    )


@frozen
class Left:
    """Predictions of runs that were left out, as columns."""

    off: Floats
    """The size of each error, as a log."""
    spread: Floats
    """The deviation by the constants that counts."""
    added: Floats
    """The share of the step that each of `uncertainty.ADDED` adds, by row."""
    like: NDArray[np.bool_]
    model: NDArray[np.str_]
    new: NDArray[np.bool_]
    """Whether the run's model was left out."""

    @staticmethod
    def of(found: Sequence[Prediction], share: Slopes) -> Left:
        return Left(
            np.abs(np.log1p([p.error for p in found])),
            TOLD * np.array([0.0 if p.like else p.spread for p in found]),
            np.array([share[p.run.id] for p in found]).reshape(len(found), len(uncertainty.ADDED)),
            np.array([p.like for p in found], bool),
            np.array([p.run.model for p in found]),
            np.array([p.left == p.run.model for p in found], bool),
        )

    def only(self, some: NDArray[np.bool_]) -> Left:
        return Left(
            self.off[some], self.spread[some], self.added[some], self.like[some], self.model[some], self.new[some]
        )

    def folds(self) -> Iterator[tuple[NDArray[np.bool_], Left, Left]]:
        """Yield where the runs of each model are, these runs, and the others."""
        for model in np.unique(self.model):
            mine = self.model == model
            yield mine, self.only(mine), self.only(~mine)

    def half(self, u: Unexplained) -> Floats:
        """Return half of each interval, as a log."""
        beyond = np.where(self.like, u.like, u.unlike)
        return NINE_OF_TEN * np.sqrt(self.spread**2 + beyond**2 + (self.added**2) @ [v**2 for v in u.added.values()])

    def inside(self, u: Unexplained) -> NDArray[np.bool_]:
        return self.off <= self.half(u)


def chosen(left: Left) -> Unexplained:
    """Choose the deviations beyond the constants (`scored`). That of runs that resemble the fit's is then so large that
    nine of ten of them lie inside, and of those whose model was left out, if the other deviations come from the runs of
    other models."""
    beyond = np.zeros(len(left.off))
    for at, mine, others in left.folds():
        beyond[at] = mine.off / mine.half(scored(others))
    some = (beyond[left.like], beyond[left.like & left.new])
    scale = max(float(np.quantile(b, 0.9, method="higher")) for b in some if len(b))
    u = scored(left)
    return evolve(u, like=u.like * max(1.0, scale))


def scored(left: Left) -> Unexplained:
    """Return the deviations beyond the constants whose intervals are shortest, with what runs outside cost; then so
    large that nine of ten runs lie inside, of those that resemble the fit's and of the others."""
    x = np.array([0.06, 0.08, *(1.0 for _ in uncertainty.ADDED)])
    best = _cost(left, x)
    for _ in range(len(STEPS)):
        for i in range(len(x)):
            for step in STEPS:
                y = x.copy()
                y[i] *= step
                if (cost := _cost(left, y)) < best:
                    best, x = cost, y
    like = left.only(left.like)
    x = x * np.quantile(like.off / like.half(_unexplained(x)), 0.9, method="higher")
    others = left.only(~left.like)
    known = others.half(_unexplained(np.array([0.0, 0.0, *x[2:]]))) / NINE_OF_TEN
    x[1] = max(x[0], unexplained(others.off, known) if len(known) else 0.0)
    return _unexplained(x)


def _cost(left: Left, x: Floats) -> float:
    half = left.half(_unexplained(x))
    return float(np.mean(2 * half + OUTSIDE * np.maximum(left.off - half, 0)))


def _unexplained(x: Floats) -> Unexplained:
    like, unlike, *added = map(float, x)
    return Unexplained(like, unlike, 0.0, dict(zip(uncertainty.ADDED, added, strict=True)))


def unexplained(off: Floats, spread: Floats) -> float:
    """Return the least further deviation with which nine of ten errors are within the interval."""
    beyond = np.maximum((off / NINE_OF_TEN) ** 2 - spread**2, 0)
    return float(np.sqrt(np.quantile(beyond, 0.9)))


def between(runs: Sequence[Measured], moved: Mapping[str, Floats], slope: Slopes) -> float:
    """Return what the constants leave of the difference of two layouts of a model on a GPU, in one length, format and
    routing. `moved` is the covariance by architecture. A layout with several runs has their mean error."""
    error = {id: e for arch in moved for id, e in _errors(runs, arch)}
    layouts = dict[tuple[Any, ...], list[Measured]]()
    for r in runs:
        layouts.setdefault((_task(r), tuple(r.row.items())), []).append(r)
    off, spread = list[float](), list[float]()
    for (a, mine), (b, others) in combinations(layouts.items(), 2):
        if a[0] == b[0]:
            apart = slope[mine[0].id] - slope[others[0].id]
            off.append(float(np.mean([error[r.id] for r in mine]) - np.mean([error[r.id] for r in others])))
            spread.append(float(np.sqrt(apart @ moved[mine[0].arch] @ apart)))
    return unexplained(np.array(off), np.array(spread))


def _errors(runs: Sequence[Measured], arch: str) -> Iterator[tuple[str, float]]:
    mine = [r for r in runs if r.arch == arch]
    yield from zip((r.id for r in mine), errors(mine).tolist(), strict=True)


def _task(r: Measured) -> tuple[Any, ...]:
    return r.model, r.gpu, r.cost.seq, r.precision, r.cost.routing, r.program.task


def further(papers: Sequence[Measured], runs: Sequence[Measured]) -> dict[str, Any]:
    """Return the generations that only papers measure, or nothing. Their constants are those that would move the runs
    of the generation before most."""
    out = dict[str, Any]()
    for arch, (gpu, before, formats) in FURTHER.items():
        hardware, _ = load_stdlib().gpu(gpu)
        assert hardware is not None, gpu
        lent = [evolve(r, cost=evolve(r.cost, hardware=hardware)) for r in runs if r.arch == before]
        slope = slopes([r for r in lent if r.precision in formats])
        mine = [r for r in papers if r.arch == arch]
        moved = covariance(mine, hardware.constants, slopes(mine))
        out[arch] = {**_seen(mine), "constants": _constants(hardware.constants, moved, [*slope.values()])}
    return out


def write(
    runs: Sequence[Measured], found: Sequence[Prediction], slope: Slopes, share: Slopes, papers: Sequence[Measured]
) -> None:
    """Write the file: the covariance of the constants that the stdlib states, and what they leave of the predictions of
    runs that were left out."""
    generations, moved = dict[str, Any](), dict[str, Floats]()
    for arch in sorted({r.arch for r in runs}):
        mine = [r for r in runs if r.arch == arch]
        c = mine[0].cost.hardware.constants
        moved[arch] = TOLD**2 * covariance(mine, c, slope)
        asked = {p.run.id for p in found if p.run.arch == arch}
        generations[arch] = {**_seen(mine), "constants": _constants(c, moved[arch], [slope[id] for id in asked])}
    u = evolve(chosen(Left.of(found, share)), between=between(runs, moved, slope))
    generations |= further(papers, runs)
    data = {"unexplained": {k: _short(v) for k, v in asdict(u).items()}, "generations": generations}
    FILE.write_text(_text(data) + "\n", encoding="utf-8")
    uncertainty.known.cache_clear()


def _short(value: Any) -> Any:
    return {k: round(v, 3) for k, v in value.items()} if isinstance(value, Mapping) else round(value, 3)


def _seen(runs: Sequence[Measured]) -> dict[str, Any]:
    s = known(runs)
    return {"families": s.families, "on": s.on, "gpus": s.gpus, "seq": s.seq}


def _constants(c: Constants, moved: Floats, slope: Sequence[Floats]) -> dict[str, list[float]]:
    """Return the constants that move the runs most, with the lower triangle of the Cholesky factor of their
    covariance."""
    moves = np.sqrt((np.array(slope) ** 2).mean(axis=0) * np.diag(moved))
    most = np.argsort(-moves, kind="stable")[:KEPT]
    factor, names = np.linalg.cholesky(moved[np.ix_(most, most)]), [*c.known]
    return {
        names[i]: [float(f"{v:.2g}") for v in row[: n + 1]] for n, (i, row) in enumerate(zip(most, factor, strict=True))
    }


def _text(data: Mapping[str, Any]) -> str:
    """Write JSON with a line for each constant."""
    text = json.dumps(data, indent=1)
    return re.sub(r"\[[^\[\]]*\]", lambda m: " ".join(m[0].split()), text)


def judged(found: Mapping[str, Sequence[Prediction]], share: Slopes) -> Iterator[str]:
    """Yield the table of how many runs lie within their intervals, and how wide these are. `by other models` takes the
    deviations beyond the constants from the runs of other models."""
    every = [p for some in found.values() for p in some]
    u, strict = uncertainty.known()[1], strictly(every, share)
    yield (
        "| left out | runs | inside | by other models | that resemble the fit's | inside | balanced ones | inside "
        "| by other models | median width | no wider than 25% |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for name, some in [*found.items(), ("**all**", every)]:
        like = [p for p in some if p.like]
        even = [p for p in like if p.run.cost.routing == "balanced"]
        yield (
            f"| {name} | {len(some)} | {_inside(some, share, u)} | {_share(some, strict)} | {len(like)} "
            f"| {_inside(like, share, u)} | {len(even)} | {_inside(even, share, u)} | {_share(even, strict)} "
            f"| {_widths(even, share, u)} |"
        )


def strictly(found: Sequence[Prediction], share: Slopes) -> dict[int, bool]:
    """Tell whether each prediction is inside with deviations that were chosen without the runs of its model."""
    left, inside = Left.of(found, share), np.zeros(len(found), bool)
    for at, mine, others in left.folds():
        inside[at] = mine.inside(chosen(others))
    return {id(p): bool(i) for p, i in zip(found, inside, strict=True)}


def _share(some: Sequence[Prediction], inside: Mapping[int, bool]) -> str:
    return f"{np.mean([inside[id(p)] for p in some]):.0%}" if some else ""


def _widths(some: Sequence[Prediction], share: Slopes, u: Unexplained) -> str:
    if not some:
        return " | "
    width = 2 * np.sinh(Left.of(some, share).half(u))
    return f"{np.median(width):.0%} | {np.mean(width <= WIDEST):.0%}"


def _inside(some: Sequence[Prediction], share: Slopes, u: Unexplained) -> str:
    return f"{np.mean(Left.of(some, share).inside(u)):.0%}" if some else ""

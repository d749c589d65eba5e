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
from attrs import evolve

from moedsl.calibrate.fit import Floats, errors, precision
from moedsl.calibrate.runs import Measured, batches
from moedsl.compiler import load_stdlib
from moedsl.schema.calibration import Constant, Constants
from moedsl.solver import uncertainty
from moedsl.solver.uncertainty import NINE_OF_TEN, family

FILE = Path(__file__).parents[1] / "stdlib" / uncertainty.FILE
WIDEST = 0.25
"""The goal for the width of an interval over its middle, where a run resembles those of the fit."""
FURTHER = {
    "ampere": ("a100_80gb", "hopper", ("bf16",)),
    "rubin": ("vr200", "blackwell", ("bf16", "fp8_current", "mxfp8", "nvfp4")),
}
"""A GPU of each generation without published runs of MoE models, and the generation and formats of the runs that show
what its steps would lean on."""
KEPT = 16
"""The constants of a generation that are kept: those that move the runs most. Each costs a plan one millisecond."""
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


def resembles(r: Measured, seen: Sequence[Measured]) -> bool:
    """Tell whether a run is within what a fit has seen: attention, GPUs, length."""
    return not [*uncertainty.unlike(r.cost, known(seen))]


def known(seen: Sequence[Measured]) -> uncertainty.Seen:
    """Return what runs of one architecture are, without the covariance."""
    return uncertainty.Seen(
        (),
        np.zeros((0, 0)),
        tuple(sorted({family(r.cost.model) for r in seen if r.cost.model.dense_layers < r.cost.model.layers})),
        max((r.cost.gpus for r in seen), default=0),
        max((r.cost.seq for r in seen), default=0),
    )


def unexplained(off: Floats, spread: Floats) -> float:
    """Return the least further deviation with which nine of ten errors are within the interval."""
    beyond = np.maximum((off / NINE_OF_TEN) ** 2 - spread**2, 0)
    return float(np.sqrt(np.quantile(beyond, 0.9)))


def logs(predictions: Sequence[Prediction]) -> tuple[Floats, Floats]:
    """Return the errors as logs, and the deviations from the constants."""
    return np.log1p([p.error for p in predictions]), np.array([p.spread for p in predictions])


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


def write(runs: Sequence[Measured], found: Sequence[Prediction], slope: Slopes, papers: Sequence[Measured]) -> None:
    """Write the file: the covariance of the constants that the stdlib states, and what they leave of the predictions of
    runs that were left out."""
    generations, moved = dict[str, Any](), dict[str, Floats]()
    for arch in sorted({r.arch for r in runs}):
        mine = [r for r in runs if r.arch == arch]
        c = mine[0].cost.hardware.constants
        moved[arch] = covariance(mine, c, slope)
        asked = {p.run.id for p in found if p.run.arch == arch}
        generations[arch] = {**_seen(mine), "constants": _constants(c, moved[arch], [slope[id] for id in asked])}
    left = {
        name: unexplained(*logs([p for p in found if p.like is like]))
        for name, like in {"like": True, "unlike": False}.items()
    }
    left["unlike"] = max(left.values())
    left["between"] = between(runs, moved, slope)
    generations |= further(papers, runs)
    data = {"unexplained": {k: round(v, 3) for k, v in left.items()}, "generations": generations}
    FILE.write_text(_text(data) + "\n", encoding="utf-8")
    uncertainty.known.cache_clear()


def _seen(runs: Sequence[Measured]) -> dict[str, Any]:
    s = known(runs)
    return {"families": s.families, "gpus": s.gpus, "seq": s.seq}


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


def judged(found: Mapping[str, Sequence[Prediction]]) -> Iterator[str]:
    """Yield the table of how many runs lie within their intervals, and how wide these are."""
    _, left = uncertainty.known()
    yield "| left out | runs | inside | runs that resemble the fit's | inside | median width | no wider than 25% |"
    yield "|---|---|---|---|---|---|---|"
    for name, predictions in [*found.items(), ("**all**", [p for some in found.values() for p in some])]:
        like = [p for p in predictions if p.like]
        yield (
            f"| {name} | {len(predictions)} | {_inside(predictions, left)} | {len(like)} | {_inside(like, left)} "
            f"| {_widths(like, left)} |"
        )


def _widths(like: Sequence[Prediction], left: uncertainty.Unexplained) -> str:
    if not like:
        return " | "
    width = np.array([2 * np.sinh(NINE_OF_TEN * _whole(p, left)) for p in like])
    return f"{np.median(width):.0%} | {np.mean(width <= WIDEST):.0%}"


def _inside(predictions: Sequence[Prediction], left: uncertainty.Unexplained) -> str:
    inside = [abs(np.log1p(p.error)) <= NINE_OF_TEN * _whole(p, left) for p in predictions]
    return f"{np.mean(inside):.0%}" if inside else ""


def _whole(p: Prediction, left: uncertainty.Unexplained) -> float:
    return float(np.hypot(p.spread, left.like if p.like else left.unlike))

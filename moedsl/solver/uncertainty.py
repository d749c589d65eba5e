"""Estimate how well a step time is known, from the constants that it depends on, from how much of it differs between
runs, and from the error that neither explains.

stdlib/calibration/uncertainty.json has, for each generation of GPUs, how the logs of its constants may still vary
together after their fit (without a run: within their ranges), and the runs that they were fitted to; and, from runs
that were left out of a fit, the errors beyond that. `make accuracy` writes it.

Two parts of a step differ between runs, however many runs a constant is fitted to: the time that uneven tokens add,
which the router and its data decide, and the time that launches add, which the host and the release decide. The larger
these parts, the less well the step is known.

Among layouts that the estimate cannot tell apart, `prefer` then chooses the one nearest to a layout that has run: in
the published runs of the model on the GPU (stdlib/calibration/published.jsonl), or in the recipes that Bridge ships for
it. Only rows that the search keeps anyway are compared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import exp, log2

import numpy as np
from attrs import evolve, field, frozen

from moedsl.cost.estimate import Columns, Cost
from moedsl.cost.rows import Floats
from moedsl.facts import axes, recipes
from moedsl.facts.facts import Model
from moedsl.rules.check.program import Program
from moedsl.solver.laws import Compiled, Row
from moedsl.solver.search import Solution
from moedsl.support.resources import stdlib_dir

FILE = "calibration/uncertainty.json"
NINE_OF_TEN = 1.645
"""Standard deviations to each side that contain nine of ten values."""
SHOWN = 3
"""Maximum number of terms to name."""
LAUNCHED = 0.02
"""The share of a step that launches add, above which a run is unlike the published ones, of which few have more (9 of
186)."""
TAUGHT = 0.05
"""The deviation of a step by its constants, above which few runs of the fit constrain those constants."""
NUDGE = 0.02
"""How far, as a log, a constant is moved to measure its slope at a run."""
ADDED: Mapping[str, tuple[Mapping[str, float], str]] = {
    "uneven tokens": (
        {"skew": 0.0, "skew_free": 0.0, "straggling": 0.0},
        "the time that uneven tokens add, which the router and its data decide",
    ),
    "launches": (
        dict.fromkeys(
            (
                "host_attention", "host_router", "host_preprocess", "host_experts", "host_expert", "host_dense",
                "host_mamba", "host_scan", "host_delta", "host_adapter", "host_collective",
            ),
            0.0,
        ),
        "the time that the host's launches add, which the host and the release decide",
    ),
}  # fmt: skip
"""For each part that differs between runs: the constants of a step without it, and a description."""
WITHOUT = [without for without, _ in ADDED.values()]


@frozen
class Seen:
    """What is known about one generation: the constants that steps depend on most, and the runs that they were fitted
    to."""

    names: tuple[str, ...]
    factor: Floats = field(eq=False)
    """The covariance of the logs of the constants is `factor` times its transpose."""
    families: tuple[str, ...]
    """The families of attention (`family`) of the MoE runs."""
    on: tuple[str, ...]
    """The GPUs of these runs."""
    gpus: int
    """The largest number of GPUs of these runs."""
    seq: int
    """The longest sequence of these runs."""

    @property
    def spread(self) -> Floats:
        """Return the standard deviation of the log of each constant."""
        return np.sqrt((self.factor**2).sum(axis=1))


@frozen
class Unexplained:
    """Standard deviations of the log of a step that the constants do not explain."""

    like: float
    """For a run that resembles the runs of the fit."""
    unlike: float
    """For a run that does not."""
    between: float
    """For the difference between two layouts of the same run."""
    added: Mapping[str, float]
    """For each of `ADDED`, as a share of the time that it adds."""


@frozen
class Term:
    """Something that a step depends on: a constant, or one of `ADDED`."""

    name: str
    about: str
    moves: float
    """How far the log of the step moves with one standard deviation of the term."""


@frozen
class Doubt:
    """The uncertainty of one step time."""

    spread: float
    """Standard deviation of the log of the step time."""
    leans_on: tuple[Term, ...]
    """The terms that move the step most, largest first."""
    unlike: tuple[str, ...]
    """How the run differs from the runs that the constants were fitted to."""

    @property
    def factor(self) -> float:
        """Return the factor: nine of ten steps take between the estimate / factor and the estimate x factor."""
        return exp(NINE_OF_TEN * self.spread)


def family(m: Model) -> str:
    """Return the name of the family of attention, or of what replaces most of it."""
    if m.hybrid:
        return "Mamba-2"
    if m.linear:
        return "delta nets"
    if m.sparse:
        return "sparse attention"
    return "MLA" if m.attention == "mla" else "GQA"


@cache
def known() -> tuple[Mapping[str, Seen], Unexplained]:
    """Read the file: what is known about each generation, and the errors that no constant explains."""
    data = json.loads((stdlib_dir() / FILE).read_text(encoding="utf-8"))
    generations = dict[str, Seen]()
    for arch, d in data["generations"].items():
        rows = [*d["constants"].values()]  # rows of a lower triangle
        factor = np.array([[*row, *[0.0] * (len(rows) - len(row))] for row in rows]).reshape(len(rows), len(rows))
        generations[arch] = Seen((*d["constants"],), factor, (*d["families"],), (*d["on"],), d["gpus"], d["seq"])
    return generations, Unexplained(**data["unexplained"])


def slopes(cost: Cost, cols: Columns, base: Floats, moves: Mapping[str, float]) -> Floats:
    """Return d log(step) / d log(constant) by row and constant; `moves` is how far, as a log, each constant is moved,
    and `base` are the step times."""
    return _slopes(_with_each(cost, cols, _moved(cost, moves)), base, moves)


def _moved(cost: Cost, moves: Mapping[str, float]) -> list[Mapping[str, float]]:
    return [{name: getattr(cost.hardware.constants, name) * exp(move)} for name, move in moves.items()]


def _slopes(steps: Floats, base: Floats, moves: Mapping[str, float]) -> Floats:
    return np.log(steps / base[:, None]) / [*moves.values()]


def added(cost: Cost, cols: Columns, base: Floats) -> Floats:
    """Return the share of the step that each of `ADDED` adds, by row."""
    return _added(_with_each(cost, cols, WITHOUT), base)


def _added(without: Floats, base: Floats) -> Floats:
    return 1 - without / base[:, None]


def _with_each(cost: Cost, cols: Columns, changes: Sequence[Mapping[str, float]]) -> Floats:
    """Return the step times with each change of the constants, (rows, changes); all changes are priced at once."""
    hardware = cost.hardware
    names = dict.fromkeys(name for change in changes for name in change)
    each = {n: np.array([[change.get(n, getattr(hardware.constants, n))] for change in changes]) for n in names}
    machines = evolve(hardware, constants=evolve(hardware.constants, **each))
    return evolve(cost, hardware=machines).time(cols).T


def leaning(cost: Cost, cols: Columns, base: Floats) -> Floats:
    """Return `slopes` for the constants of `Seen`, then `added`, by row.

    Each constant is moved down by its standard deviation, because a step that waits for the host stops waiting
    somewhere below.
    """
    seen = known()[0][cost.hardware.arch]
    moves = {name: -float(spread) for name, spread in zip(seen.names, seen.spread, strict=True)}
    steps = _with_each(cost, cols, [*_moved(cost, moves), *WITHOUT])
    moved, without = np.hsplit(steps, [len(moves)])
    return np.ascontiguousarray(np.hstack([_slopes(moved, base, moves), _added(without, base)]))


def loads(cost: Cost, slope: Floats) -> Floats:
    """Return rows of `leaning` times a factor of the constants' covariance: the product of two such rows is how their
    steps vary together.

    Layouts of one run have the same router and hosts, so `ADDED` does not count.
    """
    seen = known()[0][cost.hardware.arch]
    return slope[:, : len(seen.names)] @ seen.factor


def doubt(cost: Cost, slope: Floats) -> Doubt:
    """Return the uncertainty of a step, from its row of `leaning`.

    The constants' remaining uncertainty counts only for a run unlike those of the fit. For other runs the errors do not
    grow with it, and `like` contains them whole (`make accuracy`).
    """
    generations, unexplained = known()
    seen = generations[cost.hardware.arch]
    added = dict(zip(ADDED, slope[len(seen.names) :], strict=True))
    constants = float(np.linalg.norm(loads(cost, slope[None, :])))
    differs = (*unlike(cost, seen, constants, added["launches"]),)
    beyond = [unexplained.unlike, constants] if differs else [unexplained.like]
    spread = np.linalg.norm([*beyond, *(share * unexplained.added[name] for name, share in added.items())])
    about = {name: cost.hardware.constants.known[name].about for name in seen.names}
    about |= {name: text for name, (_, text) in ADDED.items()}
    moves = np.abs(slope * [*seen.spread, *unexplained.added.values()])
    names, largest = [*about], np.argsort(-moves, kind="stable")[:SHOWN]
    terms = tuple(Term(names[i], about[names[i]], float(moves[i])) for i in largest if moves[i] > 0)
    return Doubt(float(spread), terms, differs)


def unlike(cost: Cost, seen: Seen, constants: float, launched: float) -> Iterator[str]:
    """Yield how a run differs from those that the constants were fitted to.

    `constants` is the deviation of its step by the constants, and `launched` the share of the step that launches add.
    """
    if not seen.families:
        yield f"no MoE run on {cost.hardware.arch}"
        return
    if cost.hardware.name not in seen.on:
        yield f"no MoE run on {cost.hardware.name}"
    if family(cost.model) not in seen.families:
        yield f"no run with {family(cost.model)}"
    if cost.gpus > seen.gpus:
        yield f"no run on more than {seen.gpus} GPUs"
    if cost.seq > seen.seq:
        yield f"no run longer than {seen.seq} tokens"
    if constants > TAUGHT:
        yield "hardly a measured run that spends its time on the same parts"
    if launched > LAUNCHED:
        yield f"hardly a run whose launches add {launched:.0%} to its step"


def apart(cost: Cost, slope: Floats) -> Floats:
    """Return the smallest difference between two steps that the estimate can distinguish, as a log, by row.

    `slope` is the difference between their rows of `leaning`: two layouts of a run share most of their errors.
    """
    return NINE_OF_TEN * np.hypot(np.linalg.norm(loads(cost, slope), axis=1), known()[1].between)


MOST = 0.03
"""Maximum share of the step time to give up for nearness; the estimate cannot distinguish layouts this close."""
NEAR = 1.0
"""Maximum doublings of mesh sizes between a layout and one that has run, for the layout to count as near."""
RUNS = "calibration/published.jsonl"
_PIN = re.compile(r"(\w+)=(\[[^\]]*\]|\S+)")


@frozen
class Ran:
    """A layout that has run: a published run or a recipe."""

    name: str
    codes: Mapping[str, int]


@frozen
class Preference:
    """The run that the chosen layout is nearest to, and the layout that the estimate alone would choose."""

    near: Ran
    fastest: Row

    def reason(self, axis: axes.Axis, code: int, rank: str) -> str:
        """Return why a value is not the one that the estimate alone would choose; empty if it is that one."""
        other = self.fastest.codes[axis.name]
        if other == code:
            return ""
        best = axes.show(axis.decode(other))
        return f"nearest to {self.near.name}; {best} is best by {rank}, by less than the estimate can tell"


def has_run(p: Program, gpus: int) -> bool:
    """Whether anything has run with the model on the GPU."""
    return bool(published(p.model.name, p.hardware.name)) or bool(
        recipes.find(p.model.hf, p.hardware.name, gpus, p.task)
    )


def prefer(c: Compiled, found: Solution) -> tuple[Solution, Preference | None]:
    """Put the row first that is nearest to a layout that has run, among the rows that the estimate cannot tell from the
    first; change nothing if none is near."""
    price = next((i for i, law in enumerate(c.ranks) if law.is_price), None)
    if price is None or not found.rows:
        return found, None
    # the rows that equal the first in all keys before the price, and whose price is close
    at, first, limit = len(c.wishes) + price, found.rows[0], 1 + min(MOST, NINE_OF_TEN * known()[1].between)
    alike = (row for row in found.rows if row.keys[:at] == first.keys[:at])
    close = [row for row in alike if row.keys[at] <= first.keys[at] * limit]
    if len(close) < 2:
        return found, None
    # what has run with the model on the GPU, in the format of the first row
    p, precision = c.problem.program, axes.BY_NAME["precision"].decode(first.codes["precision"])
    runs = map(json.loads, published(p.model.name, p.hardware.name))
    ran = [
        Ran(f"{data['id']} of {data['source']}", sizes(data["run"]))
        for data in runs
        if f"precision {precision};" in data["run"]
    ]
    for r in recipes.find(p.model.hf, p.hardware.name, c.problem.gpus, p.task):
        ran.append(Ran(r.name, {n: v for n, v in r.layout.items() if n in axes.MESH}))
    if not ran:
        return found, None
    nearest = {id(row): min(ran, key=lambda r: doublings(row.codes, r.codes)) for row in close}
    best = min(close, key=lambda row: doublings(row.codes, nearest[id(row)].codes))
    if best is found.rows[0] or doublings(best.codes, nearest[id(best)].codes) > NEAR:
        return found, None
    rows = (best, *(r for r in found.rows if r is not best))
    return evolve(found, rows=rows), Preference(nearest[id(best)], found.rows[0])


@cache
def published(model: str, hardware: str) -> tuple[str, ...]:
    """Return one JSON line for each published run of a model on a GPU."""
    start, lines = f'"run": "{model}; {hardware} x ', (stdlib_dir() / RUNS).read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if start in line)


def sizes(run: str) -> dict[str, int]:
    """Read the mesh sizes that a published run pins."""
    pins = dict(_PIN.findall(run.split("pin ")[1]))
    return {n: int(pins[n]) for n in axes.MESH if n in pins}


def doublings(codes: Mapping[str, int], others: Mapping[str, int]) -> float:
    """Return how many doublings of mesh sizes lie between two layouts."""
    names = (n for n in axes.MESH if axes.BY_NAME[n].kind == "int")
    return sum(abs(log2(codes[n] / others.get(n, axes.BY_NAME[n].off))) for n in names)

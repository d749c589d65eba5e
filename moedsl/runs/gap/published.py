"""Find the published run that is nearest to a run, and price by measured pairs what the estimate does not know.

The nearest is of the same model and GPU, with its precision, length and routing if there is one. A release is priced by
configurations that NVIDIA published again later, a field by the pairs of stdlib/calibration/pairs.jsonl: runs that
differ in it alone, or in what belongs to it. What no pair has measured is named without a price.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import exp, log, log2
from statistics import mean
from typing import Any

from attrs import frozen

from moedsl.compiler import compile_source
from moedsl.facts import axes
from moedsl.facts.releases import NEWEST
from moedsl.planner.build import variables
from moedsl.planner.model.plan import Plan
from moedsl.runs.calibrate.runs import Measured, of_line, run_text
from moedsl.runs.gap.settings import State
from moedsl.solver.uncertainty import RUNS, doublings, published, sizes
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source, Span

_SAID = re.compile(r"(\w+) x (\d+); .*?seq (\d+); .*?precision (\w+); routing (\w+)")


@frozen
class Published:
    """A published run with its line."""

    line: Mapping[str, Any]
    run: Measured

    @property
    def state(self) -> State:
        return State(self.run.cost, self.run.row)


def nearest(here: State) -> Published | None:
    """Return the nearest published run; None if none is of this model and GPU."""
    found = min(_lines(here), key=lambda pair: pair[0], default=None)
    if found is None:
        return None
    path = stdlib_dir() / RUNS
    run = of_line(found[1], 1, path.parent, Span(str(path), 0, 0))
    assert isinstance(run, Measured), found[1]  # the stdlib's own runs compile
    return Published(json.loads(found[1]), run)


def _lines(here: State) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield each line of the model and GPU with its distance; of equals the newest release is nearest."""
    precision = axes.BY_NAME["precision"].decode(here.codes["precision"])
    for line in published(here.cost.model.name, here.cost.hardware.name):
        if said := _SAID.search(line):
            _, gpus, seq, format, routing = said.groups()
            data = json.loads(line)
            mesh = doublings(here.codes, sizes(data["run"]))
            # Order releases (26.08, 2026-07-31) by year and month
            release = data.get("release", "")
            year, month = [*map(int, re.findall(r"\d+", release)[:2]), 0, 0][:2]
            yield (
                (format != precision, routing != here.cost.routing, abs(log2(int(seq) / here.cost.seq)),
                 abs(log2(int(gpus) / here.cost.gpus)), mesh, -((year % 100) * 12 + month)), line,
            )  # fmt: skip


Json = dict[str, Any]
PAIRS = "calibration/pairs.jsonl"
RELEASE, AFFINITY = "release", "affinity"
VARIABLE = "env_vars."
_PAGES = re.compile(r"\d\d\.\d\d(\.\d\d)?")
"""A release that NVIDIA's pages of performance name; others are dates of single measurements."""


def prices(here: State, found: Published, plan: Plan) -> tuple[list[Json], list[Json]]:
    """Return the differing settings with a measured price, and those without one."""
    fields = [*_fields(here, found, plan)]
    joined = {name for f in fields for name in f.pop("with", ())}
    every = [*_release(found, plan), *(f for f in fields if f["setting"] not in joined)]
    every.append({"setting": AFFINITY, "here": {}, "there": {}})
    return [e for e in every if "speed" in e], [e for e in every if "speed" not in e]


def _release(found: Published, plan: Plan) -> Iterator[Json]:
    """The release, by the configuration of the published run, or others of its model and GPU, up to the newest release
    that has them. What is newer has no price, nor has an older release of Bridge than the newest."""
    name, run, again = found.line["release"], found.line["run"], _published_again()
    newest, here = max((r for rates in again.values() for r in rates), key=_order), plan.target.bridge == NEWEST.bridge
    groups = [again.get(run, {})], [rates for other, rates in again.items() if _about(other) == _about(run)]
    upto, speeds = next((p for p in (_later(g, name) for g in groups) if here and p[1]), (name, []))
    if speeds:
        yield _priced(RELEASE, upto, name, speeds, found.line["source"])
    if not here or _order(upto) < _order(newest):
        yield {"setting": RELEASE, "here": {RELEASE: f"Bridge {plan.target.bridge}"}, "there": {RELEASE: upto}}


def _later(groups: Sequence[Mapping[str, float]], name: str) -> tuple[str, list[float]]:
    """Return the newest release in which configurations of a release were published again, and the factors of speed of
    going back."""
    both = [rates for rates in groups if name in rates and len(rates) > 1]
    upto = max((r for rates in both for r in rates), key=_order, default=name)
    return upto, [rates[name] / rates[upto] for rates in both if upto in rates and upto != name]


def _about(run: str) -> str:
    """The model and the GPU of a published run's text."""
    return run.split(" x ", 1)[0]


def _order(release: str) -> tuple[int, ...]:
    """Order releases (26.06.01) and dates (2026-07-31)."""
    year, *rest = map(int, re.findall(r"\d+", release))
    return (year % 100, *rest)


@cache
def _published_again() -> Mapping[str, Mapping[str, float]]:
    """The tokens/s of a GPU of each configuration, by the release of the page."""
    out: dict[str, dict[str, float]] = defaultdict(dict)
    for line in _json_lines(RUNS):
        if _PAGES.fullmatch(line["release"]):
            out[line["run"]][line["release"]] = line["tokens_per_s_per_gpu"]
    return out


def _fields(here: State, found: Published, plan: Plan) -> Iterator[Json]:
    """The fields that one of the two runs sets, or sets otherwise, and the variables that the stdlib sets otherwise."""
    stdlib = {VARIABLE + n: v for n, v in _variables(plan).items()}
    ours = {**plan.set, **{VARIABLE + n: v for n, v in plan.env.items()}}
    theirs = {**found.run.program.sets, **stdlib}
    for name in dict.fromkeys((*ours, *theirs)):
        if ours.get(name) != theirs.get(name):
            yield _field(name, ours.get(name), theirs.get(name), here)


def _variables(plan: Plan) -> Mapping[str, Any]:
    """The environment that the stdlib alone gives a run, which is that of NVIDIA's recipes (rules/environment.moe)."""
    chosen = compile_source(Source(plan.name, run_text(plan)), "solve").chosen
    return variables(chosen[0]) if chosen else plan.env


def _field(name: str, ours: Any, theirs: Any, here: State) -> Json:
    """One field; a run that does not set it has the first value of a pair."""
    pairs = _nearest([p for p in _json_lines(PAIRS) if p["field"] == name], here)
    if pairs:
        values = pairs[0]["values"]
        ours, theirs = (values[0] if v is None else v for v in (ours, theirs))
        if ours != theirs and ours in values and theirs in values:
            a, b = values.index(ours), values.index(theirs)
            speeds = [p["step_s"][a] / p["step_s"][b] for p in pairs]
            return _priced(name, ours, theirs, speeds, pairs[0]["source"]) | {"with": pairs[0]["with"]}
    return {"setting": name, "here": {name: ours}, "there": {name: theirs}}


def _nearest(pairs: Sequence[Json], here: State) -> list[Json]:
    """The pairs nearest to a run: by model, then by GPU, then by the number of GPUs."""
    cost = here.cost

    def far(p: Json) -> tuple[bool, bool, float]:
        return p["model"] != cost.model.name, p["hardware"] != cost.hardware.name, abs(log2(p["gpus"] / cost.gpus))

    return [p for p in pairs if far(p) == min(map(far, pairs))]


def _priced(name: str, ours: Any, theirs: Any, speeds: Sequence[float], source: str) -> Json:
    measured = {"pairs": len(speeds), "low": min(speeds), "high": max(speeds), "source": source}
    return {"setting": name, "here": {name: ours}, "there": {name: theirs},
            "speed": exp(mean(map(log, speeds))), "measured": measured}  # fmt: skip


def _json_lines(file: str) -> Iterator[Json]:
    yield from map(json.loads, (stdlib_dir() / file).read_text(encoding="utf-8").splitlines())

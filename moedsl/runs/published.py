"""Find the published run that is nearest to a run, and price each setting in which the two differ.

The nearest is of the same model and GPU, with its precision, length and routing if there is one. What the estimate
knows it prices: a setting is changed before some settings and after others, which gives it different prices. The price
here is the mean of two orders, forward and backward, so the prices multiply to the ratio of the two estimates exactly.

What the estimate does not know is priced by measured pairs: a release by configurations that NVIDIA published again
later, a field by the pairs of stdlib/calibration/pairs.jsonl: runs that differ in it alone, or in what belongs to it.
What no pair has measured is named without a price.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import exp, isfinite, log, log2
from statistics import mean
from typing import Any

import attrs
import numpy as np
from attrs import evolve, frozen

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.facts import axes
from moedsl.facts.releases import NEWEST
from moedsl.planner.build import variables
from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import Measured, of_line, run_text
from moedsl.solver import uncertainty
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


_LAYOUT = axes.MESH
_TOGETHER = (("ep_overlap", "delay_wgrad"), ("offload", "offload_modules"))
"""Axes of which one means nothing without the other."""
_RUN = {"gpus": "GPUs", "seq": "length", "global_batch": "batch", "routing": "routing"}
_KERNELS = tuple(a.name for a in attrs.fields(Cost) if a.name not in (*_RUN, "model", "hardware", "layout"))


@frozen
class State:
    """One run as the estimate sees it."""

    cost: Cost
    codes: Mapping[str, int]

    @property
    def step(self) -> float:
        """Seconds of one step."""
        return float(self.cost.time({n: np.array([c]) for n, c in self.codes.items()})[0])

    @property
    def rate(self) -> float:
        """Tokens/s of a GPU."""
        return float(self.cost.tokens_per_second_per_gpu(self.step))


@frozen
class Setting:
    """What is changed together: fields of the cost and axes."""

    name: str
    fields: tuple[str, ...]
    axes: tuple[str, ...]

    def moved(self, state: State, to: State) -> State:
        """Return the state with this setting of another one."""
        cost = evolve(state.cost, **{f: getattr(to.cost, f) for f in self.fields})
        return State(cost, {**state.codes, **{a: to.codes[a] for a in self.axes}})

    def values(self, state: State) -> Json:
        """Return what is set, by name; axes as in a run file."""
        out = {"pipeline_layout" if f == "layout" else f: getattr(state.cost, f) for f in self.fields}
        return out | {a: axes.json_value(axes.BY_NAME[a].decode(state.codes[a])) for a in self.axes}


def differing(here: State, there: State) -> list[Setting]:
    """List the settings in which two runs differ, those of the experiment first. With other GPUs the layout is another
    one too, so these change together."""
    there = _same_stages(here, there)
    return [s for s in _settings(here.cost.gpus != there.cost.gpus) if s.moved(here, there) != here]


def _same_stages(here: State, there: State) -> State:
    """Return the second run with the pipeline layout of the first as written, if both give the same stages."""
    one, other = (s.cost.layout_for(s.codes["pp"], s.codes["vpp"]) for s in (here, there))
    return State(evolve(there.cost, layout=here.cost.layout), there.codes) if one == other else there


def _settings(scaled: bool) -> Iterator[Setting]:
    if scaled:
        yield Setting("GPUs, batch and layout", ("gpus", "global_batch", "layout"), _LAYOUT)
    for field, name in _RUN.items():
        if field != "gpus" and not (scaled and field == "global_batch"):
            yield Setting(name, (field,), ())
    if not scaled:
        yield Setting("layout", ("layout",), _LAYOUT)
    grouped = [(a.name,) for a in axes.AXES if a.name not in (*_LAYOUT, *(n for g in _TOGETHER for n in g))]
    yield from (Setting(names[0], (), names) for names in (*grouped, *_TOGETHER))
    yield Setting("kernels", _KERNELS, ())


def priced(here: State, there: State) -> list[Json]:
    """Return each setting that differs with both values and its price: the factor of the estimated speed."""
    settings = differing(here, there)
    ways = [_along(here, there, order) for order in (settings, settings[::-1])]
    return [_told(s, here, there, exp((ways[0][s.name] + ways[1][s.name]) / 2)) for s in settings]


def _told(s: Setting, here: State, there: State, speed: float) -> Json:
    """What a setting changes, named by the one axis that differs where several belong together."""
    values, others = s.values(here), s.values(there)
    ours, theirs = _changed(values, others), _changed(others, values)
    alone = s.axes in _TOGETHER and len(ours) == 1
    return {"setting": next(iter(ours)) if alone else s.name, "here": ours, "there": theirs, "speed": speed}


def _along(here: State, there: State, order: Sequence[Setting]) -> dict[str, float]:
    """Return the log of the factor of each setting, changed one after the other. A change to a layout without a price,
    because it needs the next change too, leaves its factor to that one."""
    out, at, rate = dict[str, float](), here, here.rate
    for s in order:
        at = s.moved(at, there)
        after = at.rate
        out[s.name] = log(after / rate) if after > 0 and isfinite(after) else 0.0
        rate = after if after > 0 and isfinite(after) else rate
    return out


def _changed(values: Json, others: Json) -> Json:
    return {n: v for n, v in values.items() if v != others[n]}


def tells(here: State, there: State) -> float:
    """Return the smallest ratio of two speeds that the estimate can tell from one, as a share above 1."""
    slopes = [
        uncertainty.leaning(s.cost, {n: np.array([c]) for n, c in s.codes.items()}, np.array([s.step]))
        for s in (here, there)
    ]
    return exp(float(uncertainty.apart(here.cost, slopes[1] - slopes[0])[0])) - 1

"""Find the published run nearest to a run, and price each setting in which the two differ: its factor of the speed.

The nearest run has the same model and GPU, and the same precision, length and routing if there is such a run. Settings
that the estimate knows are priced by it. A setting's price depends on which settings are changed before it, so the
price is the geometric mean over two orders, forward and backward: the prices multiply to the ratio of the two estimates
exactly.

Other settings are priced by measured pairs: a release by configurations that NVIDIA published again later, a field by
runs in stdlib/calibration/pairs.jsonl that differ only in this field and what belongs to it. A setting without such a
pair is listed without a price.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import exp, isfinite, log, log2
from statistics import mean
from typing import Any

import attrs
import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.cost.rows import Floats
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
    """A published run, with its line of JSON."""

    line: Mapping[str, Any]
    run: Measured

    @property
    def state(self) -> State:
        return State(self.run.cost, self.run.row)


def nearest(here: State) -> Published | None:
    """Return the nearest published run, the newest release of equals; None if there is none for this model and GPU."""
    precision = axes.BY_NAME["precision"].decode(here.codes["precision"])
    found = list[tuple[tuple[Any, ...], str]]()
    for line in published(here.cost.model.name, here.cost.hardware.name):
        if said := _SAID.search(line):
            _, gpus, seq, format, routing = said.groups()
            data = json.loads(line)
            # Order releases (26.08, 2026-07-31) by year and month
            year, month = [*map(int, re.findall(r"\d+", data.get("release", ""))[:2]), 0, 0][:2]
            distance = (
                format != precision, routing != here.cost.routing, abs(log2(int(seq) / here.cost.seq)),
                abs(log2(int(gpus) / here.cost.gpus)), doublings(here.codes, sizes(data["run"])),
                -((year % 100) * 12 + month),
            )  # fmt: skip
            found.append((distance, line))
    if not found:
        return None
    path, (_, line) = stdlib_dir() / RUNS, min(found, key=lambda pair: pair[0])
    run = of_line(line, 1, path.parent, Span(str(path), 0, 0))
    assert isinstance(run, Measured), line  # the stdlib's own runs compile
    return Published(json.loads(line), run)


Json = dict[str, Any]
PAIRS = "calibration/pairs.jsonl"
RELEASE, AFFINITY = "release", "affinity"
VARIABLE = "env_vars."
_PAGES = re.compile(r"\d\d\.\d\d(\.\d\d)?")
"""Matches a release of NVIDIA's performance pages; others are dates of single measurements."""


def prices(here: State, found: Published, plan: Plan) -> tuple[list[Json], list[Json]]:
    """Return the differing settings with a measured price, and those without one.

    The settings are the release, the CPU affinity, and fields and environment variables that the runs set differently.
    """
    # The environment that the stdlib alone gives a run: NVIDIA's recipes have the same (rules/environment.moe)
    chosen = compile_source(Source(plan.name, run_text(plan)), "solve").chosen
    stdlib = variables(chosen[0]) if chosen else plan.env
    ours = {**plan.set, **{VARIABLE + n: v for n, v in plan.env.items()}}
    theirs = {**found.run.program.sets, **{VARIABLE + n: v for n, v in stdlib.items()}}
    names = [n for n in dict.fromkeys((*ours, *theirs)) if ours.get(n) != theirs.get(n)]
    fields = [_field(n, ours.get(n), theirs.get(n), here) for n in names]
    joined = {name for f in fields for name in f.pop("with", ())}
    every = [*_release(found, plan), *(f for f in fields if f["setting"] not in joined)]
    every.append({"setting": AFFINITY, "here": {}, "there": {}})
    return [e for e in every if "speed" in e], [e for e in every if "speed" not in e]


def _release(found: Published, plan: Plan) -> Iterator[Json]:
    """Yield the release with its price, and the part of it that has no price.

    The price is from the published run's configuration, or from others of its model and GPU, up to the newest release
    that has them. Newer releases have no price, and a Bridge older than the newest release has none at all.
    """
    name, run, here = found.line["release"], found.line["run"], plan.target.bridge == NEWEST.bridge
    again = defaultdict[str, dict[str, float]](dict)  # tokens/s/GPU by configuration and page release
    for line in _json_lines(RUNS):
        if _PAGES.fullmatch(line["release"]):
            again[line["run"]][line["release"]] = line["tokens_per_s_per_gpu"]
    newest, about = max((r for rates in again.values() for r in rates), key=_order), run.split(" x ", 1)[0]
    upto, speeds = name, list[float]()
    for group in ([again.get(run, {})], [r for other, r in again.items() if other.split(" x ", 1)[0] == about]):
        # The newest release in which these were published again, and the speed factors of going back from it
        both = [rates for rates in group if name in rates and len(rates) > 1]
        last = max((r for rates in both for r in rates), key=_order, default=name)
        back = [rates[name] / rates[last] for rates in both if last in rates and last != name]
        if here and back:
            upto, speeds = last, back
            break
    if speeds:
        yield _priced(RELEASE, upto, name, speeds, found.line["source"])
    if not here or _order(upto) < _order(newest):
        yield {"setting": RELEASE, "here": {RELEASE: f"Bridge {plan.target.bridge}"}, "there": {RELEASE: upto}}


def _order(release: str) -> tuple[int, ...]:
    """Return the sort key of a release (26.06.01) or date (2026-07-31)."""
    year, *rest = map(int, re.findall(r"\d+", release))
    return (year % 100, *rest)


def _field(name: str, ours: Any, theirs: Any, here: State) -> Json:
    """Return a field with its price from the nearest pairs: by model, then by GPU, then by the number of GPUs.

    A run that does not set the field has the first value of a pair. Without a pair there is no price.
    """
    cost, pairs = here.cost, [p for p in _json_lines(PAIRS) if p["field"] == name]

    def far(p: Json) -> tuple[bool, bool, float]:
        return p["model"] != cost.model.name, p["hardware"] != cost.hardware.name, abs(log2(p["gpus"] / cost.gpus))

    if pairs := [p for p in pairs if far(p) == min(map(far, pairs))]:
        values = pairs[0]["values"]
        ours, theirs = (values[0] if v is None else v for v in (ours, theirs))
        if ours != theirs and ours in values and theirs in values:
            a, b = values.index(ours), values.index(theirs)
            speeds = [p["step_s"][a] / p["step_s"][b] for p in pairs]
            return _priced(name, ours, theirs, speeds, pairs[0]["source"]) | {"with": pairs[0]["with"]}
    return {"setting": name, "here": {name: ours}, "there": {name: theirs}}


def _priced(name: str, ours: Any, theirs: Any, speeds: Sequence[float], source: str) -> Json:
    measured = {"pairs": len(speeds), "low": min(speeds), "high": max(speeds), "source": source}
    return {"setting": name, "here": {name: ours}, "there": {name: theirs},
            "speed": exp(mean(map(log, speeds))), "measured": measured}  # fmt: skip


def _json_lines(file: str) -> Iterator[Json]:
    yield from map(json.loads, (stdlib_dir() / file).read_text(encoding="utf-8").splitlines())


_LAYOUT = axes.MESH
_TOGETHER = (("ep_overlap", "delay_wgrad"), ("offload", "offload_modules"))
"""Axes that are changed together, because the second means nothing without the first."""
_RUN = {"gpus": "GPUs", "seq": "length", "global_batch": "batch", "routing": "routing"}
_KERNELS = tuple(a.name for a in attrs.fields(Cost) if a.name not in (*_RUN, "model", "hardware", "layout"))


@frozen
class State:
    """One run as the estimate sees it."""

    cost: Cost
    codes: Mapping[str, int]

    @property
    def columns(self) -> dict[str, NDArray[np.int64]]:
        return {n: np.array([c]) for n, c in self.codes.items()}

    @property
    def step(self) -> float:
        """Seconds of one step."""
        return float(self.cost.time(self.columns)[0])

    @property
    def leaning(self) -> Floats:
        """The slopes of the log step with respect to the machine's constants (`uncertainty.leaning`)."""
        return uncertainty.leaning(self.cost, self.columns, np.array([self.step]))

    def step_at(self, rate: float) -> float:
        """Return the seconds of one step at `rate` tokens/s/GPU."""
        return float(self.cost.global_batch * self.cost.seq / (rate * self.cost.gpus))

    @property
    def rate(self) -> float:
        """The estimated tokens/s/GPU."""
        return float(self.cost.tokens_per_second_per_gpu(self.step))


@frozen
class Setting:
    """Fields of the cost and axes that are changed together."""

    name: str
    fields: tuple[str, ...]
    axes: tuple[str, ...]

    def moved(self, state: State, to: State) -> State:
        """Return `state` with this setting's values from `to`."""
        cost = evolve(state.cost, **{f: getattr(to.cost, f) for f in self.fields})
        return State(cost, {**state.codes, **{a: to.codes[a] for a in self.axes}})

    def values(self, state: State) -> Json:
        """Return the setting's values by name; axes as in a run file."""
        out = {"pipeline_layout" if f == "layout" else f: getattr(state.cost, f) for f in self.fields}
        return out | {a: axes.json_value(axes.BY_NAME[a].decode(state.codes[a])) for a in self.axes}


def differing(here: State, there: State) -> list[Setting]:
    """List the settings in which two runs differ, the experiment's first.

    If the numbers of GPUs differ, GPUs, batch and layout are one setting, because the layout depends on the GPUs.
    """
    one, other = (s.cost.layout_for(s.codes["pp"], s.codes["vpp"]) for s in (here, there))
    if one == other:  # the same stages, perhaps written differently
        there = State(evolve(there.cost, layout=here.cost.layout), there.codes)
    scaled = here.cost.gpus != there.cost.gpus
    of_gpus = Setting("GPUs, batch and layout", ("gpus", "global_batch", "layout"), _LAYOUT)
    run = [f for f in _RUN if f != "gpus" and not (scaled and f == "global_batch")]
    grouped = [(a.name,) for a in axes.AXES if a.name not in (*_LAYOUT, *(n for g in _TOGETHER for n in g))]
    every = [
        *([of_gpus] if scaled else []),
        *(Setting(_RUN[f], (f,), ()) for f in run),
        *([] if scaled else [Setting("layout", ("layout",), _LAYOUT)]),
        *(Setting(names[0], (), names) for names in (*grouped, *_TOGETHER)),
        Setting("kernels", _KERNELS, ()),
    ]
    return [s for s in every if s.moved(here, there) != here]


def priced(here: State, there: State) -> list[Json]:
    """Return each setting that differs with both values and its price: the factor of the estimated speed."""
    settings = differing(here, there)
    logs = dict.fromkeys((s.name for s in settings), 0.0)
    for order in (settings, settings[::-1]):  # change one setting after the other
        at, rate = here, here.rate
        for s in order:
            at = s.moved(at, there)
            after = at.rate
            # If a layout has no estimate before the next setting is changed too, that setting gets the factor of both
            if after > 0 and isfinite(after):
                logs[s.name] += log(after / rate) / 2
                rate = after
    out = list[Json]()
    for s in settings:
        ours, theirs = s.values(here), s.values(there)
        changed = [n for n in ours if ours[n] != theirs[n]]
        # If only one of the axes in `_TOGETHER` differs, it names the setting
        name = changed[0] if s.axes in _TOGETHER and len(changed) == 1 else s.name
        out.append({"setting": name, "here": {n: ours[n] for n in changed}, "there": {n: theirs[n] for n in changed},
                    "speed": exp(logs[s.name])})  # fmt: skip
    return out


def tells(here: State, there: State) -> float:
    """Return the smallest difference of the two speeds that the estimate can tell, as a share."""
    return exp(float(uncertainty.apart(here.cost, there.leaning - here.leaning)[0])) - 1

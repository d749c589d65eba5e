"""Price what two runs set differently: how much of the ratio of their estimated speeds each setting makes.

A setting is changed before some settings and after others, which gives it different prices. The price here is the mean
of two orders, forward and backward, so the prices multiply to the ratio of the two estimates exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, isfinite, log
from typing import Any

import attrs
import numpy as np
from attrs import evolve, frozen

from moedsl.cost import Cost
from moedsl.facts import axes
from moedsl.solver import uncertainty

Json = dict[str, Any]
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

"""Make the report of one run: measured against predicted, the nearest published run and NVIDIA's recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from moedsl.facts import recipes
from moedsl.planner.model.plan import Plan
from moedsl.planner.shipped import codes_of
from moedsl.runs.gap.log_shows import at_most, shown
from moedsl.runs.gap.measured import prices
from moedsl.runs.gap.published import nearest
from moedsl.runs.gap.settings import State, priced, tells
from moedsl.runs.results.compare import RATE
from moedsl.runs.results.log import Log, samples
from moedsl.runs.results.measure import remarks
from moedsl.solver import uncertainty
from moedsl.solver.table import Row

Json = dict[str, Any]


def report(row: Mapping[str, Any], log_: Log, plan: Plan, here: State) -> Json:
    """Return the report of a measured run; `row` is its row of `moedsl results`."""
    measured = row[RATE]["median"] / row["useful_share"]
    step = row["step_time_s"]["median"]
    if len(row["batches"]) > 1:  # a ramp-up: the step of a whole batch at this speed
        step = here.cost.global_batch * here.cost.seq / (measured * here.cost.gpus)
    seen = shown([*map(Path, log_.files)], _seconds(log_, row["warmup"]))
    share = row["useful_share"]
    return {
        "name": row["name"],
        "remarks": remarks(row),
        "measured": _speed(here, step, measured, share, row["tflops_per_gpu"]),
        "predicted": _predicted(here, step, share),
        "published": _published(here, measured, share, plan, seen),
        "recipe": _recipe(here, plan),
        "log": seen,
    }


def _seconds(log_: Log, warmup: int) -> list[float]:
    return [s.step.seconds for a in log_.attempts for s in samples(a, warmup)]


def _speed(here: State, step: float, rate: float, share: float, logged: float | None) -> Json:
    """Return a speed; `share` of its tokens are useful."""
    tp = here.codes["tp"]
    flops = float(here.cost.model_tflops_per_gpu(step, tp)) if logged is None else logged
    rates = {"tokens_per_s_per_gpu": rate, "useful_tokens_per_s_per_gpu": rate * share}
    return {"step_s": step, **rates, "tflops_per_gpu": flops}


def _predicted(here: State, step: float, share: float) -> Json:
    """The estimate of this run, its interval, and how far the measured step is from it."""
    guess = here.step
    cols = {n: np.array([c]) for n, c in here.codes.items()}
    doubt = uncertainty.doubt(here.cost, uncertainty.leaning(here.cost, cols, np.array([guess]))[0])
    return {
        **_speed(here, guess, here.rate, share, None),
        "lower_s": guess / doubt.factor,
        "upper_s": guess * doubt.factor,
        "speed": guess / step,
        "inside": guess / doubt.factor <= step <= guess * doubt.factor,
    }


def _published(here: State, measured: float, share: float, plan: Plan, log_: Sequence[Json]) -> Json | None:
    """The nearest published run: what differs with its price, what no price explains, and what the log may. Of its
    tokens the same `share` is useful as of this run's."""
    found = nearest(here)
    if found is None:
        return None
    there, theirs = found.state, found.run.tokens
    assert theirs is not None  # all have a speed
    known, unpriced = prices(here, found, plan)
    settings = _largest_first([*priced(here, there), *known])
    explained = exp(sum(log(s["speed"]) for s in settings))
    unexplained, bound = theirs / measured / explained, at_most(log_)
    step = float(there.cost.global_batch * there.cost.seq / (theirs * there.cost.gpus))
    return {
        "id": found.line["id"],
        "source": found.line["source"],
        **_speed(there, step, theirs, share, None),
        "speed": theirs / measured,
        "settings": settings,
        "explained": explained,
        "unexplained": unexplained,
        "log_at_most": bound,
        "left": unexplained / bound,
        "tells": tells(here, there),
        "unpriced": unpriced,
    }


def _recipe(here: State, plan: Plan) -> Json | None:
    """NVIDIA's recipe for this model, GPU and number of GPUs: what differs with its price."""
    shipped = plan.shipped
    known = recipes.named(shipped.target) if shipped else None
    if shipped is None or known is None:
        return None
    codes = codes_of(known.layout, Row(here.codes, {}, ()))
    there = State(evolve(here.cost, layout=known.layout.get("pipeline_layout")), codes)
    if shipped.step_time_s is None:
        return {"name": shipped.name, "refused_by": shipped.refused_by, "because": shipped.because}
    settings = _largest_first(priced(here, there))
    return {
        "name": shipped.name,
        "predicted_step_s": there.step,
        "speed": exp(sum(log(s["speed"]) for s in settings)),
        "verdict": shipped.verdict,
        "settings": settings,
        "written_for": dict(shipped.written_for),
        "tells": tells(here, there),
    }


def _largest_first(settings: Sequence[Json]) -> list[Json]:
    return sorted(settings, key=lambda s: -abs(log(s["speed"])))

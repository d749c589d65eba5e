"""Compare one run's measured speed with its estimate, the nearest published run and NVIDIA's recipe, as JSON and text.

The log shows what no estimate knows: slow steps, data loading, clocks and stragglers. Megatron's timers print the
minimum and maximum over ranks (core timers.py:339) if `logger.timing_log_level` is set; its straggler detector prints
the clocks and speeds of ranks (core utils.py:1770) if `straggler.log_straggler` is set.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from attrs import evolve

from moedsl.diagnose.log_lines import DECIMAL, lines_with
from moedsl.facts import recipes
from moedsl.facts.axes import show
from moedsl.planner.other_layouts import shipped_codes
from moedsl.planner.plan import Plan
from moedsl.runs.published import AFFINITY, State, nearest, priced, prices, tells
from moedsl.runs.results.log import Log, blocks_of, samples
from moedsl.runs.results.measure import RATE, remarks
from moedsl.solver import uncertainty
from moedsl.solver.laws import Row
from moedsl.support.text import table, wrapped

Json = dict[str, Any]


def report(row: Mapping[str, Any], log_: Log, plan: Plan, here: State) -> Json:
    """Return the report of a measured run; `row` is its row of `moedsl results`."""
    share, guess = row["useful_share"], here.step
    measured = row[RATE]["median"] / share
    # A ramp-up has steps of several batches: take the step of the full batch at this speed
    step = row["step_time_s"]["median"] if len(row["batches"]) < 2 else here.step_at(measured)
    seconds = [s.step.seconds for a in log_.attempts for s in samples(a, row["warmup"])]
    seen = problems([*map(Path, log_.files)], seconds)
    doubt = uncertainty.doubt(here.cost, here.leaning[0]).factor
    return {
        "name": row["name"], "remarks": remarks(row),
        "measured": _speed(here, step, measured, share, row["tflops_per_gpu"]),
        "predicted": {  # the estimate of this run, its interval, and how far the measured step is from it
            **_speed(here, guess, here.rate, share),
            "lower_s": guess / doubt,
            "upper_s": guess * doubt,
            "speed": guess / step,
            "inside": guess / doubt <= step <= guess * doubt,
        },
        "published": _published(here, measured, share, plan, seen), "recipe": _recipe(here, plan), "log": seen,
    }  # fmt: skip


def _speed(here: State, step: float, rate: float, share: float, logged: float | None = None) -> Json:
    """Return the figures of a speed; `share` is the useful share of its tokens, `logged` the log's TFLOPS if known."""
    flops = float(here.cost.model_tflops_per_gpu(step, here.codes["tp"])) if logged is None else logged
    rates = {"tokens_per_s_per_gpu": rate, "useful_tokens_per_s_per_gpu": rate * share}
    return {"step_s": step, **rates, "tflops_per_gpu": flops}


def _published(here: State, measured: float, share: float, plan: Plan, log_: Sequence[Json]) -> Json | None:
    """Return the nearest published run: the price of each difference, what no price explains, and what the log may.

    `share` is the useful share of this run's tokens, and taken to be that run's too. None if none has this model and
    GPU.
    """
    found = nearest(here)
    if found is None:
        return None
    there, theirs = found.state, found.run.tokens
    assert theirs is not None  # all have a speed
    known, unpriced = prices(here, found, plan)
    settings, explained = _largest_first([*priced(here, there), *known])
    unexplained, bound = theirs / measured / explained, speed_up_at_most(log_)
    return {
        "id": found.line["id"], "source": found.line["source"], **_speed(there, there.step_at(theirs), theirs, share),
        "speed": theirs / measured, "settings": settings, "explained": explained, "unexplained": unexplained,
        "log_at_most": bound, "left": unexplained / bound, "tells": tells(here, there), "unpriced": unpriced,
    }  # fmt: skip


def _recipe(here: State, plan: Plan) -> Json | None:
    """Return NVIDIA's recipe for this model, GPU and number of GPUs, with the price of each difference; None if it has
    none."""
    shipped = plan.shipped
    known = recipes.named(shipped.target) if shipped else None
    if shipped is None or known is None:
        return None
    if shipped.step_time_s is None:
        return {"name": shipped.name, "refused_by": shipped.refused_by, "because": shipped.because}
    codes = shipped_codes(known.layout, Row(here.codes, {}, ()))
    there = State(evolve(here.cost, layout=known.layout.get("pipeline_layout")), codes)
    settings, speed = _largest_first(priced(here, there))
    return {
        "name": shipped.name, "predicted_step_s": there.step, "speed": speed, "verdict": shipped.verdict,
        "settings": settings, "written_for": dict(shipped.written_for), "tells": tells(here, there),
    }  # fmt: skip


def _largest_first(settings: Sequence[Json]) -> tuple[list[Json], float]:
    """Return the settings sorted by the size of their prices, and the product of the prices."""
    ordered = sorted(settings, key=lambda s: -abs(log(s["speed"])))
    return ordered, exp(sum(log(s["speed"]) for s in ordered))


_SHOWN = {
    "slow steps": "slow steps: {steps} of {of_steps} steps, {share:.1%} of the time; the median step is none of them",
    "data loading": "data loading: {seconds:.3f} s a step, {share:.1%}, on the rank that waits longest",
    "clocks": "clocks: {least_mhz:.0f} to {most_mhz:.0f} MHz; the slowest GPU is {share:.1%} below the fastest",
    "stragglers": "stragglers: {least_tflops:.0f} to {most_tflops:.0f} TFLOPS; the slowest rank is {share:.1%} below",
    "temperature": "temperature: up to {most_celsius:.0f} °C",
    "affinity": "affinity: not bound to the CPUs of their GPU, on {ranks} ranks: {because}",
}


def text(r: Json) -> str:
    """Format the speeds, then each comparison, then what the log shows."""
    predicted, p, recipe = r["predicted"], r["published"], r["recipe"]
    rows = [("", "s a step", "useful tokens/s/GPU", "TFLOPS/GPU", "against measured")]
    for name in ("measured", "predicted", "published"):
        if one := r[name]:
            against = "" if name == "measured" else f"{one[RATE] / r['measured'][RATE] - 1:+.1%}"
            rows.append((name, f"{one['step_s']:.2f}", f"{one[RATE]:,.0f}", f"{one['tflops_per_gpu']:.0f}", against))
    where = "inside" if predicted["inside"] else "outside"
    interval = f"{predicted['lower_s']:.2f} to {predicted['upper_s']:.2f} s"
    tells = _line(f"the measured step is {where} the interval of nine in ten runs, {interval}")
    blocks = [[r["name"], *table(rows, "lr"), tells, *map(_line, r["remarks"])]]
    if p:
        left = p["unexplained"] - 1
        judged = "less than" if abs(left) <= p["tells"] else "more than"
        bound = f"the log explains at most {p['log_at_most'] - 1:+.1%}, which leaves {p['left'] - 1:+.1%}"
        unpriced = (
            "affinity, which no published row states" if s["setting"] == AFFINITY
            else f"{s['setting']} ({_values(s['here'])} -> {_values(s['there'])})"
            for s in p["unpriced"]
        )  # fmt: skip
        blocks.append([
            f"Published  {p['id']} of NVIDIA's {p['source'].removeprefix('docs/')}: {p['speed'] - 1:+.1%}",
            *_settings(p["settings"]),
            _line(f"explained by settings: {p['explained'] - 1:+.1%}"),
            _line(f"not explained: {left:+.1%}, {judged} the ±{p['tells']:.1%} that the estimate can tell here"),
            *([_line(bound)] if p["log_at_most"] > 1 else []),
            _line("no measured price: " + "; ".join(unpriced)),
        ])  # fmt: skip
    else:
        blocks.append(["No published run is of this model and GPU."])
    if not recipe:
        blocks.append(["Bridge ships no recipe for this model, GPU and number of GPUs."])
    elif "refused_by" in recipe:
        why = f"refused here by {recipe['refused_by']}: {recipe['because']}"
        blocks.append([f"NVIDIA's recipe  {recipe['name']}", _line(why)])
    else:
        speed = f"{recipe['predicted_step_s']:.2f} s a step, {recipe['speed'] - 1:+.1%} speed, {recipe['verdict']}"
        written_for = ", ".join(f"{n} {show(v)}" for n, v in recipe["written_for"].items())
        blocks.append([
            f"NVIDIA's recipe  {recipe['name']}", _line(f"predicted {speed}"), *_settings(recipe["settings"]),
            *([_line(f"written for {written_for}")] if written_for else []),
        ])  # fmt: skip
    if r["log"]:
        blocks.append(["The log shows", *(_line(_SHOWN[s["what"]].format(**s)) for s in r["log"])])
    return "\n\n".join(map("\n".join, blocks)) + "\n"


def _settings(settings: Sequence[Json]) -> list[str]:
    """Format each setting with its price and, if the price is not from the estimate, its number of measured pairs."""
    rows = list[tuple[str, ...]]()
    for s in settings:
        change = f"{_values(s['here'])} -> {_values(s['there'])}"
        if m := s.get("measured"):
            spread = f"{m['pairs']} times, {m['low'] - 1:+.1%} to {m['high'] - 1:+.1%}"
            change += f"  (measured {'once' if m['pairs'] == 1 else spread})"
        rows.append((f"{s['speed'] - 1:+.1%}", s["setting"], change))
    return table(rows, "rll")


def _values(values: Json) -> str:
    """Format values with their names; a single value without its name."""
    words = {n: "none" if v is None else show(v) for n, v in values.items()}
    return " ".join(words.values() if len(words) == 1 else (f"{n}={word}" for n, word in words.items()))


def _line(text: str) -> str:
    return wrapped(text, "  ", "    ", width=110)


MOST = 0.99
"""The largest share of a step that a problem can have: what remains is the step itself."""
SLOW = 1.2
"""A step longer than this many medians is slow."""
LOADING = "batch-generator"
_TIMER = re.compile(rf"{LOADING} \.{{2,}}: (?:\({DECIMAL}, )?({DECIMAL})\)?\s*$")
_RANKS = re.compile(rf"(M[nx])(Rtt|Clk|Tmp|Pwr|DRtt|Etpt)/Rnk: ({DECIMAL})(?:ms|us|C|W|MHz|TF)/")
_UNBOUND = re.compile(r"local rank \d+ is not bound to a NUMA node: (.+)")
_WORDS = (LOADING.encode(), b"Rtt/Rnk:", b"is not bound to a NUMA node")


def problems(paths: Sequence[Path], seconds: Sequence[float]) -> list[Json]:
    """Return the problems that the logs of a run show, each with its share of the step, or None if that is unknown.

    `seconds` are the steps after the warm-up. Data loading is from the rank that waits longest, over all microbatches
    of a step; clocks and speeds compare the slowest rank with the fastest.
    """
    loading, unbound = list[float](), list[str]()  # the timer's maximum in ms, and why ranks were not bound
    ranks = defaultdict[str, list[tuple[float, float]]](list)  # (least, most) of each straggler detector figure
    for text in (line for path in paths for block in blocks_of(path) for line in lines_with(_WORDS, block)):
        if timer := _TIMER.search(text):
            loading.append(float(timer[1]))
        if affinity := _UNBOUND.search(text):
            unbound.append(affinity[1])
        ends = {(end, name): float(value) for end, name, value in _RANKS.findall(text)}
        for end, name in ends:
            if end == "Mn" and ("Mx", name) in ends:
                ranks[name].append((ends["Mn", name], ends["Mx", name]))
    found: list[Json] = []
    middle = statistics.median(seconds) if seconds else 0.0
    if over := [s - middle for s in seconds if s > SLOW * middle]:
        share = sum(over) / sum(seconds)
        found.append({"what": "slow steps", "share": share, "steps": len(over), "of_steps": len(seconds)})
    if loading and middle:
        waits = statistics.median(loading) / 1000
        found.append({"what": "data loading", "share": waits / middle, "seconds": waits})
    for name, what, unit in (("Clk", "clocks", "mhz"), ("Etpt", "stragglers", "tflops")):
        if pairs := [(low, high) for low, high in ranks[name] if high]:
            low, high = (statistics.median(column) for column in zip(*pairs, strict=True))
            found.append({"what": what, "share": 1 - low / high, f"least_{unit}": low, f"most_{unit}": high})
    if heat := [high for _, high in ranks["Tmp"]]:
        found.append({"what": "temperature", "share": None, "most_celsius": max(heat)})
    if unbound:
        found.append({"what": "affinity", "share": None, "ranks": len(unbound), "because": unbound[0]})
    return found


def speed_up_at_most(found: Sequence[Json]) -> float:
    """Return an upper bound on the speed-up without the log's problems: data loading, and a slow rank by clock or
    speed.

    Slow steps do not count, because the median step is not one of them.
    """
    share = {s["what"]: s["share"] for s in found}
    slowest = max(share.get("clocks", 0.0), share.get("stragglers", 0.0))
    return 1 / (1 - min(share.get("data loading", 0.0), MOST)) / (1 - min(slowest, MOST))

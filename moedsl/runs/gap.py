"""Compare one run's measured speed with its estimate, the nearest published run and NVIDIA's recipe, as JSON and text.

The log shows what no estimate knows: slow steps, data loading, clocks and stragglers. Megatron's timers print the
minimum and maximum over ranks (core timers.py:339) if `logger.timing_log_level` is set; its straggler detector prints
the clocks and speeds of ranks (core utils.py:1770) if `straggler.log_straggler` is set.

Each setting in which the run and the nearest published one differ has a price: its factor of the speed. The nearest has
the same model and GPU, and the same precision, length and routing if there is such a run. Settings that the estimate
knows are priced by it. A setting's price depends on which settings are changed before it, so the price is the geometric
mean over two orders, forward and backward: the prices multiply to the ratio of the two estimates exactly.

Other settings are priced by measured pairs: a release by configurations that NVIDIA published again later, a field by
runs in stdlib/calibration/pairs.jsonl that differ only in this field and what belongs to it. A setting without such a
pair is listed without a price.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import exp, isfinite, log, log2
from pathlib import Path
from statistics import mean
from typing import Any

import attrs
import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.cost.rows import Floats
from moedsl.diagnose.log_lines import DECIMAL, lines_with
from moedsl.facts import axes, recipes
from moedsl.facts.axes import show
from moedsl.facts.releases import NEWEST
from moedsl.planner.build import variables
from moedsl.planner.other_layouts import shipped_codes
from moedsl.planner.plan import Plan
from moedsl.runs.measured_runs import Measured, of_line, run_text
from moedsl.runs.results.measure import RATE, Log, blocks_of, remarks, samples
from moedsl.solver import uncertainty
from moedsl.solver.laws import Row
from moedsl.solver.uncertainty import RUNS, doublings, published, sizes
from moedsl.support.resources import stdlib_dir
from moedsl.support.source import Source, Span
from moedsl.support.text import paragraph, table

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
    tells = paragraph(f"the measured step is {where} the interval of nine in ten runs, {interval}")
    blocks = [[r["name"], *table(rows, "lr"), tells, *map(paragraph, r["remarks"])]]
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
            paragraph(f"explained by settings: {p['explained'] - 1:+.1%}"),
            paragraph(f"not explained: {left:+.1%}, {judged} the ±{p['tells']:.1%} that the estimate can tell here"),
            *([paragraph(bound)] if p["log_at_most"] > 1 else []),
            paragraph("no measured price: " + "; ".join(unpriced)),
        ])  # fmt: skip
    else:
        blocks.append(["No published run is of this model and GPU."])
    if not recipe:
        blocks.append(["Bridge ships no recipe for this model, GPU and number of GPUs."])
    elif "refused_by" in recipe:
        why = f"refused here by {recipe['refused_by']}: {recipe['because']}"
        blocks.append([f"NVIDIA's recipe  {recipe['name']}", paragraph(why)])
    else:
        speed = f"{recipe['predicted_step_s']:.2f} s a step, {recipe['speed'] - 1:+.1%} speed, {recipe['verdict']}"
        written_for = ", ".join(f"{n} {show(v)}" for n, v in recipe["written_for"].items())
        blocks.append([
            f"NVIDIA's recipe  {recipe['name']}", paragraph(f"predicted {speed}"), *_settings(recipe["settings"]),
            *([paragraph(f"written for {written_for}")] if written_for else []),
        ])  # fmt: skip
    if r["log"]:
        blocks.append(["The log shows", *(paragraph(_SHOWN[s["what"]].format(**s)) for s in r["log"])])
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

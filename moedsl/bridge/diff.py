"""Compare two runs, and print `moedsl diff`: which differences change the experiment, and which only how it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.bridge.fields import built_by
from moedsl.bridge.run_sides import Side
from moedsl.compiler import load_stdlib
from moedsl.facts import axes
from moedsl.facts.axes import show
from moedsl.facts.facts import Model
from moedsl.planner import experiment
from moedsl.planner.plan import Plan
from moedsl.rules.rule import BENCHMARK, EXECUTION, EXPERIMENT, GROUPS, UNKNOWN, Effects, Rule, is_known, of_rules
from moedsl.solver import neighbours
from moedsl.solver.solve import Chosen
from moedsl.support.text import wrapped

Json = Mapping[str, Any]
ABSENT = "not set"
_HEAD = ("model", "task", "phase", "hardware", "gpus")
_FACTS = "model facts"
_SKIPPED = tuple(a.name for a in axes.FOLLOWING if a.kind == "int")
"""Sizes that follow from the others and are compared through them."""


def compare(a: Side, b: Side) -> dict[str, Any]:
    """Compare two runs as JSON: differences by group, estimates of both, which is a benchmark, and a verdict.

    Two plans compare by keywords, anything else by Bridge's fields.
    """
    effects = _effects(a, b)
    by_words = a.plan is not None and b.plan is not None
    left, right = (_words(a, a.plan), _words(b, b.plan)) if a.plan and b.plan else (_beside(a, b), _beside(b, a))
    names = _names(left, right, by_words, a, b)
    pairs = {n: (left.get(n, ABSENT), right.get(n, ABSENT)) for n in names}
    lines = [_line(n, *pair, effects, a) for n, pair in pairs.items() if not _same(*pair)]
    groups = {g: [x for x in lines if x["effect"] == g] for g in GROUPS}
    bench = {"a": _benchmarks(left, effects), "b": _benchmarks(right, effects)}
    found = verdict(groups, bench)
    return {
        "version": 1,
        "a": _side(a),
        "b": _side(b),
        "by": "words" if by_words else "fields",
        "compared": len(names),
        "one_sided": len({*left} ^ {*right}) if not by_words and len(names) < len({*left, *right}) else 0,
        "changes": groups,
        "benchmark": bench,
        "estimates": _estimates(a, b),
        "verdict": {**found, "says": [*refusals(a, b), *found["says"]]},
    }


def _side(s: Side) -> dict[str, Any]:
    said = {"name": s.name, "how": s.how, "unread": list(s.unread), "refused": s.refused}
    return {**said, "fingerprint": s.plan.experiment.fingerprint} if s.plan else said


def _effects(a: Side, b: Side) -> Effects:
    """The effects of the stdlib and of both runs."""
    rules: Sequence[Rule] = (*a.rules, *b.rules)
    if not rules:
        from moedsl.rules.collect import of_library

        rules = of_library(load_stdlib())[0]
    return of_rules(rules)


def _beside(s: Side, other: Side) -> Mapping[str, Any]:
    """The fields of a side, with what the lines of a recipe and the plan on the other side say of one another.

    A line may set what the plan leaves to Bridge: its recipe has Bridge's value there.
    """
    if s.plan is not None:
        model = _model(s)
        known = built_by(s.plan, model) if model and other.stated else {}
        return {n: known.get(n, ABSENT) for n in _left_open(s, other) if known} | {**s.fields}
    return {**s.fields, **{n: s.stated[n] for n in _left_open(other, s)}} if other.plan else s.fields


def _left_open(plan: Side, recipe: Side) -> Iterator[str]:
    """The fields that a recipe's lines set to a plain value and that a plan leaves open."""
    return (n for n, value in recipe.stated.items() if n not in plan.fields and not isinstance(value, Mapping))


def _model(s: Side) -> Model | None:
    """The model of a plan: the run's own, or the stdlib's of that name."""
    if s.chosen is not None:
        return s.chosen.problem.program.model
    library = load_stdlib()
    known = s.plan is not None and s.plan.model in library.models
    return library.model(s.plan.model)[0] if s.plan and known else None


def _words(s: Side, p: Plan) -> dict[str, Any]:
    """Flatten a plan: keywords, derived and set fields, environment."""
    out = {n: getattr(p, n) for n in _HEAD} | {"target": p.target.bridge}
    words = experiment.settings(p.batch, p.layout, p.policy)
    out |= {n: v for n, v in words.items() if n not in _SKIPPED}
    out |= {experiment.path_of(n): v for n, v in p.derived.items()} | dict(p.set)
    if s.chosen is not None:
        out[_FACTS] = experiment.fingerprint({}, experiment.facts_of(s.chosen.problem.program.model))
    return out | {f"env_vars.{n}": v for n, v in p.env.items()}


def _names(left: Json, right: Json, by_words: bool, a: Side, b: Side) -> list[str]:
    """The names that both sides know: of two plans or two recipes all; of two kinds, those that both have."""
    alike = by_words or (a.whole, a.how) == (b.whole, b.how)
    names = [*left, *(n for n in right if n not in left)]
    if _FACTS in names and not (_FACTS in left and _FACTS in right):
        names.remove(_FACTS)
    return names if alike else [n for n in names if n in left and n in right]


def _same(a: Any, b: Any) -> bool:
    """Whether two values are equal or both off: Bridge reads an unset flag as false, and an unset word as "none"."""
    return a == b or all(v is None or v is False or v == "none" for v in (a, b))


def _line(name: str, a: Any, b: Any, effects: Effects, side: Side) -> dict[str, Any]:
    """Write one difference with the reason of its effect, and its own effect on A."""
    effect = EXPERIMENT if name == _FACTS else UNKNOWN if _is_stranger(name, effects) else effects.pair(name, a, b)
    out = {"name": name, "a": a, "b": b, "effect": effect, "because": _because(name, (a, b), effects)}
    alone = None if ABSENT in (a, b) else _alone(name, b, side)
    return {**out, "alone": alone} if alone else out


def _is_stranger(name: str, effects: Effects) -> bool:
    """Whether a name is no field of Bridge and no effect names it: the effect of its section means nothing then."""
    return "." in name and not is_known(name) and name not in effects.rules


def _because(name: str, values: Sequence[Any], effects: Effects) -> str | None:
    """The reason of a name's effect; if both values have one, that of the benchmark."""
    ordered = sorted(values, key=lambda v: not effects.is_benchmark(name, v))
    return effects.reason(name, ordered[0])


def _alone(name: str, value: Any, side: Side) -> str | None:
    """The effect of this one change on A's step time and memory."""
    if side.chosen is not None and name in axes.BY_NAME:
        return _priced(side.chosen, name, value)
    decided = (d for d in (side.plan.decisions if side.plan else ()) if d.name == name)
    found = (x.effect for d in decided for x in d.alternatives if x.value == value)
    return next(found, None)


def _priced(c: Chosen, name: str, value: Any) -> str | None:
    axis, row = axes.BY_NAME[name], c.solution.rows[0]
    (near,) = neighbours.judged(c.compiled, c.cost, row, [(axis, axis.encode(value))])
    return neighbours.effect(near, row)


def _benchmarks(values: Json, effects: Effects) -> list[dict[str, Any]]:
    known = {n: v for n, v in values.items() if v != ABSENT}
    return [b.to_json() for b in experiment.benchmarks(known, effects)]


_ESTIMATES = ("step_time_s", "tokens_per_s_per_gpu", "model_tflops_per_gpu")


def _estimates(a: Side, b: Side) -> dict[str, Any] | None:
    """Compare the estimates of two plans; useful tokens allow batches of different sizes."""
    if a.plan is None or b.plan is None:
        return None
    plans = (a.plan, b.plan)
    pairs = {n: [getattr(p.estimate, n) for p in plans] for n in _ESTIMATES}
    peak = [p.estimate.memory.peak_gib for p in plans]
    tokens = [p.batch.global_batch * p.batch.seq for p in plans]
    hours = [1e9 / (3600 * rate) for rate in pairs["tokens_per_s_per_gpu"]]
    return {**pairs, "peak_gib": peak, "tokens_per_step": tokens, "gpu_hours_per_1e9_tokens": hours}


def verdict(groups: Mapping[str, Sequence[Json]], bench: Mapping[str, Sequence[Json]]) -> dict[str, Any]:
    """Whether it is the same experiment (None: not known), which sides are benchmarks, and a sentence for each."""
    only = [s for s in ("a", "b") if _names_of(bench[s]) - _names_of(bench["b" if s == "a" else "a"])]
    differs = _names_of([*groups[EXPERIMENT], *groups[BENCHMARK]])
    same = False if differs else None if groups[UNKNOWN] else True
    return {"same_experiment": same, "benchmark_only": only, "says": [*_says(groups, bench, only, same)]}


def refusals(a: Side, b: Side) -> Iterator[str]:
    """Report what Bridge refuses, and how the other side is compared then."""
    for name, side in (("A", a), ("B", b)):
        if side.refused:
            yield f"Bridge refuses {name}: {side.refused}"
    if a.as_built or b.as_built:
        yield "so recipes are compared as built, before what runtime_config_update would set"


def _names_of(found: Sequence[Json]) -> set[str]:
    return {str(x["name"]) for x in found}


def _says(
    groups: Mapping[str, Sequence[Json]], bench: Mapping[str, Sequence[Json]], only: Sequence[str], same: bool | None
) -> Iterator[str]:
    shared = _names_of(bench["a"]) & _names_of(bench["b"])
    for side in only:
        why = ", ".join(f"{x['name']} {axes.show(x['value'])}" for x in bench[side] if x["name"] not in shared)
        yield f"{side.upper()} is benchmark-only ({why}): its speed is not that of training, its loss is meaningless"
    if same is False and (groups[EXPERIMENT] or not only):
        yield "different experiments: do not compare losses"
    elif same is None:
        unknown = f"no rule states the effect of {len(groups[UNKNOWN])} of the fields that differ"
        yield f"it is unknown whether this is the same experiment: {unknown}"
    elif same and groups[EXECUTION]:
        yield "the same experiment, run differently"
    elif same:
        yield "no difference in what was compared"
    if shared:
        yield f"both are benchmarks by {', '.join(sorted(shared))}: neither loss is meaningful"


TITLES = {
    EXPERIMENT: "Changes the experiment",
    BENCHMARK: "Benchmark-only",
    UNKNOWN: "Unknown: no rule states its effect",
    EXECUTION: "Changes only how it runs",
}
_ENV = "env_vars."


def text(d: Json) -> str:
    """Print the verdict, then each group of differences, then the estimates."""
    parts = [_head(d), *_groups(d), _estimate_lines(d), _notes(d)]
    return "\n\n".join(p for p in parts if p) + "\n"


def _head(d: Json) -> str:
    sides = [f"{s.upper()}  {d[s]['name']}{_mark(d[s])}" for s in ("a", "b")]
    return "\n".join([*sides, "", *d["verdict"]["says"]])


def _mark(side: Json) -> str:
    return f"  experiment {side['fingerprint']}" if "fingerprint" in side else f"  ({side['how']})"


def _groups(d: Json) -> Iterator[str]:
    for effect, title in TITLES.items():
        lines = d["changes"][effect]
        if lines:
            yield "\n".join([title, *_table(lines, effect)])


def _table(lines: Sequence[Json], effect: str) -> Iterator[str]:
    width = max(len(x["name"]) for x in lines)
    for x in sorted(lines, key=lambda x: x["name"].startswith(_ENV)):
        alone = f"  (alone: {x['alone']})" if x.get("alone") else ""
        yield f"  {x['name'].ljust(width)}  {_pair(x['a'], x['b'])}{alone}"
        if x["because"] and (effect == BENCHMARK or x["name"] in ("micro_batch", "train.micro_batch_size")):
            yield wrapped(x["because"], " " * (width + 4), width=max(100, width + 64))


def _pair(a: Any, b: Any) -> str:
    """Write both values in words; as JSON if the words are equal, as for null and an empty list."""
    words = [_word(v) for v in (a, b)]
    return " -> ".join(words if words[0] != words[1] else [json.dumps(v) for v in (a, b)])


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else show(value)


_ROWS = (
    ("step_time_s", "step time", "{:.2f} s"),
    ("peak_gib", "peak memory", "{:.1f} GiB"),
    ("tokens_per_step", "useful tokens a step", "{:,.0f}"),
    ("tokens_per_s_per_gpu", "useful tokens/s/GPU", "{:,.0f}"),
    ("gpu_hours_per_1e9_tokens", "GPU hours for 1e9 tokens", "{:.2f}"),
)


def _estimate_lines(d: Json) -> str:
    """Print both estimates, with the change in per cent; rates of useful tokens are comparable for any batches."""
    e = d["estimates"]
    if not e:
        return ""
    lines = [
        f"  {title:<26}{form.format(e[n][0]):>16} -> {form.format(e[n][1]):<16}{_change(e[n])}"
        for n, title, form in _ROWS
    ]
    differs = e["tokens_per_step"][0] != e["tokens_per_step"][1]
    note = ["  steps have different numbers of tokens: compare by useful tokens, not by step time"] if differs else []
    return "\n".join(["Estimated", *(line.rstrip() for line in lines), *note])


def _change(pair: Sequence[float]) -> str:
    return f"{100 * (pair[1] / pair[0] - 1):+.1f}%" if pair[0] and pair[0] != pair[1] else ""


def _notes(d: Json) -> str:
    lines = [
        f"{d['compared']} {d['by']} compared"
        + (f"; {d['one_sided']} stated by one side only are left out" if d["one_sided"] else "")
    ]
    lines += [f"{s.upper()}: {line}" for s in ("a", "b") for line in d[s]["unread"]]
    return "\n".join(lines)

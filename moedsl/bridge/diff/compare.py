"""Compare two runs: whether differences change the experiment or only how it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.bridge.diff.sources import Side
from moedsl.bridge.diff.verdict import refusals, verdict
from moedsl.bridge.fields import built_by
from moedsl.compiler import load_stdlib
from moedsl.facts import axes
from moedsl.facts.facts import Model
from moedsl.planner import experiment
from moedsl.planner.model.plan import Plan
from moedsl.rules.effects import EXPERIMENT, GROUPS, UNKNOWN, Effects, is_known, of_rules
from moedsl.rules.rule import Rule
from moedsl.solver import neighbours
from moedsl.solver.solve import Chosen

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

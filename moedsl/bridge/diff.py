"""Compare two runs, and print `moedsl diff`: which differences change the experiment, and which only how it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.bridge.fields import built_by
from moedsl.bridge.run_sides import Side
from moedsl.compiler import load_stdlib
from moedsl.facts import axes
from moedsl.facts.fields import no_text_of
from moedsl.planner import experiment
from moedsl.planner.experiment import Benchmark
from moedsl.planner.plan import Plan
from moedsl.rules.collect import of_library
from moedsl.rules.rule import BENCHMARK, EXECUTION, EXPERIMENT, GROUPS, UNKNOWN, Effects, is_known, of_rules
from moedsl.solver import neighbours
from moedsl.support.json_form import ABSENT, Absent, JsonForm
from moedsl.support.text import wrapped

NOT_SET = "not set"
_FACTS = "model facts"


@frozen
class Compared(JsonForm):
    """What the comparison reports about one side."""

    name: str
    how: str
    unread: tuple[str, ...]
    refused: str | None
    fingerprint: str | Absent = ABSENT
    """The fingerprint of a plan's experiment; absent for other sides."""


@frozen
class Difference(JsonForm):
    """A keyword or field that differs, the effect of the difference, and the reason for this effect."""

    name: str
    a: Any
    b: Any
    effect: str
    because: str | None
    alone: str | None = None
    """The effect of this change alone on A's step time and memory."""


@frozen
class Verdict(JsonForm):
    """Whether both are the same experiment (None if unknown), which sides are benchmarks, and the verdict as text."""

    same_experiment: bool | None
    benchmark_only: tuple[str, ...]
    says: tuple[str, ...]


@frozen
class Comparison(JsonForm):
    """The result of comparing two runs. Two plans are compared by keywords, anything else by Bridge's fields."""

    version: int
    a: Compared
    b: Compared
    by: str
    """What was compared: `words` (keywords) or `fields` (of Bridge)."""
    compared: int
    """The number of names that were compared."""
    one_sided: int
    """The number of fields left out because only one side states them."""
    changes: Mapping[str, tuple[Difference, ...]]
    """Differences by effect."""
    benchmark: Mapping[str, tuple[Benchmark, ...]]
    """The settings that make side `a` or `b` a benchmark."""
    estimates: Mapping[str, tuple[float, float]] | None
    """The estimates of A and B by name; None unless both are plans."""
    verdict: Verdict


def compare(a: Side, b: Side) -> Comparison:
    """Compare two runs: differences by effect, estimates of both, benchmark settings and a verdict."""
    effects = of_rules((*a.rules, *b.rules) or of_library(load_stdlib())[0])
    rates: dict[str, tuple[float, float]] | None = None
    if a.plan and b.plan:
        left, right = _words(a, a.plan), _words(b, b.plan)
        rates = {n: (x, y) for (n, x), y in zip(_rates(a.plan).items(), _rates(b.plan).values(), strict=True)}
    else:
        left, right = _fields(a, b), _fields(b, a)
    by_words = rates is not None
    every = {**left, **right}
    effects = effects.of_run({**left, **{n: v for n, v in right.items() if v is not None}})
    if (_FACTS in left) != (_FACTS in right):
        del every[_FACTS]
    # sides of the same kind are compared by all names, others only by the names that both have
    alike = by_words or (a.whole, a.how) == (b.whole, b.how)
    names = [n for n in every if alike or (n in left and n in right)]
    pairs = ((n, left.get(n, NOT_SET), right.get(n, NOT_SET)) for n in names)
    # Bridge reads an unset flag as false, and an unset word as "none"
    lines = [
        _difference(n, x, y, effects, a)
        for n, x, y in pairs
        if x != y and not all(v is None or v is False or v == "none" for v in (x, y))
    ]
    groups = {g: tuple(x for x in lines if x.effect == g) for g in GROUPS}
    bench = {
        side: experiment.benchmarks({n: v for n, v in values.items() if v != NOT_SET}, effects)
        for side, values in (("a", left), ("b", right))
    }
    sides = [
        Compared(s.name, s.how, s.unread, s.refused, s.plan.experiment.fingerprint if s.plan else ABSENT)
        for s in (a, b)
    ]
    return Comparison(
        version=1, a=sides[0], b=sides[1], by="words" if by_words else "fields", compared=len(names),
        one_sided=len({*left} ^ {*right}) if not by_words and len(names) < len(every) else 0,
        changes=groups, benchmark=bench, estimates=rates, verdict=_verdict(groups, bench, a, b),
    )  # fmt: skip


def _words(s: Side, p: Plan) -> dict[str, Any]:
    """Flatten a plan: keywords, derived and set fields, environment."""
    out = {n: getattr(p, n) for n in ("model", "task", "phase", "hardware", "gpus")} | {"target": p.target.bridge}
    # sizes that follow from other sizes need no comparison of their own
    skipped = [a.name for a in axes.FOLLOWING if a.kind == "int"]
    out |= {n: v for n, v in experiment.settings(p.batch, p.layout, p.policy).items() if n not in skipped}
    out |= {experiment.path_of(n): v for n, v in p.derived.items()} | dict(p.set)
    if s.chosen is not None:
        out[_FACTS] = experiment.fingerprint({}, experiment.facts_of(s.chosen.problem.program.model))
    return out | {f"env_vars.{n}": v for n, v in p.env.items()}


def _fields(s: Side, other: Side) -> Mapping[str, Any]:
    """Return a side's fields. Between a plan and a recipe, add the fields that the recipe's source sets and the plan
    leaves to Bridge.

    The plan's side gets Bridge's values for these, as far as they are known.
    """
    plan, recipe = (s, other) if s.plan else (other, s)
    if plan.plan is None:
        return s.fields
    left_open = [n for n, v in recipe.stated.items() if n not in plan.fields and not isinstance(v, Mapping)]
    if s is recipe:
        return {**s.fields, **{n: s.stated[n] for n in left_open}}
    library = load_stdlib()
    if plan.chosen is not None:
        model = plan.chosen.problem.program.model
    else:
        model = library.model(plan.plan.model)[0] if plan.plan.model in library.models else None
    if model is None or not recipe.stated:
        return s.fields
    built = built_by(plan.plan, model)
    return {n: built.get(n, NOT_SET) for n in left_open} | {**s.fields}


def _difference(name: str, a: Any, b: Any, effects: Effects, side: Side) -> Difference:
    """Make a difference with its effect, the reason (a benchmark value's first), and this change's own effect on A."""
    # a section's effect says nothing about a name that is not a field of Bridge and has no effect of its own, nor about
    # a value that the field does not take
    mistaken = [(v, takes) for v in (a, b) if v != NOT_SET and (takes := no_text_of(name, v))]
    stranger = ("." in name and not is_known(name) and name not in effects.rules) or bool(mistaken)
    effect = EXPERIMENT if name == _FACTS else UNKNOWN if stranger else effects.pair(name, a, b)
    decisive = b if effects.is_benchmark(name, b) and not effects.is_benchmark(name, a) else a
    alone = None
    if NOT_SET not in (a, b) and side.chosen is not None and name in axes.BY_NAME:
        axis, row = axes.BY_NAME[name], side.chosen.solution.rows[0]
        (near,) = neighbours.judged(side.chosen.compiled, side.chosen.cost, row, [(axis, axis.encode(b))])
        alone = neighbours.effect(near, row)
    elif NOT_SET not in (a, b) and side.plan:
        decided = (d for d in side.plan.decisions if d.name == name)
        alone = next((x.effect for d in decided for x in d.alternatives if x.value == b), None)
    reason = None if stranger else effects.reason(name, decisive)
    for value, takes in mistaken:
        reason = f"{json.dumps(value)} is a text, and the field takes {takes}; Bridge's data classes do not check it"
    return Difference(name, a, b, effect, reason, alone or None)


def _rates(p: Plan) -> dict[str, Any]:
    """Return a plan's estimates; rates per useful token are comparable between batch sizes."""
    e = p.estimate
    return {
        "step_time_s": e.step_time_s,
        "tokens_per_s_per_gpu": e.tokens_per_s_per_gpu,
        "model_tflops_per_gpu": e.model_tflops_per_gpu,
        "peak_gib": e.memory.peak_gib,
        "tokens_per_step": p.batch.global_batch * p.batch.seq,
        "gpu_hours_per_1e9_tokens": 1e9 / (3600 * e.tokens_per_s_per_gpu),
    }


def _verdict(
    groups: Mapping[str, Sequence[Difference]], bench: Mapping[str, Sequence[Benchmark]], a: Side, b: Side
) -> Verdict:
    by = {side: {x.name for x in found} for side, found in bench.items()}
    shared = by["a"] & by["b"]
    only = tuple(side for side in by if by[side] - shared)
    same = False if groups[EXPERIMENT] or groups[BENCHMARK] else None if groups[UNKNOWN] else True
    says = [f"Bridge refuses {name}: {side.refused}" for name, side in (("A", a), ("B", b)) if side.refused]
    if a.as_built or b.as_built:
        says.append("so recipes are compared as built, before what runtime_config_update would set")
    for side in only:
        why = ", ".join(f"{x.name} {axes.show(x.value)}" for x in bench[side] if x.name not in shared)
        says.append(
            f"{side.upper()} is benchmark-only ({why}): its speed is not that of training, its loss is meaningless"
        )
    if same is False and (groups[EXPERIMENT] or not only):
        says.append("different experiments: do not compare losses")
    elif same is None:
        unknown = f"no rule states what {len(groups[UNKNOWN])} of the differences change"
        says.append(f"it is unknown whether this is the same experiment: {unknown}")
    elif same:
        run = "the same experiment, run differently" if groups[EXECUTION] else "no difference in what was compared"
        says.append(run)
    if shared:
        says.append(f"both are benchmarks by {', '.join(sorted(shared))}: neither loss is meaningful")
    return Verdict(same, only, tuple(says))


TITLES = {
    EXPERIMENT: "Changes the experiment",
    BENCHMARK: "Benchmark-only",
    UNKNOWN: "Unknown: no rule states its effect",
    EXECUTION: "Changes only how it runs",
}
_ROWS = (
    ("step_time_s", "step time", "{:.2f} s"),
    ("peak_gib", "peak memory", "{:.1f} GiB"),
    ("tokens_per_step", "useful tokens a step", "{:,.0f}"),
    ("tokens_per_s_per_gpu", "useful tokens/s/GPU", "{:,.0f}"),
    ("gpu_hours_per_1e9_tokens", "GPU hours for 1e9 tokens", "{:.2f}"),
)


def text(d: Comparison) -> str:
    """Format the verdict, then each group of differences, then the estimates."""
    sides = (("A", d.a), ("B", d.b))
    marks = [f"({s.how})" if s.fingerprint is ABSENT else f"experiment {s.fingerprint}" for _, s in sides]
    head = [f"{letter}  {s.name}  {mark}" for (letter, s), mark in zip(sides, marks, strict=True)]
    left_out = f"; {d.one_sided} stated by one side only are left out" if d.one_sided else ""
    notes = [f"{d.compared} {d.by} compared{left_out}"]
    notes += [f"{letter}: {line}" for letter, s in sides for line in s.unread]
    groups = [[title, *_table(found)] for effect, title in TITLES.items() if (found := d.changes[effect])]
    estimated: list[str] = []
    for name, title, form in _ROWS if d.estimates else ():
        a, b = (d.estimates or {})[name]
        change = f"{100 * (b / a - 1):+.1f}%" if a and a != b else ""
        estimated.append(f"  {title:<26}{form.format(a):>16} -> {form.format(b):<16}{change}".rstrip())
    if d.estimates and d.estimates["tokens_per_step"][0] != d.estimates["tokens_per_step"][1]:
        estimated.append("  steps have different numbers of tokens: compare by useful tokens, not by step time")
    parts = [[*head, "", *d.verdict.says], *groups, *([["Estimated", *estimated]] if estimated else []), notes]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _table(lines: Sequence[Difference]) -> Iterator[str]:
    width = max(len(x.name) for x in lines)
    for x in sorted(lines, key=lambda x: x.name.startswith("env_vars.")):
        words = [
            "none" if v is None else " ".join(map(str, v)) or "none" if isinstance(v, list) else axes.show(v)
            for v in (x.a, x.b)
        ]
        # write JSON if both values read alike, as null, an empty list and the text "None" do
        pair = " -> ".join(words if words[0].lower() != words[1].lower() else [json.dumps(v) for v in (x.a, x.b)])
        yield f"  {x.name.ljust(width)}  {pair}" + (f"  (alone: {x.alone})" if x.alone else "")
        if x.because and (x.effect in (BENCHMARK, UNKNOWN) or x.name in ("micro_batch", "train.micro_batch_size")):
            yield wrapped(x.because, " " * (width + 4), width=max(100, width + 64))

"""Compare an isolation's variants in one table from their plans, with the differences besides the axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from moedsl.emit.settings import decided_fields
from moedsl.facts import axes
from moedsl.planner.decisions import Measured
from moedsl.planner.plan import Member, Plan
from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic, warning
from moedsl.support.json_form import JsonForm
from moedsl.support.text import table, wrapped


@frozen
class Variant(JsonForm):
    """The estimate of one variant."""

    name: str
    value: str
    step_time_s: float
    tokens_per_s_per_gpu: float
    speedup: float
    """Speed relative to the first variant."""
    peak_gib: float


@frozen
class Comparison(JsonForm):
    """The variants of an isolation."""

    of: str
    """The run in the file that the isolation varies."""
    axis: str
    variants: tuple[Variant, ...]
    fields: Mapping[str, list[Any]]
    """The recipe fields that differ, by path, with each variant's value; None where a variant has none."""
    follows: Mapping[str, list[Any]]
    """Other values of the plan that follow from the axis, with each variant's value."""
    also: Mapping[str, list[Any]]
    """Environment variables that also differ, which are a second difference, with each variant's value."""
    measured: tuple[Measured, ...]
    """The published measurements for all variants, each once."""

    def text(self) -> str:
        """Format the table, what follows from the axis, and what else differs."""
        first = self.variants[0].value
        rows = [(self.axis, "s a step", "tokens/s/GPU", f"against {first}", "peak GiB", "run")]
        for v in self.variants:
            rates = (f"{v.step_time_s:.2f}", f"{v.tokens_per_s_per_gpu:,.0f}", f"{v.speedup:.3f}x")
            rows.append((v.value, *rates, f"{v.peak_gib:.1f}", v.name))
        lines = [f"{self.of}: {self.axis} isolated, all else equal", *table(rows)]
        lines += [f"  {k}: {_each(v)}" for k, v in self.follows.items()]
        lines += [f"  not held fixed: {k} {_each(v)}" for k, v in self.also.items()]
        said = [
            f"the estimate does not tell {a.value} and {b.value} apart: measure them"
            for a, b in itertools.pairwise(self.variants)
            if (a.step_time_s, a.peak_gib) == (b.step_time_s, b.peak_gib)
        ]
        said.append(f"the recipes differ in {', '.join(self.fields) or 'no field, only in their number of GPUs'}")
        said += [f"measured, {m.because}: {m.result} ({'; '.join(m.cite)})" for m in self.measured]
        return "\n".join([*lines, *(wrapped(line, "  ", "    ") for line in said)]) + "\n"


def _each(values: Sequence[Any]) -> str:
    return ", ".join("+".join(v) or "none" if isinstance(v, list) else "unset" if v is None else str(v) for v in values)


def groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Group plans in order: the plans of an isolation together, any other plan separately."""
    out: dict[str, list[Plan]] = {}
    for p in plans:
        of = p.isolation
        out.setdefault(f"{of.of}:{of.axis}" if of else p.name, []).append(p)
    return list(out.values())


def comparisons(plans: Sequence[Plan]) -> list[Comparison]:
    """Compare the plans of each isolation."""
    return [comparison(g) for g in groups(plans) if g[0].isolation]


def comparison(plans: Sequence[Plan]) -> Comparison:
    """Compare an isolation's variants: their estimates, what follows from the axis, and further differences."""
    member, first = _member(plans[0]), plans[0].estimate.tokens_per_s_per_gpu
    variants = []
    for p, e in ((p, p.estimate) for p in plans):
        rates = (e.step_time_s, e.tokens_per_s_per_gpu, e.tokens_per_s_per_gpu / first)
        variants.append(Variant(p.name, _member(p).value, *rates, e.memory.peak_gib))
    # The plan's names for the isolated axes
    words = axes.COMPOSITES.get(member.axis)
    own = next(iter(words.values())) if words else {{"batch": "global_batch"}.get(member.axis, member.axis)}
    others = []
    for p in plans:
        sections = (s.to_json() for s in (p.layout, p.batch, p.policy))
        values = {"gpus": p.gpus} | {k: v for s in sections for k, v in s.items()} | dict(p.derived)
        others.append({k: v for k, v in values.items() if k not in own})
    return Comparison(
        of=member.of,
        axis=member.axis,
        variants=tuple(variants),
        fields=differing([decided_fields(p, every=True) for p in plans]),
        follows=differing(others),
        also=differing([p.env for p in plans]),
        measured=tuple({m.rule: m for p in plans for m in p.measured}.values()),
    )


def _member(p: Plan) -> Member:
    assert p.isolation is not None
    return p.isolation


def differing(each: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the keys whose values differ, each with all mappings' values; None where a mapping lacks the key."""
    keys = dict.fromkeys(k for values in each for k in values)
    columns = {k: [values.get(k) for values in each] for k in keys}
    return {k: v for k, v in columns.items() if any(x != v[0] for x in v)}


def second_differences(programs: Sequence[Program], plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    """Warn of each isolation that also changes environment variables, because a rule makes them depend on the axis.

    The warning lists each such variable with each variant's value.
    """
    spans = {p.name: q.isolate.span for q, p in zip(programs, plans, strict=True) if q.isolate}
    for group in groups(plans):
        if not group[0].isolation or not (also := comparison(group).also):
            continue
        shown = {
            n: ", ".join(f"{_member(p).value} {_each([v])}" for p, v in zip(group, values, strict=True))
            for n, values in also.items()
        }
        # Each reason for the values once, with the names of its variables if there are several
        by_reason: dict[str, list[str]] = {}
        for name, values in also.items():
            of: dict[str, list[str]] = {}
            for p, v in ((p, v) for p, v in zip(group, values, strict=True) if v is not None):
                of.setdefault(next((d.because or "" for d in p.decisions if d.name == name), ""), []).append(str(v))
            said = "; ".join(f"{', '.join(dict.fromkeys(vs))}: {reason}" for reason, vs in of.items())
            by_reason.setdefault(said, []).append(name)
        why = "; ".join(f"{', '.join(ns)} {said}" if len(also) > 1 else said for said, ns in by_reason.items())
        (name, value), at = next(iter(shown.items())), spans[group[0].name]
        what, held, values = f"{name} is {value}", f"it fixed, set {name}", {}
        if len(also) > 1:
            what, held, values = f"{len(also)} variables of the environment follow it", "one fixed, set it", shown
        axis = _member(group[0]).axis
        yield warning("plan.second_difference", at, axis=axis, what=what, held=held, because=why, values=values)

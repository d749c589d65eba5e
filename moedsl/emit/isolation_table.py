"""Compare the variants of an isolation: one table from their plans' JSON, with differences besides the axis."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moedsl.emit.settings import decided_fields
from moedsl.facts import axes
from moedsl.planner.plan import Member, Plan
from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic, warning
from moedsl.support.text import table, wrapped

Json = Mapping[str, Any]


def groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Group the plans in order: those of one isolation together, any other alone."""
    out: dict[str, list[Plan]] = {}
    for p in plans:
        of = p.isolation
        out.setdefault(f"{of.of}:{of.axis}" if of else p.name, []).append(p)
    return list(out.values())


def comparisons(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Compare the plans of each isolation."""
    return [comparison(g) for g in groups(plans) if g[0].isolation]


def comparison(plans: Sequence[Plan]) -> dict[str, Any]:
    """Compare the variants: their estimates, what follows from the axis, and further differences.

    `fields` are the recipe's fields that differ, by path, with a value for each variant; `follows` are values of the
    plan that the axis decides; `also` are environment variables that differ, which are a second difference.
    """
    member = _member(plans[0])
    return {
        "of": member.of,
        "axis": member.axis,
        "variants": [_variant(p, plans[0]) for p in plans],
        "fields": differing([decided_fields(p, every=True) for p in plans]),
        "follows": differing([_follows(p) for p in plans]),
        "also": differing([p.env for p in plans]),
        "measured": _measured(plans),
    }


def _member(p: Plan) -> Member:
    assert p.isolation is not None
    return p.isolation


def _variant(p: Plan, first: Plan) -> dict[str, Any]:
    e = p.estimate
    return {
        "name": p.name,
        "value": _member(p).value,
        "step_time_s": e.step_time_s,
        "tokens_per_s_per_gpu": e.tokens_per_s_per_gpu,
        "speedup": e.tokens_per_s_per_gpu / first.estimate.tokens_per_s_per_gpu,
        "peak_gib": e.memory.peak_gib,
    }


def differing(each: Sequence[Json]) -> dict[str, list[Any]]:
    """The keys whose values differ, with a value for each; None if one has none."""
    keys = dict.fromkeys(k for values in each for k in values)
    columns = {k: [values.get(k) for values in each] for k in keys}
    return {k: v for k, v in columns.items() if any(x != v[0] for x in v)}


def _follows(p: Plan) -> dict[str, Any]:
    """The plan's values except the isolated axis."""
    own = _parts(_member(p).axis)
    sections = (s.to_json() for s in (p.layout, p.batch, p.policy))
    values = {"gpus": p.gpus} | {k: v for s in sections for k, v in s.items()} | dict(p.derived)
    return {k: v for k, v in values.items() if k not in own}


def _parts(axis: str) -> set[str]:
    """The names of the isolated axes in a plan."""
    words = axes.COMPOSITES.get(axis)
    return set(next(iter(words.values()))) if words else {{"batch": "global_batch"}.get(axis, axis)}


def _measured(plans: Sequence[Plan]) -> list[Json]:
    """The measurements of all variants, each once."""
    return list({m.rule: m.to_json() for p in plans for m in p.measured}.values())


def second_differences(programs: Sequence[Program], plans: Sequence[Plan]) -> Iterator[Diagnostic]:
    """Warn for each isolation that changes the environment too, because a rule makes it depend on the axis."""
    spans = {p.name: q.isolate.span for q, p in zip(programs, plans, strict=True) if q.isolate}
    for group in groups(plans):
        if not group[0].isolation:
            continue
        also = comparison(group)["also"]
        if also:
            yield _second(also, group, spans[group[0].name])


def _second(also: Mapping[str, list[Any]], plans: Sequence[Plan], span: Any) -> Diagnostic:
    """List all that an isolation changes besides its axis, a variable a line, with each variant's value."""
    shown = {
        n: ", ".join(f"{_member(p).value} {_unset(v)}" for p, v in zip(plans, values, strict=True))
        for n, values in also.items()
    }
    (name, value), many = next(iter(shown.items())), len(also) > 1
    what = f"{len(also)} variables of the environment follow it" if many else f"{name} is {value}"
    held = "one fixed, set it" if many else f"it fixed, set {name}"
    because = _reasons(also, plans)
    return warning(
        "plan.second_difference",
        span,
        axis=_member(plans[0]).axis,
        what=what,
        held=held,
        because=because,
        values=shown if many else {},
    )


def _reasons(also: Mapping[str, list[Any]], plans: Sequence[Plan]) -> str:
    """Explain the variants' values, with the names of the variables if there are several."""
    names: dict[str, list[str]] = {}
    for n, values in also.items():
        names.setdefault(_why(n, values, plans), []).append(n)
    return "; ".join(f"{', '.join(ns)} {why}" if len(also) > 1 else why for why, ns in names.items())


def _why(name: str, values: Sequence[Any], plans: Sequence[Plan]) -> str:
    """The reason of each value that a variant sets, each reason once."""
    of: dict[str, list[str]] = {}
    for p, v in zip(plans, values, strict=True):
        if v is not None:
            of.setdefault(_reason(p, name), []).append(str(v))
    return "; ".join(f"{', '.join(dict.fromkeys(vs))}: {reason}" for reason, vs in of.items())


def _reason(p: Plan, name: str) -> str:
    return next((d.because or "" for d in p.decisions if d.name == name), "")


def _unset(value: Any) -> str:
    return "unset" if value is None else str(value)


def text(c: Json) -> str:
    """Print a comparison."""
    lines = [f"{c['of']}: {c['axis']} isolated, all else equal", *_rows(c)]
    lines += [f"  {k}: {_each(v)}" for k, v in c["follows"].items()]
    lines += [f"  not held fixed: {k} {_each(v)}" for k, v in c["also"].items()]
    lines += [_paragraph(f"the estimate does not tell {a} and {b} apart: measure them") for a, b in _alike(c)]
    lines += [_paragraph(f"the recipes differ in {', '.join(c['fields']) or 'no field, only in their number of GPUs'}")]
    lines += [_paragraph(f"measured, {m['because']}: {m['result']} ({'; '.join(m['cite'])})") for m in c["measured"]]
    return "\n".join(lines) + "\n"


def _paragraph(line: str) -> str:
    return wrapped(line, "  ", "    ")


def _alike(c: Json) -> list[tuple[str, str]]:
    """Note neighbours in the table with the same estimate."""
    pairs = itertools.pairwise(c["variants"])
    return [(a["value"], b["value"]) for a, b in pairs if all(a[k] == b[k] for k in ("step_time_s", "peak_gib"))]


def _rows(c: Json) -> list[str]:
    first = c["variants"][0]["value"]
    head = (c["axis"], "s a step", "tokens/s/GPU", f"against {first}", "peak GiB", "run")
    return table([head, *(_cells(v) for v in c["variants"])])


def _cells(v: Json) -> tuple[str, ...]:
    rates = f"{v['step_time_s']:.2f}", f"{v['tokens_per_s_per_gpu']:,.0f}", f"{v['speedup']:.3f}x"
    return v["value"], *rates, f"{v['peak_gib']:.1f}", v["name"]


def _each(values: Sequence[Any]) -> str:
    return ", ".join("+".join(v) or "none" if isinstance(v, list) else _unset(v) for v in values)

"""Several runs of a file: the comparison of a sweep, and diagnostics that are printed once for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.planner.plan import Member, Plan
from moedsl.rules.check.program import Program
from moedsl.support.diagnostics import Diagnostic
from moedsl.support.text import table


def sweep_member(p: Program) -> Member | None:
    """The section `sweep` of a plan: run, axis and value; None if the run has no sweep."""
    if p.sweep is None:
        return None
    axis, _ = p.sweep
    of, _, value = p.name.rpartition(f".{axis}_")
    return Member(of, axis, value)


def comparisons(plans: Sequence[Plan]) -> list[dict[str, Any]]:
    """Compare the values of each sweep among the plans, in their order."""
    groups: dict[tuple[str, str], list[tuple[Member, Plan]]] = {}
    for p in plans:
        if p.sweep:
            groups.setdefault((p.sweep.of, p.sweep.axis), []).append((p.sweep, p))
    return [{"of": of, "axis": axis, "values": _values(g)} for (of, axis), g in groups.items() if len(g) > 1]


def _values(plans: Sequence[tuple[Member, Plan]]) -> list[dict[str, Any]]:
    rates = [p.estimate.useful_tokens_per_s_per_gpu for _, p in plans]
    return [
        {
            "name": p.name,
            "value": sweep_member.value,
            "step_time_s": p.estimate.step_time_s,
            "useful_tokens_per_s_per_gpu": rate,
            "speedup": rate / rates[0],
            "peak_gib": p.estimate.memory.peak_gib,
        }
        for (sweep_member, p), rate in zip(plans, rates, strict=True)
    ]


def sweep_text(c: Mapping[str, Any]) -> str:
    """Print a comparison, with the best value marked."""
    best = max(v["useful_tokens_per_s_per_gpu"] for v in c["values"])
    rows = [(c["axis"], "s a step", "useful tokens/s/GPU", "speedup", "peak GiB", "")]
    rows += [_row(v, v["useful_tokens_per_s_per_gpu"] == best) for v in c["values"]]
    return "\n".join([f"{c['of']}: sweep of {c['axis']}, compared by useful tokens", *table(rows)]) + "\n"


def _row(v: Mapping[str, Any], best: bool) -> tuple[str, ...]:
    rate = f"{v['useful_tokens_per_s_per_gpu']:,.0f}"
    shown = (v["value"], f"{v['step_time_s']:.2f}", rate, f"{v['speedup']:.3f}x", f"{v['peak_gib']:.1f}")
    return (*shown, "best" if best else "")


OfRun = tuple[Program, Diagnostic]


def merged(diagnostics: Iterable[OfRun], programs: Sequence[Program]) -> list[Diagnostic]:
    """Merge diagnostics that differ only in `values`, in the order of their first occurrence.

    A value that differs becomes the list of all. If another of the file's `programs` is made of the same text without
    this diagnostic, `values` gets `runs`: the names of the runs that have it.
    """
    alike: dict[str, list[OfRun]] = {}
    for p, d in diagnostics:
        alike.setdefault(repr(evolve(d, values={})), []).append((p, d))
    return [_one(group, programs) for group in alike.values()]


def _one(group: Sequence[OfRun], programs: Sequence[Program]) -> Diagnostic:
    first = group[0][1]
    values = _joined([d.values for _, d in group])
    concerned = list(dict.fromkeys(p.name for p, _ in group))
    others = [p for p in programs if p.name not in concerned and _reads(p, first)]
    runs = {"runs": concerned[0] if len(concerned) == 1 else concerned} if others else {}
    return evolve(first, values={**values, **runs})


def _reads(p: Program, d: Diagnostic) -> bool:
    """Whether a run is made of the text that a diagnostic points at."""
    return bool(d.labels) and d.labels[0].span in p.spans.values()


def _joined(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Every value by its name; values that differ become a list."""
    names = dict.fromkeys(n for values in each for n in values)
    every = {n: [values[n] for values in each if n in values] for n in names}
    distinct = {n: [v for i, v in enumerate(vs) if v not in vs[:i]] for n, vs in every.items()}
    return {n: vs[0] if len(vs) == 1 else vs for n, vs in distinct.items()}

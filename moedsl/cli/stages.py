"""Print the output of a stage as JSON for `--stop-after`."""

from __future__ import annotations

from typing import Any

import attrs

from moedsl.compiler import Result
from moedsl.facts import axes
from moedsl.facts.fine_tuning import Adapter
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Pin
from moedsl.rules.rule import Rule
from moedsl.solver.problem import Problem, lower
from moedsl.solver.solve import Chosen


def dump(r: Result, stage: str) -> Any:
    """The output of one stage for every run."""
    if stage == "parse":
        return tree(r.module)
    if stage == "check":
        return [_program(p) for p in r.programs]
    if stage == "lower":
        return [_problem(lower(p, p.gpus or p.hardware.gpus_per_node)) for p in r.programs]
    return [_solution(c) for c in r.chosen]


def tree(value: Any) -> Any:
    """Convert a syntax tree to JSON: the class as `kind`, then the fields."""
    if attrs.has(type(value)):
        names = [f.name for f in attrs.fields(type(value)) if f.name != "span"]
        return {"kind": type(value).__name__, **{n: tree(getattr(value, n)) for n in names}}
    return [tree(v) for v in value] if isinstance(value, tuple | list) else value


def _program(p: Any) -> dict[str, Any]:
    pins = {n: axes.BY_NAME[n].decode(pin.code) for n, pin in p.pins.items()}
    plain = {
        n: getattr(p, n)
        for n in ("name", "gpus", "seq", "batch", "phase", "task", "routing", "data", "precision", "target")
    }
    wishes = {r.id: print_expr(r.expr) for r in p.rules if r.wish}
    return {
        **plain,
        "model": attrs.asdict(p.model),
        "hardware": attrs.asdict(p.hardware),
        "vlm": sorted(p.vlm),
        "adapter": _adapter(p.adapter) if p.adapter else None,
        "pins": pins,
        "wishes": wishes,
        "allows": list(p.allows),
        "set": dict(p.sets),
    }


def _adapter(a: Adapter) -> dict[str, Any]:
    return {**attrs.asdict(a, recurse=False), "targets": sorted(a.targets)}


def _problem(p: Problem) -> dict[str, Any]:
    domains = {a.name: [a.decode(int(v)) for v in p.domains[a.name]] for a in axes.AXES}
    origins = {
        n: o.id if isinstance(o, Rule) else "pinned" if isinstance(o, Pin) else None for n, o in p.origins.items()
    }
    fixed = {n: sorted(v) if isinstance(v, frozenset) else v for n, v in p.values.items()}
    return {"name": p.program.name, "gpus": p.gpus, "fixed": fixed, "domains": domains, "origins": origins,
            "laws": {r.id: print_expr(r.expr) for r in p.program.of("require")}}  # fmt: skip


def _solution(c: Chosen) -> dict[str, Any]:
    rows = [
        {
            **{a.name: a.decode(r.codes[a.name]) for a in axes.AXES},
            "peak_memory": r.peak_memory,
            "step_time": r.step_time,
        }
        for r in c.solution.rows
    ]
    return {
        "name": c.problem.program.name,
        "gpus": c.problem.gpus,
        "legal": c.solution.legal,
        "priced": c.solution.priced,
        "rows": rows,
    }

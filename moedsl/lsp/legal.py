"""The values that an axis may still have: by the laws, with everything else that the run says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from moedsl import axes
from moedsl.choose import make_cost
from moedsl.explain.legal import Domains, satisfiable
from moedsl.ir import Pin, Program
from moedsl.lower import lower
from moedsl.lsp.document import Solved
from moedsl.tables import Law, compile_problem


@frozen
class Value:
    """One value of an axis as it is written, and whether some legal layout has it; None where nobody asked."""

    text: str
    legal: bool | None


def written(axis: axes.Axis, code: int) -> str:
    """A code as a pin writes it."""
    value = axis.decode(code)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return "none" if not value else value[0] if value == ["full"] else f"[{', '.join(value)}]"
    return str(value)


def values(p: Program, axis: str, gpus: int, said: Mapping[str, int]) -> list[Value]:
    """What a phase would try of an axis and every other word of it, the legal ones first.

    `said` are further pins, by axis, that the text has and the program has not.
    """
    pins = {**p.pins, **{a: Pin(a, code, p.spans["hardware"]) for a, code in said.items()}}
    pins.pop(axis, None)
    problem = lower(evolve(p, pins=pins), gpus)
    cost = make_cost(problem)
    compiled = compile_problem(problem, {"has_layout": cost.has_layout})
    laws = [w for w in compiled.laws if not w.priced]
    near, far = _apart(axis, laws, problem.domains)
    possible = satisfiable(compiled, problem.domains, far)
    known = axes.BY_NAME[axis]
    found: dict[int, bool] = {}
    for code in _codes(known, problem.domains[axis].tolist()):
        domains = {**problem.domains, axis: np.array([code], dtype=np.int64)}
        found[code] = possible and satisfiable(compiled, domains, near)
    ordered = sorted(found, key=lambda c: (not found[c], c if known.kind == "int" else 0))
    return [Value(written(known, c), found[c]) for c in ordered]


def _apart(axis: str, laws: Sequence[Law], domains: Domains) -> tuple[list[Law], list[Law]]:
    """The laws that an axis has to do with, directly or by way of other open axes, and the rest: asked only once."""
    open_ = {n for n, d in domains.items() if len(d) > 1} | {axis}
    reached, near, far = {axis}, list[Law](), list(laws)
    while joined := [w for w in far if w.needs & reached]:
        near += joined
        far = [w for w in far if not w.needs & reached]
        reached |= {n for w in joined for n in w.needs & open_}
    return near, far


def _codes(axis: axes.Axis, tried: list[int]) -> list[int]:
    """What a phase tries, and every word of an enumeration or a flag."""
    count = {"enum": len(axis.words), "flag": 2}.get(axis.kind, 0)
    return [*dict.fromkeys([*tried, *range(count)])]


def gpus_of(p: Program, plan: Solved | None) -> int | None:
    """The number of GPUs of a run: its own, or what the solver settled on; None where neither says."""
    if p.gpus is not None or plan is None:
        return p.gpus
    return next((c.problem.gpus for c in plan.chosen if c.problem.program.name == p.name), None)

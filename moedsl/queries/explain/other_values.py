"""Find the other values of a name that are worth explaining, and the best layout with each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log2
from typing import Any

import numpy as np
from attrs import evolve

from moedsl.facts import axes
from moedsl.facts.axes import MESH
from moedsl.queries.explain.context import Context
from moedsl.rules.check.program import Pin, Program
from moedsl.solver.laws import reads
from moedsl.solver.problem import Problem, divisors, lower
from moedsl.solver.question import Answer, Question
from moedsl.solver.search import Search
from moedsl.solver.table import different

MOST = 12
"""The most alternatives of a size, the nearest first."""


def of_axis(p: Program, axis: axes.Axis, gpus: int, chosen: int) -> list[int]:
    """The alternatives of an axis: every word of an enumeration; near divisors of a mesh size; else what phases try."""
    if axis.kind in ("enum", "flag"):
        return [*range(2 if axis.kind == "flag" else len(axis.words))]
    if axis.name in axes.SIZES:
        return sorted(sorted(divisors(gpus), key=lambda v: abs(log2(v / chosen)))[:MOST])
    values = dict.fromkeys(v for phase in axes.PHASES for v in _tried(p, axis.name, gpus, phase))
    return sorted({*values, chosen}) if axis.kind == "int" else [*dict.fromkeys([*values, chosen])]


def _tried(p: Program, axis: str, gpus: int, phase: str) -> list[int]:
    """The values that a phase would try for an axis without its pin."""
    free = evolve(p, phase=phase, pins={a: pin for a, pin in p.pins.items() if a != axis})
    return [int(v) for v in lower(free, gpus).domains[axis]]


def of_let(b: Context, name: str) -> list[int]:
    """The values of a let over the legal meshes that are nearest to the plan's; none if policies decide it."""
    if not b.compiled.needs.get(name, frozenset({""})) <= frozenset(MESH):
        return []
    values = [int(v) for v in different(np.asarray(b.search.legal[name])) if float(v).is_integer()]
    at = max(1, int(b.env[name]))
    return sorted(sorted(values, key=lambda v: abs(log2(max(v, 1) / at)))[:MOST])


def best_with(
    b: Context, axis: str, values: Sequence[int], more: Sequence[Question] = ()
) -> tuple[dict[int, Answer], list[Answer]]:
    """Find the best layout with each value of an axis pinned and everything else re-optimized.

    More questions about the run's own space are answered too, in the same pass if the space has some of the values.
    """
    p, gpus = b.program, b.chosen.problem.gpus
    if not values:
        return {}, b.answers(more)
    out, others = dict[int, Answer](), list[Answer]()
    for problem, group in _problems(p, axis, [*values], b.row.codes[axis], lambda q: lower(q, gpus, _held(b))):
        search = _search(b, problem, axis, group)
        also = more if search is b.search and not others else ()
        answers = search.answers([*(Question({axis: v}) for v in group), *also])
        out |= dict(zip(group, answers, strict=False))
        others += answers[len(group) :]
    return {v: out[v] for v in values}, others or b.answers(more)


def _search(b: Context, problem: Problem, axis: str, values: list[int]) -> Search:
    """The run's own search if it has the values and the same other domains, else a search of only these values."""
    own = b.chosen.problem.domains
    others = all(sorted(d) == sorted(problem.domains[n]) for n, d in own.items() if n != axis)
    if others and {*values} <= {*own[axis].tolist()}:
        return b.search
    domains = {**problem.domains, axis: np.array(values, dtype=np.int64)}
    return Search(evolve(b.compiled, problem=evolve(problem, domains=domains)), b.chosen.cost)


def _problems(
    p: Program, axis: str, values: list[int], now: int, lowered: Callable[[Program], Problem]
) -> list[tuple[Problem, list[int]]]:
    """Group values whose pins give the other axes the same domains, each group with its problem."""
    if not _settles_others(p, axis):
        return [(lowered(_pinned(p, axis, now)), values)]
    groups: dict[tuple[Any, ...], tuple[Problem, list[int]]] = {}
    for v in values:
        problem = lowered(_pinned(p, axis, v))
        key = tuple((n, tuple(d)) for n, d in problem.domains.items() if n != axis)
        groups.setdefault(key, (problem, []))[1].append(v)
    return [*groups.values()]


def _held(b: Context) -> Mapping[str, Any]:
    """The sequence length and the batch of the plan."""
    return {n: b.chosen.problem.values[n] for n in ("seq", "global_batch")}


def _pinned(p: Program, axis: str, code: int) -> Program:
    return evolve(p, pins={**p.pins, axis: Pin(axis, code, p.spans["hardware"])})


def _settles_others(p: Program, axis: str) -> bool:
    """Whether a default or the candidates of another axis depend on this one."""
    read = [r for r in p.rules if r.kind in ("candidates", "default") and r.name != axis]
    return any(axis in reads(p, r) for r in read)

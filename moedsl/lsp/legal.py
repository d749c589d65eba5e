"""Find the values of an axis that have a legal layout with everything else that the run states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.axes import MEMORY_POLICIES, MESH, TRANSPORT_POLICIES
from moedsl.lsp.document import Solved
from moedsl.rules.check.program import Pin, Program
from moedsl.solver.conflicts import Domains, satisfiable, shown
from moedsl.solver.laws import Compiled, Law, compile_problem, obeying
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost

WIDE = 64
"""The most layouts with one value that are extended at a time."""
_ORDER = (*MESH, *MEMORY_POLICIES, *TRANSPORT_POLICIES)


@frozen
class Value:
    """One value of an axis as a pin writes it; `legal` is whether some legal layout has it, or None if not checked."""

    text: str
    legal: bool | None


def values(p: Program, axis: str, gpus: int, said: Mapping[str, int]) -> list[Value]:
    """Return the values of an axis: those that the phase tries and every other word, the legal ones first.

    `said` maps each axis that the text pins, and the program not yet, to its code.
    """
    pins = {**p.pins, **{a: Pin(a, code, p.spans["hardware"]) for a, code in said.items()}}
    pins.pop(axis, None)
    problem = lower(evolve(p, pins=pins), gpus)
    cost = make_cost(problem)
    compiled = compile_problem(problem, {"has_layout": cost.has_layout})
    laws = [w for w in compiled.laws if not w.priced]
    near, far = _apart(axis, laws, problem.domains)
    known = axes.BY_NAME[axis]
    # The codes that a phase tries, and every word of an enumeration or a flag
    tried = problem.domains[axis].tolist()
    count = {"enum": len(known.words), "flag": 2}.get(known.kind, 0)
    codes = [*dict.fromkeys([*tried, *range(count)])]
    legal = _legal(compiled, axis, codes, near) if satisfiable(compiled, problem.domains, far) else set[int]()
    found = {code: code in legal for code in codes}
    ordered = sorted(found, key=lambda c: (not found[c], c if known.kind == "int" else 0))
    return [Value(shown(axis, c), found[c]) for c in ordered]


def _legal(c: Compiled, axis: str, codes: Sequence[int], laws: Sequence[Law]) -> set[int]:
    """Return the codes of an axis for which some layout obeys the laws.

    All codes are extended together, with at most `WIDE` rows for each, which usually suffices. A code that lost rows
    and has no layout at the end is searched separately.
    """
    domains = {**c.problem.domains, axis: np.array(codes, dtype=np.int64)}
    read = {n for w in laws for n in w.needs}
    open_ = [axis, *(n for n in _ORDER if n in read and n != axis and len(domains[n]) > 1)]
    table, bound = c.empty(), {n for n, d in domains.items() if len(d) == 1} - {axis}
    table = table.assume(**{n: int(domains[n][0]) for n in bound})
    left, cut = [*laws], set[int]()
    for name in open_:
        bound.add(name)
        table = obeying(table.grow(name, domains[name]), [w for w in left if w.needs <= bound])
        left = [w for w in left if not w.needs <= bound]
        column = table.axes[axis]
        rows = {int(code): np.flatnonzero(column == code) for code in np.unique(column)}
        wide = {code for code, at in rows.items() if len(at) > WIDE}
        if wide:
            cut |= wide
            table = table.take(np.concatenate([at[:WIDE] for at in rows.values()]))
    whole = {int(code) for code in np.unique(table.axes[axis])}
    alone = [code for code in cut - whole if satisfiable(c, {**domains, axis: np.array([code])}, laws)]
    return whole.union(alone)


def _apart(axis: str, laws: Sequence[Law], domains: Domains) -> tuple[list[Law], list[Law]]:
    """Split the laws into those that depend on an axis, directly or through other open axes, and the rest."""
    open_ = {n for n, d in domains.items() if len(d) > 1} | {axis}
    reached, near, far = {axis}, list[Law](), list(laws)
    while joined := [w for w in far if w.needs & reached]:
        near += joined
        far = [w for w in far if not w.needs & reached]
        reached |= {n for w in joined for n in w.needs & open_}
    return near, far


def gpus_of(p: Program, plan: Solved | None) -> int | None:
    """Return a run's number of GPUs, as stated or as chosen by the solver; None if unknown."""
    if p.gpus is not None or plan is None:
        return p.gpus
    return next((c.problem.gpus for c in plan.chosen if c.problem.program.name == p.name), None)

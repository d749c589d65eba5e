"""The explained layout compared with others: what another value would break or cost, and what advice costs.

Another value is priced twice: with all else fixed, and with all else re-optimized. The price of advice is the cost of
following it or, if it is followed, the gain from dropping it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from math import isnan, log2
from typing import Any

import numpy as np
from attrs import define, evolve

from moedsl.facts import axes
from moedsl.facts.axes import MESH, json_value
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.planner.advice import unanswered
from moedsl.rules.check.program import Pin, Program
from moedsl.rules.evaluators import evaluate
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Compiled, Law, Row, broken, broken_by_row, different
from moedsl.solver.nearest import tree
from moedsl.solver.neighbours import judged
from moedsl.solver.problem import Problem, divisors, lower
from moedsl.solver.search import Answer, Question, Search
from moedsl.solver.solve import Chosen
from moedsl.support.source import Source, Span, place_of

Json = dict[str, Any]


@define(slots=False)
class Context:
    """A run's problem, its best layout and the sources that spans point into."""

    chosen: Chosen
    row: Row
    sources: Mapping[str, Source]

    @property
    def program(self) -> Program:
        return self.chosen.problem.program

    @property
    def compiled(self) -> Compiled:
        return self.chosen.compiled

    @cached_property
    def search(self) -> Search:
        """The search over the run's own space."""
        return self.chosen.search

    @cached_property
    def lets(self) -> dict[str, ast.Expr]:
        return {r.name: r.expr for r in self.program.of("let")}

    @cached_property
    def env(self) -> dict[str, Any]:
        """The value that each name in an expression has in the layout."""
        return self.env_of(self.row)

    @cached_property
    def unfollowed(self) -> frozenset[str]:
        """The wishes and advice that the layout does not follow, by id."""
        return frozenset(self.compiled.unfollowed(self.row))

    def env_of(self, row: Row) -> dict[str, Any]:
        """Return the value that each name in an expression has in another priced layout."""
        return self.chosen.environment(row.codes, row.prices)

    def answers(self, variants: Sequence[Question]) -> list[Answer]:
        """Find the best layout in each variant of the run's space."""
        return self.search.answers(variants) if variants else []

    def tree(self, e: ast.Expr | None) -> Json | None:
        """Write an expression as a tree, with the value of each part in the layout."""
        return None if e is None else tree(e, self.env, self.lets)

    def where(self, span: Span) -> Json:
        """Write a source location as ``{file, line, text}``; lines count from 1."""
        return place_of(span, self.sources)

    def cited(self, r: Rule) -> Json:
        """Write a rule with its reason, its sources and its location."""
        return {"rule": r.id, "kind": r.kind, "because": r.because, "cite": list(r.cites), "at": self.where(r.span)}


def based(chosen: Chosen, sources: Mapping[str, Source]) -> Context | None:
    """Return the context of a solved problem; None if it has no layout."""
    return Context(chosen, chosen.solution.rows[0], sources) if chosen.solution.rows else None


def axis_alternatives(b: Context, axis: axes.Axis, answers: Mapping[int, Answer]) -> list[Json]:
    """Return an entry for each value except the plan's own.

    `same_otherwise` is the plan's layout with only this value changed: the laws that it breaks, as far as their values
    are known, and its prices if the mesh is legal. In an isolation, every variant's laws count.
    """
    near = judged(b.compiled, b.chosen.cost, b.row, [(axis, v) for v in answers])
    rows = [{**n.codes, **n.prices} for n in near]
    broken_there = broken_by_row(b.compiled.laws, b.compiled.table(rows)) if rows else []
    # Laws that refuse a value in every layout, because they read only this axis
    only, out = [law for law in b.compiled.laws if law.needs <= {axis.name}], list[Json]()
    for n, laws in zip(near, broken_there, strict=True):
        legal = not isnan(n.peak_memory)
        rules = dict.fromkeys(law.rule for law in laws if legal or not law.priced)
        env = b.chosen.environment(n.codes, n.prices if legal else {}) if rules else {}
        breaks = [{"rule": r.id, "because": r.because, "tree": tree(r.expr, env, b.lets)} for r in rules]
        own = {**prices(b, n.step_time, n.peak_memory), "needed_gib": n.needed / GIB} if legal else {}
        always = broken(only, b.compiled.table([{**b.row.codes, axis.name: n.code}]))
        of_value = best(b, answers[n.code], {axis.name}, [law.rule.id for law in always])
        out.append({"value": axis.decode(n.code), "same_otherwise": {"breaks": breaks, **own}, "best": of_value})
    return out


def prices(b: Context, step_time: float, peak_memory: float) -> Json:
    """Return the step time in seconds and the peak in GiB, with their differences from the plan's."""
    return {
        "step_time_s": step_time,
        "peak_gib": peak_memory / GIB,
        "step_time_change": step_time / b.row.step_time - 1,
        "peak_change_gib": (peak_memory - b.row.peak_memory) / GIB,
    }


def best(b: Context, f: Answer, queried: set[str], alone: Sequence[str] = ()) -> Json:
    """Compare a variant's best layout with the plan's, or say what refuses the variant."""
    if f.row is None:
        least = f.least_needed / GIB if f.legal and f.least_needed < float("inf") else None
        return {"legal_layouts": f.legal, "least_gib": least, "refused_by": [*alone], "layout": None}
    # The first ranking key in which the two layouts differ
    keys = zip((*b.compiled.wishes, *b.compiled.ranks), b.row.keys, f.row.keys, strict=False)
    key, decided_by = next((key for key, mine, theirs in keys if mine != theirs), None), None
    if key is not None:
        here, there = (json_value(evaluate(key.expr, env)) for env in (b.env, b.env_of(f.row)))
        decided_by = {"key": print_expr(key.expr), "plan": here, "other": there}
    return {
        "legal_layouts": f.legal,
        "layout": f.row.layout,
        "changes": {n: v for n, v in f.row.changes(b.row.codes).items() if n not in queried},
        **prices(b, f.row.step_time, f.row.peak_memory),
        "decided_by": decided_by,
        "against_advice": sorted({*b.compiled.unfollowed(f.row)} - b.unfollowed),
    }


MOST = 12
"""The most alternatives listed for a size: the nearest ones."""


def axis_values(p: Program, axis: axes.Axis, gpus: int, chosen: int) -> list[int]:
    """Return the values of an axis to compare.

    They are every option of an enumeration, the nearest divisors of the GPUs for a mesh size, else the values that
    phases would try without the axis's pin."""
    if axis.kind in ("enum", "flag"):
        return [*range(2 if axis.kind == "flag" else len(axis.words))]
    if axis.name in axes.SIZES:
        return sorted(sorted(divisors(gpus), key=lambda v: abs(log2(v / chosen)))[:MOST])
    free = evolve(p, pins={a: pin for a, pin in p.pins.items() if a != axis.name})
    tried = (int(v) for phase in axes.PHASES for v in lower(evolve(free, phase=phase), gpus).domains[axis.name])
    values = [*dict.fromkeys([*tried, chosen])]
    return sorted(values) if axis.kind == "int" else values


def let_values(b: Context, name: str) -> list[int]:
    """Return a let's values over the legal meshes, those nearest to the plan's; none if the let depends on policies."""
    if not b.compiled.needs.get(name, frozenset({""})) <= frozenset(MESH):
        return []
    values = [int(v) for v in different(np.asarray(b.search.legal[name])) if float(v).is_integer()]
    at = max(1, int(b.env[name]))
    return sorted(sorted(values, key=lambda v: abs(log2(max(v, 1) / at)))[:MOST])


def best_with(
    b: Context, axis: str, values: Sequence[int], more: Sequence[Question] = ()
) -> tuple[dict[int, Answer], list[Answer]]:
    """Find the best layout with each value of an axis pinned and everything else re-optimized.

    `more` questions about the run's own space are answered too, in the same pass if that space has some of the values.
    """
    if not values:
        return {}, b.answers(more)
    p, problem = b.program, b.chosen.problem
    held = {n: problem.values[n] for n in ("seq", "global_batch")}
    # Group the values whose pins give the other axes the same domains; each group has one problem
    groups: dict[tuple[Any, ...], tuple[Problem, list[int]]] = {}
    for v in values:
        pins = {**p.pins, axis: Pin(axis, v, p.spans["hardware"])}
        pinned = lower(evolve(p, pins=pins), problem.gpus, held)
        key = tuple((n, tuple(d)) for n, d in pinned.domains.items() if n != axis)
        groups.setdefault(key, (pinned, []))[1].append(v)
    own, out, others = problem.domains, dict[int, Answer](), list[Answer]()
    for pinned, group in groups.values():
        # Use the run's own search if it has the values and the same other domains, else search only these values
        same = all(sorted(d) == sorted(pinned.domains[n]) for n, d in own.items() if n != axis)
        if same and {*group} <= {*own[axis].tolist()}:
            search = b.search
        else:
            domains = {**pinned.domains, axis: np.array(group, dtype=np.int64)}
            search = Search(evolve(b.compiled, problem=evolve(pinned, domains=domains)), b.chosen.cost)
        also = more if search is b.search and not others else ()
        answers = search.answers([*(Question({axis: v}) for v in group), *also])
        out |= dict(zip(group, answers, strict=False))
        others += answers[len(group) :]
    return {v: out[v] for v in values}, others or b.answers(more)


PRICED = ("followed", "not followed")
"""The states in which advice has a price."""


def questions(b: Context, laws: Iterable[Law]) -> list[Question]:
    """Make the questions whose answers price the advice."""
    states = [(law, _state(b, law)) for law in laws]
    return [
        Question(law=law) if state == "not followed" else Question(dropped=law.rule.id)
        for law, state in states
        if state in PRICED
    ]


def priced_advice(b: Context, laws: Iterable[Law], answers: Sequence[Answer]) -> list[Json]:
    """Price each piece of advice by the `answers` to its `questions`."""
    out, left = list[Json](), iter(answers)
    for law in laws:
        r, state, price = law.rule, _state(b, law), None
        if state in PRICED:
            found = next(left).row
            # the layout without the advice follows it anyway: the plan passed it over for one nearer to what has run
            if found is not None and state == "followed" and not broken([law], b.compiled.at(found)):
                found = b.row
            if found is None:
                price = {"layout": None, "because": unanswered(law, b.program)}
            else:
                price = {"changes": found.changes(b.row.codes), **prices(b, found.step_time, found.peak_memory)}
        entry = {"text": print_expr(r.expr), "worth": r.worth, "wish": r.wish, "state": state, "price": price}
        out.append({**b.cited(r), **entry})
    return out


def _state(b: Context, law: Law) -> str:
    """Return the state of advice; if it is not applicable or independent of the layout, it has no price."""
    e = law.rule.expr
    if not law.rule.holds(b.env):
        return "not followed" if law.needs else "independent of the layout"
    # `a => b` may hold because `a` does not
    vacuous = isinstance(e, ast.Binary) and e.op == "=>" and not evaluate(e.left, b.env)
    return "followed" if law.needs and law.rule.applies(b.env) and not vacuous else "not applicable"

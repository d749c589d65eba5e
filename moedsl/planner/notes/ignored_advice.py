"""Note advice that a run ignores, and advice that costs the verdict FITS and saves no time by the estimate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isnan

from moedsl.cost.bounds import FITS, fits, verdict
from moedsl.facts import axes
from moedsl.facts.axes import named_value
from moedsl.lang.printer import print_expr
from moedsl.rules.vectorizer import names
from moedsl.solver.laws import Compiled, Law, broken
from moedsl.solver.neighbours import Neighbour, judged
from moedsl.solver.search import MEMORY_POLICIES, TRANSPORT_POLICIES
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row
from moedsl.support.diagnostics import Diagnostic, note, warning
from moedsl.support.source import Span


def unheeded(c: Compiled, row: Row) -> list[Diagnostic]:
    """Note advice on the run itself that it ignores, and warn of grave advice that the chosen layout ignores."""
    of_the_run = broken([law for law in c.advice if not law.needs], c.empty())
    run = [_diagnostic(note, c, law, _of_the_run(c, law)) for law in of_the_run]
    weighty = [law for law in c.advice if law.needs and law.rule.is_grave]
    grave = broken(weighty, c.at(row))
    return [*run, *(_diagnostic(warning, c, law, _of_the_layout(c, law)) for law in grave)]


def _of_the_run(c: Compiled, law: Law) -> Span:
    """The run's own rule, else the statement that the advice reads, else the hardware."""
    if not law.rule.is_std:
        return law.rule.span
    spans = c.problem.program.spans
    return next((spans[n] for n in sorted(names(law.rule.expr)) if n in spans), spans["hardware"])


def _of_the_layout(c: Compiled, law: Law) -> Span:
    """The run's own rule, else the first pin that the advice reads, else the hardware."""
    if not law.rule.is_std:
        return law.rule.span
    pins = c.problem.program.pins
    pinned = sorted(law.needs & pins.keys())
    return pins[pinned[0]].span if pinned else c.problem.program.spans["hardware"]


def _diagnostic(kind: Callable[..., Diagnostic], c: Compiled, law: Law, where: Span) -> Diagnostic:
    read = sorted(names(law.rule.expr))
    values = {n: named_value(n, c.problem.values[n]) for n in read if n in c.problem.values}
    text = law.rule.because or law.rule.name
    if not law.rule.is_std:  # a reason of a run's own rule need not say what it asks for
        text = f"`{print_expr(law.rule.expr)}` is not followed: {text}"
    return kind(law.rule.id, text, where, values=values, cites=law.rule.cites)


ROUNDING = 1e-9
"""Largest difference of two step times that count as equal, as a share."""


def idle_advice(chosen: Chosen) -> list[Diagnostic]:
    """Note each advice that led to a layout that may not fit, if another policy FITS and is as fast."""
    row = chosen.solution.rows[0]
    spare = row.prices["spare_memory"]
    if fits(chosen.cost, row.codes) if isnan(spare) else spare >= 0:
        return []
    first: dict[str, tuple[Law, Neighbour]] = {}
    for n in _as_fast(chosen, row):
        for law in _left(chosen, row, n):
            first.setdefault(law.rule.id, (law, n))
    return [_note(chosen, row, law, n) for law, n in first.values()]


def _as_fast(chosen: Chosen, row: Row) -> Iterator[Neighbour]:
    """Layouts with another value of one policy that advice reads: legal, no slower, and FITS."""
    domains = chosen.problem.domains
    read = frozenset[str]().union(*(law.needs for law in chosen.compiled.advice if law.rule.worth))
    policies = (a for a in (*MEMORY_POLICIES, *TRANSPORT_POLICIES) if a in read)
    tried = [(axes.BY_NAME[a], int(v)) for a in policies for v in domains[a] if len(domains[a]) > 1]
    for n in judged(chosen.compiled, chosen.cost, row, tried):
        quick = n.refused_by is None and n.step_time <= row.step_time * (1 + ROUNDING)
        if quick and fits(chosen.cost, n.codes):
            yield n


def _left(chosen: Chosen, row: Row, n: Neighbour) -> list[Law]:
    """The advice with a weight that the row follows and its neighbour does not."""
    there = chosen.compiled.table([{**n.codes, **n.prices}])
    weighty = [law for law in chosen.compiled.advice if law.rule.worth]
    ignored = broken(weighty, chosen.compiled.at(row))
    return [law for law in broken(weighty, there) if law not in ignored]


def _note(chosen: Chosen, row: Row, law: Law, n: Neighbour) -> Diagnostic:
    p, axis = chosen.problem.program, axes.BY_NAME[n.axis]
    own, other = axis.decode(row.codes[n.axis]), axis.decode(n.code)
    return note(
        "plan.idle_advice",
        f"{n.axis} {axes.show(own)} follows {law.rule.id}, saves no time by the estimate, and is "
        f"{verdict(chosen.cost, row.codes)}: {axes.show(other)} is as fast and {FITS}",
        p.spans.get("phase", p.spans["hardware"]),
        because=law.rule.because,
        cites=law.rule.cites,
        help=f"write `pin {n.axis}={axes.written(other)}` if a sure fit is worth more to you",
        values={"worth": f"{law.rule.worth:.0%}"},
    )

"""Advice that costs the verdict and gains nothing by the estimate, as notes: what to pin where that matters more."""

from __future__ import annotations

from collections.abc import Iterator

from moedsl.cost.bounds import FITS, bounds, fits
from moedsl.diagnostics.model import Diagnostic, note
from moedsl.schema import axes
from moedsl.solver.laws import Law, broken
from moedsl.solver.neighbours import Neighbour, judged
from moedsl.solver.search import HELD, MOVED
from moedsl.solver.solve import Chosen
from moedsl.solver.table import Row

ROUNDING = 1e-9
"""Share of the step time below which two layouts are as fast."""


def idle_advice(chosen: Chosen) -> list[Diagnostic]:
    """A note for each advice by which a layout that may not fit was taken, where another policy FITS and is as fast."""
    row = chosen.solution.rows[0]
    if fits(chosen.cost, row.codes):
        return []
    first: dict[str, tuple[Law, Neighbour]] = {}
    for n in _as_fast(chosen, row):
        for law in _left(chosen, row, n):
            first.setdefault(law.rule.id, (law, n))
    return [_note(chosen, row, law, n) for law, n in first.values()]


def _as_fast(chosen: Chosen, row: Row) -> Iterator[Neighbour]:
    """Layouts one policy away, which some advice speaks of, that are legal, no slower and FIT."""
    domains = chosen.problem.domains
    spoken_of = frozenset[str]().union(*(law.needs for law in chosen.compiled.advice if law.rule.worth))
    policies = (a for a in (*HELD, *MOVED) if a in spoken_of)
    tried = [(axes.BY_NAME[a], int(v)) for a in policies for v in domains[a] if len(domains[a]) > 1]
    for n in judged(chosen.compiled, chosen.cost, row, tried):
        quick = n.refused_by is None and n.step_time <= row.step_time * (1 + ROUNDING)
        if quick and fits(chosen.cost, _codes(row, n)):
            yield n


def _codes(row: Row, n: Neighbour) -> dict[str, int]:
    return {**row.codes, n.axis: n.code}


def _left(chosen: Chosen, row: Row, n: Neighbour) -> list[Law]:
    """The advice with a weight that the row follows and its neighbour does not."""
    prices = {"peak_memory": n.peak_memory, "spare_memory": n.spare_memory, "step_time": n.step_time}
    there = chosen.compiled.table([{**_codes(row, n), **prices}])
    weighty = [law for law in chosen.compiled.advice if law.rule.worth]
    ignored = broken(weighty, chosen.compiled.at(row))
    return [law for law in broken(weighty, there) if law not in ignored]


def _note(chosen: Chosen, row: Row, law: Law, n: Neighbour) -> Diagnostic:
    p, axis = chosen.problem.program, axes.BY_NAME[n.axis]
    own, other = axis.decode(row.codes[n.axis]), axis.decode(n.code)
    verdict = bounds(chosen.cost, row.codes).verdict
    return note(
        "plan.idle_advice",
        f"{n.axis} {axes.said(own)} follows {law.rule.id}, which the estimate sees no gain in, and is {verdict}: "
        f"{axes.said(other)} is as fast and {FITS}",
        p.spans.get("phase", p.spans["hardware"]),
        because=law.rule.because,
        cites=law.rule.cites,
        help=f"write `pin {n.axis}={axes.written(other)}` where a run that surely fits is worth more",
        values={"worth": f"{law.rule.worth:.0%}"},
    )

"""Advice that a run goes against: on the run itself as notes, and grave advice that its layout does not follow."""

from __future__ import annotations

from collections.abc import Callable

from moedsl.diagnostics.model import Diagnostic, note, warning
from moedsl.diagnostics.source import Span
from moedsl.rules.vectorizer import names
from moedsl.schema.axes import json_value
from moedsl.solver.laws import Compiled, Law, broken
from moedsl.solver.table import Row


def unheeded(c: Compiled, row: Row) -> list[Diagnostic]:
    """A note for each advice that reads nothing which the search decides and that the run goes against; a warning for
    grave advice that the chosen layout does not follow, at what the run pins of it."""
    of_the_run = broken([law for law in c.advice if not law.needs], c.empty())
    run = [_said(note, c, law, _of_the_run(c, law)) for law in of_the_run]
    weighty = [law for law in c.advice if law.needs and law.rule.is_grave]
    grave = broken(weighty, c.at(row))
    return [*run, *(_said(warning, c, law, _of_the_layout(c, law)) for law in grave)]


def _of_the_run(c: Compiled, law: Law) -> Span:
    """The statement that gives the advice its case."""
    spans = c.problem.program.spans
    return next((spans[n] for n in sorted(names(law.rule.expr)) if n in spans), spans["hardware"])


def _of_the_layout(c: Compiled, law: Law) -> Span:
    """The first pin that the advice reads, else the hardware, on which nothing better fits or ranks before it."""
    pins = c.problem.program.pins
    pinned = sorted(law.needs & pins.keys())
    return pins[pinned[0]].span if pinned else c.problem.program.spans["hardware"]


def _said(kind: Callable[..., Diagnostic], c: Compiled, law: Law, where: Span) -> Diagnostic:
    read = sorted(names(law.rule.expr))
    values = {n: json_value(c.problem.values[n]) for n in read if n in c.problem.values}
    return kind(law.rule.id, law.rule.because or law.rule.name, where, values=values, cites=law.rule.cites)

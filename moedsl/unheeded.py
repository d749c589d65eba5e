"""Advice that no layout of a run can follow: on the run itself as notes, on what it pins as warnings where grave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from moedsl.axes import json_value
from moedsl.columns import names
from moedsl.diagnostics import Diagnostic, note, warning
from moedsl.source import Span
from moedsl.tables import Compiled, Law, Table


def unheeded(c: Compiled) -> list[Diagnostic]:
    """A note for each advice that reads nothing which the search decides and that the run goes against; a warning for
    grave advice that reads nothing but what the run pins."""
    run = [_said(note, c, law, _of_the_run(c, law)) for law in c.advice if not law.needs and _against(law, c.empty())]
    pins = c.problem.program.pins
    pinned = c.empty().assume(**{name: pin.code for name, pin in pins.items()})
    grave = [w for w in c.advice if w.needs and w.needs <= pins.keys() and w.rule.is_grave]
    return [*run, *(_said(warning, c, w, pins[min(w.needs)].span) for w in grave if _against(w, pinned))]


def _against(law: Law, table: Table) -> bool:
    return not np.all(law.holds(table))


def _of_the_run(c: Compiled, law: Law) -> Span:
    """The statement that gives the advice its case."""
    spans = c.problem.program.spans
    return next((spans[n] for n in sorted(names(law.rule.expr)) if n in spans), spans["hardware"])


def _said(kind: Callable[..., Diagnostic], c: Compiled, law: Law, where: Span) -> Diagnostic:
    read = sorted(names(law.rule.expr))
    values = {n: json_value(c.problem.values[n]) for n in read if n in c.problem.values}
    return kind(law.rule.id, law.rule.because or law.rule.name, where, values=values, cites=law.rule.cites)

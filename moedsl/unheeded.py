"""Advice on the run itself that no layout can follow, as notes: what a person should know before the plan is read."""

from __future__ import annotations

import numpy as np

from moedsl.axes import json_value
from moedsl.columns import names
from moedsl.diagnostics import Diagnostic, note
from moedsl.tables import Compiled, Law


def unheeded(c: Compiled) -> list[Diagnostic]:
    """A note for each advice that reads nothing which the search decides and that the run goes against."""
    return [_note(c, law) for law in c.advice if not law.needs and not np.all(law.holds(c.empty()))]


def _note(c: Compiled, law: Law) -> Diagnostic:
    p, read = c.problem.program, sorted(names(law.rule.expr))
    where = next((p.spans[n] for n in read if n in p.spans), p.spans["hardware"])
    values = {n: json_value(c.problem.values[n]) for n in read if n in c.problem.values}
    return note(law.rule.id, law.rule.because or law.rule.name, where, values=values, cites=law.rule.cites)

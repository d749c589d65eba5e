"""Read `for`: how long a run trains."""

from __future__ import annotations

import re
from collections.abc import Mapping

from moedsl.facts.field_suggestions import last_name
from moedsl.lang import ast
from moedsl.support.diagnostics import REPLACE, Diagnostic, Fix, error, suggest

FIELDS = ("train.train_iters", "train.train_samples", "train.num_epochs")
"""The fields of Bridge that state a length."""
UNITS: Mapping[str, tuple[str, int]] = {
    "tokens": ("run_tokens", 1),
    "hours": ("run_seconds", 3600),
    "days": ("run_seconds", 86400),
}
"""The name that rules read, and how much one is of it."""
_DAYS = {"week": 7, "weeks": 7, "month": 30, "months": 30}
MOST = 10**18
_EXAMPLE = "write `for 2T tokens` or `for 14 days`"
_SCALES = {"": 1, "M": 10**6, "B": 10**9, "T": 10**12}
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([MBT]?)")


def read(stmt: ast.ForStmt, diagnostics: list[Diagnostic]) -> Mapping[str, int]:
    """The stated length, by the name that rules read."""
    unit, amount = stmt.unit.id, _AMOUNT.fullmatch(stmt.amount.id)
    if unit not in UNITS:
        text = f"`for` counts {', '.join(UNITS)}, not `{unit}`"
        field = f"train.{last_name(unit.lower())}"
        right = f"set {field} = {stmt.amount.id}" if field in FIELDS and stmt.amount.id.isdecimal() else ""
        if unit in _DAYS and stmt.amount.id.isdecimal():
            right = f"for {int(stmt.amount.id) * _DAYS[unit]} days"
        fixes = (Fix(f"Write `{right}`", REPLACE, stmt.span, right),) if right else ()
        help = (f"write `{right}`",) if right else suggest(unit, [*UNITS]) or (_EXAMPLE,)
        diagnostics.append(error("check.unknown_word", text, stmt.unit.span, help=help, fixes=fixes))
        return {}
    name, one = UNITS[unit]
    value = round(float(amount[1]) * _SCALES[amount[2]] * one) if amount else 0
    if not 0 < value <= MOST or (amount and amount[2] and name != "run_tokens"):
        text = f"`{stmt.amount.id}` is not a number of {unit}"
        diagnostics.append(error("check.size", text, stmt.amount.span, help=_EXAMPLE))
        return {}
    return {name: value}

"""Explain why the variants of an isolation share no layout: one has none of its own, or several conflict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from attrs import evolve

from moedsl.facts import axes
from moedsl.lang.printer import print_expr
from moedsl.planner.isolate.arms import Arm, broken, search
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.infeasible.analyse import analyse
from moedsl.solver.infeasible.report import diagnostic
from moedsl.solver.table import Row
from moedsl.support.diagnostics import Diagnostic, Label, error

ID = "solve.isolation"


def conflict(p: Program, arms: Sequence[Arm]) -> list[Diagnostic]:
    """Make one error for each variant without a layout of its own, else one for the smallest set that has none."""
    own = [(arm, search([arm], keep=1).rows) for arm in arms]
    alone = [arm for arm, rows in own if not rows]
    if alone:
        return [_alone(p, arm, alone) for arm in alone]
    best = {arm.variant.label: rows[0] for arm, rows in own}
    for pair in combinations(arms, 2):
        if not search(pair, keep=1).rows:
            return [_apart(p, pair, best)]
    return [_apart(p, arms, best)]


def _alone(p: Program, arm: Arm, others: Sequence[Arm]) -> Diagnostic:
    """Explain the conflict in one of the variants without a layout, as for a run of its own."""
    found = diagnostic(analyse(arm.chosen))
    other = f"write another value in place of `{arm.variant.label}`, or drop the isolation"
    help = (*(_drop(p, others) or (other,)), *(h for h in found.help if not _of_the_pins(h, arm)))
    return evolve(found, message=f"{_named(p, arm)}: {found.message}", help=help)


def _of_the_pins(help: str, arm: Arm) -> bool:
    """Whether a way out gives up the value that the variant is there for."""
    return any(help.startswith(f"write `pin {a}=") for a in arm.variant.codes)


def _apart(p: Program, arms: Sequence[Arm], best: dict[str, Row]) -> Diagnostic:
    """Explain variants that have layouts, but none in common."""
    reasons = [(a, b, broken(b, best[a.variant.label])) for a in arms for b in arms if a is not b]
    said = [(a, b, rule) for a, b, rule in reasons if rule is not None]
    words = " and ".join(f"`{a.variant.label}`" for a in arms)
    text = f"no single layout of {p.model.name} on {arms[0].chosen.problem.gpus} {p.hardware.name} works for {words}"
    labels = [Label(p.isolate.span, "one layout for all of these")] if p.isolate else []
    labels += [Label(r.span, "required here") for r in dict.fromkeys(rule for *_, rule in said)]
    help = tuple(_reason(a, b, best[a.variant.label], rule) for a, b, rule in said)
    drop = tuple(line for arm in arms[1:] for line in _drop(p, [arm]))
    because = "an isolation changes one thing: every variant must be legal and fit with all else the same"
    return error(ID, text, *labels, help=(*help, *drop), because=because)


def _reason(a: Arm, b: Arm, row: Row, rule: Rule) -> str:
    layout = axes.pairs({n: axes.BY_NAME[n].decode(row.codes[n]) for n in axes.SUMMARY})
    return f"the best layout of `{a.variant.label}` ({layout}) breaks {rule.id} in `{b.variant.label}`: " + print_expr(
        rule.expr
    )


def _drop(p: Program, arms: Sequence[Arm]) -> tuple[str, ...]:
    """Write the statement without some variants, if two or more remain."""
    assert p.isolate is not None
    out = [arm.variant.label for arm in arms]
    left = [v.label for v in p.isolate.variants if v.label not in out]
    words = " and ".join(f"`{label}`" for label in out)
    return (f"leave {words} out: `isolate {p.isolate.axis} in {', '.join(left)}`",) if left[1:] else ()


def _named(p: Program, arm: Arm) -> str:
    assert p.isolate is not None
    return f"with {p.isolate.axis} {arm.variant.label}"

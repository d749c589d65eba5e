"""Check one layout against the rules' advice: whether it follows each piece, and what following it would cost.

The notes name advice that a run ignores, and advice that costs the verdict FITS although it saves no time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from math import isnan
from typing import Any

from attrs import evolve, frozen

from moedsl.cost.estimate import FITS, fits, verdict
from moedsl.facts import axes
from moedsl.facts.axes import named_value
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.planner.estimate import Certain, CertainLayout
from moedsl.rules.check.program import Program
from moedsl.rules.evaluators import names
from moedsl.rules.rule import Rule
from moedsl.solver.conflicts import shown
from moedsl.solver.laws import Compiled, Law, Row, broken
from moedsl.solver.neighbours import effect, judged
from moedsl.solver.problem import codes_of, first_of
from moedsl.solver.search import MEMORY_POLICIES, TRANSPORT_POLICIES, Question, TopK
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import Diagnostic, Label, note, warning
from moedsl.support.json_form import JsonForm
from moedsl.support.text import change


@frozen
class Advice(JsonForm):
    """A piece of advice from the rules."""

    rule: str
    followed: bool
    """True if the layout follows the advice, or if the advice does not apply."""
    because: str | None
    cite: tuple[str, ...]
    worth: float | None
    """Gain from following it, as a share of the step time."""
    cost: str | None
    """What following it would cost; null if it is followed."""


NEAR = 0.1
"""Largest increase of the step time, as a share, for a layout that FITS or follows advice that reads prices."""


def judge(
    chosen: Chosen, row: Row, env: Mapping[str, Any], tight: bool, priced: bool = True
) -> tuple[tuple[Advice, ...], Certain | None]:
    """Check the run's advice and preferences and, for a `tight` plan, find the best layout that FITS.

    Both share one more pass over the space. If not `priced`, no advice is returned."""
    at, ranks = len(chosen.compiled.wishes), chosen.compiled.ranks
    # The plan's ranking keys with a step longer by NEAR, if the phase ranks by time first
    limit = (*row.keys[:at], row.keys[at] * (1 + NEAR), math.inf) if by_time(chosen.compiled) else None
    laws = chosen.compiled.advice + chosen.compiled.wishes if priced else ()
    unfollowed = {law.rule.id: law for law in laws if not law.rule.holds(env)}
    # a law that reads prices needs a limit: without one, the search prices every layout if none obeys the law
    open_ = {n: TopK(1, Question(law=law), limit if law.priced else None) for n, law in unfollowed.items() if law.needs}
    fits_surely = evolve(
        ranks[0], needs=frozenset(a.name for a in axes.AXES), value=lambda t: chosen.cost.spare(t) >= 0
    )
    sure = TopK(1, Question(law=fits_surely), limit) if tight and not chosen.fell_back else None
    chosen.search.fill([*open_.values(), *([sure] if sure else [])])
    costs = dict[str, str]()
    for n, law in unfollowed.items():
        if (query := open_.get(n)) is None:
            costs[n] = "takes a change of the run, not of the layout"
        elif query.rows:
            costs[n] = against(query.rows[0], row)
        else:
            within = "" if query.limit is None else f" with a step at most {NEAR:.0%} longer"
            costs[n] = unanswered(law, chosen.problem.program, within)
    every = tuple(
        Advice(r.id, r.id not in costs, reason(r), r.cites, r.worth, costs.get(r.id)) for r in (w.rule for w in laws)
    )
    if not tight:
        return every, None
    found = [
        CertainLayout(r.changes(row.codes), r.peak_memory / GIB, r.step_time, against(r, row))
        for r in (sure.rows[:1] if sure else ())
    ]
    return every, Certain(None if limit is None or chosen.fell_back else NEAR, found[0] if found else None)


def by_time(c: Compiled) -> bool:
    """Whether the run's phase ranks layouts by their step time first."""
    return c.ranks[0].is_price and c.ranks[0].needs <= {"score", "step_time"}


def reason(r: Rule) -> str:
    """Return an advice rule's stated reason, or its expression if it states none (as in a run's own `prefer`)."""
    return r.because or f"the run prefers `{print_expr(r.expr)}`"


def unanswered(law: Law, p: Program, within: str = "") -> str:
    """Say why no layout follows the advice: the run fixes what it reads, or no legal layout that follows it fits."""
    stated = {n: f"{n}={shown(n, pin.code)}" for n, pin in p.pins.items() if n in law.needs}
    if not stated:
        return f"no legal layout that follows it fits{within}"
    values = ", ".join(stated.values())
    if law.needs <= stated.keys():
        return f"the run excludes it by {values}"
    return f"no legal layout with {values} that follows it fits{within}"


def against(other: Row, row: Row, close: bool = False) -> str:
    """Write how a layout differs from the plan's; `close`: the estimate cannot tell their step times apart."""
    return change(other.step_time / row.step_time - 1, (other.peak_memory - row.peak_memory) / GIB, close)


def unheeded(c: Compiled, row: Row) -> list[Diagnostic]:
    """Note ignored advice about the run itself, and warn of grave advice that the chosen layout ignores.

    Each diagnostic points at the rule if it is the run's own; else at the first statement or pin that the advice reads,
    or at the hardware.
    """
    p, out = c.problem.program, list[Diagnostic]()
    of_the_run = broken([law for law in c.advice if not law.needs], c.empty())
    grave = broken([law for law in c.advice if law.needs and law.rule.is_grave], c.at(row))
    for law in (*of_the_run, *grave):
        read, where, text = sorted(names(law.rule.expr)), p.spans["hardware"], law.rule.because or law.rule.name
        if not law.rule.is_std:  # a run's own rule may give a reason that does not say what it asks for
            where, text = law.rule.span, f"`{print_expr(law.rule.expr)}` is not followed: {text}"
        elif law.needs:
            where = next((p.pins[n].span for n in sorted(law.needs & p.pins.keys())), where)
        else:
            where = next((p.spans[n] for n in read if n in p.spans), where)
        values = {n: named_value(n, c.problem.values[n]) for n in read if n in c.problem.values}
        kind = warning if law.needs else note
        out.append(kind(law.rule.id, text, where, values=values, cites=law.rule.cites))
    return out


def against_policy(c: Chosen) -> Iterator[Diagnostic]:
    """Warn of each pin of a value that the run's own rules, such as those of a site, would not choose, with its price.

    These rules are the first `candidates` or `default` in force, and each `prefer`."""
    p, row = c.problem.program, c.solution.rows[0]
    env = c.environment(row.codes, row.prices)
    for pin in p.pins.values():
        axis = axes.BY_NAME[pin.axis]
        rules = (first_of(p.named(kind, axis.name), env) for kind in ("candidates", "default"))
        rule = next((r for r in rules if r is not None and not r.is_std), None)
        if rule is None:
            continue
        wanted = [int(code) for code in codes_of(axis, rule, env)]
        if pin.code in wanted:
            continue
        priced = judged(c.compiled, c.cost, row, [(axis, code) for code in wanted])
        best = min(priced, key=lambda n: (n.refused_by is not None, n.step_time))
        said = {"rule": rule.id, "axis": axis.name, "value": axes.show(axis.decode(pin.code))}
        said |= {"wanted": axes.show(axis.decode(best.code)), "why": rule.because or "it gives no reason"}
        label = Label(rule.span, "the rule")
        yield warning("plan.against_policy:value", pin.span, label, price=effect(best, row), cites=rule.cites, **said)
    own = [law for law in c.compiled.advice if not law.rule.is_std and law.needs & p.pins.keys()]
    for law in broken(own, c.compiled.at(row)):
        pin = next(p.pins[n] for n in sorted(law.needs & p.pins.keys()))
        label, why = Label(law.rule.span, "the rule"), reason(law.rule)
        yield warning("plan.against_policy:advice", pin.span, label, rule=law.rule.id, why=why)


ROUNDING = 1e-9
"""Step times that differ by at most this share count as equal."""


def idle_advice(chosen: Chosen) -> list[Diagnostic]:
    """Note each piece of advice that led to a layout that may not fit, if another policy FITS and is as fast."""
    p, row, compiled = chosen.problem.program, chosen.solution.rows[0], chosen.compiled
    spare = row.prices["spare_memory"]
    if fits(chosen.cost, row.codes) if isnan(spare) else spare >= 0:
        return []
    weighty = [law for law in compiled.advice if law.rule.worth]
    ignored = broken(weighty, compiled.at(row))
    read = frozenset[str]().union(*(law.needs for law in weighty))
    domains = {a: chosen.problem.domains[a] for a in (*MEMORY_POLICIES, *TRANSPORT_POLICIES) if a in read}
    tried = [(axes.BY_NAME[a], int(v)) for a, domain in domains.items() if len(domain) > 1 for v in domain]
    found: dict[str, Diagnostic] = {}
    for n in judged(compiled, chosen.cost, row, tried):
        if n.refused_by or n.step_time > row.step_time * (1 + ROUNDING) or not fits(chosen.cost, n.codes):
            continue
        axis = axes.BY_NAME[n.axis]
        for law in broken(weighty, compiled.table([{**n.codes, **n.prices}])):
            if law not in ignored and law.rule.id not in found:
                found[law.rule.id] = note(
                    "plan.idle_advice",
                    p.spans.get("phase", p.spans["hardware"]),
                    axis=n.axis,
                    now=axes.show(axis.decode(row.codes[n.axis])),
                    rule=law.rule.id,
                    verdict=verdict(chosen.cost, row.codes),
                    other=axes.show(axis.decode(n.code)),
                    fits=FITS,
                    written=axes.written(axis.decode(n.code)),
                    because=law.rule.because,
                    cites=law.rule.cites,
                    values={"worth": f"{law.rule.worth:.0%}"},
                )
    return [*found.values()]

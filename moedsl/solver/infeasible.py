"""Explain why no layout fits: a minimal conflict of wishes and laws, and the changes that resolve it.

The result is reported as a diagnostic, and as the JSON of an explanation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import evolve, frozen

from moedsl.facts.machines import MOST_GPUS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.symbols import AXES, CASES, HARDWARE, MEMORY
from moedsl.lang.printer import print_expr
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.conflicts import (
    Legality,
    Member,
    as_json,
    inactive,
    legal_on,
    members,
    minimal,
    read_by,
    reads_hardware,
    relaxed,
    sizes,
    wish_text,
    without,
)
from moedsl.solver.fits import MOST_TIMES, fits, fits_where_legal
from moedsl.solver.laws import SECONDS, reads_price
from moedsl.solver.nearest import NOTHING, Nearest, Values, anywhere, breaking, too_large, too_slow
from moedsl.solver.problem import cases
from moedsl.solver.relaxations import Relaxation, Together, further, opened, relaxations, together, whatever_the_gpus
from moedsl.solver.relaxations import as_json as relaxation_json
from moedsl.solver.solve import Chosen, NoLayout, solve
from moedsl.support.diagnostics import Diagnostic, Label, error
from moedsl.support.source import Source, place_of


@frozen(slots=False)
class Infeasible:
    """Why a problem has no layout. `legal` says whether some layout obeys the laws except those on prices."""

    chosen: Chosen
    """The problem, compiled."""
    core: tuple[Member, ...]
    legal: bool
    relaxations: tuple[Relaxation, ...] = ()
    others: tuple[tuple[Member, ...], ...] = ()
    """Further conflicts, if no single change is enough."""
    together: Together | None = None
    """Changes that are enough together, if no single one is."""

    @cached_property
    def near(self) -> Nearest:
        """Return the nearest layout, which takes a search."""
        p, gpus = self.chosen.problem.program, self.chosen.problem.gpus
        if self.legal:
            if self.too_slow:
                return too_slow(p, gpus, self.chosen.search)
            return too_large(p, gpus, self.chosen.search, self.above_limit)
        return breaking(p, gpus, self.core)

    @property
    def values(self) -> Values:
        """Return what the message says about the nearest layout."""
        if self.legal:
            return self.near.values
        if sum(m.rule is not None for m in self.core) > 1 and not any(m.kind == "pin" for m in self.core):
            return NOTHING  # which of the rules the layout breaks is arbitrary
        return anywhere(self.chosen, self.core) or self.near.values

    @property
    def laws(self) -> list[Rule]:
        return laws_of(self.core)

    @property
    def conflicts(self) -> tuple[tuple[Member, ...], ...]:
        """Return all conflicts, `core` first."""
        return self.core, *self.others

    @property
    def limits(self) -> list[Member]:
        """Return the requirements and laws of the user that limit a price."""
        return _price_limits(self.chosen.problem.program, members(self.chosen.compiled))

    @property
    def still_none(self) -> str:
        """Return a note that even without the conflicts no layout meets the limits of memory and prices; empty if one
        does."""
        c, t = self.chosen.problem, self.together
        if self.legal or t is None or t.gpus == c.gpus or not any(m.is_negotiable for m in self.conflicts[-1]):
            return ""
        limits = " and ".join(named(m) for m in self.limits)
        one, obeys = ("layout that fits", f" obeys {limits}") if limits else ("layout fits", "")
        return f"without these, still no {one} in the memory of {c.gpus} {c.program.hardware.name}{obeys}"

    @property
    def too_slow(self) -> bool:
        """Whether the conflict has a rule of the user that limits the step time."""
        return self._limits_one_of(SECONDS)

    @property
    def above_limit(self) -> bool:
        """Whether the conflict has a rule of the user that limits the memory."""
        return self._limits_one_of(MEMORY)

    def _limits_one_of(self, prices: Collection[str]) -> bool:
        needs = self.chosen.problem.program.rules.needs
        return any(
            m.rule is not None and not needs(m.rule.reads).isdisjoint(prices) for m in self.core if m.is_negotiable
        )


def named(m: Member) -> str:
    """Name a wish or a rule of the user."""
    return wish_text(m) if m.stated else f"rule `{m.key}`"


def laws_of(core: Sequence[Member]) -> list[Rule]:
    """Return the laws among the members of a conflict."""
    return [m.rule for m in core if m.kind == "law" and m.rule is not None]


def analyse(c: Chosen) -> Infeasible:
    """Find a minimal conflict, the changes that resolve it, and the nearest layout."""
    x = briefly(c)
    ways = tuple(relaxations(c, x.core, x.legal))
    if ways:
        return evolve(x, relaxations=ways)
    p, gpus = c.problem.program, c.problem.gpus
    x = evolve(x, others=() if x.legal else further(p, gpus, x.core))
    cores = [[m for m in members(c.compiled) if m.is_negotiable]] if x.legal else x.conflicts
    # A conflict that no change of the user's and no number of GPUs resolves
    hopeless = not x.legal and any(
        not any(m.is_negotiable for m in core) and whatever_the_gpus(p, core) for core in cores
    )
    return x if hopeless else evolve(x, together=together(p, gpus, cores))


def briefly(c: Chosen) -> Infeasible:
    """Find a minimal conflict, but not the changes that resolve it, which take a search each."""
    all_ = members(c.compiled)
    legal = legal_on(c.compiled)
    if not legal:
        return Infeasible(c, tuple(minimal(all_, Legality(c.compiled, all_).holds)), legal)
    # the conflict may have wishes, candidates, and the user's laws on prices; all other laws stay
    limits = _price_limits(c.problem.program, all_)
    soft = [m for m in all_ if m.stated or m.kind == "candidates" or m in limits]
    stay = [m for m in all_ if m not in soft]

    def fits_with(active: list[Member]) -> bool:
        return fits_where_legal(relaxed(c.compiled, inactive(all_, stay + active)), c.cost, c.search)

    return Infeasible(c, tuple(minimal(soft, fits_with)), legal)


def telling(x: NoLayout) -> Chosen:
    """Return the problem whose conflict is explained.

    If the run names no number of GPUs, this is the largest with a legal layout, else the smallest on which a layout
    exists without the conflict.
    """
    if x.at is not None:
        return x.at
    p, gpus = x.program, x.legal
    if not gpus:  # the smallest number that fits without the conflict of one node; else a node
        node = p.hardware.gpus_per_node
        left = without(p, [m for m in briefly(solve(p, node, keep=0, must_fit=cases(p)[-1])).core if m.is_negotiable])
        gpus = next((n for n in counts(p.hardware, above=node - 1) if fits(left, n)), node)
    return solve(p, gpus, keep=0, must_fit=cases(p)[-1])


def _price_limits(p: Program, all_: Sequence[Member]) -> list[Member]:
    return [m for m in all_ if m.is_negotiable and m.rule is not None and reads_price(m.rule, p.of("let"))]


TOO_LARGE = "in every layout the most loaded rank needs more memory than its GPU has"


def diagnostic(x: Infeasible) -> Diagnostic:
    """Return one error: the conflict with its spans, and the changes that resolve it as help."""
    help = tuple(r.text for r in x.relaxations) or tuple(no_single_change(x))
    fixes = tuple(f for r in x.relaxations for f in r.fixes)
    laws = x.laws
    if x.legal:
        id = "solve.too_slow" if x.too_slow else "solve.does_not_fit"
        because = None if x.too_slow or x.above_limit else TOO_LARGE
        values, last = x.values.by_name, cases(x.chosen.problem.program)[-1]
        if last != CASES[-1] and values.get("least_gib", math.inf) <= values.get("visible_gib", 0):
            help += (
                "`risk oom` plans the layout that needs the least memory, which fits at the low end of the estimate",
            )
        return error(id, message(x), *_labels(x), help=help, because=because, values=x.values.by_name, fixes=fixes)
    because, cites = (laws[0].because, laws[0].cites) if laws else (None, ())
    id = laws[0].id if laws else "solve.conflict"
    more = {"because": because, "cites": cites, "values": x.values.by_name, "fixes": fixes}
    return error(id, message(x), *_labels(x), help=help, **more)


def message(x: Infeasible) -> str:
    """Describe the conflict in one line."""
    wishes = [named(m) for m in x.core if m.is_negotiable]
    if not x.legal:
        more = "".join(f"; {collision(x, core)}" for core in x.others) + (f"; {x.still_none}" if x.still_none else "")
        return f"no layout of {_where(x)} is legal: {collision(x, x.core)}{x.values.summary}{more}"
    within = f" with {', '.join(wishes)}" if wishes else ""
    if x.too_slow:
        return f"no layout of {_where(x)} takes the required time{within}: {x.values.summary}"
    return f"no layout of {_where(x)} fits{within or ' in memory'}: {x.values.summary}"


def collision(x: Infeasible, core: Sequence[Member]) -> str:
    """Describe a conflict by its members."""
    p = x.chosen.problem.program
    stated = [wish_text(m) for m in core if m.stated] + [s.text for s in sizes(p, core)]
    named = [*stated, *(m.key for m in core if m.kind in ("law", "candidates"))]
    return f"{', '.join(named)} {'collide' if len(named) > 1 else 'cannot hold'}"


def no_single_change(x: Infeasible) -> Iterator[str]:
    """Yield advice for when no single change is enough: changes that are enough together, and the reason for each
    conflict."""
    count = len(x.conflicts) + bool(x.still_none)
    several = count > 1
    what = f"these {count} conflicts must be resolved together" if several else "several are needed"
    p = x.chosen.problem.program
    read = read_by(p, x.core)
    if x.together is None and read and not read & {"gpus", *HARDWARE, *AXES, "seq", "global_batch"}:
        stated = ", ".join(f"`{n}`" for n in sorted(read & p.spans.keys()))
        yield f"no layout and no number of GPUs resolves this: change what the run states of {stated}"
    elif x.together is None:
        yield (
            f"no single change opens a layout; up to {MOST_TIMES} times the GPUs without pins and requirements are not "
            "enough either: shorten the sequence, or use GPUs with more memory"
        )
    else:
        *most, last = x.together.changes
        changes = f"{', '.join(most)} and {last}" if most else last
        yield f"no single change opens a layout: {what}, for example with {changes} ({opened(x.together.opens)})"
    for core in x.conflicts if several else ():
        why = "; ".join(f"{r.because} ({', '.join(r.cites)})" for r in laws_of(core) if r.because)
        yield f"{collision(x, core)}: {why}" if why else collision(x, core)
    if x.still_none:
        yield x.still_none


def _labels(x: Infeasible) -> list[Label]:
    """Return a label for every span that contributes: the statements first, then the laws and the phase."""
    p, cores = x.chosen.problem.program, x.conflicts
    all_ = [m for core in cores for m in core]
    labels = [Label(m.span, m.text) for m in all_ if m.stated]
    labels += [Label(s.span, s.text) for s in ([] if x.legal else sizes(p, all_))]
    laws = laws_of(all_)
    if "pipeline_layout" in p.spans and any("has_layout" in print_expr(r.expr) for r in laws):
        labels.insert(0, Label(p.spans["pipeline_layout"], "the pipeline layout pinned here"))
    if x.legal or x.still_none or reads_hardware(p, all_) or not labels:
        gpus = "" if p.gpus is None else f"{p.gpus} "
        labels.insert(1 if labels else 0, Label(p.spans["hardware"], f"{gpus}{p.hardware.name}"))
    labels += [Label(m.span, "required here") for m in (x.limits if x.still_none else ())]
    labels += [Label(r.span, "required here") for r in laws]
    labels += [Label(m.span, m.text) for m in all_ if m.kind == "candidates"]
    return [*dict.fromkeys(labels)]  # a law may be a part of several conflicts


def _where(x: Infeasible) -> str:
    p = x.chosen.problem.program
    gpus = f"{x.chosen.problem.gpus} {p.hardware.name}"
    return f"{p.model.name} on {gpus if p.gpus is not None else f'any number of {p.hardware.name} up to {MOST_GPUS}'}"


def explanation(c: Chosen, sources: Mapping[str, Source]) -> dict[str, Any]:
    """Return the report as JSON: the conflict's members, relaxations with the layouts that they open, nearest
    layout."""
    x, p = analyse(c), c.problem.program
    return {
        "version": 1,
        "kind": "infeasible",
        "run": p.name,
        "model": p.model.name,
        "hardware": p.hardware.name,
        "gpus": c.problem.gpus,
        "seq": c.problem.values["seq"],
        "phase": p.phase,
        "id": diagnostic(x).id,
        "message": message(x),
        "legal_but_for_prices": x.legal,
        "conflict": [{**as_json(m), "at": place_of(m.span, sources)} for m in x.core],
        "others": [[{**as_json(m), "at": place_of(m.span, sources)} for m in core] for core in x.others],
        "together": [] if x.relaxations else [*no_single_change(x)],
        "relaxations": [relaxation_json(r) for r in x.relaxations],
        "nearest": x.near.json,
    }

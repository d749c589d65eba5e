"""Explain why no layout fits: a minimal conflict of wishes and laws, and the changes that resolve it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from attrs import evolve, frozen

from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.symbols import CASES, MEMORY
from moedsl.rules.check.program import Program
from moedsl.rules.rule import Rule
from moedsl.solver.fits import fits, fits_where_legal
from moedsl.solver.infeasible.nearest import NOTHING, Nearest, Values, anywhere, breaking, too_large, too_slow
from moedsl.solver.infeasible.relax import Relaxation, relaxations, whatever_the_gpus
from moedsl.solver.infeasible.together import Together, further, together
from moedsl.solver.laws import SECONDS, reads_price
from moedsl.solver.legal import Legality, legal_on, relaxed
from moedsl.solver.members import Member, inactive, members, minimal, wish_text, without
from moedsl.solver.solve import Chosen, NoLayout, solve

LAST = CASES[-1]
"""The case of the memory estimate in which the last layout is refused."""


@frozen(slots=False)
class Infeasible:
    """Why a problem has no layout. `legal` tells whether some layout obeys the laws except those on prices."""

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
        """The nearest layout, which takes a search."""
        p, gpus = self.chosen.problem.program, self.chosen.problem.gpus
        if self.legal:
            if self.too_slow:
                return too_slow(p, gpus, self.chosen.search)
            return too_large(p, gpus, self.chosen.search, self.above_limit)
        return breaking(p, gpus, self.core)

    @property
    def values(self) -> Values:
        """What the message says of the nearest layout."""
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
        """All conflicts, this one first."""
        return self.core, *self.others

    @property
    def limits(self) -> list[Member]:
        """The requirements and laws of the user that limit a price."""
        return _price_limits(self.chosen.problem.program, members(self.chosen.compiled))

    @property
    def still_none(self) -> str:
        """Note that even without the conflicts no layout meets the limits of memory and prices; empty if one does."""
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
    """Name a wish or a rule of the user's."""
    return wish_text(m) if m.stated else f"rule `{m.key}`"


def laws_of(core: Sequence[Member]) -> list[Rule]:
    """The laws among the members of a conflict."""
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
    hopeless = not x.legal and any(_hopeless(p, core) for core in cores)
    return x if hopeless else evolve(x, together=together(p, gpus, cores))


def _hopeless(p: Program, core: Sequence[Member]) -> bool:
    """Whether no change of the user's and no number of GPUs resolves a conflict."""
    return not any(m.is_negotiable for m in core) and whatever_the_gpus(p, core)


def briefly(c: Chosen) -> Infeasible:
    """Find a minimal conflict, without changes, which take a search each."""
    all_ = members(c.compiled)
    legal = legal_on(c.compiled)
    core = tuple(_priced_core(c, all_) if legal else minimal(all_, Legality(c.compiled, all_).holds))
    return Infeasible(c, core, legal)


def telling(x: NoLayout) -> Chosen:
    """Choose the problem whose conflict is explained.

    If the run names no number of GPUs, it is the largest with a legal layout, else the smallest on which a layout
    exists without the conflict.
    """
    if x.at is not None:
        return x.at
    return solve(x.program, x.legal or _smallest_telling(x.program), keep=0, must_fit=LAST)


def _smallest_telling(p: Program) -> int:
    """The smallest number of GPUs, from a node up, with a layout without the conflict on a node; else a node."""
    node = p.hardware.gpus_per_node
    left = without(p, [m for m in briefly(solve(p, node, keep=0, must_fit=LAST)).core if m.is_negotiable])
    return next((n for n in counts(p.hardware, above=node - 1) if fits(left, n)), node)


def _priced_core(c: Chosen, all_: list[Member]) -> list[Member]:
    """Find a minimal set of wishes, and of the user's laws on prices, under which no legal layout meets the limits of
    memory and time; other laws stay."""
    limits = _price_limits(c.problem.program, all_)
    soft = [m for m in all_ if m.stated or m.kind == "candidates" or m in limits]
    background = [m for m in all_ if m not in soft]

    def test(active: list[Member]) -> bool:
        return fits_where_legal(relaxed(c.compiled, inactive(all_, background + active)), c.cost, c.search)

    return minimal(soft, test)


def _price_limits(p: Program, all_: Sequence[Member]) -> list[Member]:
    return [m for m in all_ if m.is_negotiable and m.rule is not None and reads_price(m.rule, p.of("let"))]

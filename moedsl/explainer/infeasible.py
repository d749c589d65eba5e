"""Why nothing fits: the smallest set of wishes and laws that collide, and what each single relaxation would open."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve, frozen

from moedsl.checker.program import Program
from moedsl.explainer.nearest import Nearest, breaking, too_large, too_slow
from moedsl.explainer.relax import Relaxation, relaxations
from moedsl.explainer.together import Together, further, together
from moedsl.rules.rule import Rule
from moedsl.rules.vectorizer import names
from moedsl.schema.gpu_counts import counts
from moedsl.solver.fits import fits, fits_where_legal
from moedsl.solver.legal import Legality, legal_on, relaxed
from moedsl.solver.members import Member, inactive, members, without
from moedsl.solver.quickxplain import minimal
from moedsl.solver.solve import Chosen, NoLayout, solve


@frozen
class Infeasible:
    """Why a problem has no layout. `legal` is whether some layout obeys the laws, its prices aside."""

    chosen: Chosen
    """The problem, compiled."""
    core: tuple[Member, ...]
    legal: bool
    relaxations: tuple[Relaxation, ...]
    near: Nearest
    others: tuple[tuple[Member, ...], ...] = ()
    """Conflicts besides this one, where no single change leads out."""
    together: Together | None = None
    """Changes that lead out together, where no single one does."""

    @property
    def laws(self) -> list[Rule]:
        return laws_of(self.core)

    @property
    def conflicts(self) -> tuple[tuple[Member, ...], ...]:
        """This one and the others."""
        return self.core, *self.others

    @property
    def lacks(self) -> str:
        """That the GPUs do not hold it either, once what collides has given way; empty where they do, or no GPUs do."""
        c, t = self.chosen.problem, self.together
        if self.legal or t is None or t.gpus == c.gpus or not any(m.gives_way for m in self.conflicts[-1]):
            return ""
        return f"the memory of {c.gpus} {c.program.hardware.name} holds no layout without those either"

    @property
    def too_slow(self) -> bool:
        """Whether a wish caps the step time and is a part of the conflict."""
        return any(m.rule is not None and "step_time" in names(m.rule.expr) for m in self.core if m.kind == "wish")


def laws_of(core: Sequence[Member]) -> list[Rule]:
    """The rules among the members of a conflict that are no wishes."""
    return [m.rule for m in core if m.kind == "law" and m.rule is not None]


def analyse(c: Chosen) -> Infeasible:
    """The minimal conflict, what leads out, and the nearest layout."""
    x = briefly(c)
    ways = tuple(relaxations(c, x.core, x.legal))
    if ways:
        return evolve(x, relaxations=ways)
    p, gpus = c.problem.program, c.problem.gpus
    x = evolve(x, others=() if x.legal else further(p, gpus, x.core))
    cores = [[m for m in members(c.compiled) if m.gives_way]] if x.legal else x.conflicts
    return evolve(x, together=together(p, gpus, cores))


def briefly(c: Chosen) -> Infeasible:
    """The minimal conflict and the nearest layout, without the ways out: those take a search each."""
    all_ = members(c.compiled)
    legal = legal_on(c.compiled)
    core = tuple(_priced_core(c, all_) if legal else minimal(all_, Legality(c.compiled, all_).holds))
    half = Infeasible(c, core, legal, (), Nearest("", {}))
    return evolve(half, near=_near(half))


def telling(x: NoLayout) -> Chosen:
    """The problem whose conflict is told. Where the run names no number of GPUs, one number stands for all: the
    largest that is legal, else the smallest on which dropping the conflict opens a layout."""
    if x.at is not None:
        return x.at
    return solve(x.program, x.legal or _smallest_telling(x.program), keep=0)


def _smallest_telling(p: Program) -> int:
    """The smallest number, from a node up, with a layout once what collides on a node has given way; else a node."""
    node = p.hardware.gpus_per_node
    left = without(p, [m for m in briefly(solve(p, node, keep=0)).core if m.gives_way])
    return next((n for n in counts(p.hardware, above=node - 1) if fits(left, n)), node)


def _priced_core(c: Chosen, all_: list[Member]) -> list[Member]:
    """The wishes that leave no layout within the memory, or the time that a wish sets, where some layout obeys all
    members but for its prices; laws stand."""
    background = [m for m in all_ if not m.stated and m.kind != "candidates"]
    soft = [m for m in all_ if m not in background]

    def test(active: list[Member]) -> bool:
        return fits_where_legal(relaxed(c.compiled, inactive(all_, background + active)), c.cost)

    return minimal(soft, test)


def _near(x: Infeasible) -> Nearest:
    p, gpus = x.chosen.problem.program, x.chosen.problem.gpus
    if x.legal:
        return too_slow(p, gpus) if x.too_slow else too_large(p, gpus)
    near = breaking(p, gpus, x.core)
    if sum(m.rule is not None for m in x.core) > 1 and not any(m.kind == "pin" for m in x.core):
        return evolve(near, summary="", values={})  # which of the rules the layout breaks is arbitrary
    return near

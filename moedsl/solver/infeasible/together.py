"""Find further conflicts, and changes that open a layout together, if no single change does."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from moedsl.rules.check.program import Program
from moedsl.solver.fits import fits, layouts
from moedsl.solver.infeasible.more_gpus import next_that_fits
from moedsl.solver.legal import Legality, legal_on
from moedsl.solver.members import Member, members, minimal, shown, wish_text, without
from moedsl.solver.solve import solve
from moedsl.solver.table import Row

MOST = 4
"""The most conflicts to search for after the first."""


@frozen
class Together:
    """Changes that open a layout together; `opens` counts the legal meshes on `gpus`, `best` is their best layout."""

    changes: tuple[str, ...]
    gpus: int
    opens: int
    best: Row


def further(p: Program, gpus: int, core: Sequence[Member]) -> tuple[tuple[Member, ...], ...]:
    """Find further conflicts, each without the members of earlier conflicts that the user can change."""
    out: list[tuple[Member, ...]] = []
    last, gone = tuple(core), list[Member]()
    while len(out) < MOST and any(m.is_negotiable for m in last):
        gone += [m for m in last if m.is_negotiable]
        left = solve(without(p, gone), gpus, keep=0).compiled
        if legal_on(left):
            break
        all_ = members(left)
        last = tuple(minimal(all_, Legality(left, all_).holds))
        out.append(last)
    return tuple(out)


def together(p: Program, gpus: int, conflicts: Sequence[Sequence[Member]]) -> Together | None:
    """Find a minimal set of changes that opens a layout: of members, and of the GPUs if their memory is insufficient.

    The number of GPUs alone opens none: that was tried. None if no number of GPUs has a layout, even without all
    members that the user can change.
    """
    changed = [m for core in conflicts for m in core if m.is_negotiable]
    at = _enough(without(p, changed), gpus) if changed else None
    if at is None:
        return None
    for m in [*changed]:
        others = [o for o in changed if o is not m]
        if fits(without(p, others), at):
            changed = others
    solution = solve(without(p, changed), at, keep=1).solution
    best = solution.rows[0]
    more = [f"`{p.hardware.name} x {at}`"] if at != gpus else []
    return Together((*(_change(p, m, best) for m in changed), *more), at, solution.legal, best)


def _enough(p: Program, gpus: int) -> int | None:
    """The first number of GPUs, from `gpus` up, with a layout."""
    c = solve(p, gpus, keep=0)
    more = c if layouts(c) else next_that_fits(c)
    return None if more is None else more.problem.gpus


def _change(p: Program, m: Member, best: Row) -> str:
    if m.kind != "pin":
        return f"no {wish_text(m)}" if m.kind == "wish" else f"no rule `{m.key}`"
    value = shown(m.key, best.codes[m.key])
    return f"`{m.key} {value}`" if m.key in p.spans else f"`pin {m.key}={value}`"

"""Find changes of an infeasible run that open a layout: a dropped wish, more GPUs, a shorter sequence.

If no single change does, find further conflicts, and changes that together open a layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import evolve, frozen

from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.rules.check.program import Pin, Program
from moedsl.solver.conflicts import (
    Legality,
    Member,
    legal_on,
    members,
    minimal,
    nearby,
    read_by,
    relaxed,
    shown,
    sizes,
    wish_text,
    without,
)
from moedsl.solver.fits import fits, layouts, next_that_fits
from moedsl.solver.laws import SECONDS, Row
from moedsl.solver.problem import cases
from moedsl.solver.search import Search, Solution
from moedsl.solver.solve import Chosen, solve
from moedsl.support.diagnostics import ADD, DROP, REPLACE, VALUE, Fix
from moedsl.support.text import counted, tokens

LONG = 32768
"""Sequence length, in tokens, from which the text says how many GPUs the length needs."""
_NAMED = [n for n in axes.LAYOUT if n in axes.SIZES and not axes.BY_NAME[n].quiet]


@frozen
class Relaxation:
    """One change as text, and the number of legal meshes with it; each of `fixes` makes the change."""

    text: str
    opens: int
    best: Callable[[], Row]
    """Returns the best layout with the change; it may take a search, so only an explanation calls it."""
    fixes: tuple[Fix, ...] = ()


def relaxations(c: Chosen, core: Sequence[Member], legal: bool) -> list[Relaxation]:
    """Find each single change that is enough, in the order in which a person would consider them."""
    p, gpus, seq = c.problem.program, c.problem.gpus, c.problem.values["seq"]
    out = [r for m in core if m.is_negotiable or m.kind == "candidates" for r in _drop(c, m, legal)]
    for s in () if legal else sizes(p, core):  # the nearest sequence length or batch with a legal layout
        for n in nearby(c.compiled, s):
            resized: dict[str, Any] = {s.name: n}
            if legal_on(solve(p, gpus, keep=0, **resized).compiled):
                out += _try(p, gpus, s.word, f"{s.word} {tokens(n)}", **resized)
                break
    more = next_that_fits(c) if p.gpus is not None and (legal or not whatever_the_gpus(p, core)) else None
    if more is not None:
        n = more.problem.gpus
        need = f"; at {tokens(seq)} this needs {n} {p.hardware.name}" if seq >= LONG else ""
        opens = _opened(p, n, "hardware", f"{p.hardware.name} x {n}", more.search)
        out += [evolve(r, text=r.text + need) for r in opens]
    halves = (2, 4) if read_by(p, core).isdisjoint(SECONDS) else (2,)  # half a sequence may still not fit
    shorter = (_try(p, gpus, "seq", f"seq {tokens(seq // n)}", seq=seq // n) for n in halves if seq // n >= 1024)
    return out + next(filter(None, map(list, shorter)), [])


def whatever_the_gpus(p: Program, core: Sequence[Member]) -> bool:
    """Whether the members collide on any number of GPUs: none reads that number, and each mesh axis that they read is
    pinned."""
    read = read_by(p, core)
    fixed = {m.key for m in core if m.kind == "pin"}
    open_mesh = {a for a in axes.SIZES if a in read} - fixed
    return not open_mesh and not read & {"gpus", "global_batch"}


def opened(layouts: int) -> str:
    """Format how many layouts a change opens."""
    return f"{counted(layouts, 'layout')} open{'s' if layouts == 1 else ''}"


def _drop(c: Chosen, m: Member, legal: bool) -> Iterator[Relaxation]:
    """Yield the relaxation that drops a member, if it opens a layout.

    If some layout is `legal` with the member, one is legal without it.
    """
    p, values = c.problem.program, c.problem.values
    if not legal and not legal_on(relaxed(c.compiled, [m])):
        return
    left, gpus = without(p, [m]), c.problem.gpus
    same = {n: values[n] for n in ("seq", "global_batch")}

    def solved() -> Solution:
        return solve(left, gpus, 3, c.search, **same).solution

    if m.kind == "wish" or m.own:
        opens = layouts(solve(left, gpus, keep=0, must_fit=cases(left)[-1], **same), c.search, legal=True)
        rows, best = (), lambda: solved().rows[0]
    else:
        solution = solved()
        opens, best = (solution.legal if solution.rows else 0), lambda: solution.rows[0]
        rows = (*solution.rows, *_other_words(c, m, solution))
    if opens:
        yield Relaxation(_dropped(p, m, opens, rows), opens, best, tuple(_fixes(p, m, rows)))


def _other_words(c: Chosen, m: Member, freed: Solution) -> Iterator[Row]:
    """Yield the best layout for each other value of the pin `m`, if a layout fits with that value.

    Only for axes of which the `freed` problem (without the pin) tries a single value, such as a number format.
    """
    axis, p, gpus = axes.BY_NAME.get(m.key), c.problem.program, c.problem.gpus
    if m.kind != "pin" or axis is None or axis.kind != "enum" or freed.search is None:
        return
    tried = freed.search.c.problem.domains[axis.name]
    if len(tried) > 1:
        return
    same = {n: c.problem.values[n] for n in ("seq", "global_batch")}
    left = without(p, [m])
    for code in {*range(len(axis.words))} - {int(tried[0]), m.code}:
        other = evolve(left, pins={**left.pins, axis.name: Pin(axis.name, code, m.span)})
        if legal_on(solve(other, gpus, keep=0, **same).compiled):
            yield from solve(other, gpus, 1, **same).solution.rows


def _dropped(p: Program, m: Member, opens: int, rows: Sequence[Row]) -> str:
    if m.own:
        return f"drop rule `{m.key}`, or write `{_allow(m)}` ({opened(opens)})"
    if m.kind == "wish":
        return f"drop {wish_text(m)} ({opened(opens)})"
    rest = _swept(p, m)
    if rest is not None:
        return f"drop {shown(m.key, p.pins[m.key].code)} from the sweep" if rest else "drop the sweep"
    if m.kind == "pin":
        values = dict.fromkeys(shown(m.key, r.codes[m.key]) for r in rows)
        others = f", or {', '.join([*values][1:])}" if len(values) > 1 else ""
        first = next(iter(values))
        statement, pin = (f"{m.key} {first}", "it") if m.key in p.spans else (f"pin {m.key}={first}", "the pin")
        return f"write `{statement}`{others}, or drop {pin} ({opened(opens)})"
    axis = m.key.rsplit(".", 1)[1]
    narrows = "the phase" if m.rule is None or m.rule.is_std else f"rule `{m.rule.id}`"
    return f"pin {axis}={shown(axis, rows[0].codes[axis])}, which {narrows} does not try"


def _swept(p: Program, m: Member) -> str | None:
    """Return the sweep without the value that the member pins (empty if it has no other); None if no sweep pins the
    member."""
    if m.kind != "pin" or p.sweep is None or p.sweep[0] != m.key:
        return None
    rest = [shown(m.key, code) for code in p.sweep[1] if code != p.pins[m.key].code]
    return f"sweep {m.key} in {', '.join(rest)}" if rest else ""


def _allow(m: Member) -> str:
    """Return the statement that suspends a rule of the user."""
    return f'allow {m.key.split(".", 1)[1]} because "..."'


def _fixes(p: Program, m: Member, rows: Sequence[Row]) -> Iterator[Fix]:
    """Yield the changes of `_dropped` as edits of the run file."""
    if m.kind == "candidates":
        axis = m.key.rsplit(".", 1)[1]
        pin = f"pin {axis}={shown(axis, rows[0].codes[axis])}"
        yield Fix(f"Write `{pin}`", ADD, p.spans["hardware"], pin, p.name)
        return
    rest = _swept(p, m)
    if rest:
        yield Fix(f"Write `{rest}`", REPLACE, m.span, rest)
        return
    if m.kind == "pin" and rest is None:
        for value in dict.fromkeys(shown(m.key, r.codes[m.key]) for r in rows):
            yield Fix(f"Write `{m.key}={value}`", VALUE, m.span, value)
    if m.own:
        yield Fix(f"Write `{_allow(m)}`", ADD, p.spans["hardware"], _allow(m), p.name)
    yield Fix(f"Drop `{wish_text(m).strip('`')}`", DROP, m.span)


def _try(p: Program, gpus: int, key: str, what: str, **overrides: Any) -> Iterator[Relaxation]:
    if legal_on(solve(p, gpus, keep=0, **overrides).compiled):
        yield from _opened(p, gpus, key, what, **overrides)


def _opened(
    p: Program, gpus: int, key: str, what: str, like: Search | None = None, **overrides: Any
) -> Iterator[Relaxation]:
    """Yield the change `what` if a layout fits with it; if the run sweeps the same thing, yield the sweep with the new
    value."""
    solution = solve(p, gpus, 1, like, **overrides).solution
    if not solution.rows:
        return
    axis, values = p.sweep or ("", ())
    old = {"gpus": p.gpus, "seq": p.seq, "batch": p.batch}.get(axis)
    new = {"gpus": gpus, **overrides}.get("global_batch" if axis == "batch" else axis, old)
    place, statement = key, what
    if old is not None and new is not None and new != old:
        kept = dict.fromkeys(new if v == old else v for v in values)
        place = "sweep"
        statement = f"sweep {axis} in {', '.join(tokens(v) if axis == 'seq' else str(v) for v in kept)}"
    best = solution.rows[0].codes
    layout = " ".join(f"{n}={best[n]}" for n in _NAMED if best[n] > 1) or "no model parallelism"
    text = f"write `{statement}`: {opened(solution.legal)}, the best with {layout}"
    # Replace the statement of the same thing, or add one if the run has none
    kind, span = (REPLACE, p.spans[place]) if place in p.spans else (ADD, p.spans["hardware"])
    fix = Fix(f"Write `{statement}`", kind, span, statement, p.name)
    yield Relaxation(text, solution.legal, lambda: solution.rows[0], (fix,))


def as_json(r: Relaxation) -> dict[str, Any]:
    """Return a relaxation as JSON, with the layout that it opens."""
    best = r.best()
    return {
        "change": r.text,
        "legal_layouts": r.opens,
        "best": best.layout,
        "step_time_s": best.step_time,
        "peak_gib": best.peak_memory / GIB,
    }


MOST = 4
"""Maximum number of conflicts to search for after the first."""


@frozen
class Together:
    """Changes that open a layout together; `opens` counts the legal meshes on `gpus`, `best` is their best layout."""

    changes: tuple[str, ...]
    gpus: int
    opens: int
    best: Row


def further(p: Program, gpus: int, core: Sequence[Member]) -> tuple[tuple[Member, ...], ...]:
    """Find further conflicts, each after dropping the members of earlier conflicts that the user can change."""
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
    """Find a minimal set of changes that together open a layout: dropped members, and more GPUs if memory is
    insufficient.

    More GPUs alone open none: that was tried. Return None if no number of GPUs has a layout, even without all members
    that the user can change.
    """
    changed = [m for core in conflicts for m in core if m.is_negotiable]
    if not changed:
        return None
    c = solve(without(p, changed), gpus, keep=0)
    enough = c if layouts(c) else next_that_fits(c)
    if enough is None:
        return None
    at = enough.problem.gpus
    for m in [*changed]:
        others = [o for o in changed if o is not m]
        if fits(without(p, others), at):
            changed = others
    solution = solve(without(p, changed), at, keep=1).solution
    best = solution.rows[0]
    changes = list[str]()
    for m in changed:
        if m.kind != "pin":
            changes.append(f"no {wish_text(m)}" if m.kind == "wish" else f"no rule `{m.key}`")
        else:
            value = shown(m.key, best.codes[m.key])
            changes.append(f"`{m.key} {value}`" if m.key in p.spans else f"`pin {m.key}={value}`")
    more = [f"`{p.hardware.name} x {at}`"] if at != gpus else []
    return Together((*changes, *more), at, solution.legal, best)

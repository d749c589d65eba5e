"""Offer code actions: fixes of diagnostics, pins of the solver's choices, `allow` for advice.

`source.fixAll` makes every correction of parse and check that has only one fix. The edits for pins also serve hints and
commands, in `plans.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import frozen
from lsprotocol import types

from moedsl.facts import axes
from moedsl.lang import ast
from moedsl.lang.printer import quote
from moedsl.lang.text_edits import Edit, added, disjoint, run_block
from moedsl.lang.text_edits import edits as edits_of_fix
from moedsl.lsp import analysis, legal
from moedsl.lsp.checking import place_of
from moedsl.lsp.document import ALLOW, FIX_ALL, PIN, QUICK_FIX, Document
from moedsl.lsp.workspace import Workspace
from moedsl.planner.plan import Plan
from moedsl.solver.conflicts import shown
from moedsl.solver.solve import Chosen
from moedsl.support.diagnostics import ADD, Diagnostic, Fix
from moedsl.support.source import Span, of_stdlib

REASON = "explain why it does not hold here"
"""The placeholder for the reason of an `allow`."""


@frozen
class Offer:
    """One code action, with its edits by the compiler's file names."""

    title: str
    kind: str
    changes: dict[str, tuple[Edit, ...]]
    answers: Diagnostic | None = None
    preferred: bool = False


def code_actions(workspace: Workspace, params: types.CodeActionParams) -> list[types.CodeAction] | None:
    """Return the actions for a range, only of the kinds that the client requests, if it names any."""
    document = workspace.readable(params.text_document.uri)
    if document is None:
        return None
    start, end = document.lines.offsets(params.range)
    # kinds are a hierarchy: `refactor` includes `refactor.rewrite`, and the empty kind includes all
    only = None if params.context.only is None else [getattr(o, "value", o) for o in params.context.only]
    out: list[types.CodeAction] = []
    for o in offers(document, start, end):
        if only is None or any(kind in ("", o.kind) or o.kind.startswith(f"{kind}.") for kind in only):
            place = None if o.answers is None else document.lines.span(place_of(o.answers, document))
            sent = [d for d in params.context.diagnostics if o.answers is not None and d.code == o.answers.id]
            answered = [d for d in sent if d.range == place] or None
            edit = workspace.edit(o.changes)
            out.append(types.CodeAction(o.title, o.kind, answered, o.preferred or None, edit=edit))
    return out


def offers(document: Document, start: int, end: int) -> Iterator[Offer]:
    """Yield every action between two offsets: fixes, then pins and `allow` for the run at the start, then all fixes."""
    name = document.source.name
    for d in document.diagnostics:
        place = place_of(d, document)
        if place.start <= end and start <= place.end:
            for fix in d.fixes:
                changes = fix_edits(document, fix)
                if changes:
                    yield Offer(fix.title, QUICK_FIX, {fix.span.file: changes}, d, len(d.fixes) == 1)
            if d.is_error and d.id.startswith(("std.", "run.")) and document.programs:
                yield from (o for p in document.programs for o in _allow(document, p.name, d.id, d))
    for run in runs_at(document, start):
        known, made = values(document, run), _chosen(document, run)
        every = pin(document, run, [*known])
        if every is not None:
            yield Offer(f"Pin all that the solver chose in `{run}`", PIN, {name: (every,)})
        for axis in [n for n in known if made is not None and len(made.problem.domains[n]) > 1]:
            one = pin(document, run, [axis])
            if one is not None:
                yield Offer(f"Pin {axis}={known[axis]}, the solver's choice in `{run}`", PIN, {name: (one,)})
        advice = [a.rule for plan in of_runs(document).get(run, ()) for a in plan.advice if not a.followed]
        yield from (o for rule in dict.fromkeys(advice) for o in _allow(document, run, rule, None))
    single = (d.fixes[0] for d in document.analysis.diagnostics if d.is_error and len(d.fixes) == 1)
    every = disjoint(fix_edits(document, fix) for fix in single if fix.span.file == name)
    if every:
        yield Offer("Fix all mistakes that have one correction", FIX_ALL, {name: tuple(every)})


def fix_edits(document: Document, fix: Fix) -> tuple[Edit, ...]:
    """Return the edits of a fix in its file; none if the file is in the stdlib or does not parse."""
    name = fix.span.file
    if name == document.source.name:
        return edits_of_fix(fix, document.source, document.module)
    source = None if of_stdlib(name) else document.library.sources.get(name)
    return edits_of_fix(fix, source, analysis.parse(source)[0]) if source is not None else ()


def _allow(document: Document, run: str, rule: str, d: Diagnostic | None) -> Iterator[Offer]:
    name = rule.removeprefix("std.").removeprefix("run.")
    fix = Fix("", ADD, Span(document.source.name, 0, 0), f"allow {name} because {quote(REASON)}", run)
    kind = ALLOW if d is None else QUICK_FIX
    changes = fix_edits(document, fix)
    if changes:
        yield Offer(f"Allow {name} in `{run}` because ...", kind, {document.source.name: changes}, d)


STATEMENTS: tuple[type, ...] = ast.Stmt.__args__  # type: ignore[attr-defined]
"""The classes of a run's statements."""


def of_runs(document: Document) -> dict[str, list[Plan]]:
    """Return the plans of each run; several if the run varies something; empty before the solver has answered."""
    out: dict[str, list[Plan]] = {}
    for plan in document.plans:
        out.setdefault(plan.name.split(".")[0], []).append(plan)
    return out


def _chosen(document: Document, run: str) -> Chosen | None:
    """Return the only layout of a run; None if the run varies something or is not solved."""
    found = [c for c in document.chosen if c.problem.program.name.split(".")[0] == run]
    return found[0] if len(found) == 1 and found[0].problem.program.name == run else None


def values(document: Document, run: str) -> dict[str, str]:
    """Return the value of each axis that the run does not pin, as a pin writes it."""
    made = _chosen(document, run)
    if made is None:
        return {}
    codes, pins = made.solution.rows[0].codes, made.problem.program.pins
    return {a.name: shown(a.name, codes[a.name]) for a in axes.AXES if a.name not in pins}


def pin(document: Document, run: str, names: Sequence[str]) -> Edit | None:
    """Return the edit that pins these axes to the solver's values; None if none of them is open."""
    known = values(document, run)
    bindings = [f"{n}={known[n]}" for n in names if n in known]
    if not bindings or document.module is None:
        return None
    return added(f"pin {' '.join(bindings)}", run, document.source, document.module)


def head(document: Document, run: str) -> Span:
    """Return the span that stands for a run: its name, else its hardware statement, else its first statement."""
    block = run_block(document.module, run)
    if block is not None:
        return block.name.span
    program = next((p for p in document.programs if p.name.split(".")[0] == run), None)
    span = program.spans.get("hardware") if program is not None else None
    if span is not None and span.file == document.source.name:
        return span
    items = document.module.items if document.module is not None else ()
    first = next((i.span for i in items if isinstance(i, ast.Stmt)), None)
    return first or Span(document.source.name, 0, 0)


def runs_at(document: Document, offset: int) -> list[str]:
    """Return the solved run at an offset: the run whose block contains it; in a file without blocks, the only run."""
    items = document.module.items if document.module is not None else ()
    blocks = [i for i in items if isinstance(i, ast.RunDecl)]
    around = [b.name.id for b in blocks if b.span.start <= offset <= b.span.end]
    known = of_runs(document)
    return [n for n in (around if blocks else known) if n in known]


def written(name: str, value: Any) -> str:
    """Format a plan's value as a pin writes it."""
    axis = axes.BY_NAME.get(name)
    if axis is not None:
        return legal.written(axis, axis.encode(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def pin_edit(document: Document, plan: Plan, names: Iterable[str]) -> types.TextEdit | None:
    """Return the edit that pins decisions of a plan in its run; None if none is open or the run does not exist.

    Names that the run already pins and names that are not axes are skipped.
    """
    decisions = {d.name: d for d in plan.decisions}
    wanted = [n for n in names if n in axes.BY_NAME and n in decisions and decisions[n].origin != "pinned"]
    if not wanted or document.refused or document.module is None:
        return None
    pin = "pin " + " ".join(f"{n}={written(n, decisions[n].value)}" for n in wanted)
    return document.lines.edits([added(pin, plan.name, document.source, document.module)])[0]

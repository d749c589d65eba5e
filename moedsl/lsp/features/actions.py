"""Offer code actions: fixes of diagnostics, pins of the solver's choices, `allow` for advice.

`source.fixAll` makes every correction of parse and check that has only one fix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen
from lsprotocol import types

from moedsl.lang import ast
from moedsl.lang.printer import quote
from moedsl.lang.text_edits import Edit, disjoint
from moedsl.lang.text_edits import edits as edits_of_fix
from moedsl.lsp import analysis, edits
from moedsl.lsp.document import Document
from moedsl.lsp.edits import workspace_edit
from moedsl.lsp.legend import ALLOW, FIX_ALL, PIN, QUICK_FIX
from moedsl.lsp.workspace import Workspace
from moedsl.support.diagnostics import ADD, Diagnostic, Fix
from moedsl.support.source import Source, Span, of_stdlib

REASON = "explain why it does not hold here"
"""The placeholder for the reason of an `allow`."""


@frozen
class Offer:
    """One action before its conversion: its edits by the compiler's names of files."""

    title: str
    kind: str
    changes: dict[str, tuple[Edit, ...]]
    answers: Diagnostic | None = None
    preferred: bool = False


def answer(workspace: Workspace, params: types.CodeActionParams) -> list[types.CodeAction] | None:
    """The actions of a range; only the kinds that the client requests, if it names any."""
    document = workspace.document(params.text_document.uri)
    if document is None or document.refused:
        return None
    start, end = document.lines.offsets(params.range)
    only = params.context.only
    wanted = [o for o in offers(document, start, end) if only is None or _is_among(o.kind, only)]
    return [_action(workspace, document, o, params) for o in wanted]


def _is_among(kind: str, only: Sequence[str]) -> bool:
    """Whether an action is of a requested kind; kinds are a hierarchy: `refactor` includes `refactor.rewrite`."""
    names = (getattr(o, "value", o) for o in only)
    return any(kind == n or kind.startswith(f"{n}.") or n == "" for n in names)


def _action(workspace: Workspace, document: Document, o: Offer, params: types.CodeActionParams) -> types.CodeAction:
    edit = workspace_edit(workspace, o.changes)
    sent = [d for d in params.context.diagnostics if o.answers is not None and d.code == o.answers.id]
    place = None if o.answers is None else document.lines.span(shown_at(o.answers, document))
    answered = [d for d in sent if d.range == place]
    return types.CodeAction(o.title, o.kind, answered or None, o.preferred or None, edit=edit)


def offers(document: Document, start: int, end: int) -> Iterator[Offer]:
    """Every action between two offsets."""
    for d in document.diagnostics:
        place = shown_at(d, document)
        if place.start <= end and start <= place.end:
            yield from _answers(document, d)
    for run in edits.runs_at(document, start):
        yield from _pins(document, run)
        yield from _allows(document, run)
    every = fix_all(document)
    if every:
        yield Offer("Fix all mistakes that have one correction", FIX_ALL, {document.source.name: tuple(every)})


def shown_at(d: Diagnostic, document: Document) -> Span:
    """The place at which a diagnostic is shown in a file: its first one there, else the start."""
    name = document.source.name
    return next((label.span for label in d.labels if label.span.file == name), Span(name, 0, 0))


def _answers(document: Document, d: Diagnostic) -> Iterator[Offer]:
    """The fixes of a diagnostic, and for a rule of the stdlib the statement that allows breaking it."""
    for fix in d.fixes:
        changes = fix_edits(document, fix)
        if changes:
            yield Offer(fix.title, QUICK_FIX, {fix.span.file: changes}, d, len(d.fixes) == 1)
    if d.is_error and d.id.startswith(("std.", "run.")) and document.programs:
        yield from (o for p in document.programs for o in _allow(document, p.name, d.id, d))


def fix_edits(document: Document, fix: Fix) -> tuple[Edit, ...]:
    """The edits of a fix in its file; none if that is a file of the stdlib or does not parse."""
    name = fix.span.file
    if of_stdlib(name):
        return ()
    source = document.source if name == document.source.name else document.library.sources.get(name)
    return edits_of_fix(fix, source, _module(document, source)) if source is not None else ()


def _module(document: Document, source: Source) -> ast.Module | None:
    return document.module if source.name == document.source.name else analysis.parse(source)[0]


def fix_all(document: Document) -> list[Edit]:
    """The edits of every error of parse and check that has one fix, in this file."""
    single = (d.fixes[0] for d in document.analysis.diagnostics if d.is_error and len(d.fixes) == 1)
    return disjoint(fix_edits(document, f) for f in single if f.span.file == document.source.name)


def _pins(document: Document, run: str) -> Iterator[Offer]:
    """Actions that pin all open axes of a run, or one axis that the solver chose among several."""
    known = edits.values(document, run)
    every = edits.pin(document, run, [*known])
    if every is not None:
        yield Offer(f"Pin all that the solver chose in `{run}`", PIN, {document.source.name: (every,)})
    for name in edits.picked(document, run):
        one = edits.pin(document, run, [name])
        title = f"Pin {name}={known[name]}, the solver's choice in `{run}`"
        if one is not None:
            yield Offer(title, PIN, {document.source.name: (one,)})


def _allows(document: Document, run: str) -> Iterator[Offer]:
    """Actions that allow advice that a plan does not follow."""
    seen: set[str] = set()
    for plan in edits.of_runs(document).get(run, ()):
        for advice in plan.advice:
            if not advice.followed and advice.rule not in seen:
                seen.add(advice.rule)
                yield from _allow(document, run, advice.rule, None)


def _allow(document: Document, run: str, rule: str, d: Diagnostic | None) -> Iterator[Offer]:
    name = rule.removeprefix("std.").removeprefix("run.")
    fix = Fix("", ADD, Span(document.source.name, 0, 0), f"allow {name} because {quote(REASON)}", run)
    kind = ALLOW if d is None else QUICK_FIX
    changes = fix_edits(document, fix)
    if changes:
        yield Offer(f"Allow {name} in `{run}` because ...", kind, {document.source.name: changes}, d)

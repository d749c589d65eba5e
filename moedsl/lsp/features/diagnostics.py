"""Convert the compiler's diagnostics to those of an editor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types

from moedsl.lsp.document import Document
from moedsl.lsp.workspace import Workspace
from moedsl.support import diagnostics, resources
from moedsl.support.diagnostics import Diagnostic, Label
from moedsl.support.source import Source, Span

SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "note": types.DiagnosticSeverity.Information,
}


def of(document: Document, files: Workspace) -> list[types.Diagnostic]:
    """All diagnostics of a snapshot, in the order of the text."""
    found = [_one(d, document, files) for d in document.diagnostics]
    return sorted(found, key=lambda d: (d.range.start.line, d.range.start.character))


def _one(d: Diagnostic, document: Document, files: Workspace) -> types.Diagnostic:
    place = _place(d, document)
    client = document.client
    others = [label for label in d.labels if label.span != place]
    related = list(_related(others, document, files)) if client.related_information else []
    page = (page_of(d.id) or rule_at(d.id, document)) if client.code_description else None
    return types.Diagnostic(
        range=document.lines.span(place),
        message=message(d, () if client.related_information else others),
        severity=SEVERITIES[d.severity],
        code=d.id,
        source="moedsl",
        code_description=types.CodeDescription(page) if page else None,
        related_information=related or None,
        data={"id": d.id, "help": list(d.help), "values": dict(d.values)} if client.diagnostic_data else None,
    )


def message(d: Diagnostic, others: Sequence[Label] = ()) -> str:
    """Write the message, the reason and the help, a line each; `others` are places that are shown nowhere else."""
    label = d.labels[0].text if d.labels else ""
    lines = [f"{d.message}: {label}" if label and label not in d.message else d.message]
    lines += [f"because: {d.because}"] if d.because else []
    lines += [f"{o.text} ({o.span.file})" for o in others if o.text]
    return "\n".join([*lines, *(f"help: {h}" for h in d.help)])


def _place(d: Diagnostic, document: Document) -> Span:
    """The place of a diagnostic: its first one in this file, else the `use` of the file that has it, else the start."""
    name = document.source.name
    own = next((label.span for label in d.labels if label.span.file == name), None)
    return own or _use_of(d, document) or Span(name, 0, 0)


def _use_of(d: Diagnostic, document: Document) -> Span | None:
    from moedsl.lang import ast
    from moedsl.rules.library import used_name

    if document.refused or document.module is None or not d.labels:
        return None
    uses = [i for i in document.module.items if isinstance(i, ast.UseDecl)]
    exact = (i.path.span for i in uses if used_name(document.source, i) == d.labels[0].span.file)
    return next(exact, uses[0].path.span if uses else None)


def _related(
    labels: Sequence[Label], document: Document, files: Workspace
) -> Iterator[types.DiagnosticRelatedInformation]:
    for label in labels:
        source = document.library.sources.get(label.span.file)
        if source is not None:
            where = _location(label.span, source, document, files)
            yield types.DiagnosticRelatedInformation(where, label.text or "here")


def _location(span: Span, source: Source, document: Document, files: Workspace) -> types.Location:
    lines = document.lines if source.name == document.source.name else files.lines_of(source)
    return types.Location(files.uri_of(span.file), lines.span(span))


def page_of(id: str) -> str | None:
    """Link the page of a diagnostic; None for a diagnostic without one, such as a rule."""
    return f"{diagnostics.PAGES.as_uri()}#L{page.line}" if (page := diagnostics.pages().get(id)) else None


def rule_at(id: str, document: Document) -> str | None:
    """Link a rule of the stdlib to the line that declares it."""
    kept = document.library.collected if id.startswith("std.") and not document.refused else None
    found = next((r for r in kept.rules if r.id == id), None) if kept else None
    if found is None:
        return None
    line, _ = document.library.sources[found.span.file].position(found.span.start)
    return f"{(resources.stdlib_dir().parent / found.span.file).as_uri()}#L{line}"

"""Convert the compiler's edits to LSP, and make those that pin the choices of a plan.

Positions are the client's, and so are the line endings of inserted text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lsprotocol import types

from moedsl.facts import axes
from moedsl.lang import ast, reader
from moedsl.lang.text_edits import Edit, added, run_block
from moedsl.lsp import legal
from moedsl.lsp.document import Document
from moedsl.lsp.positions import Lines
from moedsl.lsp.workspace import Workspace
from moedsl.planner.plan import Plan
from moedsl.solver.conflicts import shown
from moedsl.solver.solve import Chosen
from moedsl.support.source import Span


def text_edits(document: Document, changes: Iterable[Edit]) -> list[types.TextEdit]:
    """Convert edits of an open file."""
    return [_edit(document.lines, document.newline, e) for e in changes]


def workspace_edit(workspace: Workspace, changes: Mapping[str, Iterable[Edit]]) -> types.WorkspaceEdit:
    """Convert edits by file, named as in the compiler; with versions if the client supports them."""
    edits = {name: _of_file(workspace, name, [*es]) for name, es in changes.items()}
    if not workspace.client.document_changes:
        return types.WorkspaceEdit(changes={workspace.uri_of(name): es for name, es in edits.items()})
    versioned = [types.TextDocumentEdit(_identifier(workspace, name), es) for name, es in edits.items()]
    return types.WorkspaceEdit(document_changes=[*versioned])


def _identifier(workspace: Workspace, name: str) -> types.OptionalVersionedTextDocumentIdentifier:
    uri = workspace.uri_of(name)
    document = workspace.document(uri)
    return types.OptionalVersionedTextDocumentIdentifier(uri, document.version if document else None)


def _of_file(workspace: Workspace, name: str, changes: list[Edit]) -> list[types.TextEdit]:
    """Convert the edits of an open file or of one on disk; an unreadable file has none."""
    document = workspace.document(workspace.uri_of(name))
    if document is not None:
        return text_edits(document, changes)
    source, _ = reader.read(name)
    return [] if source is None else [_edit(workspace.lines_of(source), _newline(name), e) for e in changes]


def _newline(name: str) -> str:
    """The line ending of a file on disk."""
    with open(name, encoding="utf-8", newline="") as f:
        return "\r\n" if f.readline().endswith("\r\n") else "\n"


def _edit(lines: Lines, newline: str, e: Edit) -> types.TextEdit:
    return types.TextEdit(lines.span(e.span), e.text.replace("\n", newline))


STATEMENTS: tuple[type, ...] = ast.Stmt.__args__  # type: ignore[attr-defined]
"""The classes of a run's statements."""


def of_runs(document: Document) -> dict[str, list[Plan]]:
    """The plans of each run of a file, several if it varies something; empty before the solver's answer."""
    out: dict[str, list[Plan]] = {}
    for plan in document.plan.plans if document.plan is not None else ():
        out.setdefault(plan.name.split(".")[0], []).append(plan)
    return out


def chosen(document: Document, run: str) -> Chosen | None:
    """The one layout of a run; None if it varies something or is not solved."""
    found = [c for c in (document.plan.chosen if document.plan else ()) if c.problem.program.name.split(".")[0] == run]
    return found[0] if len(found) == 1 and found[0].problem.program.name == run else None


def values(document: Document, run: str) -> dict[str, str]:
    """The value of each axis that the run does not pin, as a pin writes it."""
    made = chosen(document, run)
    if made is None:
        return {}
    codes, pins = made.solution.rows[0].codes, made.problem.program.pins
    return {a.name: shown(a.name, codes[a.name]) for a in axes.AXES if a.name not in pins}


def picked(document: Document, run: str) -> list[str]:
    """The names of the axes that the solver chose among several values."""
    made = chosen(document, run)
    if made is None:
        return []
    domains = made.problem.domains
    return [name for name in values(document, run) if len(domains[name]) > 1]


def pin(document: Document, run: str, names: Sequence[str]) -> Edit | None:
    """The edit that pins some axes to their values; None if none is open."""
    known = values(document, run)
    bindings = [f"{n}={known[n]}" for n in names if n in known]
    if not bindings or document.module is None:
        return None
    return added(f"pin {' '.join(bindings)}", run, document.source, document.module)


def head(document: Document, run: str) -> Span:
    """The place of a run: its name, else its hardware statement, else its first statement."""
    module = document.module
    items = module.items if module is not None else ()
    block = run_block(module, run) if module is not None else None
    if block is not None:
        return block.name.span
    program = next((p for p in document.programs if p.name.split(".")[0] == run), None)
    span = program.spans.get("hardware") if program is not None else None
    if span is not None and span.file == document.source.name:
        return span
    first = next((i.span for i in items if isinstance(i, ast.Stmt)), None)
    return first or Span(document.source.name, 0, 0)


def runs_at(document: Document, offset: int) -> list[str]:
    """The solved run at an offset: the run of its block; in a file without blocks, the only one."""
    items = document.module.items if document.module is not None else ()
    blocks = [i for i in items if isinstance(i, ast.RunDecl)]
    around = [b.name.id for b in blocks if b.span.start <= offset <= b.span.end]
    known = of_runs(document)
    return [n for n in (around if blocks else known) if n in known]


def written(name: str, value: Any) -> str:
    """Write a plan's value as in a pin."""
    axis = axes.BY_NAME.get(name)
    if axis is not None:
        return legal.written(axis, axis.encode(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def pinned(values: Mapping[str, Any]) -> str:
    """Write the statement that pins some values of a plan: ``pin tp=4 recompute=[moe_act]``."""
    return "pin " + " ".join(f"{n}={written(n, v)}" for n, v in values.items())


def pin_edit(document: Document, plan: Plan, names: Iterable[str]) -> types.TextEdit | None:
    """The edit that pins decisions of a plan in its run; None if none is open or the run does not exist.

    Names that the run pins already and that are not axes are skipped.
    """
    decisions = {d.name: d for d in plan.decisions}
    wanted = [n for n in names if n in axes.BY_NAME and n in decisions and decisions[n].origin != "pinned"]
    if not wanted or document.refused or document.module is None:
        return None
    pin = pinned({n: decisions[n].value for n in wanted})
    return text_edits(document, [added(pin, plan.name, document.source, document.module)])[0]


def block_of(document: Document, run: str) -> ast.RunDecl | None:
    """The block of a run, for any phase or value of the plan; None for a run at the top level."""
    return run_block(document.module, run) if document.module is not None else None

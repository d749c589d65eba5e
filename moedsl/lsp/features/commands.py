"""Run the commands of the server: show a plan or a report, pin the solver's choices."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from moedsl.lsp import edits
from moedsl.lsp.document import Document
from moedsl.lsp.edits import workspace_edit
from moedsl.lsp.solving import solve
from moedsl.lsp.workspace import Workspace
from moedsl.planner.report import page
from moedsl.planner.text import plan_text


def show_plan(workspace: Workspace, uri: str, run: str | None = None) -> dict[str, Any] | None:
    """Return ``{"uri", "run", "text", "plans"}``: the plans of a file or of one run, as text and as JSON.

    Without a plan, `text` explains why. None for a file that is not open.
    """
    document = _solved(workspace, uri)
    if document is None:
        return None
    made = _plans(document, run)
    text = "\n".join(map(plan_text, made)) or _why_none(document)
    return {"uri": uri, "run": run, "text": text, "plans": [p.to_json() for p in made]}


def show_report(workspace: Workspace, uri: str, run: str | None = None) -> dict[str, Any] | None:
    """Return ``{"uri", "run", "html"}``: the page of `moedsl report`; `html` is None without a plan."""
    document = _solved(workspace, uri)
    if document is None:
        return None
    made = _plans(document, run)
    return {"uri": uri, "run": run, "html": page(made) if made else None, "text": None if made else _why_none(document)}


def pin_all(workspace: Workspace, uri: str, run: str | None = None) -> types.WorkspaceEdit | None:
    """Pin every open axis in every run or in one; None if there is none."""
    document = _solved(workspace, uri)
    if document is None:
        return None
    runs = [name for name in edits.of_runs(document) if run in (None, name)]
    made = [edits.pin(document, name, [*edits.values(document, name)]) for name in runs]
    pins = [e for e in made if e is not None]
    return workspace_edit(workspace, {document.source.name: pins}) if pins else None


def _solved(workspace: Workspace, uri: str) -> Document | None:
    """The newest snapshot with its plans, solved now if the solver has not finished."""
    document = workspace.document(uri)
    if document is None or document.refused or document.plan is not None or not document.programs:
        return document
    return document.solved(solve(document.analysis))


def _plans(document: Document, run: str | None) -> list[edits.Plan]:
    return [p for name, made in edits.of_runs(document).items() if run in (None, name) for p in made]


def _why_none(document: Document) -> str:
    errors = [d.message for d in document.diagnostics if d.is_error]
    return "\n".join(["no plan", *errors])

"""Show the solver's choices in the editor, and pin them: inlay hints, code lenses and the commands.

A hint stands after the hardware of its run, and pins its value when the user accepts it. A lens above the run shows the
result and opens the plan or the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lsprotocol import types

from moedsl.facts import axes
from moedsl.lang import ast
from moedsl.lang.text_edits import run_block
from moedsl.lsp import actions
from moedsl.lsp.actions import STATEMENTS, of_runs, pin_edit, written
from moedsl.lsp.checking import solve
from moedsl.lsp.document import SHOW_PLAN, SHOW_REPORT, Document
from moedsl.lsp.workspace import Workspace
from moedsl.planner.decisions import Decision
from moedsl.planner.plan import Plan
from moedsl.planner.report import page
from moedsl.planner.text import plan_text

ALWAYS = [a for a in axes.AXES if a.name in axes.SIZES and not a.quiet]
WHERE_ON = [a for a in axes.AXES if a.opened and a not in ALWAYS]
"""The axes that always have a hint, and those that have one only if they are on."""


def inlay_hints(document: Document, params: types.InlayHintParams) -> list[types.InlayHint]:
    """Return the hints of every run in the range; none before the solver has answered.

    A run with one plan has hints for the number of GPUs, if the solver chose it, for each decision, and for memory with
    speed. A run with several plans has one hint for each plan, which pins nothing, because their choices differ.
    """
    start, end = document.lines.offsets(params.range)
    out: list[types.InlayHint] = []
    for plan in document.plans:
        anchor = anchor_of(document, plan.name)
        if anchor is None or not start <= anchor <= end:
            continue
        step = f"{plan.estimate.step_time_s:.2f} s a step; {plan.estimate.memory.verdict}, most loaded rank"
        hints: list[tuple[str, str, types.TextEdit | None]] = []
        if len(of_runs(document)[plan.name.split(".")[0]]) > 1:
            values = " ".join(f"{d.name}={written(d.name, d.value)}" for d in shown(plan))
            hints.append((f"{plan.name.split('.', 1)[-1]}: {values}, {figures(plan)}", step, None))
        else:
            if not any(c.problem.program.gpus for c in document.chosen if c.problem.program.name == plan.name):
                edit = types.TextEdit(document.lines.range(anchor, anchor), f" x {plan.gpus}")
                hints.append((f"x {plan.gpus}", "the fewest that work", edit))
            for d in shown(plan):
                why = f"{d.origin}: {d.because}" if d.because else d.origin
                hints.append((f"{d.name}={written(d.name, d.value)}", why, pin_edit(document, plan, [d.name])))
            hints.append((figures(plan), step, None))
        out += [
            types.InlayHint(
                position=document.lines.position(anchor),
                label=text,
                kind=types.InlayHintKind.Type,
                text_edits=[edit] if edit else None,
                tooltip=tooltip,
                padding_left=True,
            )
            for text, tooltip, edit in hints
        ]
    return out


def anchor_of(document: Document, run: str) -> int | None:
    """Return the offset of a run's hints: the end of its hardware statement, else the end of its block's header."""
    block = run_block(document.module, run)
    items: Any = block.body if block else document.module.items if document.module else ()
    for s in items:
        if isinstance(s, ast.HardwareStmt) or (isinstance(s, ast.BareStmt) and s.name.id in document.library.hardware):
            return s.span.end
    if block is None:
        return next((s.span.end for s in items if isinstance(s, STATEMENTS)), None)
    return document.text.index("{", block.name.span.end) + 1


def shown(plan: Plan) -> list[Decision]:
    """Return the decisions worth a hint: the mesh, and policies with unusual values."""
    of_name = {d.name: d for d in plan.decisions if d.origin != "pinned"}
    on = [a for a in WHERE_ON if a.name in of_name and a.is_on(of_name[a.name].value)]
    return [of_name[a.name] for a in (*ALWAYS, *on) if a.name in of_name]


def figures(plan: Plan) -> str:
    """Format memory and speed: ``155 of 173 GiB, 1,213 tok/s/GPU``."""
    memory, estimate = plan.estimate.memory, plan.estimate
    return f"{memory.peak_gib:.0f} of {memory.visible_gib:.0f} GiB, {estimate.tokens_per_s_per_gpu:,.0f} tok/s/GPU"


def code_lenses(document: Document, _: types.CodeLensParams) -> list[types.CodeLens]:
    """Make two lenses for each solved run: ``256 gb200, 13.5 s a step, FITS`` and ``report``."""
    out: list[types.CodeLens] = []
    for run, made in of_runs(document).items():
        place = document.lines.span(actions.head(document, run))
        for title, command in ((lens_title(made), SHOW_PLAN), ("report", SHOW_REPORT)):
            out.append(types.CodeLens(place, types.Command(title, command, arguments=[document.uri, run])))
    return out


def lens_title(made: Sequence[Plan]) -> str:
    """Describe the first plan of a run in a few words, with the number of plans if there are several."""
    first, e = made[0], made[0].estimate
    seconds = f"{e.step_time_s:.1f}" if e.step_time_s >= 1 else f"{e.step_time_s:.2f}"
    text = f"{first.gpus} {first.hardware}, {seconds} s a step, {e.memory.verdict}"
    return text + (f" ({len(made)} plans)" if len(made) > 1 else "")


def show_plan(workspace: Workspace, uri: str, run: str | None = None) -> dict[str, Any] | None:
    """Return ``{"uri", "run", "text", "plans"}``: the plans of a file or of one run, as text and as JSON.

    Without a plan, `text` explains why. None for a file that is not open.
    """
    document, plans = _solved(workspace, uri, run)
    if document is None:
        return None
    text = "\n".join(map(plan_text, plans)) or _why_none(document)
    return {"uri": uri, "run": run, "text": text, "plans": [p.to_json() for p in plans]}


def show_report(workspace: Workspace, uri: str, run: str | None = None) -> dict[str, Any] | None:
    """Return ``{"uri", "run", "html", "text"}``: the page of `moedsl report` for a file or one run.

    Without a plan, `html` is None and `text` explains why. None for a file that is not open.
    """
    document, plans = _solved(workspace, uri, run)
    if document is None:
        return None
    html, text = (page(plans), None) if plans else (None, _why_none(document))
    return {"uri": uri, "run": run, "html": html, "text": text}


def _solved(workspace: Workspace, uri: str, run: str | None) -> tuple[Document | None, list[Plan]]:
    """Return the newest snapshot, solved now if the solver has not finished, and the plans of all runs or of one."""
    document = workspace.document(uri)
    if document is None:
        return None, []
    if not document.refused and document.plan is None and document.programs:
        document = document.solved(solve(document.analysis))
    return document, [p for name, made in of_runs(document).items() if run in (None, name) for p in made]


def _why_none(document: Document) -> str:
    return "\n".join(["no plan", *(d.message for d in document.diagnostics if d.is_error)])


def pin(workspace: Workspace, uri: str, run: str, names: list[str]) -> types.WorkspaceEdit | None:
    """Return the edit of ``moedsl.pin``, which pins decisions of a run; empty `names` mean all that have a hint."""
    document = workspace.document(uri)
    plan = next((p for p in document.plans if p.name == run), None) if document else None
    if document is None or plan is None:
        return None
    found = pin_edit(document, plan, names or [d.name for d in shown(plan)])
    return types.WorkspaceEdit(changes={uri: [found]}) if found else None


def pin_all(workspace: Workspace, uri: str, run: str | None = None) -> types.WorkspaceEdit | None:
    """Return the edit that pins every open axis in every run or in one run; None if no axis is open."""
    document, plans = _solved(workspace, uri, run)
    if document is None:
        return None
    runs = dict.fromkeys(p.name.split(".")[0] for p in plans)
    pins = [actions.pin(document, name, [*actions.values(document, name)]) for name in runs]
    made = [e for e in pins if e is not None]
    return workspace.edit({document.source.name: made}) if made else None

"""Show inlay hints: the solver's choices after the hardware of each run; accepting one pins it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lsprotocol import types

from moedsl.facts import axes
from moedsl.lang import ast
from moedsl.lsp.document import Document
from moedsl.lsp.edits import STATEMENTS, block_of, pin_edit, written
from moedsl.planner.decisions import Decision
from moedsl.planner.plan import Plan

ALWAYS = [a for a in axes.AXES if a.name in axes.SIZES and not a.quiet]
WHERE_ON = [a for a in axes.AXES if a.opened and a not in ALWAYS]
"""The axes that have a hint, and those that have one only if they are on."""


def answer(document: Document, params: types.InlayHintParams) -> list[types.InlayHint]:
    """The hints of every run in the range; none before the solver has answered."""
    start, end = document.lines.offsets(params.range)
    plans = document.plan.plans if document.plan else ()
    counts = [sum(_run(p) == _run(q) for q in plans) for p in plans]
    out: list[types.InlayHint] = []
    for plan, alike in zip(plans, counts, strict=True):
        anchor = anchor_of(document, plan.name)
        if anchor is not None and start <= anchor <= end:
            out += _of_plan(document, plan, anchor) if alike == 1 else [_line(document, plan, anchor)]
    return out


def _run(plan: Plan) -> str:
    return plan.name.split(".")[0]


def anchor_of(document: Document, run: str) -> int | None:
    """The position of a run's hints: the end of its hardware statement; in a block without one, of its header."""
    block = block_of(document, run)
    items: Any = block.body if block else document.module.items if document.module else ()
    found = next((s for s in items if _is_hardware(document, s)), None)
    if found is not None:
        return found.span.end
    if block is None:
        return next((s.span.end for s in items if isinstance(s, STATEMENTS)), None)
    return document.text.index("{", block.name.span.end) + 1


def _is_hardware(document: Document, s: Any) -> bool:
    return isinstance(s, ast.HardwareStmt) or (isinstance(s, ast.BareStmt) and s.name.id in document.library.hardware)


def _of_plan(document: Document, plan: Plan, anchor: int) -> Iterator[types.InlayHint]:
    """Make a hint for each decision, then for memory and speed."""
    if not any(c.problem.program.gpus for c in _chosen(document, plan)):
        yield _count(document, plan, anchor)
    for d in shown(plan):
        text = f"{d.name}={written(d.name, d.value)}"
        pin = pin_edit(document, plan, [d.name])
        yield _hint(document, anchor, text, _why(d), [pin] if pin else None)
    yield _hint(document, anchor, figures(plan), _figures_why(plan), None)


def shown(plan: Plan) -> list[Decision]:
    """The decisions worth a hint: the mesh, and policies with unusual values."""
    of_name = {d.name: d for d in plan.decisions if d.origin != "pinned"}
    on = [a for a in WHERE_ON if a.name in of_name and a.is_on(of_name[a.name].value)]
    return [of_name[a.name] for a in (*ALWAYS, *on) if a.name in of_name]


def _chosen(document: Document, plan: Plan) -> list[Any]:
    chosen = document.plan.chosen if document.plan else ()
    return [c for c in chosen if c.problem.program.name == plan.name]


def _count(document: Document, plan: Plan, anchor: int) -> types.InlayHint:
    """A hint with the number of GPUs that the solver chose."""
    text = f"x {plan.gpus}"
    at = document.lines.range(anchor, anchor)
    return _hint(document, anchor, text, "the fewest that work", [types.TextEdit(at, " " + text)])


def _line(document: Document, plan: Plan, anchor: int) -> types.InlayHint:
    """One of several plans of a run in a line; the choices differ, so it pins nothing."""
    values = " ".join(f"{d.name}={written(d.name, d.value)}" for d in shown(plan))
    own = plan.name.split(".", 1)[-1]
    return _hint(document, anchor, f"{own}: {values}, {figures(plan)}", _figures_why(plan), None)


def figures(plan: Plan) -> str:
    """Write memory and speed: ``155 of 173 GiB, 1,213 tok/s/GPU``."""
    memory, estimate = plan.estimate.memory, plan.estimate
    return f"{memory.peak_gib:.0f} of {memory.visible_gib:.0f} GiB, {estimate.tokens_per_s_per_gpu:,.0f} tok/s/GPU"


def _why(d: Decision) -> str:
    return f"{d.origin}: {d.because}" if d.because else d.origin


def _figures_why(plan: Plan) -> str:
    estimate = plan.estimate
    return f"{estimate.step_time_s:.2f} s a step; {estimate.memory.verdict}, most loaded rank"


def _hint(
    document: Document, anchor: int, text: str, tooltip: str, edits: list[types.TextEdit] | None
) -> types.InlayHint:
    position = document.lines.position(anchor)
    return types.InlayHint(
        position=position,
        label=text,
        kind=types.InlayHintKind.Type,
        text_edits=edits,
        tooltip=tooltip,
        padding_left=True,
    )


def pin(workspace: Any, uri: str, run: str, names: list[str]) -> types.WorkspaceEdit | None:
    """The command ``moedsl.pin``, which pins decisions of a run; empty `names` mean all that are shown."""
    document = workspace.document(uri)
    plans = document.plan.plans if document and document.plan else ()
    plan = next((p for p in plans if p.name == run), None)
    if document is None or plan is None:
        return None
    found = pin_edit(document, plan, names or [d.name for d in shown(plan)])
    return types.WorkspaceEdit(changes={uri: [found]}) if found else None

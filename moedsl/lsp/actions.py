"""Show the solver's choices and pin them: code actions, inlay hints, code lenses and commands.

Code actions are fixes of diagnostics, pins of the solver's choices, and `allow` for advice; `source.fixAll` makes every
correction of parse and check that has only one fix. A hint stands after the hardware of its run, and pins its value
when the user accepts it. A lens above the run shows the result and opens the plan or the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen
from lsprotocol import types

from moedsl.facts import axes
from moedsl.lang import ast
from moedsl.lang.printer import quote
from moedsl.lang.text_edits import Edit, added, disjoint, run_block
from moedsl.lang.text_edits import edits as edits_of_fix
from moedsl.lsp import analysis
from moedsl.lsp.checking import place_of, solve
from moedsl.lsp.document import ALLOW, FIX_ALL, PIN, QUICK_FIX, SHOW_PLAN, SHOW_REPORT, Document
from moedsl.lsp.workspace import Workspace
from moedsl.planner.decisions import Decision
from moedsl.planner.plan import Plan
from moedsl.planner.report import page
from moedsl.planner.text import plan_text
from moedsl.solver.conflicts import shown, written
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
            values = " ".join(f"{d.name}={written(d.value)}" for d in hinted(plan))
            hints.append((f"{plan.name.split('.', 1)[-1]}: {values}, {figures(plan)}", step, None))
        else:
            if not any(c.problem.program.gpus for c in document.chosen if c.problem.program.name == plan.name):
                edit = types.TextEdit(document.lines.range(anchor, anchor), f" x {plan.gpus}")
                hints.append((f"x {plan.gpus}", "the fewest that work", edit))
            for d in hinted(plan):
                why = f"{d.origin}: {d.because}" if d.because else d.origin
                edits = document.lines.edits(filter(None, [pin(document, plan.name, [d.name])]))
                hints.append((f"{d.name}={written(d.value)}", why, next(iter(edits), None)))
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


def hinted(plan: Plan) -> list[Decision]:
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
        place = document.lines.span(head(document, run))
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


def pin_decisions(workspace: Workspace, uri: str, run: str, names: list[str]) -> types.WorkspaceEdit | None:
    """Return the edit of ``moedsl.pin``, which pins decisions of a run; empty `names` mean all that have a hint."""
    document = workspace.document(uri)
    plan = next((p for p in document.plans if p.name == run), None) if document else None
    if document is None or plan is None:
        return None
    found = pin(document, run, names or [d.name for d in hinted(plan)])
    return types.WorkspaceEdit(changes={uri: document.lines.edits([found])}) if found else None


def pin_all(workspace: Workspace, uri: str, run: str | None = None) -> types.WorkspaceEdit | None:
    """Return the edit that pins every open axis in every run or in one run; None if no axis is open."""
    document, plans = _solved(workspace, uri, run)
    if document is None:
        return None
    runs = dict.fromkeys(p.name.split(".")[0] for p in plans)
    pins = [pin(document, name, [*values(document, name)]) for name in runs]
    made = [e for e in pins if e is not None]
    return workspace.edit({document.source.name: made}) if made else None

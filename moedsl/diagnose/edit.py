"""Find the edits that a symptom's `fix` names, apply each and plan again: the first that compiles is worth a run.

An edit is text between backticks that is a statement of the language. A `set` may compute its value from fields of the
run, as in ``set optimizer.lr = optimizer.lr / 2``. Each edit is tried with everything else as in the plan, then with
everything else free. It must compile and change the plan; if memory ran out, it must also lower the predicted peak by
what the run asked for and did not get. Only the run itself shows whether the edit cures it.

If memory ran out, all edits that save enough are compared, the cheapest first. The log's message tells how much was
missing (`missing_gib`), and whether its GPU can be the one in the run file (`remarks`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve, field, frozen

from moedsl.compiler import Result, compile_source
from moedsl.diagnose import memory
from moedsl.diagnose.scan import Report, Sighting
from moedsl.facts import axes
from moedsl.facts.units import GIB
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.lang.printer import print_expr
from moedsl.planner import experiment
from moedsl.planner.plan import Plan
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.library import Library
from moedsl.support.source import Source

_QUOTED = re.compile(r"`([^`]+)`")
_RATE = "optimizer.lr"


@frozen
class Compiled:
    """The effect of an edit on one run; `held`: all else stayed equal; `before` is None if the run had no plan."""

    run: str
    edit: str
    held: bool
    before: Plan | None
    after: Plan


@frozen
class Attempt:
    """A run with the first edit that works, and the reasons why others do not."""

    run: str
    compiled: Compiled | None
    failures: Mapping[str, str] = field(factory=dict)
    others: tuple[Compiled, ...] = ()
    """If memory ran out: the other edits that save enough, the cheapest first."""


def edits(fix: str | None) -> list[str]:
    """Return the statements that a fix names and that a run file accepts unchanged, in order."""
    return [text for text in _named(fix) if not _computed(text)]


def _named(fix: str | None) -> list[str]:
    """Return the statements that a fix names, in order."""
    return [text for text in _QUOTED.findall(fix or "") if _statements(text)]


def _computed(edit: str) -> dict[str, ast.Expr]:
    """Return the fields that an edit sets to a value computed from fields of the run, with their expressions."""
    sets = (s for s in _statements(edit) if isinstance(s, ast.SetStmt))
    return {s.path.id: s.value for s in sets if isinstance(s.value, ast.Binary)}


def _settled(edit: str, present: Mapping[str, Any]) -> str | None:
    """Return an edit with its values computed from a run's `present` fields.

    None if a field that it reads is unknown, or if a computed value equals the present one."""
    computed = _computed(edit)
    read = {n for e in computed.values() for n in names(e)}
    if not all(isinstance(present.get(n), int | float) for n in read):
        return None
    values = {path: evaluate(e, present) for path, e in computed.items()}
    if any(value == present.get(path) for path, value in values.items()):
        return None
    for s in reversed(_statements(edit)):
        if isinstance(s, ast.SetStmt) and s.path.id in values:
            edit = f"{edit[: s.span.start]}set {s.path.id} = {values[s.path.id]:g}{edit[s.span.end :]}"
    return edit


def _statements(text: str) -> tuple[ast.Item, ...]:
    """Parse a text into statements; empty if it has none or only a bare name, which belongs to the prose."""
    module, found = parse(Source("<fix>", text))
    if module is None or found or any(isinstance(i, ast.BareStmt | ast.UseDecl) for i in module.items):
        return ()
    return module.items


def compile_edits(source: Source, s: Sighting) -> list[Attempt]:
    """For each run of a file, find a symptom's first edit that compiles, changes the plan and solves the problem.

    For a sweep or an isolation, only the first plan is compared."""
    result = compile_source(source)
    alone = all(p.isolate is None and "." not in p.name for p in result.programs)
    items = result.module.items if result.module else ()
    runs: list[str | None] = [i.name.id for i in items if isinstance(i, ast.RunDecl)] or [None]  # None: the top level
    return [_attempt(source, result, run, s, alone) for run in runs]


def _first(result: Result, run: str) -> Plan | None:
    """Return the plan of a run, or its first plan if it is a sweep or an isolation."""
    return next((p for p in result.plans if _is_of(p.name, run)), None)


def _is_of(name: str, run: str) -> bool:
    return name == run or name.startswith(f"{run}.")


def _attempt(source: Source, result: Result, run: str | None, s: Sighting, alone: bool) -> Attempt:
    chosen = next((c for c in result.chosen if _is_of(c.problem.program.name, run or "main")), None)
    row = chosen.solution.rows[0] if chosen is not None and chosen.solution.rows else None
    if chosen and row and s.rule.when and not s.rule.applies(chosen.environment(row.codes, row.prices)):
        why = f"a run with this message has {print_expr(s.rule.when)}: the log is of another run"
        return Attempt(run or "main", None, dict.fromkeys(edits(s.rule.fix), why))
    before = _first(result, run or "main")
    failures: dict[str, str] = {}
    enough: list[Compiled] = []
    present = {} if before is None else {_RATE: s.learning_rate, **before.set}
    for edit in filter(None, (_settled(e, present) for e in _named(s.rule.fix))):
        for held in (True, False) if before is not None and "." not in before.name else (False,):
            after = _planned(source, run, edit, _held(before, edit) if held and before else "", alone)
            if isinstance(after, str):
                failures[edit] = after
            elif before is not None and not changes(before, after):
                failures[edit] = "the plan already has it"
                break
            elif before is not None and (why := _objection(s, before, after)) is not None:
                failures[edit] = why
            else:
                enough.append(Compiled(run or "main", edit, held, before, after))
                failures.pop(edit, None)
                if not (ran_out(s.rule.id) and before is not None):
                    return Attempt(run or "main", enough[0], failures)
                break
    first, *others = sorted(enough, key=lambda c: c.after.estimate.step_time_s) or [None]
    return Attempt(run or "main", first, failures, tuple(filter(None, others)))


def _objection(s: Sighting, before: Plan, after: Plan) -> str | None:
    """Say why an edit cannot solve the problem: if memory ran out, its plan must lower the predicted peak enough.

    None if it may solve the problem."""
    was, now = (p.estimate.memory.peak_gib for p in (before, after))
    missing = missing_gib([s])
    if not ran_out(s.rule.id) or saves(was, now, missing):
        return None
    why = f"enough below {was:.1f}, and the run missed {missing:.1f}" if now < was else f"below {was:.1f}"
    return f"the predicted peak is {now:.1f} GiB, not {why}"


def _planned(source: Source, run: str | None, edit: str, held: str, alone: bool) -> Plan | str:
    """Plan a run that derives from `run` and adds an edit; return the plan or the first error message.

    If `alone`, each run is a single plan, and no other run of the file is solved."""
    name = "fixed"
    base = f" from {run}" if run else ""
    text = f"{source.text.rstrip()}\nrun {name}{base} {{\n{held}\n{edit}\n}}\n"
    result = compile_source(evolve(source, text=text), run=name if alone else None)
    plan = _first(result, name)
    if plan is not None and not result.failed:
        return plan
    return next((d.message for d in result.diagnostics if d.is_error), "it has no plan")


def _held(before: Plan, edit: str) -> str:
    """Write a `pin` statement that keeps everything in a plan that an edit does not name."""
    spoken: set[str] = set()
    for s in _statements(edit):
        if isinstance(s, ast.PinStmt):
            spoken |= {b.name.id for b in s.bindings}
        elif isinstance(s, ast.MicroBatchStmt):
            spoken.add("micro_batch")
    values = experiment.settings(before.layout, before.batch, before.policy)
    pins = {a.name: values[a.name] for a in axes.AXES if a.name not in spoken and a.name != "precision"}
    return "pin " + " ".join(f"{name}={axes.written(value)}" for name, value in pins.items())


def changes(before: Plan, after: Plan) -> dict[str, tuple[Any, Any]]:
    """Return the differences between two plans by name: the values before and after."""
    # keywords with values, then the user's own fields
    a, b = (experiment.settings(p.layout, p.batch, p.policy) | dict(p.set) for p in (before, after))
    return {k: (a.get(k), b.get(k)) for k in dict.fromkeys([*a, *b]) if a.get(k) != b.get(k)}


def figures(p: Plan) -> dict[str, float]:
    """Return a plan's seconds a step and its GiB at the peak."""
    return {"step_time_s": p.estimate.step_time_s, "peak_gib": p.estimate.memory.peak_gib}


def ran_out(id: str) -> bool:
    """Whether a symptom means insufficient memory: its name is ``memory``, or ends in ``_memory``."""
    name = id.rpartition(".")[2]
    return name == "memory" or name.endswith("_memory")


def missing_gib(sightings: Iterable[Sighting]) -> float:
    """Return the GiB that were missing, according to the messages: a layout that saves less fails again."""
    short = memory.read(s.text for s in sightings if ran_out(s.rule.id))
    return short.missing if short else 0.0


def saves(was_gib: float, now_gib: float, missing: float) -> bool:
    """Whether a new predicted peak is lower than the old one by at least what was missing."""
    return now_gib < was_gib and now_gib <= was_gib - missing


APART = 0.15
"""Share by which a driver's total may differ from a declared size: gigabytes and gibibytes are 7% apart."""
LIKE = 0.01
"""Share by which the totals of two drivers differ on the same GPU."""


def remarks(report: Report, source: Source, library: Library) -> dict[str, str]:
    """Return remarks by symptom id: one where the log names a GPU memory size that no run of the file has."""
    short = {s.rule.id: memory.read([s.text]) for s in report.sightings}
    totals = {id: s.total * GIB for id, s in short.items() if s is not None and s.total}
    if not totals:
        return {}
    planned = {p.hardware.name: p.hardware.total for p in compile_source(source, "check").programs}
    facts = (library.gpu(name)[0] for name in sorted(library.hardware))
    known = {f.name: f.total for f in facts if f is not None}
    own = " or ".join(f"{n} with {m / GIB:.0f} GiB" for n, m in planned.items())
    out: dict[str, str] = {}
    for id, total in totals.items():
        if planned and not _near(total, planned, APART):
            like = f", like {' or '.join(found)}" if (found := _near(total, known, LIKE)) else ""
            gpu = f"the GPU of the log has {total / GIB:.2f} GiB{like}"
            out[id] = f"{gpu}; the run file is for {own}: these are different runs"
    return out


def _near(total: float, memories: Mapping[str, float], apart: float) -> list[str]:
    """Return the GPUs whose memory differs from `total` bytes by at most the share `apart`."""
    return [n for n, m in memories.items() if abs(total / m - 1) <= apart]

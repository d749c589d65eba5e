"""Explain the runs of a source as JSON: some values, the whole plan, or why no layout fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import field, frozen

from moedsl.compiler import Result, choose, compile_source
from moedsl.emit.settings import sections
from moedsl.facts import axes
from moedsl.facts.axes import json_value
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.units import GIB
from moedsl.planner.build import make_plan
from moedsl.planner.experiment import path_of
from moedsl.queries import explain_layouts, explain_value
from moedsl.queries.explain_layouts import Context, Json, based
from moedsl.queries.explain_value import explain, values
from moedsl.rules.evaluators import evaluate
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.solver.conflicts import legal_on
from moedsl.solver.infeasible import explanation
from moedsl.solver.problem import first_of
from moedsl.solver.solve import plan_for, solve
from moedsl.support import limits
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.source import Source, Span

Run = tuple[str, Context | None, Json | None]
"""A run's name, then its layout or, if it has none, the reason."""
Page = Callable[[str, Library, Sequence[Rule], Mapping[str, Source]], str | None]
"""Returns the page on a keyword, an id or one of the run's own rules; None if there is no such page."""


@frozen
class Answer:
    """Explanations in the order of the names, and diagnostics on mistakes in the file or the names."""

    explanations: tuple[Json, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    sources: Mapping[str, Source] = field(factory=dict)

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)


def answer(
    source: Source, names: Sequence[str], run: str | None = None, like: str = "", page: Page | None = None
) -> Answer:
    """Explain each name (or the whole plan if `names` is empty) in every run of a source, or only in `run`.

    A name that is not a value of a run gets its `page`. `like` names a Bridge recipe whose layout is pinned.
    """
    checked = compile_source(source, "check", like=like)
    sources = checked.sources
    if checked.failed:
        return Answer((), tuple(checked.diagnostics), sources)
    out, diagnostics = list[Json](), list[Diagnostic]()
    seen = list[str]()
    for name, base, failure in _bases(source, checked, sources, run):
        seen.append(name)
        if run is not None and name != run:
            continue
        if base is None:
            out += [failure] if failure is not None else []
            continue
        earlier = [*out]  # do not repeat a page that an earlier run gave
        with limits.of_part(base.program):
            own = [r for r in base.program.rules if not r.is_std]
            if not names:
                out.append(overview(base))
            for asked in names:
                if (explained := explain(base, asked)) is not None:
                    out.append({**explained, "asked": asked})
                elif page and (text := page(asked, checked.library, own, sources)):
                    written = {"version": 1, "kind": "page", "name": asked, "text": text}
                    out += [written] if written not in earlier else []
                else:
                    plan = make_plan(base.chosen, [], sources)
                    fields = [s.path for _, settings in sections(plan) for s in settings]
                    known = [*(n for n in base.env if n not in FUNCTIONS), *plan.derived, *plan.env, *fields]
                    help = suggest(asked, known) or "`moedsl explain FILE` lists its values"
                    diagnostics.append(error("explain.unknown_name", Span(source.name, 0, 0), name=asked, help=help))
    if run is not None and run not in seen:
        help = suggest(run, seen) or f"the runs are {', '.join(seen)}"
        diagnostics.append(error("explain.unknown_run", Span(source.name, 0, 0), run=run, help=help))
    return Answer(tuple(out), tuple(diagnostics), sources)


def _bases(source: Source, r: Result, sources: Mapping[str, Source], run: str | None) -> Iterator[Run]:
    """Yield every run with its layout or its failure; with neither if `run` names another run.

    If the file has an isolation or a workflow, all runs are solved together.
    """
    if any(p.isolate or p.workflow for p in r.programs):
        solved = compile_source(source, "solve", like=r.like)
        for c in solved.chosen:
            yield c.problem.program.name, based(c, sources), None
        yield from (("", None, _failure(d)) for d in solved.diagnostics if d.is_error)
        return
    for p in r.programs:
        base, failure = None, None
        if run in (None, p.name):
            with limits.of_part(p):
                if p.gpus is None:
                    chosen, found = choose(p, lambda _: None)
                    failure = None if chosen else _failure(found[0])
                else:
                    chosen = solve(p, p.gpus, keep=0)
                    chosen = plan_for(p, p.gpus, keep=1) if legal_on(chosen.compiled) else chosen
                    failure = None if chosen.solution.rows else explanation(chosen, sources)
                base = based(chosen, sources) if chosen else None
        yield p.name, base, failure


def _failure(d: Diagnostic) -> Json:
    """Convert a failure's diagnostic to JSON."""
    return {"version": 1, "kind": "failure", "message": d.message, "because": d.because, "relaxations": list(d.help)}


def overview(b: Context) -> Json:
    """Collect all decisions of a run with their origins, the advice, and what the run file requires and allows."""
    p, laws = b.program, (*b.compiled.advice, *b.compiled.wishes)
    # Every axis, derived value, value outside the layout, and setting, each with its origin
    found = [(a.name, b.env[a.name], explain_value.axis_origin(b, a)) for a in axes.AXES]
    found += [(n, b.env[n], explain_value.let_origin(b, n)) for n in axes.DERIVED]
    sizes = ("gpus", "seq", "global_batch", "phase", "task", "routing", "data")
    found += [(n, b.env[n], explain_value.fixed_origin(b, n)) for n in sizes]
    for kind, name in dict.fromkeys((r.kind, r.name) for r in (*p.of("derive"), *p.of("env"))):
        rule = first_of(p.named(kind, name), b.env)
        if rule is not None and (kind == "env" or path_of(name) not in p.sets):
            found.append((name, evaluate(rule.expr, b.env), {**b.cited(rule), "kind": "derived"}))
    found += [(n, v, explain_value.stated(b, p.spans[n])) for n, v in p.sets.items()]
    decisions = list[Json]()
    for name, value, origin in found:
        shown = ("kind", "rule", "because", "at", "rank", "among")
        known = {k: origin[k] for k in shown if origin.get(k) is not None}
        decisions.append({"name": name, "value": json_value(value), "origin": known})
    return {
        **explain_value.head(b, "overview"),
        "plan": {"step_time_s": b.row.step_time, "peak_gib": b.row.peak_memory / GIB},
        "decisions": decisions,
        "advice": explain_layouts.priced_advice(b, laws, b.answers(explain_layouts.questions(b, laws))),
        "own_rules": [
            {**explain_value.judged(b, r), "values": values(b, r.expr)}
            for r in p.of("require")
            if r.wish or not r.is_std
        ],
        "allowed": [{"rule": a.rule, "because": a.because, "at": b.where(a.span)} for a in p.allows.values()],
    }

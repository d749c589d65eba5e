"""Explain the runs of a source as JSON: some values, the whole plan, or why no layout fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import field, frozen

from moedsl.compiler import Result, choose, compile_source
from moedsl.facts import axes
from moedsl.facts.axes import json_value
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.planner.build import make_plan
from moedsl.planner.experiment import path_of
from moedsl.queries import explain_others, explain_value
from moedsl.queries.explain_context import Context, Json, based
from moedsl.queries.explain_value import explain, values
from moedsl.rules.check.program import Program
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
"""A run's name, and its layout or the reason why it has none."""
Page = Callable[[str, Library, Sequence[Rule], Mapping[str, Source]], str | None]
"""The page of a word or an id that is no value of a run, or of one of the run's own rules; None if there is none."""


@frozen
class Answer:
    """Explanations in the order of the names, and mistakes in the file or the names."""

    explanations: tuple[Json, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    sources: Mapping[str, Source] = field(factory=dict)

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)


def _no_page(_name: str, _library: Library, _own: Sequence[Rule], _sources: Mapping[str, Source]) -> str | None:
    return None


def answer(
    source: Source, names: Sequence[str], run: str | None = None, like: str = "", page: Page = _no_page
) -> Answer:
    """Explain each name, or without names the whole plan, of every run of a source or of the one called `run`.

    A name that is no value of a run has its `page`. `like` names a recipe of Bridge's whose layout is pinned.
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
        earlier = [*out]  # a page of another run is not repeated
        with limits.of_part(base.program):
            own = [r for r in base.program.rules if not r.is_std]
            if not names:
                out.append(overview(base))
            for asked in names:
                explained = explain(base, asked)
                if explained is not None:
                    out.append({**explained, "asked": asked})
                elif text := page(asked, checked.library, own, sources):
                    written = {"version": 1, "kind": "page", "name": asked, "text": text}
                    out += [written] if written not in earlier else []
                else:
                    diagnostics.append(_unknown(base, asked, source))
    if run is not None and run not in seen:
        help = suggest(run, seen) or f"the runs are {', '.join(seen)}"
        diagnostics.append(error("explain.unknown_run", Span(source.name, 0, 0), run=run, help=help))
    return Answer(tuple(out), tuple(diagnostics), sources)


def _bases(source: Source, r: Result, sources: Mapping[str, Source], run: str | None) -> Iterator[Run]:
    """Every run with its layout or its failure, and neither if `run` leaves it out.

    The runs of an isolation or a workflow are solved together.
    """
    if all((p.isolate is None and p.workflow is None) for p in r.programs):
        for p in r.programs:
            with limits.of_part(p):
                one = _one(p, sources) if run in (None, p.name) else (p.name, None, None)
            yield one
        return
    solved = compile_source(source, "solve", like=r.like)
    for c in solved.chosen:
        yield c.problem.program.name, Context(c, c.solution.rows[0], sources), None
    for d in solved.diagnostics:
        if d.is_error:
            yield "", None, _failure(d)


def _one(p: Program, sources: Mapping[str, Source]) -> Run:
    if p.gpus is None:
        chosen, diagnostics = choose(p, lambda _: None)
        if chosen is not None:
            return p.name, Context(chosen, chosen.solution.rows[0], sources), None
        return p.name, None, _failure(diagnostics[0])
    chosen = solve(p, p.gpus, keep=0)
    chosen = plan_for(p, p.gpus, keep=1) if legal_on(chosen.compiled) else chosen
    base = based(chosen, sources)
    return (p.name, None, explanation(chosen, sources)) if base is None else (p.name, base, None)


def _failure(d: Diagnostic) -> Json:
    """Write a failure as JSON, from its diagnostic."""
    return {"version": 1, "kind": "failure", "message": d.message, "because": d.because, "relaxations": list(d.help)}


def _unknown(b: Context, name: str, source: Source) -> Diagnostic:
    plan = make_plan(b.chosen, [], b.sources)
    known = [*(n for n in b.env if n not in FUNCTIONS), *plan.derived, *plan.env, *explain_value.known_fields(plan)]
    help = suggest(name, known) or "`moedsl explain FILE` lists its values"
    return error("explain.unknown_name", Span(source.name, 0, 0), name=name, help=help)


def overview(b: Context) -> Json:
    """Collect all decisions of a run with their origins, the advice, and what the run file requires and allows."""
    p, laws = b.program, (*b.compiled.advice, *b.compiled.wishes)
    return {
        "version": 1,
        "kind": "overview",
        "run": p.name,
        "model": p.model.name,
        "hardware": p.hardware.name,
        "gpus": b.chosen.problem.gpus,
        "seq": b.chosen.problem.values["seq"],
        "phase": p.phase,
        "plan": {"step_time_s": b.row.step_time, "peak_gib": b.row.peak_memory / GIB},
        "decisions": [*_decisions(b)],
        "advice": explain_others.priced_advice(b, laws, b.answers(explain_others.questions(b, laws))),
        "own_rules": [
            {
                **b.cited(r),
                "text": print_expr(r.expr),
                "applies": r.applies(b.env),
                "holds": r.holds(b.env),
                "values": values(b, r.expr),
            }
            for r in p.of("require")
            if r.wish or not r.is_std
        ],
        "allowed": [{"rule": a.rule, "because": a.because, "at": b.where(a.span)} for a in p.allows.values()],
    }


def _decisions(b: Context) -> Iterator[Json]:
    """Every axis, derived value, value outside the layout, and setting, each with its origin in a few keys."""
    found = [(a.name, b.env[a.name], explain_value.axis_origin(b, a)) for a in axes.AXES]
    found += [(n, b.env[n], explain_value.let_origin(b, n)) for n in axes.DERIVED]
    fixed = ("gpus", "seq", "global_batch", "phase", "task", "routing", "data")
    found += [(n, b.env[n], explain_value.fixed_origin(b, n)) for n in fixed]
    for kind in ("derive", "env"):
        for name in dict.fromkeys(r.name for r in b.program.of(kind)):
            rule = first_of(b.program.named(kind, name), b.env)
            if rule is not None and (kind == "env" or path_of(name) not in b.program.sets):
                found.append((name, evaluate(rule.expr, b.env), {**b.cited(rule), "kind": "derived"}))
    found += [(n, v, explain_value.stated(b, b.program.spans[n])) for n, v in b.program.sets.items()]
    keys = ("kind", "rule", "because", "at", "rank", "among")
    for name, value, source in found:
        origin = {k: source[k] for k in keys if source.get(k) is not None}
        yield {"name": name, "value": json_value(value), "origin": origin}

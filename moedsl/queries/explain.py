"""Explain the runs of a source as JSON: some values, the whole plan, or why no layout fits.

A value is an axis, a let, a price, a rule's or the run's setting, a field of the recipe, or a size of the run. Its
explanation has its origin, the rules that read it, and the effect of each alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import isnan
from typing import Any

from attrs import field, frozen

from moedsl.compiler import Result, choose, compile_source
from moedsl.cost import pipeline
from moedsl.emit.settings import resets, sections
from moedsl.facts import axes
from moedsl.facts.axes import json_value, named_value
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import ALIASES, BUILTIN, COSTS, HARDWARE, MODEL, SAVES
from moedsl.facts.units import GIB
from moedsl.facts.values import python
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.planner import checkpoints
from moedsl.planner.build import make_plan
from moedsl.planner.experiment import path_of
from moedsl.queries import explain_layouts
from moedsl.queries.explain_layouts import Context, Json, axis_values, based, best_with, let_values
from moedsl.rules.check.program import Pin
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.library import Library
from moedsl.rules.rule import Rule
from moedsl.solver.conflicts import legal_on
from moedsl.solver.infeasible import explanation
from moedsl.solver.laws import closure, reads
from moedsl.solver.problem import first_of
from moedsl.solver.search import Answer, Question
from moedsl.solver.solve import Chosen, plan_for, solve
from moedsl.support import limits
from moedsl.support.diagnostics import Diagnostic, error, suggest
from moedsl.support.source import Source, Span

RunOrFailure = tuple[str, Context | None, Json | None]
"""A run's name, then its layout or, if it has none, the reason."""
Page = Callable[[str, Library, Sequence[Rule], Mapping[str, Source]], str | None]
"""Returns the page on a keyword, an id or one of the run's own rules; None if there is no such page."""


@frozen
class Explanations:
    """Explanations in the order of the names, and diagnostics on mistakes in the file or the names."""

    explanations: tuple[Json, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    sources: Mapping[str, Source] = field(factory=dict)

    @property
    def failed(self) -> bool:
        return any(d.is_error for d in self.diagnostics)


def answer(
    source: Source, names: Sequence[str], run: str | None = None, like: str = "", page: Page | None = None
) -> Explanations:
    """Explain each name (or the whole plan if `names` is empty) in every run of a source, or only in `run`.

    A name that is not a value of a run gets its `page`. `like` names a Bridge recipe whose layout is pinned.
    """
    checked = compile_source(source, "check", like=like)
    sources = checked.sources
    if checked.failed:
        return Explanations((), tuple(checked.diagnostics), sources)
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
    return Explanations(tuple(out), tuple(diagnostics), sources)


def _bases(source: Source, r: Result, sources: Mapping[str, Source], run: str | None) -> Iterator[RunOrFailure]:
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
    found = [(a.name, b.env[a.name], axis_origin(b, a)) for a in axes.AXES]
    found += [(n, b.env[n], let_origin(b, n)) for n in axes.DERIVED]
    sizes = ("gpus", "seq", "global_batch", "phase", "task", "routing", "data")
    found += [(n, b.env[n], fixed_origin(b, n)) for n in sizes]
    for kind, name in dict.fromkeys((r.kind, r.name) for r in (*p.of("derive"), *p.of("env"))):
        rule = first_of(p.named(kind, name), b.env)
        if rule is not None and (kind == "env" or path_of(name) not in p.sets):
            found.append((name, evaluate(rule.expr, b.env), {**b.cited(rule), "kind": "derived"}))
    found += [(n, v, stated(b, p.spans[n])) for n, v in p.sets.items()]
    decisions = list[Json]()
    for name, value, origin in found:
        shown = ("kind", "rule", "because", "at", "rank", "among")
        known = {k: origin[k] for k in shown if origin.get(k) is not None}
        decisions.append({"name": name, "value": json_value(value), "origin": known})
    return {
        **head(b, "overview"),
        "plan": {"step_time_s": b.row.step_time, "peak_gib": b.row.peak_memory / GIB},
        "decisions": decisions,
        "advice": explain_layouts.priced_advice(b, laws, b.answers(explain_layouts.questions(b, laws))),
        "own_rules": [{**judged(b, r), "values": values(b, r.expr)} for r in p.of("require") if r.wish or not r.is_std],
        "allowed": [{"rule": a.rule, "because": a.because, "at": b.where(a.span)} for a in p.allows.values()],
    }


_DOCS = {a.name: a.doc for a in axes.FOLLOWING}
_PRICES = (
    "gpu_mtbf", "detect", "restart", "restart_doubling", "load_times", "save_start", "node_write", "storage_write"
)  # fmt: skip
"""The constants that price checkpoints and failures."""
_RESIZED = ("seq", "global_batch", "gpus")


def explain(b: Context, name: str) -> Json | None:
    """Explain a value by its keyword, an alias, or a field of the recipe; None for an unknown name."""
    name = ALIASES.get(name, name)
    if name in SAVES:
        return _saving(b, name)
    if name in axes.BY_NAME or name in b.lets or (name in b.env and name in BUILTIN):
        return _read(b, name)
    if path_of(name) in b.program.sets:
        return _set(b, name)
    return _layout(b, name) if name == "pipeline_layout" else _setting(b, name) or _field(b, name)


def head(b: Context, kind: str) -> Json:
    """Return what starts every explanation: its kind, and the run that it explains."""
    p, problem = b.program, b.chosen.problem
    return {
        "version": 1,
        "kind": kind,
        "run": p.name,
        "model": p.model.name,
        "hardware": p.hardware.name,
        "gpus": problem.gpus,
        "seq": problem.values["seq"],
        "phase": p.phase,
    }


def _entry(
    b: Context, name: str, value: Any, doc: str, origin: Json, rules: Sequence[Json] = (), others: Sequence[Json] = (),
    advice: Sequence[Json] = (),
) -> Json:  # fmt: skip
    plain = named_value(name, value)
    return {
        **head(b, "value"),
        "name": name,
        # JSON has no NaN, the value of a price that this search does not need
        "value": None if isinstance(plain, float) and isnan(plain) else plain,
        "doc": doc,
        "plan": {"step_time_s": b.row.step_time, "peak_gib": b.row.peak_memory / GIB},
        "origin": origin,
        "rules": [*rules],
        "alternatives": [*others],
        "advice": [*advice],
    }


def _read(b: Context, name: str) -> Json:
    """Explain an axis, a let or a value outside the layout.

    The explanation has the rules that read the value, the price of advice that reads it, and its other values: for a
    size of the run, half and twice the value."""
    laws = (*b.compiled.advice, *b.compiled.wishes)
    read = [w for w in laws if name in bearing(b, w.rule) and w.rule.applies(b.env)]
    now, asked = b.env[name], explain_layouts.questions(b, read)
    others: list[Json]
    if name in axes.BY_NAME:
        axis, now = axes.BY_NAME[name], b.row.codes[name]
        values = [v for v in axis_values(b.program, axis, b.chosen.problem.gpus, now) if v != now]
        found, answers = best_with(b, name, values, asked)
        others = explain_layouts.axis_alternatives(b, axis, found)
        doc, origin = axis.doc, axis_origin(b, axis)
    elif name in b.lets:  # a let follows from the axes, so only other layouts change it
        values = [v for v in let_values(b, name) if v != now]
        found = b.answers([*(Question({name: v}) for v in values), *asked])
        best, answers = (explain_layouts.best(b, a, set()) for a in found), found[len(values) :]
        others = [{"value": v, "same_otherwise": None, "best": x} for v, x in zip(values, best, strict=False)]
        rule = next(r for r in b.program.of("let") if r.name == name)
        doc, origin = _DOCS.get(name) or rule.because or "", let_origin(b, name)
    else:
        others = [_resized(b, name, v) for v in (now // 2, now * 2) if v >= 1] if name in _RESIZED else []
        answers = b.answers(asked)
        when = "estimated for the chosen layout" if name in COSTS else "fixed before the search"
        doc, origin = f"{BUILTIN[name]}, {when}", fixed_origin(b, name)
    refused: dict[str, list[Any]] = {}
    for other, law in ((o, law) for o in others for law in (o["same_otherwise"] or {"breaks": []})["breaks"]):
        refused.setdefault(law["rule"], []).append(other["value"])
    rules = bearing_rules(b, name, refused)
    return _entry(b, name, b.env[name], doc, origin, rules, others, explain_layouts.priced_advice(b, read, answers))


def _saving(b: Context, name: str) -> Json:
    """Explain the goodput or the checkpoint interval by what determines them, with the published sources."""
    p, reached = b.program, b.program.hardware.constants
    c = checkpoints.build(b.chosen, b.row, b.env, p.sets)
    from_site = {"gpu_mtbf": p.site.gpu_mtbf, "node_write": p.site.storage_write, "storage_write": p.site.storage_write}
    stated = [(n, reached.known[n]) for n in _PRICES if not from_site.get(n)]
    cites = [f"{n} {reached.stated(n):g} {known.unit}: {known.source}" for n, known in stated]
    doc, value, because = "the best number of steps between checkpoints", b.env[name], c.because
    if name == "goodput":
        doc, value = "the share of a month that trains", f"{c.goodput.trains:.1%}"
        because = checkpoints.month(c.goodput)
    return _entry(b, name, value, doc, unruled("derived", because, cites))


def _layout(b: Context, name: str) -> Json:
    """Explain the pipeline layout: the run's own, Megatron's even split, or the most balanced one."""
    m, pp, vpp = b.program.model, b.row.codes["pp"], b.row.codes["vpp"]
    doc, text = "the layers of each pipeline chunk, in Megatron's notation", pipeline.layout_string(m, pp, vpp)
    if name in b.program.spans:
        return _entry(b, name, b.program.pipeline_layout, doc, stated(b, b.program.spans[name]))
    if text is None:
        because = "Megatron's even split, which needs no layout" if pp > 1 else "one stage holds every layer"
    elif m.hybrid:
        because = "the split of the pattern with the fewest active parameters in the heaviest stage"
    else:
        mtp, loss = pipeline.weights(m)
        ahead = f" and an MTP layer {mtp:.1f}" if m.mtp_layers else ""
        each = "" if pipeline.may_be_empty(m) else "; with MTP, each chunk needs a layer"
        because = f"the split whose slowest chunk is the fastest: a layer counts 1, the loss {loss:.1f}{ahead}{each}"
    return _entry(b, name, text, doc, unruled("derived", because))


def _resized(b: Context, name: str, value: int) -> Json:
    gpus = value if name == "gpus" else b.chosen.problem.gpus
    sizes = {n: b.chosen.problem.values[n] for n in ("seq", "global_batch")} | {name: value}
    chosen: Chosen = solve(b.program, gpus, keep=1, seq=sizes["seq"], global_batch=sizes["global_batch"])
    row = next(iter(chosen.solution.rows), None)
    answer = Answer(row, chosen.solution.legal, float("inf"))
    best = explain_layouts.best(Context(chosen, b.row, b.sources) if row else b, answer, {name})
    if row:
        here = b.env["global_batch"] * b.env["seq"] / b.chosen.problem.gpus / b.row.step_time
        best["throughput_change"] = sizes["global_batch"] * sizes["seq"] / gpus / row.step_time / here - 1
    return {"value": value, "same_otherwise": None, "best": {**best, "decided_by": None}}


def _set(b: Context, name: str) -> Json:
    path, doc = path_of(name), "a field of the recipe that the run file sets; this overrides rules that derive it"
    rules = [_branch(b, r) for r in b.program.of("derive") if path in (r.name, f"model.{r.name}")]
    return _entry(b, path, b.program.sets[path], doc, stated(b, b.program.spans[path]), rules)


def _setting(b: Context, name: str) -> Json | None:
    """Explain a derived setting or environment variable, and why the other rules for it do not apply."""
    named = dict.fromkeys((name, name.removeprefix("model.").removeprefix("env_vars.").removeprefix("env.")))
    docs = (("derive", "a field of the recipe"), ("env", "an environment variable of the run"))
    for (kind, doc), short in product(docs, named):
        mine = first_of(b.program.named(kind, short), b.env)
        if mine is not None:
            origin = {**b.cited(mine), "kind": "derived", "tree": b.tree(mine.expr), "when": b.tree(mine.when)}
            others = [_branch(b, r) for r in b.program.of(kind) if r.name == short and r is not mine]
            return _entry(b, short, evaluate(mine.expr, b.env), doc, origin, others)
    return None


def _branch(b: Context, r: Rule) -> Json:
    """Explain another rule for the same setting: its value, and its condition as a tree."""
    return {**b.cited(r), "text": print_expr(r.expr), "applies": r.applies(b.env), "condition": b.tree(r.when)}


def _field(b: Context, name: str) -> Json | None:
    """Explain a recipe field by the keyword that decides it; `name` is the field's path or the end of the path."""
    plan = make_plan(b.chosen, [], b.sources)
    fields = [(s.path, s.value, s.word) for _, settings in sections(plan) for s in settings]
    # of several matches, take the last; fields that the recipe sets precede those that it resets
    reset = [(path, value, "reset") for path, value in resets(plan.target.bridge).items()]
    matching = [f for f in (*reversed(fields), *reset) if f[0] == name or f[0].endswith("." + name)]
    if not matching:
        return None
    path, value, word = matching[0]
    found = _set(b, path) if word == "set" else explain(b, word) if word not in (None, "reset") else None
    if found is None:
        because = {
            "reset": "Bridge's recipe sets it to a value that contradicts the plan, so this recipe resets it",
            None: "the plan does not decide it; you can change Bridge's value freely",
        }.get(word, f"follows from `{word}` of the run file")
        found = _entry(b, path, python(value), "a field of the recipe", unruled("defaulted", because))
    return {**found, "field": {"path": path, "value": python(value), "word": word}}


def axis_origin(b: Context, axis: axes.Axis) -> Json:
    """Return the origin of an axis: a pin, a rule with one value, or the phase's choice among several."""
    source, domain = b.chosen.problem.origins[axis.name], b.chosen.problem.domains[axis.name]
    if isinstance(source, Pin):
        return stated(b, source.span)
    by = b.cited(source) if source is not None else {"rule": None, "because": None, "cite": [], "at": None}
    if len(domain) == 1:
        return {**by, "kind": "defaulted"}
    among, rank, known = [axis.decode(int(v)) for v in domain], b.compiled.ranks[0].rule, b.chosen.preference
    near = known.reason(axis, b.chosen.solution.rows[0].codes[axis.name], rank.name) if known else ""
    return {**by, "kind": "chosen", "among": among, "rank": rank.id, **({"near": near} if near else {})}


def stated(b: Context, span: Span) -> Json:
    """Return the origin of a value that the run file states at a span."""
    return {"kind": "pinned", "at": b.where(span)}


def unruled(kind: str, because: str, cite: Sequence[str] = ()) -> Json:
    """Return the origin of a value that neither a rule nor the run file gives."""
    return {"kind": kind, "rule": None, "because": because, "cite": [*cite], "at": None}


def let_origin(b: Context, name: str) -> Json:
    """Return the origin of a let: derived by its expression, or pinned if the run requires one value."""
    wish = next((r for r in b.program.rules if r.wish and r.name == name), None)
    rule = next(r for r in b.program.of("let") if r.name == name)
    origin = stated(b, wish.span) if wish is not None else {**b.cited(rule), "kind": "derived"}
    return {**origin, "tree": b.tree(rule.expr)}


_STATEMENTS = {
    "global_batch": "batch", "gpus": "hardware", "run_tokens": "for", "run_seconds": "for", "bridge_version": "target"
}  # fmt: skip
"""The statement that gives a value, where the two names differ."""


def fixed_origin(b: Context, name: str) -> Json:
    """Return the origin of a value outside the layout: a statement of the run, a fact, an estimate or a default."""
    rule, h = b.chosen.problem.defaults.get(name), b.program.hardware
    if rule is not None:
        return {**b.cited(rule), "kind": "defaulted", "tree": b.tree(rule.expr)}
    if name in COSTS:
        because = "the estimate of the chosen layout" if not isnan(b.env[name]) else "this search does not need it"
        return unruled("derived", because)
    statement = _STATEMENTS.get(name, name)
    if statement in b.program.spans and not (statement == "for" and not b.env[name]):
        return stated(b, b.program.spans[statement])
    if name in HARDWARE:
        because, source = f"a fact of hardware {h.name}", h.sources.get(name)
        if name == "memory":
            because += (
                f": {h.memory / 1e9:g} GB by the data sheet. A plan counts with the {h.shown / GIB:.1f} GiB that the "
                f"driver shows (`visible`), of which a program is told {h.total / GIB:.1f} (`torch_total`)"
            )
        return unruled("declared", because, [source] if source else [])
    if name in MODEL:
        return unruled("declared", f"a fact of model {b.program.model.name}")
    return unruled("defaulted", "the default of the language")


def bearing_rules(b: Context, name: str, refused: Mapping[str, list[Any]]) -> list[Json]:
    """Return the laws, advice and ranking that read a name; `refused` lists the alternatives that each rule refuses.

    Each rule applies to this layout or refuses an alternative; rules that the run suspends by `allow` are included.
    """
    out = [
        {
            **judged(b, r),
            "allowed": r.id in b.program.allows,
            "wish": r.wish,
            "values": values(b, r.expr),
            "through": through(b, r, name),
            "tight": r.id in refused,
            "refuses": refused.get(r.id, []),
        }
        for r in b.program.rules
        if r.kind in ("require", "prefer") and name in bearing(b, r) and (r.id in refused or r.applies(b.env))
    ]
    if b.compiled.ranks:
        rule = b.compiled.ranks[0].rule
        keys = [
            {
                "text": print_expr(key.expr),
                "value": json_value(evaluate(key.expr, b.env)),
                "bears": name in closure(names(key.expr), b.program.of("let")) or key.priced,
            }
            for key in b.compiled.ranks
        ]
        out.append({**b.cited(rule), "text": print_expr(rule.expr), "keys": keys})
    return out


def judged(b: Context, r: Rule) -> Json:
    """Write a rule with its expression, and whether it applies and holds."""
    return {**b.cited(r), "text": print_expr(r.expr), "applies": r.applies(b.env), "holds": r.holds(b.env)}


def bearing(b: Context, r: Rule) -> frozenset[str]:
    """Return the names that a rule reads; a rule that reads a price reads all axes through it."""
    read = reads(b.program, r)
    return read.union(b.row.codes) if read & COSTS.keys() else read


def values(b: Context, e: ast.Expr) -> Json:
    """Return the value that each name in an expression has in the layout."""
    return {n: named_value(n, b.env[n]) for n in sorted(names(e)) if n in b.env}


def through(b: Context, r: Rule, name: str) -> list[str]:
    """List the lets and prices through which a rule reads a name; empty if it reads the name directly."""
    lets = b.program.of("let")
    leads = (n for n in r.reads if n in COSTS or (n in b.lets and name in closure(names(b.lets[n]), lets)))
    return [] if name in r.reads else sorted(leads)

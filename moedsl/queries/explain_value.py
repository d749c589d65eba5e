"""Explain one value of a plan as JSON: its origin, the rules that read it, and the effect of each alternative.

A value is an axis, a let, a price, a setting of a rule or of the run, a field of the recipe, or a size of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import isnan
from typing import Any

from attrs import frozen

from moedsl.cost import pipeline
from moedsl.emit.settings import resets, sections
from moedsl.facts import axes
from moedsl.facts.axes import json_value, named_value
from moedsl.facts.facts import Model
from moedsl.facts.symbols import ALIASES, BUILTIN, COSTS, HARDWARE, MODEL, SAVES
from moedsl.facts.units import GIB
from moedsl.facts.values import python
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.planner.build import make_plan
from moedsl.planner.checkpoints import checkpoints
from moedsl.planner.experiment import path_of
from moedsl.planner.plan import Plan
from moedsl.planner.text import shares
from moedsl.queries import explain_others
from moedsl.queries.explain_context import Context, Json
from moedsl.queries.explain_others import axis_values as of_axis
from moedsl.queries.explain_others import best_with
from moedsl.queries.explain_others import let_values as of_let
from moedsl.rules.check.program import Pin
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.rule import Rule
from moedsl.solver.laws import Law, closure, reads
from moedsl.solver.nearest import tree
from moedsl.solver.problem import first_of
from moedsl.solver.search import Answer, Question
from moedsl.solver.solve import Chosen, solve
from moedsl.support.source import Span

_DOCS = {a.name: a.doc for a in axes.FOLLOWING}
_PRICES = (
    "gpu_mtbf", "detect", "restart", "restart_doubling", "load_times", "save_start", "node_write", "storage_write"
)  # fmt: skip
"""The constants that price checkpoints and failures."""
_RESIZED = ("seq", "global_batch", "gpus")


def explain(b: Context, name: str) -> Json | None:
    """Explain a value by its keyword, an alias, or a field of the recipe; None for an unknown name."""
    name = ALIASES.get(name, name)
    for known, one in (
        (name in axes.BY_NAME, _axis),
        (name in b.lets, _let),
        (name in SAVES, _saving),
        (name in b.env.keys() & BUILTIN.keys(), _fixed),
        (path_of(name) in b.program.sets, _set),
        (name == "pipeline_layout", _layout),
    ):
        if known:
            return one(b, name)
    return _setting(b, name) or _field(b, name)


def _head(b: Context, name: str, value: Any, doc: str) -> Json:
    p = b.program
    where = {"run": p.name, "model": p.model.name, "hardware": p.hardware.name}
    return {
        "version": 1,
        "kind": "value",
        **where,
        "gpus": b.chosen.problem.gpus,
        "seq": b.chosen.problem.values["seq"],
        "phase": p.phase,
        "name": name,
        "value": _no_nan(named_value(name, value)),
        "doc": doc,
        "plan": {"step_time_s": b.row.step_time, "peak_gib": b.row.peak_memory / GIB},
    }


def _no_nan(value: Any) -> Any:
    """None in place of a price that this search does not need, because JSON has no NaN."""
    return None if isinstance(value, float) and isnan(value) else value


def _advice(b: Context, name: str) -> list[Law]:
    """The advice that applies and reads a name."""
    laws = (*b.compiled.advice, *b.compiled.wishes)
    return [w for w in laws if name in reads(b.program, w.rule) | priced(b, w.rule) and w.rule.applies(b.env)]


def _body(b: Context, name: str, others: list[Json], read: list[Law], answers: list[Answer]) -> Json:
    """The rules that read a name, and the priced advice."""
    return {
        "rules": bearing_rules(b, name, explain_others.refusals(others)),
        "alternatives": others,
        "advice": explain_others.priced_advice(b, read, answers),
    }


def _axis(b: Context, name: str) -> Json:
    axis = axes.BY_NAME[name]
    values = of_axis(b.program, axis, b.chosen.problem.gpus, b.row.codes[name])
    values, read = [v for v in values if v != b.row.codes[name]], _advice(b, name)
    found, answers = best_with(b, name, values, explain_others.questions(b, read))
    body = _body(b, name, explain_others.axis_alternatives(b, axis, found), read, answers)
    return {**_head(b, name, b.env[name], axis.doc), "origin": axis_origin(b, axis), **body}


def _let(b: Context, name: str) -> Json:
    rule = next(r for r in b.program.of("let") if r.name == name)
    values, read = [v for v in of_let(b, name) if v != b.env[name]], _advice(b, name)
    answers = b.answers([*(Question({name: v}) for v in values), *explain_others.questions(b, read)])
    others = explain_others.let_alternatives(b, name, dict(zip(values, answers, strict=False)))
    body = _body(b, name, others, read, answers[len(values) :])
    doc = _DOCS.get(name) or rule.because or ""
    return {**_head(b, name, b.env[name], doc), "origin": let_origin(b, name), **body}


def _fixed(b: Context, name: str) -> Json:
    """Explain a value outside the layout; for a size, half and twice the value are alternatives."""
    value = b.env[name]
    others = [_resized(b, name, v) for v in (value // 2, value * 2) if v >= 1] if name in _RESIZED else []
    read = _advice(b, name)
    body = _body(b, name, others, read, b.answers(explain_others.questions(b, read)))
    when = "estimated for the chosen layout" if name in COSTS else "fixed before the search"
    doc = f"{BUILTIN[name]}, {when}" if name in BUILTIN else ""
    return {**_head(b, name, value, doc), "origin": of_fixed(b, name), **body}


def _saving(b: Context, name: str) -> Json:
    """Explain the goodput or the interval between checkpoints by what they follow from, with the published sources."""
    p, row = b.program, b.row
    c = checkpoints(b.chosen, row, b.env, p.sets)
    reached = p.hardware.constants
    from_site = {"gpu_mtbf": p.site.gpu_mtbf, "node_write": p.site.storage_write, "storage_write": p.site.storage_write}
    stated = [(n, reached.known[n]) for n in _PRICES if not from_site.get(n)]
    cites = [f"{n} {reached.stated(n):g} {known.unit}: {known.source}" for n, known in stated]
    goodput = name == "goodput"
    source = unruled("derived", shares(c) if goodput else c.because, cites)
    doc = "the share of a month that trains" if goodput else "the best number of steps between checkpoints"
    value = f"{c.goodput.trains:.1%}" if goodput else b.env[name]
    return {**_head(b, name, value, doc), "origin": source, "rules": [], "alternatives": [], "advice": []}


def _layout(b: Context, name: str) -> Json:
    """Explain the pipeline layout: stated by the run, Megatron's even split, or the most balanced one."""
    m, pp, vpp = b.program.model, b.row.codes["pp"], b.row.codes["vpp"]
    text = pipeline.layout_string(m, pp, vpp)
    if name in b.program.spans:
        source, text = stated(b, b.program.spans[name]), b.program.pipeline_layout
    else:
        even = "Megatron's even split, which needs no layout" if pp > 1 else "one stage holds every layer"
        because = even if text is None else _balance(m)
        source = unruled("derived", because)
    doc = "the layers of each pipeline chunk, in Megatron's notation"
    return {**_head(b, name, text, doc), "origin": source, "rules": [], "alternatives": [], "advice": []}


def _balance(m: Model) -> str:
    """Write what the most balanced layout balances."""
    if m.hybrid:
        return "the split of the pattern with the fewest active parameters in the heaviest stage"
    mtp, loss = pipeline.weights(m)
    ahead = f" and an MTP layer {mtp:.1f}" if m.mtp_layers else ""
    each = "" if pipeline.may_be_empty(m) else "; with MTP, each chunk needs a layer"
    return f"the split whose slowest chunk is the fastest: a layer counts 1, the loss {loss:.1f}{ahead}{each}"


def _resized(b: Context, name: str, value: int) -> Json:
    gpus = value if name == "gpus" else b.chosen.problem.gpus
    sizes = {n: b.chosen.problem.values[n] for n in ("seq", "global_batch")} | {name: value}
    chosen: Chosen = solve(b.program, gpus, keep=1, seq=sizes["seq"], global_batch=sizes["global_batch"])
    rows = chosen.solution.rows
    answer = Answer(rows[0] if rows else None, chosen.solution.legal, float("inf"))
    best = explain_others.best(Context(chosen, b.row, b.sources) if rows else b, answer, {name})
    if rows:
        here = b.env["global_batch"] * b.env["seq"] / b.chosen.problem.gpus / b.row.step_time
        there_ = sizes["global_batch"] * sizes["seq"] / gpus / rows[0].step_time
        best["throughput_change"] = there_ / here - 1
    return {"value": value, "same_otherwise": None, "best": {**best, "decided_by": None}}


def _set(b: Context, name: str) -> Json:
    name = path_of(name)
    value = b.program.sets[name]
    where = stated(b, b.program.spans[name])
    head = _head(b, name, value, "a field of the recipe that the run file sets; this overrides rules that derive it")
    rules = [_branch(b, r) for r in b.program.of("derive") if name in (r.name, f"model.{r.name}")]
    return {**head, "origin": where, "rules": rules, "alternatives": [], "advice": []}


def _setting(b: Context, name: str) -> Json | None:
    """Explain a derived setting or environment variable, with the other rules of its name and why they do not apply."""
    named = dict.fromkeys((name, name.removeprefix("model.").removeprefix("env_vars.").removeprefix("env.")))
    docs = (("derive", "a field of the recipe"), ("env", "an environment variable of the run"))
    for (kind, doc), short in product(docs, named):
        source = setting_origin(b, kind, short)
        if source is None:
            continue
        rules = [r for r in b.program.of(kind) if r.name == short]
        mine = next(r for r in rules if r.id == source["rule"] and source["because"] == r.because)
        where = {**source, "tree": tree(mine.expr, b.env, b.lets), "when": _condition(b, mine)}
        head = _head(b, short, evaluate(mine.expr, b.env), doc)
        others = [_branch(b, r) for r in rules if r is not mine]
        return {**head, "origin": where, "rules": others, "alternatives": [], "advice": []}
    return None


def _condition(b: Context, r: Rule) -> Json | None:
    return None if r.when is None else tree(r.when, b.env, b.lets)


def _branch(b: Context, r: Rule) -> Json:
    """Explain another rule of the same setting: its value, and its condition as a tree."""
    entry = {**b.cited(r), "text": print_expr(r.expr), "applies": r.applies(b.env)}
    return {**entry, "condition": _condition(b, r)}


def _field(b: Context, name: str) -> Json | None:
    """Explain a field of the recipe by the keyword that decides it."""
    field = field_of(make_plan(b.chosen, [], b.sources), name)
    if field is None:
        return None
    entry = {"path": field.path, "value": field.value, "word": field.word}
    if field.word == "set":
        inner = _set(b, field.path)
    else:
        inner = explain(b, field.word) if field.word not in (None, "reset") else None
    if inner is not None:
        return {**inner, "field": entry}
    because = {
        "reset": "Bridge's recipe sets it to a value that contradicts the plan, so this recipe resets it",
        None: "the plan does not decide it; you can change Bridge's value freely",
    }.get(field.word, f"follows from `{field.word}` of the run file")
    source = unruled("defaulted", because)
    head = _head(b, field.path, field.value, "a field of the recipe")
    return {**head, "origin": source, "rules": [], "alternatives": [], "advice": [], "field": entry}


def axis_origin(b: Context, axis: axes.Axis) -> Json:
    """The origin of an axis: a pin, a rule with one value, or the phase's choice among several."""
    source, domain = b.chosen.problem.origins[axis.name], b.chosen.problem.domains[axis.name]
    if isinstance(source, Pin):
        return stated(b, source.span)
    if len(domain) > 1:
        among, rank, known = [axis.decode(int(v)) for v in domain], b.compiled.ranks[0].rule, b.chosen.preference
        near = known.reason(axis, b.chosen.solution.rows[0].codes[axis.name], rank.name) if known else ""
        said = {"near": near} if near else {}
        return {**_by(b, source), "kind": "chosen", "among": among, "rank": rank.id, **said}
    return {**_by(b, source), "kind": "defaulted"}


def stated(b: Context, span: Span) -> Json:
    """The origin of a value that the run file states at a span."""
    return {"kind": "pinned", "at": b.where(span)}


def unruled(kind: str, because: str, cite: Sequence[str] = ()) -> Json:
    """The origin of a value that neither a rule nor the run file gives."""
    return {"kind": kind, "rule": None, "because": because, "cite": [*cite], "at": None}


def _by(b: Context, r: Rule | None) -> Json:
    return b.cited(r) if r is not None else {"rule": None, "because": None, "cite": [], "at": None}


def let_origin(b: Context, name: str) -> Json:
    """The origin of a let: derived by its expression, or pinned if the run requires one value."""
    wish = next((r for r in b.program.rules if r.wish and r.name == name), None)
    rule = next(r for r in b.program.of("let") if r.name == name)
    formula = tree(rule.expr, b.env, b.lets)
    if wish is not None:
        return {**stated(b, wish.span), "tree": formula}
    return {**b.cited(rule), "kind": "derived", "tree": formula}


_STATEMENTS = {
    "global_batch": "batch", "gpus": "hardware", "run_tokens": "for", "run_seconds": "for", "bridge_version": "target"
}  # fmt: skip
"""The statement that gives a value, where it has another name."""


def of_fixed(b: Context, name: str) -> Json:
    """The origin of a value outside the layout: a statement of the run, or a default."""
    rule = b.chosen.problem.defaults.get(name)
    if rule is not None:
        return {**b.cited(rule), "kind": "defaulted", "tree": tree(rule.expr, b.env, b.lets)}
    if name in COSTS:
        because = "the estimate of the chosen layout" if not isnan(b.env[name]) else "this search does not need it"
        return unruled("derived", because)
    statement = _STATEMENTS.get(name, name)
    if statement in b.program.spans and not (statement == "for" and not b.env[name]):
        return stated(b, b.program.spans[statement])
    for kind, facts, declared in (("hardware", HARDWARE, b.program.hardware), ("model", MODEL, b.program.model)):
        if name in facts:
            because = f"a fact of {kind} {declared.name}{_counted(b, name)}"
            source = b.program.hardware.sources.get(name) if kind == "hardware" else None
            return unruled("declared", because, [source] if source else [])
    return unruled("defaulted", "the default of the language")


def _counted(b: Context, name: str) -> str:
    """What a plan counts with in place of the memory of the data sheet."""
    if name != "memory":
        return ""
    h = b.program.hardware
    return (
        f": {h.memory / 1e9:g} GB by the data sheet. A plan counts with the {h.shown / GIB:.1f} GiB that the driver "
        f"shows (`visible`), of which a program is told {h.total / GIB:.1f} (`torch_total`)"
    )


def setting_origin(b: Context, kind: str, name: str) -> Json | None:
    """The origin of a setting: a `derive` or `env` rule whose condition holds."""
    rule = first_of(b.program.named(kind, name), b.env)
    return None if rule is None else {**b.cited(rule), "kind": "derived"}


_KINDS = ("require", "prefer")


def bearing_rules(b: Context, name: str, refused: Mapping[str, list[Any]]) -> list[Json]:
    """Laws, advice and the ranking that read a name; `refused` lists the alternatives that each rule refuses."""
    judged = [_rule(b, r, name, refused.get(r.id, [])) for r in _judging(b, name, refused)]
    return [*judged, *_rank(b, name)]


def _judging(b: Context, name: str, refused: Mapping[str, list[Any]]) -> Iterable[Rule]:
    """Rules that apply to this layout or refuse an alternative; rules that the run allows are included."""
    for r in b.program.rules:
        if r.kind not in _KINDS or name not in reads(b.program, r) | priced(b, r):
            continue
        if r.id in refused or r.applies(b.env):
            yield r


def priced(b: Context, r: Rule) -> frozenset[str]:
    """The axes that a rule reads through prices: all of them, if it reads a price."""
    return frozenset(b.row.codes) if reads(b.program, r) & COSTS.keys() else frozenset()


def _rule(b: Context, r: Rule, name: str, against: list[Any]) -> Json:
    return {
        **b.cited(r),
        "text": print_expr(r.expr),
        "applies": r.applies(b.env),
        "holds": r.holds(b.env),
        "allowed": r.id in b.program.allows,
        "wish": r.wish,
        "values": values(b, r.expr),
        "through": through(b, r, name),
        "tight": bool(against),
        "refuses": against,
    }


def values(b: Context, e: ast.Expr) -> Json:
    """The value of each name of an expression in the layout."""
    return {n: named_value(n, b.env[n]) for n in sorted(names(e)) if n in b.env}


def through(b: Context, r: Rule, name: str) -> list[str]:
    """The lets through which a rule reads a name; empty if the rule reads it directly."""
    direct = r.reads
    if name in direct:
        return []
    return sorted(
        n for n in direct if n in COSTS or (n in b.lets and name in closure(names(b.lets[n]), b.program.of("let")))
    )


def _rank(b: Context, name: str) -> list[Json]:
    """The ranking keys of the phase with their values; `bears` marks those that read the name, also through prices."""
    if not b.compiled.ranks:
        return []
    rule = b.compiled.ranks[0].rule
    keys = [
        {
            "text": print_expr(key.expr),
            "value": json_value(evaluate(key.expr, b.env)),
            "bears": name in closure(names(key.expr), b.program.of("let")) or key.priced,
        }
        for key in b.compiled.ranks
    ]
    return [{**b.cited(rule), "text": print_expr(rule.expr), "keys": keys}]


@frozen
class Field:
    """A field that the recipe sets: its full path, its value as Python, and the keyword that decides it, if any."""

    path: str
    value: str
    word: str | None


def field_of(plan: Plan, name: str) -> Field | None:
    """Find a field of a plan's recipe by its path, or by the end of its path (``tensor_model_parallel_size``)."""
    matching = [s for _, settings in sections(plan) for s in settings if _names(s.path, name)]
    if matching:
        return Field(matching[-1].path, python(matching[-1].value), matching[-1].word)
    reset = resets(plan.target.bridge)
    path = next((p for p in reset if _names(p, name)), None)
    return None if path is None else Field(path, python(reset[path]), "reset")


def _names(path: str, name: str) -> bool:
    return path == name or path.endswith("." + name)


def known_fields(plan: Plan) -> list[str]:
    """Every path that the recipe sets."""
    return [s.path for _, settings in sections(plan) for s in settings]

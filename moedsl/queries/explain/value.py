"""Explain one value of a plan as JSON: its origin, the rules that read it, and the effect of each alternative."""

from __future__ import annotations

from itertools import product
from math import isnan
from typing import Any

from moedsl.cost import pipeline
from moedsl.facts import axes
from moedsl.facts.axes import named_value
from moedsl.facts.facts import Model
from moedsl.facts.symbols import ALIASES, BUILTIN, COSTS, SAVES
from moedsl.facts.units import GIB
from moedsl.lang.printer import print_expr
from moedsl.planner.build import make_plan
from moedsl.planner.checkpoints import checkpoints
from moedsl.planner.experiment import path_of
from moedsl.planner.text.plan import shares
from moedsl.queries.explain import advice, alternatives, bearing, fields, origin
from moedsl.queries.explain.context import Context, Json
from moedsl.queries.explain.other_values import best_with, of_axis, of_let
from moedsl.rules.interpreter import evaluate
from moedsl.rules.rule import Rule
from moedsl.solver.infeasible.tree import tree
from moedsl.solver.laws import Law, reads
from moedsl.solver.question import Answer, Question
from moedsl.solver.solve import Chosen, solve

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
    return [w for w in laws if name in reads(b.program, w.rule) | bearing.priced(b, w.rule) and w.rule.applies(b.env)]


def _body(b: Context, name: str, others: list[Json], read: list[Law], answers: list[Answer]) -> Json:
    """The rules that read a name, and the priced advice."""
    return {
        "rules": bearing.rules(b, name, alternatives.refusals(others)),
        "alternatives": others,
        "advice": advice.priced(b, read, answers),
    }


def _axis(b: Context, name: str) -> Json:
    axis = axes.BY_NAME[name]
    values = of_axis(b.program, axis, b.chosen.problem.gpus, b.row.codes[name])
    values, read = [v for v in values if v != b.row.codes[name]], _advice(b, name)
    found, answers = best_with(b, name, values, advice.questions(b, read))
    body = _body(b, name, alternatives.of_axis(b, axis, found), read, answers)
    return {**_head(b, name, b.env[name], axis.doc), "origin": origin.of_axis(b, axis), **body}


def _let(b: Context, name: str) -> Json:
    rule = next(r for r in b.program.of("let") if r.name == name)
    values, read = [v for v in of_let(b, name) if v != b.env[name]], _advice(b, name)
    answers = b.answers([*(Question({name: v}) for v in values), *advice.questions(b, read)])
    others = alternatives.of_let(b, name, dict(zip(values, answers, strict=False)))
    body = _body(b, name, others, read, answers[len(values) :])
    doc = _DOCS.get(name) or rule.because or ""
    return {**_head(b, name, b.env[name], doc), "origin": origin.of_let(b, name), **body}


def _fixed(b: Context, name: str) -> Json:
    """Explain a value outside the layout; for a size, half and twice the value are alternatives."""
    value = b.env[name]
    others = [_resized(b, name, v) for v in (value // 2, value * 2) if v >= 1] if name in _RESIZED else []
    read = _advice(b, name)
    body = _body(b, name, others, read, b.answers(advice.questions(b, read)))
    when = "estimated for the chosen layout" if name in COSTS else "fixed before the search"
    doc = f"{BUILTIN[name]}, {when}" if name in BUILTIN else ""
    return {**_head(b, name, value, doc), "origin": origin.of_fixed(b, name), **body}


def _saving(b: Context, name: str) -> Json:
    """Explain the goodput or the interval between checkpoints by what they follow from, with the published sources."""
    p, row = b.program, b.row
    c = checkpoints(b.chosen, row, b.env, p.sets)
    reached = p.hardware.constants
    from_site = {"gpu_mtbf": p.site.gpu_mtbf, "node_write": p.site.storage_write, "storage_write": p.site.storage_write}
    stated = [(n, reached.known[n]) for n in _PRICES if not from_site.get(n)]
    cites = [f"{n} {reached.stated(n):g} {known.unit}: {known.source}" for n, known in stated]
    goodput = name == "goodput"
    source = origin.unruled("derived", shares(c) if goodput else c.because, cites)
    doc = "the share of a month that trains" if goodput else "the best number of steps between checkpoints"
    value = f"{c.goodput.trains:.1%}" if goodput else b.env[name]
    return {**_head(b, name, value, doc), "origin": source, "rules": [], "alternatives": [], "advice": []}


def _layout(b: Context, name: str) -> Json:
    """Explain the pipeline layout: stated by the run, Megatron's even split, or the most balanced one."""
    m, pp, vpp = b.program.model, b.row.codes["pp"], b.row.codes["vpp"]
    text = pipeline.layout_string(m, pp, vpp)
    if name in b.program.spans:
        source, text = origin.stated(b, b.program.spans[name]), b.program.pipeline_layout
    else:
        even = "Megatron's even split, which needs no layout" if pp > 1 else "one stage holds every layer"
        because = even if text is None else _balance(m)
        source = origin.unruled("derived", because)
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
    best = alternatives.best(Context(chosen, b.row, b.sources) if rows else b, answer, {name})
    if rows:
        here = b.env["global_batch"] * b.env["seq"] / b.chosen.problem.gpus / b.row.step_time
        there_ = sizes["global_batch"] * sizes["seq"] / gpus / rows[0].step_time
        best["throughput_change"] = there_ / here - 1
    return {"value": value, "same_otherwise": None, "best": {**best, "decided_by": None}}


def _set(b: Context, name: str) -> Json:
    name = path_of(name)
    value = b.program.sets[name]
    where = origin.stated(b, b.program.spans[name])
    head = _head(b, name, value, "a field of the recipe that the run file sets; this overrides rules that derive it")
    rules = [_branch(b, r) for r in b.program.of("derive") if name in (r.name, f"model.{r.name}")]
    return {**head, "origin": where, "rules": rules, "alternatives": [], "advice": []}


def _setting(b: Context, name: str) -> Json | None:
    """Explain a derived setting or environment variable, with the other rules of its name and why they do not apply."""
    named = dict.fromkeys((name, name.removeprefix("model.").removeprefix("env_vars.").removeprefix("env.")))
    docs = (("derive", "a field of the recipe"), ("env", "an environment variable of the run"))
    for (kind, doc), short in product(docs, named):
        source = origin.of_setting(b, kind, short)
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
    field = fields.field(make_plan(b.chosen, [], b.sources), name)
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
    source = origin.unruled("defaulted", because)
    head = _head(b, field.path, field.value, "a field of the recipe")
    return {**head, "origin": source, "rules": [], "alternatives": [], "advice": [], "field": entry}

"""Judge the fields that a run sets or that its own rules derive, together with those of its plan: by rules of recipes
and by Bridge's own writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from moedsl.emit import base
from moedsl.emit.fields import GATHERS
from moedsl.emit.free_fields import MUON, OLDER, UNFOLLOWED, UNPRICED, is_free
from moedsl.emit.settings import decided_fields, resets
from moedsl.facts.common import COPIED
from moedsl.facts.fields import fields, lookup, overwritten, path_of
from moedsl.facts.symbols import BUILTIN
from moedsl.lang.printer import print_expr
from moedsl.planner.model.plan import Plan
from moedsl.rules.check import overrides
from moedsl.rules.check.program import Program
from moedsl.rules.interpreter import evaluate
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import COMPUTED, UNSET, field_type, is_several, known, laws
from moedsl.rules.rule import Rule
from moedsl.rules.vectorizer import names
from moedsl.solver.problem import first_of
from moedsl.support.diagnostics import DROP, Diagnostic, Fix, Instead, error, note, warning

_DISTRIBUTED = "ddp.use_distributed_optimizer"
_KEPT = {kind: path.removesuffix("_gather") for kind, path in GATHERS.items()}
_SAME = {path: GATHERS[kind] for kind, path in _KEPT.items()}
"""Fields that Bridge keeps equal to another one, which the plan decides (bridge training/mixed_precision.py:82)."""
_WRITERS = {
    "dataset": "bridge training/config.py:304",
    "comm_overlap": "bridge training/comm_overlap.py:592",
    "mixed_precision": "bridge training/mixed_precision.py:155",
}


def judged(p: Program, plan: Plan, library: Library, layout: Mapping[str, Any]) -> Iterator[Diagnostic]:
    """Report each `set`, and each `derive` of the run, that the plan, Bridge or a rule contradicts. `layout` has the
    names of a run in this layout."""
    own = _own(p, plan, layout)
    wrong = {path: [*overrides.of_rule(path, value, rule, p)] for path, (value, rule) in own.items()}
    yield from (d for found in wrong.values() for d in found)
    right = {path: of for path, of in own.items() if not wrong[path]}
    sets = {path: value for path, (value, _) in right.items()} | dict(p.sets)
    spans = {path: rule.span for path, (_, rule) in right.items()} | dict(p.spans)
    yield from _judged(evolve(p, sets=sets, spans=spans), evolve(plan, set=sets), library, layout)


def _own(p: Program, plan: Plan, layout: Mapping[str, Any]) -> dict[str, tuple[Any, Rule]]:
    """The value of each field that a rule of the run derives in this layout, by path, with the rule."""
    first = {name: first_of(p.named("derive", name), layout) for name in plan.derived}
    rules = {path_of(name): (plan.derived[name], rule) for name, rule in first.items() if rule and not rule.is_std}
    return {path: of for path, of in rules.items() if path not in p.sets}


def _judged(p: Program, plan: Plan, library: Library, layout: Mapping[str, Any]) -> Iterator[Diagnostic]:
    leading = {n: value for n, value in p.sets.items() if n in GATHERS.values()}
    asked = evolve(plan, set=leading, derived={})
    decided = resets(p.target) | decided_fields(asked, every=True)
    decided |= {
        path: decided[_SAME[path]] for kind, path in _KEPT.items() if decided.get(f"mixed_precision.{kind}") is not None
    }
    others = [n for n, value in p.sets.items() if n in decided and decided[n] != value]
    against = [n for n in others if not is_free(n, plan)]
    yield from (_decided(p, plan, path, decided[path], asked) for path in against)
    yield from (
        _unpriced(p, path, decided[path], UNPRICED[path][1])
        for path in others
        if path in UNPRICED and path not in against
    )
    yield from _unfollowed(p, plan)
    yield from (_older(p, path, statement) for path, statement in OLDER.items() if p.sets.get(path))
    values = base.values(plan, p.model)
    rest = evolve(p, sets={path: value for path, value in p.sets.items() if path not in against})
    yield from _overwritten(rest, asked, values, decided)
    yield from _broken(rest, laws(library), _environment(plan, values, layout))


def _decided(p: Program, plan: Plan, path: str, value: Any, asked: Plan) -> Diagnostic:
    """Refuse a `set` of a field that the plan decides: the recipe would contradict its estimate.

    `asked` is the plan without the fields that the run sets.
    """
    text = f"`{path}` follows from the plan, which makes it {value}"
    owner = COPIED.get(path)
    if owner is not None and is_free(owner, plan):
        help = Instead(f"set `{owner}` instead, which Bridge writes over it", owner)
    elif path in _SAME:
        help = Instead(f"set `{_SAME[path]}` instead, which Bridge keeps equal to it", _SAME[path])
    elif path == "optimizer.optimizer" and p.sets[path] == MUON.removeprefix("dist_"):
        help = f'write `set {path} = "{MUON}"`: without the prefix each replica holds the whole optimizer state'
    else:
        help = _instead(asked, path, p.sets[path], _word(p, path))
    return error("plan.set_decided", text, p.spans[path], help=help, fixes=_drop(p, path))


def _instead(asked: Plan, path: str, value: Any, by: str) -> str:
    from moedsl.emit.deciding import instead  # only a mistake has need of it

    return instead(asked, path, value, by)


def _word(p: Program, path: str) -> str:
    """The keyword that gives a field its value."""
    return "derive" if any(r.span == p.spans[path] for r in p.of("derive")) else "set"


def _older(p: Program, path: str, statement: str) -> Diagnostic:
    """Refuse a `set` of an older switch that Megatron-Core turns into a field which the plan decides."""
    text = f"`{path}` is an older name for what the plan decides: the recipe would contradict its estimate"
    return error("plan.set_decided", text, p.spans[path], help=f"write {statement}", fixes=_drop(p, path))


def _unfollowed(p: Program, plan: Plan) -> Iterator[Diagnostic]:
    """Warn of each `set` of an undecided field that costs memory or time which the estimate does not count."""
    for path, (value, holds, why) in UNFOLLOWED.items():
        if path in p.sets and p.sets[path] != value and holds(plan):
            yield _unpriced(p, path, value, why)


def _unpriced(p: Program, path: str, value: Any, why: str) -> Diagnostic:
    """Warn of a `set` that the estimate does not follow."""
    text = f"the estimate has `{path}` at {value}: {why}"
    return warning("plan.set_unpriced", text, p.spans[path], help="measure memory and speed in a short run")


def _drop(p: Program, path: str) -> tuple[Fix, ...]:
    return (Fix(f"Drop the `{_word(p, path)}` of `{path}`", DROP, p.spans[path]),)


def _overwritten(
    p: Program, asked: Plan, values: Mapping[str, Any], decided: Mapping[str, Any]
) -> Iterator[Diagnostic]:
    """Warn of each `set` of a field whose value Bridge copies from another section.

    Overlap is copied for the distributed optimizer alone (bridge training/comm_overlap.py:651).
    """
    for path, value in p.sets.items():
        owner = overwritten(p.target).get(path)
        if owner is None or values.get(owner) == value:
            continue
        if owner.startswith("comm_overlap.") and not path.startswith("model.") and not values[_DISTRIBUTED]:
            continue
        text = f"Bridge writes `{owner}` over `{path}`: the value does not arrive"
        help: str = Instead(f"set `{owner}` instead", owner)
        if owner in decided:
            help = _instead(asked, owner, value, _word(p, path))
        cites = (_WRITERS[owner.partition(".")[0]],)
        yield warning("plan.set_overwritten", text, p.spans[path], help=help, cites=cites, fixes=_drop(p, path))


def _environment(plan: Plan, values: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """Every name that a rule of recipes may have, with its value as `lint` knows it; what is inside an object that the
    recipe does not build is unset."""
    computed = {
        "none": UNSET,
        "world": plan.gpus,
        "dataset_class": values["dataset"],
        "graphs": bool(plan.policy.cuda_graph),
    }
    env = {f"env.{name}": value for name, value in plan.env.items()}
    inside = (f.path for f in fields().values() if f.path.count(".") > 1)
    each = dict.fromkeys(inside, UNSET) | {path: known(value) for path, value in values.items()}
    lists = [path for path, value in each.items() if isinstance(value, list)]
    unknown = {path for path in lists if (f := lookup(path)) and is_several(each[path], field_type(f.type))}
    return {**layout, **computed, **env, **{path: value for path, value in each.items() if path not in unknown}}


def _broken(p: Program, rules: Sequence[Rule], env: dict[str, Any]) -> Iterator[Diagnostic]:
    """Report each rule that a `set` breaks, at the `set`; a rule that reads an unknown value is left out."""
    lets = {r.name: r for r in rules if r.kind == "let"}
    reads = {r.name: names(r.expr) for r in lets.values()}
    variables = {n for r in rules for n in names(r.expr) | names(r.when) if n.startswith("env.")}
    env = {**dict.fromkeys(variables, UNSET), **env}  # what the recipe does not set
    for rule in lets.values():
        if _is_known(names(rule.expr), env, lets):
            env[rule.name] = evaluate(rule.expr, env)
    for rule in rules:
        used = names(rule.expr) | names(rule.when)
        bears = used.union(*(reads.get(n, ()) for n in used))
        own = [path for path in p.sets if not bears.isdisjoint((path, path.rpartition(".")[0]))]
        if rule.kind != "let" and own and _is_known(used, env, lets) and not rule.holds(env):
            yield _finding(p, rule, own, {n: env[n] for n in sorted(used) if n in env and n != "none"})


def _is_known(used: frozenset[str], env: Mapping[str, Any], lets: Mapping[str, Rule]) -> bool:
    """Whether each name has a value; a name that is no variable is a word."""
    return all(n in env or not ("." in n or n in BUILTIN or n in COMPUTED or n in lets) for n in used)


def _finding(p: Program, rule: Rule, own: list[str], values: Mapping[str, Any]) -> Diagnostic:
    make = error if rule.kind == "require" else warning if rule.worth > 0 else note
    said = {n: "none" if v is UNSET else sorted(v) if isinstance(v, frozenset) else v for n, v in values.items()}
    help = f"the rule is `{print_expr(rule.expr)}`"
    spans = [p.spans[path] for path in own]
    return make(rule.id, rule.because or "", *spans, help=help, cites=rule.cites, values=said, fixes=_drop(p, own[0]))

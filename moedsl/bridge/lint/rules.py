"""Collect the rules that judge a recipe, and apply each whose values the recipe determines.

The rules are blocks `of recipe`, typed against Bridge's fields, and the laws and advice of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import frozen

from moedsl.bridge.lint import facts
from moedsl.bridge.lint.facts import Recipe
from moedsl.emit.fields import words
from moedsl.facts.symbols import NUMBER, Type
from moedsl.lang import ast
from moedsl.rules import collect as rules
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import (
    COMPUTED,
    SECTIONS,
    UNSET,
    RecipeInference,
    environment_types,
    field_types,
    is_several,
    known,
)
from moedsl.rules.rule import Rule
from moedsl.solver.laws import reads_price
from moedsl.support.diagnostics import Diagnostic, Label, error

SUBJECT = "recipe"
ELSEWHERE = ("launch", "trace")
"""Subjects that `checker/clusters/rules.py` reads."""
KINDS = ("require", "prefer", "let")


@frozen
class Book:
    """Every rule that may judge a recipe. `scope` has the type of every name that it may use."""

    of_recipe: tuple[Rule, ...]
    of_run: tuple[Rule, ...]
    """Laws and advice of runs, except those that need a price: a recipe has no estimate."""
    lets: tuple[Rule, ...]
    run_lets: tuple[Rule, ...]
    """Sort each after those that it uses."""
    scope: dict[str, Type]


def collect(library: Library) -> tuple[tuple[Rule, ...], list[Diagnostic]]:
    """Read the rules of the library's blocks `of recipe`, which `moedsl explain` shows too."""
    book, found = read_rules(library)
    return (*book.lets, *book.of_recipe), found


def read_rules(library: Library) -> tuple[Book, list[Diagnostic]]:
    """Collect every rule for recipes, with the mistakes in blocks `of recipe`."""
    runs, scope, _ = rules.of_library(library)
    scope = scope | field_types() | environment_types(runs, scope) | {n: t for n, (t, _) in COMPUTED.items()}
    found: list[Diagnostic] = []
    own = _own(library, found)
    lets = [r for r in own if r.kind == "let"]
    for rule in lets:
        scope[rule.name] = RecipeInference(scope, found).of(rule.expr) or NUMBER
    laws = tuple(r for r in own if r.kind in ("require", "prefer"))
    for rule in laws:
        _check(rule, scope, found)
    run_lets = tuple(r for r in runs if r.kind == "let")
    of_run = tuple(r for r in runs if r.kind in ("require", "prefer") and not reads_price(r, run_lets))
    return Book(laws, of_run, tuple(lets), run_lets, scope), found


def _own(library: Library, found: list[Diagnostic]) -> list[Rule]:
    """Filter the members of blocks `of recipe`; other subjects, other kinds and repeated names are errors."""
    out: dict[str, Rule] = {}
    for prefix, block in library.rules:
        if block.subject is None or block.subject.id in ELSEWHERE:
            continue
        if block.subject.id != SUBJECT:
            found.append(error("check.unknown_word:rules", block.subject.span, subject=block.subject.id))
            continue
        for member in block.members:
            _add(rules.read_rule(prefix, block, member, found), out, found)
    return list(out.values())


def _add(rule: Rule, out: dict[str, Rule], found: list[Diagnostic]) -> None:
    if rule.kind not in KINDS:
        found.append(error("check.recipe_member", rule.span, kind=rule.kind, kinds=", ".join(KINDS)))
    elif rule.id in out:
        first = Label(out[rule.id].span, "first here")
        found.append(error("check.twice:rule", rule.span, first, rule=rule.id))
    else:
        out[rule.id] = rule


def _check(rule: Rule, scope: dict[str, Type], found: list[Diagnostic]) -> None:
    inference = RecipeInference(scope, found)
    inference.condition(rule.when)
    inference.condition(rule.expr)


Environment = dict[str, Any]


@frozen
class Finding:
    """One rule that the recipe breaks (a `require`) or does not follow (a `prefer`)."""

    rule: Rule
    values: Mapping[str, Any]
    """The value of each name in the rule."""
    names: tuple[str, ...]
    """List every name that bears on it: those of the rule itself first, then those of its lets."""


@frozen
class Verdict:
    """The findings on a recipe, and how many rules could not be applied."""

    findings: tuple[Finding, ...]
    judged: tuple[str, ...]
    """Ids of the rules whose condition held."""
    unjudged: tuple[str, ...]
    """Ids of the rules that need an unknown value."""


def judge(r: Recipe, book: Book, phase: str) -> Verdict:
    """Judge every rule whose names all have a value."""
    env = environment(r, book, phase)
    lets = {let.name: let for let in (*book.run_lets, *book.lets)}
    found: list[Finding] = []
    judged: list[str] = []
    unjudged: list[str] = []
    for rule in (*book.of_recipe, *book.of_run):
        if not _is_known(rule, env, book.scope):
            unjudged.append(rule.id)
        elif rule.applies(env):
            judged.append(rule.id)
            if not rule.holds(env):
                found.append(_finding(rule, env, lets, book.scope))
    return Verdict(tuple(found), tuple(judged), tuple(unjudged))


def environment(r: Recipe, book: Book, phase: str) -> Environment:
    """Every known name with its value."""
    env: Environment = {"none": UNSET, "phase": phase, **facts.model_facts(r), **facts.hardware_facts(r)}
    env |= {"gpus": r.world} | words(r) | facts.computed(r) | _fields(r, book.scope) | _variables(r, book.scope)
    env["has_layout"] = facts.splits_evenly(r)
    for let in (*book.run_lets, *book.lets):
        if all(n in env or n not in book.scope for n in let.expr_reads):
            env[let.name] = evaluate(let.expr, env)
    return env


def _fields(r: Recipe, scope: Mapping[str, Type]) -> Environment:
    """The fields by dotted name. In a whole recipe, a missing field is unset. A list of several words is unknown."""
    dotted = (n for n in scope if n not in COMPUTED and not n.startswith("env.") and _is_field(n))
    if r.whole:
        out = {n: known(r.get(n, r.classes.get(n))) for n in dotted}
    else:
        out = {n: known(r.fields[n]) for n in dotted if n in r.fields}
    return {n: v for n, v in out.items() if not is_several(v, scope[n])}


def _is_field(name: str) -> bool:
    return "." in name or name in SECTIONS


def _variables(r: Recipe, scope: Mapping[str, Type]) -> Environment:
    """The variables that a rule may name, as `env.NAME`; text of digits is a number."""
    if not r.knows("env_vars"):
        return {}
    return {n: _number(known(r.env.get(n.removeprefix("env.")))) for n in scope if n.startswith("env.")}


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value


def _is_known(rule: Rule, env: Environment, scope: Mapping[str, Type]) -> bool:
    used = rule.reads | ({"layers"} if rule.asks_layout else frozenset())
    return all(n in env or n not in scope for n in used)


def _finding(rule: Rule, env: Environment, lets: Mapping[str, Rule], scope: Mapping[str, Type]) -> Finding:
    own = [*_in_order(rule.expr), *(_in_order(rule.when) if rule.when else ())]
    used = [n for n in dict.fromkeys(own) if n in scope]
    return Finding(rule, {n: _plain(env[n]) for n in used}, tuple(_behind(used, lets, scope)))


def _in_order(e: ast.Expr) -> Iterator[str]:
    """List the names of an expression from the right: what a rule requires follows `=>`."""
    if isinstance(e, ast.Name):
        yield from names(e)
    for part in _parts(e):
        yield from _in_order(part)
    if isinstance(e, ast.Call) and e.func.id == "has_layout":
        yield "layers"  # it asks how the layers split


def _parts(e: ast.Expr) -> tuple[ast.Expr, ...]:
    match e:
        case ast.Binary():
            return e.right, e.left
        case ast.If():
            return e.then, e.otherwise, e.test
        case _:
            return ast.operands(e)


def _behind(used: Iterable[str], lets: Mapping[str, Rule], scope: Mapping[str, Type]) -> Iterator[str]:
    """The names of an expression and of its lets, each once."""
    seen: dict[str, None] = {}
    todo = [*used]
    while todo:
        name = todo.pop(0)
        if name in seen or name not in scope:
            continue
        seen[name] = None
        if name in lets:
            todo += _in_order(lets[name].expr)
    yield from (n for n in seen if n not in lets)


def _plain(value: Any) -> Any:
    if value is UNSET:
        return "none"
    return sorted(value) if isinstance(value, frozenset) else value

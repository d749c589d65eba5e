"""Collect the rules for recipes, and apply those whose values the recipe determines.

The rules are the blocks `of recipe`, typed against Bridge's fields, and the laws and advice of runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen

from moedsl.bridge.lint import facts
from moedsl.bridge.lint.facts import Recipe
from moedsl.emit.fields import words
from moedsl.facts import releases
from moedsl.facts.fields import LATEST
from moedsl.facts.symbols import NUMBER, Type
from moedsl.lang import ast
from moedsl.rules import collect as rules
from moedsl.rules.evaluators import evaluate, names
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import (
    ARGUMENTS,
    COMPUTED,
    SECTIONS,
    UNSET,
    argument_types,
    environment_types,
    field_types,
    is_several,
    known,
)
from moedsl.rules.rule import Rule
from moedsl.rules.types import Inference
from moedsl.solver.laws import reads_price
from moedsl.support.diagnostics import Diagnostic, Label, error

SUBJECT = "recipe"
ELSEWHERE = ("launch", "trace", "release")
"""Subjects that other rooms read: rules/check/cluster_rules.py, runs/profile and bridge/upgrade.py."""
KINDS = ("require", "prefer", "let")


@frozen
class Book:
    """Every rule that may apply to a recipe. `scope` has the type of every name that rules may use."""

    of_recipe: tuple[Rule, ...]
    of_run: tuple[Rule, ...]
    """Laws and advice of runs, except those that need a price: a recipe has no estimate."""
    lets: tuple[Rule, ...]
    run_lets: tuple[Rule, ...]
    """The `let`s of runs. Each `let` follows those that it uses."""
    scope: dict[str, Type]


def collect(library: Library) -> tuple[tuple[Rule, ...], list[Diagnostic]]:
    """Read the rules of the library's blocks `of recipe`, which `moedsl explain` shows too."""
    book, found = read_rules(library)
    return (*book.lets, *book.of_recipe), found


def read_rules(library: Library) -> tuple[Book, list[Diagnostic]]:
    """Collect every rule for recipes, with the mistakes in blocks `of recipe`."""
    runs, scope, _ = rules.of_library(library)
    scope = (
        scope
        | field_types()
        | argument_types()
        | environment_types(runs, scope)
        | {n: t for n, (t, _) in COMPUTED.items()}
    )
    found: list[Diagnostic] = []
    own: dict[str, Rule] = {}
    for prefix, block in library.rules:
        if block.subject is None or block.subject.id in ELSEWHERE:
            continue
        if block.subject.id != SUBJECT:
            found.append(error("check.unknown_word:rules", block.subject.span, subject=block.subject.id))
            continue
        for member in block.members:
            rule = rules.read_rule(prefix, block, member, found)
            if rule.kind not in KINDS:
                found.append(error("check.recipe_member", rule.span, kind=rule.kind, kinds=", ".join(KINDS)))
            elif rule.id in own:
                first = Label(own[rule.id].span, "first here")
                found.append(error("check.twice:rule", rule.span, first, rule=rule.id))
            else:
                own[rule.id] = rule
    lets = tuple(r for r in own.values() if r.kind == "let")
    laws = tuple(r for r in own.values() if r.kind != "let")
    for rule in lets:
        scope[rule.name] = Inference(scope, found, of_recipe=True).of(rule.expr) or NUMBER
    for rule in laws:
        inference = Inference(scope, found, of_recipe=True)
        inference.condition(rule.when)
        inference.condition(rule.expr)
    run_lets = tuple(r for r in runs if r.kind == "let")
    of_run = tuple(r for r in runs if r.kind in ("require", "prefer") and not reads_price(r, run_lets))
    return Book(laws, of_run, lets, run_lets, scope), found


Environment = dict[str, Any]


@frozen
class Finding:
    """One rule that the recipe breaks (a `require`) or does not follow (a `prefer`)."""

    rule: Rule
    values: Mapping[str, Any]
    """The value of each name in the rule."""
    names: tuple[str, ...]
    """Every name that the rule depends on: its own names first, then those of its `let`s."""


@frozen
class Verdict:
    """The findings on a recipe, and how many rules could not be applied."""

    findings: tuple[Finding, ...]
    judged: tuple[str, ...]
    """Ids of the rules whose condition held."""
    unjudged: tuple[str, ...]
    """Ids of the rules that need an unknown value."""


def judge(r: Recipe, book: Book, phase: str) -> Verdict:
    """Apply every rule whose names all have a value."""
    env = environment(r, book, phase)
    lets = {let.name: let for let in (*book.run_lets, *book.lets)}
    found: list[Finding] = []
    judged: list[str] = []
    unjudged: list[str] = []
    for rule in (*book.of_recipe, *book.of_run):
        used = rule.reads | ({"layers"} if rule.asks_layout else frozenset())
        of_arguments = any(n.startswith(ARGUMENTS) for n in used)
        of_bridge = all(c.startswith("bridge ") for c in rule.cites)
        if (of_bridge and r.arguments) or (of_arguments and r.arguments.get("accepted", True)):
            continue
        if not all(n in env or n not in book.scope for n in used):
            unjudged.append(rule.id)
        elif rule.applies(env):
            judged.append(rule.id)
            if not rule.holds(env):
                found.append(_finding(rule, env, lets, book.scope))
    return Verdict(tuple(found), tuple(judged), tuple(unjudged))


def environment(r: Recipe, book: Book, phase: str) -> Environment:
    """Return every known name with its value."""
    scope = book.scope
    env: Environment = {
        "none": UNSET,
        "phase": phase,
        releases.BRIDGE: releases.as_number(LATEST),
        **facts.model_facts(r),
        **facts.hardware_facts(r),
    }
    env |= {"gpus": r.world} | words(r) | facts.computed(r)
    fields = [
        n for n in scope if n not in COMPUTED and not n.startswith(("env.", ARGUMENTS)) and ("." in n or n in SECTIONS)
    ]
    if r.whole:  # a missing field is unset
        values = {n: known(r.get(n, r.classes.get(n))) for n in fields}
    else:
        values = {n: known(r.fields[n]) for n in fields if n in r.fields}
    env |= {n: v for n, v in values.items() if not is_several(v, scope[n])}
    if r.knows("env_vars"):
        for name in scope:
            if name.startswith("env."):
                value = known(r.env.get(name.removeprefix("env.")))
                is_number = isinstance(value, str) and value.lstrip("-").isdigit()
                env[name] = int(value) if is_number else value
    values = {ARGUMENTS + n: known(v) for n, v in r.arguments.items()}
    env |= {n: v for n, v in values.items() if n in scope and not is_several(v, scope[n])}
    env["has_layout"] = facts.splits_evenly(r)
    for let in (*book.run_lets, *book.lets):
        if all(n in env or n not in scope for n in let.expr_reads):
            env[let.name] = evaluate(let.expr, env)
    return env


def _finding(rule: Rule, env: Environment, lets: Mapping[str, Rule], scope: Mapping[str, Type]) -> Finding:
    """Make a finding: the values of the names in the rule, and every name that it depends on except the `let`s."""
    own = [*_in_order(rule.expr), *(_in_order(rule.when) if rule.when else ())]
    used = [n for n in dict.fromkeys(own) if n in scope]
    shown = {n: "none" if env[n] is UNSET else env[n] for n in used}
    values = {n: sorted(v) if isinstance(v, frozenset) else v for n, v in shown.items()}
    seen: dict[str, None] = {}
    todo = [*used]
    while todo:
        name = todo.pop(0)
        if name not in seen and name in scope:
            seen[name] = None
            todo += _in_order(lets[name].expr) if name in lets else ()
    return Finding(rule, values, tuple(n for n in seen if n not in lets))


def _in_order(e: ast.Expr) -> Iterator[str]:
    """Yield the names in an expression from right to left, because what a rule requires follows `=>`."""
    if isinstance(e, ast.Name):
        yield from names(e)
    match e:
        case ast.Binary():
            parts: tuple[ast.Expr, ...] = (e.right, e.left)
        case ast.If():
            parts = (e.then, e.otherwise, e.test)
        case _:
            parts = ast.operands(e)
    for part in parts:
        yield from _in_order(part)
    if isinstance(e, ast.Call) and e.func.id == "has_layout":
        yield "layers"  # it asks how the layers split

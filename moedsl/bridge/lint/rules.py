"""Collect the rules that judge a recipe: blocks `of recipe`, typed against Bridge's fields, and laws and advice."""

from __future__ import annotations

from attrs import frozen

from moedsl.facts.symbols import NUMBER, Type
from moedsl.rules import collect as rules
from moedsl.rules.library import Library
from moedsl.rules.recipe_scope import COMPUTED, RecipeInference, environment_types, field_types
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
    book, found = read(library)
    return (*book.lets, *book.of_recipe), found


def read(library: Library) -> tuple[Book, list[Diagnostic]]:
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
            text = f"rules are of a run, a recipe, a launch or a trace, not of `{block.subject.id}`"
            found.append(error("check.unknown_word", text, block.subject.span, help="write `of recipe`"))
            continue
        for member in block.members:
            _add(rules.read_rule(prefix, block, member, found), out, found)
    return list(out.values())


def _add(rule: Rule, out: dict[str, Rule], found: list[Diagnostic]) -> None:
    if rule.kind not in KINDS:
        text = f"`{rule.kind}` decides something for a run, and a recipe is only judged"
        found.append(error("check.recipe_member", text, rule.span, help=f"one of {', '.join(KINDS)}"))
    elif rule.id in out:
        first = Label(out[rule.id].span, "first here")
        found.append(error("check.twice", f"`{rule.id}` is declared twice", rule.span, first))
    else:
        out[rule.id] = rule


def _check(rule: Rule, scope: dict[str, Type], found: list[Diagnostic]) -> None:
    inference = RecipeInference(scope, found)
    inference.condition(rule.when)
    inference.condition(rule.expr)

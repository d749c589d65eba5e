"""Rules blocks: each member named, its expressions typed, the block's condition joined to its own."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from moedsl import ast
from moedsl.columns import names
from moedsl.declare import cite_text
from moedsl.diagnostics import Diagnostic, Label, error
from moedsl.infer import Inference, suggest
from moedsl.ir import Rule
from moedsl.scalar import number
from moedsl.symbols import AXES, BUILTIN, FLAG, NUMBER, RUN, TEXT, Type

DEFAULT_WORTH = 0.01
"""What following an advice is worth where the rule does not say."""

Blocks = Iterable[tuple[str, ast.RulesDecl]]


def collect(blocks: Blocks) -> tuple[tuple[Rule, ...], dict[str, Type], list[Diagnostic]]:
    """Every rule, the scope that they see (builtins and lets), and what is wrong with them."""
    found: list[Diagnostic] = []
    scope = dict(BUILTIN)
    rules: list[Rule] = []
    seen: dict[str, Rule] = {}
    for prefix, block in blocks:
        rules += [_rule(prefix, block, member) for member in block.members]
    rules = _lets_first(rules, found)
    for rule in rules:
        _declare(rule, scope, seen, found)
    for rule in rules:
        _check(rule, scope, found)
    return tuple(rules), scope, found


def _lets_first(rules: list[Rule], found: list[Diagnostic]) -> list[Rule]:
    """The lets, each behind those that it uses, then everything else in its order."""
    lets = {r.name: r for r in rules if r.kind == "let"}
    graph = {n: {u for u in names(r.expr) if u in lets} for n, r in lets.items()}
    try:
        order = [*TopologicalSorter(graph).static_order()]
    except CycleError as e:
        circle: list[str] = e.args[1]
        found.append(error("check.circular", f"these lets need each other: {', '.join(circle[1:])}", lets[circle[0]].span))
        return [r for r in rules if r.kind != "let"]
    again = [r for r in rules if r.kind == "let" and lets[r.name] is not r]
    return [*(lets[n] for n in order), *again, *(r for r in rules if r.kind != "let")]


def _rule(prefix: str, block: ast.RulesDecl, m: ast.Member) -> Rule:
    name = m.name.id if m.name else "unnamed"
    when = _both(block.when, getattr(m, "when", None))
    because = m.because.value if m.because else None
    return Rule(
        f"{prefix}.{block.name.id}.{name}", type(m).__name__.lower(), name, m.expr, when, because,
        tuple(cite_text(c) for c in m.cites), m.name.span if m.name else m.span, worth(m),
    )  # fmt: skip


def worth(m: ast.Member) -> float:
    """A `prefer`'s worth as a share of the step time."""
    if not isinstance(m, ast.Prefer):
        return 0.0
    return float(number(m.worth)) if m.worth is not None else DEFAULT_WORTH


def _both(a: ast.Expr | None, b: ast.Expr | None) -> ast.Expr | None:
    if a is None or b is None:
        return a or b
    return ast.Binary("and", a, b, a.span)


def _declare(rule: Rule, scope: dict[str, Type], seen: dict[str, Rule], found: list[Diagnostic]) -> None:
    """Laws, advice and lets have a name of their own; a let's type is known before its use."""
    if rule.kind in ("require", "prefer", "let", "measured"):
        if rule.id in seen:
            found.append(error("check.twice", f"`{rule.id}` is declared twice", rule.span, Label(seen[rule.id].span, "first here")))
        seen[rule.id] = rule
    if rule.kind == "let":
        if rule.name in scope:
            found.append(error("check.twice", f"`{rule.name}` already means something else", rule.span))
        scope[rule.name] = Inference(scope).of(rule.expr) or NUMBER


def _check(rule: Rule, scope: dict[str, Type], found: list[Diagnostic]) -> None:
    inference = Inference(scope, found)
    inference.condition(rule.when)
    if rule.kind in ("require", "prefer"):
        inference.condition(rule.expr)
    elif rule.kind == "let":
        inference.of(rule.expr)
    elif rule.kind in ("default", "candidates"):
        _check_choice(rule, inference, found)
    elif rule.kind == "measured":
        inference.value(rule.expr, TEXT)
    elif rule.kind == "rank":
        _check_rank(rule, inference)


def _check_choice(rule: Rule, inference: Inference, found: list[Diagnostic]) -> None:
    want = AXES.get(rule.name) or RUN.get(rule.name)
    if want is None:
        found.append(error("check.unknown_axis", f"`{rule.name}` is not an axis", rule.span, help=suggest(rule.name, [*AXES, *RUN])))
    elif rule.kind == "default":
        inference.value(rule.expr, want)
    elif isinstance(rule.expr, ast.List):
        for item in rule.expr.items:
            inference.value(item, want)
    else:
        found.append(error("check.type", "candidates are a list", rule.expr.span, help="write `candidates vpp = [1, 2, 4]`"))


def _check_rank(rule: Rule, inference: Inference) -> None:
    keys = rule.expr.items if isinstance(rule.expr, ast.List) else (rule.expr,)
    for key in keys:
        if inference.of(key) not in (NUMBER, FLAG, None):
            inference.value(key, NUMBER)

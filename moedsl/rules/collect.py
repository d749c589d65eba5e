"""Collect the members of rules blocks: name each, type its expressions, and join the block's condition to its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from moedsl.facts import releases
from moedsl.facts.operators import FUNCTIONS
from moedsl.facts.symbols import AXES, BUILTIN, COSTS, FLAG, NUMBER, RUN, SAVES, TEXT, Type
from moedsl.lang import ast
from moedsl.rules.blocks import suggest_or_list
from moedsl.rules.declarations import cite_text
from moedsl.rules.evaluators import names, number
from moedsl.rules.library import Library
from moedsl.rules.rule import EFFECTS, Rule, is_known, known_names
from moedsl.rules.types import Inference
from moedsl.support.diagnostics import Diagnostic, Label, error, suggest
from moedsl.support.source import Span

DEFAULT_WORTH = 0.01
"""The worth of a `prefer` that states none."""

DEFAULTED = ("seq", "global_batch", "pack", "torch_version", "te_version")
"""Names other than axes for which a rule may state a default."""
UNIQUE = ("require", "prefer", "let", "measured", "symptom", "effect")
"""Kinds of rules whose names are unique; several rules of other kinds may share a name, under different conditions."""
WORDS = frozenset(w for t in BUILTIN.values() for w in t.words) | {"none"}

MAX_OPENED = 300
"""Maximum depth of an expression with its lets expanded; evaluation makes a call or two per level."""

Blocks = Iterable[tuple[str, ast.RulesDecl]]


def collect(blocks: Blocks) -> tuple[tuple[Rule, ...], dict[str, Type], list[Diagnostic]]:
    """Return every rule of a run, the scope that the rules see (builtins and lets), and the errors in them.

    Blocks `of` another subject, such as a recipe, are collected elsewhere.
    """
    return _joined((), BUILTIN, [(prefix, b, m) for prefix, b in blocks if b.subject is None for m in b.members])


def of_library(library: Library) -> tuple[tuple[Rule, ...], dict[str, Type], list[Diagnostic]]:
    """Collect all rules blocks of a library.

    The stdlib's cached rules are not checked again, unless a new `let` has a name that they use, which may change their
    meaning: then all rules are checked together.
    """
    kept, own = library.collected, [(p, b, m) for p, b in library.own_rules if b.subject is None for m in b.members]
    lets = {m.name.id for _, _, m in own if isinstance(m, ast.Let)}
    if kept is None or (lets and any(lets & names for names in (kept.scope.keys(), *(r.reads for r in kept.rules)))):
        return collect(library.rules)
    if not own:
        return kept.rules, dict(kept.scope), []
    return _joined(kept.rules, kept.scope, own)


def _joined(
    kept: tuple[Rule, ...], scope: Mapping[str, Type], own: Sequence[tuple[str, ast.RulesDecl, ast.Member]]
) -> tuple[tuple[Rule, ...], dict[str, Type], list[Diagnostic]]:
    """Join checked rules and their scope with members of blocks, and check these members.

    Names of laws, advice and lets must be unique; a let may not have the name of a fact, an axis, a word or a function.
    """
    diagnostics, scope = list[Diagnostic](), dict(scope)
    read = [read_rule(prefix, block, m, diagnostics) for prefix, block, m in own]
    rules = _lets_first([*kept, *read], scope, diagnostics)
    known, seen = {*map(id, kept)}, {_key(r): r for r in kept if r.kind in UNIQUE}
    new = [r for r in rules if id(r) not in known]
    for rule in new:
        first = seen.setdefault(_key(rule), rule) if rule.kind in UNIQUE else rule
        if first is not rule:
            name = rule.name if rule.kind == "effect" else rule.id
            diagnostics.append(error("check.twice:rule", rule.span, Label(first.span, "first here"), rule=name))
        elif rule.kind == "let" and (rule.name in scope or rule.name in FUNCTIONS or rule.name in WORDS):
            same = (r for r in seen.values() if r.kind == "let" and r.name == rule.name and r is not rule)
            labels = [Label(r.span, "first here") for r in same]
            diagnostics.append(error("check.twice:meaning", rule.span, *labels, rule=rule.name))
        elif rule.kind == "let":  # set its type before its use
            scope[rule.name] = Inference(scope).of(rule.expr) or NUMBER
    for rule in new:
        _check(rule, scope, diagnostics)
    return tuple(rules), scope, diagnostics


def _lets_first(rules: list[Rule], scope: dict[str, Type], diagnostics: list[Diagnostic]) -> list[Rule]:
    """Return the lets, each after the lets that it uses, then all other rules in their order.

    Report a let if its expression, with the lets that it uses expanded, is more than MAX_OPENED levels deep, because
    evaluation recurses through them.
    """
    lets: dict[str, Rule] = {}
    for r in rules:
        if r.kind == "let":
            lets.setdefault(r.name, r)
    graph = {n: {u for u in names(r.expr) if u in lets} for n, r in lets.items()}
    order: list[str] | None = None
    while order is None:
        try:
            order = [*TopologicalSorter(graph).static_order()]
        except CycleError as e:  # type the lets of a cycle as numbers, and sort the others without them
            circle: list[str] = e.args[1]
            labels = [Label(lets[n].span, "part of the cycle") for n in dict.fromkeys(circle[1:-1])]
            named = ", ".join(circle[1:])
            diagnostics.append(error("check.circular:lets", lets[circle[0]].span, *labels, circle=named))
            scope |= dict.fromkeys(circle, NUMBER)
            graph = {n: needs - {*circle} for n, needs in graph.items() if n not in circle}
    opened: dict[str, int] = {}
    for n in order:
        opened[n] = ast.height(lets[n].expr) + max((opened[u] for u in graph[n] if u in opened), default=0)
        if opened[n] > MAX_OPENED:
            diagnostics.append(error("check.deep_let", lets[n].span, name=n, most=MAX_OPENED))
            break
    again = [r for r in rules if r.kind == "let" and lets[r.name] is not r and r.name in order]
    return [*(lets[n] for n in order), *again, *(r for r in rules if r.kind != "let")]


def read_rule(prefix: str, block: ast.RulesDecl, m: ast.Member, diagnostics: list[Diagnostic]) -> Rule:
    """Read a member of a block, and join the block's condition to its own; report a missing reason or source."""
    name, span = (m.name.id, m.name.span) if m.name else ("unnamed", m.span)
    # Report a rule without a reason or a source; a `let` needs none
    clauses = {"because": m.because, "cite": m.cites}
    missing = [word for word, said in clauses.items() if not said]
    if missing and not isinstance(m, ast.Let):
        words = " and no ".join(f"`{w}`" for w in missing)
        diagnostics.append(error("check.no_reason", span, name=name, missing=words))
    held = {"since": _release("since", block, m, diagnostics), "until": _release("until", block, m, diagnostics)}
    conditions = [block.when, getattr(m, "when", None), *map(_compared, ("since", "until"), held.values())]
    when: ast.Expr | None = None
    for condition in conditions:
        if condition is not None:
            when = condition if when is None else ast.Binary("and", when, condition, when.span)
    because = m.because.value if m.because else None
    return Rule(
        f"{prefix}.{block.name.id}.{name}", type(m).__name__.lower(), name, m.expr, when, because,
        tuple(cite_text(c) for c in m.cites), span, worth(m, diagnostics),
        **{word: version.value for word, version in held.items() if version is not None},
        **{clause: text.value for clause in ("confirm", "fix") if (text := getattr(m, clause, None))},
    )  # fmt: skip


def _release(word: str, block: ast.RulesDecl, m: ast.Member, diagnostics: list[Diagnostic]) -> ast.String | None:
    """Return the version after `since` or `until` of a member, else of its block; report one that is no version."""
    found: ast.String | None = getattr(m, word, None) or getattr(block, word)
    if found is not None and not releases.is_version(found.value):
        diagnostics.append(error("check.target:version", found.span, version=found.value))
    return found


def _compared(word: str, version: ast.String | None) -> ast.Expr | None:
    """Return ``bridge_version >= version("0.5")`` for `since`, ``<`` for `until`."""
    if version is None or not releases.is_version(version.value):
        return None
    at = version.span
    number = ast.Call(ast.Name("version", at), (version,), at)
    return ast.Binary(">=" if word == "since" else "<", ast.Name(releases.BRIDGE, at), number, at)


def worth(m: ast.Member, diagnostics: list[Diagnostic]) -> float:
    """Return the worth of a `prefer` as a share of the step time, at most 1."""
    if not isinstance(m, ast.Prefer):
        return 0.0
    if m.worth is None:
        return DEFAULT_WORTH
    if m.worth.unit not in (None, "%") or number(m.worth) > 1:
        diagnostics.append(error("check.unit:worth", m.worth.span, worth=m.worth.text))
    return float(number(m.worth))


def _key(rule: Rule) -> str:
    """Return the key that must be unique: an effect's name, whatever its block, else the rule's id."""
    return f"effect {rule.name}" if rule.kind == "effect" else rule.id


def _check(rule: Rule, scope: dict[str, Type], diagnostics: list[Diagnostic]) -> None:
    """Type the expressions of a rule, and check what its kind requires; the stdlib's tests cover part of this."""
    inference, expr = Inference(scope, diagnostics), rule.expr
    if rule.kind not in ("derive", "env"):
        read_too_early(rule, diagnostics)
    inference.condition(rule.when)
    if rule.kind in ("require", "prefer"):
        inference.condition(expr)
    elif rule.kind in ("let", "derive", "env"):
        inference.of(expr)
        if rule.kind == "env" and not rule.is_std:
            from moedsl.rules import launch_variables

            diagnostics += filter(None, [launch_variables.refused(rule)])
    elif rule.kind in ("default", "candidates"):
        _check_choice(rule, inference, diagnostics)
    elif rule.kind == "measured":
        inference.value(expr, TEXT)
    elif rule.kind == "rank":
        for key in expr.items if isinstance(expr, ast.List) else (expr,):
            if inference.of(key) not in (NUMBER, FLAG, None):
                inference.value(key, NUMBER)
    elif rule.kind == "symptom" and isinstance(expr, ast.String) and not rule.is_std:
        from moedsl.rules import patterns

        try:
            patterns.compiled(expr.value)
        except patterns.UnusablePattern as e:
            diagnostics.append(error("check.pattern", str(e), expr.span, help=e.help))
    elif rule.kind == "effect" and isinstance(expr, ast.Name):
        if expr.id not in EFFECTS:
            words, help = ", ".join(EFFECTS), suggest(expr.id, [*EFFECTS])
            diagnostics.append(error("check.unknown_word:effect", expr.span, effects=words, word=expr.id, help=help))
        if not rule.is_std and not is_known(rule.name):
            near = suggest(rule.name, sorted(known_names())) or None
            diagnostics.append(error("check.unknown_field:word", rule.span, name=rule.name, help=near))


def _check_choice(rule: Rule, inference: Inference, diagnostics: list[Diagnostic]) -> None:
    """Check a default or candidates: the name is an axis (or another name with a default), and the values are known
    before the search."""
    known = AXES if rule.kind == "candidates" else AXES | {n: RUN[n] for n in DEFAULTED}
    want = known.get(rule.name)
    if want is None:
        help = suggest_or_list(rule.name, known)
        diagnostics.append(error("check.unknown_axis:axis", rule.span, name=rule.name, help=help))
        return
    items: tuple[ast.Expr, ...] = (rule.expr,)
    if rule.kind == "candidates":
        items = rule.expr.items if isinstance(rule.expr, ast.List) else ()
        diagnostics.extend(() if items else [error("check.type:candidates", rule.expr.span)])
    for item in items:
        inference.value(item, want)
        help = "use facts of the model, the hardware and the run, or a `require`"
        _too_late(names(item) & (AXES.keys() | COSTS.keys()), item.span, "the search", help, diagnostics)
        n = number(item) if isinstance(item, ast.Number) else 1
        if want == NUMBER and not (isinstance(n, int) and n >= 1):
            diagnostics.append(error("check.size:size", item.span))


def read_too_early(rule: Rule, diagnostics: list[Diagnostic]) -> None:
    """Report a rule that decides the layout but reads names that follow from the chosen layout."""
    _too_late(rule.reads & SAVES.keys(), rule.span, "the layout is chosen", "use it in a `derive`", diagnostics)


def _too_late(late: Iterable[str], span: Span, before: str, help: str, diagnostics: list[Diagnostic]) -> None:
    if late:
        diagnostics.append(error("check.too_late:name", span, name=min(late), before=before, help=help))

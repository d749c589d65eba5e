"""Define a rule, and look up the rules of a run."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from attrs import field, frozen

from moedsl.facts.symbols import AXES, BUILTIN, COSTS, NUMBER, Type
from moedsl.lang import ast
from moedsl.rules.interpreter import holds
from moedsl.rules.types import Inference
from moedsl.rules.vectorizer import Compiler, calls, names
from moedsl.support.source import Span

Key = TypeVar("Key", bound=Hashable)
_VARY = AXES.keys() | COSTS.keys()
"""The names with another value in each layout."""
EFFECTS = ("experiment", "execution", "benchmark")
"""The effects of a change: on what is learned, only on how it runs, or a run that trains nothing useful."""
GRAVE = 0.3
"""The least worth of advice that is about more than speed."""


@frozen(slots=False)
class Rule:
    """One named statement of a rules block or of a run. `when` includes the block's condition."""

    id: str
    kind: str
    """require, prefer, let, default, candidates, derive, env, rank, measured, symptom or effect."""
    name: str
    expr: ast.Expr
    when: ast.Expr | None
    because: str | None
    cites: tuple[str, ...]
    span: Span
    worth: float = 0.0
    """For a `prefer`: the share of the step time that following it is worth."""
    wish: bool = False
    """Whether the run file itself states it."""
    confirm: str | None = None
    """For a `symptom`: how to confirm the cause."""
    fix: str | None = None
    """For a `symptom`: the fix."""

    def applies(self, env: Mapping[str, Any]) -> bool:
        """Whether its condition holds for one row of plain values."""
        return holds(self.when, env)

    def holds(self, env: Mapping[str, Any]) -> bool:
        """Whether a row obeys it: it does not apply there, or its expression holds."""
        return not self.applies(env) or holds(self.expr, env)

    @cached_property
    def when_reads(self) -> frozenset[str]:
        """Every name in its condition."""
        return names(self.when)

    @cached_property
    def expr_reads(self) -> frozenset[str]:
        """Every name in its expression."""
        return names(self.expr)

    @cached_property
    def reads(self) -> frozenset[str]:
        """Every name in its expression and its condition."""
        return self.expr_reads | self.when_reads

    @cached_property
    def asks_layout(self) -> bool:
        """Whether it calls `has_layout`, which asks how the layers split."""
        return calls(self.guarded, "has_layout")

    @cached_property
    def guarded(self) -> ast.Expr:
        """Its expression under its condition."""
        return self.expr if self.when is None else ast.Binary("=>", self.when, self.expr, self.span)

    @cached_property
    def is_std(self) -> bool:
        return self.id.startswith("std.")

    @property
    def is_grave(self) -> bool:
        """Whether the advice is worth more than any difference in speed would be."""
        return self.worth >= GRAVE


@frozen
class Let:
    """A `let` of a run, the variables that it reads, and whether it calls `has_layout`."""

    rule: Rule
    needs: frozenset[str]
    has_layout: bool


class Rules(tuple[Rule, ...]):
    """The rules of a run, by kind and by name. Programs that differ in other things share one, with its lookups."""

    @cached_property
    def by_kind(self) -> dict[str, tuple[Rule, ...]]:
        return _grouped((r.kind, r) for r in self)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], tuple[Rule, ...]]:
        return _grouped(((r.kind, r.name), r) for own in (True, False) for r in self if own != r.is_std)

    @cached_property
    def lets(self) -> tuple[Let, ...]:
        lets = {r.name: r for r in self.by_kind.get("let", ())}
        return tuple(Let(r, _variables(r, lets), r.asks_layout) for r in lets.values())

    @cached_property
    def compiler(self) -> Compiler:
        """The compiler of their expressions, with the type of every name; only the scalar evaluator reads a let that
        stands for a word."""
        types = dict(BUILTIN)
        for r in self.by_kind.get("let", ()):
            types[r.name] = Inference(types).of(r.expr) or NUMBER
        return Compiler(types)

    @cached_property
    def let_needs(self) -> dict[str, frozenset[str]]:
        """The axes and prices that each let reads, in order of declaration."""
        out: dict[str, frozenset[str]] = {}
        for r in self.by_kind.get("let", ()):
            out[r.name] = _needed(r.expr_reads, out)
        return out

    def needs(self, used: frozenset[str]) -> frozenset[str]:
        """The axes and prices that some names read, directly or through lets."""
        if used not in self._needs:
            self._needs[used] = _needed(used, self.let_needs)
        return self._needs[used]

    def needs_of(self, e: ast.Expr) -> frozenset[str]:
        """The axes and prices that an expression reads, directly or through lets."""
        if id(e) not in self._needs_of:
            self._needs_of[id(e)] = e, self.needs(names(e))
        return self._needs_of[id(e)][1]

    @cached_property
    def kept(self) -> dict[tuple[int, int], Any]:
        """What the solver makes of a rule, by the identities of the rule and of an expression of it."""
        return {}

    @cached_property
    def compiled(self) -> list[tuple[Any, Any]]:
        """What the solver makes of them for some facts, newest first."""
        return []

    @cached_property
    def _needs(self) -> dict[frozenset[str], frozenset[str]]:
        return {}

    @cached_property
    def _needs_of(self) -> dict[int, tuple[ast.Expr, frozenset[str]]]:
        """By the identity of the expression, which is kept so that no other takes its place."""
        return {}

    def with_same_lets(self, rules: Iterable[Rule]) -> Rules:
        """Other rules with the same lets, which share what is known of these lets and of each rule alone."""
        others = Rules(rules)
        shared = ("lets", "compiler", "let_needs", "kept", "_needs", "_needs_of")
        vars(others).update({name: getattr(self, name) for name in shared})
        return others

    def __reduce__(self) -> tuple[type[Rules], tuple[tuple[Rule, ...]]]:
        """Pickle the rules without their lookups."""
        return Rules, (tuple(self),)

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Rules:
        return rules if isinstance(rules, Rules) else cls(rules)


@frozen
class Collected:
    """Rules that are read, sorted and checked without an error, with the scope that they see."""

    rules: Rules = field(converter=Rules.of)
    scope: dict[str, Type]
    used: frozenset[str] = frozenset()
    """Every name and word in their expressions, and in the scope."""


def _needed(used: frozenset[str], lets: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return (used & _VARY).union(*(lets[n] for n in used & lets.keys()))


def _variables(r: Rule, lets: Mapping[str, Rule]) -> frozenset[str]:
    return frozenset(n for n in r.expr_reads if n in BUILTIN or n in lets)


def _grouped(pairs: Iterable[tuple[Key, Rule]]) -> dict[Key, tuple[Rule, ...]]:
    out: dict[Key, list[Rule]] = {}
    for key, rule in pairs:
        out.setdefault(key, []).append(rule)
    return {key: tuple(rules) for key, rules in out.items()}

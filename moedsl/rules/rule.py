"""Define a rule, look up the rules of a run, and find the effect of a change.

A change affects the experiment, or only how it is executed (up to rounding), or whether the run is a benchmark.
Keywords and the fields of Bridge's ConfigContainer have effects; `effect` rules state them (stdlib/rules/effects*.moe),
and a user's own rules may add fields.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any, TypeVar

from attrs import field, frozen

from moedsl.facts import axes, fields
from moedsl.facts.symbols import AXES, BUILTIN, COSTS, NUMBER, RUN, VLM_WORDS, Type
from moedsl.lang import ast
from moedsl.rules.evaluators import Compiler, holds, names
from moedsl.rules.types import Inference
from moedsl.support.source import Span

Key = TypeVar("Key", bound=Hashable)
_VARY = AXES.keys() | COSTS.keys()
"""The names whose values differ between layouts."""
EFFECTS = ("experiment", "execution", "benchmark")
"""The effects of a change: what is learned changes, only the execution changes, or the run trains nothing useful."""
GRAVE = 0.3
"""Minimum worth of advice that is about more than speed."""


@frozen(slots=False)
class Rule:
    """One named statement in a rules block or in a run. `when` includes the block's condition."""

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
    """For a `prefer`: the share of the step time that following it saves."""
    wish: bool = False
    """Whether the run file itself states the rule."""
    confirm: str | None = None
    """For a `symptom`: how to confirm the cause."""
    fix: str | None = None
    """For a `symptom`: the fix."""
    since: str | None = None
    """The release of Bridge from which on it holds, as written; `when` includes it."""
    until: str | None = None
    """The first release of Bridge in which it no longer holds; `when` includes it."""

    def applies(self, env: Mapping[str, Any]) -> bool:
        """Whether the rule's condition holds for one row of plain values."""
        return holds(self.when, env)

    def holds(self, env: Mapping[str, Any]) -> bool:
        """Whether a row obeys the rule: either the rule does not apply to it, or its expression holds."""
        return not self.applies(env) or holds(self.expr, env)

    @cached_property
    def when_reads(self) -> frozenset[str]:
        """Return every name in the condition."""
        return names(self.when)

    @cached_property
    def expr_reads(self) -> frozenset[str]:
        """Return every name in the expression."""
        return names(self.expr)

    @cached_property
    def reads(self) -> frozenset[str]:
        """Return every name in the expression and the condition."""
        return self.expr_reads | self.when_reads

    @cached_property
    def asks_layout(self) -> bool:
        """Whether the rule calls `has_layout`, which asks how the layers split."""
        return any(isinstance(e, ast.Call) and e.func.id == "has_layout" for e in ast.walk(self.guarded))

    @cached_property
    def guarded(self) -> ast.Expr:
        """Return the expression as implied by the condition."""
        return self.expr if self.when is None else ast.Binary("=>", self.when, self.expr, self.span)

    @cached_property
    def is_std(self) -> bool:
        return self.id.startswith("std.")

    @property
    def is_grave(self) -> bool:
        """Whether the advice is worth more than any possible difference in speed."""
        return self.worth >= GRAVE


@frozen
class Let:
    """A `let` of a run, the variables that it reads, and whether it calls `has_layout`."""

    rule: Rule
    needs: frozenset[str]
    has_layout: bool


class Rules(tuple[Rule, ...]):
    """The rules of a run, by kind and by name. Programs with the same rules share one instance and its lookups."""

    @cached_property
    def by_kind(self) -> dict[str, tuple[Rule, ...]]:
        return _grouped((r.kind, r) for r in self)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], tuple[Rule, ...]]:
        return _grouped(((r.kind, r.name), r) for own in (True, False) for r in self if own != r.is_std)

    @cached_property
    def lets(self) -> tuple[Let, ...]:
        lets = {r.name: r for r in self.by_kind.get("let", ())}
        variables = (frozenset(n for n in r.expr_reads if n in BUILTIN or n in lets) for r in lets.values())
        return tuple(Let(r, v, r.asks_layout) for r, v in zip(lets.values(), variables, strict=True))

    @cached_property
    def compiler(self) -> Compiler:
        """Return the compiler of the rules' expressions, with the type of every name. Lets that stand for a word are
        only for the row evaluator."""
        types = dict(BUILTIN)
        for r in self.by_kind.get("let", ()):
            types[r.name] = Inference(types).of(r.expr) or NUMBER
        return Compiler(types)

    @cached_property
    def let_needs(self) -> dict[str, frozenset[str]]:
        """Return the axes and prices that each let reads, in order of declaration."""
        out: dict[str, frozenset[str]] = {}
        for r in self.by_kind.get("let", ()):
            out[r.name] = _needed(r.expr_reads, out)
        return out

    def needs(self, used: frozenset[str]) -> frozenset[str]:
        """Return the axes and prices that the names `used` read, directly or through lets."""
        if used not in self._needs:
            self._needs[used] = _needed(used, self.let_needs)
        return self._needs[used]

    def needs_of(self, e: ast.Expr) -> frozenset[str]:
        """Return the axes and prices that an expression reads, directly or through lets."""
        if id(e) not in self._needs_of:
            self._needs_of[id(e)] = e, self.needs(names(e))
        return self._needs_of[id(e)][1]

    @cached_property
    def kept(self) -> dict[tuple[int, int], Any]:
        """Return the solver's cache per rule, by the ids of the rule and of one of its expressions."""
        return {}

    @cached_property
    def compiled(self) -> list[tuple[Any, Any]]:
        """Return the solver's cache of these rules compiled for some facts, newest first."""
        return []

    @cached_property
    def _needs(self) -> dict[frozenset[str], frozenset[str]]:
        return {}

    @cached_property
    def _needs_of(self) -> dict[int, tuple[ast.Expr, frozenset[str]]]:
        """By `id` of the expression, which is kept so that its id stays unique."""
        return {}

    def with_same_lets(self, rules: Iterable[Rule]) -> Rules:
        """Return other rules with the same lets, which share the caches of these lets and of single rules."""
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


def _needed(used: frozenset[str], lets: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return (used & _VARY).union(*(lets[n] for n in used & lets.keys()))


def _grouped(pairs: Iterable[tuple[Key, Rule]]) -> dict[Key, tuple[Rule, ...]]:
    out: dict[Key, list[Rule]] = {}
    for key, rule in pairs:
        out.setdefault(key, []).append(rule)
    return {key: tuple(rules) for key, rules in out.items()}


EXPERIMENT, EXECUTION, BENCHMARK = EFFECTS
UNKNOWN = "unknown"
GROUPS = (*EFFECTS, UNKNOWN)
"""Every effect, and `unknown` for what no rule names."""
WORDS = (*axes.PINNED, *RUN, *VLM_WORDS, "model", "hardware", "target")
"""The keywords to which a plan assigns a value."""
ENVIRONMENT = "env_vars"
"""The section of Bridge in which any variable is a field."""
OFF = (None, False, 0, 0.0, "", "none", "off")
"""Values with which a benchmark-only field is inactive."""


CAPACITY = "moe_expert_capacity_factor"
DROPPING = "dropped_tokens."
"""The beginning of an effect's name that holds where experts have a capacity (core transformer/moe/router.py:789)."""


@frozen
class Effects:
    """The declared effects, by name."""

    rules: Mapping[str, Rule]

    def of_run(self, fields: Mapping[str, Any]) -> Effects:
        """Return the effects in a run with these fields: where experts drop tokens, what follows `DROPPING` counts."""
        if not any(n.endswith(CAPACITY) and v is not None for n, v in fields.items()):
            return self
        dropping = {n.removeprefix(DROPPING): r for n, r in self.rules.items() if n.startswith(DROPPING)}
        return Effects({**self.rules, **dropping})

    def word(self, name: str, value: Any = None) -> str:
        """Return the effect of a keyword; a value may have its own effect (`routing.balanced`)."""
        return _effect(self._of_value(name, value) or self.rules.get(name))

    def _of_value(self, name: str, value: Any) -> Rule | None:
        """Return the rule for a keyword's value, or for the first member of a set that has a rule; None if there is
        none."""
        members = value if isinstance(value, list | tuple | set | frozenset) else [value]
        return next((self.rules[f"{name}.{m}"] for m in members if f"{name}.{m}" in self.rules), None)

    def field(self, path: str) -> str:
        """Return the effect of a Bridge field, from its own name or its longest prefix with a rule."""
        return _effect(self.rule_of_field(path))

    def rule_of_field(self, path: str) -> Rule | None:
        """Return the rule that decides a field's effect; None if there is none."""
        return next((self.rules[p] for p in prefixes(path) if p in self.rules), None)

    def reason(self, name: str, value: Any = None) -> str | None:
        """Return the reason for the effect of a keyword, its value, or a field; None if it has none."""
        rule = self._of_value(name, value) or self.rules.get(name) or self.rule_of_field(name)
        return rule.because if rule else None

    def name(self, name: str, value: Any = None) -> str:
        """Return the effect of a keyword, or of a field if no keyword has that name."""
        return self.word(name, value) if name in WORDS else self.field(name)

    def pair(self, name: str, a: Any, b: Any) -> str:
        """Return the effect of a change between two values: the stronger of the values' effects, with benchmark the
        strongest."""
        found = {self.name(name, a), self.name(name, b)}
        return next((e for e in (BENCHMARK, EXPERIMENT, UNKNOWN) if e in found), EXECUTION)

    def is_benchmark(self, name: str, value: Any) -> bool:
        """Whether a value makes the run a benchmark: a keyword's value with that effect, or an active benchmark-only
        field."""
        return self.name(name, value) == BENCHMARK and value not in OFF


def _effect(rule: Rule | None) -> str:
    return str(getattr(rule.expr, "id", UNKNOWN)) if rule else UNKNOWN


def prefixes(path: str) -> Iterator[str]:
    """Yield the path and its prefixes that end before a `.` or `_`, longest first."""
    yield path
    for i in range(len(path) - 1, 0, -1):
        if path[i] in "._":
            yield path[:i]


def of_rules(rules: Iterable[Rule]) -> Effects:
    """Return the effects among a run's rules; if a name has two, which `check` refuses, the first."""
    table: dict[str, Rule] = {}
    for r in rules:
        if r.kind == "effect":
            table.setdefault(r.name, r)
    return Effects(table)


@cache
def known_names() -> frozenset[str]:
    """Return all names that an `effect` may have: keywords, their values, Bridge's fields and their prefixes."""
    values = {a.name: a.words for a in axes.AXES} | {n: t.words for n, t in RUN.items() if t.words}
    words = {f"{n}.{v}" for n, of in values.items() for v in of}
    paths = {
        p for version in (fields.LATEST, fields.versions()[-1]) for f in fields.fields(version) for p in prefixes(f)
    }
    every = frozenset({*WORDS, *words, *paths, ENVIRONMENT, *sections()})
    return every | {f"{DROPPING}{n}" for n in every}


def sections() -> frozenset[str]:
    """Return the sections of Bridge's ConfigContainer, including those without fields."""
    return frozenset({*(s for s in fields.sections() if "." not in s), ENVIRONMENT})


def is_known(name: str) -> bool:
    """Whether an `effect` may have this name; any name below `env_vars` is known."""
    return name in known_names() or name.startswith(f"{ENVIRONMENT}.")

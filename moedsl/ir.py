"""What the later stages share: a checked run (Program), its laws (Rule), and the space to search (Problem)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from moedsl import ast
from moedsl.columns import calls, names
from moedsl.facts import Hardware, Model
from moedsl.source import Span
from moedsl.symbols import BUILTIN, Type

Key = TypeVar("Key", bound=Hashable)
GRAVE = 0.3
"""The worth from which advice is about more than speed."""


@frozen
class Rule:
    """One named statement of a rules block or of a run. `when` has the block's condition in it."""

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
    """For a `prefer`: the share of step time that following it is held to be worth."""
    wish: bool = False
    """Stated by the run file itself."""
    confirm: str | None = None
    """For a `symptom`: how to make sure of the cause."""
    fix: str | None = None
    """For a `symptom`: the way out."""

    @property
    def is_std(self) -> bool:
        return self.id.startswith("std.")

    @property
    def is_grave(self) -> bool:
        """Advice that is worth more than any difference in speed would be."""
        return self.worth >= GRAVE


@frozen
class Let:
    """A `let` of a run, the variables that it reads, and whether it asks for a pipeline layout."""

    rule: Rule
    needs: frozenset[str]
    has_layout: bool


@frozen
class Pin:
    """A value that the user fixed: encoded as in a column, and where."""

    axis: str
    code: int
    span: Span


@frozen
class Allow:
    rule: str
    because: str | None
    span: Span


@frozen
class Variant:
    """One value of what is isolated: its label, and the code of each axis (or of seq, batch or gpus) that it fixes."""

    label: str
    codes: Mapping[str, int]


@frozen
class Isolation:
    """What a run varies while everything else stays as it is. A program of one variant has that one alone."""

    axis: str
    variants: tuple[Variant, ...]
    span: Span


class Rules(tuple[Rule, ...]):
    """The rules of a run, found by kind and by name. Programs that differ in other things share one, and what it has
    found."""

    @cached_property
    def by_kind(self) -> dict[str, tuple[Rule, ...]]:
        return _grouped((r.kind, r) for r in self)

    @cached_property
    def by_name(self) -> dict[tuple[str, str], tuple[Rule, ...]]:
        return _grouped(((r.kind, r.name), r) for own in (True, False) for r in self if own != r.is_std)

    @cached_property
    def lets(self) -> tuple[Let, ...]:
        lets = {r.name: r for r in self.by_kind.get("let", ())}
        return tuple(Let(r, _variables(r, lets), calls(r.expr, "has_layout")) for r in lets.values())

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Rules:
        return rules if isinstance(rules, Rules) else cls(rules)


@frozen
class Collected:
    """Rules that were read, put in order and checked without an error, and the scope that they see."""

    rules: Rules = field(converter=Rules.of)
    scope: dict[str, Type]
    used: frozenset[str] = frozenset()
    """Every name and word in their expressions, and in the scope."""


@frozen
class Program:
    """One run, every name resolved and every value typed."""

    name: str
    model: Model
    hardware: Hardware
    gpus: int | None
    seq: int
    batch: int | None
    phase: str
    task: str
    routing: str
    data: str
    """mock, or the path of real data."""
    vlm: frozenset[str]
    precision: str
    """A word of the precision axis, fp8, or auto."""
    pins: Mapping[str, Pin]
    pipeline_layout: str | None
    rules: Rules = field(converter=Rules.of)
    allows: Mapping[str, Allow]
    sweep: tuple[str, tuple[int, ...]] | None
    sets: Mapping[str, Any]
    target: str
    spans: Mapping[str, Span] = field(factory=dict)
    """Where each statement stands, by the name of what it fixes."""
    isolate: Isolation | None = None
    versions: Mapping[str, int] = field(factory=dict)
    """What the run says it stands on, by the name in an expression: torch_version, te_version."""
    batch_gpus: int | None = None
    """The GPUs that a default batch is for, where several numbers are compared: the experiment stays the same."""
    workflow: str | None = None
    """The run that this is a phase of."""

    def of(self, kind: str) -> tuple[Rule, ...]:
        return self.rules.by_kind.get(kind, ())

    def named(self, kind: str, name: str) -> tuple[Rule, ...]:
        """The rules of a kind for one name, the user's own before the stdlib's."""
        return self.rules.by_name.get((kind, name), ())

    @property
    def lets(self) -> tuple[Let, ...]:
        """The last `let` of each name, in the order of the names."""
        return self.rules.lets


def _variables(r: Rule, lets: Mapping[str, Rule]) -> frozenset[str]:
    return frozenset(n for n in names(r.expr) if n in BUILTIN or n in lets)


def _grouped(pairs: Iterable[tuple[Key, Rule]]) -> dict[Key, tuple[Rule, ...]]:
    out: dict[Key, list[Rule]] = {}
    for key, rule in pairs:
        out.setdefault(key, []).append(rule)
    return {key: tuple(rules) for key, rules in out.items()}


@frozen
class Problem:
    """A program on a number of GPUs: facts as scalars, and a domain for each axis."""

    program: Program
    gpus: int
    global_batch: int
    values: Mapping[str, Any]
    """Everything that is the same in every row, as plain values."""
    codes: Mapping[str, Any]
    """The same, encoded for columns."""
    domains: Mapping[str, NDArray[np.int64]]
    origins: Mapping[str, Rule | Pin | None]
    """What gave each axis its domain."""
    defaults: Mapping[str, Rule | None]
    """What gave each defaulted value that is not an axis."""

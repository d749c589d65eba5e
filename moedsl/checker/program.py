"""A checked run, with every name resolved and every value typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from moedsl.diagnostics.source import Span
from moedsl.rules.rule import Let, Rule, Rules
from moedsl.schema.facts import Hardware, Model


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

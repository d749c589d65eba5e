"""What the later stages share: a checked run (Program), its laws (Rule), and the space to search (Problem)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from moedsl import ast
from moedsl.facts import Hardware, Model
from moedsl.source import Span


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
    rules: tuple[Rule, ...]
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
        return tuple(r for r in self.rules if r.kind == kind)


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

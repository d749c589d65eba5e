"""What the parser returns: frozen classes, one for each grammar rule, each with the span that it came from.

Nothing here knows what a name means; that is `check.py`.
"""

from __future__ import annotations

from typing import Union

from attrs import field, frozen

from moedsl.source import Span

# ---------------------------------------------------------------- expressions


@frozen
class Number:
    """`text` is as written (``128k``); `value` has the multiplier applied; `unit` is GB, GiB, GB/s, TFLOPS, % or None.

    `k`, `M` and `G` directly behind the digits are binary multipliers (1024, 1024**2, 1024**3) and not units.
    """

    value: int | float
    unit: str | None
    text: str = field(eq=False)
    span: Span = field(eq=False, repr=False)


@frozen
class String:
    value: str
    span: Span = field(eq=False, repr=False)


@frozen
class Bool:
    """``true`` or ``false``."""

    value: bool
    span: Span = field(eq=False, repr=False)


@frozen
class Name:
    """A name; dotted names keep their dots (``overlap.ep``)."""

    id: str
    span: Span = field(eq=False, repr=False)


@frozen
class List:
    items: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Call:
    func: Name
    args: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Unary:
    """`op` is ``not`` or ``-``."""

    op: str
    value: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class Binary:
    """`op` is one of ``=> or and == != < <= > >= in not in + - * / // %``."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class If:
    """``if TEST then THEN else OTHERWISE``."""

    test: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(eq=False, repr=False)


Expr = Union[Number, String, Bool, Name, List, Call, Unary, Binary, If]

# ---------------------------------------------------------------- run statements


@frozen
class BareStmt:
    """A name alone, or ``NAME x N``: a model, a hardware or a profile, looked up in that order."""

    name: Name
    count: Number | None
    span: Span = field(eq=False, repr=False)


@frozen
class ModelStmt:
    name: Name
    span: Span = field(eq=False, repr=False)


@frozen
class HardwareStmt:
    name: Name
    count: Number | None
    span: Span = field(eq=False, repr=False)


@frozen
class SeqStmt:
    value: Number
    span: Span = field(eq=False, repr=False)


@frozen
class BatchStmt:
    value: Number
    span: Span = field(eq=False, repr=False)


@frozen
class MicroBatchStmt:
    value: Number
    span: Span = field(eq=False, repr=False)


@frozen
class PrecisionStmt:
    value: Name
    span: Span = field(eq=False, repr=False)


@frozen
class TaskStmt:
    value: Name
    span: Span = field(eq=False, repr=False)


@frozen
class PhaseStmt:
    """``fit first``: `value` is the phase."""

    value: Name
    span: Span = field(eq=False, repr=False)


@frozen
class VlmStmt:
    options: tuple[Name, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class DataStmt:
    """``data mock`` has `value` Name("mock"); ``data "path"`` a String."""

    value: Name | String
    span: Span = field(eq=False, repr=False)


@frozen
class RoutingStmt:
    value: Name
    span: Span = field(eq=False, repr=False)


@frozen
class Binding:
    """``name=value`` in a pin, a sweep or a fact."""

    name: Name
    value: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class PinStmt:
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Cite:
    """``cite KIND "where"``; several may follow one `cite`."""

    kind: Name
    where: String
    span: Span = field(eq=False, repr=False)


@frozen
class Require:
    """``require [NAME:] EXPR``: in a run (a wish) or in a rules block (a law, where the name is obligatory)."""

    name: Name | None
    expr: Expr
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Prefer:
    """``prefer [NAME:] EXPR [worth 2%]``."""

    name: Name | None
    expr: Expr
    worth: Number | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class AllowStmt:
    rule: Name
    because: String | None
    span: Span = field(eq=False, repr=False)


@frozen
class SweepStmt:
    axis: Name
    values: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class IsolateStmt:
    """``isolate overlap in off, on, delayed``: a sweep in which everything else stays as it is."""

    axis: Name
    values: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class WorkflowStmt:
    """``workflow``: the phases fit, scale, profile and retune, each a run of its own."""

    span: Span = field(eq=False, repr=False)


@frozen
class SetStmt:
    """``set model.field = value``."""

    path: Name
    value: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class TargetStmt:
    """``target bridge 0.6.2``: the version as written."""

    product: Name
    version: String
    span: Span = field(eq=False, repr=False)


Stmt = Union[
    BareStmt, ModelStmt, HardwareStmt, SeqStmt, BatchStmt, MicroBatchStmt, PrecisionStmt, TaskStmt, PhaseStmt,
    VlmStmt, DataStmt, RoutingStmt, PinStmt, Require, Prefer, AllowStmt, SweepStmt,
    IsolateStmt, WorkflowStmt, SetStmt, TargetStmt,
]  # fmt: skip

# ---------------------------------------------------------------- declarations


@frozen
class FactEntry:
    """``layers 94``, ``tflops bf16=989 fp8=1979`` (a tuple of Binding), or ``vision { ... }`` (a tuple of FactEntry).

    ``experts 128 topk 8`` is two entries on one line.
    """

    name: Name
    value: Expr | tuple[Binding, ...] | tuple[FactEntry, ...]
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class HardwareDecl:
    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class ModelDecl:
    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class ClusterDecl:
    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class CalibrationDecl:
    """``calibration NAME { gemm 58% ... }``: what the GPUs of an architecture reach of their peaks."""

    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class DocumentDecl:
    """``document NAME { CLAIM { says "..." kind default carried [rules] shown "tests/..." } }``: what one says."""

    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Let:
    """``let NAME = EXPR``: a name for an expression, usable in every rule."""

    name: Name
    expr: Expr
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Conditional:
    """What the members with a condition have in common; among those of one name, the first that applies wins."""

    name: Name
    expr: Expr
    when: Expr | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Default(Conditional):
    """``default AXIS = EXPR [when EXPR]``: the value when nobody says otherwise."""


@frozen
class Candidates(Conditional):
    """``candidates AXIS = [..] [when EXPR]``: the values that the solver may choose from, best advice first."""


@frozen
class Derive(Conditional):
    """``derive NAME = EXPR [when EXPR]``: a setting that follows from the layout; shown in the plan and emitted."""


@frozen
class Env(Conditional):
    """``env NAME = EXPR [when EXPR]``: an environment variable of the run."""


@frozen
class Rank(Conditional):
    """``rank NAME: [KEY, KEY, ..] [when EXPR]``: lexicographic, smaller is better."""


@frozen
class Measured(Conditional):
    """``measured NAME: "result" [when EXPR]``: a published result and the conditions it was taken under."""


@frozen
class Symptom:
    """``symptom NAME: "pattern" confirm "..." fix "..."``: what a failing run prints; `because` is the cause."""

    name: Name
    expr: String
    confirm: String | None
    fix: String | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Effect:
    """``effect NAME = WORD``: what changing a word of the language, or a field or section of Bridge, changes."""

    name: Name
    expr: Name
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


Member = Union[Require, Prefer, Let, Default, Candidates, Derive, Env, Rank, Measured, Symptom, Effect]


@frozen
class RulesDecl:
    """``rules NAME [of recipe] [when EXPR] { members }``: of a run unless `subject` says of what."""

    name: Name
    subject: Name | None
    when: Expr | None
    members: tuple[Member, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class ProfileDecl:
    """``profile NAME { statements }``: a bare name that stands for several statements."""

    name: Name
    body: tuple[Stmt, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class RunDecl:
    """``run NAME [from OTHER] { statements }``."""

    name: Name
    base: Name | None
    body: tuple[Stmt, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class UseDecl:
    path: String
    span: Span = field(eq=False, repr=False)


Item = Union[
    Stmt, HardwareDecl, ModelDecl, ClusterDecl, CalibrationDecl, DocumentDecl, RulesDecl, ProfileDecl, RunDecl, UseDecl
]


@frozen
class Module:
    items: tuple[Item, ...]
    span: Span = field(eq=False, repr=False)

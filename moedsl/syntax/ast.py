"""Define the syntax tree: frozen classes, one for each grammar rule, each with its span in the text.

Nothing here knows the meaning of names; `moedsl/checker/check.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar, Union, cast, dataclass_transform

import attrs
from attrs import field, frozen

from moedsl.diagnostics.source import Span

AnyNode = TypeVar("AnyNode", bound="Node")


class Node:
    """The methods that attrs would write for each class: equality, hash and repr by their fields."""

    __slots__ = ()
    span: Span

    def __reduce__(self) -> tuple[type[Node], tuple[Any, ...]]:
        """Pickle the arguments of the constructor, which are read twice as fast as a state by name."""
        return self.__class__, tuple(getattr(self, n) for n in _every(self.__class__))

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in _compared(self.__class__))

    def __hash__(self) -> int:
        return hash((self.__class__, *(getattr(self, n) for n in _compared(self.__class__))))

    def __repr__(self) -> str:
        values = (f"{n}={getattr(self, n)!r}" for n in _printed(self.__class__))
        return f"{self.__class__.__qualname__}({', '.join(values)})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def node(cls: type[AnyNode]) -> type[AnyNode]:
    """Make a frozen attrs class with the methods of `Node`: attrs would compile fifty sets of them at every start."""
    return frozen(cls, eq=False, repr=False)


@cache
def _every(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in attrs.fields(cls))


@cache
def _compared(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in attrs.fields(cls) if f.eq)


@cache
def _printed(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in attrs.fields(cls) if f.repr)


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below a node, in the order of its fields."""
    for name in _every(node.__class__):
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in cast(tuple[Any, ...], value) if isinstance(v, Node))


def walk(node: Node | None) -> Iterator[Node]:
    """A node and every node below it, in the order of the fields."""
    if node is not None:
        yield node
        for child in children(node):
            yield from walk(child)


def operands(e: Expr) -> tuple[Expr, ...]:
    """The expressions directly below an expression; the name of a called function is none."""
    return e.args if isinstance(e, Call) else cast(tuple[Expr, ...], tuple(children(e)))


@node
class Number(Node):
    """A number: `text` is as written (``128k``); `value` has the multiplier applied; `unit` is GB, GiB, GB/s, TFLOPS, %
    or None.

    `k`, `M` and `G` directly after the digits are binary multipliers (1024, 1024**2, 1024**3) and not units.
    """

    value: int | float
    unit: str | None
    text: str = field(eq=False)
    span: Span = field(eq=False, repr=False)


@node
class String(Node):
    value: str
    span: Span = field(eq=False, repr=False)


@node
class Bool(Node):
    """``true`` or ``false``."""

    value: bool
    span: Span = field(eq=False, repr=False)


@node
class Name(Node):
    """A name; dotted names keep their dots (``overlap.ep``)."""

    id: str
    span: Span = field(eq=False, repr=False)


@node
class List(Node):
    items: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@node
class Call(Node):
    func: Name
    args: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@node
class Unary(Node):
    """`op` is ``not`` or ``-``."""

    op: str
    value: Expr
    span: Span = field(eq=False, repr=False)


@node
class Binary(Node):
    """`op` is one of ``=> or and == != < <= > >= in not in + - * / // %``."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(eq=False, repr=False)


@node
class If(Node):
    """``if TEST then THEN else OTHERWISE``."""

    test: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(eq=False, repr=False)


Expr = Union[Number, String, Bool, Name, List, Call, Unary, Binary, If]


@node
class BareStmt(Node):
    """A bare name, or ``NAME x N``: a model, hardware or a profile, looked up in that order."""

    name: Name
    count: Number | None
    span: Span = field(eq=False, repr=False)


@node
class ModelStmt(Node):
    name: Name
    span: Span = field(eq=False, repr=False)


@node
class HardwareStmt(Node):
    name: Name
    count: Number | None
    span: Span = field(eq=False, repr=False)


@node
class NumberStmt(Node):
    """A statement with a number."""

    value: Number
    span: Span = field(eq=False, repr=False)


@node
class SeqStmt(NumberStmt): ...


@node
class BatchStmt(NumberStmt): ...


@node
class MicroBatchStmt(NumberStmt): ...


@node
class WordStmt(Node):
    """A statement with a word."""

    value: Name
    span: Span = field(eq=False, repr=False)


@node
class PrecisionStmt(WordStmt): ...


@node
class TaskStmt(WordStmt): ...


@node
class PhaseStmt(WordStmt):
    """``fit first``: `value` is the phase."""


@node
class VlmStmt(Node):
    options: tuple[Name, ...]
    span: Span = field(eq=False, repr=False)


@node
class DataStmt(Node):
    """``data mock`` has `value` Name("mock"); ``data "path"`` a String."""

    value: Name | String
    span: Span = field(eq=False, repr=False)


@node
class RoutingStmt(WordStmt): ...


@node
class Binding(Node):
    """``name=value`` in a pin, a sweep or a fact."""

    name: Name
    value: Expr
    span: Span = field(eq=False, repr=False)


@node
class PinStmt(Node):
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@node
class Cite(Node):
    """``cite KIND "where"``; several may follow one `cite`."""

    kind: Name
    where: String
    span: Span = field(eq=False, repr=False)


@node
class Require(Node):
    """``require [NAME:] EXPR``: in a run (a wish) or in a rules block (a law, where the name is obligatory)."""

    name: Name | None
    expr: Expr
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@node
class Prefer(Node):
    """``prefer [NAME:] EXPR [worth 2%]``."""

    name: Name | None
    expr: Expr
    worth: Number | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@node
class AllowStmt(Node):
    rule: Name
    because: String | None
    span: Span = field(eq=False, repr=False)


@node
class VaryStmt(Node):
    """An axis and the values that it takes in turn."""

    axis: Name
    values: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@node
class SweepStmt(VaryStmt): ...


@node
class IsolateStmt(VaryStmt):
    """``isolate overlap in off, on, delayed``: a sweep in which everything else stays as it is."""


@node
class WorkflowStmt(Node):
    """``workflow``: the phases fit, scale, profile and retune, each a run of its own."""

    span: Span = field(eq=False, repr=False)


@node
class SetStmt(Node):
    """``set model.field = value``."""

    path: Name
    value: Expr
    span: Span = field(eq=False, repr=False)


@node
class TargetStmt(Node):
    """``target bridge 0.6.2``: the version as written."""

    product: Name
    version: String
    span: Span = field(eq=False, repr=False)


Stmt = Union[
    BareStmt, ModelStmt, HardwareStmt, SeqStmt, BatchStmt, MicroBatchStmt, PrecisionStmt, TaskStmt, PhaseStmt,
    VlmStmt, DataStmt, RoutingStmt, PinStmt, Require, Prefer, AllowStmt, SweepStmt,
    IsolateStmt, WorkflowStmt, SetStmt, TargetStmt,
]  # fmt: skip


@node
class FactEntry(Node):
    """A fact: ``layers 94``, ``tflops bf16=989 fp8=1979`` (a tuple of Binding), or ``vision { ... }`` (a tuple of
    FactEntry). ``experts 128 topk 8`` is two entries on one line."""

    name: Name
    value: Expr | tuple[Binding, ...] | tuple[FactEntry, ...]
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@node
class FactsDecl(Node):
    """A name with facts."""

    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@node
class HardwareDecl(FactsDecl): ...


@node
class ModelDecl(FactsDecl): ...


@node
class ClusterDecl(FactsDecl): ...


@node
class CalibrationDecl(FactsDecl):
    """``calibration NAME { gemm 58% ... }``: the shares of their peaks that the GPUs of an architecture reach."""


@node
class DocumentDecl(FactsDecl):
    """``document NAME { CLAIM { says "..." kind default carried [rules] shown "tests/..." } }``: its claims."""


@node
class Let(Node):
    """``let NAME = EXPR``: a name for an expression, usable in every rule."""

    name: Name
    expr: Expr
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@node
class Conditional(Node):
    """The fields of members with a condition; among those of one name, the first that applies wins."""

    name: Name
    expr: Expr
    when: Expr | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@node
class Default(Conditional):
    """``default AXIS = EXPR [when EXPR]``: the default value."""


@node
class Candidates(Conditional):
    """``candidates AXIS = [..] [when EXPR]``: the values that the solver may choose from, best advice first."""


@node
class Derive(Conditional):
    """``derive NAME = EXPR [when EXPR]``: a setting that follows from the layout; shown in the plan and emitted."""


@node
class Env(Conditional):
    """``env NAME = EXPR [when EXPR]``: an environment variable of the run."""


@node
class Rank(Conditional):
    """``rank NAME: [KEY, KEY, ..] [when EXPR]``: lexicographic, smaller is better."""


@node
class Measured(Conditional):
    """``measured NAME: "result" [when EXPR]``: a published result and the conditions of the measurement."""


@node
class Symptom(Node):
    """``symptom NAME: "pattern" confirm "..." fix "..."``: a message of a failing run; `because` is the cause."""

    name: Name
    expr: String
    confirm: String | None
    fix: String | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@node
class Effect(Node):
    """``effect NAME = WORD``: the effect of changing a keyword, or a field or section of Bridge."""

    name: Name
    expr: Name
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


Member = Union[Require, Prefer, Let, Default, Candidates, Derive, Env, Rank, Measured, Symptom, Effect]


@node
class RulesDecl(Node):
    """``rules NAME [of recipe] [when EXPR] { members }``: rules of a run, unless `subject` is another."""

    name: Name
    subject: Name | None
    when: Expr | None
    members: tuple[Member, ...]
    span: Span = field(eq=False, repr=False)


@node
class ProfileDecl(Node):
    """``profile NAME { statements }``: a bare name that stands for several statements."""

    name: Name
    body: tuple[Stmt, ...]
    span: Span = field(eq=False, repr=False)


@node
class RunDecl(Node):
    """``run NAME [from OTHER] { statements }``."""

    name: Name
    base: Name | None
    body: tuple[Stmt, ...]
    span: Span = field(eq=False, repr=False)


@node
class UseDecl(Node):
    path: String
    span: Span = field(eq=False, repr=False)


Item = Union[
    Stmt, HardwareDecl, ModelDecl, ClusterDecl, CalibrationDecl, DocumentDecl, RulesDecl, ProfileDecl, RunDecl, UseDecl
]


@node
class Module(Node):
    items: tuple[Item, ...]
    span: Span = field(eq=False, repr=False)

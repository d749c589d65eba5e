"""Define the syntax tree: frozen classes, one for each grammar rule, each with its span in the text.

Nothing here knows the meaning of names; `moedsl/rules/check/check.py` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Union, cast

from attrs import field, fields, frozen

from moedsl.support.source import Span


class Node:
    """A node of the tree."""

    span: Span


def children(node: Node) -> Iterator[Node]:
    """Yield the child nodes of a node, in the order of its fields."""
    for f in fields(cast(Any, type(node))):
        value = getattr(node, f.name) if f.eq else None
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (v for v in cast(tuple[Any, ...], value) if isinstance(v, Node))


def walk(node: Node | None) -> Iterator[Node]:
    """Yield a node and all nodes below it, in the order of the fields."""
    if node is not None:
        yield node
        for child in children(node):
            yield from walk(child)


def height(node: Node) -> int:
    """Return the number of nodes on the longest path down from a node, including itself."""
    level, count = [node], 0
    while level:
        level, count = [child for n in level for child in children(n)], count + 1
    return count


def operands(e: Expr) -> tuple[Expr, ...]:
    """Return the direct subexpressions of an expression, without the name of a called function."""
    return e.args if isinstance(e, Call) else cast(tuple[Expr, ...], tuple(children(e)))


@frozen
class Number(Node):
    """A number: `text` is as written (``128k``); `value` has the multiplier applied; `unit` is GB, GiB, GB/s, TFLOPS, %
    or None.

    `k`, `M` and `G` directly after the digits are binary multipliers (1024, 1024**2, 1024**3) and not units.
    """

    value: int | float
    unit: str | None
    text: str = field(eq=False)
    span: Span = field(eq=False, repr=False)


@frozen
class String(Node):
    value: str
    span: Span = field(eq=False, repr=False)


@frozen
class Bool(Node):
    """``true`` or ``false``."""

    value: bool
    span: Span = field(eq=False, repr=False)


@frozen
class Name(Node):
    """A name; dotted names keep their dots (``overlap.ep``)."""

    id: str
    span: Span = field(eq=False, repr=False)


@frozen
class List(Node):
    items: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Call(Node):
    func: Name
    args: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Unary(Node):
    """`op` is ``not`` or ``-``."""

    op: str
    value: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class Binary(Node):
    """`op` is one of ``=> or and == != < <= > >= in not in + - * / // %``."""

    op: str
    left: Expr
    right: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class If(Node):
    """``if TEST then THEN else OTHERWISE``."""

    test: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(eq=False, repr=False)


Expr = Union[Number, String, Bool, Name, List, Call, Unary, Binary, If]


@frozen
class BareStmt(Node):
    """A bare name, or ``NAME x N``: a model, hardware or a profile, looked up in that order."""

    name: Name
    count: Number | None
    span: Span = field(eq=False, repr=False)


@frozen
class ModelStmt(Node):
    name: Name
    span: Span = field(eq=False, repr=False)


@frozen
class HardwareStmt(Node):
    name: Name
    count: Number | None
    span: Span = field(eq=False, repr=False)


@frozen
class NumberStmt(Node):
    """A statement with a number."""

    value: Number
    span: Span = field(eq=False, repr=False)


@frozen
class SeqStmt(NumberStmt): ...


@frozen
class BatchStmt(NumberStmt):
    near: bool = False
    """Whether the solver may take a near batch: ``batch near 1024``."""


@frozen
class MicroBatchStmt(NumberStmt): ...


@frozen
class WordStmt(Node):
    """A statement with a word."""

    value: Name
    span: Span = field(eq=False, repr=False)


@frozen
class PrecisionStmt(WordStmt): ...


@frozen
class TaskStmt(WordStmt): ...


@frozen
class AdapterStmt(Node):
    """``adapter lora rank=8``: the method and its options."""

    method: Name
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class PhaseStmt(WordStmt):
    """``fit first``: `value` is the phase."""


@frozen
class VlmStmt(Node):
    options: tuple[Name, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class DataStmt(Node):
    """``data mock``, ``data "path" pack=off`` or ``data hf "ORG/NAME"``: `value` is a path, or with `word` a name."""

    word: Name | None
    value: String | None
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class WeightsStmt(Node):
    """``weights hf "ORG/NAME"`` or ``weights "path"``: `value` is a path, or a name if there is a `word`."""

    word: Name | None
    value: String
    span: Span = field(eq=False, repr=False)


@frozen
class RoutingStmt(WordStmt): ...


@frozen
class RiskStmt(WordStmt):
    """``risk oom``: a layout may run out of memory."""


@frozen
class Binding(Node):
    """``name=value`` in a pin, a sweep or a fact."""

    name: Name
    value: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class PinStmt(Node):
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Cite(Node):
    """``cite KIND "where"``; several may follow one `cite`."""

    kind: Name
    where: String
    span: Span = field(eq=False, repr=False)


@frozen
class Require(Node):
    """``require [NAME:] EXPR``: a condition in a run, or a law in a rules block, where the name is obligatory."""

    name: Name | None
    expr: Expr
    since: String | None
    until: String | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Prefer(Node):
    """``prefer [NAME:] EXPR [worth 2%]``."""

    name: Name | None
    expr: Expr
    worth: Number | None
    since: String | None
    until: String | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class AllowStmt(Node):
    rule: Name
    because: String | None
    span: Span = field(eq=False, repr=False)


@frozen
class VaryStmt(Node):
    """An axis and the values that it takes in turn."""

    axis: Name
    values: tuple[Expr, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class SweepStmt(VaryStmt): ...


@frozen
class IsolateStmt(VaryStmt):
    """``isolate overlap in off, on, delayed``: a sweep in which all other axes stay fixed."""


@frozen
class WorkflowStmt(Node):
    """``workflow``: the phases fit, scale, profile and retune, each a separate run."""

    span: Span = field(eq=False, repr=False)


@frozen
class SetStmt(Node):
    """``set model.field = value``."""

    path: Name
    value: Expr
    span: Span = field(eq=False, repr=False)


@frozen
class FieldsStmt(Node):
    """``lr 3e-4 min=3e-5``, ``wandb "project"``: a keyword of moedsl/facts/field_words.py, its value and options."""

    keyword: Name
    value: Expr | None
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class TargetStmt(Node):
    """``target bridge 0.6.2``: the version as written."""

    product: Name
    version: String
    span: Span = field(eq=False, repr=False)


@frozen
class ResilienceStmt(Node):
    """``resilience ft calc_ft_timeouts=off``: a Bridge section for fault tolerance, and its options."""

    section: Name
    bindings: tuple[Binding, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class ForStmt(Node):
    """``for 14 days``, ``for 2T tokens``: the length of the training, the amount as written."""

    amount: Name
    unit: Name
    span: Span = field(eq=False, repr=False)


Stmt = Union[
    BareStmt, ModelStmt, HardwareStmt, SeqStmt, BatchStmt, MicroBatchStmt, PrecisionStmt, TaskStmt, PhaseStmt,
    AdapterStmt, VlmStmt, DataStmt, WeightsStmt, RoutingStmt, RiskStmt, PinStmt, Require, Prefer, AllowStmt,
    SweepStmt, IsolateStmt, WorkflowStmt, SetStmt, FieldsStmt, TargetStmt, ResilienceStmt, ForStmt,
]  # fmt: skip


@frozen
class FactEntry(Node):
    """A fact: ``layers 94``, ``tflops bf16=989 fp8=1979`` (a tuple of Binding), or ``vision { ... }`` (a tuple of
    FactEntry). ``experts 128 topk 8`` is two entries on one line."""

    name: Name
    value: Expr | tuple[Binding, ...] | tuple[FactEntry, ...]
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class FactsDecl(Node):
    """A name with facts."""

    name: Name
    facts: tuple[FactEntry, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class HardwareDecl(FactsDecl):
    base: Name | None = None
    """The hardware whose facts this one takes where it states none: ``hardware ours from h200 { network 25 GB/s }``."""


@frozen
class ModelDecl(FactsDecl): ...


@frozen
class ClusterDecl(FactsDecl): ...


@frozen
class CalibrationDecl(FactsDecl):
    """``calibration NAME { gemm 58% ... }``: the shares of peak rates that an architecture's GPUs reach."""


@frozen
class DocumentDecl(FactsDecl):
    """``document NAME { CLAIM { says "..." kind default carried [rules] shown "tests/..." } }``: its claims."""


@frozen
class Let(Node):
    """``let NAME = EXPR``: a name for an expression, usable in every rule."""

    name: Name
    expr: Expr
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Conditional(Node):
    """A member with a condition; of members with the same name, the first whose condition holds wins."""

    name: Name
    expr: Expr
    when: Expr | None
    since: String | None
    until: String | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Default(Conditional):
    """``default AXIS = EXPR [when EXPR]``: the default value."""


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
    """``measured NAME: "result" [when EXPR]``: a published result and the conditions of the measurement."""


@frozen
class Symptom(Node):
    """``symptom NAME: "pattern" confirm "..." fix "..."``: a failing run's message; `because` is the cause."""

    name: Name
    expr: String
    confirm: String | None
    fix: String | None
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class Effect(Node):
    """``effect NAME = WORD``: the effect of changing a keyword, or a field or section of Bridge."""

    name: Name
    expr: Name
    because: String | None
    cites: tuple[Cite, ...]
    span: Span = field(eq=False, repr=False)


Member = Union[Require, Prefer, Let, Default, Candidates, Derive, Env, Rank, Measured, Symptom, Effect]


@frozen
class RulesDecl(Node):
    """``rules NAME [of recipe] [when EXPR] [since 0.5] [until 0.7] { members }``: rules of a run, unless `subject`
    names something else; `since` and `until` are the releases of Bridge from which on and up to which they hold."""

    name: Name
    subject: Name | None
    when: Expr | None
    since: String | None
    until: String | None
    members: tuple[Member, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class ProfileDecl(Node):
    """``profile NAME { statements }``: a bare name that stands for several statements."""

    name: Name
    body: tuple[Stmt, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class RunDecl(Node):
    """``run NAME [from OTHER] { statements }``."""

    name: Name
    base: Name | None
    body: tuple[Stmt, ...]
    span: Span = field(eq=False, repr=False)


@frozen
class UseDecl(Node):
    path: String
    span: Span = field(eq=False, repr=False)


Item = Union[
    Stmt, HardwareDecl, ModelDecl, ClusterDecl, CalibrationDecl, DocumentDecl, RulesDecl, ProfileDecl, RunDecl, UseDecl
]


_OF_RUN: tuple[type, ...] = (*Stmt.__args__, RunDecl)  # type: ignore[attr-defined]


@frozen
class Module(Node):
    items: tuple[Item, ...]
    span: Span = field(eq=False, repr=False)

    @property
    def run(self) -> Item | None:
        """The first statement of a run, or the first run; None in a file that only declares, for `use`."""
        return next((i for i in self.items if isinstance(i, _OF_RUN)), None)

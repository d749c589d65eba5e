"""Define every operator and function of an expression: its types, and its value for one row and for whole columns.

A row's value is an int, a float, a bool, a word (str) or a set of words (frozenset). A column is a NumPy array, or a
scalar if all rows are equal; in a column, words and sets are the integer codes of `moedsl.facts.axes`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import field, frozen

from moedsl.facts import axes
from moedsl.facts.releases import as_number
from moedsl.facts.symbols import FLAG, NUMBER, TEXT, Type

Value = Any
Column = Any
SET = Type("set")
"""Any set, whatever its words."""
SAME = Type("same")
"""The type of the other operand."""
VERSION = Type("version")
"""A literal text of numbers separated by dots."""
MEMBER = Type("member")
"""A member on the left, a set or a list of such members on the right; the column function receives which rows match."""


@frozen
class Operator:
    """A unary or binary operator."""

    symbol: str
    takes: Type
    """The type of its operands: NUMBER, FLAG, SAME or MEMBER."""
    result: Type
    row: Callable[..., Value]
    column: Callable[..., Column]
    decided: tuple[bool, bool] | None = None
    """The left value that decides the result without the right operand, and that result; None if there is none."""


@frozen
class Function:
    """`arity` is the number of arguments, or -1 for one or more; `takes` is the type of each."""

    name: str
    arity: int
    result: Type
    doc: str
    row: Callable[..., Value] | None = None
    """The value for one row; None if the problem supplies the function."""
    column: Callable[..., Column] | None = None
    takes: Type = field(default=NUMBER)


def _same(a: Value, b: Value) -> bool:
    if isinstance(a, frozenset) != isinstance(b, frozenset):
        return _as_set(a) == _as_set(b)
    return a == b


def _as_set(v: Value) -> frozenset[str]:
    return v if isinstance(v, frozenset) else frozenset(() if v in ("none", None) else (v,))


def _contains(item: Value, group: Value) -> bool:
    """Test membership; treat a single word as a set of one."""
    return any(_same(item, g) for g in (_as_set(group) if isinstance(group, str) else group))


def _bounded(compute: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Make a function return integers above 2**53 as floats, so that nothing overflows."""

    def apply(a: float, b: float) -> float:
        x = compute(a, b)
        return float(x) if isinstance(x, int) and abs(x) > 2**53 else x

    return apply


def _or_zero(divide: Callable[[Any, Any], float]) -> Callable[[Any, Any], float]:
    """Make a division return 0 where the divisor is 0."""
    return lambda a, b: divide(a, b) if b else 0


def pow2(x: float) -> float:
    """Return the nearest power of two, at least 1; halfway rounds up."""
    if x <= 1 or not math.isfinite(x):
        return max(x, 1)
    low = 1 << (int(x).bit_length() - 1)
    return low if x - low < 2 * low - x else 2 * low


_MOST_NODES = 1_000_000


def segment(nodes: float, gpus_per_node: float, group: float, most: float) -> int:
    """Return the largest divisor of `nodes`, at most `most`, whose GPUs form whole groups; else 0."""
    if not all(math.isfinite(x) and 1 <= x <= _MOST_NODES for x in (nodes, gpus_per_node, group, most)):
        return 0
    sizes = range(int(min(nodes, most)), 0, -1)
    return next((s for s in sizes if nodes % s == 0 and s * gpus_per_node % group == 0), 0)


def _or_zero_by_row(divide: Callable[[Column, Column], Column]) -> Callable[[Column, Column], Column]:
    """Make a division of columns return 0 in rows whose divisor is 0."""

    def apply(a: Column, b: Column) -> Column:
        zero = np.equal(b, 0)
        return np.where(zero, 0, divide(a, np.where(zero, 1, b))) if np.any(zero) else divide(a, b)

    return apply


def _fold(compute: Callable[[Column, Column], Column]) -> Callable[..., Column]:
    def apply(*args: Column) -> Column:
        out = args[0]
        for a in args[1:]:
            out = compute(out, a)
        return out

    return apply


def _log2(x: Column) -> Column:
    positive = np.greater(x, 0)
    return np.where(positive, np.log2(np.where(positive, x, 1)), 0.0)


def _pow2(x: Column) -> Column:
    low = np.ldexp(0.5, np.frexp(np.maximum(x, 1.0))[1])
    return np.where(np.subtract(x, low) < 2 * low - x, low, 2 * low)


_COUNTS = np.array([i.bit_count() for i in range(1 << max(len(a.words) for a in axes.AXES if a.kind == "set"))])
"""The number of members of the set that each bit mask encodes."""


UNARY = {
    o.symbol: o
    for o in (
        Operator("not", FLAG, FLAG, operator.not_, np.logical_not),
        Operator("-", NUMBER, NUMBER, operator.neg, operator.neg),
    )
}
BINARY = {
    o.symbol: o
    for o in (
        Operator("and", FLAG, FLAG, lambda a, b: bool(a and b), np.logical_and, decided=(False, False)),
        Operator("or", FLAG, FLAG, lambda a, b: bool(a or b), np.logical_or, decided=(True, True)),
        Operator("=>", FLAG, FLAG, lambda a, b: not a or bool(b), lambda a, b: np.logical_or(np.logical_not(a), b),
                 decided=(False, True)),
        Operator("==", SAME, FLAG, _same, np.equal),
        Operator("!=", SAME, FLAG, lambda a, b: not _same(a, b), np.not_equal),
        Operator("<", NUMBER, FLAG, operator.lt, np.less),
        Operator("<=", NUMBER, FLAG, operator.le, np.less_equal),
        Operator(">", NUMBER, FLAG, operator.gt, np.greater),
        Operator(">=", NUMBER, FLAG, operator.ge, np.greater_equal),
        Operator("in", MEMBER, FLAG, _contains, lambda hit: hit),
        Operator("not in", MEMBER, FLAG, lambda a, b: not _contains(a, b), np.logical_not),
        Operator("+", NUMBER, NUMBER, _bounded(operator.add), np.add),
        Operator("-", NUMBER, NUMBER, _bounded(operator.sub), np.subtract),
        Operator("*", NUMBER, NUMBER, _bounded(operator.mul), np.multiply),
        Operator("/", NUMBER, NUMBER, _or_zero(operator.truediv), _or_zero_by_row(np.true_divide)),
        Operator("//", NUMBER, NUMBER, _or_zero(operator.floordiv), _or_zero_by_row(np.floor_divide)),
        Operator("%", NUMBER, NUMBER, _or_zero(operator.mod), _or_zero_by_row(np.mod)),
    )
}  # fmt: skip


_SEGMENT = (
    "the largest divisor of a number of nodes, at most the 4th, whose GPUs (the 2nd a node) are whole groups of the 3rd"
)
FUNCTIONS = {
    f.name: f
    for f in (
        Function("min", -1, NUMBER, "the smallest", lambda *a: min(a), _fold(np.minimum)),
        Function("max", -1, NUMBER, "the largest", lambda *a: max(a), _fold(np.maximum)),
        Function("abs", 1, NUMBER, "the absolute value", abs, np.abs),
        Function("ceil", 1, NUMBER, "the next whole number",
                 lambda x: math.ceil(x) if math.isfinite(x) else x, np.ceil),
        Function("floor", 1, NUMBER, "the whole part", lambda x: math.floor(x) if math.isfinite(x) else x, np.floor),
        Function("log2", 1, NUMBER, "the binary logarithm; 0 for what has none",
                 lambda x: math.log2(x) if x > 0 else 0.0, _log2),
        Function("sqrt", 1, NUMBER, "the square root; 0 of what has none",
                 lambda x: math.sqrt(max(x, 0.0)), lambda x: np.sqrt(np.maximum(x, 0.0))),
        Function("pow2", 1, NUMBER, "the nearest power of two, at least 1", pow2, _pow2),
        Function("count", 1, NUMBER, "how many members a set has",
                 lambda s: len(_as_set(s)), lambda s: _COUNTS[np.asarray(s, dtype=np.int64)], takes=SET),
        Function("version", 1, NUMBER, 'a version such as "2.10.0" as a number that grows with it',
                 lambda v: as_number(str(v)), lambda v: as_number(str(v)), takes=VERSION),
        Function("join", -1, TEXT, "texts, one after the other", lambda *texts: "".join(texts),
                 _fold(np.char.add), takes=TEXT),
        Function("segment", 4, NUMBER, _SEGMENT, segment, np.vectorize(segment, otypes=[np.int64])),
        Function("has_layout", 2, FLAG, "whether the layers fall on pp x vpp chunks"),
    )
}  # fmt: skip

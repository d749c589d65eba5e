"""The two evaluators, written apart, must agree: any expression that passes the check, any rows."""

import math
import random
from typing import Any, Self

import hypothesis.strategies as st
import numpy as np
import pytest
from attrs import frozen
from hypothesis import HealthCheck, assume, example, given, settings

from moedsl.facts import axes, operators
from moedsl.facts.symbols import AXES, BUILTIN, FLAG, NUMBER, TEXT, Type
from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.lang.printer import print_expr
from moedsl.rules.evaluators import Compiler, evaluate
from moedsl.rules.types import LIST, WORD, Inference
from moedsl.solver.problem import encode
from moedsl.support.source import Source, Span
from tests.helpers import rotation

AT = Span("random.moe", 0, 0)
FIXED: dict[str, Any] = {
    "gpus": 24, "seq": 4096, "global_batch": 96, "phase": "scale", "vlm": frozenset({"freeze_vision"}), "attention": "mla",
    "has_vision": True, "family": "deepseek_v3", "memory": 80e9, "capability": 9.0, "heads": 20, "mtp_layers": 0,
}  # fmt: skip
"""What is the same in every row, one or two of each type."""
SCOPE = {n: t for n, t in BUILTIN.items() if n in FIXED or n in AXES}
EXTERNS = {"has_layout": lambda pp, vpp: np.equal(np.mod(np.add(pp, vpp), 2), 0)}
FUNCTIONS = {"has_layout": lambda pp, vpp: (pp + vpp) % 2 == 0}
ENUMS = [t for t in SCOPE.values() if t.kind == "enum"]
SETS = [t for t in SCOPE.values() if t.kind == "set"]


def name(id: str) -> ast.Name:
    return ast.Name(id, AT)


def number(value: float) -> ast.Number:
    return ast.Number(value, None, str(value), AT)


def variables(t: Type) -> st.SearchStrategy[Any]:
    return st.sampled_from([n for n, have in SCOPE.items() if have == t]).map(name)


def words(t: Type) -> st.SearchStrategy[Any]:
    return st.sampled_from(t.words).map(name)


def binary(ops: str, left: st.SearchStrategy[Any], right: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(ast.Binary, st.sampled_from(ops.split(",")), left, right, st.just(AT))


def unary(op: str, value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(ast.Unary, st.just(op), value, st.just(AT))


def call(f: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*args).map(lambda a: ast.Call(name(f), a, AT))


def listed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3).map(lambda i: ast.List(tuple(i), AT))


@frozen
class Level:
    """Expressions of a depth, by type; the next level is made of them."""

    numbers: st.SearchStrategy[Any]
    flags: st.SearchStrategy[Any]
    texts: st.SearchStrategy[Any]
    enums: dict[Type, st.SearchStrategy[Any]]
    sets: dict[Type, st.SearchStrategy[Any]]

    @property
    def anything(self) -> st.SearchStrategy[Any]:
        return st.one_of(self.numbers, self.flags, self.texts, *self.enums.values(), *self.sets.values())

    def when(self, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.builds(ast.If, self.flags, inner, inner, st.just(AT))

    def next(self) -> Self:
        enums = {t: e | self.when(e) for t, e in self.enums.items()}
        sets = {t: e | self.when(e) for t, e in self.sets.items()}
        return Level(self._numbers(), self._flags(), self.texts, enums, sets)

    def _numbers(self) -> st.SearchStrategy[Any]:
        n = self.numbers
        return st.one_of(
            n, binary("+,-,*,/,//,%", n, n), unary("-", n), self.when(n), call("max", n, n, n), call("min", n, n),
            *(call(f, n) for f in ("abs", "ceil", "floor", "pow2", "min")), *(call("count", e) for e in self.sets.values()),
        )  # fmt: skip

    def _flags(self) -> st.SearchStrategy[Any]:
        n, f, t = self.numbers, self.flags, self.texts
        kinds = [t, *self.enums.values(), *self.sets.values()]
        return st.one_of(
            f, unary("not", f), self.when(f), binary("and,or,=>,==,!=", f, f), binary("==,!=,<,<=,>,>=", n, n),
            call("has_layout", variables(NUMBER), variables(NUMBER)), binary("in,not in", n, listed(n)),
            *(binary("==,!=", k, k) for k in kinds), *(binary("in,not in", k, listed(k)) for k in kinds),
            *(binary("in,not in", words(k), e) for k, e in self.sets.items()),
        )  # fmt: skip


FIRST = Level(
    variables(NUMBER)
    | st.integers(-5, 40).map(number)
    | st.sampled_from([0.5, -2.25, 3.0, 1e6, 2**40, 2**53]).map(number),
    variables(FLAG) | st.booleans().map(lambda b: ast.Bool(b, AT)),
    variables(TEXT)
    | st.sampled_from(["deepseek_v3", "none", ""]).map(lambda s: ast.String(s, AT))
    | st.just(name("deepseek_v3")),
    {t: variables(t) | words(t) for t in ENUMS},
    {t: variables(t) | words(t) | listed(words(t)) | st.just(name("none")) for t in SETS},
)
anything = st.one_of(*(level.anything for level in (FIRST, FIRST.next(), FIRST.next().next())))
_any = FIRST.anything
mixed = st.one_of(
    binary("==,!=,<,in,not in,and,=>,+,%", _any | listed(_any), _any | listed(_any)), call("count", _any), call("max", _any, _any),
    st.builds(ast.If, _any, _any | listed(_any), _any, st.just(AT)), unary("not", _any), unary("-", _any),
    binary("==,in", st.builds(ast.If, FIRST.flags, _any | listed(_any), _any, st.just(AT)), _any | listed(listed(_any))),
)  # fmt: skip
"""Expressions of no sense too, to see that the check refuses whatever the evaluators would disagree on."""


def _random(a: axes.Axis, rng: random.Random) -> int:
    if a.kind == "int":
        return rng.choice([1, 2, 3, 4, 8, 12, 64])
    return rng.randrange({"flag": 2, "enum": len(a.words), "set": 2 ** len(a.words)}[a.kind])


_RNG = random.Random(0)
TABLE = [{a.name: _random(a, _RNG) for a in axes.AXES} for _ in range(12)] + [
    {a.name: int(a.kind == "int") for a in axes.AXES}
]
"""Rows that differ in every axis, and one where everything is off."""


def _plain(row: dict[str, int]) -> dict[str, Any]:
    decoded = {a.name: a.decode(row[a.name]) for a in axes.AXES}
    return {**FIXED, **{n: frozenset(v) if isinstance(v, list) else v for n, v in decoded.items()}}


def _same(fast: Any, slow: Any, t: Type) -> bool:
    if t.kind in ("enum", "set"):
        as_set = (
            slow if isinstance(slow, frozenset) or t.kind == "enum" else frozenset(() if slow == "none" else (slow,))
        )
        return int(fast) == encode("none" if t.kind == "enum" and slow == frozenset() else as_set, t)
    if t == NUMBER:
        return math.isclose(float(fast), float(slow), rel_tol=1e-12, abs_tol=1e-300) or (
            math.isnan(fast) and math.isnan(slow)
        )
    return str(fast) == slow if t == TEXT else bool(fast) == bool(slow)


def agree(e: ast.Expr, table: list[dict[str, int]]) -> None:
    t = Inference(SCOPE).of(e)
    assert t is not None
    fixed = {n: encode(v, BUILTIN[n]) for n, v in FIXED.items()}
    columns = {**fixed, **{a.name: np.array([r[a.name] for r in table]) for a in axes.AXES}}
    fast = np.broadcast_to(Compiler(SCOPE).compile(e)({**columns, **EXTERNS}), (len(table),))
    for value, row in zip(fast, table, strict=True):
        slow = evaluate(e, {**_plain(row), **FUNCTIONS})
        assert _same(value, slow, t), f"{print_expr(e)}: columns say {value}, scalar {slow}, in {row}"


def well_typed(e: ast.Expr) -> bool:
    inference = Inference(SCOPE)
    t = inference.of(e)
    return not inference.diagnostics and t not in (None, WORD, LIST)


@settings(max_examples=rotation.examples(800), deadline=None, suppress_health_check=list(HealthCheck))
@given(anything)
def test_columns_agree_with_scalars(e: ast.Expr) -> None:
    assume(well_typed(e))
    agree(e, TABLE)


@settings(max_examples=rotation.examples(100), deadline=None, suppress_health_check=list(HealthCheck))
@given(mixed)
def test_whatever_passes_the_check_means_one_thing(e: ast.Expr) -> None:
    assume(well_typed(e))
    agree(e, TABLE)


def expression(text: str) -> ast.Expr:
    module, found = parse(Source("t.moe", f"require {text}"))
    assert module is not None and not found, found
    return module.items[0].expr  # type: ignore[union-attr]


def test_a_function_is_one_entry_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    half = operators.Function("half", 1, NUMBER, "the half", lambda x: x / 2, lambda x: np.true_divide(x, 2))
    monkeypatch.setitem(operators.FUNCTIONS, "half", half)
    e = expression("half(tp) + 1 >= half(cp)")
    assert well_typed(e)
    agree(e, TABLE)
    assert not well_typed(expression("half(phase) > 1"))


ROW = {a.name: 1 if a.kind == "int" else 0 for a in axes.AXES}
TRUE = [
    "7 // 0 == 0", "7 % 0 == 0", "7 / 0 == 0", "-7 // 2 == -4", "-7 % 4 == 1", "7.5 // 2 == 3", "-7.5 % 2 == 0.5",
    "recompute == none", "recompute == []", "recompute == [moe, full]", "recompute == [full, moe]", "recompute in [none, [moe, full]]",
    "moe in recompute", "layernorm not in recompute", "offload == none", "offload in [none, optimizer]", "count(recompute) == 2",
    "phase in [fit, scale]", "not phase in [fit]", "(if tp > 0 then dispatcher else alltoall) == alltoall",
    "(if tp > 0 then deepep else alltoall) != dispatcher", "ep_overlap == false", "(tp > 1) == false", "family == deepseek_v3",
    'family in ["x", "deepseek_v3"]', "false => tp == 7", "count(if tp > 1 then recompute else cuda_graph) == 0",
]  # fmt: skip


@pytest.mark.parametrize("text", TRUE)
def test_cases(text: str) -> None:
    """Each is false for one of two rows or true for both, and the evaluators say the same."""
    e = expression(text)
    if well_typed(e):
        agree(
            e,
            [
                ROW,
                ROW
                | {
                    "recompute": axes.BY_NAME["recompute"].encode(["moe", "full"]),
                    "dispatcher": 1,
                    "ep_overlap": 1,
                    "tp": 2,
                },
            ],
        )
    assert well_typed(e) or "cuda_graph" in text


@pytest.mark.parametrize("text", ["7 // 0 == 0", "-7 // 2 == -4", "-7 % 4 == 1", "pow2(6) == 8", "pow2(5.9) == 4", "pow2(0) == 1", "log2(0) == 0",
                                  "recompute == none", "offload == none", "128k == 131072", "count(recompute) == 0", "min(3) == 3"])  # fmt: skip
def test_meaning(text: str) -> None:
    """What internals.md says an expression is worth, in both evaluators."""
    e, fixed = expression(text), {n: encode(v, BUILTIN[n]) for n, v in FIXED.items()}
    assert evaluate(e, _plain(ROW)) is True
    assert np.all(Compiler(SCOPE).compile(e)({**EXTERNS, **fixed, **{n: np.array([v]) for n, v in ROW.items()}}))


@given(st.integers(1, 2**40) | st.floats(0, 2**30))
@example(6)
@example(2**40 - 1)
def test_pow2_is_the_nearest(x: float) -> None:
    near = min((2**i for i in range(42)), key=lambda p: (abs(p - x), -p))
    assert operators.pow2(x) == near
    fast = Compiler(SCOPE).compile(ast.Call(name("pow2"), (name("tp"),), AT))({"tp": np.array([x])})
    assert int(fast[0]) == near


REFUSED = [
    "count(tp) == 1", "dispatcher == precision", "recompute == cuda_graph", "[1] == [1]", "dispatcher in recompute",
    "(if tp > 1 then tp else fit) == 1", "tp == fit", "tp in recompute", "recompute in [tp]", "[tp] in [tp]", "precision < bf16", "tp in none",
    "count(5) == 0", "has_layout(pp) == true", "tp == 99999999999999999999999999999999", "tp + true == 2",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_no_sense_is_refused(text: str) -> None:
    assert not well_typed(expression(text))

"""Bounds of laws: no row that obeys a law is refused, whatever the law says and whatever is known of the row."""

import functools
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, assume, given, settings

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.facts.axes import MEMORY_POLICIES, MESH
from moedsl.facts.symbols import COSTS, FLAG, SPARES
from moedsl.lang import ast
from moedsl.lang.printer import print_expr
from moedsl.rules.rule import Rule
from moedsl.rules.types import Inference
from moedsl.solver.fits import fast_enough
from moedsl.solver.intervals import may_satisfy
from moedsl.solver.laws import Compiled, Law, Table, compile_problem
from moedsl.solver.problem import facts, lower
from moedsl.solver.search import Solution
from moedsl.solver.solve import solve
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.small_programs import WHY, WIDE, program
from tests.helpers.tables import table_of
from tests.rules.test_evaluators import FIRST, SCOPE, TABLE, expression, name

PRICED = evolve(FIRST, numbers=FIRST.numbers | st.sampled_from([*COSTS]).map(name)).next()
PRICES = {
    "peak_memory": [5e9, 60e9, 70e9, 0.0], "spare_memory": [-3e9, 0.0, 8e9], "spare_at_best": [-1.0, 2e9], "spare_at_low": [0.5, 9e9],
    "step_time": [0.25, 2.0, 40.0, 5000.0], "score": [0.25, 3.0, 41.0, 6000.0],
}  # fmt: skip


@functools.cache
def compiled() -> Compiled:
    p = program(
        f"qwen3_30b_a3b\nh100 x 24\nrules r {{ let twice = 2 * step_time\n require x: twice > 0 or tp > 0 {WHY} }}"
    )
    problem = lower(p, 24)
    domains = {n: np.unique([row[n] for row in TABLE]) for n in problem.domains}
    return compile_problem(
        evolve(problem, domains=domains), {"has_layout": lambda pp, vpp: np.equal((pp + vpp) % 2, 0)}
    )


def law(e: ast.Expr) -> Law:
    c = compiled()
    rules = c.problem.program.rules
    rule = Rule("run.main.x", "require", "x", e, None, None, (), e.span)
    return Law(rule, e, rules.needs_of(e), rules.compiler.compile(e))


def rows(seed: int) -> dict[str, np.ndarray]:
    pick = np.random.default_rng(seed)
    prices = {n: pick.choice(values, len(TABLE)) for n, values in PRICES.items()}
    prices["score"] = np.maximum(prices["score"], prices["step_time"])
    return {n: np.array([row[n] for row in TABLE]) for n in compiled().problem.domains} | prices


def never_refused(e: ast.Expr, known: tuple[str, ...], bounded: frozenset[str], seed: int) -> None:
    """A bound is half of a price and the half more of what is spare, or the price itself."""
    c, one, every = compiled(), law(e), rows(seed)
    holds = one.holds(Table(every, c.problem.codes, c.lets))
    for share in (1.0, 0.5):
        bounds = {n: every[n] * share if n not in SPARES else every[n] + (1 - share) * 1e9 for n in sorted(bounded)}
        axes = {n: every[n] for n in known} or {"tp": every["tp"]}
        could = may_satisfy(c.problem, [one], Table(axes, c.problem.codes, c.lets), bounds)
        assert not np.any(holds & ~could), print_expr(e)
        if one.needs <= axes.keys():
            assert np.array_equal(holds, could)


@settings(max_examples=rotation.examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(PRICED.flags, PRICED.next().flags),
    st.sampled_from([(), MESH, MESH + MEMORY_POLICIES]),
    st.frozensets(st.sampled_from([n for n in COSTS if n != "score"])),
    st.integers(0, 9),
)
def test_no_row_that_obeys_is_refused(e: ast.Expr, known: tuple[str, ...], bounded: frozenset[str], seed: int) -> None:
    inference = Inference(SCOPE | COSTS)
    assume(inference.of(e) == FLAG and not inference.diagnostics)
    never_refused(e, known, bounded, seed)


FORMS = table_of("solver", "intervals: forms")


@pytest.mark.parametrize("text", FORMS)
def test_a_limit_refuses_in_any_form(text: str) -> None:
    """Where the least seconds are 40, and nothing else is known but the mesh."""
    c, one = compiled(), law(expression(text))
    meshes = Table({n: np.array([2, 4]) for n in MESH}, c.problem.codes, c.lets)
    assert may_satisfy(c.problem, [one], meshes, {"step_time": np.array([40.0, 0.01])}).tolist() == [False, True]
    assert one.bounded == {"step_time"}


OPEN = table_of("solver", "intervals: open")


@pytest.mark.parametrize("text", OPEN)
def test_what_may_still_hold_is_not_refused(text: str) -> None:
    c, one = compiled(), law(expression(text))
    meshes = Table({n: np.array([2]) for n in MESH}, c.problem.codes, c.lets)
    assert may_satisfy(c.problem, [one], meshes, {"step_time": np.array([40.0])}).all()


def test_lets_of_lets_are_bounded_once() -> None:
    """Their tree has more leaves than can be counted."""
    lets = "\n".join(f"let a{i} = a{i - 1} + a{i - 1}" for i in range(1, 70))
    text = f"qwen3_30b_a3b\nh100 x 16\nrules r {{ let a0 = step_time\n{lets}\n require x: a69 < 1 {WHY} }}"
    (found,) = [
        d for d in compile_source(Source("run.moe", text), "solve", asks="diagnostics").diagnostics if d.is_error
    ]
    assert found.id == "solve.too_slow"


LIMITS = table_of("solver", "intervals: limits")


@pytest.fixture
def priced(compiles_anew: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each call that prices some."""
    rows = list[int]()

    def counted(price: str) -> Callable[..., Any]:
        whole = getattr(Cost, price)

        def of(*args: Any, **more: Any) -> Any:
            found = whole(*args, **more)
            rows.append(found.shape[-1])
            return found

        return of

    for price in ("time", "memory", "spare"):
        monkeypatch.setattr(Cost, price, counted(price))
    return rows


@pytest.mark.parametrize("limit", rotation.some("refused by bounds", LIMITS, 1))
def test_what_cannot_be_is_refused_by_bounds(limit: str, priced: list[int]) -> None:
    """Without a price for each layout: the space has millions of them."""
    text = f"qwen3_30b_a3b; h100 x 16; throughput first; require {limit}"
    (found,) = [
        d for d in compile_source(Source("run.moe", text), "solve", asks="diagnostics").diagnostics if d.is_error
    ]
    assert found.id == ("solve.too_slow" if "time" in limit or "score" in limit else "solve.does_not_fit")
    assert sum(priced) < 40_000


JOINT = [
    ("step_time < 0.01 or peak_memory < 1 GB", "high", 20_000),
    ("step_time * peak_memory < 1 GB", "low", 20_000),
    ("peak_memory > 300 GB", "high", 20_000),
    ("peak_memory > 300 GB", "best", 20_000),
    ("spare_memory < 0 and tp > 1", "high", 20_000),
    ("spare_at_low < -1 GB", "low", 20_000),
]


@pytest.mark.parametrize(("limit", "case", "most"), JOINT)
def test_bounds_that_refuse_nothing_alone_refuse_each_mesh_together(
    limit: str, case: str, most: int, priced: list[int]
) -> None:
    """Bounds of the time and of memory, from both sides, or the memory that a layout must have to spare."""
    c = solve(program(f"qwen3_30b_a3b; h100 x 16; throughput first; require {limit}"), 16, must_fit=case)
    assert c.solution.legal and not c.solution.rows
    assert sum(priced) < most


def test_meshes_that_reach_a_limit_are_bounded_with_no_other_policies() -> None:
    """Every mesh that may have FSDP reaches it without."""
    c = solve(program("qwen3_vl_30b_a3b; h100 x 16; throughput first; require peak_memory > 30 GB"), 16)
    assert c.solution.rows[0].peak_memory > 30e9


@pytest.mark.parametrize("text", rotation.some("peak and spare memory", WIDE, 1))
def test_what_a_layout_has_to_spare_bounds_its_peak(text: str) -> None:
    """At the best estimate and at the high end; the low end needs less than the peak."""
    p = program(text)
    c = solve(p, p.gpus or 8, keep=0)
    pick = np.random.default_rng(3)
    some = c.search.legal.take(pick.permutation(c.search.legal.rows)[:200])
    rows = some.times(c.search.policies.take(pick.permutation(c.search.policies.rows)[:50]).axes)
    peak = c.cost.memory(rows)
    for case in ("high", "best"):
        assert np.all(peak <= p.hardware.shown - c.cost.spare(rows, case))


def test_a_limit_may_be_a_let() -> None:
    """It is bounded without an axis, before the layouts on more GPUs are known."""
    mine = f"rules mine {{ let most = 2 / 100\n require x: step_time < most {WHY} }}"
    p = program(f"qwen3_30b_a3b; h100 x 16; throughput first\n{mine}")
    assert fast_enough(facts(p, 16), 0.01) and not fast_enough(facts(p, 16), 0.03)


def test_a_limit_of_tokens_is_one_of_the_step_time() -> None:
    """A step of 1024 sequences of 4,096 tokens on 16 GPUs."""
    head, seconds = "qwen3_30b_a3b; h100 x 16; fit first; seq 4k; batch 1024; require ", 1024 * 4096 / 6000 / 16
    tokens, time = (
        solve(program(head + r), 16).solution.rows for r in ("tokens_per_s_per_gpu >= 6000", f"step_time <= {seconds}")
    )
    assert tokens == time != ()


WISHES = [
    "prefer step_time < 0.1", "prefer 0.1 > score and tp > 1", "prefer peak_memory * 2 < 1 GB", "prefer spare_memory > 185 GB", "prefer spare_at_best > 185 GB or step_time < 0.1",
]  # fmt: skip


@functools.cache
def at_256_gpus(wish: str) -> Solution:
    return solve(program(f"deepseek_v3\ngb200 x 256\nthroughput first\n{wish}"), 256).solution


@pytest.mark.parametrize("wish", rotation.some("wishes", WISHES, 1))
def test_a_wish_that_no_layout_follows_leaves_the_best_as_it_is(wish: str) -> None:
    """And the search short: each mesh is known not to follow it, and most are never expanded."""
    plain, wished = at_256_gpus(""), at_256_gpus(wish)
    assert [row.codes for row in wished.rows] == [row.codes for row in plain.rows]
    assert wished.priced < wished.legal

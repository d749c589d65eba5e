"""Memory against speed, against every layout one by one, and against the search with another ranking."""

import itertools
import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from moedsl.compiler import compile_source
from moedsl.facts.axes import MEMORY_POLICIES, TRANSPORT_POLICIES
from moedsl.planner import experiment
from moedsl.planner.plan import GpusTime, Pareto, Plan
from moedsl.queries.pareto import Front, beats, behind, pareto, pareto_text
from moedsl.solver.laws import Row, compile_problem
from moedsl.solver.problem import lower
from moedsl.solver.search import Solution
from moedsl.solver.solve import Chosen, make_cost, solve
from moedsl.solver.space import combinations_of, mesh_table, policy_table
from moedsl.support.json_form import ABSENT
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.fake_prices import FakePrices
from tests.helpers.small_programs import SMALL, WHY, WIDE, program, texts
from tests.oracles.naive_search import PRICES, Naive

Prices = set[tuple[float, float]]


def one_by_one(chosen: Chosen, prices: Any) -> Prices:
    """The pairs of prices that no other feasible row beats, from all of them."""
    naive = Naive(chosen.problem, prices, chosen.cost.has_layout)
    legal = naive.legal()
    if not legal:
        return set()
    columns = {n: np.array([row[n] for row, _ in legal]) for n in legal[0][0]}
    caps, found = naive.about(PRICES), list[tuple[float, float]]()
    for (_, env), values in zip(legal, naive.priced(columns), strict=True):
        env |= values
        b, t = env["peak_memory"], env["step_time"]
        env["score"] *= naive.advice(env)
        if np.isfinite(b) and np.isfinite(t) and not naive.broken(caps, env):
            found.append((b, t))
    points = sorted(set(found))
    fastest = itertools.accumulate((t for _, t in points), min, initial=math.inf)
    return {p for p, before in zip(points, fastest, strict=False) if p[1] < before}


def front(chosen: Chosen) -> list[Row]:
    return Front(chosen.compiled, chosen.cost).rows()


def compared(text: str, fake: bool) -> int:
    p = program(text)
    problem = lower(p, p.gpus or 8)
    cost = make_cost(problem)
    prices = (
        FakePrices(p.model, problem.gpus, problem.values["seq"], problem.global_batch, p.hardware.shown)
        if fake
        else cost
    )
    compiled = compile_problem(problem, {"has_layout": cost.has_layout})
    rows = Front(compiled, cost if not fake else prices).rows()  # type: ignore[arg-type]
    want = one_by_one(Chosen(problem, compiled, cost, Solution((), 0, 0)), prices)
    assert {(r.peak_memory, r.step_time) for r in rows} == want, text
    assert len(rows) == len(want)
    return len(want)


SPACES = [
    f"qwen3_30b_a3b; h100 x 8; throughput first; pin micro_batch=1{SMALL}",
    f"qwen3_30b_a3b; gb200 x 8; fit first; seq 16k{SMALL}",
    f"gpt_oss_120b; b300 x 6; scale first{SMALL}",
    f"moonlight_16b; b200 x 4; throughput first; precision auto; pin micro_batch=1{SMALL}",
    f"moonlight_16b; gb200 x 12; throughput first; require peak_memory < 60 GB; require step_time < 90{SMALL}",
    f"qwen3_30b_a3b; gb200 x 4; throughput first; pin micro_batch=1; require score < 60{SMALL}",
    f"moonlight_16b; gb200 x 8; rules r {{ candidates sharding = [optimizer, fsdp] {WHY}\n candidates moments = [fp32, bf16] {WHY} }}{SMALL}",
    f"deepseek_v3; h100 x 8; fit first{SMALL}",
]


@pytest.mark.parametrize(
    "text, fake",
    rotation.one_of_each("fronts", [*product(rotation.some("spaces", SPACES, 1), (True, False))], lambda case: case[0]),
)
def test_the_front_is_that_of_every_row(text: str, fake: bool) -> None:
    points = compared(text, fake)
    assert points > 1 or "deepseek_v3" in text


@settings(max_examples=6 if rotation.ALL else 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts())
def test_the_front_of_any_small_space(text: str) -> None:
    compared(text, fake=False)


@pytest.mark.parametrize("text", rotation.some("bounds of times", WIDE, 1))
def test_no_row_is_faster_than_its_bound(text: str) -> None:
    """With what is held fixed, no policy of communication or launches is faster than the ideal one."""
    p = program(text)
    chosen = solve(p, p.gpus or 8, keep=0)
    search = Front(chosen.compiled, chosen.cost)
    meshes, policies = mesh_table(search.c), policy_table(search.c, MEMORY_POLICIES + TRANSPORT_POLICIES)
    held = search._held(meshes.take(np.random.default_rng(1).permutation(meshes.rows)[:60]), policies)
    bounded = held.with_columns(least=search._least_times(held))
    rows = bounded.times(combinations_of(policies, TRANSPORT_POLICIES))
    assert np.all(chosen.cost.time(rows) >= rows["least"] * (1 - 1e-12))


RANKED = "qwen3_235b_a22b; gb200 x 256; throughput first; rules mine {{ rank mine: [{0}, {1}] {2} }}"


def test_the_ends_are_what_the_search_finds_by_one_price() -> None:
    """At 256 GPUs, where not every row can be looked at: the leanest of all, and the fastest."""
    plain = solve(program("qwen3_235b_a22b; gb200 x 256; throughput first"), 256)
    rows = front(plain)
    for end, order in ((rows[0], ("peak_memory", "step_time")), (rows[-1], ("step_time", "peak_memory"))):
        best = solve(program(RANKED.format(*order, WHY)), 256, keep=1).solution.rows[0]
        assert (end.peak_memory, end.step_time) == (best.peak_memory, best.step_time)
    assert not any(beats(a, b) for a in rows for b in (*rows, *plain.solution.rows) if b in rows)
    assert all(any(beats(a, b) or a.keys == b.keys for a in rows) for b in plain.solution.rows)


def test_between_the_ends_it_is_what_the_search_finds_within_a_memory() -> None:
    """The fastest layout within some memory is a point of the front, from a compile with that law alone."""
    text = "deepseek_v3; h100 x 256; throughput first"
    rows = front(solve(program(text), 256))
    for row in rows[1 :: max(1, len(rows) // 4)]:
        cap = f"require peak_memory <= {row.peak_memory:.0f}"
        best = solve(program(f"{text}; {cap}; rules r {{ rank r: [step_time] {WHY} }}"), 256, keep=1)
        assert best.solution.rows[0].step_time == row.step_time


def test_the_plan_is_placed_beside_the_front() -> None:
    result = compile_source(Source("run.moe", "qwen3_30b_a3b; h100 x 16; throughput first"))
    (chosen,) = result.chosen
    found = pareto(chosen).memory_time
    plan, points = found.plan, found.points
    assert plan.step_time_s == result.plans[0].estimate.step_time_s
    for i, p in enumerate(points):
        better = p.peak_gib <= plan.peak_gib and p.step_time_s <= plan.step_time_s
        assert (i in plan.beaten_by) == (better and p.layout != _layout(result.plans[0]))
    assert plan.on_front == (not plan.beaten_by)


def test_a_layout_that_ranks_equal_is_behind_by_no_key() -> None:
    """It needs less memory in the same time, which the ranking does not read."""
    (chosen,) = compile_source(
        Source("run.moe", "deepseek_v2_lite; gb200 x 128; batch 64; throughput first"), "solve"
    ).chosen
    plan, keys = chosen.solution.rows[0], len(chosen.compiled.ranks)
    ahead = [row for row in front(chosen) if beats(row, plan)]
    equal = [row for row in ahead if row.keys[:keys] == plan.keys[:keys]]
    assert equal and all(behind(chosen, row) is None for row in equal)


@pytest.mark.parametrize(
    ("more", "key"), [("seq 128k; fit first", "model_parallel"), ("seq 128k; fit first; prefer tp == 1", "tp == 1")]
)
def test_what_beats_the_plan_is_behind_by_the_key_that_decides(more: str, key: str) -> None:
    """The first unequal key, whose values a run with that layout pinned has too."""
    text = f"qwen3_235b_a22b; gb200 x 256; {more}"
    result = compile_source(Source("run.moe", text))
    (chosen,) = result.chosen
    found = pareto(chosen).memory_time
    ahead = [found.points[i] for i in found.plan.beaten_by]
    assert ahead and all(p.behind.plan < p.behind.value for p in ahead)
    fastest = min(ahead, key=lambda p: p.step_time_s)
    assert fastest.behind.key == key
    if key == "model_parallel":
        here, there = (x["tp"] * x["cp"] * x["pp"] for x in (result.plans[0].layout.to_json(), fastest.layout))
        assert (fastest.behind.plan, fastest.behind.value) == (here, there)
    said = pareto_text(result.plans[0], Pareto(found, GpusTime(None, (), ())))
    assert f"`{key}`" in said and "leaving" not in said
    assert all(p.behind is ABSENT for i, p in enumerate(found.points) if i not in found.plan.beaten_by)


def _layout(plan: Plan) -> dict[str, Any]:
    axes = experiment.settings(plan.layout, plan.batch, plan.policy)
    return {n: axes[n] for n in ("pp", "tp", "cp", "etp", "ep", "vpp", "micro_batch", "recompute", "offload", "offload_modules", "dispatcher", "cuda_graph", "ep_overlap", "delay_wgrad", "precision", "sharding", "moments", "grad_reduce")}  # fmt: skip

"""A refusal looks at few rows: it shares what the tried sizes have in common, and judges the cheapest laws first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from moedsl.compiler import compile_source
from moedsl.diagnostics.source import Source
from moedsl.explainer import more_gpus
from moedsl.explainer.more_gpus import GAIN
from moedsl.schema.gpu_counts import counts
from moedsl.solver.fits import fast_enough
from moedsl.solver.legal import legal_on
from moedsl.solver.problem import facts
from moedsl.solver.search import LEAST_TIME, Search
from moedsl.solver.solve import solve
from moedsl.solver.table import Table
from tests.helpers import rotation
from tests.helpers.small_programs import WHY, program

OVERLAP = f"candidates ep_overlap = [false, true] {WHY}"
CASES = [
    ("qwen3_30b_a3b; b200 x 55440; seq 128; batch 1; throughput first; precision mxfp8", 3_000_000),
    (
        "glm45_355b; h100 x 55440; scale first; seq 1M; batch 1; prefer spare_memory > 20 GB\n"
        f"rules r {{ candidates micro_batch = [8, 4, 17, 9] {WHY}\n candidates delay_wgrad = [false, true] {WHY} }}",
        20_000_000,
    ),
    (
        "kimi_k2; h200_nvl x 55440; scale first; seq 16k; batch 720720; require step_time < 60\n"
        f"rules r {{ candidates tp = [4, 24, 2, 1, 38, 8] {WHY}\n candidates cp = [1, 2, 8, 4, 62, 26] {WHY}\n {OVERLAP} }}",
        1_000_000,
    ),
    ("deepseek_v3; h100 x 2048; throughput first; require step_time < 0.1", 2_000_000),
    ("qwen3_235b_a22b; h100 x 10080; throughput first; seq 1M; batch 720; precision mxfp8; pin delay_wgrad=true", 15_000_000),
    (
        "glm45_355b; gb200 x 10080; fit first; seq 55440; batch 55440\n"
        f"rules r {{ candidates cuda_graph = [[full_iteration], [moe_preprocess]] {WHY}\n"
        f" candidates recompute = [[layernorm], [mlp], [moe_act], [core_attn]] {WHY} }}",
        3_000_000,
    ),
]  # fmt: skip
NAMES = [
    "length and batch",
    "nearest layout",
    "time and memory",
    "time on more GPUs",
    "precision pin",
    "policies alone",
]
COMBINED = [
    (
        "glm45_355b; h200 x 2520; throughput first; seq 55440; batch 65536; require step_time < 60; pin ep_overlap=true\n"
        f"rules r {{ candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act]] {WHY} }}",
        200_000,
    ),
    (
        "deepseek_v3; h100 x 2520; throughput first; seq 5040; batch 720720; pin pp=2\n"
        "prefer big: dispatcher != alltoall and tp == 2\n"
        f"rules r {{ candidates recompute = [none, [layernorm], [core_attn], [moe_act]] {WHY}\n"
        f" candidates offload_modules = [none, [mlp_norm], [attn_norm]] {WHY} }}",
        250_000,
    ),
    (
        "kimi_k25; vr200 x 1024; fit first; seq 5040; batch 65536; precision mxfp8\n"
        f"rules r {{ candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act], [core_attn]] {WHY}\n"
        f" candidates recompute = [none, [layernorm], [core_attn], [moe_act]] {WHY} }}",
        200_000,
    ),
]


SLOWEST = [
    *(text for text, _ in CASES + COMBINED),
    "kimi_k25; b200 x 1024; throughput first; batch 512; require spare_memory > 150 GiB",
    "glm45_355b; b200 x 4096; throughput first; require step_time < 1",
    "minimax_m3; h20 x 240; throughput first; require peak_memory < 1 GB",
    "qwen3_vl_235b_a22b; gb300 x 2048; throughput first; require peak_memory < 3 GB",
    "qwen3_30b_a3b; h800 x 1000; throughput first; seq 64k; batch 1024; precision auto; require step_time < 0.2",
    "qwen3_coder_480b_a35b; h100 x 72; throughput first; seq 64k; require spare_memory > 20 GiB\n"
    f"rules r {{ candidates recompute = [none, [layernorm], [core_attn], [moe_act], [mlp]] {WHY}\n"
    f" candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act], [core_attn]] {WHY} }}",
]
"""Refusals that took longest before what they looked at was cut."""


def refused(text: str, methods: Sequence[str], patch: pytest.MonkeyPatch) -> int:
    """The rows that some methods of a table make while a program is refused."""
    rows = 0

    def counting(make: Callable[..., Table]) -> Callable[..., Table]:
        def counted(*args: Any) -> Table:
            nonlocal rows
            table = make(*args)
            rows += table.rows
            return table

        return counted

    for name in methods:
        patch.setattr(Table, name, counting(getattr(Table, name)))
    assert compile_source(Source("run.moe", text), "solve").failed
    return rows


@pytest.mark.parametrize(
    ("text", "most"), [pytest.param(*CASES[i], id=NAMES[i]) for i in rotation.some("rows", range(len(CASES)), 1)]
)
def test_rows_of_a_refusal(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = refused(text, ["grow", "times"], monkeypatch)
    assert rows < most, f"{rows:,}"


PRICED = ("pinned policy", "wish on mesh and policy", "time first")


@pytest.mark.parametrize(
    ("text", "most"), [pytest.param(*COMBINED[i], id=PRICED[i]) for i in rotation.some("priced", range(len(PRICED)), 1)]
)
def test_layouts_that_a_refusal_prices(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of meshes with policies: those that a bound, a wish or a law with a pinned value refuses are no rows."""
    rows = refused(text, ["times"], monkeypatch)
    assert rows < most, f"{rows:,}"


BATCH_OF_MORE_GPUS = "glm45_355b; b200 x 4096; throughput first; require step_time < 1"
"""The batch grows with the GPUs, so that each number of them is tried."""


TIMED_ONCE = [(CASES[3][0], 1_000_000), (BATCH_OF_MORE_GPUS, 1_000_000)]


@pytest.mark.parametrize(("text", "most"), [(CASES[1][0], 0), *rotation.some("timed once", TIMED_ONCE, 1)])
def test_meshes_that_a_refusal_times(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A space that fits in no case of the memory estimate is not timed, and searches of the same space time it once."""
    rows, time = 0, Search._least_time

    def counted(search: Search, meshes: Table) -> Any:
        nonlocal rows
        rows += 0 if LEAST_TIME in meshes.axes else meshes.rows
        return time(search, meshes)

    monkeypatch.setattr(Search, "_least_time", counted)
    assert compile_source(Source("run.moe", text), "solve").failed
    assert rows <= most, f"{rows:,}"


BOUNDED = [
    ("minimax_m3; h20 x 240; throughput first; require peak_memory < 1 GB", 3_000_000),
    (
        "deepseek_v3; gh200 x 10080; fit first; precision fp8; require spare_memory > 150 GiB\n"
        f"rules r {{ candidates micro_batch = [1, 2, 3, 4, 5, 6, 7, 8] {WHY}\n"
        f" candidates offload_modules = [none, [mlp_norm], [attn_norm], [moe_act], [core_attn]] {WHY} }}",
        2_000_000,
    ),
]


@pytest.mark.parametrize(("text", "most"), rotation.some("bounded", BOUNDED, 1))
def test_memory_that_a_refusal_bounds(text: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meshes with policies: those that cannot hold their weights, or have no such policy, are not bounded."""
    rows, priced = 0, Search._priced_with

    def counted(search: Search, price: str, table: Table, policies: Any) -> Any:
        nonlocal rows
        rows += table.rows * len(policies)
        return priced(search, price, table, policies)

    monkeypatch.setattr(Search, "_priced_with", counted)
    assert compile_source(Source("run.moe", text), "solve").failed
    assert rows < most, f"{rows:,}"


ONE_BY_ONE = [
    ("kimi_k25; a800 x 2520; throughput first; seq 128; batch 512; require spare_memory > 100 GiB", 0),
    (BOUNDED[0][0], 5),
]
TOO_SLOW = "qwen3_30b_a3b; h800 x 1000; throughput first; seq 64k; batch 1024; precision auto; require step_time < 0.2"


@pytest.mark.parametrize(("text", "most"), [(TOO_SLOW, 0), *rotation.some("one by one", ONE_BY_ONE, 1)])
def test_numbers_of_gpus_that_a_refusal_solves_one_by_one(
    text: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those on which no GPU can be fast enough, or no rank can hold its weights, are refused together."""
    solved, solve_ = [], more_gpus.solve

    def counted(p: Any, gpus: int, **more: Any) -> Any:
        solved.append(gpus)
        return solve_(p, gpus, **more)

    monkeypatch.setattr(more_gpus, "solve", counted)
    assert compile_source(Source("run.moe", text), "solve").failed
    assert len(solved) <= most, solved


@pytest.mark.parametrize(
    "text",
    rotation.some(
        "on more GPUs", ["qwen3_30b_a3b; h100 x 72; batch 720", "moonlight_16b; gb200 x 56; throughput first"], 1
    ),
)
def test_a_gpu_is_not_much_faster_in_a_run_on_more(text: str) -> None:
    p = program(text)
    assert p.gpus

    def rate(gpus: int) -> float:
        c = solve(p, gpus, keep=0)
        return float(c.cost.tokens_per_second_per_gpu(c.search.least_seconds)) if legal_on(c.compiled) else 0

    assert max(map(rate, counts(p.hardware, above=p.gpus))) < GAIN * rate(p.gpus)


def test_a_step_without_an_end_is_too_slow_for_a_limit_alone() -> None:
    run = "qwen3_30b_a3b; h100 x 8"
    assert fast_enough(facts(program(run), 8), math.inf)
    assert not fast_enough(facts(program(f"{run}; require step_time < 60"), 8), math.inf)

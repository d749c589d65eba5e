"""The search against a naive enumeration with the scalar evaluator, and against itself."""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings

from moedsl.checker.program import Program
from moedsl.compiler import compile_source
from moedsl.diagnostics.source import Source
from moedsl.rules.interpreter import evaluate, holds
from moedsl.rules.rule import Rule
from moedsl.schema import axes
from moedsl.schema.axes import HELD, MOVED
from moedsl.solver.laws import compile_problem
from moedsl.solver.lower import lower
from moedsl.solver.problem import Problem
from moedsl.solver.question import Question
from moedsl.solver.search import Search, Solution, mesh_table, policy_table
from moedsl.solver.solve import make_cost
from moedsl.solver.top_k import Kept
from moedsl.syntax import ast
from tests.helpers.fake_prices import FakePrices
from tests.oracles.some_layout import some_layout

MESH = ("pp", "vpp", "tp", "cp", "etp", "ep", "micro_batch")
POLICIES = tuple(a.name for a in axes.AXES if a.name not in MESH)
KEEP = 5


def program(text: str) -> Program:
    result = compile_source(Source("run.moe", text), "check")
    assert result.programs and not result.failed, result.diagnostics
    return result.programs[0]


# ---------------------------------------------------------------- the naive search


def inline(e: Any, lets: dict[str, ast.Expr]) -> Any:
    """An expression with every let written out."""
    if isinstance(e, ast.Name):
        return inline(lets[e.id], lets) if e.id in lets else e
    if isinstance(e, ast.List):
        return evolve(e, items=tuple(inline(i, lets) for i in e.items))
    if isinstance(e, ast.Call):
        return evolve(e, args=tuple(inline(a, lets) for a in e.args))
    if isinstance(e, ast.Unary):
        return evolve(e, value=inline(e.value, lets))
    if isinstance(e, ast.Binary):
        return evolve(e, left=inline(e.left, lets), right=inline(e.right, lets))
    if isinstance(e, ast.If):
        return ast.If(inline(e.test, lets), inline(e.then, lets), inline(e.otherwise, lets), e.span)
    return e


def words_of(e: Any) -> set[str]:
    """Every name in an expression."""
    if isinstance(e, ast.Name):
        return {{"overlap.ep": "ep_overlap", "overlap.wgrad": "delay_wgrad"}.get(e.id, e.id)}
    parts = {
        ast.List: ("items",), ast.Call: ("args",), ast.Unary: ("value",), ast.Binary: ("left", "right"),
        ast.If: ("test", "then", "otherwise"),
    }.get(type(e), ())  # fmt: skip
    children = itertools.chain(*(v if isinstance(v, tuple) else (v,) for v in (getattr(e, p) for p in parts)))
    return set().union(*(words_of(c) for c in children))


PRICES = {"peak_memory", "spare_memory", "step_time", "score"}
Law = tuple[Any, Any, Rule]
"""When it applies, what it says, and the rule."""


class Naive:
    """Every row, one by one, with the scalar evaluator."""

    def __init__(self, problem: Problem, prices: Any, has_layout: Any) -> None:
        self.problem, self.prices = problem, prices
        self.values = {**problem.values, "has_layout": functools.cache(lambda pp, vpp: bool(has_layout(pp, vpp)))}
        self.laws = [law for law in self.rules("require") if self.may_apply(law)]
        self.prefers = [law for law in self.rules("prefer") if self.may_apply(law)]
        ranks = sorted(self.rules("rank"), key=lambda x: x[2].id.startswith("std."))
        keys = next(e for w, e, _ in ranks if holds(w, self.problem.values))
        self.keys = keys.items if isinstance(keys, ast.List) else (keys,)

    def rules(self, kind: str) -> list[Law]:
        p = self.problem.program
        lets = {r.name: r.expr for r in p.of("let")}
        return [(r.when and inline(r.when, lets), inline(r.expr, lets), r) for r in p.of(kind) if r.id not in p.allows]

    def may_apply(self, law: Law) -> bool:
        """Whether its condition is open, or fixed and true."""
        return bool(words_of(law[0]) & {*MESH, *POLICIES, *PRICES}) or holds(law[0], self.values)

    def about(self, names: set[str]) -> list[Law]:
        return [law for law in self.laws if (words_of(law[0]) | words_of(law[1])) & names]

    def product(self, names: tuple[str, ...]) -> Iterator[dict[str, int]]:
        domains = [sorted(int(v) for v in self.problem.domains[n]) for n in names]
        yield from (dict(zip(names, values, strict=True)) for values in itertools.product(*domains))

    def broken(self, laws: list[Law], env: dict[str, Any]) -> bool:
        return any(holds(w, env) and not holds(e, env) for w, e, _ in laws)

    def meshes(self) -> list[dict[str, int]]:
        """The meshes that obey every law that speaks of nothing but meshes and what is fixed."""
        other = self.about({*POLICIES, *PRICES})
        laws, env = [law for law in self.laws if law not in other], dict(self.values)
        return [mesh for mesh in self.product(MESH) if not self.broken(laws, env | mesh)]

    def legal(self) -> list[tuple[dict[str, int], dict[str, Any]]]:
        """(row, every value) of each row that obeys the laws that need no price."""
        priced = self.about(PRICES)
        alone = [
            law
            for law in self.about({*POLICIES})
            if law not in priced and not (words_of(law[0]) | words_of(law[1])) & {*MESH}
        ]
        mixed = [law for law in self.about({*POLICIES}) if law not in priced and law not in alone]
        policies = [(codes, decoded(codes)) for codes in self.product(POLICIES)]
        policies = [(c, d) for c, d in policies if not self.broken(alone, self.values | d)]
        rows = ((mesh | c, {**self.values, **mesh, **d}) for mesh in self.meshes() for c, d in policies)
        return [(row, env) for row, env in rows if not self.broken(mixed, env)]

    def rows(self) -> list[tuple[tuple[float, ...], dict[str, int], float]]:
        """(rank, row, memory) of every row that also fits, best first."""
        found = self.legal()
        columns = {n: np.array([r[n] for r, _ in found]) for n in (*MESH, *POLICIES)}
        if not found:
            return []
        memory, spare, time = self.prices.memory(columns), self.prices.spare(columns), self.prices.time(columns)
        caps, out = self.about(PRICES), []
        for (row, env), b, left, t in zip(found, memory, spare, time, strict=True):
            env |= {"peak_memory": float(b), "spare_memory": float(left), "step_time": float(t), "score": float(t)}
            env["score"] *= self.advice(env)
            if np.isfinite(b) and np.isfinite(t) and not self.broken(caps, env):
                out.append((self.rank(row, env), row, float(b)))
        return sorted(out, key=lambda x: x[0])

    def advice(self, env: dict[str, Any]) -> float:
        factor = 1.0
        for law in self.prefers:
            if not law[2].wish and self.broken([law], env):
                factor *= 1 + law[2].worth
        return factor

    def rank(self, row: dict[str, int], env: dict[str, Any]) -> tuple[float, ...]:
        wishes = [float(self.broken([law], env)) for law in self.prefers if law[2].wish]
        values = [float(evaluate(k, env)) for k in self.keys]
        return (*wishes, *values, *(float(row[a.name]) for a in axes.AXES))

    def best(self, keep: int) -> list[tuple[tuple[float, ...], dict[str, int], float]]:
        """The best row of each mesh, best first."""
        seen: dict[tuple[int, ...], Any] = {}
        for found in self.rows():
            seen.setdefault(tuple(found[1][n] for n in MESH), found)
        return list(seen.values())[:keep]


def decoded(codes: dict[str, int]) -> dict[str, Any]:
    """Codes as plain values: words, sets of words, numbers."""
    values = {n: axes.BY_NAME[n].decode(v) for n, v in codes.items()}
    return {n: frozenset(v) if isinstance(v, list) else v for n, v in values.items()}


# ---------------------------------------------------------------- programs

WHY = 'because "a test" cite ours "here"'
SMALL = f"""
rules small {{
  candidates vpp = [1, 2] {WHY}
  candidates micro_batch = [1, 2] when phase != fit {WHY}
  candidates recompute = [none, [moe_act], full] {WHY}
  candidates cuda_graph = [none, [moe_router, moe_preprocess]] when phase == throughput {WHY}
}}
"""
EXTRAS = [
    "pin tp=2", "pin pp=2 vpp=2", "pin ep=4", "pin etp=2", "pin cp=2", "pin micro_batch=2", "pin recompute=[moe_act]", "pin dispatcher=alltoall",
    "pin offload=optimizer", "pin ep_overlap=true", "pin dp=2", "require dp >= 2", "require tp * cp <= 2", "require full not in recompute",
    "require peak_memory < 70 GB", "require spare_memory > 5 GB", "prefer spare_memory > 20 GB", "require offload == none and ep > 1", "require step_time < 60", "prefer cp <= 1", "prefer tp > 1", "prefer moe_act in recompute",
    "prefer big: dispatcher != alltoall and tp == 2", "allow memory.fits", "allow dispatch_advice", "seq 16k", "batch 64", "precision auto", "vlm",
    f"rules mine {{ let r = recompute\n require m: moe_act in r or count(r) == 0 {WHY} }}", f"rules mine {{ rank r: [cp, -step_time, peak_memory] {WHY} }}",
    f"rules mine {{ prefer p: count(recompute) == 0 worth 30% {WHY}\n prefer q: tp == 1 worth 0% {WHY} }}", f"rules mine {{ require x: score < 90 {WHY} }}",
]  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> str:
    model = draw(st.sampled_from(["qwen3_30b_a3b", "gpt_oss_120b", "deepseek_v3", "moonlight_16b"]))
    machine = draw(st.sampled_from(["h100 x 8", "gb200 x 8", "b200 x 4", "gb200 x 12", "h200 x 6"]))
    phase = draw(st.sampled_from(["fit", "scale", "throughput"]))
    names = {"allow dispatch_advice", "vlm"}
    extras = [e for e in draw(st.lists(st.sampled_from(EXTRAS), max_size=3, unique=True)) if e not in names]
    rules = [e for e in extras if e.startswith("rules mine")]
    extras = [e for e in extras if not e.startswith("rules mine")] + rules[:1]
    return "\n".join([model, machine, f"{phase} first", *_compatible(extras)]) + SMALL


def _compatible(extras: list[str]) -> list[str]:
    """Without a second pin of the same axis."""
    said: set[str] = set()
    out = []
    for e in extras:
        keys = {w.split("=")[0] for w in e.split() if "=" in w} if e.startswith("pin") else set()
        if not keys & said:
            out.append(e)
        said |= keys
    return out


def searched(p: Program, prices: Any, functions: Any) -> Solution:
    problem = lower(p, p.gpus or 8)
    return Search(compile_problem(problem, {"has_layout": functions}), prices, KEEP).run()


def compare(text: str, fake: bool) -> None:
    p = program(text)
    problem = lower(p, p.gpus or 8)
    cost = make_cost(problem)
    prices = FakePrices(p.model, problem.gpus, problem.values["seq"], problem.global_batch) if fake else cost
    found = searched(p, prices, cost.has_layout)
    naive = Naive(problem, prices, cost.has_layout)
    want = naive.best(KEEP)
    assert len(found.rows) == len(want)
    for row, (rank, codes, memory) in zip(found.rows, want, strict=True):
        assert row.keys == pytest.approx(rank, rel=1e-9), (text, row.codes, codes)
        assert row.peak_memory == pytest.approx(memory)
        assert dict(row.codes) == codes
    if all(len(problem.domains[n]) for n in POLICIES):
        assert found.legal == len(naive.meshes())
    assert bool(found.rows) <= some_layout(compile_problem(problem, {"has_layout": cost.has_layout}))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts())
def test_the_search_finds_what_the_naive_one_finds(text: str) -> None:
    compare(text, fake=True)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts())
def test_with_real_prices(text: str) -> None:
    """The bounds rest on what the cost model promises: no policy is faster than the ideal, none holds less than the least."""
    compare(text, fake=False)


# ---------------------------------------------------------------- bounds, oracles, order

WIDE = [
    "qwen3_235b_a22b; gb200 x 64; throughput first; precision auto",
    "qwen3_30b_a3b; h100 x 48; scale first; seq 16k; precision fp8",
    "deepseek_v3; b200 x 64; throughput first; pin moments=bf16 grad_reduce=bf16",
    "gpt_oss_120b; h200 x 24; fit first; seq 32k",
    "qwen3_vl_30b_a3b; gb300 x 16; throughput first; vlm freeze_vision fsdp",
    f"moonlight_16b; h100 x 32; throughput first; rules r {{ candidates sharding = [optimizer, fsdp] {WHY}\n candidates moments = [fp32, bf16] {WHY}\n candidates grad_reduce = [fp32, bf16] {WHY} }}",
    "kimi_k2; gb200 x 128; scale first; seq 64k; sweep micro_batch in 1",
    f"qwen3_30b_a3b; gb200 x 64; throughput first; seq 64k; rules r {{ candidates cuda_graph = [[attn], [moe_router, moe_preprocess]] {WHY} }}",
]  # fmt: skip

FEW = (
    f"rules few {{ prefer a: tp == 8 and recompute == full {WHY}\n prefer b: micro_batch >= 4 and ep_overlap {WHY}\n"
    f" prefer c: dispatcher == alltoall and tp > 1 {WHY}\n prefer d: tp * pp == 7 {WHY} }}"
)


def _search(text: str) -> Search:
    p = program(text)
    problem = lower(p, p.gpus or 8)
    cost = make_cost(problem)
    return Search(compile_problem(problem, {"has_layout": cost.has_layout}), cost, KEEP)


@pytest.mark.parametrize("text", WIDE)
def test_no_row_is_better_than_its_bound(text: str) -> None:
    """Ideal policies are never slower and the least policies never hold more, in every row of a sample of meshes."""
    search = _search(text)
    meshes, policies = mesh_table(search.c), policy_table(search.c, HELD + MOVED)
    sample = meshes.take(np.random.default_rng(0).permutation(meshes.rows)[:150])
    sample = sample.with_columns(least=search._least_memory(sample))
    bounds = search._bounds(sample, policies)
    rows = sample.with_columns(mesh=np.arange(sample.rows)).times(policies.axes)
    spare = search.prices.spare(rows)
    rows = rows.with_columns(
        peak_memory=search.prices.memory(rows), spare_memory=spare, step_time=search.prices.time(rows)
    )
    rows = rows.with_columns(score=rows["step_time"] * search._advice(rows))
    assert np.all(rows["peak_memory"] >= rows["least"] * (1 - 1e-12)), _worst(rows, rows["peak_memory"] / rows["least"])
    for key, bound in zip(search._keys(rows), bounds, strict=True):
        assert np.all(key >= bound[rows["mesh"]] - 1e-12 * np.abs(key)), _worst(rows, key / bound[rows["mesh"]])


@pytest.mark.parametrize("text", WIDE[:5])
def test_many_questions_in_one_pass_are_many_searches(text: str) -> None:
    """The best rows that obey one law more, of every advice and of laws that few rows or none obey."""
    search = _search(f"{text}; {FEW}")
    laws = search.c.advice + search.c.wishes
    assert any(not law.needs & frozenset(HELD + MOVED) for law in laws)
    space = search.run().space
    assert space is not None
    alone = [evolve(search, c=evolve(search.c, laws=(*search.c.laws, law))).run().rows for law in laws]
    kept = [Kept(KEEP, Question(law=law)) for law in laws]
    search.each(space, kept)
    assert [[r.codes for r in k.rows] for k in kept] == [[r.codes for r in a] for a in alone]
    assert len({len(rows) for rows in alone}) > 1


def _worst(rows: Any, ratio: Any) -> dict[str, Any]:
    i = int(np.argmin(ratio))
    return {a.name: a.decode(int(rows[a.name][i])) for a in axes.AXES} | {"ratio": float(ratio[i])}


TWICE = """
import json, sys
from moedsl.compiler import compile_source
from moedsl.diagnostics.source import Source
print(json.dumps([p.to_json() for p in compile_source(Source("run.moe", sys.argv[1])).plans]))
"""


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    text = "qwen3_30b_a3b; gb200 x 32; throughput first; prefer tp == 2; precision auto"
    out = [
        subprocess.run(
            [sys.executable, "-c", TWICE, text],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    ]
    assert len(json.loads(out[0])) == 1
    assert out[0] == out[1] == out[2]

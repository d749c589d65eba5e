"""The search against a naive enumeration with the scalar evaluator, and against itself."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import pytest
from attrs import astuple, evolve
from hypothesis import HealthCheck, given, settings

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.facts import axes
from moedsl.facts.axes import BY_NAME, MEMORY_POLICIES, MESH, TRANSPORT_POLICIES, WEIGHTS
from moedsl.facts.machines import gpu_counts as counts
from moedsl.facts.symbols import CASES, SPARES
from moedsl.rules.check.program import Program
from moedsl.solver.bounded_space import memory_prices
from moedsl.solver.fits import _joined, least_seconds
from moedsl.solver.laws import Law, Mask, Table, compile_problem, obeyed, obeying
from moedsl.solver.neighbours import judged
from moedsl.solver.problem import Problem, lower
from moedsl.solver.search import Question, Search, Solution, TopK, least
from moedsl.solver.solve import make_cost, solve
from moedsl.solver.space import mesh_table, policy_table
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.fake_prices import FakePrices
from tests.helpers.programs import solved
from tests.helpers.small_programs import WHY, WIDE, program, texts
from tests.oracles.naive_search import KEEP, POLICIES, Naive
from tests.oracles.some_layout import some_layout


def by_bounds() -> AbstractContextManager[Any]:
    """Else a space of few rows is searched without bounds."""
    return mock.patch("moedsl.solver.search.FEW", 0)


def searched(problem: Problem, prices: Any, functions: Any) -> Solution:
    """By bounds, and without."""
    compiled = compile_problem(problem, {"has_layout": functions})
    every = Search(compiled, prices, keep=KEEP).run()
    with by_bounds():
        found = Search(compiled, prices, keep=KEEP).run()
    assert [(r.codes, r.keys) for r in found.rows] == [(r.codes, r.keys) for r in every.rows]
    return found


def compare(text: str, case: str, fake: bool) -> None:
    p = program(text)
    problem = lower(p, p.gpus or 8, {"must_fit": case})
    cost = make_cost(problem)
    prices = (
        FakePrices(p.model, problem.gpus, problem.values["seq"], problem.global_batch, p.hardware.shown)
        if fake
        else cost
    )
    found = searched(problem, prices, cost.has_layout)
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


@settings(max_examples=rotation.examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(texts(), st.sampled_from(CASES))
def test_the_search_finds_what_the_naive_one_finds(text: str, case: str) -> None:
    compare(text, case, fake=True)


@settings(max_examples=rotation.examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(texts(), st.sampled_from(CASES))
def test_with_real_prices(text: str, case: str) -> None:
    """The bounds rest on what the cost model promises: no policy is faster than the ideal, none holds less than the least."""
    compare(text, case, fake=False)


# ---------------------------------------------------------------- bounds, oracles, order

FEW = (
    f"rules few {{ prefer a: tp == 8 and recompute == full {WHY}\n prefer b: micro_batch >= 4 and ep_overlap {WHY}\n"
    f" prefer c: dispatcher == alltoall and tp > 1 {WHY}\n prefer d: tp * pp == 7 {WHY} }}"
)


def _search(text: str) -> Search:
    p = program(text)
    return _search_of(lower(p, p.gpus or 8))


def _search_of(problem: Problem) -> Search:
    cost = make_cost(problem)
    return Search(compile_problem(problem, {"has_layout": cost.has_layout}), cost, keep=KEEP)


SHORT_STAGES = f"gemma4_26b_a4b; h100 x 256; throughput first; batch 256; rules r {{ candidates recompute = [none, [moe_act]] {WHY}\n candidates offload_modules = [none, [moe_act], [attn_norm, core_attn, moe_act]] {WHY} }}"
"""Some hold less than two layers, and two layers of offloaded modules are on their way."""


@pytest.mark.parametrize("text", [*rotation.some("bounds of rows", WIDE, 1), SHORT_STAGES])
def test_no_row_is_better_than_its_bound(text: str) -> None:
    """Ideal policies are never slower and the least policies never hold more, in every row of a sample of meshes."""
    search = _search(text)
    meshes, policies = mesh_table(search.c), policy_table(search.c, MEMORY_POLICIES + TRANSPORT_POLICIES)
    sample = meshes.take(np.random.default_rng(0).permutation(meshes.rows)[:150])
    prices = ("peak_memory", *SPARES)
    ends = {f"end_of_{n}": search._most_frugal(n, sample, search._frugal) for n in prices}
    bounds = search._least_keys(sample, frozenset(MESH), search._least_time(sample), policies)
    rows = sample.with_columns(**ends, mesh=np.arange(sample.rows)).times(policies.axes)
    rows = obeying(rows, [w for w in search.c.laws if not w.priced])
    rows = rows.with_columns(**memory_prices(search.prices, prices, rows), step_time=search.prices.time(rows))
    rows = rows.with_columns(score=rows["step_time"] * math.prod(search._factors(rows).values()))
    least, worst = rows["end_of_peak_memory"], rows["peak_memory"] / rows["end_of_peak_memory"]
    assert np.all(rows["peak_memory"] >= least * (1 - 1e-12)), _worst(rows, worst)
    for name in SPARES:
        more = rows[name] - rows[f"end_of_{name}"]
        assert np.all(more[np.isfinite(more)] <= 1), (name, _worst(rows, -more))
    assert np.all(search.prices.held(rows) <= rows["peak_memory"] * np.where(rows["peak_memory"] < np.inf, 1, np.inf))
    shown = search.c.problem.program.hardware.shown
    assert all(np.all(shown - search.prices.held(rows) >= rows[name]) for name in SPARES)
    most = rows.with_columns(vpp=np.full(rows.rows, meshes.axes["vpp"].max()))
    assert np.all(search.prices.work(most) + search.prices.overhead <= rows["step_time"] * (1 + 1e-12))
    for key, bound in zip(search._keys(rows), bounds, strict=True):
        assert np.all(key >= bound[rows["mesh"]] - 1e-12 * np.abs(key)), _worst(rows, key / bound[rows["mesh"]])


SETS = [
    ("recompute", "[none, full]"), ("offload", "[none, optimizer]"), ("offload_modules", "[none, [moe_act]]"), ("precision", "[bf16, fp8_blockwise]"),
    ("sharding", "[optimizer, fsdp]"), ("moments", "[fp32, bf16]"), ("grad_reduce", "[fp32, bf16]"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "values"), SETS)
def test_a_law_on_a_policy_and_the_mesh_refuses_as_a_pin_and_a_law_on_the_mesh(policy: str, values: str) -> None:
    """A policy that uses less memory is no reason to leave out another one, if no mesh may have it."""
    usual = values[1:].split(",")[0]
    rules = f"rules r {{ candidates {policy} = {values} {WHY} }}"
    laws = f"require {policy} == {usual} and ep > 1", f"pin {policy}={usual}\nrequire ep > 1"
    with by_bounds():
        together, apart = (
            solve(program(f"qwen3_30b_a3b\nh100 x 64\nfit first\n{law}\n{rules}"), 64, keep=1) for law in laws
        )
    assert together.solution.rows == apart.solution.rows != ()


@pytest.mark.parametrize("pin", ["tp=2", "recompute=full"])
def test_a_search_without_a_pin_uses_the_tables_of_the_one_with_it(pin: str) -> None:
    """A layout that is no answer is left out before it is priced; a law that refuses it alone does so afterwards."""
    p = program(f"qwen3_30b_a3b\nh100 x 16\nthroughput first\npin {pin}\n")
    pinned, free = (_search_of(lower(q, 16)) for q in (p, evolve(p, pins={})))
    row = pinned.run().rows[0]
    near = Search(free.c, free.prices, near=pinned)
    other = evolve(free.c.ranks[0], needs=frozenset(row.codes), value=lambda t: ~_is(t, row.codes))
    asked, by_law = TopK(1, Question(but=row.codes), row.keys), TopK(1, Question(law=other), row.keys)
    near.fill([asked])
    free.fill([by_law])
    assert [(r.codes, r.keys) for r in asked.rows] == [(r.codes, r.keys) for r in by_law.rows] != []
    same = "policies" if pin.startswith("tp") else "legal"
    assert getattr(near, same) is getattr(pinned, same)
    changed = "legal" if same == "policies" else "policies"
    assert getattr(near, changed).rows == getattr(free, changed).rows > getattr(pinned, changed).rows


def _is(table: Table, codes: Mapping[str, int]) -> Mask:
    return np.logical_and.reduce([np.equal(table[name], code) for name, code in codes.items()])


@pytest.mark.parametrize("text", rotation.some("questions", WIDE[:5], 1))
def test_many_questions_in_one_pass_are_many_searches(text: str) -> None:
    """The best rows that obey one law more, of every advice and of laws that few rows or none obey."""
    search = _search(f"{text}; {FEW}")
    every = search.c.advice + search.c.wishes
    ours = [law for law in every if ".few." in law.rule.id]
    laws = ours + rotation.some("asked", [law for law in every if law not in ours], 5)
    assert len(ours) == 4
    assert any(not law.needs & frozenset(MEMORY_POLICIES + TRANSPORT_POLICIES) for law in laws)
    alone = [evolve(search, c=evolve(search.c, laws=(*search.c.laws, law))).run().rows for law in laws]
    kept = [TopK(KEEP, Question(law=law)) for law in laws]
    search.fill(kept)
    assert [[r.codes for r in k.rows] for k in kept] == [[r.codes for r in a] for a in alone]
    assert len({len(rows) for rows in alone}) > 1


WISHES = "; ".join(f"prefer {wish}" for wish in ("tp == 2", "pp >= 4", "cp == 1", "ep_overlap"))


@pytest.mark.parametrize("text", rotation.some("dropped", WIDE[:5], 1))
def test_questions_that_drop_advice_are_searches_without_it(text: str) -> None:
    """Asked together, and again with the answers of the first time as a start."""
    search = _search(f"{text}; {WISHES}")
    laws = [*rotation.some("dropped advice", search.c.advice, 4), *search.c.wishes]
    assert search.c.wishes

    def without(kept: tuple[Law, ...], law: Law) -> tuple[Law, ...]:
        return tuple(w for w in kept if w is not law)

    alone = [
        evolve(search, c=evolve(search.c, advice=without(search.c.advice, w), wishes=without(search.c.wishes, w)))
        for w in laws
    ]
    best = [a.run().rows[0].codes for a in alone]
    for _ in range(2):
        found = search.answers([Question(dropped=w.rule.id) for w in laws])
        assert [a.row and a.row.codes for a in found] == best


def _worst(rows: Any, ratio: Any) -> dict[str, Any]:
    i = int(np.argmin(ratio))
    return {a.name: a.decode(int(rows[a.name][i])) for a in axes.AXES} | {"ratio": float(ratio[i])}


TWICE = """
import json, sys
from moedsl.compiler import compile_source
from moedsl.support.source import Source
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
        for seed in ("0", "77")
    ]
    assert len(json.loads(out[0])) == 1
    assert out[0] == out[1]


# The neighbours of a chosen layout, compared with programs that pin them.

RUN = 'qwen3_30b_a3b; gb200 x 16; seq 4k; data "/d"; throughput first; pin tp=1 cp=1 ep=8 recompute=full micro_batch=1'


def test_without_a_pipeline_there_are_no_virtual_stages() -> None:
    (chosen,) = solved(f"{RUN} pp=2; require vpp > 1 or pp == 1").chosen
    row = chosen.solution.rows[0]
    (near,) = judged(chosen.compiled, chosen.cost, row, [(BY_NAME["pp"], 1)])
    (pinned,) = solved(f"{RUN} pp=1").chosen
    assert row.codes["vpp"] > 1
    assert near.refused_by is None
    assert near.codes == pinned.solution.rows[0].codes
    assert near.prices["step_time"] == pytest.approx(pinned.solution.rows[0].step_time)


def test_a_pinned_number_of_virtual_stages_stays() -> None:
    (chosen,) = solved(f"{RUN} pp=2 vpp=2").chosen
    (near,) = judged(chosen.compiled, chosen.cost, chosen.solution.rows[0], [(BY_NAME["pp"], 1)])
    assert near.refused_by == "std.mesh.vpp_needs_pp"


# The best row of a question, against a sort of all rows.


def test_the_least_position_is_the_first_of_a_sort() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        columns = [rng.choice([0.0, 1.0, 2.0, np.nan], 12) for _ in range(3)]
        columns.append(rng.permutation(12))
        at = np.flatnonzero(rng.random(12) < 0.7)
        ordered = at[np.lexsort([c[at] for c in reversed(columns)])]
        assert least(columns, at).tolist() == ordered[:1].tolist()


def _program(text: str) -> Program:
    (p,) = compile_source(Source("a.moe", text), "check").programs
    return p


def test_a_peak_that_no_rule_reads_is_priced_for_the_kept_rows() -> None:
    priced: list[int] = []

    class Counted(Cost):
        def memory(self, cols, way=None, policies=()):  # type: ignore[no-untyped-def]
            found = super().memory(cols, way, policies)
            priced.append(len(found))
            return found

    p = _program("qwen3_30b_a3b; h100 x 16")
    plain = solve(p, 16, keep=3)
    cost = Counted(*astuple(plain.cost, recurse=False))
    found = Search(plain.compiled, cost, keep=3)
    rows = found.run().rows
    (answer,) = found.answers([Question({"tp": rows[0].codes["tp"]})])
    assert [r.peak_memory for r in rows] == [float(plain.cost.memory(r.codes)[0]) for r in rows]
    assert answer.row is not None and answer.row.peak_memory == rows[0].peak_memory
    assert sum(priced) <= 4 < found.run().priced


# What is said of several numbers of GPUs at once holds on each of them, for every legal row of a sample.

OF_PIPES = [n for n in MESH if BY_NAME[n].mesh == "pipeline"]
ONE = "glm5_744b; vr200 x 512; scale first; batch 1"
FROM_100 = f"qwen3_30b_a3b; h100 x 48; throughput first; rules r when gpus > 100 {{ require few: tp * pp == 1 {WHY} }}"


@pytest.mark.parametrize("text", [*rotation.some("numbers of GPUs", WIDE, 1), FROM_100, ONE])
def test_no_row_of_any_number_is_better_than_their_bound(text: str) -> None:
    p = program(text)
    problems = [lower(p, n) for n in islice(counts(p.hardware, above=p.gpus or 8), 1, 24, 6)]
    joined, seconds = _joined(problems), least_seconds(problems)
    assert joined is not None and min(seconds) > 0
    policies, rows = policy_table(joined.c, MEMORY_POLICIES + TRANSPORT_POLICIES), 0
    for n, fastest in zip((x.gpus for x in problems), seconds, strict=True):
        c = solve(p, n, keep=0)
        for names in (WEIGHTS, OF_PIPES, [n for n in MESH if n not in OF_PIPES]):
            table = mesh_table(c.compiled, names)
            laws = [w for w in joined.c.laws if not w.priced and w.needs <= {*table.axes}]
            assert obeyed(laws, table.without_axes().with_columns(**table.axes)).all()
        meshes = mesh_table(c.compiled)
        some = meshes.take(np.random.default_rng(n).permutation(meshes.rows)[:60]).times(policies.axes)
        some = obeying(some, [w for w in c.compiled.laws if not w.priced])
        assert np.all(c.cost.time(some) >= fastest)
        rows += some.rows
    assert rows


def test_with_fewer_microbatches_than_stages_the_bubble_is_that_without_vpp() -> None:
    """The bound of all numbers together is then as sharp as that of the work of each number's own meshes."""
    p = program(f"{ONE}; require step_time < 0.1")
    problems = [lower(p, n) for n in islice(counts(p.hardware, above=512), 0, 32, 8)]
    for x, fastest in zip(problems, least_seconds(problems), strict=True):
        search = solve(p, x.gpus, keep=0).search
        some = next(iter(search.fastest(MEMORY_POLICIES + TRANSPORT_POLICIES)))
        work = search.prices.work(search.legal.assume(**some)).min() + search.prices.overhead
        assert 0.1 < fastest <= work < fastest * 1.001
    allowed = program(f'{ONE}; allow batch.interleaved_microbatches because "a test"')
    assert least_seconds([lower(allowed, 1152)])[0] < least_seconds([lower(p, 1152)])[0] / 2


TIGHT = [
    "qwen3_vl_235b_a22b; gb300 x 512; throughput first; require peak_memory < 12 GB",
    "deepseek_v3; h100 x 128; throughput first; risk oom",
    "qwen3_30b_a3b; h100 x 16; throughput first; require peak_memory < 30 GB",
]


@pytest.mark.parametrize("text", TIGHT)
def test_the_meshes_of_the_best_layouts_hold_their_weights(text: str) -> None:
    p = program(text)
    assert p.gpus
    found = solve(p, p.gpus)
    some, legal = found.search.meshes_that_hold_weights, found.search.legal
    assert found.search.could_hold and some.rows < legal.rows
    assert {tuple(mesh[n] for n in MESH) for mesh in some.each()} >= {
        tuple(row.codes[n] for n in MESH) for row in found.solution.rows
    }


# ----------------------------------------------------------------
# Combinations of values are found whatever the size of the values.


@pytest.mark.parametrize("largest", [3, 2**40])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "a"), ("b",)])
def test_distinct_rows(largest: int, names: tuple[str, ...]) -> None:
    rng = np.random.default_rng(len(names))
    values = rng.integers(-largest, largest, (4, 4))
    rows = np.stack([values[rng.integers(0, 4, 200), i] for i in range(4)])
    table = Table(dict(zip("abcd", rows, strict=True)), {}, {}).distinct(names)
    each = [tuple(row[n] for n in sorted(names)) for row in table.each()]
    known = [tuple(int(rows["abcd".index(n)][i]) for n in sorted(names)) for i in range(200)]
    assert each == list(dict.fromkeys(known))


def test_no_axis_is_one_row() -> None:
    table = Table({"a": np.array([1, 1])}, {}, {})
    assert table.distinct(()).rows == 1
    assert table.take(np.array([False, False])).distinct(()).rows == 0

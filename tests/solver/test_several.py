"""What is said of several numbers of GPUs at once holds on each of them, for every legal row of a sample."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from moedsl.facts.axes import MEMORY_POLICIES, TRANSPORT_POLICIES
from moedsl.facts.machines import gpu_counts as counts
from moedsl.solver.fits import _joined, least_memory, least_seconds
from moedsl.solver.laws import obeyed, obeying
from moedsl.solver.nearest import MEMORY, _ranked_by
from moedsl.solver.problem import lower
from moedsl.solver.solve import solve
from moedsl.solver.space import halves, mesh_table, policy_table, weights_table
from tests.helpers import rotation
from tests.helpers.small_programs import WHY, WIDE, program

ONE = "glm5_744b; vr200 x 512; scale first; batch 1"
FROM_100 = f"qwen3_30b_a3b; h100 x 48; throughput first; rules r when gpus > 100 {{ require few: tp * pp == 1 {WHY} }}"


@pytest.mark.parametrize("text", [*rotation.some("numbers of GPUs", WIDE, 1), FROM_100, ONE])
def test_no_row_of_any_number_is_better_than_their_bound(text: str) -> None:
    p = program(text)
    problems = [lower(p, n) for n in islice(counts(p.hardware, above=p.gpus or 8), 1, 24, 6)]
    joined, seconds = _joined(problems), least_seconds(problems)
    assert joined is not None and min(seconds) > 0
    policies, rows = policy_table(joined.c, MEMORY_POLICIES + TRANSPORT_POLICIES), 0
    for n, least in zip((x.gpus for x in problems), seconds, strict=True):
        c = solve(p, n, keep=0)
        for table in (weights_table(c.compiled), *halves(c.compiled)):
            laws = [w for w in joined.c.laws if not w.priced and w.needs <= {*table.axes}]
            assert obeyed(laws, table.without_axes().with_columns(**table.axes)).all()
        meshes = mesh_table(c.compiled)
        some = meshes.take(np.random.default_rng(n).permutation(meshes.rows)[:60]).times(policies.axes)
        some = obeying(some, [w for w in c.compiled.laws if not w.priced])
        assert np.all(c.cost.time(some) >= least)
        rows += some.rows
    assert rows


def test_with_fewer_microbatches_than_stages_the_bubble_is_that_without_vpp() -> None:
    """The bound of all numbers together is then as sharp as that of the work of each number's own meshes."""
    p = program(f"{ONE}; require step_time < 0.1")
    problems = [lower(p, n) for n in islice(counts(p.hardware, above=512), 0, 32, 8)]
    for x, least in zip(problems, least_seconds(problems), strict=True):
        search = solve(p, x.gpus, keep=0).search
        some = next(iter(search.fastest(MEMORY_POLICIES + TRANSPORT_POLICIES)))
        work = search.prices.work(search.legal.assume(**some)).min() + search.prices.overhead
        assert 0.1 < least <= work < least * 1.001
    allowed = program(f'{ONE}; allow batch.interleaved_microbatches because "a test"')
    assert least_seconds([lower(allowed, 1152)])[0] < least_seconds([lower(p, 1152)])[0] / 2


TIGHT = [
    "qwen3_vl_235b_a22b; gb300 x 512; throughput first; require peak_memory < 12 GB",
    "deepseek_v3; h100 x 128; throughput first; risk oom",
    "qwen3_30b_a3b; h100 x 16; throughput first; require peak_memory < 30 GB",
]


@pytest.mark.parametrize("text", TIGHT)
def test_a_search_without_meshes_that_hold_too_much_finds_the_same(text: str) -> None:
    p = program(text)
    assert p.gpus
    whole, screened = solve(p, p.gpus), solve(p, p.gpus, keep=0)
    like = screened.search
    assert like.could_hold
    found = solve(p, p.gpus, like=like)
    assert found.solution.rows == whole.solution.rows != ()
    assert found.search._meshes.rows < found.search.legal.rows == whole.search._meshes.rows


LEAST = [
    *TIGHT[1:],
    "qwen3_30b_a3b; h100 x 64; throughput first; prefer tp * pp == 1",
    "deepseek_v3; h100_pcie x 8; throughput first; batch 512; pin delay_wgrad=true",
]


@pytest.mark.parametrize("text", LEAST)
def test_the_least_memory_is_that_of_a_search_of_all_meshes(text: str) -> None:
    p = program(text)
    assert p.gpus
    ranked = _ranked_by(p, "peak_memory", (*MEMORY, "step_time"))
    whole = solve(ranked, p.gpus, 1, must_fit="low").solution.rows[0]
    found = least_memory(solve(ranked, p.gpus, 0, must_fit="low"))
    assert found is not None and (found.codes, found.keys) == (whole.codes, whole.keys)

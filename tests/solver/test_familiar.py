"""Among layouts that the estimate cannot tell apart, the one nearest to what has run is chosen, and the plan says so."""

import pytest

from moedsl.compiler import compile_source
from moedsl.solver import solve, uncertainty
from moedsl.solver.search import Search
from moedsl.solver.solve import Chosen
from moedsl.support.source import Source
from tests.helpers.programs import plan_of

LIKE_NVIDIA = "deepseek_v3; gb300 x 256; throughput first; precision mxfp8; pin moments=bf16; routing balanced"


def chosen(text: str) -> Chosen:
    (program,) = compile_source(Source("run.moe", text), "check").programs
    found = solve.choose(program, lambda _: None)
    assert isinstance(found, Chosen)
    return found


def test_the_layout_that_has_run_is_chosen() -> None:
    found = chosen(LIKE_NVIDIA)
    assert found.preference is not None
    first, fastest = found.solution.rows[0], found.preference.fastest
    assert first.codes["vpp"] == 8 != fastest.codes["vpp"]
    assert fastest.step_time < first.step_time < (1 + uncertainty.MOST) * fastest.step_time
    assert fastest in found.solution.rows


def test_the_plan_says_what_it_is_nearest_to() -> None:
    found = plan_of(LIKE_NVIDIA)
    (vpp,) = (d for d in found.decisions if d.name == "vpp")
    assert vpp.because is not None
    assert vpp.because.startswith("nearest to m0000 of docs/performance-summary.md 26.08; ")
    assert "is best by throughput, by less than the estimate can tell" in vpp.because
    (pp,) = (d for d in found.decisions if d.name == "pp")
    assert pp.because is not None and pp.because.startswith("best by throughput")


@pytest.mark.parametrize(
    "text",
    [
        f"{LIKE_NVIDIA}; pin vpp=16",
        "kimi_k2; h200 x 1024; throughput first",  # nothing has run
        "qwen3_30b_a3b; h100 x 16; fit first",  # the ranking is of other things than the step
    ],
)
def test_the_ranking_alone_decides(text: str) -> None:
    found = chosen(text)
    assert found.preference is None
    assert found.solution.rows == Search(found.compiled, found.cost, keep=solve.KEEP).run().rows


def test_one_row_is_the_first_of_many() -> None:
    """What a question asks of one layout is the plan's."""
    (program,) = compile_source(Source("run.moe", LIKE_NVIDIA), "check").programs
    (row,) = solve.plan_for(program, 256, keep=1).solution.rows
    assert row == chosen(LIKE_NVIDIA).solution.rows[0]

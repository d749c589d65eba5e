"""The neighbours of a chosen layout, compared with programs that pin them."""

from __future__ import annotations

import pytest

from moedsl.facts.axes import BY_NAME
from moedsl.solver.neighbours import judged
from tests.helpers.programs import solved

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

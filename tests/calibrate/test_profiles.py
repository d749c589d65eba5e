"""Parts of profiled steps against the estimate: within 20%."""

from __future__ import annotations

import pytest
from accuracy_parts import GOAL, PARTS, parts

from moedsl.cost import step


def test_parts_of_real_steps_are_within_a_fifth() -> None:
    found = parts()
    assert {p.name for p in found} == {*PARTS}
    assert len(found) == 7 and max(abs(p.error) for p in found) <= GOAL


def test_a_profile_has_every_transfer_between_stages() -> None:
    """The first of four stages, each of four chunks: 1,344 calls in three steps of 32 microbatches."""
    assert step.transfers(0, 4, 4) * 32 * 3 == 1344
    assert [step.transfers(stage, 3, 1) for stage in range(3)] == [2, 4, 2]
    assert step.transfers(0, 1, 1) == 0


def test_the_parts_of_the_slowest_stage_are_those_of_the_plan() -> None:
    r = parts()[0].run
    whole, at = r.cost.time_report(r.row), [r.cost.stage_report(r.row, i) for i in range(4)]
    slowest = max(at, key=lambda parts: sum(parts[p] for p in step.MICROBATCH))
    assert {p: slowest[p] for p in step.MICROBATCH} == pytest.approx({p: whole[p] for p in step.MICROBATCH})
    for parts_ in at:
        work = sum(parts_[p] for kind in step.KINDS.values() for p in kind if p in parts_)
        assert work == pytest.approx(parts_["compute"])

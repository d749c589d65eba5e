"""The simplest layout nearly as fast is one that its pins give, with a step as short as is said."""

import re

import pytest

from moedsl.planner.plan import Plan
from moedsl.planner.simpler import READ, simpler
from moedsl.planner.text import page_text
from tests.helpers import rotation
from tests.helpers.programs import plan_of, solved
from tests.helpers.tables import table_of


def count(p: Plan) -> int:
    """The sizes above 1, those that are no powers of two twice."""
    sizes = [p.layout.to_json()[n] for n in READ]
    return sum((n > 1) + (n.bit_count() > 1) for n in sizes)


@pytest.mark.parametrize("text", rotation.some("simpler", table_of("planner", "simpler: one differs"), 2))
def test_its_pins_give_a_layout_that_is_simpler_and_as_fast_as_is_said(text: str) -> None:
    plan = plan_of(text)
    assert plan.simpler and plan.simpler.changes
    line = next(line for line in page_text(plan, (), (), 200).splitlines() if line.startswith("Simpler"))
    pins = re.search(r"`(pin .*)`", line)
    assert pins
    other = plan_of(f"{text}; {pins[1]}")
    assert (count(other), other.layout.pp) < (count(plan), plan.layout.pp)
    assert other.estimate.step_time_s <= plan.simpler.step_time_s * (1 + 1e-9)
    assert plan.simpler.step_time_s <= 1.05 * plan.estimate.step_time_s


def test_a_larger_share_allows_a_simpler_layout() -> None:
    (chosen,) = solved("qwen3_30b_a3b; h100 x 64; seq 4k; throughput first").chosen
    row = chosen.solution.rows[0]
    near, far = (simpler(chosen, row, share) for share in (0.05, 0.3))
    assert near and far and near.step_time_s < far.step_time_s <= 1.3 * row.step_time
    assert far.changes["pp"] == 1 < near.changes.get("pp", row.codes["pp"])
    none = simpler(chosen, row, 0.0)
    assert none and not none.changes and "no simpler layout" in none.text


def test_a_run_that_ranks_by_memory_has_none() -> None:
    assert plan_of("qwen3_30b_a3b; h100 x 64; seq 4k; fit first").simpler is None

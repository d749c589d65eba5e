"""What is kept of the laws of a run is that of the problem at hand."""

from __future__ import annotations

import pytest
from attrs import evolve

from moedsl.rules.rule import Rules
from moedsl.solver.conflicts import members, without
from moedsl.solver.laws import Compiled, obeyed
from moedsl.solver.solve import solve
from moedsl.solver.space import weights_table
from tests.helpers.small_programs import WHY, program

RULES = f"""
rules names {{ let many = gpus > 100 }}
rules on_many when many {{ require few: tp == 1 {WHY} }}
rules on_few when gpus <= 100 {{ require on_one: pp == 1 {WHY} }}
"""


def own(c: Compiled) -> set[str]:
    return {law.rule.name for law in c.laws if not law.rule.is_std}


def test_a_condition_is_asked_again_where_its_facts_differ() -> None:
    p = program(f"qwen3_30b_a3b; h100 x 64{RULES}")
    for _ in range(2):
        assert own(solve(p, 64, keep=0).compiled) == {"on_one"}
        assert own(solve(p, 128, keep=0).compiled) == {"few"}


@pytest.mark.parametrize("name", ["few", "on_one"])
def test_without_a_law_the_others_say_the_same(name: str) -> None:
    """They are those of the run, which are compiled already."""
    p = program(f"qwen3_30b_a3b; h100 x 64{RULES}")
    for gpus in (64, 128):
        whole = solve(p, gpus, keep=0).compiled
        left = without(p, [m for m in members(whole) if m.key.endswith(name)])
        c = solve(left, gpus, keep=0).compiled
        assert own(c) == own(whole) - {name}
        assert all(law in whole.laws for law in c.laws if law.rule.name != name)
        fresh = solve(evolve(left, rules=Rules(tuple(left.rules))), gpus, keep=0).compiled
        table = weights_table(c).without_axes().with_columns(**weights_table(whole).axes)
        mine, its = ([w for w in x.laws if not w.priced and w.needs <= table.keys()] for x in (c, fresh))
        assert obeyed(mine, table).tolist() == obeyed(its, table).tolist()

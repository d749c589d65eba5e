"""The meshes that the search finds legal, against CP-SAT's on small spaces. Not under Python 3.11, whose core has no OR-Tools."""

import pytest

from moedsl.facts.axes import MESH
from moedsl.solver.laws import compile_problem
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.solver.space import mesh_table
from tests.helpers import rotation
from tests.helpers.small_programs import program


@pytest.mark.parametrize(
    "text",
    rotation.some(
        "other solver",
        [
            "qwen3_30b_a3b; h100 x 24; scale first; batch 48",
            "deepseek_v3; gb200 x 8; throughput first; seq 8k; batch 24",
        ],
        1,
    ),
)
def test_cp_sat_finds_the_same_meshes(text: str) -> None:
    """The structural laws again, as products and divisions of a constraint solver."""
    from tests.oracles import cpsat  # OR-Tools imports pandas: not in every worker

    p = program(text)
    problem = lower(p, p.gpus or 8)
    cost = make_cost(problem)
    table = mesh_table(compile_problem(problem, {"has_layout": cost.has_layout}))
    found = {tuple(int(table[n][i]) for n in MESH) for i in range(table.rows)}
    assert found == cpsat.legal_meshes(problem, cost)

"""docs/optimum.md says what the code says, and a layout's rank is what the search's own list says."""

from __future__ import annotations

import importlib.util
import random
import sys
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from optimum_standing import outside, standing

from moedsl.compiler import compile_source
from moedsl.cost.communication import met
from moedsl.facts.axes import MESH
from moedsl.facts.facts import Model
from moedsl.solver.search import Search
from moedsl.solver.solve import solve
from moedsl.support.source import Source
from tests.helpers import rotation
from tests.helpers.paths import ROOT


def _tool() -> Any:
    spec = importlib.util.spec_from_file_location("make_optimum", ROOT / "tools/make_optimum.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


TOOL = _tool()
RECIPES = TOOL.asked()
SOME = [r for r in RECIPES if r["gpus"] <= 64][::12]
"""Every twelfth of the smaller ones."""


@pytest.mark.parametrize("recipe", rotation.some("optimum", SOME, 3), ids=lambda r: r["function"])
def test_the_page_has_the_row_that_the_code_makes(recipe: dict[str, Any]) -> None:
    found = TOOL.place(recipe)
    assert found is None or TOOL._row(found) in (ROOT / "docs/optimum.md").read_text(encoding="utf-8").splitlines()


def test_the_page_has_every_recipe() -> None:
    text = (ROOT / "docs/optimum.md").read_text(encoding="utf-8")
    rows = text.split("## By recipe")[1].split("## What to try")[0].count("\n| ") - 1
    assert f"- {rows} recipes;" in text
    assert f"{len(RECIPES) - rows} recipes whose layout" in text


def _chosen(keep: int) -> Any:
    text = "qwen3_30b_a3b; gb200 x 8; throughput first; seq 4096; batch 512; precision mxfp8; routing balanced"
    (program,) = compile_source(Source("run.moe", text), "check").programs
    return solve(program, 8, keep=keep)


def test_a_rank_is_the_place_in_the_list() -> None:
    chosen = _chosen(8)
    search = Search(chosen.compiled, chosen.cost, keep=8)
    rows = chosen.solution.rows
    assert len({tuple(r.codes[n] for n in MESH) for r in rows}) == 8
    for place, row in enumerate(rows, 1):
        found = standing(search, row.codes)
        assert found is not None
        assert (found.mesh, found.policy) == (place, 1)
        assert found.key == row.score


def test_a_layout_that_does_not_fit_has_no_rank() -> None:
    chosen = _chosen(1)
    row = {**chosen.solution.rows[0].codes, "ep": 1, "micro_batch": 8}
    assert standing(Search(chosen.compiled, chosen.cost), row) is None


def test_values_outside_the_space_are_named() -> None:
    chosen = _chosen(1)
    row = {**chosen.solution.rows[0].codes, "micro_batch": 16}
    assert outside(Search(chosen.compiled, chosen.cost), row) == {"micro_batch": "16"}


@pytest.mark.parametrize("groups, allowed", [(1, 1), (8, 4), (8, 8)])
def test_group_limited_tokens_meet_fewer_places(groups: int, allowed: int) -> None:
    """Against drawing groups and experts as megatron/core/transformer/moe/moe_utils.py:618 does."""
    model = _model(groups, allowed)
    draw = random.Random(0)
    for places in (2, 4, 8, 16):
        seen = np.mean([len(_drawn(model, places, draw)) for _ in range(3000)])
        assert met(model, np.array([float(places)]))[0] == pytest.approx(seen, rel=0.03)


def _drawn(m: Model, places: int, draw: random.Random) -> set[int]:
    each = m.experts // m.routing_groups
    experts = [g * each + i for g in draw.sample(range(m.routing_groups), m.topk_groups) for i in range(each)]
    return {e * places // m.experts for e in draw.sample(experts, m.topk)}


def _model(groups: int, allowed: int) -> Model:
    (program,) = compile_source(Source("run.moe", "deepseek_v3; h100 x 1024"), "check").programs
    return evolve(program.model, routing_groups=groups, topk_groups=allowed)

"""A recipe's text: safe, the same each time, every decided field assigned with its reason, Bridge not imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moedsl.emit.recipe import recipe_text
from moedsl.emit.settings import decided_fields, function_name
from moedsl.facts import values
from moedsl.facts.common import COMMON, COPIED
from moedsl.facts.fields import provided
from moedsl.planner.plan import Plan
from tests.helpers import bridge_process
from tests.helpers.paths import ROOT
from tests.helpers.plans import PLANS, changed

BUILT = ("mixed_precision.", "comm_overlap.")
"""Sections that a call of Bridge fills."""
SHARED = "moe_shared_expert_overlap"
BASE = PLANS["qwen3_30b_h100_real_data"]
ANY = st.text(min_size=0, max_size=30)


def assigned(text: str) -> dict[str, Any]:
    """The last literal value assigned to each ``cfg.`` path."""
    out: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            path = ast.unparse(node.targets[0]).removeprefix("cfg.")
            out[path] = (
                ast.literal_eval(node.value)
                if isinstance(node.value, ast.Constant | ast.List)
                else ast.unparse(node.value)
            )
    return out


@pytest.mark.parametrize("name", PLANS)
def test_every_decided_field_is_assigned(name: str) -> None:
    """A field without a line has the value that Bridge gives; `test_recipe_bridge.py` asks Bridge for all of them."""
    plan, found = PLANS[name], assigned(recipe_text(PLANS[name]))
    decided = decided_fields(plan)
    wrong = {p: v for p, v in decided.items() if p in found and values.normalise(p, found[p]) != v}
    assert wrong == {}
    given = {*COMMON[plan.task].values, *COPIED}
    given |= set() if provided(plan.hf).get(SHARED, False) else {f"model.{SHARED}"}
    silent = {p for p in decided if p not in found and p not in given and not p.startswith(BUILT)}
    assert silent <= {"dataset.seq_length"}


@pytest.mark.parametrize("name", PLANS)
def test_one_public_function_and_a_main(name: str) -> None:
    body = ast.parse(recipe_text(PLANS[name])).body
    assert [n.name for n in body if isinstance(n, ast.FunctionDef)] == [function_name(PLANS[name])]
    assert isinstance(body[-1], ast.If)
    assert ("finetune" in ast.unparse(body[-1])) == (PLANS[name].task == "sft")
    assert ("qwen3_vl_step" in ast.unparse(body[-1])) == ("vl" in PLANS[name].model)


def test_names_are_bridges_own() -> None:
    """As megatron.bridge.perf_recipes.qwen.h100.qwen3_moe names its recipe."""
    assert function_name(PLANS["qwen3_30b_h100_bf16"]) == "qwen3_30b_a3b_pretrain_16gpu_h100_bf16_config"


def test_same_plan_same_bytes() -> None:
    assert recipe_text(changed(BASE)) == recipe_text(BASE)


def test_the_users_own_settings_come_last() -> None:
    text = recipe_text(BASE)
    assert 'cfg.model.moe_router_dtype = "fp32"' not in text and "train_iters = 300000" not in text
    last = max(text.rindex(f"cfg.{p} = ") for p in decided_fields(BASE) if p in assigned(text) and p not in BASE.set)
    assert last < text.index('cfg.model.moe_router_dtype = "fp64"') < text.index("cfg.train.train_iters = 7")
    assert '"NCCL_DEBUG": "WARN",' in text
    assert decided_fields(BASE)["model.moe_router_dtype"] == "fp64"
    assert decided_fields(BASE)["optimizer.main_params_dtype"] == "torch.float32"


def checkpoints(plan: Plan) -> tuple[Any, Any]:
    """Where a recipe saves and loads."""
    said = assigned(recipe_text(plan))
    return said["checkpoint.save"], said["checkpoint.load"]


def test_a_run_goes_on_from_where_it_saves() -> None:
    mock = PLANS["qwen3_30b_h100_bf16"]
    assert checkpoints(mock) == (None, None)
    own = f"nemo_experiments/{function_name(BASE)}/checkpoints"
    assert checkpoints(BASE) == (own, own)
    for plan in (BASE, mock):
        assert checkpoints(changed(plan, set={"checkpoint.save": "/shared/run"})) == ("/shared/run", "/shared/run")


def test_reasons_and_warnings_stand_beside_what_they_explain() -> None:
    text = recipe_text(PLANS["qwen3_235b_gb200_mxfp8_overlap"])
    assert "# tp: the smallest that fits\n    cfg.model.tensor_model_parallel_size = 1\n" in text
    assert "benchmarks only" in text and "benchmarks only" not in recipe_text(BASE)
    assert max(map(len, text.splitlines())) <= 120


@given(because=ANY, path=ANY, word=ANY, hf=ANY)
def test_no_text_of_the_user_becomes_code(because: str, path: str, word: str, hf: str) -> None:
    first, *rest = BASE.to_json()["decisions"]
    own = {"decisions": [{**first, "because": because}, *rest], "set": {"model.moe_router_dtype": word}}
    plan = changed(BASE, policy={"data": f"/{path}"}, hf=hf, **own)
    tree, base = ast.parse(recipe_text(plan)), ast.parse(recipe_text(BASE))
    without_torch = [[type(n) for n in t.body if not isinstance(n, ast.Import)] for t in (tree, base)]
    assert without_torch[0] == without_torch[1]
    strings = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    assert hf in strings and f"/{path}" in strings
    assert word in strings or word.startswith("torch.")


@given(ANY)
def test_a_quoted_text_is_that_text(text: str) -> None:
    assert ast.literal_eval(values.quoted(text)) == text and "\n" not in values.quoted(text)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("Et*2|(t|)*2tL", ["Ett", "t", "t", "tL"]),
        ("Ettt|(tt|)*29,m|L", ["Ettt", *["tt"] * 29, "m", "L"]),
        ("(|t)*2L", ["", "t", "tL"]),
    ],
)
def test_stages_of_a_layout(layout: str, expected: list[str]) -> None:
    assert values.stages(layout) == expected


@pytest.mark.bridge
@pytest.mark.parametrize(
    "layout", [text for p in PLANS.values() if (text := p.layout.pipeline_layout) and p.family != "nemotron_h"]
)
def test_megatron_reads_the_same_stages(layout: str) -> None:
    code = (
        "from moedsl.bridge.verify import stand_ins; stand_ins.install_engine()\n"
        "from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout as P\n"
        "letters = {'embedding': 'E', 'decoder': 't', 'mtp': 'm', 'loss': 'L'}\n"
        f"print('|'.join(''.join(letters[x.name] for x in s) for s in P.parse_str_to_list({layout!r})))"
    )
    ran = bridge_process.run("-c", code)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().splitlines()[-1].split("|") == values.stages(layout)


def test_emission_imports_neither_bridge_nor_torch() -> None:
    code = (
        "import sys\n"
        "import moedsl.emit.recipe, moedsl.emit.overrides, moedsl.emit.artifact, moedsl.support.files\n"
        "assert 'jinja2' not in sys.modules\n"
        "from tests.helpers.plans import PLANS; moedsl.emit.recipe.recipe_text(PLANS['qwen3_30b_h100_bf16'])\n"
        "assert not {'torch', 'megatron', 'transformers', 'hydra'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

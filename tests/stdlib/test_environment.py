"""The environment rules against what NVIDIA's own performance recipes put into cfg.env_vars."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from moedsl.lang import ast
from moedsl.lang.parser import parse
from moedsl.rules.evaluators import evaluate, holds
from moedsl.support import resources
from moedsl.support.source import Source
from tests.helpers.paths import DATA

TRUTH = json.loads((DATA / "env_truth.json").read_text())
NAMES = sorted({name for group in TRUTH for name in group["env"]})
BY_HAND = {
    "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API": {
        "nemotron_3_5_lightning_pretrain_16gpu_h100_bf16_config",
        "nemotron_3_super_pretrain_64gpu_h100_bf16_config",
    }
}
"""Recipes that differ from every recipe like them."""
GRAPHS = {"TORCH_NCCL_AVOID_RECORD_STREAMS", "PYTORCH_CUDA_ALLOC_CONF", "NVTE_CUTEDSL_FUSED_GROUPED_MLP"}
"""Recipes disagree among themselves about these: the same graph and precision, another value."""
MARGINS = {"NVTE_FWD_LAYERNORM_SM_MARGIN", "NVTE_BWD_LAYERNORM_SM_MARGIN"}


@cache
def members() -> tuple[ast.Member, ...]:
    path = next(p for p in resources.stdlib_files() if Path(p).name == "environment.moe")
    module, found = parse(Source("environment.moe", Path(path).read_text()))
    assert module is not None and not found
    return tuple(m for item in module.items if isinstance(item, ast.RulesDecl) for m in item.members)


def evaluate_env(values: Mapping[str, Any]) -> dict[str, Any]:
    """Each variable's first entry whose condition holds."""
    known = {"etp": 1, **values, **{n: frozenset(values[n]) for n in ("cuda_graph", "offload_modules")}}
    env: dict[str, Any] = {}
    for member in members():
        if isinstance(member, ast.Let):
            known[member.name.id] = evaluate(member.expr, known)
        elif isinstance(member, ast.Env) and member.name.id not in env and holds(member.when, known):
            env[member.name.id] = evaluate(member.expr, known)
    return env


def disagreements(name: str) -> dict[str, tuple[Any, Any]]:
    """Recipe -> (our value, NVIDIA's) where they differ, recipes set by hand aside."""
    out: dict[str, tuple[Any, Any]] = {}
    for group in TRUTH:
        ours, theirs = evaluate_env(group["facts"]).get(name), group["env"].get(name)
        if str(ours) != str(theirs):
            out |= {r: (ours, theirs) for r in group["recipes"] if r not in BY_HAND.get(name, ())}
    return out


@pytest.mark.parametrize("name", sorted({*NAMES} - GRAPHS - MARGINS))
def test_every_recipe_agrees(name: str) -> None:
    assert disagreements(name) == {}


@pytest.mark.parametrize(
    ("name", "most"), [*((n, 3) for n in sorted(MARGINS)), ("TORCH_NCCL_AVOID_RECORD_STREAMS", 12)]
)
def test_nearly_every_recipe_agrees(name: str, most: int) -> None:
    assert len(disagreements(name)) <= most


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "NVTE_CUTEDSL_FUSED_GROUPED_MLP"])
def test_whole_iteration_graphs_bring_their_own(name: str) -> None:
    """Judged on recipes with such a graph alone: elsewhere recipes turn the same paths on for other reasons."""
    graphed = [g for g in TRUTH if g["facts"]["cuda_graph"]]
    wrong = [r for g in graphed if str(evaluate_env(g["facts"])[name]) != str(g["env"].get(name)) for r in g["recipes"]]
    assert len(graphed) > 20 and len(wrong) <= 1


def test_every_exception_is_one() -> None:
    for name, recipes in BY_HAND.items():
        for group in TRUTH:
            for recipe in recipes.intersection(group["recipes"]):
                assert str(evaluate_env(group["facts"])[name]) != str(group["env"][name]), recipe


def test_every_variable_of_the_rules_is_one_of_nvidias() -> None:
    assert {m.name.id for m in members() if isinstance(m, ast.Env)} == set(NAMES)


def test_fsdp_never_gets_one_connection() -> None:
    """Bridge refuses CUDA_DEVICE_MAX_CONNECTIONS=1 with Megatron FSDP (training/config.py:1102)."""
    facts = {**TRUTH[0]["facts"], "capability": 9.0, "tp": 2, "sharding": "fsdp"}
    values = {evaluate_env({**facts, "dispatcher": d})["CUDA_DEVICE_MAX_CONNECTIONS"] for d in ("alltoall", "deepep")}
    assert values == {8, 32}

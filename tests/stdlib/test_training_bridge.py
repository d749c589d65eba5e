"""Rules on experts, graphs, FSDP, optimizers and checkpoints, each held against the code of NVIDIA's that it speaks of."""

from __future__ import annotations

from typing import Any

import pytest

from moedsl.emit.fields import words
from moedsl.emit.read_back import Configuration
from tests.helpers.cost_models import model
from tests.oracles.proven import answers, applies, derived, permits

pytestmark = pytest.mark.bridge
WHOLE = frozenset({"full_iteration"})


@pytest.fixture(scope="module")
def said() -> dict[str, Any]:
    return answers("ask_training.py")


def test_fused_experts_do_not_recompute_their_activation(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_activation"""
    for case, answer in said["fused_experts"].items():
        recompute = frozenset({"moe_act"} if case.endswith("True") else ())
        values: Any = {"cuda_graph": WHOLE, "recompute": recompute, "gated": True, "dispatcher": "hybridep"}
        assert permits("std.cuda_graph.whole_graph_activation", **values) == (answer == "ok")
        assert answer == "ok" or "does not support activation recomputation" in answer


def test_fused_experts_are_not_split(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_experts"""
    for etp, fused in said["fused_experts_split"].items():
        assert (
            permits("std.cuda_graph.whole_graph_experts", cuda_graph=WHOLE, etp=int(etp), dispatcher="hybridep")
            == fused
        )


def test_grouped_products_in_blockwise_fp8_stay_on_the_device_on_hopper_alone(said: dict[str, Any]) -> None:
    """std.cuda_graph.whole_graph_blockwise"""
    for case, stays in said["grouped_products"].items():
        precision, capability = case.split()
        values: Any = {"cuda_graph": WHOLE, "precision": precision, "capability": float(capability)}
        values["dispatcher"] = "hybridep"
        assert permits("std.cuda_graph.whole_graph_blockwise", **values) == stays


def test_no_module_under_fsdp_is_captured(said: dict[str, Any]) -> None:
    """std.cuda_graph.modules_under_fsdp: FSDP's hooks end what otherwise comes to the capture."""
    rule, modules = "std.cuda_graph.modules_under_fsdp", frozenset({"attn"})
    assert not permits(rule, sharding="fsdp", cuda_graph=modules)
    assert permits(rule, sharding="optimizer", cuda_graph=modules)
    assert "must not have hooks" in said["hooks"]["fsdp"]
    assert "the capture begins" in said["hooks"]["alone"]


def test_a_recomputed_norm_in_a_graph_ends_the_overlapped_schedule(said: dict[str, Any]) -> None:
    """std.ep_overlap.norm_recompute_in_graph, for every combination of modules and dispatcher."""
    for case, answer in said["recomputed_norm"].items():
        scope, dispatcher = case.split(", ")
        values: Any = {
            "recompute": frozenset({"layernorm"}),
            "cuda_graph": frozenset(() if scope == "none" else scope.split()),
            "dispatcher": {"flex": "deepep"}.get(dispatcher, dispatcher),
        }
        assert permits("std.ep_overlap.norm_recompute_in_graph", **values) == (answer == "ok"), (case, answer)
        lost = ("'NoneType' object is not iterable", "no attribute 'pre_mlp_norm_checkpoint'")
        assert answer == "ok" or any(x in answer for x in lost), (case, answer)


def test_a_replay_steps_only_gradients_that_stayed_attached(said: dict[str, Any]) -> None:
    """std.fsdp.ddp.megatron_fsdp_cuda_graph_mode: False is Bridge's default."""
    rule = "std.fsdp.ddp.megatron_fsdp_cuda_graph_mode"
    assert applies(rule, sharding="fsdp", cuda_graph=WHOLE)
    assert not applies(rule, sharding="fsdp", cuda_graph=frozenset())
    assert derived(rule) is True
    assert said["gradient_mode"] == {"False": False, "True": True}


def test_the_offloaded_optimizer_has_no_quantised_weights(said: dict[str, Any]) -> None:
    """std.offload_optimizer.unquantised_weights, as Bridge's recipes keep weights, and with BF16 weights."""
    for case, answer in said["offloaded_precisions"].items():
        precision, where, weights = case.split()
        kept = dict.fromkeys(("fp8_weights", "fp4_weights"), weights == "quantised")
        allowed = permits(
            "std.offload_optimizer.unquantised_weights", sharding="optimizer", precision=precision, **kept
        )
        assert (answer == "ok") == (where == "device" or allowed), (case, answer)
        assert answer == "ok" or "one of the params is NoneType" in answer


@pytest.mark.parametrize(
    ("mixed", "kept"), [("bf16_with_mxfp8_mixed", True), (False, False), (True, True), (None, True)]
)
def test_lint_reads_how_a_recipe_keeps_its_weights(mixed: Any, kept: bool) -> None:
    """A name of Bridge's stands for all its fields; an object has its own."""
    named = isinstance(mixed, str) or mixed is None
    fields = {"mixed_precision": mixed} if named else {"mixed_precision.fp8_param_gather": mixed}
    recipe = Configuration(fields)
    assert words(recipe)["fp8_weights"] is kept


def test_the_offloaded_optimizer_takes_no_shards_of_fsdp(said: dict[str, Any]) -> None:
    """std.fsdp.no_optimizer_offload"""
    assert not permits("std.fsdp.no_optimizer_offload", offload="optimizer")
    assert permits("std.fsdp.no_optimizer_offload", offload="none")
    assert said["offloaded_shards"]["plain"] == "ok"
    assert "_pin_memory" in said["offloaded_shards"]["dtensor"]


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_30b_a3b"])
def test_an_empty_share_of_a_bucket_is_never_saved_in_the_default_layout(name: str, said: dict[str, Any]) -> None:
    """std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable holds wherever a replica has nothing, of 2 to 2048."""
    rule, facts = "std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable", model(name)
    values: Any = {"hidden": facts.hidden, "dense_layers": facts.dense_layers, "experts": facts.experts, "cp": 2}
    values |= {"hybrid": False, "pp": 1}
    values |= {"precision": "mxfp8", "sharding": "optimizer", "data": "text"}
    empty = set(said["empty_shares"][name])
    other = {n for n in range(2, 2049) if applies(rule, **values | {"dp": n / 2})}
    assert empty
    assert empty <= other
    assert min(other) > 8


def test_saving_an_empty_share_ends_the_run(said: dict[str, Any]) -> None:
    """std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable: what its `because` says of Bridge's default."""
    assert {128, 192} & set(said["empty_shares"]["deepseek_v3"]) == {192}
    assert said["saving"]["128"] == "ok"
    assert "empty bucket encountered" in said["saving"]["192"]


def test_fsdp_fills_no_expert_bias_of_the_meta_device(said: dict[str, Any]) -> None:
    """std.fsdp.model.init_model_with_meta_device"""
    rule = "std.fsdp.model.init_model_with_meta_device"
    assert said["router_buffers"]["False"] == []
    assert "expert_bias" in said["router_buffers"]["True"]
    biased = {"deepseek_v3": True, "kimi_k2": True, "glm4_moe": True, "qwen3_moe": False, "gpt_oss": False}
    values = {"has_vision": False, "shared_expert_gate": False}
    assert {f: not derived(rule, family=f, **values) for f in biased} == biased

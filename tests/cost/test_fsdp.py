"""Megatron FSDP: what the plan sets, and what its estimate holds, gathers and reduces."""

from typing import Any

import pytest

from moedsl.cost import Cost, parameters
from moedsl.emit.settings import decided_fields
from moedsl.facts.axes import BY_NAME
from tests.helpers.cost_models import hardware, model
from tests.helpers.programs import plan_of

GIB = 2**30
TEXT = "model qwen3_30b_a3b; h100 x 32; seq 4k; batch 256; throughput first; "
PINS = "pin tp=1 cp=1 pp=1 ep=8 micro_batch=1 recompute=full dispatcher=alltoall ep_overlap=off cuda_graph=none "


def fields(also: str, base: str = TEXT) -> dict[str, Any]:
    return decided_fields(plan_of(f"{base}{PINS}sharding=fsdp {also}"))


def test_what_bridge_wants_of_fsdp() -> None:
    """bridge training/config.py:1065-1116: sharded checkpoints and no CUDA_DEVICE_MAX_CONNECTIONS=1."""
    found = fields("")
    assert found["ddp.use_megatron_fsdp"] is True
    assert found["dist.use_megatron_fsdp"] is True
    assert found["ddp.data_parallel_sharding_strategy"] == "optim_grads_params"
    assert found["checkpoint.ckpt_format"] == "fsdp_dtensor"
    assert found["ddp.average_in_collective"] is False
    assert found["ddp.overlap_grad_reduce"] is True
    assert found["ddp.overlap_param_gather"] is True
    assert found["model.init_model_with_meta_device"] is True
    plan = plan_of(f"{TEXT}{PINS.replace('tp=1', 'tp=2')}sharding=fsdp")
    assert plan.env["CUDA_DEVICE_MAX_CONNECTIONS"] != 1


@pytest.mark.parametrize(("grad_reduce", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16")])
def test_gradients_are_kept_as_the_plan_says(grad_reduce: str, dtype: str) -> None:
    """Left unset, FSDP keeps them in the parameters' BF16 (param_and_grad_buffer.py:2310)."""
    found = fields(f"grad_reduce={grad_reduce}")
    assert dtype in str(found["ddp.megatron_fsdp_main_grads_dtype"])
    assert dtype in str(found["ddp.megatron_fsdp_grad_comm_dtype"])


def test_mxfp8_parameters_are_gathered_in_mxfp8_as_in_nvidias_recipes() -> None:
    found = fields("", "model qwen3_30b_a3b; gb200 x 32; seq 4k; batch 256; throughput first; precision mxfp8; ")
    assert found["mixed_precision.fp8_param_gather"] is True
    assert found["mixed_precision.reuse_grad_buf_for_mxfp8_param_ag"] is False


def test_a_vlm_is_not_built_on_the_meta_device() -> None:
    found = fields("", "model qwen3_vl_30b_a3b; h200 x 32; seq 4k; batch 256; throughput first; ")
    assert found["model.init_model_with_meta_device"] is False


def test_without_fsdp_none_of_it_is_set() -> None:
    text = f"{TEXT}{PINS}sharding=optimizer ".replace("recompute=full", "recompute=none")
    found = decided_fields(plan_of(text), every=True)
    assert found["checkpoint.ckpt_format"] == "torch_dist"
    assert found["ddp.data_parallel_sharding_strategy"] == "no_shard"
    assert "ddp.megatron_fsdp_main_grads_dtype" not in found


# ---------------------------------------------------------------- memory and time


def cost(gpus: int = 32, name: str = "qwen3_30b_a3b", gpu: str = "h100") -> Cost:
    return Cost(model(name), hardware(gpu), gpus, 4096, 256)


def row(**words: Any) -> dict[str, int]:
    asked = {"ep": 8, "sharding": "fsdp", "recompute": ["full"], **words}
    return {k: BY_NAME[k].encode(v) for k, v in asked.items()}


def units_held(size: int, layers: int) -> tuple[int, int]:
    """(gathered, gradients queued) in layers, by the loops of Megatron-Core's two pipelines, one unit a layer.

    megatron_fsdp.py:432-444; param_and_grad_buffer.py:4487-4508 (prefetch) and 3916-3940 (the queue).
    """
    unit = max(1_000_000_000, 2 * size)
    gathered = 1
    while gathered < layers and (gathered - 1) * size < unit // 2:
        gathered += 1
    queue = most = 0
    for _ in range(layers):
        while queue * size > unit:
            queue -= 1
        most = max(most, queue + 1)
        queue += 1
    return gathered, most


@pytest.mark.parametrize("name, ep", [("qwen3_30b_a3b", 8), ("qwen3_30b_a3b", 1), ("qwen3_235b_a22b", 8)])
def test_gathered_layers_and_queued_gradients_are_those_of_the_pipelines(name: str, ep: int) -> None:
    """No activation is kept, so that every queued gradient counts."""
    m = model(name)
    layer = parameters.attention(m, 1) + parameters.moe(m, 1, ep, 1).total
    gathered, queued = units_held(layer, m.layers)
    roots = 2 * parameters.table_size(m, 1)
    fsdp, plain = (
        cost(1024, name).memory_report(row(ep=ep, sharding=word))[0].buffers for word in ("fsdp", "optimizer")
    )
    entry = 4096 * m.hidden * 2
    expected = 2 * (gathered * layer + roots) + 4 * layer + (queued - 1) * (4 * layer - entry)
    assert fsdp - plain == pytest.approx(expected, rel=0.12)


def test_one_replica_gathers_nothing() -> None:
    whole = {"tp": 8, "ep": 8}
    fsdp, plain = (cost(8).memory_report(row(**whole, sharding=w))[0] for w in ("fsdp", "optimizer"))
    assert fsdp.buffers == plain.buffers
    assert fsdp.gradients == pytest.approx(plain.gradients)


def test_the_master_copy_stays_in_fp32() -> None:
    """FusedAdam's own is turned off (core optimizer/__init__.py:1116-1128), so BF16 moments save the moments alone."""
    full, half = (cost().memory_report(row(moments=w))[0] for w in ("fp32", "bf16"))
    assert half.optimizer / full.optimizer == pytest.approx((4 + 4) / (4 + 8))
    plain = cost().memory_report(row(moments="bf16", sharding="optimizer"))[0]
    assert half.optimizer == pytest.approx(plain.optimizer)


def test_weights_and_gradients_are_sharded_over_their_own_groups() -> None:
    """Dense parameters over 32 ranks, experts over EDP 4."""
    m = model("qwen3_30b_a3b")
    stage = cost().memory_report(row())[0]
    shard = stage.params / 32 + stage.expert_params / 4
    assert stage.weights == pytest.approx(2 * shard)
    assert stage.gradients == pytest.approx(4 * shard)
    assert stage.params + stage.expert_params > m.layers * parameters.moe(m, 1, 8, 1).expert


def test_block_scaled_fp8_keeps_a_whole_quantised_copy_and_mxfp8_none() -> None:
    bf16, blockwise = (cost().memory_report(row(precision=p))[0].weights for p in ("bf16", "fp8_blockwise"))
    m = model("qwen3_30b_a3b")
    copy = 2 * m.layers * (parameters.attention(m, 1) + parameters.moe(m, 1, 8, 1).total)
    assert blockwise - bf16 == pytest.approx(copy, rel=1e-6)
    gb200 = cost(gpu="gb200")
    assert gb200.memory_report(row(precision="mxfp8"))[0].weights < 1.1 * gb200.memory_report(row())[0].weights


def test_each_microbatch_gathers_and_reduces() -> None:
    """With twice the microbatches data parallelism sends twice as much, where the distributed optimizer does not."""
    ranks, one = cost(), row(micro_batch=2)
    short, long = (
        ranks.time_report({**one, **w})["data_communication"] for w in (row(micro_batch=2), row(micro_batch=1))
    )
    assert long > 1.5 * short
    plain = [ranks.time_report(row(micro_batch=n, sharding="optimizer"))["data_communication"] for n in (2, 1)]
    assert plain[1] < 1.5 * plain[0] or plain[0] == 0


def test_nvidias_own_recipe_fits() -> None:
    """DeepSeek-V3 on 64 GB300 with FSDP (bridge perf_recipes/deepseek/gb300/deepseek_v3.py:242), but for its offloading
    of activations, which only lowers it."""
    asked = row(
        ep=64,
        micro_batch=2,
        moments="bf16",
        grad_reduce="bf16",
        recompute=["layernorm", "mla_up_proj", "moe_act"],
        dispatcher="hybridep",
    )
    c = Cost(model("deepseek_v3"), hardware("gb300"), 64, 4096, 256)
    assert float(c.memory(asked)[0]) / GIB < 1.1 * c.hardware.memory / GIB

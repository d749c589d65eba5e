"""What stays on a rank beside weights, gradients and activations: FP32 masters, the step's copy of BF16 gradients, and
Transformer Engine's empty weight gradients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from moedsl.cost import Cost, memory, rows
from moedsl.facts.axes import BY_NAME
from tests.helpers import bridge_process
from tests.helpers.cost_models import hardware, model

GIB = 2**30
EXPERT, DENSE = 1_811_939_328, 1_541_093_376
"""Parameters of Qwen3-30B on a rank of EP 16 (design: 3,353,032,704 together)."""


def table(**words: Any) -> rows.Table:
    """One row, as the estimates take it."""
    full = rows.complete({name: BY_NAME[name].encode(word) for name, word in words.items()})
    return rows.Levels.of(full, tuple(full)).table(tuple(full), 1)


def peak(**words: Any) -> float:
    """Of Qwen3-30B on 16 H100 with all experts spread, bytes."""
    cost = Cost(model("qwen3_30b_a3b"), hardware("h100"), 16, 4096, 1024, routing="balanced")
    row = {name: BY_NAME[name].encode(word) for name, word in {"ep": 16, **words}.items()}
    report = cost.memory_report(row)
    assert float(cost.memory(row)[0]) == pytest.approx(max(s.total for s in report), abs=1)
    return report[0].total


def kept(share: float) -> float:
    """Empty gradients of every shape, bytes; `share` of the 224 MiB of workspaces, and 10 of the rest, with them."""
    shapes = 151936 * 2048 + 2048 * 128 * (32 + 2 * 4 + 32) + 3 * 2048 * 768 + 2048 + 2 * 128
    return 2.0 * shapes + share * 234 * 2**20


def test_the_step_holds_bf16_gradients_a_second_time() -> None:
    """Whole layers recomputed leave less than the FP32 copy of the gradients that this rank steps."""
    stepped = EXPERT + DENSE / 16
    held = (2 + 2) * (EXPERT + DENSE) + (12 + 4) * stepped
    assert peak(recompute=["full"], grad_reduce="bf16") == pytest.approx(held + kept(1.0), rel=1e-6)


def test_fp32_gradients_are_stepped_where_they_are() -> None:
    """Neither they, nor those of Megatron FSDP, nor those that the host steps."""
    for words in ({"grad_reduce": "fp32"}, {"grad_reduce": "bf16", "sharding": "fsdp"}):
        assert memory.copied(table(**words)).tolist() == [0.0]
    assert memory.copied(table(grad_reduce="bf16", offload="optimizer")).tolist() == [0.0]
    assert memory.copied(table(grad_reduce="bf16", moments="bf16")).tolist() == [4.0]


def test_empty_gradients_are_there_once_for_each_shape() -> None:
    m = model("qwen3_30b_a3b")
    found = memory.empty_gradients(m, table(), True)
    assert found["one"] + found["loss"] == pytest.approx(kept(0.0))
    assert all((size == 0).all() for size in memory.empty_gradients(m, table(), False).values())


FLAGS = """
import json, logging, sys
from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import devices
stand_ins.install_engine()
stand_ins.answer(devices()["gb200"], 8, 0)
logging.disable(logging.CRITICAL)
import torch
from megatron.bridge.training import mixed_precision
from megatron.bridge.training.config import OptimizerConfig

def whole(name, **more):
    adam = OptimizerConfig(
        optimizer="adam", use_distributed_optimizer=True, use_precision_aware_optimizer=True,
        main_params_dtype=torch.float32, exp_avg_dtype=torch.bfloat16, exp_avg_sq_dtype=torch.bfloat16, **more,
    )
    mixed_precision.update_config_with_precision_overrides(getattr(mixed_precision, name)(), adam)
    adam.finalize()
    return not adam.use_precision_aware_optimizer_no_fp8_or_ds_fp8

print(json.dumps({name: whole(name) for name in sys.argv[1:]} | {"offload": whole("bf16_mixed", optimizer_cpu_offload=True)}))
"""
MIXED = (
    "bf16_mixed",
    "bf16_with_mxfp8_mixed",
    "bf16_with_nvfp4_mixed",
    "bf16_with_fp8_current_scaling_mixed",
    "bf16_with_fp8_subchannel_scaling_mixed",
)
"""What `emit/fields.py` writes for each precision."""


@pytest.mark.bridge
def test_megatron_keeps_fp32_masters_in_every_precision_of_bridge() -> None:
    """Real OptimizerConfigs: only the optimizer that offloads leaves masters and gradients to Transformer Engine."""
    done = bridge_process.run("-c", FLAGS, *MIXED)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {**dict.fromkeys(MIXED, True), "offload": False}

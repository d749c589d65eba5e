"""Steps that were measured on one H200 (docs/estimates.md), against today's plans of the same programs.

Bridge 0.6.2, Megatron-Core 0.19.2, Transformer Engine 2.20.2, torch 2.11.0, CUDA 13.0; a virtual machine with 16 cores.
Seconds are the median of a run's steps without a profiler, the first two left out; bytes are
`mem-max-allocated-gigabytes` of Bridge's log.
"""

from __future__ import annotations

import pytest
from attrs import frozen

from tests.helpers.paths import ROOT
from tests.helpers.programs import plan_of

QWEN3 = """
model four_layers {
  hf "Qwen/Qwen3-30B-A3B" family qwen3_moe layers 4 hidden 2048 vocab 151936 max_seq 40960
  heads 32 query_groups 4 head_dim 128 qk_norm true ffn_hidden 6144 experts 128 topk 8 expert_hidden 768
}
model four_layers; h200 x 1; seq 4k; batch 16; throughput first
pin dispatcher=alltoall micro_batch=2 cuda_graph=none
"""
MOONLIGHT = """
model five_layers {
  hf "moonshotai/Moonlight-16B-A3B" family deepseek_v3 layers 5 hidden 2048 vocab 163840 max_seq 8192
  attention mla heads 16 query_groups 16 head_dim 64 kv_lora_rank 512 qk_nope_dim 128 qk_rope_dim 64 v_head_dim 128
  qk_norm true ffn_hidden 11264 dense_layers 1 experts 64 topk 6 expert_hidden 1408 shared_expert_hidden 2816
}
model five_layers; h200 x 1; seq 4k; batch 16; throughput first
pin dispatcher=alltoall micro_batch=2 cuda_graph=none
"""
SMOKE = (ROOT / "examples/smoke.moe").read_text(encoding="utf-8").replace("h100 x 1", "h200 x 1")


@frozen
class Measured:
    """A run: its program, a step in seconds, and torch's peak in bytes."""

    program: str
    step_s: float
    peak: float


RUNS = {
    "four layers of Qwen3-30B": Measured(QWEN3, 1.698, 65.844e9),
    "five layers of Moonlight": Measured(MOONLIGHT, 1.377, 67.648e9),
    "examples/smoke.moe": Measured(SMOKE, 0.498, 0.81429e9),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_plan_of_a_run_on_one_gpu_is_near_what_was_measured(name: str) -> None:
    run = RUNS[name]
    estimate = plan_of(run.program).estimate
    assert estimate is not None and estimate.interval is not None
    assert estimate.memory.peak_gib * 2**30 == pytest.approx(run.peak, rel=0.003 if run.peak > 1e9 else 0.1)
    assert estimate.interval.lower_s < run.step_s < estimate.interval.upper_s

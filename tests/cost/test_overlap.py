"""What a step costs beside its products: overlap in the passes that have a partner, MTP's own logits, weights moved."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from moedsl.compiler import compile_source
from moedsl.cost import Cost
from moedsl.rules.check.program import Program
from moedsl.solver.problem import lower
from moedsl.solver.solve import make_cost
from moedsl.support.source import Source

QWEN = {"ep": 16, "micro_batch": 1, "dispatcher": 0, "cuda_graph": 0, "grad_reduce": 1}
"""Qwen3-30B as NVIDIA compared it with and without overlap (seed "expert-parallel overlap"): alltoall, EP 16."""


def cost(run: str) -> Cost:
    """The prices of a run."""
    (program,) = compile_source(Source("run.moe", f"{run}; throughput first; routing balanced"), "check").programs
    assert isinstance(program, Program) and program.gpus
    return make_cost(lower(program, program.gpus))


def seconds(c: Cost, row: dict[str, Any]) -> float:
    return float(c.time(row)[0])


def test_overlap_and_delayed_gradients_save_what_was_measured() -> None:
    """41.25 s a step without overlap, 31.31 with it, 31.20 with delayed weight gradients too."""
    c = cost("qwen3_30b_a3b; h100 x 16; seq 4096; batch 1024; precision bf16")
    off, on, delayed = (
        seconds(c, {**QWEN, "ep_overlap": overlap, "delay_wgrad": delay}) for overlap, delay in ((0, 0), (1, 0), (1, 1))
    )
    assert off == pytest.approx(41.25, rel=0.15)
    assert on == pytest.approx(31.31, rel=0.15)
    assert on / delayed == pytest.approx(31.31 / 31.20, rel=0.01)


@pytest.mark.parametrize("microbatches", [1, 2, 8])
def test_the_first_forward_and_the_last_backward_have_no_partner(microbatches: int) -> None:
    """core pipeline_parallel/combined_1f1b.py:51-56: of n microbatches n - 1 overlap."""
    c = cost(f"qwen3_30b_a3b; gb200 x 8; seq 4096; batch {8 * microbatches}; precision bf16")
    row = {"ep": 8, "dispatcher": 2, "micro_batch": 1, "cuda_graph": 7}
    saved = seconds(c, row) - seconds(c, {**row, "ep_overlap": 1})
    many = evolve(c, global_batch=8 * 64)
    each = (seconds(many, row) - seconds(many, {**row, "ep_overlap": 1})) / 63
    assert saved == pytest.approx(each * (microbatches - 1), rel=0.02, abs=1e-6)


def test_a_layer_of_multi_token_prediction_has_logits_of_its_own() -> None:
    """core transformer/multi_token_prediction.py:841-855: a product with the vocabulary and a loss for each."""
    c = cost("deepseek_v3; gb200 x 256; seq 4096; batch 4096; precision bf16")
    row = {"ep": 64, "dispatcher": 2, "micro_batch": 1}
    without = evolve(c, model=evolve(c.model, mtp_layers=0))
    flops = 6 * 4096 * 16 * c.model.hidden * c.model.vocab
    least = flops / (c.hardware.tflops["bf16"] * 1e12)
    layer = (seconds(without, row) - least) / (c.model.layers + 1)
    assert seconds(c, row) - seconds(without, row) > layer + least


def test_fewer_tokens_for_each_expert_make_a_token_dearer() -> None:
    """Every microbatch moves a rank's weights and their gradients once, however many tokens it has."""
    c = cost("qwen3_235b_a22b; gb300 x 64; seq 4096; batch 2048; precision mxfp8")
    few, many = (c.work_report({"ep": ep, "dispatcher": 2, "micro_batch": 2})["matrix"] for ep in (4, 32))
    assert few > 1.02 * many
    wide, narrow = (
        c.work_report({"ep": 4, "dispatcher": 2, "micro_batch": 2, "grad_reduce": bits})["matrix"] for bits in (0, 1)
    )
    assert wide > narrow

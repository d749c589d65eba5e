"""Our recipe of each of NVIDIA's layouts against NVIDIA's own, field by field, as the real Bridge resolves both.

A field that differs is decided by the plan, which gives its reason, or it is in `HARMLESS` with a reason. A run takes
one recipe of each model; `make test-all` takes all.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moedsl.bridge.recipe_import import Draft, draft, of_bridge, written
from moedsl.bridge.verify.cases import Case, read
from moedsl.bridge.verify.client import Server
from moedsl.bridge.verify.resolve import Resolved
from moedsl.compiler import load_stdlib
from moedsl.emit.settings import decided_fields
from moedsl.planner.plan import Plan
from tests.helpers import rotation
from tests.helpers.paths import DATA
from tests.stdlib.test_recipes import IN_TRAINING, LATE, REFUSED, REFUSED_OTHERWISE, UNSAYABLE

pytestmark = pytest.mark.bridge

HARMLESS: Mapping[str, str] = {
    "checkpoint.*": "a benchmark loads and saves no checkpoint; a run that trains does",
    "train.eval_*": "a benchmark has no evaluation",
    "validation.*": "a benchmark has no evaluation",
    "train.manual_gc_eval": "true, or the same interval as a number",
    "dataset.mmap_bin_files": "read from real data only",
    "dataset.num_workers": "the recipe of one model sets 1",
    "tokenizer.*": "mock data: each recipe has a tokenizer of its own for it",
    "env_vars": "the plan's own environment, each variable with its reason",
    "model.hf_model_*": "where AutoBridge finds the configuration",
    "model.moe_hybridep_num_sms": "moe_flex_dispatcher_num_sms replaces it in this release, and the plan decides that",
    "model.moe_flex_dispatcher_num_sms": "read with a flex dispatcher only",
    "model.attention_backend": "auto or unset: Transformer Engine chooses",
    "model.*init_method_std": "initial weights, from the model's own configuration",
    "model.account_for_*": "read without a pipeline layout only; the plan decides the layout",
    "model.num_layers_in_*": "read without a pipeline layout only; the plan decides the layout",
    "model.vocab_size": "from the model's own configuration",
    "model.make_vocab_size_divisible_by": "padding of the vocabulary, from the model's own configuration",
    "model.yarn_original_max_position_embeddings": "from the model's own configuration",
    "model.hybrid_layer_pattern": "the recipe trains more depths of multi-token prediction than the model has",
    "model.calculate_per_token_loss": "the same loss where no token is masked",
    "model.cp_comm_type": "read with context parallelism only",
    "model.wgrad_deferral_limit": "read with deferred embedding gradients only",
    "model.batch_p2p_comm": "how the pipeline sends, which Bridge sets by the schedule",
    "model.external_cuda_graph": "the name of an older release for cuda_graph_impl",
    "model.first_last_layers_bf16": "a copy of mixed_precision's field, which the plan decides",
    "*.num_layers_at_*_in_bf16": "read with first_last_layers_bf16 only, which the plan decides",
    "model.moe_router_padding_for_quantization": "tokens are padded for quantised products in the router or after it",
    "model.mla_down_proj_fusion": "two projections in one product, which no estimate distinguishes",
    "model.cuda_graph_warmup_steps": "steps before the graphs are captured",
    "model.fp8_param": "a copy of mixed_precision's fp8_param_gather, which the plan decides",
    "mixed_precision.fp8_param": "a copy of fp8_param_gather, which the plan decides",
    "*.fp8_param_gather": "a copy of mixed_precision's field, which the plan decides",
    "*.fp4_param": "a copy of fp4_param_gather, which the plan decides",
    "ddp.fp4_param_gather": "a copy of mixed_precision's field, which the plan decides",
    "dist.distributed_timeout_minutes": "how long a collective may wait",
    "model.moe_expert_capacity_factor": "drop-and-pad, for which the language has no word yet: `set` it",
    "model.moe_pad_expert_input_to_capacity": "drop-and-pad, for which the language has no word yet: `set` it",
    "model.moe_permute_fusion_into_hybridep": "a kernel of HybridEP, which no estimate distinguishes",
    "model.delay_offload_until_cuda_graph": "when offload starts, which no estimate distinguishes",
    "*.reuse_grad_buf_for_mxfp8_param_ag": "a copy of mixed_precision's field, which the plan decides",
    "*.delay_wgrad_compute": "off or unset",
    "*.align_param_gather": "Bridge overwrites it by the schedule",
    "*.bucket_size": "the size of data-parallel buckets, which Bridge derives",
    "*.overlap_param_gather": "a copy of ddp's field, which the plan decides",
    "ddp.data_parallel_sharding_strategy": "read with Megatron FSDP only, and then the plan decides it",
    "model.recompute_modules": "read with selective recompute only, and then the plan decides it",
    "model.cuda_graph_modules": "read with partial CUDA graphs only, and then the plan decides it",
    "model.moe_flex_dispatcher_backend": "read with a flex dispatcher only, and then the plan decides it",
    "comm_overlap*": "NVIDIA's recipe has no such section; what it sets is in ddp and model",
    "scheduler.*": "hyperparameters: Bridge's own defaults, for the user to change",
    "optimizer.lr": "a hyperparameter, for the user to change",
    "optimizer.min_lr": "a hyperparameter, for the user to change",
    "optimizer.*weight_decay*": "a hyperparameter, for the user to change",
    "optimizer.adam_*": "a hyperparameter, for the user to change",
    "optimizer.muon_*": "read by Muon only; the language has Adam",
    "optimizer.apply_wd_to_qk_layernorm": "a hyperparameter, for the user to change",
    "*.fp8_dot_product_attention": "attention in FP8, for which the language has no word yet: `set` it",
    "model.fp8_output_proj": "a head in FP8, for which the language has no word yet: `set` it",
    "model.high_priority_a2a_comm_stream": "a stream's priority, which no estimate reads",
    "model.use_transformer_engine_op_fuser": "fused expert kernels, for which the language has no word yet: `set` it",
    "model.moe_mlp_glu_interleave_size": "the layout of weights for those kernels",
}
"""Fields that may differ although the plan does not decide them, as patterns, each with its reason."""

ROWS: list[dict[str, Any]] = [
    row
    for line in (DATA / "recipe_layouts.jsonl").read_text(encoding="utf-8").splitlines()
    for row in [json.loads(line)]
    if row["kind"] == "perf" and row["task"] == "pretrain"
]
TAKEN = rotation.some(
    "differing recipes", rotation.one_of_each("recipe differences", ROWS, lambda row: row["model"]), 4
)


LEFT_OUT = {n.partition("-")[2] for n in (*UNSAYABLE, *REFUSED, *REFUSED_OTHERWISE, *LATE, *IN_TRAINING)}
"""Recipes whose layout has no words, or that Megatron refuses; others test them."""


def drafts(server: Server) -> dict[str, tuple[Draft, Resolved]]:
    """The program of each recipe's words, with what Bridge makes of the recipe."""
    asked = [read(f"megatron.bridge.{row['module']}:{row['function']}", row["hardware"], row["gpus"]) for row in TAKEN]
    cases, library, out = [c for c in asked if isinstance(c, Case)], load_stdlib(), dict[str, Any]()
    for c, theirs in zip(cases, server.resolve(cases), strict=True):
        made = draft(of_bridge(c, theirs, library), library) if theirs.built and theirs.refusal is None else None  # type: ignore[arg-type]
        if isinstance(made, Draft) and not made.result.failed and not made.stated.unknown:
            out[c.file] = made, theirs
    return out


def undecided(plan: Plan, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that differ, that the plan does not decide and that no reason covers."""
    decided = {*decided_fields(plan), *plan.set}
    differing = {k: (ours.get(k), theirs.get(k)) for k in {*ours, *theirs} if ours.get(k) != theirs.get(k)}
    return {
        k: v
        for k, v in sorted(differing.items())
        if k not in decided and not any(fnmatch.fnmatchcase(k, pattern) for pattern in HARMLESS)
    }


def test_each_field_that_differs_from_nvidias_recipe_is_decided_or_harmless(server: Server, tmp_path: Path) -> None:
    known = drafts(server)
    assert {name.partition(":")[2] for name in known} == {row["function"] for row in TAKEN} - LEFT_OUT
    answers = server.resolve([written(made, tmp_path / f"{i}") for i, (made, _) in enumerate(known.values())])
    found: dict[str, Any] = {}
    for (name, (made, theirs)), ours in zip(known.items(), answers, strict=True):
        assert ours.refusal is None and not ours.message, (name, ours.refusal, ours.message)
        found[name] = undecided(made.result.plans[0], ours.resolved, theirs.resolved)
    assert {name: fields for name, fields in found.items() if fields} == {}

"""Name the decided fields that a run may `set` otherwise, and those of them that no estimate follows.

A field is not free where NVIDIA's code refuses the other value, or where a pin says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moedsl.emit.dataset import is_mock, masks_tokens, tokenizer
from moedsl.emit.fields import GATHERS, GRANULARITY
from moedsl.facts.families import family
from moedsl.planner.model.plan import Plan

Condition = Callable[[Plan], bool]
MUON = "dist_muon"
"""Bridge's Muon; without the prefix each replica would hold the whole optimizer state."""


def _always(_: Plan) -> bool:
    return True


def _captures(p: Plan) -> bool:
    return "full_iteration" in p.policy.cuda_graph


def _muon(p: Plan) -> bool:
    return p.set.get("optimizer.optimizer") == MUON


def _fsdp(p: Plan) -> bool:
    return p.policy.sharding == "fsdp"


def _reduces_tokens(p: Plan) -> bool:
    """Whether Bridge refuses another mean of the loss: masked tokens under context parallelism (bridge
    training/config.py:1450)."""
    return p.layout.cp > 1 and masks_tokens(p)


def _fused_offload(p: Plan) -> bool:
    """Whether the run offloads the input of whole fused experts, for which no axis has a word."""
    return not p.policy.offload_modules and p.set.get("model.offload_modules") == ["fused_group_mlp"]


_FREE: dict[str, Condition] = {
    # a captured iteration cannot check (bridge training/config.py:1369)
    "rerun_state_machine.check_for_nan_in_loss": lambda p: not _captures(p),
    "ddp.check_for_nan_in_grad": lambda p: not _captures(p),
    # graphs of text models need it (bridge models/gpt_provider.py:234); without graphs it changes nothing
    "model.use_te_rng_tracker": lambda p: not p.policy.cuda_graph or family(p.family).vision,
    "rng.te_rng_tracker": lambda p: not p.policy.cuda_graph or family(p.family).vision,
    "model.moe_flex_dispatcher_num_sms": _always,
    "model.moe_hybridep_num_sms_preprocessing": _always,
    "model.moe_paged_stash_buffer_size_factor_cpu": _always,
    "model.moe_paged_stash_buffer_size_factor_cuda": _always,
    "model.moe_expert_rank_capacity_factor": _always,
    "model.moe_shared_expert_overlap": lambda p: not p.policy.ep_overlap and "shared_experts" not in p.policy.recompute,
    "mixed_precision.first_last_layers_bf16": _always,
    # Bridge turns it off under FSDP (bridge training/config.py:1091); else it follows the gathered format
    "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": lambda p: _fsdp(p) and p.set.get(GATHERS["fp8"], True),
    "model.calculate_per_token_loss": lambda p: not _reduces_tokens(p),
    # FSDP turns it off where it registers buffers for symmetric memory (bridge training/config.py:1086)
    "ddp.average_in_collective": lambda p: (
        not _reduces_tokens(p) and (not _fsdp(p) or bool(p.set.get("ddp.disable_symmetric_registration")))
    ),
    # FSDP turns both on (core distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py:330)
    "comm_overlap.overlap_grad_reduce": lambda p: not _fsdp(p),
    "comm_overlap.overlap_param_gather": lambda p: not _fsdp(p),
    "ddp.overlap_grad_reduce": _muon,
    "ddp.overlap_param_gather": _muon,
    GRANULARITY: lambda p: not p.policy.recompute and p.set[GRANULARITY] == "selective",
    # with moments in FP32 another implementation of the same state
    "optimizer.use_precision_aware_optimizer": lambda p: p.policy.moments == "fp32" and p.policy.offload == "none",
    "optimizer.main_grads_dtype": lambda p: p.policy.moments != "fp32",
    # only a folder to save in or load from needs the format of FSDP (bridge training/config.py:1099)
    "checkpoint.ckpt_format": lambda p: is_mock(p) and not {"checkpoint.save", "checkpoint.load"} & p.set.keys(),
    # mock data needs no tokenizer
    "tokenizer.tokenizer_type": is_mock,
    # a corpus may have another tokenizer than the model's repository, or that repository none
    "tokenizer.tokenizer_model": lambda p: is_mock(p) or tokenizer(p)["tokenizer_type"] != "NullTokenizer",
    "tokenizer.use_tokenizer_vocab_size": is_mock,
}
UNPRICED: Mapping[str, tuple[Condition, str]] = {
    "optimizer.optimizer": (_muon, "the state of Muon is smaller than Adam's, and its step longer"),
    "optimizer.use_distributed_optimizer": (_muon, "Muon gives whole layers to the ranks, not shards of them"),
    "ddp.use_distributed_optimizer": (_muon, "Muon gives whole layers to the ranks, not shards of them"),
    "optimizer.main_params_dtype": (lambda p: p.policy.moments != "fp32", "the master weights take less memory"),
    "model.fine_grained_activation_offloading": (_fused_offload, "what goes to host memory still counts"),
    "model.offload_modules": (_fused_offload, "what goes to host memory still counts"),
    "model.moe_flex_dispatcher_backend": (
        lambda p: p.set.get("model.moe_flex_dispatcher_backend") == "ncclep" and p.policy.dispatcher != "alltoall",
        "the kernels of ncclep have other rates and buffers",
    ),
}
"""Free fields without a word or a price, each with its condition and how the estimate is wrong."""
OLDER: Mapping[str, str] = {
    # core transformer/transformer_config.py:2365 and :1835: both change what the plan decides
    "model.enable_cuda_graph": "`pin cuda_graph`, such as `pin cuda_graph=[moe_router, moe_preprocess]`",
    "model.external_cuda_graph": "`pin cuda_graph`, such as `pin cuda_graph=[moe_router, moe_preprocess]`",
    "model.moe_layer_recompute": "`pin recompute=moe`",
}
"""Switches of older releases that Megatron-Core turns into decided fields, each with the statement for it."""

UNFOLLOWED: Mapping[str, tuple[Any, Condition, str]] = {
    "model.moe_grouped_gemm": (True, _always, "each expert is then a product of its own, with its own launches"),
    "model.moe_pad_expert_input_to_capacity": (
        False,
        _always,
        "experts then compute and hold their whole capacity, padding included",
    ),
    "model.attention_backend": (
        "fused",
        lambda p: p.set.get("model.attention_backend") == "local",
        "Megatron's own attention keeps the scores of all heads, and its step is longer",
    ),
    "model.fp32_residual_connection": (False, _always, "the residual then takes twice the memory and the bandwidth"),
    "model.cpu_offloading": (False, _always, "what goes to host memory still counts"),
    "model.activation_offload_fraction": (
        1.0,
        lambda p: bool(p.policy.offload_modules),
        "what stays on the GPU needs memory too",
    ),
    "model.mtp_num_layers": (
        "the model's last layer",
        lambda p: family(p.family).mtp == "other" and bool(p.set.get("model.mtp_num_layers")),
        "Bridge builds another kind of layer for the prediction of this family",
    ),
    "mixed_precision.fp8_dot_product_attention": (
        False,
        lambda p: p.policy.precision != "bf16",
        "attention in FP8 has other kernels, with other rates",
    ),
    "ddp.num_distributed_optimizer_instances": (
        1,
        _always,
        "each instance shards the optimizer's state over its own replicas alone, so a rank holds more",
    ),
    "dist.use_torch_fsdp2": (False, _always, "PyTorch then shards the parameters too, and gathers them in each layer"),
}
"""Undecided fields with a cost: what the estimate has, where another value matters, and how the estimate is wrong."""
_CONDITIONS = _FREE | {path: holds for path, (holds, _) in UNPRICED.items()}


def is_free(path: str, plan: Plan) -> bool:
    """Whether a run with this plan may `set` a field that the plan decides."""
    return path in _CONDITIONS and _CONDITIONS[path](plan)

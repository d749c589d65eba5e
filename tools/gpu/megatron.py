"""Build one of Megatron-Core's layers for a single rank, as a step of forward and backward.

Settings that change what is launched are those of Bridge's recipes: alltoall, fused permutation, router in FP32,
gradients added to FP32 buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.fp4_utils import get_fp4_context
from megatron.core.fp8_utils import get_fp8_context
from megatron.core.models.gpt import experimental_attention_variant_module_specs, gpt_layer_specs
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.spec_utils import build_module
from megatron.core.transformer.transformer_config import TransformerConfig

FORMATS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "fp8_current": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8_blockwise": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"fp4": "e2m1"},
}
"""Megatron's fields for each precision (bridge training/mixed_precision.py)."""
HIDDEN, WIDTH, HEADS, TOPK = 1024, 512, 8, 8
"""A small layer: its launches are those of a large one."""


def step(what: str, local: int, precision: str, tokens: int, on_gpu: bool = True) -> Callable[[], None]:
    """Return a step of a module (attention, delta_net, router) or of a whole layer, dense or with that many experts."""
    _start(on_gpu)
    config = _config(what, local, precision, on_gpu)
    device = "cuda" if on_gpu else "cpu"
    built: Any = build_module(_spec(config, on_gpu), config=config, layer_number=1)
    layer = built.to(device=device, dtype=torch.bfloat16)
    for weight in layer.parameters():
        weight.main_grad = torch.zeros_like(weight, dtype=torch.float32)
    modules = {"attention": layer.self_attention, "delta_net": layer.self_attention, "router": layer.mlp}
    module = modules.get(what, layer)
    x, gradient = (torch.randn(tokens, 1, HIDDEN, device=device, dtype=torch.bfloat16) for _ in range(2))
    x.requires_grad_()

    def run() -> None:
        x.grad = None
        with ExitStack() as stack:
            for context in _contexts(config):
                stack.enter_context(context)
            out = module.router(x)[0] if what == "router" else module(x, attention_mask=None)[0]
        out.backward(gradient if out.shape == gradient.shape else torch.ones_like(out))

    return run


def _start(on_gpu: bool) -> None:
    """Make the groups of one rank."""
    dist: Any = torch.distributed
    if not dist.is_initialized():
        dist.init_process_group("nccl" if on_gpu else "gloo", store=dist.HashStore(), world_size=1, rank=0)
        parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
        model_parallel_cuda_manual_seed(1)


def _spec(config: TransformerConfig, on_gpu: bool) -> Any:
    """Return the specification of the layer; that of a delta net is in a module of its own."""
    variants: Any = experimental_attention_variant_module_specs
    if on_gpu and config.experimental_attention_variant:
        return variants.get_transformer_layer_with_experimental_attention_variant_spec(config)[0]
    specs: Any = gpt_layer_specs
    return specs.get_gpt_decoder_layer_specs(config, on_gpu, normalization="RMSNorm")[0]


def _config(what: str, local: int, precision: str, on_gpu: bool) -> TransformerConfig:
    experts: dict[str, Any] = {
        "num_moe_experts": local, "moe_router_topk": min(TOPK, local), "moe_ffn_hidden_size": WIDTH,
        "moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall", "moe_permute_fusion": on_gpu,
        "moe_router_dtype": "fp32", "moe_router_load_balancing_type": "aux_loss", "moe_aux_loss_coeff": 1e-3,
    }  # fmt: skip
    linear: dict[str, Any] = {
        "experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 2, "linear_num_key_heads": HEADS,
        "linear_num_value_heads": HEADS, "linear_key_head_dim": HIDDEN // HEADS,
        "linear_value_head_dim": HIDDEN // HEADS, "attention_output_gate": True, "deterministic_mode": not on_gpu,
    }  # fmt: skip
    return TransformerConfig(
        num_layers=1,
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_query_groups=HEADS // 2,
        ffn_hidden_size=4 * WIDTH,
        bf16=True,
        params_dtype=torch.bfloat16,
        normalization="RMSNorm",
        add_bias_linear=False,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        bias_activation_fusion=True,
        bias_dropout_fusion=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        qk_layernorm=True,
        gradient_accumulation_fusion=on_gpu,
        **(experts if local else {}),
        **(linear if what == "delta_net" else {}),
        **FORMATS[precision],
    )


def _contexts(config: TransformerConfig) -> list[AbstractContextManager[Any]]:
    return [make(config, 0) for make, on in ((get_fp8_context, config.fp8), (get_fp4_context, config.fp4)) if on]

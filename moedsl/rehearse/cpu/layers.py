"""Build Megatron-Core's local layers, dense and MoE, with PyTorch modules where it has only Transformer Engine's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from copy import copy
from typing import Any

from megatron.core.transformer.identity_op import IdentityOp

from moedsl.rehearse.cpu import delta_nets, experts, gemma4, sparse, windows
from moedsl.rehearse.cpu.modules import Attention, Duplicated, Norm, NormedColumn

_NORMS = {
    "megatron.core.transformer.torch_norm": ("WrappedTorchNorm",),
    "megatron.core.models.backends": ("WrappedTorchNorm", "FusedLayerNorm", "LNImpl"),
    "megatron.core.models.gpt.gpt_layer_specs": ("LNImpl",),
    "megatron.core.transformer.transformer_block": ("LayerNormImpl",),
}
_ATTENTIONS = {"megatron.core.models.backends": ("DotProductAttention",)}


def install() -> None:
    """Install each where Megatron-Core's local layers look for it, and local layers where Bridge requests TE's MTP."""
    for names, new in ((_NORMS, Norm), (_ATTENTIONS, Attention)):
        for module, attributes in names.items():
            for attribute in attributes:
                setattr(importlib.import_module(module), attribute, new)
    backends: Any = importlib.import_module("megatron.core.models.backends")
    backends.LocalSpecProvider.grouped_mlp_modules = experts.modules
    backends.LocalSpecProvider.column_parallel_layer_norm_linear = lambda self: NormedColumn
    latent: Any = importlib.import_module("megatron.core.transformer.multi_latent_attention")
    latent.TELinear = Duplicated
    provider: Any = importlib.import_module("megatron.bridge.models.gpt_provider")
    provider.mtp_block_spec = _mtp
    delta_nets.install()
    sparse.install()


def like(own: Any) -> Callable[..., Any]:
    """Return the function that makes Megatron-Core's local layers of one virtual stage, dense and MoE like the model's,
    with the changes of `own`, the model's layers."""
    changed = _CHANGED.get(getattr(getattr(own, "func", own), "__name__", ""))

    def layers(config: Any, vp_stage: int | None = None) -> Any:
        specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
        block = specs.get_gpt_decoder_block_spec(config, False, normalization=config.normalization, vp_stage=vp_stage)
        for spec in block.layer_specs:
            _as_on_gpu(spec, config)
            if changed:
                changed(spec)
        return block

    return layers


def _over_all_heads(spec: Any) -> None:
    """Normalise all heads at once, whole on each rank: bridge models/olmoe/olmoe_provider.py:44."""
    attention = spec.submodules.self_attention
    attention.module = importlib.import_module("megatron.bridge.models.olmoe.olmoe_provider").OLMoESelfAttention
    attention.submodules.q_layernorm = attention.submodules.k_layernorm = Norm


def _split_over_heads(spec: Any) -> None:
    """Normalise all heads at once, split over TP: bridge models/minimax_m2/minimax_m2_provider.py:211."""
    attention = spec.submodules.self_attention
    norms = importlib.import_module("megatron.bridge.models.minimax_m2.minimax_m2_provider")
    attention.submodules.q_layernorm, attention.submodules.k_layernorm = norms.FullDimQNorm, norms.FullDimKNorm


def _by_number(spec: Any) -> None:
    """Look the attention up by the number of the layer: bridge models/stepfun/step35_bridge.py:163."""
    spec.module = importlib.import_module("megatron.bridge.models.stepfun.step35_provider").Step35DecoderLayer


_CHANGED = {
    "olmoe_layer_spec": _over_all_heads,
    "minimax_m2_layer_spec": _split_over_heads,
    "mimo_v2_flash_layer_spec": windows.of_two_shapes,
    "_gemma4_block_spec": gemma4.layer,
    "build_step35_layer_spec": _by_number,
}
"""What Bridge's function that makes a model's layers changes of each."""


def _mtp(config: Any, vp_stage: int | None = None) -> Any:
    """Do what bridge models/gpt_provider.py:343 does, which requests Transformer Engine's layers for every model."""
    specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    if not config.mtp_num_layers:
        return None
    last = specs.get_gpt_decoder_layer_specs(_dense_ahead(config), False, normalization=config.normalization)[-1]
    _as_on_gpu(last, config)
    return specs.get_gpt_mtp_block_spec(config, last, use_transformer_engine=False, vp_stage=vp_stage)


def _dense_ahead(config: Any) -> Any:
    """Return the configuration of the layers that MTP repeats: without experts where Bridge gives it a dense MLP
    (models/exaone/exaone_moe/exaone_moe_provider.py:57-63)."""
    if type(config).__name__ != "ExaoneMoeModelProvider":
        return config
    dense = copy(config)
    dense.moe_layer_freq, dense.num_moe_experts, dense.moe_grouped_gemm = [0] * config.num_layers, None, False
    return dense


def _as_on_gpu(spec: Any, config: Any) -> None:
    """Keep latent attention's down projections whole on every tensor-parallel rank, and its queries' norm in place."""
    attention = spec.submodules.self_attention.submodules
    if not hasattr(attention, "linear_kv_down_proj"):
        return
    attention.linear_q_down_proj = attention.linear_kv_down_proj = Duplicated
    if config.q_lora_rank is None:
        attention.linear_q_proj, attention.q_layernorm = NormedColumn, IdentityOp

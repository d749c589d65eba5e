"""Build Megatron-Core's local layers, dense and MoE, with PyTorch modules where it has only Transformer Engine's."""

from __future__ import annotations

import importlib
from typing import Any

from megatron.core.transformer.identity_op import IdentityOp

from moedsl.rehearse.cpu import delta_nets, experts
from moedsl.rehearse.cpu.modules import Attention, Duplicated, NormedColumn, norm

_NORMS = {
    "megatron.core.transformer.torch_norm": ("WrappedTorchNorm",),
    "megatron.core.models.backends": ("WrappedTorchNorm", "FusedLayerNorm", "LNImpl"),
    "megatron.core.models.gpt.gpt_layer_specs": ("LNImpl",),
    "megatron.core.transformer.transformer_block": ("LayerNormImpl",),
}
_ATTENTIONS = {"megatron.core.models.backends": ("DotProductAttention",)}


def install() -> None:
    """Install each where Megatron-Core's local layers look for it, and local layers where Bridge requests TE's MTP."""
    for names, new in ((_NORMS, norm), (_ATTENTIONS, Attention)):
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


def layers(config: Any, vp_stage: int | None = None) -> Any:
    """Make Megatron-Core's local layers of one virtual stage, dense and MoE like the model's."""
    specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    block = specs.get_gpt_decoder_block_spec(config, False, normalization=config.normalization, vp_stage=vp_stage)
    for spec in block.layer_specs:
        _as_on_gpu(spec, config)
    return block


def _mtp(config: Any, vp_stage: int | None = None) -> Any:
    """Do what bridge models/gpt_provider.py:343 does, which requests Transformer Engine's layers for every model."""
    specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    if not config.mtp_num_layers:
        return None
    last = specs.get_gpt_decoder_layer_specs(config, False, normalization=config.normalization)[-1]
    _as_on_gpu(last, config)
    return specs.get_gpt_mtp_block_spec(config, last, use_transformer_engine=False, vp_stage=vp_stage)


def _as_on_gpu(spec: Any, config: Any) -> None:
    """Keep latent attention's down projections whole on every tensor-parallel rank, and its queries' norm in place."""
    attention = spec.submodules.self_attention.submodules
    if not hasattr(attention, "linear_kv_down_proj"):
        return
    attention.linear_q_down_proj = attention.linear_kv_down_proj = Duplicated
    if config.q_lora_rank is None:
        attention.linear_q_proj, attention.q_layernorm = NormedColumn, IdentityOp

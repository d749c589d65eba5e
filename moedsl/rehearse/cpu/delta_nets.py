"""Build layers with a gated delta net from Megatron-Core's local layers, with its PyTorch code.

Megatron-Core builds them only of Transformer Engine's modules (core
models/gpt/experimental_attention_variant_module_specs.py:439), and their kernels are those of fla, which need a GPU. In
deterministic mode, it computes convolution and scan in PyTorch (core ssm/gated_delta_net/gdn.py:59, 199); fla's norm of
queries and keys is replaced here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from torch import Tensor

from moedsl.rehearse.cpu.modules import Norm

_NET = "megatron.core.ssm.gated_delta_net.common"
_VARIANTS = "megatron.core.models.gpt.experimental_attention_variant_module_specs"
Specs = Callable[..., list[Any]]


def install() -> None:
    """Use local layers for a model whose layers differ by their attention, and a norm without a kernel."""
    net: Any = importlib.import_module(_NET)
    net.HAVE_FLA, net.l2norm = True, l2norm
    specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    specs.get_gpt_decoder_layer_specs = _with_delta_nets(specs.get_gpt_decoder_layer_specs)


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise each row by its length, like fla's function of the same name."""
    wide = x.float()
    return (wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def _with_delta_nets(ordinary: Specs) -> Specs:
    """Make the function work for models with gated delta nets too."""

    def layers(config: Any, *args: Any, **kwargs: Any) -> list[Any]:
        variants: Any = importlib.import_module(_VARIANTS)
        if not variants.is_linear_attention_variant(config.experimental_attention_variant):
            return ordinary(config, *args, **kwargs)
        plain = copy(config)
        plain.experimental_attention_variant = None
        pattern = variants.get_linear_attention_pattern(config)
        specs = ordinary(plain, *args, **kwargs)
        return [_linear(spec) if linear else spec for spec, linear in zip(specs, pattern, strict=True)]

    return layers


def _linear(layer: Any) -> Any:
    """Make an ordinary layer with a delta net as its attention; the norm before it stays a module."""
    nets: Any = importlib.import_module("megatron.core.ssm.gated_delta_net")
    specs: Any = importlib.import_module("megatron.core.transformer.spec_utils")
    attention = layer.submodules.self_attention.submodules
    parts = nets.GatedDeltaNetSubmodules(in_proj=attention.linear_qkv, out_norm=Norm, out_proj=attention.linear_proj)
    net = specs.ModuleSpec(module=nets.GatedDeltaNet, submodules=parts)
    return replace(layer, submodules=replace(layer.submodules, self_attention=net))

"""Build layers with sparse attention from Megatron-Core's local layers, with its own path in PyTorch.

Megatron-Core builds them only of Transformer Engine's modules (core
models/gpt/experimental_attention_variant_module_specs.py:427). Without a kernel backend its indexer and its attention
run in PyTorch on any device.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

from moedsl.rehearse.cpu.modules import Duplicated

_VARIANTS = "megatron.core.models.gpt.experimental_attention_variant_module_specs"
_BACKENDS = "megatron.core.models.backends"
_ABSORBED = "megatron.core.transformer.experimental_attention_variant.absorbed_mla"
Specs = Callable[..., list[Any]]


def install() -> None:
    """Use local layers for a model with sparse attention; its small linears are whole on each rank."""
    absorbed: Any = importlib.import_module(_ABSORBED)
    absorbed.TELinear = Duplicated
    backends: Any = importlib.import_module(_BACKENDS)
    backends.LocalSpecProvider.linear = lambda self: Duplicated
    specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
    specs.get_gpt_decoder_layer_specs = _with_indexers(specs.get_gpt_decoder_layer_specs)


def _with_indexers(ordinary: Specs) -> Specs:
    """Make the function work for models with sparse attention too."""

    def layers(config: Any, *args: Any, **kwargs: Any) -> list[Any]:
        if config.experimental_attention_variant != "dsa":
            return ordinary(config, *args, **kwargs)
        plain = copy(config)
        plain.experimental_attention_variant = None
        return [_sparse(spec, config) for spec in ordinary(plain, *args, **kwargs)]

    return layers


def _sparse(layer: Any, config: Any) -> Any:
    """Make an ordinary layer with sparse attention."""
    variants, backends = (importlib.import_module(name) for name in (_VARIANTS, _BACKENDS))
    attention = variants.get_dsa_module_spec_for_backend(config, backends.LocalSpecProvider())
    return replace(layer, submodules=replace(layer.submodules, self_attention=attention))

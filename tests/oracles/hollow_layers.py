"""Layers with nothing inside, for scripts that ask what a layer says of itself: Megatron-Core's own constructor, the
norms that its spec names, and stand-ins for attention and the MLP. Imported where Megatron-Core is."""

from types import SimpleNamespace
from typing import Any

import torch
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.moe.moe_layer import MoELayer
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules


class Inside(torch.nn.Module):
    """Attention or an MLP."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


class Experts(MoELayer):
    """A layer of experts, for code that asks for that class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        torch.nn.Module.__init__(self)

    def set_layer_number(self, layer_number: int) -> None: ...


def hollow(spec: Any, config: Any, attention: bool = True, mlp: Any = Experts) -> Any:
    """The layer of a spec."""
    parts = TransformerLayerSubmodules(
        input_layernorm=_norm(spec.submodules.input_layernorm),
        pre_mlp_layernorm=_norm(spec.submodules.pre_mlp_layernorm),
        self_attention=ModuleSpec(module=Inside) if attention else IdentityOp,
        mlp=mlp,
    )
    groups: Any = SimpleNamespace(tp=None, pp=SimpleNamespace(rank=lambda: 0), cp=None)
    return spec.module(config, parts, pg_collection=groups, add_layer_offset=False)


def asked(config: Any, recompute: tuple[str, ...], offload: tuple[str, ...]) -> Any:
    """The configuration with what is to be recomputed and offloaded."""
    if recompute:
        config.recompute_granularity, config.recompute_modules = "selective", list(recompute)
    if offload:
        config.fine_grained_activation_offloading, config.offload_modules = True, list(offload)
    return config


def _norm(spec: Any) -> Any:
    return spec if spec is IdentityOp else lambda **kwargs: torch.nn.LayerNorm(8)

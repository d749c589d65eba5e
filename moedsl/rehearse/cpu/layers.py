"""Build Megatron-Core's layers from PyTorch modules instead of Transformer Engine's.

`install` replaces what every model uses, and `like` changes the layers that a model family's Bridge code builds in its
own way. Parameters have the shapes and names of the real ones.

- Norm and attention: Megatron-Core's local norm refuses sequence parallelism (core/transformer/torch_norm.py:45), and
  its local attention refuses context parallelism and latent attention (core/transformer/dot_product_attention.py:60).
- Gated delta nets and sparse attention: Megatron-Core builds both only from Transformer Engine's modules (core
  models/gpt/experimental_attention_variant_module_specs.py:427, 439). In deterministic mode it computes a delta net's
  convolution and scan in PyTorch (core ssm/gated_delta_net/gdn.py:59, 199); fla's norm of queries and keys is replaced
  here. Without a kernel backend, the indexer and sparse attention run in PyTorch on any device.
- Experts: one matrix product each. Everything around it, including the activation's recompute, is Megatron-Core's
  TEGroupedMLP (core/transformer/moe/experts.py:182), with linears built as in
  core/extensions/transformer_engine.py:2612.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear, gather_from_sequence_parallel_region
from megatron.core.tensor_parallel.random import (
    get_cuda_rng_tracker,
    get_data_parallel_rng_tracker_name,
    get_expert_parallel_rng_tracker_name,
)
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.utils import is_layer_window_attention
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import linear

backends: Any = importlib.import_module("megatron.core.models.backends")
specs: Any = importlib.import_module("megatron.core.models.gpt.gpt_layer_specs")
variants: Any = importlib.import_module("megatron.core.models.gpt.experimental_attention_variant_module_specs")
_NORMS = {
    "transformer.torch_norm": ("WrappedTorchNorm",),
    "models.backends": ("WrappedTorchNorm", "FusedLayerNorm", "LNImpl"),
    "models.gpt.gpt_layer_specs": ("LNImpl",),
    "transformer.transformer_block": ("LayerNormImpl",),
}


def install() -> None:
    """Install the replacements where Megatron-Core's local layers look for them, and local MTP layers where Bridge asks
    for Transformer Engine's."""
    for module, attributes in _NORMS.items():
        for attribute in attributes:
            setattr(importlib.import_module(f"megatron.core.{module}"), attribute, Norm)
    backends.DotProductAttention = Attention
    backends.LocalSpecProvider.grouped_mlp_modules = grouped_experts
    backends.LocalSpecProvider.column_parallel_layer_norm_linear = lambda self: NormedColumn
    latent: Any = importlib.import_module("megatron.core.transformer.multi_latent_attention")
    latent.TELinear = Duplicated
    provider: Any = importlib.import_module("megatron.bridge.models.gpt_provider")
    provider.mtp_block_spec = _mtp
    install_variants()


def like(own: Any) -> Callable[..., Any]:
    """Return a function that builds Megatron-Core's local layers of one virtual stage, dense and MoE like the model's.

    `own` is the model's layer function; its changes in `_CHANGED` are applied to each layer.
    """
    changed = _CHANGED.get(getattr(getattr(own, "func", own), "__name__", ""))

    def layers(config: Any, vp_stage: int | None = None) -> Any:
        block = specs.get_gpt_decoder_block_spec(config, False, normalization=config.normalization, vp_stage=vp_stage)
        for spec in block.layer_specs:
            _as_on_gpu(spec, config)
            if changed:
                changed(spec)
        return block

    return layers


def over_all_heads(spec: Any) -> None:
    """Normalise queries and keys over all heads at once, whole on each rank (bridge
    models/olmoe/olmoe_provider.py:44)."""
    attention = spec.submodules.self_attention
    attention.module = importlib.import_module("megatron.bridge.models.olmoe.olmoe_provider").OLMoESelfAttention
    attention.submodules.q_layernorm = attention.submodules.k_layernorm = Norm


def split_over_heads(spec: Any) -> None:
    """Normalise queries and keys over all heads at once, split over TP (bridge
    models/minimax_m2/minimax_m2_provider.py:211)."""
    attention = spec.submodules.self_attention
    norms = importlib.import_module("megatron.bridge.models.minimax_m2.minimax_m2_provider")
    attention.submodules.q_layernorm, attention.submodules.k_layernorm = norms.FullDimQNorm, norms.FullDimKNorm


def by_number(spec: Any) -> None:
    """Use the layer that looks its attention up by layer number (bridge models/stepfun/step35_bridge.py:163)."""
    spec.module = importlib.import_module("megatron.bridge.models.stepfun.step35_provider").Step35DecoderLayer


def _mtp(config: Any, vp_stage: int | None = None) -> Any:
    """Build MTP like bridge models/gpt_provider.py:343, but from local layers instead of Transformer Engine's."""
    if not config.mtp_num_layers:
        return None
    # no experts where Bridge gives MTP a dense MLP (models/exaone/exaone_moe/exaone_moe_provider.py:57-63)
    repeated = config
    if type(config).__name__ == "ExaoneMoeModelProvider":
        repeated = copy(config)
        repeated.moe_layer_freq, repeated.num_moe_experts = [0] * config.num_layers, None
        repeated.moe_grouped_gemm = False
    last = specs.get_gpt_decoder_layer_specs(repeated, False, normalization=config.normalization)[-1]
    _as_on_gpu(last, config)
    return specs.get_gpt_mtp_block_spec(config, last, use_transformer_engine=False, vp_stage=vp_stage)


def _as_on_gpu(spec: Any, config: Any) -> None:
    """Build latent attention as on a GPU: unsplit down projections, and the norm of queries inside a single
    projection."""
    attention = spec.submodules.self_attention.submodules
    if not hasattr(attention, "linear_kv_down_proj"):
        return
    attention.linear_q_down_proj = attention.linear_kv_down_proj = Duplicated
    if config.q_lora_rank is None:
        attention.linear_q_proj, attention.q_layernorm = NormedColumn, IdentityOp


def install_variants() -> None:
    """Use local layers, and paths without kernels, for models with gated delta nets or sparse attention.

    Sparse attention's small linears are whole on each rank.
    """
    nets: Any = importlib.import_module("megatron.core.ssm.gated_delta_net")
    common: Any = importlib.import_module("megatron.core.ssm.gated_delta_net.common")
    common.HAVE_FLA, common.l2norm = True, l2norm
    absorbed: Any = importlib.import_module("megatron.core.transformer.experimental_attention_variant.absorbed_mla")
    absorbed.TELinear = Duplicated
    backends.LocalSpecProvider.linear = lambda self: Duplicated
    ordinary = specs.get_gpt_decoder_layer_specs

    def layers(config: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Return the ordinary layers with the variant's attention where the model has it; the norm before it is a
        module."""
        linear = variants.is_linear_attention_variant(config.experimental_attention_variant)
        if not linear and config.experimental_attention_variant != "dsa":
            return ordinary(config, *args, **kwargs)
        plain = copy(config)
        plain.experimental_attention_variant = None
        made = ordinary(plain, *args, **kwargs)
        pattern = variants.get_linear_attention_pattern(config) if linear else [True] * len(made)
        for i in (i for i, is_own in enumerate(pattern) if is_own):
            if linear:
                own = made[i].submodules.self_attention.submodules
                parts = nets.GatedDeltaNetSubmodules(in_proj=own.linear_qkv, out_norm=Norm, out_proj=own.linear_proj)
                attention = ModuleSpec(module=nets.GatedDeltaNet, submodules=parts)
            else:
                attention = variants.get_dsa_module_spec_for_backend(config, backends.LocalSpecProvider())
            made[i] = replace(made[i], submodules=replace(made[i].submodules, self_attention=attention))
        return made

    specs.get_gpt_decoder_layer_specs = layers


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise each row by its L2 norm, like fla's function of the same name."""
    wide = x.float()
    return (wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


class Norm:
    """RMSNorm or LayerNorm; its gradients are summed over TP if sequence parallelism splits its input.

    It is a class because Megatron-Core does not call a function to build a module (core transformer/spec_utils.py:86).
    """

    def __new__(cls, config: Any, hidden_size: int, eps: float = 1e-5, **_: object) -> Any:
        kinds = {"RMSNorm": torch.nn.RMSNorm, "LayerNorm": torch.nn.LayerNorm}
        module = kinds[config.normalization](hidden_size, eps=eps, dtype=config.params_dtype)
        for parameter in module.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return module


class Attention(MegatronModule):
    """Causal attention of local queries over the keys and values of the whole context-parallel group.

    Inputs are [sequence, batch, heads, width] of this rank, the output [sequence, batch, heads x value width].
    """

    def __init__(
        self, config: Any, layer_number: int, *_: Any, softmax_scale: Any = None, pg_collection: Any = None, **__: Any
    ) -> None:
        super().__init__(config=config)
        self.scale, self.group = softmax_scale, pg_collection.cp
        windowed = is_layer_window_attention(config.window_size, config.window_attn_skip_freq, layer_number)
        self.window = config.window_size[0] if windowed else None
        self.softmax_offset: Tensor | None = None
        if config.softmax_type == "learnable":
            heads = config.num_attention_heads // pg_collection.tp.size()
            self.softmax_offset = torch.nn.Parameter(torch.zeros(heads, dtype=config.params_dtype))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        parts = self.group.size()
        rows = _positions(parts, self.group.rank(), query.size(0))
        columns = torch.cat([_positions(parts, part, query.size(0)) for part in range(parts)])
        if parts > 1:
            key, value = (gather_from_sequence_parallel_region(x, group=self.group) for x in (key, value))
        copies = query.size(2) // key.size(2)
        key, value = (x.repeat_interleave(copies, dim=2) for x in (key, value))
        scale = self.scale or 1 / math.sqrt(query.size(-1))
        scores = torch.einsum("qbhd,kbhd->bhqk", query, key) * scale
        distance = rows[:, None] - columns[None, :]
        hidden = distance < 0 if self.window is None else (distance < 0) | (distance > self.window)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        if self.softmax_offset is not None:  # attention sinks: a learned offset in the denominator
            offset = self.softmax_offset.view(1, -1, 1, 1).expand(scores.size(0), -1, scores.size(2), 1)
            scores = torch.cat([scores, offset], -1)
        shares = scores.softmax(-1)[..., : columns.numel()]
        return torch.einsum("bhqk,kbhd->qbhd", shares, value).flatten(2).contiguous()


def _positions(parts: int, part: int, length: int) -> Tensor:
    """Return the positions of a rank's tokens: of 2 x parts pieces, one from the front and its mirror from the back."""
    if parts == 1:
        return torch.arange(length)
    piece = length // 2
    front, back = part, 2 * parts - 1 - part
    return torch.cat([torch.arange(i * piece, (i + 1) * piece) for i in (front, back)])


class Duplicated(torch.nn.Module):
    """A linear that is whole on every tensor-parallel rank, for latent attention's down projections.

    Megatron-Core's local layers split them (core/models/gpt/gpt_layer_specs.py:422), Transformer Engine's do not
    (core/extensions/transformer_engine.py:975), and moedsl counts the latter.
    """

    def __init__(self, inputs: int, outputs: int, *, config: Any, init_method: Any, **_: object) -> None:
        super().__init__()
        weight = torch.empty(outputs, inputs, dtype=config.params_dtype)
        tracker: Any = get_cuda_rng_tracker()
        with tracker.fork(get_data_parallel_rng_tracker_name()):  # the same values on each rank
            init_method(weight)
        self.weight = torch.nn.Parameter(weight)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """Return the output, and no bias to add later."""
        return torch.nn.functional.linear(x, self.weight), None


class NormedColumn(ColumnParallelLinear):
    """A column-parallel linear after a norm of its input, in one module as in Transformer Engine.

    Latent attention without a q_lora_rank uses it (core/transformer/multi_latent_attention.py:505).
    """

    def __init__(self, inputs: int, outputs: int, *, config: Any, **more: Any) -> None:
        super().__init__(inputs, outputs, config=config, **more)
        self.layer_norm = Norm(config, inputs, config.layernorm_epsilon)

    def forward(self, input_: Tensor, *more: Any, **others: Any) -> Any:
        return super().forward(self.layer_norm(input_), *more, **others)


class _Grouped(torch.nn.Module):
    """`count` linears, one per expert; weight{i} is [outputs, inputs]. The dispatcher does expert tensor
    parallelism."""

    def __init__(self, count: int, inputs: int, outputs: int, config: Any, how: Any, bias: bool, late: bool) -> None:
        super().__init__()
        self.count, self.late, self.has_bias = count, late, bias
        tracker: Any = get_cuda_rng_tracker()
        for i in range(count):
            made: dict[str, Any] = {"weight": Parameter(torch.empty(outputs, inputs, dtype=config.params_dtype))}
            with tracker.fork(get_expert_parallel_rng_tracker_name()):  # different values on each expert-mesh rank
                how(made["weight"].data)
            if bias:
                made["bias"] = Parameter(torch.zeros(outputs, dtype=config.params_dtype))
            for name, parameter in made.items():  # False: its gradient is reduced over the expert mesh
                parameter.allreduce = config.expert_model_parallel_size == 1
                self.register_parameter(f"{name}{i}", parameter)

    def forward(self, x: Tensor, counts: Sequence[int]) -> tuple[Tensor, list[Any] | None]:
        """Multiply each expert's tokens, in order, [tokens, inputs]; returns biases too if they are added later."""
        weights = [getattr(self, f"weight{i}") for i in range(self.count)]
        biases = [getattr(self, f"bias{i}") for i in range(self.count)] if self.has_bias else [None] * self.count
        now = [None] * self.count if self.late else biases
        parts = [linear(t, w, b) for t, w, b in zip(torch.split(x, list(counts)), weights, now, strict=True)]
        return torch.cat(parts), biases if self.late and self.has_bias else None


def _split(of_outputs: bool) -> Callable[..., Any]:
    """Return a builder of grouped linears; expert tensor parallelism splits their outputs, or else their inputs."""

    def build(
        count: int, inputs: int, outputs: int, *, config: Any, init_method: Any, bias: bool, **more: Any
    ) -> _Grouped:
        parts = more["pg_collection"].expt_tp.size()
        inputs, outputs = (inputs, outputs // parts) if of_outputs else (inputs // parts, outputs)
        return _Grouped(count, inputs, outputs, config, init_method, bias, more["skip_bias_add"])

    return build


def grouped_experts(self: object, grouped: bool) -> Any:
    """Return the module that Megatron-Core's local layers use for the experts of a rank
    (core/models/backends.py:138)."""
    from megatron.core.transformer.moe.experts import GroupedMLPSubmodules, TEGroupedMLP

    return partial(TEGroupedMLP, submodules=GroupedMLPSubmodules(linear_fc1=_split(True), linear_fc2=_split(False)))


def of_two_shapes(spec: Any) -> None:
    """Use the attention of bridge models/mimo_v2_flash/modeling_mimo_v2_flash.py:294."""
    attention = spec.submodules.self_attention
    bridge = importlib.import_module("megatron.bridge.models.mimo_v2_flash.modeling_mimo_v2_flash")
    attention.module = bridge.MiMoV2FlashSelfAttention
    attention.submodules.core_attention = _WindowCore


class _WindowCore(Attention):
    """Attention with a window and sinks in some layers, and scaled values in all (modeling_mimo_v2_flash.py:230)."""

    def __init__(self, config: Any, layer_number: int, *words: Any, **named: Any) -> None:
        own, windowed = copy(config), config.hybrid_attention_pattern[layer_number - 1] == 1
        own.window_size = (config.window_size - 1, 0) if windowed else None
        own.softmax_type = "learnable" if windowed else "vanilla"
        super().__init__(own, layer_number, *words, **named)
        self.value_scale: float | None = config.attention_value_scale

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *words: Any, **named: Any) -> Tensor:
        scaled = value if self.value_scale is None else value * self.value_scale
        return super().forward(query, key, scaled, *words, **named)


def gemma4_layer(spec: Any) -> None:
    """Use the layer of bridge models/gemma/modeling_gemma4.py:1517."""
    bridge = importlib.import_module("megatron.bridge.models.gemma.modeling_gemma4")
    spec.module = bridge.Gemma4TransformerLayer
    attention, experts = spec.submodules.self_attention, copy(spec.submodules.mlp.keywords["submodules"])
    attention.module = bridge.Gemma4SelfAttention
    attention.submodules.core_attention, attention.submodules.linear_proj = _Gemma4Core, _NormedRow
    experts.router = bridge.Gemma4TopKRouter
    spec.submodules.mlp = partial(bridge.Gemma4MoELayer, submodules=experts)


class _Gemma4Core(Attention):
    """Attention with a window in all but the full-attention layers (modeling_gemma4.py:1726)."""

    def __init__(self, config: Any, layer_number: int, *words: Any, **named: Any) -> None:
        own, windowed = copy(config), layer_number % sum(config.interleaved_attn_pattern) > 0
        own.window_size = (config.window_size - 1, 0) if windowed else None
        super().__init__(own, layer_number, *words, **named)


class _NormedRow(RowParallelLinear):
    """A row-parallel linear with a norm of its output (bridge models/common/te_layers.py:26)."""

    def __init__(self, inputs: int, outputs: int, *, config: Any, **more: Any) -> None:
        super().__init__(inputs, outputs, config=config, **more)
        self.post_layernorm = Norm(config, outputs, config.layernorm_epsilon)

    def forward(self, input_: Tensor) -> Any:
        output, bias = super().forward(input_)
        return self.post_layernorm(output), bias


_CHANGED = {
    "olmoe_layer_spec": over_all_heads,
    "minimax_m2_layer_spec": split_over_heads,
    "mimo_v2_flash_layer_spec": of_two_shapes,
    "_gemma4_block_spec": gemma4_layer,
    "build_step35_layer_spec": by_number,
}
"""The change to each layer, by the name of Bridge's function that makes a model's layers."""

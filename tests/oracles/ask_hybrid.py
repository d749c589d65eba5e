"""What NVIDIA's code does with the layers of a hybrid: which module a graph captures, what recomputation and offload
reach, and what the model itself lacks. JSON on stdout.

Each question runs the real function on the smallest objects that it reads. Run as a script where Bridge is installed:
CUDA is stood in for, and so are Mamba's kernels.
"""

import os
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify import stand_ins
from tests.oracles.ask_training import _grouped, tell, told, without_gpu

WORDS = ("attn", "mamba", "moe_router")
MODULES = ("layernorm", "mlp")
OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")


# The model ------------------------------------------------------------------------------------------------------------


def schedules() -> dict[str, str]:
    """Whether the overlapped schedule finds what it asks of a model (core pipeline_parallel/combined_1f1b.py:381)."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.hybrid.hybrid_model import HybridModel
    from megatron.core.utils import get_attr_wrapped_model

    out = {}
    for kind in (GPTModel, HybridModel):
        model = kind.__new__(kind)
        model.__dict__["_modules"] = {}
        out[kind.__name__] = told(
            lambda m=model: get_attr_wrapped_model(m, "build_schedule_plan", return_model_obj=True)
        )
    return out


def chunks() -> dict[str, str]:
    """What the provider of a hybrid says of so many virtual stages, before it makes anything."""
    from megatron.bridge.models.hybrid.hybrid_provider import HybridModelProvider

    def provided(vpp: int | None) -> None:
        provider = HybridModelProvider(num_layers=None, hidden_size=64, hybrid_layer_pattern="M*M*|M*M*")
        provider.virtual_pipeline_model_parallel_size, provider.vocab_size = (
            vpp,
            None,
        )  # it asks for both, in this order
        provider.provide(pre_process=True, post_process=True)

    return {str(vpp): told(lambda v=vpp: provided(v)) for vpp in (None, 2)}


# Layers ---------------------------------------------------------------------------------------------------------------


def _parts() -> dict[str, Any]:
    from megatron.core.models.hybrid.hybrid_layer_specs import hybrid_stack_spec

    parts = hybrid_stack_spec.submodules
    return {"*": parts.attention_layer, "E": parts.moe_layer, "-": parts.mlp_layer}


def _layer(letter: str, recompute: tuple[str, ...] = (), offload: tuple[str, ...] = (), **fields: Any) -> Any:
    """A layer of one block with nothing inside."""
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.transformer_config import TransformerConfig

    from tests.oracles.hollow_layers import Experts, Inside, asked, hollow

    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1, num_moe_experts=2, bf16=True)
    for name, value in fields.items():
        setattr(config, name, value)
    inside: Any = {"E": Experts, "-": Inside}.get(letter, IdentityOp)
    return hollow(_parts()[letter], asked(config, recompute, offload), attention=letter == "*", mlp=inside)


def _mamba() -> Any:
    from megatron.core.ssm.mamba_layer import MambaLayer

    return MambaLayer.__new__(MambaLayer)


def captured() -> dict[str, list[str]]:
    """The letters whose layers Transformer Engine captures for a word, and the stack that MTP is built of."""
    import torch
    from megatron.core.models.hybrid.hybrid_block import HybridStack
    from megatron.core.transformer.cuda_graphs import _layer_is_graphable
    from megatron.core.transformer.enums import CudaGraphModule

    stack = HybridStack.__new__(HybridStack)
    torch.nn.Module.__init__(stack)
    layers = {"M": _mamba(), **{letter: _layer(letter) for letter in "*E-"}, "mtp": stack}
    return {
        word: [
            name
            for name, layer in layers.items()
            if _layer_is_graphable(layer, SimpleNamespace(cuda_graph_modules=[CudaGraphModule[word]]))
        ]
        for word in WORDS
    }


def recomputed() -> dict[str, list[str]]:
    """What a layer of each letter says it recomputes, for a word of `recompute`."""
    flags = ("recompute_input_layernorm", "recompute_pre_mlp_layernorm", "recompute_mlp")
    return {
        f"{word} {letter}": [f for f in flags if getattr(_layer(letter, recompute=(word,)), f)]
        for word in MODULES
        for letter in "*E-"
    }


def recomputed_in_graph() -> dict[str, bool]:
    """Whether a captured layer of experts recomputes its norm, by dispatcher and with or without latent experts."""
    from megatron.core.transformer.enums import CudaGraphModule

    out = {}
    for dispatcher in ("alltoall", "flex"):
        for latent in (0, 4):
            layer = _layer(
                "E",
                recompute=("layernorm",),
                cuda_graph_impl="transformer_engine",
                cuda_graph_modules=[CudaGraphModule.moe_router, CudaGraphModule.moe_preprocess],
                moe_token_dispatcher_type=dispatcher,
                moe_latent_size=latent or None,
            )
            out[f"{dispatcher} {latent}"] = layer.recompute_pre_mlp_layernorm
    return out


def offloaded() -> dict[str, list[str]]:
    """The norms whose input a layer of each letter offloads, where everything is asked for."""
    flags = ("offload_attn_norm", "offload_mlp_norm")
    return {letter: [f for f in flags if getattr(_layer(letter, offload=OFFLOADED), f)] for letter in "*E-"}


def mamba_reads() -> list[str]:
    """The fields of recomputation and offload that the code of a Mamba layer names."""
    from pathlib import Path

    from megatron.core.ssm import mamba_layer, mamba_mixer

    text = "".join(Path(str(m.__file__)).read_text(encoding="utf-8") for m in (mamba_layer, mamba_mixer))
    return [w for w in ("recompute_granularity", "recompute_modules", "offload_modules", "off_interface") if w in text]


# Experts --------------------------------------------------------------------------------------------------------------


def squared_relu() -> dict[str, str]:
    """The fused experts' operations with a squared ReLU, with and without a recomputed activation."""
    from megatron.core.activations import squared_relu as activation
    from megatron.core.transformer.moe.experts import TEGroupedMLP

    out = {}
    for recompute in (False, True):
        config = SimpleNamespace(
            moe_mlp_glu_interleave_size=32, activation_func=activation, gated_linear_unit=False,
            activation_func_clamp_value=None, use_fused_weighted_squared_relu=True,
        )  # fmt: skip
        experts: Any = SimpleNamespace(
            linear_fc1=_grouped(64, 128), linear_fc2=_grouped(128, 64), activation_recompute=recompute,
            config=config, _make_fused_impl_pre_forward_hook=lambda: lambda *a: None,
        )  # fmt: skip
        out[str(recompute)] = told(lambda e=experts: TEGroupedMLP._make_fused_ops(e))
    return out


def fused_squared_relu() -> dict[str, bool]:
    """Whether experts with a squared ReLU may be fused, by the field that says its one kernel."""
    from megatron.core.activations import squared_relu as activation
    from megatron.core.transformer.moe.experts import TEGroupedMLP
    from transformer_engine.pytorch import GroupedLinear

    linear: Any = GroupedLinear.__new__(GroupedLinear)
    linear.__dict__["use_bias"] = False
    out = {}
    for fused in (False, True):
        config = SimpleNamespace(
            gated_linear_unit=False, activation_func=activation, moe_apply_probs_on_input=False,
            use_fused_weighted_squared_relu=fused,
        )  # fmt: skip
        group = SimpleNamespace(size=lambda: 1)
        experts: Any = SimpleNamespace(config=config, tp_group=group, linear_fc1=linear, linear_fc2=linear)
        out[str(fused)] = TEGroupedMLP._is_fused_impl_supported(experts)
    return out


def router_on_meta() -> dict[str, bool]:
    """Whether a router's weight is on the meta device, as the GPT provider makes it there and as a hybrid's does."""
    import torch
    from megatron.core.transformer.moe.router import TopKRouter
    from megatron.core.transformer.transformer_config import TransformerConfig

    groups: Any = SimpleNamespace(**dict.fromkeys(
        ("tp", "cp", "tp_cp", "tp_dp_cp", "ep", "expt_tp", "expt_dp", "tp_ep", "tp_ep_pp", "dp_cp")
    ))  # fmt: skip
    config = TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, num_moe_experts=8, moe_router_topk=2, bf16=True,
        moe_router_enable_expert_bias=True, moe_router_score_function="sigmoid", init_model_with_meta_device=True,
    )  # fmt: skip
    out = {}
    with patch.object(torch.cuda, "current_device", lambda: "cpu"):
        for provider, device in (("gpt", "meta"), ("hybrid", "cpu")):
            with torch.device(device):
                out[provider] = TopKRouter(config=config, pg_collection=groups).weight.is_meta
    return out


def quantisable() -> dict[str, bool]:
    """Whether MXFP8 can quantise what a Mamba layer's first product leaves of its weight on so many ranks."""
    import torch
    from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer

    quantizer: Any = MXFP8Quantizer.__new__(MXFP8Quantizer)
    return {str(tp): quantizer.is_quantizable(torch.empty(10304 // tp, 2688, device="meta")) for tp in (1, 2, 4, 8)}


QUESTIONS = (
    schedules, chunks, captured, recomputed, recomputed_in_graph, offloaded, mamba_reads, squared_relu,
    fused_squared_relu, router_on_meta, quantisable,
)  # fmt: skip


def main() -> None:
    os.environ["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = "1"
    stand_ins.install_engine()
    without_gpu()
    stand_ins.install_mamba()
    tell(QUESTIONS)


if __name__ == "__main__":
    main()

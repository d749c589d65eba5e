"""What NVIDIA's code does with the layers of a model with delta nets: what a graph captures of them, what recomputation
and offload reach, what a rank can hold. JSON on stdout.

Each question runs the real function on the smallest objects that it reads. Run as a script where Bridge is installed:
CUDA is stood in for.
"""

import os
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify import stand_ins
from tests.oracles.ask_training import Nothing, tell, told, without_gpu

OFFLOADED = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm")
KINDS = {"net": 0, "attention": 3}
"""The position of a layer of each kind, of four."""


def config(**fields: Any) -> Any:
    """Four layers, of which the last has attention."""
    import torch.nn.functional as F
    from megatron.core.transformer.transformer_config import TransformerConfig

    return TransformerConfig(
        num_layers=4, hidden_size=64, num_attention_heads=16, num_query_groups=2, num_moe_experts=4, moe_router_topk=2,
        moe_grouped_gemm=True, bf16=True, normalization="RMSNorm", gated_linear_unit=True, activation_func=F.silu,
        add_bias_linear=False, qk_layernorm=True, attention_output_gate=True, sequence_parallel=False,
        experimental_attention_variant="gated_delta_net", linear_attention_freq=4, linear_num_key_heads=16,
        linear_num_value_heads=32, **fields,
    )  # fmt: skip


def specs(made: Any) -> list[Any]:
    """Megatron's own specs of the layers."""
    from megatron.core.models.gpt import experimental_attention_variant_module_specs as variants

    return variants.get_transformer_layer_with_experimental_attention_variant_spec(made)


def _layer(
    kind: str, recompute: tuple[str, ...] = (), offload: tuple[str, ...] = (), graph: tuple[str, ...] = ()
) -> Any:
    """A layer of a kind with nothing inside."""
    from megatron.core.transformer.enums import CudaGraphModule

    from tests.oracles.hollow_layers import asked, hollow

    made = asked(config(), recompute, offload)
    made.cuda_graph_modules = [CudaGraphModule[word] for word in graph]
    if graph:
        made.cuda_graph_impl = "transformer_engine"
    return hollow(specs(made)[KINDS[kind]], made)


# Layers ---------------------------------------------------------------------------------------------------------------


def mixers() -> list[str]:
    """What stands in the place of attention, layer by layer."""
    return [spec.submodules.self_attention.module.__name__ for spec in specs(config())]


def captured() -> dict[str, list[str]]:
    """The kinds of layers that Transformer Engine captures for a word."""
    from megatron.core.transformer.cuda_graphs import _layer_is_graphable

    return {
        word: [kind for kind in KINDS if _layer_is_graphable(layer := _layer(kind, graph=(word,)), layer.config)]
        for word in ("attn", "moe_router", "mamba")
    }


def recomputed() -> dict[str, list[str]]:
    """What a layer of each kind says it recomputes for `layernorm`: the norm that stands alone."""
    flags = ("recompute_input_layernorm", "recompute_pre_mlp_layernorm", "recompute_mlp")
    return {kind: [f for f in flags if getattr(_layer(kind, recompute=("layernorm", "mlp")), f)] for kind in KINDS}


def offloaded() -> dict[str, list[str]]:
    """The norms whose input a layer of each kind offloads, where everything is asked for."""
    flags = ("offload_attn_norm", "offload_mlp_norm")
    return {kind: [f for f in flags if getattr(_layer(kind, offload=OFFLOADED), f)] for kind in KINDS}


def net_reads() -> list[str]:
    """The words of recomputation and offload that the code of a delta net names."""
    from megatron.core.ssm.gated_delta_net import common, gdn

    text = "".join(Path(str(m.__file__)).read_text(encoding="utf-8") for m in (common, gdn))
    words = ('core_attn"', "gdn_norm_out", "offload_modules", "off_interface", "fine_grained_activation_offloading")
    return [w for w in words if w in text]


def delayed() -> dict[str, bool]:
    """Whether the delayed weight gradients of a layer are taken from what stands in the place of attention."""
    from megatron.core.models.common.utils import _BackwardDWWrapper

    names = ("_backward_in_proj", "_backward_out_proj", "_backward_qkv_proj", "_backward_output_proj")
    out = {}
    for kind in KINDS:
        layer, ran = _layer(kind), list[str]()
        layer.is_moe_layer = False
        own = specs(layer.config)[KINDS[kind]].submodules.self_attention.module.backward_dw
        net = SimpleNamespace(**{name: partial(ran.append, name) for name in names})
        layer.self_attention.backward_dw = partial(own, net)
        _BackwardDWWrapper(layer).backward_dw()
        out[kind] = len(ran) == 2
    return out


def _no(*args: Any, **kwargs: Any) -> None: ...


def joins() -> dict[str, bool]:
    """Whether the stream of the copies has waited for a captured layer before the layer waits for it, by the layer's
    kind: where it has not, a real capture refuses to wait for it."""
    import torch
    from megatron.core.pipeline_parallel import fine_grained_activation_offload as module

    waits: list[tuple[str, str]] = []

    class Stream(Nothing):
        def __init__(self, name: str = "") -> None:
            self.name = name

        def wait_stream(self, other: Any) -> None:
            waits.append((self.name, other.name))

    main, offload = Stream("main"), module.FineGrainedActivationOffloadingInterface
    cuda: Any = torch.cuda
    out = {}
    for kind in KINDS:
        with (
            patch.object(cuda, "Stream", Stream), patch.object(cuda, "Event", Nothing),
            patch.object(cuda, "current_stream", lambda: main), patch.object(cuda, "stream", lambda s: nullcontext()),
            patch.object(module, "nvtx_range_push", _no), patch.object(module, "nvtx_range_pop", _no),
        ):  # fmt: skip
            offload.reset_instance()
            manager = module.PipelineOffloadManager.get_instance()
            manager._d2h_stream, waits[:] = Stream("copies"), []
            offload.init_chunk_handler(0, None, None, 1, 0, 1.0)
            layer = _layer(kind, offload=("core_attn",), graph=("attn",))
            assert layer.offload_module_in_cuda_graph
            if kind == "attention":  # core transformer/attention.py:1541; a delta net opens no group (`net_reads`)
                start = module.fine_grained_offloading_group_start
                commit = module.fine_grained_offloading_group_offload
                commit(start(torch.ones(2, requires_grad=True) * 1, "core_attn"), "core_attn", [])
            layer.off_interface.forward_record()
        out[kind] = waits.index(("main", "copies")) > waits.index(("copies", "main")) if len(waits) > 1 else False
    return out


# The model ------------------------------------------------------------------------------------------------------------


def heads() -> dict[str, str]:
    """What Megatron's configuration says of 16 heads of keys over a mesh."""
    return {
        f"{tp} {cp}": told(lambda tp=tp, cp=cp: config(tensor_model_parallel_size=tp, context_parallel_size=cp))
        for tp, cp in ((1, 16), (2, 8), (4, 4), (16, 1), (4, 8), (1, 32), (2, 3))
    }


def layer_of_mtp() -> dict[str, str]:
    """What MTP's layer is made of, by the decoder layers in its chunk; Bridge asks it of every chunk."""
    from megatron.bridge.models import gpt_provider
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

    out = {}
    for layers in (0, 1, 4):

        def chunk(made: Any, n: int = layers) -> Any:
            return TransformerBlockSubmodules(layer_specs=specs(made)[4 - n :])

        made = config(mtp_num_layers=1)
        made.transformer_layer_spec = chunk
        found: list[str] = []
        with (
            patch.object(gpt_layer_specs, "get_mtp_num_layers_to_build", lambda *a, **k: 1),
            patch.object(gpt_layer_specs, "get_mtp_layer_offset", lambda *a, **k: 0),
        ):
            said = told(lambda made=made, found=found: found.append(_mtp_mixer(gpt_provider.mtp_block_spec(made))))
        out[str(layers)] = found[0] if found else said
    return out


def _mtp_mixer(spec: Any) -> str:
    (layer,) = spec.layer_specs
    return layer.submodules.mtp_model_layer.submodules.self_attention.module.__name__


def gate_of_shared_experts() -> dict[str, bool]:
    """Whether their gate is on the meta device where the GPT provider makes it there, and whether its module, as
    Megatron FSDP asks, can fill it."""
    import torch
    from megatron.core.transformer.mlp import MLP
    from megatron.core.transformer.moe.shared_experts import SharedExpertMLP

    def plain(self: Any, config: Any, **kwargs: Any) -> None:
        torch.nn.Module.__init__(self)
        self.config = config

    made: Any = config(moe_shared_expert_intermediate_size=64)
    submodules: Any = None
    with patch.object(MLP, "__init__", plain), torch.device("meta"):
        experts = SharedExpertMLP(made, submodules, gate=True, pg_collection=SimpleNamespace(tp=None))  # type: ignore[arg-type]
    return {
        "meta": experts.gate_weight.is_meta,
        "fills": hasattr(experts, "reset_parameters") or hasattr(experts, "_reset_parameters"),
    }


def net_on_meta() -> dict[str, bool]:
    """Whether parameters of a delta net itself are on the meta device, where the GPT provider makes its model there."""
    import torch
    from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules

    class Inside(torch.nn.Module):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()

    group = SimpleNamespace(size=lambda: 1)
    made = config(perform_initialization=False)
    parts = GatedDeltaNetSubmodules(in_proj=Inside, out_norm=Inside, out_proj=Inside)
    groups: Any = SimpleNamespace(tp=group, cp=group)
    with patch.object(torch.cuda, "current_device", lambda: "cpu"), torch.device("meta"):
        net = GatedDeltaNet(made, parts, layer_number=1, pg_collection=groups)
    return {name: p.is_meta for name, p in net.named_parameters()}


def quantisable() -> dict[str, bool]:
    """Whether MXFP8 can quantise what a delta net's first product leaves of its weight on so many ranks."""
    import torch
    from transformer_engine.pytorch.tensor.mxfp8_tensor import MXFP8Quantizer

    quantizer: Any = MXFP8Quantizer.__new__(MXFP8Quantizer)
    return {str(tp): quantizer.is_quantizable(torch.empty(12352 // tp, 2048, device="meta")) for tp in (1, 2, 4, 8)}


def image_shards() -> dict[str, str]:
    """What is said of so long a mask of image tokens on two context-parallel ranks of two tensor-parallel ones each,
    for a tower without deepstack features."""
    import torch
    from megatron.bridge.models.qwen_vl.modelling_qwen3_vl.utils import split_deepstack_embs

    return {
        str(seq): told(
            lambda s=seq: split_deepstack_embs(
                torch.zeros(1, s, dtype=torch.bool), [], tp_size=2, cp_size=2, sequence_parallel=True
            )
        )
        for seq in (4096, 4100, 4104)
    }


QUESTIONS = (
    mixers, captured, recomputed, offloaded, net_reads, delayed, joins, heads, layer_of_mtp, gate_of_shared_experts,
    net_on_meta, quantisable, image_shards,
)  # fmt: skip


def main() -> None:
    os.environ["NVTE_CPU_OFFLOAD_V1"] = "1"
    stand_ins.install_engine()
    without_gpu()
    tell(QUESTIONS)


if __name__ == "__main__":
    main()

"""Bytes that Megatron-Core's own modules save for backward on a CPU, for one more layer of each kind, and how often
nested checkpoints compute what they hold. Its arguments are names of cases; it prints JSON.

One process, BF16, the local layer spec with PyTorch's flash attention in place of the one that keeps scores, so that
attention saves what a fused kernel does: q, k, v, the output and the log-sum-exp.
"""

# Megatron-Core is imported once a CPU stands in for CUDA.
# ruff: noqa: E402

import contextlib
import importlib.util
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

for _name in ("transformer_engine", "transformer_engine_torch"):
    sys.modules[_name] = None  # type: ignore[assignment]
os.environ.update(WORLD_SIZE="1", RANK="0", LOCAL_RANK="0", TORCHDYNAMO_DISABLE="1")
os.environ["OMP_NUM_THREADS"] = "1"  # threads that wait take a core

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

SEQ, HIDDEN, VOCAB = 256, 128, 256


class Nothing:
    """A CUDA stream, event or state that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: Nothing()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any) -> bool:
        return False


class OnCpu(TorchFunctionMode):
    """Sends tensors that ask for CUDA to the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.to:
            args = tuple("cpu" if isinstance(a, str) and a.startswith("cuda") else a for a in args)
        return func(*args, **kwargs)


class Tracker:
    """Megatron's RNG tracker without CUDA's states."""

    @contextlib.contextmanager
    def fork(self, name: str = "") -> Any:
        yield

    def is_initialized(self) -> bool:
        return True

    def add(self, *args: Any) -> None:
        pass

    def get_states(self) -> dict[str, Any]:
        return {}

    def set_states(self, states: Any) -> None:
        pass


def patch() -> None:
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    torch.Tensor.cuda = lambda self, *a, **k: self  # type: ignore[assignment,method-assign]
    torch.cuda.Stream = torch.cuda.Event = Nothing  # type: ignore[assignment,misc]
    torch.cuda.current_stream = lambda *a, **k: Nothing()  # type: ignore[assignment]
    torch.cuda.stream = lambda *a, **k: contextlib.nullcontext()  # type: ignore[assignment]
    torch.cuda.synchronize = lambda *a, **k: None  # type: ignore[assignment]
    torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()  # type: ignore[assignment]
    whole = dist.all_to_all_single
    ints = lambda sizes: None if sizes is None else [int(n) for n in sizes]  # noqa: E731
    dist.all_to_all_single = lambda out, given, output_split_sizes=None, input_split_sizes=None, **k: whole(  # type: ignore[assignment]
        out, given, ints(output_split_sizes), ints(input_split_sizes), **k
    )


patch()
OnCpu().__enter__()
from megatron.core import parallel_state
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.ssm import gated_delta_net as delta_net
from megatron.core.ssm.gated_delta_net import common as delta_common
from megatron.core.ssm.gated_delta_net import gdn as delta_module
from megatron.core.tensor_parallel import random as tp_random
from megatron.core.tensor_parallel.random import CheckpointWithoutOutput, checkpoint
from megatron.core.transformer import attention as core_attention
from megatron.core.transformer import multi_latent_attention, transformer_layer
from megatron.core.transformer.moe.moe_logging import destroy_moe_metrics_tracker
from megatron.core.transformer.moe.shared_experts import SharedExpertMLP
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

tp_random._CUDA_RNG_STATE_TRACKER = Tracker()
tp_random._CUDA_RNG_STATE_TRACKER_INITIALIZED = True
tp_random._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
tp_random._set_cuda_rng_state = lambda *a, **k: None


class NoFp8:
    """Transformer Engine's FP8 state: off."""

    @staticmethod
    def is_fp8_enabled() -> bool:
        return False


tp_random.FP8GlobalStateManager = NoFp8  # type: ignore[attr-defined]
tp_random.activation_recompute_forward = lambda *a, **k: contextlib.nullcontext()  # type: ignore[attr-defined]
tp_random.fp8_autocast = lambda *a, **k: contextlib.nullcontext()  # type: ignore[attr-defined]


class Rms(torch.autograd.Function):
    """RMSNorm that saves what a fused kernel does: its input, the weight and one FP32 number a row."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, eps: float) -> Any:
        x = x.contiguous()
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, weight, scale)
        return (x.float() * scale).to(x.dtype) * weight

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight, scale = ctx.saved_tensors
        normed = (x.float() * scale).to(x.dtype)
        return grad * weight * scale.to(x.dtype), (grad * normed).flatten(0, -2).sum(0), None


torch.nn.functional.rms_norm = lambda x, shape, weight=None, eps=None: Rms.apply(x, weight, eps or 1e-5)  # type: ignore[assignment]


class Flash(torch.nn.Module):
    """PyTorch's flash attention behind Megatron's interface: (seq, batch, heads, dim) in, (seq, batch, width) out."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value.contiguous()))
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
        )
        out = out.permute(2, 0, 1, 3)
        return out.reshape(*out.shape[:2], -1)


class Convolved(torch.autograd.Function):
    """fla's causal convolution, which keeps the view that it is given and activates what it puts out."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return x.contiguous().clone()


class Unit(torch.autograd.Function):
    """fla's L2 norm, which keeps what it puts out and one FP32 number a row."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        length = torch.rsqrt(x.float().pow(2).sum(-1) + 1e-6)
        out = (x * length[..., None]).to(x.dtype)
        ctx.save_for_backward(out, length)
        return out


class Delta(torch.autograd.Function):
    """fla's chunked gated delta rule: what it saves (fla ops/gated_delta_rule/chunk.py), and zeros in its place."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, g: Any, beta: Any) -> Any:
        inverse = torch.zeros(*v.shape[:3], 64, dtype=k.dtype)
        ctx.save_for_backward(q, k, v, g.float().clone(), beta, inverse)
        return torch.zeros_like(v)


for module in (delta_common, delta_module):
    module.HAVE_FLA = True  # type: ignore[attr-defined]
    module.causal_conv1d = lambda x, weight, **k: (Convolved.apply(x, weight), None)  # type: ignore[attr-defined]
    module.l2norm = Unit.apply  # type: ignore[attr-defined]
    module.chunk_gated_delta_rule = lambda q, k, v, g, beta, **o: (Delta.apply(q, k, v, g, beta), None)  # type: ignore[attr-defined]


SAME: dict[str, Any] = {
    "hidden_size": HIDDEN, "num_attention_heads": 8, "ffn_hidden_size": 320, "use_cpu_initialization": True,
    "add_bias_linear": False, "gated_linear_unit": True, "activation_func": torch.nn.functional.silu,
    "normalization": "RMSNorm", "hidden_dropout": 0.0, "attention_dropout": 0.0, "bf16": True,
    "params_dtype": torch.bfloat16, "pipeline_dtype": torch.bfloat16, "gradient_accumulation_fusion": False,
    "masked_softmax_fusion": False, "bias_dropout_fusion": False, "bias_activation_fusion": True,
    "moe_permute_fusion": False, "moe_router_dtype": "fp32", "moe_aux_loss_coeff": 1e-2,
    "moe_router_load_balancing_type": "aux_loss", "moe_token_dispatcher_type": "alltoall", "moe_grouped_gemm": False,
    "num_moe_experts": 16, "moe_router_topk": 4, "moe_ffn_hidden_size": 96,
}  # fmt: skip
GQA: dict[str, Any] = {"num_query_groups": 2, "kv_channels": 32, "qk_layernorm": True}
UNFUSED: dict[str, Any] = {**GQA, "bias_activation_fusion": False}
SPLIT: dict[str, Any] = {**GQA}
GATED: dict[str, Any] = {**GQA, "attention_output_gate": True}
DELTA: dict[str, Any] = {
    **GATED, "experimental_attention_variant": "gated_delta_net", "linear_attention_freq": 100,
    "linear_num_key_heads": 4, "linear_key_head_dim": 16, "linear_num_value_heads": 8, "linear_value_head_dim": 24,
}  # fmt: skip
MLA: dict[str, Any] = {
    "multi_latent_attention": True, "q_lora_rank": 48, "kv_lora_rank": 40, "qk_head_dim": 24, "qk_pos_emb_head_dim": 16,
    "v_head_dim": 40, "qk_layernorm": True, "rope_type": "rope",
    "moe_shared_expert_intermediate_size": 112,
}  # fmt: skip


class Offloaded:
    """Megatron's interface of fine-grained offload, under which nothing that is saved counts as kept."""

    def __init__(self, offload: bool, tensor: Any, name: str) -> None:
        self.tensor = tensor
        self.hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t) if offload else None

    def __enter__(self) -> Any:
        if self.hooks is not None:
            self.hooks.__enter__()
        return self.tensor

    def __exit__(self, *args: Any) -> None:
        if self.hooks is not None:
            self.hooks.__exit__(*args)

    def group_offload(self, tensor: Any, **kwargs: Any) -> Any:
        return tensor

    @classmethod
    def init_chunk_handler(cls, **kwargs: Any) -> None:
        pass

    @staticmethod
    def mark_not_offload(tensor: Any) -> None:
        pass


for module in (core_attention, multi_latent_attention, gpt_model):
    module.off_interface = Offloaded  # type: ignore[attr-defined]
transformer_layer._get_offloading_interface = lambda: Offloaded


def config(layers: int, dense: int, attention: dict[str, Any], recompute: list[str], offload: list[str]) -> Any:
    """Megatron's configuration of a case."""
    again: dict[str, Any] = {"recompute_granularity": "selective", "recompute_modules": list(recompute)}
    if recompute == ["full"]:
        again = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    kind = MLATransformerConfig if attention is MLA else TransformerConfig
    kinds = [0] * dense + [1] * (layers - dense)
    moved = {"fine_grained_activation_offloading": True, "offload_modules": offload} if offload else {}
    given = {**SAME, **attention, **(again if recompute else {}), **moved}
    return kind(num_layers=layers, moe_layer_freq=kinds, **given)


def specs(kinds: list[int], attention: dict[str, Any]) -> TransformerBlockSubmodules:
    """Layers of Megatron's local modules, with flash attention or a gated delta net."""
    found, local, mla = [], LocalSpecProvider(), attention is MLA
    net = delta_net.GatedDeltaNetSubmodules(
        in_proj=local.column_parallel_linear(),
        out_norm=local.layer_norm(rms_norm=True),  # type: ignore[arg-type]
        out_proj=local.row_parallel_linear(),
    )
    for sparse in kinds:
        spec = get_gpt_layer_local_spec(
            num_experts=16 if sparse else None, moe_grouped_gemm=False, normalization="RMSNorm", qk_layernorm=True,
            multi_latent_attention=mla,
        )  # fmt: skip
        if attention is DELTA:
            spec.submodules.self_attention = ModuleSpec(module=delta_net.GatedDeltaNet, submodules=net)
        else:
            spec.submodules.self_attention.submodules.core_attention = Flash
        if attention is SPLIT:
            spec.submodules.self_attention.submodules.q_layernorm = split_norms().FullDimQNorm
            spec.submodules.self_attention.submodules.k_layernorm = split_norms().FullDimKNorm
        found.append(spec)
    return TransformerBlockSubmodules(layer_specs=found, layer_norm=local.layer_norm(rms_norm=True))


@cache
def split_norms() -> Any:
    """Bridge's norms of MiniMax-M2 over all heads, from their file alone: Bridge itself needs Transformer Engine."""
    bridge = importlib.util.find_spec("megatron.bridge")
    assert bridge is not None and bridge.submodule_search_locations
    file = Path(bridge.submodule_search_locations[0]) / "models/minimax_m2/minimax_m2_provider.py"
    spec = importlib.util.spec_from_file_location("minimax_m2_provider", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def saved(
    layers: int, dense: int, attention: dict[str, Any], recompute: list[str], offload: list[str]
) -> dict[str, int]:
    """Bytes saved by a model of so many layers: floating point and others."""
    made = config(layers, dense, attention, recompute, offload)
    block = specs(made.moe_layer_freq, attention)
    model = GPTModel(made, block, VOCAB, SEQ, position_embedding_type="rope").bfloat16()
    model.set_input_tensor(None)
    destroy_moe_metrics_tracker()
    kept: list[torch.Tensor] = []
    tokens = torch.randint(0, VOCAB, (1, SEQ))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        loss = model(tokens, torch.arange(SEQ)[None], None, labels=tokens).float().mean()
    found = sizes(kept, model)
    assert loss.requires_grad
    return {"float": sum(n for n, real in found if real), "other": sum(n for n, real in found if not real)}


def shared_forwards(recompute: list[str]) -> int:
    """Count the forwards of one layer's shared expert in a step."""
    made = config(1, 0, MLA, recompute, [])
    model = GPTModel(made, specs(made.moe_layer_freq, MLA), VOCAB, SEQ, position_embedding_type="rope").bfloat16()
    model.set_input_tensor(None)
    destroy_moe_metrics_tracker()
    counted: list[int] = []
    for module in model.modules():
        if isinstance(module, SharedExpertMLP):
            module.register_forward_hook(lambda *_: counted.append(1))
    tokens = torch.randint(0, VOCAB, (1, SEQ))
    model(tokens, torch.arange(SEQ)[None], None, labels=tokens).float().mean().backward()
    return len(counted)


def activation_forwards(outer: bool) -> int:
    """Count the runs of what the checkpoint of the experts' activation holds (core transformer/moe/experts.py:882),
    inside the checkpoint of a MoE layer or not."""
    counted: list[int] = []

    def activate(x: torch.Tensor) -> torch.Tensor:
        counted.append(1)
        return torch.nn.functional.silu(x)

    def experts(x: torch.Tensor) -> torch.Tensor:
        inner = CheckpointWithoutOutput()
        out = inner.checkpoint(activate, x) * 2
        inner.discard_output_and_register_recompute(out)
        return out

    tp_random._get_share_storage = lambda: lambda out, again: None  # compiles C++; no value is looked at here
    x = torch.ones(4, requires_grad=True)
    (checkpoint(experts, False, x) if outer else experts(x)).sum().backward()
    return len(counted)


def sizes(kept: list[torch.Tensor], model: torch.nn.Module) -> list[tuple[int, bool]]:
    """(bytes, floating point) of each storage among the saved tensors that is neither freed nor the model's own."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    storages = {t.untyped_storage().data_ptr(): (t.untyped_storage().nbytes(), t.is_floating_point()) for t in kept}
    return [size for at, size in storages.items() if size[0] and at not in own]


def one_layer(
    attention: dict[str, Any], sparse: bool, recompute: list[str], offload: list[str] | None = None
) -> dict[str, int]:
    """What one more layer of its kind saves."""
    counts = ((2, 0), (3, 0)) if sparse else ((2, 1), (3, 2))
    few, many = (saved(layers, dense, attention, recompute, offload or []) for layers, dense in counts)
    return {k: many[k] - few[k] for k in few}


CASES: dict[str, tuple[Any, ...]] = {
    "gqa dense": (GQA, False, []),
    "split moe": (SPLIT, True, []),
    "unfused dense": (UNFUSED, False, []),
    "unfused moe": (UNFUSED, True, []),
    "gqa dense mlp": (GQA, False, ["mlp"]),
    "gqa moe": (GQA, True, []),
    "gqa moe layernorm": (GQA, True, ["layernorm"]),
    "gqa moe core_attn": (GQA, True, ["core_attn"]),
    "gqa moe moe": (GQA, True, ["moe"]),
    "gqa moe full": (GQA, True, ["full"]),
    "gated moe": (GATED, True, []),
    "delta moe": (DELTA, True, []),
    "delta moe layernorm": (DELTA, True, ["layernorm"]),
    "delta moe full": (DELTA, True, ["full"]),
    "mla moe": (MLA, True, []),
    "mla moe layernorm": (MLA, True, ["layernorm"]),
    "mla moe mla_up_proj": (MLA, True, ["mla_up_proj"]),
    "mla moe shared_experts": (MLA, True, ["shared_experts"]),
    "mla moe full": (MLA, True, ["full"]),
    "gqa moe offload qkv_linear": (GQA, True, [], ["qkv_linear"]),
    "gqa moe offload core_attn": (GQA, True, [], ["core_attn"]),
    "gqa moe offload core_attn attn_proj": (GQA, True, [], ["core_attn", "attn_proj"]),
    "gqa moe offload mlp_norm": (GQA, True, [], ["mlp_norm"]),
    "gqa dense offload core_attn attn_proj": (GQA, False, [], ["core_attn", "attn_proj"]),
    "mla moe offload attn_norm": (MLA, True, [], ["attn_norm"]),
    "mla moe offload qkv_linear": (MLA, True, [], ["qkv_linear"]),
    "mla moe offload core_attn attn_proj": (MLA, True, [], ["core_attn", "attn_proj"]),
}
"""Attention, whether the layers are MoE layers, what is recomputed, what is offloaded."""

SHARED = (["core_attn"], ["moe"], ["shared_experts"], ["moe", "shared_experts"])
"""What is recomputed where the forwards of the shared expert are counted."""

if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), world_size=1, rank=0)
    parallel_state.initialize_model_parallel(1, 1, expert_model_parallel_size=1, create_gloo_process_groups=False)
    forwards = {" ".join(words): shared_forwards(words) for words in SHARED} | {
        "moe_act": activation_forwards(False),
        "moe moe_act": activation_forwards(True),
    }
    print(json.dumps({"saved": {name: one_layer(*CASES[name]) for name in sys.argv[1:]}, "forwards": forwards}))

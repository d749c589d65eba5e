"""What NVIDIA's code does with experts, graphs, FSDP, optimizers and checkpoints that some rules forbid: JSON on stdout.

Each question runs the real function on the smallest objects that it reads, once as a rule forbids it and once as the
rule permits it. Run as a script where Bridge is installed: CUDA is stood in for, and much is replaced by name.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from moedsl.bridge.verify import stand_ins
from moedsl.bridge.verify.cases import devices
from moedsl.bridge.verify.stand_ins import answer

LIBRARIES = ("/megatron/", "/transformer_engine/")
MEBI = 1 << 20


def told(call: Callable[[], Any]) -> str:
    """What a call came to: "ok", or its exception and the innermost line of NVIDIA's code that it passed."""
    try:
        call()
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if any(x in f.filename for x in LIBRARIES)]
        last = frames[-1] if frames else None
        place = f" at {last.filename.rsplit('site-packages/')[-1]}:{last.lineno}" if last else ""
        return f"{type(error).__name__}: {error}{place}"
    return "ok"


class Nothing:
    """A stream or an event that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


# Experts -------------------------------------------------------------------------------------------------------------


def fused_experts() -> dict[str, str]:
    """The fused experts' operations, made as their first forward makes them, with and without a recomputed activation."""
    import torch.nn.functional as F
    from megatron.core.transformer.moe.experts import TEGroupedMLP, quick_gelu

    out = {}
    for activation, clamp in ((F.silu, None), (quick_gelu, 7.0)):
        for recompute in (False, True):
            config = SimpleNamespace(
                moe_mlp_glu_interleave_size=32, activation_func=activation, gated_linear_unit=True,
                activation_func_clamp_value=clamp, use_fused_weighted_squared_relu=False,
            )  # fmt: skip
            experts: Any = SimpleNamespace(
                linear_fc1=_grouped(64, 256), linear_fc2=_grouped(128, 64), activation_recompute=recompute,
                config=config, _make_fused_impl_pre_forward_hook=lambda: lambda *a: None,
            )  # fmt: skip
            out[f"{activation.__name__} {recompute}"] = told(lambda e=experts: TEGroupedMLP._make_fused_ops(e))
    return out


def _grouped(inputs: int, outputs: int) -> Any:
    import torch

    layer: Any = SimpleNamespace(
        num_gemms=2, in_features=inputs, out_features=outputs, use_bias=False, single_grouped_weight=False,
        single_grouped_bias=False, delay_wgrad_compute=False, fuse_wgrad_accumulation=False,
    )  # fmt: skip
    for i in range(2):
        weight = torch.nn.Parameter(torch.empty(outputs, inputs, device="meta", dtype=torch.bfloat16))
        setattr(layer, f"weight{i}", weight)
    layer.get_parameter = lambda name: getattr(layer, name)
    return layer


def fused_experts_split() -> dict[str, bool]:
    """Whether experts split over so many ranks may be fused."""
    import torch.nn.functional as F
    from megatron.core.transformer.moe.experts import TEGroupedMLP
    from transformer_engine.pytorch import GroupedLinear

    config = SimpleNamespace(gated_linear_unit=True, activation_func=F.silu, moe_apply_probs_on_input=False)
    linear: Any = GroupedLinear.__new__(GroupedLinear)
    linear.__dict__["use_bias"] = False
    out = {}
    for etp in (1, 2):
        group = SimpleNamespace(size=lambda etp=etp: etp)
        experts: Any = SimpleNamespace(config=config, tp_group=group, linear_fc1=linear, linear_fc2=linear)
        out[str(etp)] = TEGroupedMLP._is_fused_impl_supported(experts)
    return out


def grouped_products() -> dict[str, bool]:
    """Whether grouped products leave the experts' token counts on the device, under the newest cuBLAS."""
    import torch
    from transformer_engine.common.recipe import Float8BlockScaling, MXFP8BlockScaling
    from transformer_engine.pytorch.ops.basic import grouped_linear as module

    asked = next(v for k, v in vars(module).items() if k.startswith("is_") and "grouped_tensor" in k and callable(v))
    recipes = {"fp8_blockwise": Float8BlockScaling, "mxfp8": MXFP8BlockScaling}
    out = {}
    for recipe, capability in (("fp8_blockwise", (9, 0)), ("fp8_blockwise", (10, 0)), ("mxfp8", (10, 0))):
        with (
            patch.object(module, "get_device_compute_capability", lambda c=capability: c),
            patch.object(module.tex, "get_cublasLt_version", lambda: 139999, create=True),
        ):
            made = recipes[recipe].__new__(recipes[recipe])
            out[f"{recipe} {capability[0]}"] = bool(asked(recipe=made, dtype=torch.bfloat16))
    return out


# Graphs --------------------------------------------------------------------------------------------------------------


def hooks() -> dict[str, str]:
    """Transformer Engine's capture of a layer as it is, and of one under Megatron FSDP."""
    import torch
    from megatron.core.distributed.distributed_data_parallel_config import DistributedDataParallelConfig
    from megatron.core.distributed.fsdp.src.megatron_fsdp.megatron_fsdp import MegatronFSDP
    from megatron.core.transformer.transformer_layer import TransformerLayer
    from transformer_engine.pytorch import graph

    def asked(sharded: bool) -> str:
        layer: Any = _module(TransformerLayer, lin=torch.nn.Linear(4, 4))
        root = torch.nn.Sequential(torch.nn.Linear(4, 4), layer)
        if sharded:
            fsdp: Any = _module(MegatronFSDP, module=root)
            fsdp.ddp_config = DistributedDataParallelConfig(
                use_megatron_fsdp=True, data_parallel_sharding_strategy="optim_grads_params",
                overlap_grad_reduce=True, overlap_param_gather=True,
            )  # fmt: skip
            fsdp.data_parallel_sharding_strategy = "optim_grads_params"
            fsdp.fsdp_unit_modules = [TransformerLayer]
            fsdp.enable_fine_grained_param_gather_hook = fsdp.enable_fine_grained_param_gather_backward_hook = False
            fsdp.param_to_name = {p: n for n, p in root.named_parameters()}
            fsdp.forward_pre_hooks, fsdp.forward_hooks, fsdp.backward_pre_hooks, fsdp.grad_acc_hooks = {}, {}, {}, {}
            fsdp._register_fsdp_hooks(root)
        no_hooks: Any = [dict.fromkeys(f"{w}_hooks" for w in ("forward_pre", "forward", "backward_pre", "backward"))]
        return told(
            lambda: graph._make_graphed_callables(
                (layer,), [(torch.zeros(2, 4),)], _order=[1, -1], num_warmup_iters=1, sample_kwargs=[{}],
                _num_layers_per_chunk=[1], capture_time_hooks=no_hooks,
            )
        )  # fmt: skip

    def capture() -> Any:
        raise InterruptedError("the capture begins")

    with patch.object(torch.cuda, "CUDAGraph", capture):
        return {"alone": asked(False), "fsdp": asked(True)}


def _module(kind: Any, **members: Any) -> Any:
    """A module of a class without its own construction."""
    import torch

    module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    for name, value in members.items():
        setattr(module, name, value)
    return module


SCOPES: tuple[str, ...] = (
    "", "attn", "moe_router", "moe_router moe_preprocess", "attn moe_router", "attn moe_router moe_preprocess",
)  # fmt: skip


def recomputed_norm() -> dict[str, str]:
    """Forward of an MoE layer on the overlapped schedule with a recomputed norm, by modules captured and dispatcher."""
    import megatron.core.tensor_parallel.random as R

    def share(a: Any, b: Any) -> None:
        a.untyped_storage().resize_(b.untyped_storage().nbytes())
        a.data.copy_(b)

    with (
        patch.object(R, "_get_all_rng_states", tuple),
        patch.object(R, "_set_all_rng_states", lambda *a: None),
        patch.object(R, "_fork_rng", contextlib.nullcontext),
        patch.object(R, "_get_share_storage", lambda: share),
    ):
        return {
            f"{scope or 'none'}, {dispatcher}": told(lambda s=scope, d=dispatcher: _overlapped(s.split(), d))
            for scope in SCOPES
            for dispatcher in ("alltoall", "flex")
        }


def _overlapped(scope: list[str], dispatcher: str) -> None:
    """Captures what the scope says of a real layer with simple parts, and runs it as the overlapped schedule does."""
    import torch
    from megatron.core.models.gpt import fine_grained_callables
    from megatron.core.transformer import cuda_graphs

    layer: Any = _layer(scope, dispatcher)
    if scope:
        with patch.object(cuda_graphs, "_IS_GRAPH_CAPTURING", True):
            made = layer._te_cuda_graph_capture(torch.randn(4, 1, 8, requires_grad=True))
            torch.autograd.backward(made, [torch.ones_like(t) for t in made])
        shapes = [t.shape for t in made]
        layer.cuda_graphs = [lambda *args, **kwargs: tuple(torch.randn(s, requires_grad=True) for s in shapes)]
    (pre_dispatch, _, experts, *_), _ = fine_grained_callables.build_transformer_layer_callables(layer)
    chunk = SimpleNamespace(
        attention_mask=torch.zeros(1), rotary_pos_emb=None, rotary_pos_cos=None, rotary_pos_sin=None,
        packed_seq_params=None, sequence_len_offset=None,
    )  # fmt: skip
    for _ in range(2):
        node: Any = SimpleNamespace(
            layer_state=SimpleNamespace(dispatched_probs=torch.ones(4)), chunk_state=chunk, detach=lambda t: t
        )
        tokens, _ = pre_dispatch(node, torch.randn(4, 1, 8, requires_grad=True))
        experts(node, tokens).sum().backward()


def _layer(scope: list[str], dispatcher: str) -> Any:
    """A real TransformerLayer whose attention, norms and experts are a few lines."""
    import torch
    from megatron.core.transformer.enums import CudaGraphModule
    from megatron.core.transformer.moe.moe_layer import MoELayer
    from megatron.core.transformer.transformer_config import TransformerConfig
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    class Experts(MoELayer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            torch.nn.Module.__init__(self)
            self.router = torch.nn.Linear(8, 8)
            self.use_shared_expert = False
            self.cudagraph_tensor_store = SimpleNamespace(set=lambda **kw: None, clear=lambda: None)
            self.token_dispatcher = SimpleNamespace(valid_cudagraph_attrs=[])

        def set_layer_number(self, layer_number: int) -> None: ...

        def forward(self, hidden_states: Any, **kwargs: Any) -> Any:  # as a partial capture leaves it
            out = self.router(hidden_states)
            return [out, out * 2] if CudaGraphModule.moe_preprocess in modules else [out, out * 2, out * 3]

        def shared_experts_compute(self, hidden_states: Any) -> None: ...

        def route(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
            return self.router(hidden_states), None

        def preprocess(self, hidden_states: Any, probs: Any, routing_map: Any) -> Any:
            return hidden_states @ self.router.weight, probs

        def routed_experts_compute(self, hidden_states: Any, probs: Any) -> Any:
            return hidden_states * 1, None

    modules = [CudaGraphModule[name] for name in scope]
    config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1, num_moe_experts=2, bf16=True)
    config.recompute_granularity, config.recompute_modules = "selective", ["layernorm"]
    config.moe_token_dispatcher_type = dispatcher
    config.moe_flex_dispatcher_backend = None
    config.overlap_moe_expert_parallel_comm = True
    config.cuda_graph_impl = "transformer_engine" if scope else "none"
    config.cuda_graph_modules = modules
    norm: Any = lambda **kwargs: torch.nn.LayerNorm(8)  # noqa: E731
    groups: Any = SimpleNamespace(tp=None, pp=SimpleNamespace(rank=lambda: 0), cp=None)
    layer: Any = TransformerLayer(
        config, TransformerLayerSubmodules(pre_mlp_layernorm=norm, mlp=Experts), pg_collection=groups
    )
    layer._forward_attention = lambda hidden_states, **kwargs: (hidden_states * 2, None)
    layer.self_attention.backward_dw = lambda: None
    layer.current_microbatch = 0
    return layer


def gradient_mode() -> dict[str, bool]:
    """Whether a weight moves after a replay of the captured iteration, which adds to the gradients' buffer and no more."""
    import torch
    from megatron.bridge.training.config import DistributedDataParallelConfig
    from megatron.core.distributed.fsdp.src.megatron_fsdp.param_and_grad_buffer import ParamAndGradBuffer

    out = {}
    for mode in (DistributedDataParallelConfig().megatron_fsdp_cuda_graph_mode, True):
        weight = torch.nn.Parameter(torch.ones(3))
        weight.grad = grads = torch.full((3,), 7.0)
        group = SimpleNamespace(main_grad_buffer=SimpleNamespace(data=grads), hfsdp_helper_gbuf=None)
        buffer: Any = SimpleNamespace(
            ddp_config=SimpleNamespace(megatron_fsdp_cuda_graph_mode=mode), optimizer_named_parameters=[("w", weight)],
            dist_main_grad={}, parameter_groups=[group],
        )  # fmt: skip
        ParamAndGradBuffer.zero_grad(buffer)
        grads += 5.0
        before = weight.detach().clone()
        torch.optim.AdamW([weight]).step()
        out[str(mode)] = not torch.equal(before, weight)
    return out


# Optimizers ----------------------------------------------------------------------------------------------------------


PRECISIONS = {
    "bf16": "bf16_mixed",
    "fp8_blockwise": "bf16_with_fp8_subchannel_scaling_mixed",
    "fp8_current": "bf16_with_fp8_current_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}


def offloaded_precisions() -> dict[str, str]:
    """The distributed optimizer's groups handed to the offloaded optimizer, by precision as Bridge's own recipes set it."""
    import torch
    from megatron.bridge.training import mixed_precision
    from megatron.core.optimizer import OptimizerConfig, distrib_optimizer

    class OnGpu(torch.nn.Parameter):
        def type(self, *args: Any) -> Any:
            return "torch.cuda.BFloat16Tensor"

    def built(recipe: str, offload: bool, quantised: bool) -> None:
        mixed = getattr(mixed_precision, recipe)()
        if not quantised:
            mixed.fp8_param_gather = mixed.fp4_param_gather = mixed.reuse_grad_buf_for_mxfp8_param_ag = False
        config = OptimizerConfig(
            optimizer="adam", lr=1e-4, bf16=True, use_distributed_optimizer=True, fp8_recipe=mixed.fp8_recipe,
            use_precision_aware_optimizer=offload, optimizer_cpu_offload=offload,
            optimizer_offload_fraction=float(offload), overlap_cpu_optimizer_d2h_h2d=offload,
            reuse_grad_buf_for_mxfp8_param_ag=mixed.reuse_grad_buf_for_mxfp8_param_ag,
        )  # fmt: skip
        weight: Any = torch.nn.Parameter(torch.ones(64, dtype=torch.bfloat16))
        weight.__class__ = OnGpu
        whole = distrib_optimizer.Range(0, 64)
        found = dict.fromkeys(("param", "gbuf_world", "gbuf_local", "gbuf_world_in_bucket"), whole)
        group: dict[str, Any] = {"params": [weight], "orig_group": {"params": [weight], "lr": 1e-4}}
        with (
            patch.object(distrib_optimizer, "is_float8tensor", lambda t: mixed.fp8_param_gather and t is weight),
            patch.object(distrib_optimizer, "is_nvfp4tensor", lambda t: mixed.fp4_param_gather and t is weight),
        ):
            distrib_optimizer.DistributedOptimizer._build_model_and_main_param_groups(
                [{"k": [{"param_map": {weight: found}}]}], {weight: (0, "k", 0)}, [group], config
            )
        if offload:
            _hybrid([group["orig_group"]])
        assert None not in group["orig_group"]["params"]

    return {
        f"{name} {'host' if offload else 'device'} {'quantised' if quantised else 'bf16'}": told(
            lambda r=recipe, o=offload, q=quantised: built(r, o, q)
        )
        for name, recipe in PRECISIONS.items()
        for offload in (False, True)
        for quantised in (False, True)
    }


def _hybrid(groups: list[Any]) -> Any:
    from megatron.core.optimizer.cpu_offloading.hybrid_optimizer import HybridDeviceOptimizer
    from torch.optim import AdamW

    return HybridDeviceOptimizer(
        params=groups, offload_fraction=1.0, cpu_optimizer_cls=AdamW, gpu_optimizer_cls=AdamW,
        param_update_in_fp32=True, overlap_cpu_optimizer_d2h_h2d=True, lr=1e-4,
    )  # fmt: skip


def offloaded_shards() -> dict[str, str]:
    """The offloaded optimizer over a plain parameter and over a DTensor, as Megatron FSDP makes of it."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    mesh = init_device_mesh("cpu", (8,))
    local = torch.ones(4, 4)
    plain, shard = torch.nn.Parameter(local), torch.nn.Parameter(DTensor.from_local(local, mesh, [Shard(0)]))
    pin: Any = torch.Tensor.pin_memory
    with (
        patch.object(torch.Tensor, "is_cuda", property(lambda t: isinstance(t, torch.nn.Parameter))),
        patch.object(torch.Tensor, "pin_memory", lambda t: pin(t) if isinstance(t, DTensor) else t),
    ):
        out = {n: told(lambda w=w: _hybrid([{"params": [w]}])) for n, w in (("plain", plain), ("dtensor", shard))}
    dist.destroy_process_group()
    return out


# Checkpoints ---------------------------------------------------------------------------------------------------------


CHUNKS = {"deepseek_v3": [7168, 1536, 512, 7168], "qwen3_30b_a3b": [2048, 128, 128, 2048, 128 * 2048]}
"""What quantised weights leave in BF16 of a chunk with one layer: norms, and the router of an MoE layer."""


def empty_shares() -> dict[str, list[int]]:
    """At which numbers of replicas some replica's share of that bucket holds no parameter."""
    from megatron.core.distributed.distributed_data_parallel_config import DistributedDataParallelConfig

    ddp = DistributedDataParallelConfig(use_distributed_optimizer=True)
    return {m: [n for n in range(2, 2049) if _share(sizes, n, ddp)[1]] for m, sizes in CHUNKS.items()}


def _share(sizes: list[int], replicas: int, ddp: Any) -> tuple[Any, bool]:
    """The layout, and whether the last replica's share is empty; if any is then that one, as no gap is between."""
    import torch
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer, Range

    weights = [torch.nn.Parameter(torch.empty(size, device="meta")) for size in sizes]
    layout = DistributedOptimizer._compute_per_buffer_param_layout(weights, 128 * MEBI, replicas, ddp)
    ((_, end),) = layout.bucket_indices
    last = Range(end - end // replicas, end)
    return layout, not DistributedOptimizer._build_model_gbuf_param_range_map(layout.param_index_map, last, 0)


def saving() -> dict[str, str]:
    """Bridge's default layout of the optimizer's state, saved by a replica with parameters and by one without any."""
    import torch
    from megatron.core.distributed.distributed_data_parallel_config import DistributedDataParallelConfig
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    ddp = DistributedDataParallelConfig(use_distributed_optimizer=True)
    out = {}
    for replicas in (128, 192):
        layout, empty = _share(CHUNKS["deepseek_v3"], replicas, ddp)
        numel, padded = layout.per_bucket_numel_unpadded[0], layout.bucket_indices[0][1]
        share = padded // replicas
        state: list[Any] = [
            {"gbuf_local_start": 0, "gbuf_local_end": share, "param": torch.ones(share), "padding": False}
        ]
        bucket = SimpleNamespace(numel_unpadded=numel, grad_data=torch.empty(padded, device="meta"))
        states: Any = {"per_bucket_numel": [], "per_bucket_numel_unpadded": [], 0: {"k": [[] if empty else state]}}
        me: Any = SimpleNamespace(
            data_parallel_group=SimpleNamespace(rank=lambda r=replicas: r - 1, size=lambda r=replicas: r),
            data_parallel_group_idx=0, distributed_optimizer_instance_id=0, gbuf_ranges=[{}],
            buffers=[SimpleNamespace(buckets=[bucket])], get_parameter_state_dp_reshardable=lambda s=states: s,
        )  # fmt: skip
        out[str(replicas)] = told(lambda m=me: DistributedOptimizer.sharded_param_state_dp_reshardable(m, {}))
    return out


# Models on the meta device -------------------------------------------------------------------------------------------


def router_buffers() -> dict[str, list[str]]:
    """Buffers of a router that hold nothing once Megatron FSDP has given a model of the meta device its memory."""
    import torch
    from megatron.core.transformer.moe.router import TopKRouter
    from megatron.core.transformer.transformer_config import TransformerConfig

    groups: Any = SimpleNamespace(**dict.fromkeys(
        ("tp", "cp", "tp_cp", "tp_dp_cp", "ep", "expt_tp", "expt_dp", "tp_ep", "tp_ep_pp", "dp_cp")
    ))  # fmt: skip
    out = {}
    for bias in (False, True):
        config = TransformerConfig(
            num_layers=2, hidden_size=64, num_attention_heads=4, num_moe_experts=8, moe_router_topk=2,
            moe_router_enable_expert_bias=bias, moe_router_score_function="sigmoid", init_model_with_meta_device=True,
            bf16=True, params_dtype=torch.bfloat16,
        )  # fmt: skip
        with patch.object(torch.cuda, "current_device", lambda: "cpu"):
            with torch.device("meta"):
                router = TopKRouter(config=config, pg_collection=groups)
            torch.use_deterministic_algorithms(True)  # memory that nothing has written reads as NaN
            router.to_empty(device=torch.device("cpu"), recurse=False)
            router.reset_parameters()
            torch.use_deterministic_algorithms(False)
        out[str(bias)] = [name for name, b in router.named_buffers() if b is not None and b.isnan().any()]
        assert not router.weight.isnan().any()
    return out


QUESTIONS = (
    fused_experts, fused_experts_split, grouped_products, hooks, recomputed_norm, gradient_mode, offloaded_precisions,
    offloaded_shards, empty_shares, saving, router_buffers,
)  # fmt: skip


def without_gpu() -> Any:
    """torch.cuda of a machine that has none, for code that asks what a GB200 is."""
    import torch

    answer(devices()["gb200"], 8, 0)
    cuda: Any = torch.cuda
    cuda.is_available = lambda: False
    cuda.current_device = lambda: 0
    torch.set_num_threads(1)
    return cuda


def tell(questions: Sequence[Callable[[], Any]]) -> None:
    """The answers as one JSON object on stdout: to all, or to those that the command line names."""
    only = sys.argv[1:]
    print(json.dumps({q.__name__: q() for q in questions if not only or q.__name__ in only}))


def main() -> None:
    os.environ["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = "1"
    stand_ins.install_engine()
    cuda = without_gpu()
    cuda.Stream = cuda.Event = cuda.current_stream = Nothing
    tell(QUESTIONS)


if __name__ == "__main__":
    main()

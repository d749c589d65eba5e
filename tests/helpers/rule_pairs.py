"""For each rule of the stdlib a run that it accepts and one that it rejects; tests/stdlib/test_rule_cases.py asks for both.

A law rejects a layout of rule_cases.py by name and needs no second one here. What a pair means by kind:

prefer, require   the run follows it; the run bears on it and does not
candidates, default, derive, env, rank   the rule is the one in force; another one stands before it, or its condition fails
measured          the run resembles its conditions; it does not
symptom           a line of a log that it finds; one that it leaves alone
"""

from __future__ import annotations

from typing import Any

from tests.helpers.rule_pairs_symptoms import SYMPTOMS
from tests.helpers.rule_pairs_vlm import VLM
from tests.helpers.rule_pairs_workflow import WORKFLOW
from tests.helpers.rule_runs import FORCED, PARTIAL, WHOLE, Pair, own, run
from tests.oracles.rule_judge import Run

_MEASURED_30B = {"ep": 16, "global_batch": 1024}
_DSV3: dict[str, Any] = {"base": "deepseek", "hardware": "h100", "gpus": 256, "ep": 32}
_PACKED = "set dataset.enable_in_batch_packing = true\n"
_TEXT = 'data "text"\n'
_LOCAL = f"""{_TEXT}set ft.enable_ft_package = true
cluster here {{ executor local; storage_write 1 GB/s; gpu_mtbf_days 1; local_disk "/raid" }}
"""
"""A run that restarts within its job, with failures so frequent that saves on the nodes' own disks pay."""
_UNPADDED = "set dataset.pad_to_max_length = false\n"
_WGRAD_SINCE = {
    "te_linear": ("2.3.0", "2.2.0"),
    "te_reduce": ("2.7.0", "2.6.0"),
    "te_graph": ("2.10.0", "2.9.0"),
    "te_wgrad_in_graph": ("2.12.0", "2.11.0"),
}
"""The first Transformer Engine that a law on delayed weight gradients accepts, and the last that it rejects."""


def _since(versions: tuple[str, str]) -> Pair:
    """Delayed weight gradients with attention in a graph, on two versions of Transformer Engine."""
    yes, no = (
        run(also=f"target transformer_engine {v}\n", ep_overlap=True, delay_wgrad=True, cuda_graph=["attn"])
        for v in versions
    )
    return yes, no


def _adapter(options: str, **layout: Any) -> Run:
    """A run that trains an adapter."""
    return run(task="peft", adapter=options, **layout)


_PAIRS: dict[str, Pair] = {
    # advice
    "std.cuda_graph_advice.narrow_first": (run(cuda_graph=["moe_router", "moe_preprocess"]), run(cuda_graph=PARTIAL)),
    "std.overlap_advice.plain_overlap_first": (run(ep_overlap=True), run(ep_overlap=True, delay_wgrad=True)),
    "std.cuda_graph_advice.partial_first": (run(cuda_graph=PARTIAL), run(cuda_graph=["attn"])),
    "std.captured_layers.mamba_exists": (run("nano", cuda_graph=["mamba"]), run(cuda_graph=["mamba"])),
    "std.hybrid_graphs.partial_first": (
        run("nano", recompute=["moe"], cuda_graph=["attn", "mamba"]),
        run("nano", cuda_graph=["attn", "mamba"]),
    ),
    "std.delta_net_mtp.model.mtp_num_layers": (run("next"), run()),
    "std.split_norm.whole_gradients": (run("minimax"), run("minimax", tp=2)),
    "std.windows.model.hidden_dropout": (run("mimo"), run()),
    "std.window_heads.model.mtp_num_layers": (run("step"), run("mimo")),
    "std.sparse_mtp.model.mtp_num_layers": (run("glm5"), run()),
    "std.sparse.model.dsa_kernel_backend": (run("glm5"), run("glm5", facts={"kv_lora_rank": 256})),
    **{
        f"std.sparse.model.{fusion}": (run("glm5"), run())
        for fusion in ("gradient_accumulation_fusion", "bias_activation_fusion", "bias_dropout_fusion")
    },
    "std.sparse.published_precision": (run("glm5"), run("glm5", precision="mxfp8")),
    "std.hybrid_mtp.model.mtp_num_layers": (run("super"), run("nano")),
    "std.squared_relu.model.use_fused_weighted_squared_relu": (run("nano"), run()),
    "std.adapters.dora_splits": (  # torch refuses the sum of two shapes, which is no refusal of NVIDIA's
        _adapter("dora targets=[linear_kv_down_proj]", base="moonlight"),
        _adapter("dora targets=[linear_kv_down_proj]", base="moonlight", tp=2, ep=4),
    ),
    "std.adapters.no_ep_overlap": (_adapter("lora"), _adapter("lora", ep_overlap=True)),  # the first step refuses
    "std.adapters.recompute_after_adapters": (  # a step trains less, and says nothing
        _adapter("lora", recompute=["moe"]),
        _adapter("lora targets=[linear_fc1, linear_fc2]", recompute=["moe"]),
    ),
    "std.adapters.norms_after_adapters": (  # the first backward pass ends
        _adapter("lora", recompute=["layernorm"]),
        _adapter("lora targets=[linear_proj]", base="moonlight", recompute=["layernorm"]),
    ),
    "std.adapters.activation_after_adapters": (  # as does this one
        _adapter("lora targets=[linear_qkv, linear_fc2]", recompute=["moe_act"]),
        _adapter("lora targets=[linear_fc2]", recompute=["moe_act"]),
    ),
    "std.adapters.recompute": (_adapter("lora", base="moonlight"), _adapter("lora")),
    "std.adapters.latents_after_adapters": (  # a step trains less, and says nothing
        _adapter("lora targets=[linear_kv_up_proj, linear_kv_down_proj]", base="moonlight", recompute=["mla_up_proj"]),
        _adapter("lora targets=[linear_kv_up_proj]", base="moonlight", recompute=["mla_up_proj"]),
    ),
    "std.packed_samples.no_ep_overlap": (  # attention crosses the ends of samples, and nothing is said
        run(task="sft", also=_TEXT),
        run(task="sft", also=_TEXT, ep_overlap=True),
    ),
    "std.adapters.one_for_all_experts": (_adapter("lora experts=each"), _adapter("lora")),
    "std.adapters.qkv_exists": (_adapter("lora"), _adapter("lora", base="moonlight")),
    "std.adapters.recipe_runs": (_adapter("lora"), _adapter("lora", base="next")),
    "std.adapters.mixers_too": (
        _adapter("lora targets=[linear_qkv, in_proj, out_proj]", base="nano"),
        _adapter("lora", base="nano"),
    ),
    "std.packing.pack/1": (run(also=_TEXT), run(task="sft", also=_TEXT)),
    "std.packing.pack/2": (run("next", task="sft", also=_TEXT), run(task="sft", also=_TEXT)),
    "std.packing.pack/3": (run(task="sft", also=_TEXT), run("next", task="sft", also=_TEXT)),
    "std.packed_samples.without_captured_attention": (
        run(task="sft", also=_TEXT, cuda_graph=["moe_router"]),
        run(task="sft", also=_TEXT, cuda_graph=["attn", "moe_router"]),
    ),
    "std.packed_samples.published_families": (
        run(task="sft", also=_TEXT),
        run("next", task="sft", also=_TEXT.replace("\n", " pack=on\n")),
    ),
    "std.adapters.regather_30b": (_adapter("lora", tp=4, ep=4), _adapter("lora", tp=4, ep=8)),
    "std.adapters.regather_oss": (_adapter("lora", base="oss", tp=2, ep=8), _adapter("lora", base="oss", tp=1, ep=8)),
    "std.dispatch_advice.hybridep_on_nvl72": (run("gb200", dispatcher="hybridep"), run("gb200", dispatcher="alltoall")),
    "std.dispatch_reports.hybridep_over_nodes": (
        run(hardware="b200", gpus=64, ep=32, dispatcher="hybridep"),
        run(hardware="b200", gpus=64, ep=64, dispatcher="hybridep"),
    ),
    "std.dispatch_advice.flex_on_nvl8": (run(dispatcher="deepep"), run(dispatcher="alltoall")),
    "std.layout_advice.cp_from_4k_shard": (run(seq=16384, cp=4), run(seq=16384, cp=2)),
    "std.layout_advice.keep_dp": (run(cp=8), run(cp=16)),
    "std.layout_advice.ep_in_domain": (run(ep=8), run(ep=16)),
    "std.layout_advice.tp_in_node": (run(tp=8), run(tp=16)),
    "std.layout_advice.published_length": (run(seq=40960), run(seq=81920)),
    "std.layout_advice.ep_over_etp": (run(etp=1), run(etp=2)),
    "std.recompute_advice.shared_experts_exist": (
        run("moonlight", recompute=["shared_experts"]),
        run(recompute=["shared_experts"]),
    ),
    "std.recompute_advice.selective_first": (run(recompute=["moe_act"]), run(recompute=["full"])),
    "std.recompute_advice.no_attention_at_long_context": (
        run(seq=65536, recompute=["moe_act"]),
        run(seq=65536, recompute=["core_attn"]),
    ),
    "std.recompute_advice.norm_inside_graph": (
        run(recompute=["layernorm"], cuda_graph=PARTIAL),
        run(recompute=["layernorm"], cuda_graph=PARTIAL, dispatcher="hybridep"),
    ),
    "std.recompute_advice.core_attn_outside_graph": (
        run(recompute=["core_attn"], cuda_graph=["moe_router"]),
        run(recompute=["core_attn"], cuda_graph=["attn"]),
    ),
    "std.recompute_advice.shared_experts_outside_graph": (
        run("moonlight", recompute=["shared_experts"], cuda_graph=["attn"]),
        run("moonlight", recompute=["shared_experts"], cuda_graph=["moe_router"]),
    ),
    "std.offload_optimizer.fp32_moments": (run(offload="optimizer"), run(offload="optimizer", moments="bf16")),
    "std.length.train.train_iters/1": (run(also="for 2T tokens\n"), run()),
    "std.length.train.train_iters/2": (run(also="for 14 days\n"), run()),
    "std.length.scheduler.lr_warmup_iters/1": (run(also="for 50M tokens\n"), run(also="for 2T tokens\n")),
    "std.length.scheduler.lr_warmup_iters/2": (run(also="for 0.1 hours\n"), run(also="for 14 days\n")),
    **{
        f"std.saves.checkpoint.{name}": (run(also=_TEXT), run())
        for name in ("ckpt_assume_constant_structure", "save_interval", "most_recent_k")
    },
    **{
        f"std.saves.checkpoint.{name}": (run(also=_TEXT), run(also=_TEXT, sharding="fsdp"))
        for name in ("async_save", "async_strategy")
    },
    **{
        f"std.local_saves.checkpoint.non_persistent_{name}": (run(also=_LOCAL), run(also=_TEXT))
        for name in ("ckpt_type", "save_interval", "local_ckpt_dir")
    },
    "std.checkpoints.checkpoint.dist_ckpt_optim_fully_reshardable": (
        run("deepseek", also=_TEXT, precision="mxfp8", gpus=192),
        run("deepseek", also=_TEXT, precision="mxfp8"),
    ),
    # data
    "std.mtp.mtp_loss_scaling_factor": (
        run("deepseek", task="sft", also=_TEXT),
        run("deepseek", task="sft", also=_TEXT, ep_overlap=True),
    ),
    "std.tokenizer.tokenizer.trust_remote_code": (run("moonlight", also=_TEXT), run(also=_TEXT)),
    # long context
    "std.long_context.tp_for_cp": (run("gb200", seq=65536, tp=2, cp=8), run("gb200", seq=65536, cp=16)),
    "std.long_context.cp_beside_ep_and_pp": (run(seq=16384, cp=4), run(seq=16384, cp=4, ep=1)),
    "std.long_context.offload_at_128k": (run(seq=131072, offload="optimizer"), run(seq=131072)),
    "std.long_context.short_of_new_kernels": (run(seq=65536), run(seq=131072)),
    "std.long_context.recompute": (run(seq=65536), run(seq=32768)),
    "std.long_context_published.deepseek_128k": (run(**_DSV3, seq=131072), run(**_DSV3, seq=262144)),
    "std.long_context_published.deepseek_256k": (run(**_DSV3, seq=262144), run(**_DSV3, seq=131072)),
    "std.long_context_published.qwen3_235b_128k": (run("qwen235", seq=131072), run("qwen235", seq=4096)),
    "std.walls.qwen3_next": (run("next", seq=32768), run("next", seq=4096)),
    "std.walls.delta_nets_unmeasured": (run("next"), run()),
    "std.variable_shapes.static_for_graphs": (
        run("vl", also=_UNPADDED),
        run("vl", also=_UNPADDED, cuda_graph=["moe_router"]),
    ),
    "std.variable_shapes.image_graphs": (
        run("vl", also=_PACKED, micro_batch=2, cuda_graph=["moe_router"]),
        run("vl", also=_PACKED, micro_batch=2, pp=2, cuda_graph=["moe_router"]),
    ),
    "std.variable_shapes.packed_micro_batch": (run("vl", also=_PACKED, micro_batch=2), run("vl", also=_PACKED)),
    "std.cuda_graph_advice.room_for_graphs": (
        run(cuda_graph=PARTIAL, ep=16),
        run(cuda_graph=PARTIAL, seq=16384, micro_batch=4),
    ),
    "std.cuda_graph_advice.whole_graph_for_static_shapes": (
        run("gb200", **WHOLE, also="routing balanced\n"),
        run("gb200", **WHOLE),
    ),
    "std.cuda_graph_advice.whole_graph_in_block_formats": (
        run("gb200", **WHOLE, precision="mxfp8"),
        run("gb200", **WHOLE, precision="fp8_current"),
    ),
    "std.dispatch_advice.deepep_on_nvl8": (run(dispatcher="deepep"), run(dispatcher="hybridep")),
    "std.layout_advice.vpp_with_pp": (run(pp=2, vpp=2), run(pp=2)),
    "std.layout_advice.cp_for_long_context": (run(), run(cp=2)),
    "std.layout_advice.parallel_folding": (run(tp=2, etp=1), run(tp=2, etp=2, ep=8)),
    "std.precision.nvfp4_last": (
        run("gb200", phase="scale", precision="mxfp8"),
        run("gb200", phase="scale", precision="nvfp4"),
    ),
    "std.fsdp_choices.replicas_to_shard_over": (run(sharding="fsdp"), run(sharding="fsdp", gpus=8, tp=8)),
    # laws whose layouts no GPU of the stdlib can break, or that need a price
    "std.precision.fp8_gpu": (
        run(precision="fp8_current", capability="8.9"),
        run(precision="fp8_current", capability="8.0"),
    ),
    "std.dispatch.hybridep_gpu": (
        run(dispatcher="hybridep", capability="9.0"),
        run(dispatcher="hybridep", capability="7.5"),
    ),
    "std.dispatch.hybridep_copies": (
        run(dispatcher="hybridep", capability="9.0"),
        run(dispatcher="hybridep", capability="8.0"),
    ),
    "std.dispatch.deepep_peers": (
        run(hardware="h100_nvl", dispatcher="deepep", ep=2),
        run(hardware="h100_nvl", dispatcher="deepep", ep=8),
    ),
    "std.dispatch.deepep_network": (
        run(hardware="a100_80gb", dispatcher="deepep", ep=8),
        run(hardware="a100_80gb", dispatcher="deepep", ep=16),
    ),
    "std.captured_attention.with_positions": (run("oss"), run("oss", cuda_graph=PARTIAL)),
    "std.fsdp.no_imported_weights": (
        run(also='weights "/weights"\n', task="sft", sharding="fsdp"),
        run(also='weights hf "Qwen/Qwen3-30B-A3B"\n', task="sft", sharding="fsdp"),
    ),
    "std.releases.paged_stash": (run(also="target bridge 0.5\n", **WHOLE), run(also="target bridge 0.4\n", **WHOLE)),
    "std.releases.mxfp8_shards": (
        run("gb200", also="target bridge 0.5\n", precision="mxfp8", sharding="fsdp"),
        run("gb200", also="target bridge 0.4\n", precision="mxfp8", sharding="fsdp"),
    ),
    "std.releases.sparse_shards": (
        run("glm5", also="target bridge 0.6\n", cp=2),
        run("glm5", also="target bridge 0.5\n", cp=2),
    ),
    "std.releases.delta_shards": (
        run("next", also="target bridge 0.5\n", cp=2),
        run("next", also="target bridge 0.4\n", cp=2),
    ),
    "std.releases_qwen35.tensor_groups": (
        run("vl35", also="target bridge 0.5\n", tp=4),
        run("vl35", also="target bridge 0.4\n", tp=4),
    ),
    "std.ep_overlap.torch": (
        run(also="target torch 2.6.0\n", ep_overlap=True),
        run(also="target torch 2.5.1\n", ep_overlap=True),
    ),
    **{f"std.delay_wgrad.{name}": _since(version) for name, version in _WGRAD_SINCE.items()},
    "std.memory.fits": (run(ep=16), run("qwen235", hardware="h100", gpus=32)),
    **{
        f"std.memory_at_{case}.fits": (
            run(ep=16, must_fit=case),
            run("qwen235", hardware="h100", gpus=32, must_fit=case),
        )
        for case in ("best", "low")
    },
    "std.memory_at_low.least": (run(must_fit="low"), run(must_fit="best")),
    # what each phase chooses from
    "std.fit.dispatcher": (run(phase="fit"), run(phase="scale")),
    "std.fit.cuda_graph": (run(phase="fit"), run(phase="scale")),
    "std.fit.ep_overlap": (run(phase="fit"), run(phase="scale")),
    "std.fit.delay_wgrad": (run(phase="fit"), run(phase="scale")),
    "std.fit.vpp": (run(phase="fit"), run(phase="fit", ep_overlap=True)),
    "std.fit.micro_batch": (run(phase="fit"), run(phase="throughput")),
    "std.fit.bring_up": (run(phase="fit"), run(phase="scale")),
    "std.scale.cuda_graph": (run(phase="scale"), run(phase="throughput")),
    "std.scale.ep_overlap": (run(phase="scale"), run(phase="throughput")),
    "std.scale.delay_wgrad": (run(phase="scale"), run(phase="throughput")),
    "std.scale.micro_batch": (run(phase="scale"), run(phase="throughput")),
    "std.scale.scaling": (run(phase="scale"), run(phase="fit")),
    "std.throughput.cuda_graph/1": (run("vl"), run()),
    "std.throughput.cuda_graph/2": (run("nano"), run()),
    "std.throughput.cuda_graph/3": (run("next"), run()),
    "std.throughput.cuda_graph/4": (run("glm5"), run()),
    "std.throughput.cuda_graph/5": (run(**FORCED), run(**{**FORCED, "precision": "bf16"})),
    "std.throughput.cuda_graph/6": (run(), run("vl")),
    "std.throughput.micro_batch": (run(), run(phase="scale")),
    "std.throughput.throughput": (run(), run(phase="fit")),
    "std.choices.vpp": (run(), run(phase="fit")),
    "std.choices.dispatcher/1": (run("gb200"), run()),
    "std.choices.dispatcher/2": (run(), run("gb200")),
    "std.choices.sharding": (run(), own("default sharding = fsdp")),
    # recompute, offload, precision
    "std.recompute.recompute/1": (run("moonlight"), run()),
    "std.recompute.recompute/2": (run("nano"), run()),
    "std.recompute.recompute/3": (run("next"), run()),
    "std.recompute.recompute/4": (run(), run("moonlight")),
    "std.offload_modules.offload_modules": (run(), own("default offload_modules = [core_attn]")),
    "std.offload_modules.model.fine_grained_offloading_max_inflight_offloads": (
        run("gb200", offload_modules=["core_attn"], **{**WHOLE, "precision": "mxfp8"}),
        run("gb200", offload_modules=["core_attn"]),
    ),
    "std.environment.NVTE_CPU_OFFLOAD_V1": (run(offload_modules=["core_attn"]), run()),
    "std.offload_advice.norm_is_alone": (
        run("deepseek", offload_modules=["attn_norm"]),
        run("next", offload_modules=["attn_norm"]),
    ),
    "std.offload_advice.norm_outside_graph": (
        run("deepseek", offload_modules=["attn_norm"]),
        run("deepseek", offload_modules=["attn_norm"], cuda_graph=["attn"]),
    ),
    "std.offload_advice.mlp_norm_outside_graph": (
        run(offload_modules=["mlp_norm"]),
        run(offload_modules=["mlp_norm"], cuda_graph=["moe_router"]),
    ),
    **{
        f"std.offload_modules.{name}": (
            run(also=f"target {product} {v}\n", offload_modules=["core_attn"], cuda_graph=["attn"]),
            run(also=f"target {product} {old}\n", offload_modules=["core_attn"], cuda_graph=["attn"]),
        )
        for name, product, v, old in (
            ("graph_torch", "torch", "2.9.0", "2.8.0"),
            ("graph_te", "transformer_engine", "2.14.0", "2.13.0"),
        )
    },
    "std.offload_modules.graph_joins": (
        run("nano", cuda_graph=["attn", "mamba"], offload_modules=["core_attn"]),
        run("next", cuda_graph=["attn"], offload_modules=["core_attn"]),
    ),
    "std.recompute.offload": (run(), own("candidates offload = [none]")),
    "std.precision.precision/1": (run(), own("default precision = mxfp8", base="gb200")),
    "std.precision.precision/2": (run(phase="scale"), run(phase="throughput")),
    "std.precision.precision/3": (run(), run("gb200")),
    "std.precision.precision/4": (run(hardware="a100_80gb"), run()),
    "std.precision.precision/5": (run("gb200"), run()),
    "std.precision.moments": (run(), own("default moments = bf16")),
    "std.precision.grad_reduce": (run(), own("default grad_reduce = bf16")),
    "std.precision.moe_router_dtype": (run(), own("derive moe_router_dtype = fp64")),
    "std.delay_wgrad.gradient_accumulation_fusion": (
        run(ep_overlap=True, delay_wgrad=True, cuda_graph=["attn"]),
        run(ep_overlap=True, delay_wgrad=True),
    ),
    "std.target.torch_version": (run(), own('default torch_version = version("2.7.0")')),
    "std.target.te_version": (run(), own('default te_version = version("2.12.0")')),
    "std.sinks.cp_comm_type": (run("oss", cp=2), run("oss")),
    # batch
    "std.batch.seq": (run(), own("default seq = 8192")),
    "std.batch.global_batch/1": (run(), run(gpus=24)),
    "std.batch.global_batch/2": (run(gpus=24), run()),
    "std.batch.global_batch/3": (run(task="peft"), run()),
    "std.batch.global_batch/4": (run(task="peft", gpus=24), run(task="peft")),
    # environment
    "std.environment.CUDA_DEVICE_MAX_CONNECTIONS/1": (run("gb200"), run()),
    "std.environment.CUDA_DEVICE_MAX_CONNECTIONS/2": (run(tp=2), run(tp=2, sharding="fsdp")),
    "std.environment.CUDA_DEVICE_MAX_CONNECTIONS/3": (run(dispatcher="deepep"), run()),
    "std.environment.CUDA_DEVICE_MAX_CONNECTIONS/4": (run(), run(dispatcher="deepep")),
    "std.environment.NVTE_FWD_LAYERNORM_SM_MARGIN": (run(), own("env NVTE_FWD_LAYERNORM_SM_MARGIN = 0")),
    "std.environment.NVTE_BWD_LAYERNORM_SM_MARGIN": (run(), own("env NVTE_BWD_LAYERNORM_SM_MARGIN = 0")),
    "std.environment.NVLINK_DOMAIN_SIZE": (run(dispatcher="hybridep"), run()),
    "std.environment.USE_MNNVL": (run("gb200", dispatcher="hybridep"), run("gb200")),
    "std.environment.NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": (run(dispatcher="hybridep"), run(dispatcher="deepep")),
    "std.environment.NUM_OF_TOKENS_PER_CHUNK_COMBINE_API": (run(dispatcher="hybridep"), run(dispatcher="deepep")),
    "std.environment.PYTORCH_CUDA_ALLOC_CONF/1": (run("gb200", **WHOLE), run("gb200")),
    "std.environment.PYTORCH_CUDA_ALLOC_CONF/2": (run("gb200"), run("gb200", **WHOLE)),
    "std.environment.NCCL_GRAPH_REGISTER": (run(), own("env NCCL_GRAPH_REGISTER = 1")),
    "std.environment.NCCL_NVLS_ENABLE": (run(), own("env NCCL_NVLS_ENABLE = 1")),
    "std.environment.TORCH_NCCL_AVOID_RECORD_STREAMS": (run(), own("env TORCH_NCCL_AVOID_RECORD_STREAMS = 0")),
    "std.environment.TORCH_NCCL_HIGH_PRIORITY": (run(), own("env TORCH_NCCL_HIGH_PRIORITY = 0")),
    "std.environment.NCCL_IGNORE_CPU_AFFINITY": (run(hardware="b300"), run(hardware="b200")),
    "std.environment.NVTE_USE_FAST_MATH": (run("gb200", precision="nvfp4"), run("gb200", precision="mxfp8")),
    "std.environment.NVTE_CUTEDSL_FUSED_GROUPED_MLP": (run("gb200", **WHOLE), run("gb200", cuda_graph=PARTIAL)),
    # measured
    "std.measured.ep_overlap_alltoall": (run(**_MEASURED_30B), run(**_MEASURED_30B, dispatcher="deepep")),
    "std.measured.ep_overlap_hybridep_tuned": (
        run(**_MEASURED_30B, dispatcher="hybridep", ep_overlap=True),
        run(**_MEASURED_30B, dispatcher="hybridep", ep_overlap=True, delay_wgrad=True),
    ),
    "std.measured.ep_overlap_hybridep": (run(**_MEASURED_30B, dispatcher="hybridep"), run(**_MEASURED_30B)),
    "std.measured.deepseek_gb200": (
        run("deepseek", gpus=256, precision="mxfp8", pp=4, vpp=4),
        run("deepseek", gpus=256, precision="bf16", pp=4, vpp=4),
    ),
    "std.measured.qwen3_235b_gb200": (
        run("qwen235", precision="mxfp8", pp=8, vpp=3),
        run("qwen235", precision="mxfp8", pp=8, vpp=4),
    ),
    "std.measured.gpt_oss_h100": (run("oss", gpus=64, tp=2, pp=4), run("oss", gpus=64, tp=4, pp=4)),
}

PAIRS: dict[str, Pair] = _PAIRS | WORKFLOW | VLM | SYMPTOMS

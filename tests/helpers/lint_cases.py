"""Recipes with one mistake each that people met on clusters, and a near neighbour without it.

Each is one of NVIDIA's own recipes with a few lines changed (tests/helpers/bridge_recipes.py). `id` is what lint says of the
first, on the line that has `at` in it; of the neighbour it does not say it.
"""

from __future__ import annotations

from attrs import frozen

from tests.helpers.bridge_recipes import DEEPSEEK, QWEN_30B, QWEN_235B
from tests.helpers.lint_values import DECENTRALIZED, VALUES, Lines, base

LORA = "megatron.bridge.recipes.qwen.h100.qwen3_moe:qwen3_30b_a3b_peft_4gpu_h100_bf16_config"
VL = "megatron.bridge.perf_recipes.qwen_vl.h100.qwen3_vl:qwen3_vl_30b_a3b_pretrain_16gpu_h100_bf16_config"
GLM52 = "megatron.bridge.recipes.glm.gb200.glm5:glm52_pretrain_192gpu_gb200_bf16_config"
VL35 = "megatron.bridge.recipes.qwen_vl.h100.qwen35_vl:qwen35_vl_35b_a3b_sft_16gpu_h100_bf16_config"
_TRACKER = "m.use_te_rng_tracker = cfg.rng.te_rng_tracker = True"
_ONE_STAGE = "m.pipeline_model_parallel_size, m.virtual_pipeline_model_parallel_size = 1, None"
_PLAIN = "m.pipeline_model_parallel_layout = None; m.account_for_embedding_in_pipeline_split = False"
_PLAIN_LOSS = "m.account_for_loss_in_pipeline_split = False"
_SELECTIVE = 'm.recompute_granularity = "selective"'
_OVERLAP = "cfg.comm_overlap.overlap_moe_expert_parallel_comm = True"
_FSDP = "cfg.ddp.use_megatron_fsdp = cfg.dist.use_megatron_fsdp = True"
_HELPER = "from megatron.bridge.training.flex_dispatcher_backend import apply_flex_dispatcher_backend"
_ENERGON = "from megatron.bridge.data.builders import EnergonDatasetConfig, QwenVLEnergonTaskEncoderConfig"
_ENCODER = 'e = QwenVLEnergonTaskEncoderConfig(hf_processor_path="Qwen/Qwen3-VL-30B-A3B-Instruct")'
_NCCLEP = 'm.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "ncclep"'
_BUDGET = "m.moe_expert_rank_capacity_factor = 2.0"
_STATIC = "m.moe_ncclep_static_shape = m.use_transformer_engine_op_fuser = True"
_NO_FUSION = "m.moe_router_fusion = False"
_NULL = 'cfg.tokenizer.tokenizer_type, cfg.tokenizer.vocab_size = "NullTokenizer", 32000'


@frozen
class Mistake:
    """Lines that make the mistake, what lint says where, and the lines of the neighbour."""

    id: str
    at: str
    bad: tuple[str, ...]
    good: tuple[str, ...]
    base: str = QWEN_30B
    gpu: str | None = None


def _energon(size: int) -> str:
    return f'cfg.dataset = EnergonDatasetConfig(path="x", seq_length=4096, task_encoder=e, micro_batch_size={size})'


def _value(rule: str, bad: Lines, good: Lines) -> Mistake:
    """A broken value of a field: what leads to it is written before it."""
    return Mistake(f"std.{rule}", bad[0], (*bad[1:], bad[0]), good, base(rule))


MISTAKES: dict[str, Mistake] = {
    "adapters without the weights below them": Mistake(
        "std.recipe_adapters.names_its_weights",
        "pretrained_checkpoint",
        ("cfg.checkpoint.pretrained_checkpoint = None",),
        ('cfg.checkpoint.pretrained_checkpoint = "/weights"',),
        LORA,
    ),
    "ETP x EP x PP does not divide the world": Mistake(
        "std.mesh.expert_mesh", "= 32", ("m.expert_model_parallel_size = 32",), ("m.expert_model_parallel_size = 8",)
    ),
    "unset ETP turns into TP": Mistake(
        "std.recipe_mesh.say_etp",
        "expert_tensor",
        ("m.tensor_model_parallel_size = 2; m.sequence_parallel = True", "m.expert_tensor_parallel_size = None"),
        ("m.tensor_model_parallel_size = 2; m.sequence_parallel = True", "m.expert_tensor_parallel_size = 1"),
    ),
    "TP without sequence parallelism": Mistake(
        "std.recipe_mesh.sequence_parallel",
        "tensor_model",
        ("m.tensor_model_parallel_size = 2",),
        ("m.tensor_model_parallel_size = 2; m.sequence_parallel = True",),
    ),
    "60 layers on PP 8": Mistake(
        "std.mesh.layers",
        "num_layers = 60",
        (
            _PLAIN,
            _PLAIN_LOSS,
            "m.num_layers = 60",
            "m.pipeline_model_parallel_size = 8; m.virtual_pipeline_model_parallel_size = None",
        ),
        (
            _PLAIN,
            _PLAIN_LOSS,
            "m.num_layers = 64",
            "m.pipeline_model_parallel_size = 8; m.virtual_pipeline_model_parallel_size = None",
        ),
        QWEN_235B,
    ),
    "40 layers on PP 2 VPP 12": Mistake(
        "std.mesh.layers",
        "= 12",
        ("m.num_layers = 40; m.pipeline_model_parallel_size = 2", "m.virtual_pipeline_model_parallel_size = 12"),
        ("m.num_layers = 40; m.pipeline_model_parallel_size = 2", "m.virtual_pipeline_model_parallel_size = 10"),
    ),
    "a layout left from another VPP": Mistake(
        "std.recipe_layout.virtual_stages",
        "= 2",
        ("m.virtual_pipeline_model_parallel_size = 2",),
        ("m.virtual_pipeline_model_parallel_size = 4",),
        DEEPSEEK,
    ),
    "a layout left from another PP": Mistake(
        "std.recipe_layout.stages",
        "= 32",
        ("m.pipeline_model_parallel_size = 32",),
        ("m.pipeline_model_parallel_size = 4",),
        DEEPSEEK,
    ),
    "a layout of another depth": Mistake(
        "std.recipe_layout.layers", "= 60", ("m.num_layers = 60",), ("m.num_layers = 61",), DEEPSEEK
    ),
    "a layout and stage counts": Mistake(
        "std.recipe_layout.one_way",
        "= 15",
        ("m.num_layers_in_first_pipeline_stage = 15",),
        ("m.num_layers_in_first_pipeline_stage = None",),
        DEEPSEEK,
    ),
    "first and last stage counts at PP 1": Mistake(
        "std.recipe_layout.ends_need_pipeline",
        "last_pipeline",
        (_ONE_STAGE, "m.num_layers_in_last_pipeline_stage = 22"),
        (_ONE_STAGE, "m.num_layers_in_last_pipeline_stage = None"),
    ),
    "stage counts beside counted embeddings": Mistake(
        "std.recipe_layout.ends_or_accounts",
        "first_pipeline",
        (
            "m.pipeline_model_parallel_size = 2",
            "m.num_layers_in_first_pipeline_stage = 20",
            "m.account_for_loss_in_pipeline_split = True",
        ),
        (
            "m.pipeline_model_parallel_size = 2",
            "m.num_layers_in_first_pipeline_stage = 20",
            "m.account_for_loss_in_pipeline_split = False",
        ),
    ),
    "global batch not divisible": Mistake(
        "std.batch.batch_over_dp",
        "= 1000",
        ("cfg.train.global_batch_size = 1000",),
        ("cfg.train.global_batch_size = 1008",),
    ),
    "evaluation batch not divisible": Mistake(
        "std.recipe_batch.evaluation",
        "= 24",
        ("cfg.validation.eval_global_batch_size = 24",),
        ("cfg.validation.eval_global_batch_size = 32",),
    ),
    "data of another sequence length": Mistake(
        "std.recipe_batch.sequence",
        "= 2048",
        ("cfg.dataset.seq_length = 2048",),
        ("cfg.dataset.seq_length = m.seq_length = 2048",),
    ),
    "data of another micro batch": Mistake(
        "std.recipe_batch.micro_batch",
        "micro_batch_size=2",
        (_ENERGON, _ENCODER, _energon(2), "cfg.train.micro_batch_size = 1"),
        (_ENERGON, _ENCODER, _energon(1), "cfg.train.micro_batch_size = 1"),
        VL,
    ),
    "Qwen-VL with CP and the loss per rank": Mistake(
        "std.recipe_batch.loss_per_token",
        "calculate_per_token_loss",
        ("m.context_parallel_size = 2", "m.calculate_per_token_loss = False; cfg.ddp.average_in_collective = False"),
        ("m.context_parallel_size = 2", "m.calculate_per_token_loss = True; cfg.ddp.average_in_collective = False"),
        VL,
    ),
    "an order of ranks that decentralized groups do not have": Mistake(
        "std.recipe_groups.decentralized_order",
        "use_tp_pp_dp_mapping",
        (*DECENTRALIZED, "cfg.dist.use_tp_pp_dp_mapping = True"),
        DECENTRALIZED,
    ),
    "DeepEP asked for on GB200": Mistake(
        "std.recipe_dispatch.backend_kept",
        'backend="deepep"',
        (_HELPER, 'apply_flex_dispatcher_backend(m, moe_flex_dispatcher_backend="deepep")'),
        (_HELPER, 'apply_flex_dispatcher_backend(m, moe_flex_dispatcher_backend="hybridep")'),
        gpu="gb200",
    ),
    "DeepEP set on GB200": Mistake(
        "std.dispatch.deepep_gpu",
        '"deepep"',
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "deepep"',),
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "hybridep"',),
        gpu="gb200",
    ),
    "HybridEP ranks that are not EP": Mistake(
        "std.recipe_dispatch.hybridep_ranks_match",
        "RANKS_PER",
        ('cfg.env_vars["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] = 16',),
        ('cfg.env_vars["NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN"] = 8',),
    ),
    "HybridEP for another NVLink domain": Mistake(
        "std.recipe_dispatch.hybridep_domain_size",
        "NVLINK_DOMAIN_SIZE",
        ('cfg.env_vars["NVLINK_DOMAIN_SIZE"] = 72',),
        ('cfg.env_vars["NVLINK_DOMAIN_SIZE"] = 8',),
    ),
    "a backend under alltoall": Mistake(
        "std.recipe_dispatch.backend_used",
        '"hybridep"',
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "alltoall", "hybridep"',),
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "alltoall", None',),
    ),
    "conflicting SM knobs": Mistake(
        "std.recipe_dispatch.one_sm_knob",
        "= 20, 16",
        ("m.moe_deepep_num_sms, m.moe_hybridep_num_sms = 20, 16",),
        ("m.moe_deepep_num_sms, m.moe_hybridep_num_sms = 16, 16",),
    ),
    "an old SM knob beside the new one": Mistake(
        "std.recipe_dispatch.new_sm_knob",
        "= 24, 16",
        ("m.moe_flex_dispatcher_num_sms, m.moe_hybridep_num_sms = 24, 16",),
        ("m.moe_flex_dispatcher_num_sms, m.moe_hybridep_num_sms = 24, None",),
    ),
    "a misspelt backend": Mistake(
        "std.recipe_dispatch.known_backend",
        '"DeepEP"',
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "DeepEP"',),
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "deepep"',),
    ),
    "a backend of another spelling": Mistake(
        "lint.unknown_word",
        '"hybrid_ep"',
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "hybrid_ep"',),
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "hybridep"',),
    ),
    "NCCL EP under alltoall": Mistake(
        "std.recipe_ncclep.flex",
        '"ncclep"',
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "alltoall", "ncclep"', _BUDGET),
        (_NCCLEP, _BUDGET),
    ),
    "NCCL EP in a group of one": Mistake(
        "std.recipe_ncclep.group",
        "m.expert_model_parallel_size = 1",
        (_NCCLEP, _BUDGET, "m.expert_model_parallel_size = 1"),
        (_NCCLEP, _BUDGET, "m.expert_model_parallel_size = 8"),
    ),
    "NCCL EP on A100": Mistake(
        "std.recipe_ncclep.gpu",
        "ncclep",
        (_NCCLEP, _BUDGET),
        ('m.moe_token_dispatcher_type, m.moe_flex_dispatcher_backend = "flex", "deepep"',),
        gpu="a100_80gb",
    ),
    "NCCL EP without a budget": Mistake(
        "std.recipe_ncclep.budget",
        "capacity_factor",
        (_NCCLEP, "m.moe_expert_rank_capacity_factor = None"),
        (_NCCLEP, _BUDGET),
    ),
    "zero copy of NCCL EP without a static shape": Mistake(
        "std.recipe_ncclep.zero_copy_shape",
        "zero_copy",
        (_NCCLEP, _BUDGET, "m.moe_ncclep_zero_copy = True"),
        (_NCCLEP, _BUDGET, _STATIC, "m.moe_ncclep_zero_copy = True"),
    ),
    "a static shape of NCCL EP without the fused experts": Mistake(
        "std.recipe_ncclep.static_shape_experts",
        "static_shape",
        (_NCCLEP, _BUDGET, "m.moe_ncclep_static_shape, m.use_transformer_engine_op_fuser = True, False"),
        (_NCCLEP, _BUDGET, _STATIC),
    ),
    "a static shape of NCCL EP in FP8 on Hopper": Mistake(
        "std.recipe_ncclep.static_shape_in_fp8",
        "static_shape",
        (_NCCLEP, _BUDGET, _STATIC, 'cfg.mixed_precision = "bf16_with_fp8_current_scaling_mixed"'),
        (_NCCLEP, _BUDGET, _STATIC),
    ),
    "NCCL EP, overlap and an offloaded expert_fc1": Mistake(
        "std.recipe_ncclep.overlap_keeps_fc1",
        "expert_fc1",
        (
            _NCCLEP,
            _BUDGET,
            _STATIC,
            _OVERLAP,
            'm.fine_grained_activation_offloading, m.offload_modules = True, ["expert_fc1"]',
        ),
        (_NCCLEP, _BUDGET, _STATIC, _OVERLAP, "m.fine_grained_activation_offloading, m.offload_modules = False, []"),
    ),
    "overlap of NCCL EP without a static shape": Mistake(
        "std.recipe_ncclep.overlap_static_shape",
        '"ncclep"',
        (_OVERLAP, _NCCLEP, _BUDGET),
        (_OVERLAP, _NCCLEP, _BUDGET, _STATIC),
    ),
    "more experts for a token than there are": Mistake(
        "std.recipe_router.topk_fits", "= 129", ("m.moe_router_topk = 129",), ("m.moe_router_topk = 128",)
    ),
    "a misspelt balancing": Mistake(
        "std.recipe_router.known_balancing",
        '"aux-loss"',
        ('m.moe_router_load_balancing_type = "aux-loss"',),
        ('m.moe_router_load_balancing_type = "aux_loss"',),
    ),
    "Sinkhorn's routing with a balancing loss": Mistake(
        "std.recipe_router.sinkhorn_alone",
        '"sinkhorn"',
        ('m.moe_router_load_balancing_type, m.moe_aux_loss_coeff = "sinkhorn", 1e-3',),
        ('m.moe_router_load_balancing_type, m.moe_aux_loss_coeff = "sinkhorn", 0.0',),
    ),
    "quantiles in the fused router": Mistake(
        "std.recipe_router.quantile_unfused",
        '"quantile_balancing"',
        ('m.moe_router_load_balancing_type, m.moe_router_fusion = "quantile_balancing", True',),
        ('m.moe_router_load_balancing_type, m.moe_router_fusion = "quantile_balancing", False',),
    ),
    "quantiles in groups of experts": Mistake(
        "std.recipe_router.quantile_ungrouped",
        '"quantile_balancing"',
        ('m.moe_router_load_balancing_type, m.moe_router_num_groups = "quantile_balancing", 8', _NO_FUSION),
        ('m.moe_router_load_balancing_type, m.moe_router_num_groups = "quantile_balancing", None', _NO_FUSION),
    ),
    "weights of 8 experts on the input": Mistake(
        "std.recipe_router.weights_on_input",
        "= True",
        ("m.moe_apply_probs_on_input = True",),
        ("m.moe_apply_probs_on_input = False",),
    ),
    "a replay of the fused router": Mistake(
        "std.recipe_router.replay_unfused",
        "= True",
        ("m.moe_router_fusion = m.moe_enable_routing_replay = True",),
        ("m.moe_router_fusion, m.moe_enable_routing_replay = False, True",),
    ),
    "a loss for each token that is averaged twice": Mistake(
        "std.recipe_loss.averaged_once",
        "= True",
        ("cfg.ddp.average_in_collective = m.calculate_per_token_loss = True",),
        ("cfg.ddp.average_in_collective, m.calculate_per_token_loss = False, True",),
    ),
    "WSD without a stable phase": Mistake(
        "std.recipe_schedule.stable_phase",
        '"WSD"',
        ('cfg.scheduler.lr_decay_style, cfg.scheduler.lr_wsd_decay_iters = "WSD", None',),
        ('cfg.scheduler.lr_decay_style, cfg.scheduler.lr_wsd_decay_iters = "WSD", 5',),
    ),
    "a warm-up as long as the run": Mistake(
        "std.recipe_schedule.warmup_ends",
        "= None, 100, 100",
        ("cfg.scheduler.lr_decay_iters, cfg.train.train_iters, cfg.scheduler.lr_warmup_iters = None, 100, 100",),
        ("cfg.scheduler.lr_decay_iters, cfg.train.train_iters, cfg.scheduler.lr_warmup_iters = None, 100, 99",),
    ),
    "4 heads of keys over 8 context ranks": Mistake(
        "std.recipe_context.heads_for_all_to_all",
        '"a2a"',
        ('m.context_parallel_size, m.cp_comm_type = 8, "a2a"',),
        ('m.context_parallel_size, m.cp_comm_type = 8, "p2p"',),
    ),
    "keys that pass on under learned softmax offsets": Mistake(
        "std.recipe_context.whole_heads_for_sinks",
        '"p2p"',
        ('m.window_size = None; m.softmax_type = "learnable"; m.context_parallel_size, m.cp_comm_type = 2, "p2p"',),
        ('m.window_size = None; m.softmax_type = "learnable"; m.context_parallel_size, m.cp_comm_type = 2, "a2a"',),
    ),
    "keys that pass on under a window": Mistake(
        "std.recipe_context.whole_heads_for_windows",
        '"p2p"',
        ('m.window_size, m.context_parallel_size, m.cp_comm_type = (128, 0), 2, "p2p"',),
        ('m.window_size, m.context_parallel_size, m.cp_comm_type = (128, 0), 2, "a2a"',),
    ),
    "keys that pass on under sparse attention": Mistake(
        "std.recipe_context.gathered_keys",
        '"p2p"',
        ('m.context_parallel_size, m.cp_comm_type = 2, "p2p"',),
        ('m.context_parallel_size, m.cp_comm_type = 2, "allgather"',),
        GLM52,
    ),
    "recompute modules without a granularity": Mistake(
        "std.recipe_recompute.modules_with_granularity",
        '["moe_act"]',
        ('m.recompute_granularity, m.recompute_modules = None, ["moe_act"]',),
        ('m.recompute_granularity, m.recompute_modules = "selective", ["moe_act"]',),
    ),
    "graphs, growing segments and registered buffers": Mistake(
        "std.recipe_graphs.nccl_register",
        "NCCL_GRAPH_REGISTER",
        (
            'cfg.env_vars["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
            'cfg.env_vars["NCCL_GRAPH_REGISTER"] = 1',
        ),
        (
            'cfg.env_vars["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
            'cfg.env_vars["NCCL_GRAPH_REGISTER"] = 0',
        ),
    ),
    "the same under a whole-iteration graph": Mistake(
        "std.recipe_graphs.nccl_register_always",
        "NCCL_GRAPH_REGISTER",
        (
            'm.cuda_graph_impl, m.cuda_graph_scope = "full_iteration", None',
            'cfg.env_vars["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
            'cfg.env_vars["NCCL_GRAPH_REGISTER"] = 1',
        ),
        (
            'm.cuda_graph_impl, m.cuda_graph_scope = "full_iteration", None',
            'cfg.env_vars["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"',
            'cfg.env_vars["NCCL_GRAPH_REGISTER"] = 0',
        ),
    ),
    "graphs without the tracker of random states": Mistake(
        "std.recipe_graphs.random_state",
        "te_rng_tracker",
        ("m.use_te_rng_tracker = cfg.rng.te_rng_tracker = False",),
        ("m.use_te_rng_tracker = cfg.rng.te_rng_tracker = True",),
    ),
    "graphs of a VLM without it": Mistake(
        "std.recipe_graphs.random_state_elsewhere",
        "te_rng_tracker",
        (
            'm.cuda_graph_impl, m.cuda_graph_scope = "transformer_engine", ["attn"]',
            "m.use_te_rng_tracker = cfg.rng.te_rng_tracker = False",
        ),
        (
            'm.cuda_graph_impl, m.cuda_graph_scope = "transformer_engine", ["attn"]',
            "m.use_te_rng_tracker = cfg.rng.te_rng_tracker = True",
        ),
        VL,
    ),
    "captured attention of Qwen3.5": Mistake(
        "std.captured_attention.with_positions",
        '"attn"',
        ('m.cuda_graph_impl, m.cuda_graph_scope = "transformer_engine", ["attn"]', _TRACKER),
        ('m.cuda_graph_impl, m.cuda_graph_scope = "transformer_engine", ["moe_router"]', _TRACKER),
        VL35,
    ),
    "a whole-iteration graph that looks at the loss": Mistake(
        "std.recipe_graphs.loss_check",
        "check_for_nan",
        (
            'm.cuda_graph_impl, m.cuda_graph_scope = "full_iteration", None',
            "cfg.rerun_state_machine.check_for_nan_in_loss = True",
        ),
        (
            'm.cuda_graph_impl, m.cuda_graph_scope = "full_iteration", None',
            "cfg.rerun_state_machine.check_for_nan_in_loss = False",
        ),
    ),
    "graph scope inside recomputation": Mistake(
        "std.cuda_graph.no_moe_recompute",
        '["moe"]',
        (_SELECTIVE, 'm.recompute_modules = ["moe"]'),
        (_SELECTIVE, 'm.recompute_modules = ["moe_act"]'),
    ),
    "graphs under full recompute": Mistake(
        "std.cuda_graph.no_full_recompute",
        '"full"',
        ('m.recompute_granularity, m.recompute_method, m.recompute_num_layers = "full", "uniform", 1',),
        ('m.recompute_granularity, m.recompute_method, m.recompute_num_layers = "selective", None, None',),
    ),
    "overlap with full recompute": Mistake(
        "std.ep_overlap.no_full_recompute",
        '"full"',
        (_OVERLAP, 'm.recompute_granularity, m.recompute_method, m.recompute_num_layers = "full", "uniform", 1'),
        (_OVERLAP, 'm.recompute_granularity, m.recompute_method, m.recompute_num_layers = "selective", None, None'),
    ),
    "overlap with a recompute method left over": Mistake(
        "std.recipe_overlap.no_recompute_method",
        '"uniform"',
        (_OVERLAP, 'm.recompute_method = "uniform"'),
        (_OVERLAP, "m.recompute_method = None"),
    ),
    "overlap with moe recompute": Mistake(
        "std.ep_overlap.no_moe_recompute",
        '["moe"]',
        (_OVERLAP, _SELECTIVE, 'm.recompute_modules = ["moe"]'),
        (_OVERLAP, _SELECTIVE, 'm.recompute_modules = ["moe_act"]'),
    ),
    "overlap with shared-expert overlap": Mistake(
        "std.recipe_overlap.no_shared_expert_overlap",
        "moe_shared_expert_overlap",
        (_OVERLAP, "m.moe_shared_expert_overlap = True"),
        (_OVERLAP, "m.moe_shared_expert_overlap = False"),
    ),
    "overlap without VPP": Mistake(
        "std.ep_overlap.needs_vpp",
        "= 2",
        (_OVERLAP, "m.pipeline_model_parallel_size = 2"),
        (_OVERLAP, "m.pipeline_model_parallel_size = m.virtual_pipeline_model_parallel_size = 2"),
    ),
    "overlap with one queue": Mistake(
        "std.recipe_overlap.several_queues",
        "MAX_CONNECTIONS",
        (_OVERLAP, 'cfg.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"'),
        (_OVERLAP, 'cfg.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] = "32"'),
    ),
    "overlap said to the model alone": Mistake(
        "std.recipe_flags.overlap_is_said_twice",
        "m.overlap_moe",
        ("m.overlap_moe_expert_parallel_comm = True", _OVERLAP.replace("True", "False")),
        ("m.overlap_moe_expert_parallel_comm = True", _OVERLAP),
    ),
    "delayed weight gradients said to the model alone": Mistake(
        "std.recipe_flags.wgrad_is_said_twice",
        "m.delay_wgrad",
        (_OVERLAP, "m.delay_wgrad_compute = True"),
        (_OVERLAP, "m.delay_wgrad_compute = cfg.comm_overlap.delay_wgrad_compute = True"),
    ),
    "TP overlap without TP": Mistake(
        "std.recipe_flags.tp_overlap_acts",
        "tp_comm_overlap",
        ("cfg.comm_overlap.tp_comm_overlap = True",),
        ("cfg.comm_overlap.tp_comm_overlap = False",),
    ),
    "FSDP with one queue": Mistake(
        "std.recipe_fsdp.several_queues",
        "MAX_CONNECTIONS",
        (_FSDP, 'cfg.checkpoint.ckpt_format = "fsdp_dtensor"', 'cfg.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] = 1'),
        (_FSDP, 'cfg.checkpoint.ckpt_format = "fsdp_dtensor"', 'cfg.env_vars["CUDA_DEVICE_MAX_CONNECTIONS"] = 8'),
    ),
    "FSDP and another checkpoint format": Mistake(
        "std.recipe_fsdp.checkpoint_format",
        "ckpt_format",
        (_FSDP, 'cfg.checkpoint.save = "/tmp/x"; cfg.checkpoint.ckpt_format = "torch_dist"'),
        (_FSDP, 'cfg.checkpoint.save = "/tmp/x"; cfg.checkpoint.ckpt_format = "fsdp_dtensor"'),
    ),
    "both FSDPs": Mistake(
        "std.recipe_fsdp.one_fsdp",
        "use_torch_fsdp2 = True",
        (_FSDP, "cfg.dist.use_torch_fsdp2 = True"),
        (_FSDP, "cfg.dist.use_torch_fsdp2 = False"),
    ),
    "FSDP's format without FSDP": Mistake(
        "std.recipe_checkpoint.checkpoint_format",
        "ckpt_format",
        ('cfg.checkpoint.save = "/tmp/x"; cfg.checkpoint.ckpt_format = "fsdp_dtensor"',),
        ('cfg.checkpoint.save = "/tmp/x"; cfg.checkpoint.ckpt_format = "torch_dist"',),
    ),
    "a mock vocabulary against a checkpoint's": Mistake(
        "std.recipe_tokenizer.checkpoint_vocabulary",
        "use_tokenizer_vocab_size",
        (_NULL, 'cfg.checkpoint.pretrained_checkpoint = "/ckpt"', "cfg.tokenizer.use_tokenizer_vocab_size = True"),
        (_NULL, 'cfg.checkpoint.pretrained_checkpoint = "/ckpt"', "cfg.tokenizer.use_tokenizer_vocab_size = False"),
    ),
    "a tokenizer larger than the model's vocabulary": Mistake(
        "std.recipe_tokenizer.null_fits",
        "= 200000",
        (_NULL, "cfg.tokenizer.vocab_size = 200000"),
        (_NULL, "cfg.tokenizer.vocab_size = 151936"),
    ),
    "delayed scaling with moe_act recompute": Mistake(
        "std.recipe_precision.no_delayed_recompute",
        '["moe_act"]',
        (
            'cfg.mixed_precision.fp8, cfg.mixed_precision.fp8_recipe = "hybrid", "delayed"',
            _SELECTIVE,
            'm.recompute_modules = ["moe_act"]',
        ),
        (
            'cfg.mixed_precision.fp8, cfg.mixed_precision.fp8_recipe = "hybrid", "delayed"',
            _SELECTIVE,
            'm.recompute_modules = ["mlp"]',
        ),
    ),
    "gathered MXFP8 without its buffer": Mistake(
        "std.recipe_precision.gathered_mxfp8",
        "reuse_grad_buf",
        (
            'cfg.mixed_precision.fp8, cfg.mixed_precision.fp8_recipe = "e4m3", "mxfp8"',
            "cfg.mixed_precision.fp8_param_gather = True; cfg.mixed_precision.reuse_grad_buf_for_mxfp8_param_ag = False",
        ),
        (
            'cfg.mixed_precision.fp8, cfg.mixed_precision.fp8_recipe = "e4m3", "mxfp8"',
            "cfg.mixed_precision.fp8_param_gather = True; cfg.mixed_precision.reuse_grad_buf_for_mxfp8_param_ag = True",
        ),
        gpu="b200",
    ),
    "a field of nothing": Mistake(
        "lint.unknown_field", "moe_a2a_overlap", ("m.moe_a2a_overlap = True",), ("m.moe_permute_fusion = True",)
    ),
}
MISTAKES |= {rule: _value(rule, bad, good) for rule, (bad, good) in VALUES.items()}

"""For each rule on the values of a recipe's fields: lines that break it, and a near neighbour that does not.

The first line breaks the rule; the others lead to it. `lint_cases.py` makes mistakes of them.
"""

from __future__ import annotations

from tests.helpers.bridge_recipes import DEEPSEEK, QWEN_30B

SFT = "megatron.bridge.recipes.qwen.h100.qwen3_moe:qwen3_30b_a3b_sft_16gpu_h100_bf16_config"
VL = "megatron.bridge.recipes.qwen_vl.h100.qwen3_vl:qwen3_vl_30b_a3b_pretrain_8gpu_h100_bf16_mock_config"
HYBRID = "megatron.bridge.recipes.nemotronh.h100.nemotron_3_nano:nemotron_3_nano_pretrain_8gpu_h100_bf16_config"
_SPECS = "from megatron.bridge.data.packing.config import PackedSequenceSpecs"
_NVRX = "from megatron.bridge.training.config import NVRxStragglerDetectionConfig"
_ON = "cfg.nvrx_straggler = NVRxStragglerDetectionConfig(enabled=True"
_IN_PROCESS = "from megatron.bridge.training.config import InProcessRestartConfig"
_RESTARTS = "cfg.inprocess_restart = InProcessRestartConfig(enabled=True"
_IMPORT = "from megatron.bridge.data.builders import EnergonDatasetConfig, QwenVLEnergonTaskEncoderConfig"
_ENCODER = 'e = QwenVLEnergonTaskEncoderConfig(hf_processor_path="Qwen/Qwen3-VL-30B-A3B-Instruct")'
_ENERGON = (
    'cfg.dataset = EnergonDatasetConfig(path="x", seq_length=4096, task_encoder=e, '
    "micro_batch_size=cfg.train.micro_batch_size)"
)
_SCOPE = "from megatron.core.transformer.enums import InferenceCudaGraphScope"
_FSDP = "cfg.ddp.use_megatron_fsdp = cfg.dist.use_megatron_fsdp = True"
_SHARDED = 'cfg.ddp.data_parallel_sharding_strategy = "optim_grads_params"'
_SAMPLES = "cfg.train.train_iters, cfg.train.train_samples = None, 10240"
_NO_WARMUP = "cfg.scheduler.lr_warmup_iters, cfg.scheduler.lr_decay_iters = 0, None"
_NO_OVERLAP = (
    "cfg.comm_overlap.overlap_moe_expert_parallel_comm = cfg.comm_overlap.delay_wgrad_compute = "
    "m.overlap_moe_expert_parallel_comm = m.delay_wgrad_compute = False"
)
_NULL = 'cfg.tokenizer.tokenizer_type, cfg.tokenizer.vocab_size = "NullTokenizer", 32000'
_HIERARCHICAL = "m.context_parallel_size = 4", 'm.cp_comm_type = "a2a+p2p"'
DECENTRALIZED = "cfg.dist.use_decentralized_pg = True", "cfg.dist.use_gloo_process_groups = False"
_SHARP = "cfg.dist.use_sharp = True"
_INSTANCES = "cfg.ddp.num_distributed_optimizer_instances = 2"
_HASH = "cfg.train.check_weight_hash_across_dp_replicas_interval"
_PACKED = "cfg.dataset.enable_offline_packing, cfg.dataset.offline_packing_specs ="
_FORMATS = "cfg.mixed_precision"

_SOURCE = "from megatron.bridge.data.builders import HFDatasetSourceConfig as Source"
_PROMPTS = "from megatron.bridge.data.builders import PromptCompletionSFTPreprocessingConfig as Prompts"
_GSM8K = 'Source(dataset_name="gsm8k", split="test")'
_VALIDATION = "cfg.dataset.hf_validation_proportion, cfg.dataset.hf_validation_dataset"
_TESTED = "cfg.dataset.do_test, cfg.dataset.hf_test_dataset"

_OF_A_FOLDER = (
    "recipe_packing.",
    "recipe_data.text_source",
    "recipe_data.hub_",
    "recipe_data.columns",
    "recipe_data.loss",
)
"""Rules on the JSONL folder of fine-tuning."""
_BASES = {
    "recipe_data.image_processor": VL,
    "recipe_data.some_examples": VL,
    "recipe_data.padded": VL,
    "recipe_tower.own_tower": VL,
    "recipe_tower.rotary_halves": VL,
    "recipe_router.one_group_limit": DEEPSEEK,
    "recipe_kernels.latent_rotary": DEEPSEEK,
    "recipe_kernels.grouped_shared_expert": DEEPSEEK,
    "recipe_kernels.fused_activation": HYBRID,
    "recipe_kernels.te_activation": HYBRID,
    "recipe_kernels.fp8_activation": HYBRID,
    "recipe_kernels.mamba_chunks": HYBRID,
}
"""The recipe of a rule that is about another model or data set."""

Lines = tuple[str, ...]
VALUES: dict[str, tuple[Lines, Lines]] = {
    "recipe_length.some_length": (("cfg.train.train_iters = None",), ("cfg.train.train_iters = 100",)),
    "recipe_length.one_length": (("cfg.train.train_samples = 10240",), ("cfg.train.train_samples = None",)),
    "recipe_length.positive_steps": (
        ("cfg.train.train_iters = 0", "cfg.scheduler.lr_decay_iters = None"),
        ("cfg.train.train_iters = 1", "cfg.scheduler.lr_decay_iters = None"),
    ),
    "recipe_length.positive_samples": (
        ("cfg.train.train_iters, cfg.train.train_samples = None, -1",),
        (_SAMPLES, _NO_WARMUP),
    ),
    "recipe_length.epochs": (
        ("cfg.train.train_iters, cfg.train.num_epochs = None, 1.0",),
        ("cfg.train.num_epochs = None",),
    ),
    "recipe_length.no_rampup": (
        ("cfg.train.rampup_batch_size = [64, 64, 1024]", _SAMPLES, _NO_WARMUP),
        ("cfg.train.rampup_batch_size = None", _SAMPLES, _NO_WARMUP),
    ),
    "recipe_schedule.rate_order": (("cfg.optimizer.min_lr = 1.0",), ("cfg.optimizer.min_lr = 0.0",)),
    "recipe_schedule.rate_sign": (("cfg.optimizer.min_lr = -1e-6",), ("cfg.optimizer.min_lr = 0.0",)),
    "recipe_schedule.warmup_start": (("cfg.scheduler.lr_warmup_init = 1.0",), ("cfg.scheduler.lr_warmup_init = 0.0",)),
    "recipe_schedule.decay_length": (
        ("cfg.scheduler.lr_decay_iters = 0",),
        ("cfg.scheduler.lr_decay_iters = 5000000",),
    ),
    "recipe_schedule.schedule_length": (("cfg.scheduler.max_steps = 1",), ("cfg.scheduler.max_steps = 5000000",)),
    "recipe_schedule.decay_unit": (
        ("cfg.scheduler.lr_decay_samples = 10240", "cfg.scheduler.lr_warmup_iters = 5"),
        ("cfg.scheduler.lr_decay_samples = None",),
    ),
    "recipe_schedule.unit_of_the_run": (
        ("cfg.scheduler.lr_decay_samples = 10240", _NO_WARMUP),
        ("cfg.scheduler.lr_decay_samples = 10240", _SAMPLES, _NO_WARMUP),
    ),
    "recipe_schedule.one_warmup": (
        ("cfg.scheduler.lr_warmup_fraction = 0.1", "cfg.scheduler.lr_warmup_iters = 5"),
        ("cfg.scheduler.lr_warmup_fraction = 0.1", "cfg.scheduler.lr_warmup_iters = 0"),
    ),
    "recipe_schedule.weight_decay_order": (
        ("cfg.scheduler.start_weight_decay, cfg.scheduler.end_weight_decay = 0.1, 0.0",),
        ("cfg.scheduler.start_weight_decay, cfg.scheduler.end_weight_decay = 0.1, 0.1",),
    ),
    "recipe_schedule.constant_weight_decay": (
        ("cfg.scheduler.start_weight_decay, cfg.scheduler.end_weight_decay = 0.0, 0.1",),
        ("cfg.scheduler.start_weight_decay, cfg.scheduler.end_weight_decay = 0.1, 0.1",),
    ),
    "recipe_schedule.one_source": (
        (
            "cfg.scheduler.override_opt_param_scheduler = True",
            "cfg.scheduler.use_checkpoint_opt_param_scheduler = True",
        ),
        ("cfg.scheduler.override_opt_param_scheduler = True",),
    ),
    "recipe_saving.async_folder": (
        ("cfg.checkpoint.async_save = True", "cfg.checkpoint.save = None"),
        ("cfg.checkpoint.async_save = True", 'cfg.checkpoint.save = "/tmp/x"'),
    ),
    "recipe_saving.async_worker": (
        (
            "cfg.checkpoint.use_persistent_ckpt_worker = False",
            'cfg.checkpoint.async_save, cfg.checkpoint.save = True, "/tmp/x"',
        ),
        ("cfg.checkpoint.use_persistent_ckpt_worker = False",),
    ),
    "recipe_saving.async_format": (
        ('cfg.checkpoint.ckpt_format = "torch"', 'cfg.checkpoint.async_save, cfg.checkpoint.save = True, "/tmp/x"'),
        (
            'cfg.checkpoint.ckpt_format = "torch_dist"',
            'cfg.checkpoint.async_save, cfg.checkpoint.save = True, "/tmp/x"',
        ),
    ),
    "recipe_saving.step_folder": (
        ("cfg.checkpoint.ckpt_step = 10", "cfg.checkpoint.load = None"),
        ("cfg.checkpoint.ckpt_step = 10", 'cfg.checkpoint.load = "/tmp/x"'),
    ),
    "recipe_saving.main_parameters": (
        ("cfg.checkpoint.load_main_params_from_ckpt = True",),
        ("cfg.checkpoint.load_main_params_from_ckpt = True", "cfg.checkpoint.load_optim = False"),
    ),
    "recipe_saving.hf_export": (
        ("cfg.checkpoint.also_save_hf_checkpoint = True", 'cfg.checkpoint.non_persistent_ckpt_type = "local"'),
        ("cfg.checkpoint.also_save_hf_checkpoint = True", 'cfg.checkpoint.non_persistent_ckpt_type = "global"'),
    ),
    "recipe_saving.reshardable": (
        (
            "cfg.checkpoint.dist_ckpt_optim_fully_reshardable = True",
            "cfg.checkpoint.distrib_optim_fully_reshardable_mem_efficient = True",
        ),
        ("cfg.checkpoint.dist_ckpt_optim_fully_reshardable = True",),
    ),
    "recipe_packing.specs": ((f"{_PACKED} True, None",), (_SPECS, f"{_PACKED} True, PackedSequenceSpecs(4096)")),
    "recipe_packing.enabled": (
        (f"{_PACKED} False, PackedSequenceSpecs(4096)", _SPECS),
        (_SPECS, f"{_PACKED} True, PackedSequenceSpecs(4096)"),
    ),
    "recipe_packing.packed_size": (
        (f"{_PACKED} True, PackedSequenceSpecs()", _SPECS),
        (_SPECS, f"{_PACKED} True, PackedSequenceSpecs(4096)"),
    ),
    "recipe_packing.packed_micro_batch": (
        ("cfg.train.micro_batch_size = 2", _SPECS, f"{_PACKED} True, PackedSequenceSpecs(4096)"),
        ("cfg.train.micro_batch_size = 1", _SPECS, f"{_PACKED} True, PackedSequenceSpecs(4096)"),
    ),
    "recipe_data.text_source": (('cfg.dataset.dataset_root = "/x"',), ("cfg.dataset.dataset_root = None",)),
    "recipe_data.hub_settings": (
        ("cfg.dataset.hf_rewrite = True", 'cfg.dataset.hf_dataset, cfg.dataset.dataset_root = None, "/x"'),
        ("cfg.dataset.hf_rewrite = True",),
    ),
    "recipe_data.hub_share": (
        ("cfg.dataset.hf_validation_proportion = 1.5",),
        ("cfg.dataset.hf_validation_proportion = 0.5",),
    ),
    "recipe_data.hub_source": (
        (f'{_VALIDATION} = None, Source(split="train")', _SOURCE),
        (_SOURCE, f'{_VALIDATION} = None, Source(dataset_name="gsm8k", split="test")'),
    ),
    "recipe_data.hub_preset": (
        ('cfg.dataset.hf_dataset = Source(dataset_name="squad", schema_adapter="squad")', _SOURCE),
        (_SOURCE, 'cfg.dataset.hf_dataset = Source(path_or_dataset="a/b", schema_adapter="squad")'),
    ),
    "recipe_data.hub_one_validation": (
        (f'{_VALIDATION} = 0.1, Source(dataset_name="squad", split="validation")', _SOURCE),
        (_SOURCE, f'{_VALIDATION} = None, Source(dataset_name="squad", split="validation")'),
    ),
    "recipe_data.hub_validates": (
        ("cfg.dataset.do_validation, cfg.dataset.hf_validation_proportion = False, 0.1",),
        ("cfg.dataset.do_validation, cfg.dataset.hf_validation_proportion = False, None",),
    ),
    "recipe_data.hub_tests": ((f"{_TESTED} = False, {_GSM8K}", _SOURCE), (_SOURCE, f"{_TESTED} = True, {_GSM8K}")),
    "recipe_data.hub_validation_split": (
        (f"{_VALIDATION} = None, None", _SOURCE, 'cfg.dataset.hf_dataset = Source(dataset_name="tulu3")'),
        (f"{_VALIDATION} = None, None", _SOURCE, 'cfg.dataset.hf_dataset = Source(dataset_name="squad")'),
    ),
    "recipe_data.hub_test_split": (
        ("cfg.dataset.do_test = True", _SOURCE, 'cfg.dataset.hf_dataset = Source(dataset_name="squad")'),
        ("cfg.dataset.do_test = True", _SOURCE, 'cfg.dataset.hf_dataset = Source(dataset_name="gsm8k")'),
    ),
    "recipe_data.columns": (
        ('cfg.dataset.preprocessing = Prompts(prompt_column="text", completion_column="text")', _PROMPTS),
        (_PROMPTS, 'cfg.dataset.preprocessing = Prompts(prompt_column="text")'),
    ),
    "recipe_data.loss_mode": (
        ('cfg.dataset.preprocessing = Prompts(loss_mode="assistant")', _PROMPTS),
        (_PROMPTS, 'cfg.dataset.preprocessing = Prompts(loss_mode="full")'),
    ),
    "recipe_data.padded": (("cfg.dataset.pad_to_multiple_of = 0",), ("cfg.dataset.pad_to_multiple_of = 1",)),
    "recipe_data.image_folder": (
        ("cfg.dataset.path = None", _IMPORT, _ENCODER, _ENERGON),
        (_IMPORT, _ENCODER, _ENERGON),
    ),
    "recipe_data.some_examples": (("cfg.dataset.num_base_examples = 0",), ("cfg.dataset.num_base_examples = 1",)),
    "recipe_data.buffers": (
        ("cfg.dataset.shuffle_buffer_size = 0", _IMPORT, _ENCODER, _ENERGON),
        ("cfg.dataset.shuffle_buffer_size = 1", _IMPORT, _ENCODER, _ENERGON),
    ),
    "recipe_data.evaluated_batch": (
        ("cfg.validation.eval_micro_batch_size = 3", _IMPORT, _ENCODER, _ENERGON),
        ("cfg.validation.eval_micro_batch_size = cfg.train.micro_batch_size", _IMPORT, _ENCODER, _ENERGON),
    ),
    "recipe_data.image_processor": (
        ("cfg.dataset.hf_processor_path = None",),
        ('cfg.dataset.hf_processor_path = "Qwen/Qwen3-VL-30B-A3B-Instruct"',),
    ),
    "recipe_data.fast_load": (
        ("cfg.dataset.fast_cache_load = True",),
        ("cfg.dataset.fast_cache_load = True", 'cfg.dataset.path_to_cache = "/tmp/x"'),
    ),
    "recipe_data.masks": (("cfg.dataset.eod_mask_loss = None",), ("cfg.dataset.eod_mask_loss = False",)),
    "recipe_data.tokenizer_arguments": (
        ("cfg.tokenizer.hf_tokenizer_kwargs = None",),
        ('cfg.tokenizer.hf_tokenizer_kwargs = {"use_fast": True}',),
    ),
    "recipe_logs.mlflow_name": (('cfg.logger.mlflow_experiment = "x"',), ("cfg.logger.mlflow_experiment = None",)),
    "recipe_logs.comet_name": (('cfg.logger.comet_project = "x"',), ("cfg.logger.comet_project = None",)),
    "recipe_logs.one_profiler": (
        ("cfg.profiling.use_pytorch_profiler = cfg.profiling.use_nsys_profiler = True",),
        ("cfg.profiling.use_pytorch_profiler = True",),
    ),
    "recipe_logs.profiled_steps": (("cfg.profiling.profile_step_end = 1",), ("cfg.profiling.profile_step_end = 20",)),
    "recipe_logs.straggler_scores": (
        (f"{_ON}, calc_relative_gpu_perf=False, calc_individual_gpu_perf=False)", _NVRX),
        (_NVRX, f"{_ON}, calc_relative_gpu_perf=False)"),
    ),
    "recipe_logs.straggler_interval": (
        (f"{_ON}, report_time_interval=0.0)", _NVRX),
        (_NVRX, f"{_ON}, report_time_interval=1.0)"),
    ),
    "recipe_logs.straggler_threshold": (
        (f"{_ON}, gpu_relative_perf_threshold=1.5)", _NVRX),
        (_NVRX, f"{_ON}, gpu_relative_perf_threshold=0.5)"),
    ),
    "recipe_logs.restart_timeouts": (
        (f"{_RESTARTS}, soft_timeout=90.0)", _IN_PROCESS),
        (_IN_PROCESS, f"{_RESTARTS}, soft_timeout=89.0)"),
    ),
    "recipe_logs.restart_heartbeats": (
        (f"{_RESTARTS}, heartbeat_interval=60.0)", _IN_PROCESS),
        (_IN_PROCESS, f"{_RESTARTS}, heartbeat_interval=59.0)"),
    ),
    "recipe_logs.restart_monitors": (
        (f"{_RESTARTS}, monitor_thread_interval=60.0)", _IN_PROCESS),
        (_IN_PROCESS, f"{_RESTARTS}, monitor_thread_interval=59.0)"),
    ),
    "recipe_groups.nccl_only": (DECENTRALIZED[:1], DECENTRALIZED),
    "recipe_groups.decentralized_hierarchy": (
        ("m.hierarchical_context_parallel_sizes = [2, 2]", *_HIERARCHICAL, *DECENTRALIZED),
        ("m.hierarchical_context_parallel_sizes = [2, 2]", *_HIERARCHICAL),
    ),
    "recipe_groups.sharp_group": (('cfg.dist.sharp_enabled_group = "dp"',), ("cfg.dist.sharp_enabled_group = None",)),
    "recipe_groups.sharp_replicas": (
        ('cfg.dist.sharp_enabled_group = "dp_replica"', _SHARP),
        ('cfg.dist.sharp_enabled_group = "dp_replica"', _SHARP, _INSTANCES),
    ),
    "recipe_groups.sharp_shards": ((_SHARP,), ('cfg.dist.sharp_enabled_group = "dp_replica"', _SHARP, _INSTANCES)),
    "recipe_groups.one_bucket": (("cfg.ddp.num_buckets = 4",), ("cfg.ddp.num_buckets = None",)),
    "recipe_groups.registration": (
        ("cfg.ddp.fsdp_manual_registration = True", _FSDP),
        ("cfg.ddp.fsdp_manual_registration = cfg.ddp.nccl_ub = True", _FSDP),
    ),
    "recipe_groups.sharded_hashes": ((f"{_HASH} = 10", _FSDP, _SHARDED), (f"{_HASH} = None", _FSDP, _SHARDED)),
    "recipe_groups.mapping": (
        ("cfg.dist.use_tp_pp_dp_mapping = True", _FSDP),
        ("cfg.dist.use_tp_pp_dp_mapping = False", _FSDP),
    ),
    "recipe_attention.kernels_left": (
        ('m.multi_latent_attention, m.attention_backend = True, "local"',),
        ('m.attention_backend = "local"',),
    ),
    "recipe_attention.fused_with_sinks": (
        ('m.softmax_type, m.attention_backend = "learnable", "flash"',),
        ('m.softmax_type, m.attention_backend = "learnable", "fused"',),
    ),
    "recipe_attention.unfused_without_cp": (
        ('m.context_parallel_size, m.attention_backend = 2, "unfused"',),
        ('m.context_parallel_size, m.attention_backend = 2, "fused"',),
    ),
    "recipe_kernels.depths": (("m.mtp_num_layers = -3", _NO_OVERLAP), ("m.mtp_num_layers = None",)),
    "recipe_kernels.vocabulary": (("m.vocab_size = 0",), ("m.vocab_size = 1000",)),
    "recipe_kernels.attention_dropout": (("m.attention_dropout = 7.0",), ("m.attention_dropout = 1.0",)),
    "recipe_kernels.hidden_dropout": (("m.hidden_dropout = -0.1",), ("m.hidden_dropout = 0.1",)),
    "recipe_kernels.deviation": (("m.init_method_std = -4.0",), ("m.init_method_std = 0.0",)),
    "recipe_kernels.grouped_shared_expert": (
        ("m.use_grouped_gemm_for_shared_expert = True",),
        ("m.use_grouped_gemm_for_shared_expert = False",),
    ),
    "recipe_kernels.one_kind_of_block": (
        ("m.heterogeneous_block_specs = True",),
        ("m.heterogeneous_block_specs = False",),
    ),
    "recipe_kernels.known_norm": (('m.normalization = "RMSnorm"',), ('m.normalization = "LayerNorm"',)),
    "recipe_kernels.deterministic": (
        ("m.deterministic_mode = True", "m.cross_entropy_loss_fusion = True"),
        ("m.deterministic_mode = False",),
    ),
    "recipe_kernels.batch_invariant": (("m.batch_invariant_mode = True",), ("m.batch_invariant_mode = False",)),
    "recipe_kernels.fp8_output": (("m.fp8_output_proj = True",), ("m.fp8_output_proj = False",)),
    "recipe_kernels.quantised_weights": (
        ("m.restore_modelopt_state = True", "m.gradient_accumulation_fusion = True"),
        ("m.restore_modelopt_state = True", "m.gradient_accumulation_fusion = False"),
    ),
    "recipe_kernels.layers_of_inference": (
        ("m.inference_fuse_tp_communication = True",),
        ("m.inference_fuse_tp_communication = False",),
    ),
    "recipe_kernels.gated_inference": (
        ('m.transformer_impl = "inference_optimized"',),
        ('m.transformer_impl = "transformer_engine"',),
    ),
    "recipe_kernels.graphs_of_inference": (
        ("m.inference_cuda_graph_scope = InferenceCudaGraphScope.layer", 'm.cuda_graph_impl = "none"', _SCOPE),
        ("m.inference_cuda_graph_scope = None", 'm.cuda_graph_impl = "none"'),
    ),
    "recipe_kernels.capacity": (
        ("m.moe_pad_expert_input_to_capacity = True",),
        ("m.moe_pad_expert_input_to_capacity = True", "m.moe_expert_capacity_factor = 1.0"),
    ),
    "recipe_kernels.rank_budget": (
        ("m.moe_expert_rank_capacity_factor = 2.0", "m.moe_flex_dispatcher_backend = None"),
        ("m.moe_expert_rank_capacity_factor = None",),
    ),
    "recipe_kernels.paged_stash": (("m.moe_paged_stash = True",), ("m.moe_paged_stash = False",)),
    "recipe_kernels.deepep_flag": (
        ("m.moe_enable_deepep = True", 'm.moe_token_dispatcher_type = "alltoall"'),
        ("m.moe_enable_deepep = False",),
    ),
    "recipe_kernels.single_weight": (("m.moe_single_grouped_weight = True",), ("m.moe_single_grouped_weight = False",)),
    "recipe_kernels.fused_experts": (
        ("m.use_transformer_engine_op_fuser = True",),
        ("m.use_transformer_engine_op_fuser = True", 'cfg.env_vars["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = 1'),
    ),
    "recipe_kernels.single_bias": (("m.moe_single_grouped_bias = True",), ("m.moe_single_grouped_bias = False",)),
    "recipe_kernels.quantised_padding": (
        ("m.moe_router_padding_for_quantization = True",),
        ("m.moe_router_padding_for_quantization = False",),
    ),
    "recipe_kernels.expert_bias": (
        ("m.moe_router_enable_expert_bias = True",),
        ("m.moe_router_enable_expert_bias = True", 'm.moe_router_score_function = "sigmoid"'),
    ),
    "recipe_kernels.one_activation": (
        ("m.use_te_activation_func = True", "m.bias_activation_fusion = True"),
        ("m.use_te_activation_func = True", "m.bias_activation_fusion = False"),
    ),
    "recipe_router.one_group_limit": (
        ("m.moe_router_topk_limited_devices = 4",),
        ("m.moe_router_topk_limited_devices = None",),
    ),
    "recipe_kernels.latent_rotary": (("m.rotary_interleaved = True",), ("m.rotary_interleaved = False",)),
    "recipe_kernels.fused_activation": (("m.bias_activation_fusion = True",), ("m.bias_activation_fusion = False",)),
    "recipe_kernels.te_activation": (("m.use_te_activation_func = True",), ("m.use_te_activation_func = False",)),
    "recipe_kernels.fp8_activation": (
        ("m.activation_func_fp8_input_store = True",),
        ("m.activation_func_fp8_input_store = False",),
    ),
    "recipe_kernels.linear_offset": (
        ("m.glu_linear_offset = 1.0",),
        ("m.glu_linear_offset = 1.0", "m.bias_activation_fusion = False"),
    ),
    "recipe_kernels.layers_without_rope": (("m.no_rope_freq = 7",), ("m.no_rope_freq = 6",)),
    "recipe_kernels.mamba_chunks": (("m.mamba_chunk_size = 0",), ("m.mamba_chunk_size = 64",)),
    "recipe_kernels.offloaded_layers": (
        ("m.cpu_offloading = True", 'm.recompute_granularity = "selective"'),
        ("m.cpu_offloading = False",),
    ),
    "recipe_kernels.hierarchy": (
        ("m.context_parallel_size = 2", 'm.cp_comm_type = "a2a+p2p"', "m.hierarchical_context_parallel_sizes = None"),
        ("m.context_parallel_size = 2", 'm.cp_comm_type = "p2p"'),
    ),
    "recipe_kernels.weight_shards": (
        ("m.tensor_parallel_num_weight_shards = 0",),
        ("m.tensor_parallel_num_weight_shards = m.tensor_model_parallel_size",),
    ),
    "recipe_kernels.expert_weight_shards": (
        ("m.expert_tensor_parallel_num_weight_shards = 0",),
        ("m.expert_tensor_parallel_num_weight_shards = 1",),
    ),
    "recipe_batch.evaluated_shards": (
        ("cfg.dist.eval_context_parallel_size = 3",),
        ("cfg.dist.eval_context_parallel_size = 2",),
    ),
    "recipe_kernels.early_release": (
        ("m.ep_overlap_early_attn_memory_release = True", _NO_OVERLAP),
        ("m.ep_overlap_early_attn_memory_release = False",),
    ),
    "recipe_kernels.deferred_embedding": (
        ("cfg.comm_overlap.defer_embedding_wgrad_compute = True",),
        ("cfg.comm_overlap.defer_embedding_wgrad_compute = False",),
    ),
    "recipe_kernels.warmup_and_flush": (
        ("m.overlap_p2p_comm_warmup_flush = True",),
        ("m.overlap_p2p_comm_warmup_flush = False",),
    ),
    "recipe_formats.one_format": ((f"{_FORMATS}.fp16 = True",), (f"{_FORMATS}.fp16 = False",)),
    "recipe_formats.one_quantisation": (
        (f'{_FORMATS}.fp8, {_FORMATS}.fp4 = "hybrid", "e2m1"',),
        (f"{_FORMATS}.fp8, {_FORMATS}.fp4 = None, None",),
    ),
    "recipe_formats.fp8_parameters": ((f"{_FORMATS}.fp8_param = True",), (f"{_FORMATS}.fp8_param = False",)),
    "recipe_formats.gathered_fp8": (
        (f"{_FORMATS}.fp8_param_gather = True",),
        (f"{_FORMATS}.fp8_param_gather = False",),
    ),
    "recipe_formats.gathered_fp4": (
        (f"{_FORMATS}.fp4_param_gather = True",),
        (f"{_FORMATS}.fp4_param_gather = False",),
    ),
    "recipe_formats.reused_buffer": (
        (f"{_FORMATS}.reuse_grad_buf_for_mxfp8_param_ag = True",),
        (f"{_FORMATS}.reuse_grad_buf_for_mxfp8_param_ag = False",),
    ),
    "recipe_formats.fp4_parameters": ((f"{_FORMATS}.fp4_param = True",), (f"{_FORMATS}.fp4_param = False",)),
    "recipe_tower.own_tower": (("m.use_hf_vision_model = True",), ("m.use_hf_vision_model = False",)),
    "recipe_tower.rotary_halves": (("m.rotary_interleaved = True",), ("m.rotary_interleaved = False",)),
    "recipe_computed.decay_steps": (("cfg.scheduler.lr_decay_steps = 10",), ("cfg.scheduler.lr_decay_steps = None",)),
    "recipe_computed.warmup_steps": (
        ("cfg.scheduler.lr_warmup_steps = 10",),
        ("cfg.scheduler.lr_warmup_steps = None",),
    ),
    "recipe_computed.weight_decay_steps": (
        ("cfg.scheduler.wd_incr_steps = 10",),
        ("cfg.scheduler.wd_incr_steps = None",),
    ),
    "recipe_computed.data_parallel_size": (
        ("cfg.comm_overlap.data_parallel_size = 3",),
        ("cfg.comm_overlap.data_parallel_size = None",),
    ),
    "recipe_computed.padded_vocabulary": (
        ("cfg.tokenizer.pad_vocab_size = True",),
        ("cfg.tokenizer.pad_vocab_size = False",),
    ),
    "recipe_computed.fast_tokenizer": (
        ("cfg.tokenizer.tokenizer_hf_no_use_fast = True",),
        ("cfg.tokenizer.tokenizer_hf_no_use_fast = False",),
    ),
    "recipe_computed.special_tokens": (
        ("cfg.tokenizer.tokenizer_hf_no_include_special_tokens = True",),
        ("cfg.tokenizer.tokenizer_hf_no_include_special_tokens = False",),
    ),
    "recipe_computed.legacy_tokenizer": (
        ("cfg.tokenizer.tokenizer_sentencepiece_legacy = True",),
        ("cfg.tokenizer.tokenizer_sentencepiece_legacy = False",),
    ),
    "recipe_computed.trusted_code": (
        ("cfg.tokenizer.trust_remote_code = True", _NULL),
        ("cfg.tokenizer.trust_remote_code = False", _NULL),
    ),
}


def base(rule: str) -> str:
    """NVIDIA's recipe of what the rule is about."""
    return SFT if rule.startswith(_OF_A_FOLDER) else _BASES.get(rule, QWEN_30B)

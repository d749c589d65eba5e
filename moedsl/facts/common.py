"""List the values that Bridge's common recipe functions already set, so that a recipe states only what differs.

NVIDIA's own recipes start from the same functions (bridge recipes/common.py). A test compares each value with Bridge.
Also here: how long a validation runs, and whether all microbatches have one shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from moedsl.facts.values import Dtype

_FP32 = Dtype("float32")
_BOTH = {
    "checkpoint.ckpt_format": "torch_dist",
    "ddp.check_for_nan_in_grad": True,
    "ddp.grad_reduce_in_fp32": True,
    "ddp.keep_fp8_transpose_cache": False,
    "ddp.megatron_fsdp_main_params_dtype": _FP32,
    "ddp.use_megatron_fsdp": False,
    "dist.use_megatron_fsdp": False,
    "model.fine_grained_activation_offloading": False,
    "model.init_model_with_meta_device": False,
    "model.moe_router_force_load_balancing": False,
    "model.offload_modules": [],
    "model.pipeline_model_parallel_layout": None,
    "model.recompute_method": None,
    "model.recompute_num_layers": None,
    "model.use_te_rng_tracker": False,
    "model.virtual_pipeline_model_parallel_size": None,
    "optimizer.exp_avg_dtype": _FP32,
    "optimizer.exp_avg_sq_dtype": _FP32,
    "optimizer.main_grads_dtype": _FP32,
    "optimizer.main_params_dtype": _FP32,
    "optimizer.optimizer": "adam",
    "optimizer.optimizer_cpu_offload": False,
    "optimizer.optimizer_offload_fraction": 0.0,
    "optimizer.overlap_cpu_optimizer_d2h_h2d": False,
    "optimizer.use_distributed_optimizer": True,
    "optimizer.use_precision_aware_optimizer": False,
    "rerun_state_machine.check_for_nan_in_loss": True,
    "rng.te_rng_tracker": False,
    "tokenizer.tokenizer_model": None,
    "tokenizer.tokenizer_type": "HuggingFaceTokenizer",
    "validation.eval_iters": 32,
}
"""Values set by the functions of all tasks, or by the provider of each model that Bridge builds."""

_FINE_TUNING = {
    **_BOTH,
    "ddp.average_in_collective": False,
    "logger.log_interval": 1,
    "rng.seed": 5678,
    "scheduler.lr_warmup_iters": 50,
    "train.train_iters": 1000,
    "validation.eval_interval": 100,
}
"""Values set by the functions of both fine-tuning tasks."""


@frozen
class Common:
    """One of Bridge's common functions, with values that it sets."""

    function: str
    values: Mapping[str, Any]
    dataset: str | None = None
    """The class of its dataset if `values` has that class's fields; else None."""


MODULE = "megatron.bridge.recipes.common"
COMMON: Mapping[str, Common] = {
    "pretrain": Common(
        "_pretrain_common",
        {
            **_BOTH,
            "dataset.data_path": None,
            "dataset.data_sharding": True,
            "dataset.dataloader_type": "single",
            "dataset.eod_mask_loss": False,
            "dataset.num_dataset_builder_threads": 1,
            "dataset.random_seed": 1234,
            "dataset.reset_attention_mask": False,
            "dataset.reset_position_ids": False,
            "dataset.skip_getting_attention_mask_from_dataset": True,
            "dataset.split": "9999,8,2",
            "ddp.average_in_collective": True,
            "ddp.overlap_grad_reduce": True,
            "ddp.overlap_param_gather": True,
            "ddp.use_distributed_optimizer": True,
            "logger.log_interval": 10,
            "scheduler.lr_warmup_iters": 500,
            "train.manual_gc": True,
            "train.manual_gc_eval": 100,
            "train.manual_gc_interval": 100,
            "train.train_iters": 300000,
            "validation.eval_interval": 500,
        },
        "GPTDatasetConfig",
    ),
    "sft": Common("_sft_common", _FINE_TUNING),
    "peft": Common("_peft_common", _FINE_TUNING),
}
"""The function that a recipe for each task starts from."""

COPIED = {
    "ddp.grad_reduce_in_fp32": "mixed_precision.grad_reduce_in_fp32",
    "ddp.overlap_grad_reduce": "comm_overlap.overlap_grad_reduce",
    "ddp.overlap_param_gather": "comm_overlap.overlap_param_gather",
    "model.delay_wgrad_compute": "comm_overlap.delay_wgrad_compute",
    "model.overlap_moe_expert_parallel_comm": "comm_overlap.overlap_moe_expert_parallel_comm",
}
"""Fields that Bridge overwrites, each with its source (bridge training/mixed_precision.py:135, comm_overlap.py:643)."""

ENVIRONMENT, ENVIRONMENT_MODULE = "COMMON_RECIPE_ENV_VARS", "megatron.bridge.recipes.utils.environment_utils"
VARIABLES: Mapping[str, Any] = {
    "NCCL_GRAPH_REGISTER": 0,
    "NCCL_NVLS_ENABLE": 0,
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "TORCH_NCCL_AVOID_RECORD_STREAMS": 1,
    "TORCH_NCCL_HIGH_PRIORITY": 1,
}
"""The environment variables that Bridge's own recipes set, as in its `ENVIRONMENT`."""


STEPS, WARMUP = "train.train_iters", "scheduler.lr_warmup_iters"
ITERATIONS, INTERVAL, BATCH = (f"validation.{n}" for n in ("eval_iters", "eval_interval", "eval_global_batch_size"))


def steps(task: str, mock: bool) -> int:
    """Return the steps of a run that states no length; mock data needs few."""
    return 50 if mock else COMMON[task].values[STEPS]


def warmup(task: str, mock: bool) -> int:
    """Return the steps of warm-up of a run that states none."""
    return 10 if mock else COMMON[task].values[WARMUP]


def validation_iterations(task: str, mock: bool) -> int:
    """Return the batches of one validation; mock data needs none."""
    return 0 if mock else COMMON[task].values[ITERATIONS]


def validation_interval(task: str) -> int:
    """Return the steps between two validations."""
    return COMMON[task].values[INTERVAL]


def smallest_validation_batch(micro_batch: int, dp: int, pp: int, vpp: int) -> int:
    """Return the sequences in a microbatch per replica (bridge training/config.py:1335, training/eval.py:145), or in PP
    microbatches with virtual stages (core pipeline_parallel/schedules.py:1134)."""
    return micro_batch * dp * (pp if vpp > 1 else 1)


BY_FIELD = (
    ("model.variable_seq_lengths", True, "variable"),
    ("dataset.enable_in_batch_packing", True, "packed"),
    ("dataset.pad_to_max_length", False, "unpadded"),
)
"""Bridge's fields that make lengths vary, each with the value that does so and its shape; the strongest first."""


def batch_shapes(sets: Mapping[str, Any]) -> str:
    """Choose a word of `symbols.SHAPES` for the fields of a run: `static` unless one of `BY_FIELD` is among them."""
    return next((word for field, value, word in BY_FIELD if sets.get(field) is value), "static")

"""The table of Bridge's fields: the keyword that decides each, how its value is written, and how it is read back.

A keyword has one row for each field that states it; its first row has `back`, which reads the keyword from any recipe's
fields (emit/read_back.py) and which `words` applies. Paths start at Bridge's ``ConfigContainer``. Citations are to
megatron-bridge 0.6.2 and megatron-core 0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from moedsl.cost.cases import CAPACITY, STASH
from moedsl.emit import read_back
from moedsl.emit.dataset import BY_FUNCTION
from moedsl.emit.read_back import Back, Configuration
from moedsl.facts import common
from moedsl.facts.fields import has
from moedsl.facts.values import Call, Dtype, Member
from moedsl.planner.layout import Batch, Layout, Policy


@frozen
class Planned:
    """A plan with the facts that several rows share."""

    task: str
    layout: Layout
    batch: Batch
    policy: Policy
    by_name: Mapping[str, Any]
    """All values of the layout, the batch and the policy."""
    mock: bool
    vision: bool
    hybrid: bool
    no_mtp: bool
    adapter: Call | None
    dataset: Call
    masks_tokens: bool
    profiling: bool
    precision_facts: Precision
    provided: Mapping[str, Any]
    """Model fields whose class defaults Bridge replaces, with its values."""
    own: Mapping[str, Any]
    """The fields that the run sets or that rules derive."""
    bridge: str
    """The release of Bridge."""

    def has(self, path: str) -> bool:
        """Whether the plan's Bridge release has a field."""
        return has(path, self.bridge)


Value = Callable[[Planned], Any]


@frozen
class Setting:
    """One assignment of the recipe. `word` names its decision, or is None if the plan does not decide it."""

    path: str
    value: Any
    word: str | None
    why: str = ""
    read: bool = True
    """Whether Megatron reads the field in this plan."""


@frozen
class Row:
    """One field: the keyword that decides it, its path, its value (by default the keyword's), and when it is set."""

    word: str | None
    path: str
    value: Value | None = None
    when: Value = lambda w: True
    why: str | Value = ""
    """A comment for the recipe with a reason for only this field; else the decision's comment is used."""
    read: Value = lambda w: True
    """When Megatron reads the field. Otherwise only overrides set it, because a library recipe may have any value."""
    back: Back | None = None
    """How the keyword is read back; None except on one row of each keyword."""

    def setting(self, words: Planned) -> Setting:
        """Return the field with its value for a plan."""
        value = self.value(words) if self.value else words.by_name[self.word or ""]
        why = self.why if isinstance(self.why, str) else self.why(words)
        return Setting(self.path, value, self.word, why, self.read(words))


@frozen
class Section:
    """Rows that belong together, with their heading in the recipe."""

    title: str
    rows: tuple[Row, ...]


@frozen
class Precision:
    """One of Bridge's mixed-precision recipes with its fields (bridge training/mixed_precision.py)."""

    factory: str
    fp8: str | None = None
    fp8_recipe: str = "tensorwise"
    fp8_param_gather: bool = False
    first_last_layers_bf16: bool = False
    fp4: str | None = None
    fp4_param_gather: bool = False


PRECISION = {
    "bf16": Precision("bf16_mixed"),
    "fp8_blockwise": Precision("bf16_with_fp8_subchannel_scaling_mixed", "hybrid", "blockwise"),
    "fp8_current": Precision(
        "bf16_with_fp8_current_scaling_mixed",
        "hybrid",
        "tensorwise",
        fp8_param_gather=True,
        first_last_layers_bf16=True,
    ),
    "mxfp8": Precision("bf16_with_mxfp8_mixed", "e4m3", "mxfp8", fp8_param_gather=True),
    "nvfp4": Precision("bf16_with_nvfp4_mixed", fp4="e2m1", fp4_param_gather=True),
}
GATHERS = {"fp8": "mixed_precision.fp8_param_gather", "fp4": "mixed_precision.fp4_param_gather"}
"""Fields for whether parameters are kept in a format; other settings follow what a run sets here."""
GRANULARITY = "model.recompute_granularity"
_SMS = {"deepep": 20, "hybridep": 32}
"""SMs for the dispatcher's kernels: DeepEP's former default (core transformer_config.py:931), and the number in
NVIDIA's HybridEP benchmarks (bridge perf_recipes/_common.py:92)."""

_OVERLAP = "megatron.bridge.training.comm_overlap"
_MIXED = "megatron.bridge.training.mixed_precision"
_CONFIG = "megatron.bridge.training.config"
_ENUMS = "megatron.core.transformer.enums"


def _const(value: Any) -> Value:
    return lambda w: value


def _flex(w: Planned) -> bool:
    return w.policy.dispatcher != "alltoall"


_NUM_SMS = "model.moe_flex_dispatcher_num_sms"
"""The field for the SMs of the dispatcher; a release without it has one field per dispatcher."""


def _budgeted(w: Planned) -> bool:
    """Whether NCCL EP needs a budget: without its later, eager receive buffers (core
    transformer/moe/token_dispatcher.py:1563)."""
    return w.policy.dispatcher == "ncclep" and w.has("model.moe_ncclep_static_shape")


def _capacity(w: Planned) -> float:
    return CAPACITY[w.policy.routing]


def _full(w: Planned) -> bool:
    return "full" in w.policy.recompute


def _selective(w: Planned) -> bool:
    return bool(w.policy.recompute) and not _full(w)


def _whole_graph(w: Planned) -> bool:
    return "full_iteration" in w.policy.cuda_graph


_MODULES = "model.cuda_graph_modules"
"""The field for captured modules; in a release without it, a whole iteration is a scope of Megatron's own graphs (core
0.17.1, transformer_config.py:884)."""


def _graph_impl(w: Planned) -> str:
    if _whole_graph(w):
        return "full_iteration" if w.has(_MODULES) else "local"
    return "transformer_engine" if w.policy.cuda_graph else "none"


def _paged(w: Planned) -> bool:
    """Whether expert shapes must become static: a whole-iteration graph needs HybridEP with paged stashing for that."""
    return _whole_graph(w) and w.policy.dispatcher == "hybridep"


def _fsdp(w: Planned) -> bool:
    return w.policy.sharding == "fsdp"


def _offload(w: Planned) -> bool:
    return w.policy.offload == "optimizer"


def _aware(w: Planned) -> bool:
    """Whether the precision-aware optimizer is needed: for BF16 moments or for the hybrid CPU optimizer."""
    return w.policy.moments != "fp32" or _offload(w)


def _overlap(w: Planned) -> bool:
    """Whether data-parallel communication overlaps with compute; FSDP requires it.

    Without FSDP, it is off if a batch may leave the vision tower without gradients (bridge
    recipes/qwen_vl/h100/qwen3_vl.py:123).
    """
    return _fsdp(w) or not w.vision


def _overlap_reason(w: Planned) -> str:
    if not _overlap(w):
        return "a batch without images gives the vision tower no gradients, which overlap would wait for"
    return "Bridge turns overlap off at one replica, whose context-parallel ranks reduce gradients too"


def _gathers(w: Planned) -> bool:
    """Whether parameters are kept and gathered in FP8: as the run sets it, else as NVIDIA's recipes do, with FSDP only
    for MXFP8."""
    by_default = w.precision_facts.fp8_param_gather and (w.policy.precision == "mxfp8" or not _fsdp(w))
    return w.precision_facts.fp8 is not None and w.own.get(GATHERS["fp8"], by_default)


_TE_RANDOM_STATE = ("model.use_te_rng_tracker", "rng.te_rng_tracker")
"""The fields for Transformer Engine's random state, which graphs need; Bridge turns both on if one is (bridge
training/config.py:1276)."""


def _moment(w: Planned) -> Dtype:
    return Dtype("float32" if w.policy.moments == "fp32" else "bfloat16")


def _per_token(w: Planned) -> bool:
    """Whether the loss is per token: with masked tokens, a mean per microbatch would depend on mesh and microbatch.

    Bridge requires this only under context parallelism (bridge training/config.py:1450); with it, the mesh does not
    change what is learned (core pipeline_parallel/schedules.py:331).
    """
    return w.masks_tokens


def _fact(name: str) -> Value:
    return lambda w: getattr(w.precision_facts, name)


def _has_adapter(w: Planned) -> bool:
    return w.adapter is not None


def _from_jsonl(w: Planned) -> bool:
    return w.dataset.name in ("GPTSFTDatasetConfig", "FinetuningDatasetConfig")


def _of_dataset(section: str, name: str) -> Value:
    """Return a function for a field of the Hugging Face data set or of the packing, which the dataset must have."""
    return lambda w: w.dataset.kwargs[section].kwargs.get(name)


def _steps(w: Planned) -> int | None:
    """Return the default number of steps; None if the run states epochs, whose steps Bridge counts."""
    if w.own.get("train.num_epochs") is not None:
        return None
    return common.steps(w.task, w.mock)


_REPEATED = "the depths of MTP share one block, as in the published model and since Bridge 0.6"
_FUSED_BACKEND = Member(_ENUMS, "AttnBackend", "fused")
_FUSED = "the provider allows only flash-attn, a separate package (bridge models/hybrid/hybrid_provider.py:144)"
_NO_MTP = "with a pattern, an MTP layer is built even at depth 0 (bridge models/hybrid/hybrid_provider.py:204)"
_NO_DEPTHS = "with 0 the final norm would be on the stage of the last layer (core transformer/transformer_block.py:398)"
_WHOLE_BATCH = "the smallest batch; validation.jsonl must fill at least one (bridge data/samplers.py:293)"

_SEGMENTS = "the model's own pattern; a bar ends a stage"
_STAGES = "E embedding, t layer, m MTP, L loss; a bar ends a stage"
_PER_TOKEN = "with masked tokens, a mean of each microbatch would depend on mesh and microbatch"
_BUDGET = "it sizes NCCL EP's receive buffers; a rank that gets more than this share of tokens ends the run"
_BALANCED = "balanced routing is for benchmarks only: the router's choice is ignored"
SET = "Set by the run file"
"""The heading of the fields that the user sets."""

SECTIONS = (
    Section(
        "Parallelism: attention mesh tp x cp x dp x pp, expert mesh etp x ep x edp x pp",
        (
            Row("tp", "model.tensor_model_parallel_size", back=read_back.size("model.tensor_model_parallel_size")),
            Row("sequence_parallel", "model.sequence_parallel"),
            Row("cp", "model.context_parallel_size", back=read_back.size("model.context_parallel_size")),
            Row("pp", "model.pipeline_model_parallel_size", back=read_back.size("model.pipeline_model_parallel_size")),
            Row(
                "vpp",
                "model.virtual_pipeline_model_parallel_size",
                lambda w: w.layout.vpp if w.layout.vpp > 1 else None,
                back=read_back.size("model.virtual_pipeline_model_parallel_size"),
            ),
            Row(
                "pipeline_layout",
                "model.pipeline_model_parallel_layout",
                lambda w: None if w.hybrid else w.layout.pipeline_layout,
                why=_STAGES,
            ),
            # a hybrid's pattern states its stages (core models/hybrid/hybrid_layer_allocation.py:372); Bridge appends
            # the blocks of MTP (bridge models/hybrid/hybrid_provider.py:207)
            Row(
                "pipeline_layout",
                "model.hybrid_layer_pattern",
                when=lambda w: w.hybrid and w.layout.pipeline_layout,
                why=_SEGMENTS,
            ),
            # Bridge gives a model without MTP 0 depths, not None
            Row(
                None,
                "model.mtp_num_layers",
                _const(None),
                lambda w: (
                    not w.hybrid and w.provided.get("mtp_num_layers") == 0 and "model.mtp_num_layers" not in w.own
                ),
                _NO_DEPTHS,
            ),
            Row("ep", "model.expert_model_parallel_size", back=read_back.size("model.expert_model_parallel_size")),
            Row(
                "etp",
                "model.expert_tensor_parallel_size",
                back=Back(read_back.etp, ("model.expert_tensor_parallel_size",), read_back.ETP),
            ),
        ),
    ),
    Section(
        "Batch and sequence",
        (
            Row("seq", "model.seq_length", back=read_back.same("model.seq_length")),
            Row("data", "dataset", lambda w: w.dataset),
            Row("data", "dataset.path", when=lambda w: w.dataset.name == BY_FUNCTION),
            *(
                Row(
                    "data",
                    f"dataset.hf_dataset.{n}",
                    _of_dataset("hf_dataset", n),
                    lambda w: "hf_dataset" in w.dataset.kwargs,
                )
                for n in ("dataset_name", "path_or_dataset", "split", "subset")
            ),
            Row("seq", "dataset.seq_length"),
            # off if the dataset does not state it
            Row(
                "pack",
                "dataset.enable_offline_packing",
                lambda w: w.dataset.kwargs.get("enable_offline_packing", False),
                _from_jsonl,
            ),
            *(
                Row(
                    "pack",
                    f"dataset.offline_packing_specs.{n}",
                    _of_dataset("offline_packing_specs", n),
                    lambda w: "offline_packing_specs" in w.dataset.kwargs,
                )
                for n in ("packed_sequence_size", "pad_seq_to_mult")
            ),
            Row("micro_batch", "train.micro_batch_size", back=read_back.same("train.micro_batch_size")),
            Row("global_batch", "train.global_batch_size", back=read_back.same("train.global_batch_size")),
            Row("data", "model.calculate_per_token_loss", _const(True), _per_token, _PER_TOKEN),
            Row(
                "sharding",
                "ddp.average_in_collective",
                lambda w: not _per_token(w) and not _fsdp(w),
                why=lambda w: _PER_TOKEN if _per_token(w) else "",
            ),
        ),
    ),
    Section(
        "Experts: dispatcher and router",
        (
            Row(
                "dispatcher",
                "model.moe_token_dispatcher_type",
                lambda w: "flex" if _flex(w) else "alltoall",
                back=Back(
                    read_back.dispatcher, ("model.moe_flex_dispatcher_backend", "model.moe_token_dispatcher_type")
                ),
            ),
            Row(
                "dispatcher",
                "model.moe_flex_dispatcher_backend",
                lambda w: w.policy.dispatcher if _flex(w) else None,
                read=_flex,
            ),
            Row(
                "dispatcher",
                _NUM_SMS,
                lambda w: _SMS[w.policy.dispatcher],
                lambda w: w.policy.dispatcher in _SMS and w.has(_NUM_SMS),
            ),
            Row("dispatcher", "model.moe_expert_rank_capacity_factor", _capacity, _budgeted, _BUDGET),
            *(
                Row(
                    "dispatcher",
                    f"model.moe_{name}_num_sms",
                    _const(sms),
                    lambda w, name=name: w.policy.dispatcher == name and not w.has(_NUM_SMS),
                )
                for name, sms in _SMS.items()
            ),
            Row("dispatcher", "model.moe_shared_expert_overlap", _const(False)),
            Row(
                "routing",
                "model.moe_router_force_load_balancing",
                lambda w: w.policy.routing == "balanced",
                why=_BALANCED,
                back=read_back.either("model.moe_router_force_load_balancing", "balanced", "natural"),
            ),
        ),
    ),
    Section(
        "Hybrid model: fields that Bridge sets differently",
        (
            Row(None, "model.attention_backend", _const(_FUSED_BACKEND), lambda w: w.hybrid, _FUSED),
            # with a pattern, the last stage has MTP even at a depth of 0 (core models/hybrid/hybrid_model.py:215, core
            # transformer/multi_token_prediction.py:653)
            Row(None, "model.mtp_hybrid_override_pattern", _const(None), lambda w: w.hybrid and w.no_mtp, _NO_MTP),
            # Bridge would build a block for each MTP depth of a hybrid, although its depths share one block
            Row(
                None,
                "model.mtp_use_repeated_layer",
                _const(True),
                lambda w: (
                    w.hybrid
                    and w.own.get("model.mtp_num_layers", w.provided.get("mtp_num_layers"))
                    and not w.provided.get("mtp_use_repeated_layer")
                ),
                _REPEATED,
            ),
        ),
    ),
    Section(
        "Activation memory",
        (
            Row(
                "recompute",
                GRANULARITY,
                lambda w: "full" if _full(w) else "selective" if w.policy.recompute else None,
                back=Back(read_back.recompute, ("model.recompute_modules", GRANULARITY)),
            ),
            Row(
                "recompute",
                "model.recompute_modules",
                lambda w: list(w.policy.recompute) if _selective(w) else [],
                read=lambda w: _selective(w) or w.own.get(GRANULARITY) == "selective",
            ),
            Row("recompute", "model.recompute_method", lambda w: "uniform" if _full(w) else None),
            Row("recompute", "model.recompute_num_layers", lambda w: 1 if _full(w) else None),
            Row(
                "offload_modules",
                "model.fine_grained_activation_offloading",
                lambda w: bool(w.policy.offload_modules),
                back=Back(read_back.offloaded, ("model.fine_grained_activation_offloading", "model.offload_modules")),
            ),
            Row("offload_modules", "model.offload_modules", lambda w: list(w.policy.offload_modules)),
        ),
    ),
    Section(
        "CUDA graphs",
        (
            Row(
                "cuda_graph",
                "model.cuda_graph_impl",
                _graph_impl,
                back=Back(
                    read_back.graph,
                    ("model.cuda_graph_impl", _MODULES, "model.cuda_graph_scope"),
                    ("model.cuda_graph_impl",),
                ),
            ),
            Row(
                "cuda_graph",
                _MODULES,
                lambda w: [] if _whole_graph(w) else list(w.policy.cuda_graph),
                lambda w: w.has(_MODULES),
                read=lambda w: w.policy.cuda_graph,
            ),
            Row(
                "cuda_graph",
                "model.cuda_graph_scope",
                lambda w: list(w.policy.cuda_graph),
                lambda w: not w.has(_MODULES),
                read=lambda w: w.policy.cuda_graph,
            ),
            *(
                Row("cuda_graph", path, lambda w: bool(w.policy.cuda_graph) or any(map(w.own.get, _TE_RANDOM_STATE)))
                for path in _TE_RANDOM_STATE
            ),
            Row("cuda_graph", "rerun_state_machine.check_for_nan_in_loss", lambda w: not _whole_graph(w)),
            Row("cuda_graph", "ddp.check_for_nan_in_grad", lambda w: not _whole_graph(w)),
            # bridge perf_recipes/qwen/common.py:36
            Row("cuda_graph", "model.moe_expert_rank_capacity_factor", _capacity, _paged),
            Row("cuda_graph", "model.moe_paged_stash", _const(True), _paged),
            Row("cuda_graph", "model.moe_paged_stash_buffer_size_factor_cuda", _const(STASH), _paged),
            Row("cuda_graph", "model.moe_paged_stash_buffer_size_factor_cpu", _const(1.0), _paged),
            Row("cuda_graph", "model.use_transformer_engine_op_fuser", _const(True), _paged),
            Row("cuda_graph", "model.moe_mlp_glu_interleave_size", _const(32), _paged),
            Row("cuda_graph", "model.moe_hybridep_num_sms_preprocessing", _const(32), _paged),
            Row("cuda_graph", "model.moe_pad_experts_for_cuda_graph_inference", _const(True), _paged),
        ),
    ),
    Section(
        "Precision",
        (
            Row(
                "precision",
                "mixed_precision",
                lambda w: Call(_MIXED, w.precision_facts.factory),
                back=Back(
                    read_back.precision,
                    ("mixed_precision", "mixed_precision.fp8_recipe", "mixed_precision.fp8", "mixed_precision.fp4"),
                    ("mixed_precision",),
                ),
            ),
            Row("precision", "mixed_precision.bf16", _const(True)),
            Row("precision", "mixed_precision.fp8", _fact("fp8")),
            Row("precision", "mixed_precision.fp8_recipe", _fact("fp8_recipe")),
            Row("precision", GATHERS["fp8"], _gathers),
            Row(
                "precision",
                "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag",
                lambda w: w.policy.precision == "mxfp8" and _gathers(w) and not _fsdp(w),
            ),
            Row("precision", "mixed_precision.first_last_layers_bf16", _fact("first_last_layers_bf16")),
            Row("precision", "mixed_precision.fp4", _fact("fp4")),
            Row(
                "precision",
                GATHERS["fp4"],
                lambda w: w.precision_facts.fp4_param_gather and w.own.get(GATHERS["fp4"], True) and not _fsdp(w),
            ),
            Row("grad_reduce", "mixed_precision.grad_reduce_in_fp32", lambda w: w.policy.grad_reduce == "fp32"),
            Row(
                "grad_reduce",
                "ddp.grad_reduce_in_fp32",
                lambda w: w.policy.grad_reduce == "fp32",
                back=read_back.either("ddp.grad_reduce_in_fp32", "fp32", "bf16"),
            ),
        ),
    ),
    Section(
        "Communication overlap",
        (
            Row(
                "comm_overlap.tp_comm_overlap",
                "comm_overlap",
                _const(Call(_OVERLAP, "CommOverlapConfig", {"tp_comm_overlap": False})),
            ),
            Row(
                "ep_overlap",
                "comm_overlap.overlap_moe_expert_parallel_comm",
                back=read_back.overlap("overlap_moe_expert_parallel_comm"),
            ),
            Row("ep_overlap", "model.overlap_moe_expert_parallel_comm"),
            Row("delay_wgrad", "comm_overlap.delay_wgrad_compute", back=read_back.overlap("delay_wgrad_compute")),
            Row("delay_wgrad", "model.delay_wgrad_compute"),
            Row("sharding", "comm_overlap.overlap_grad_reduce", _overlap, why=_overlap_reason),
            Row("sharding", "ddp.overlap_grad_reduce", _overlap),
            Row("sharding", "comm_overlap.overlap_param_gather", _overlap, why=_overlap_reason),
            Row("sharding", "ddp.overlap_param_gather", _overlap),
        ),
    ),
    Section(
        "Optimizer and sharding",
        (
            Row("sharding", "ddp.use_distributed_optimizer", _const(True)),
            Row("sharding", "optimizer.use_distributed_optimizer", _const(True)),
            Row(
                "sharding",
                "ddp.use_megatron_fsdp",
                _fsdp,
                back=Back(
                    read_back.sharding, ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"), ("ddp.use_megatron_fsdp",)
                ),
            ),
            Row("sharding", "dist.use_megatron_fsdp", _fsdp),
            Row(
                "sharding",
                "ddp.data_parallel_sharding_strategy",
                lambda w: "optim_grads_params" if _fsdp(w) else "no_shard",
                read=_fsdp,
            ),
            Row("sharding", "checkpoint.ckpt_format", lambda w: "fsdp_dtensor" if _fsdp(w) else "torch_dist"),
            Row("sharding", "model.init_model_with_meta_device", lambda w: _fsdp(w) and not w.vision),
            Row("sharding", "ddp.keep_fp8_transpose_cache", _const(False), _fsdp),
            Row("moments", "optimizer.optimizer", _const("adam")),
            Row("moments", "optimizer.use_precision_aware_optimizer", _aware),
            Row("moments", "optimizer.exp_avg_dtype", _moment, back=read_back.dtype("optimizer.exp_avg_dtype")),
            Row("moments", "optimizer.exp_avg_sq_dtype", _moment),
            Row("moments", "optimizer.main_params_dtype", _const(Dtype("float32"))),
            Row(
                "grad_reduce",
                "optimizer.main_grads_dtype",
                lambda w: Dtype("bfloat16" if _aware(w) and w.policy.grad_reduce == "bf16" else "float32"),
            ),
            Row(
                "offload",
                "optimizer.optimizer_cpu_offload",
                _offload,
                back=read_back.either("optimizer.optimizer_cpu_offload", "optimizer", "none"),
            ),
            Row("offload", "optimizer.optimizer_offload_fraction", lambda w: 1.0 if _offload(w) else 0.0),
            Row("offload", "optimizer.overlap_cpu_optimizer_d2h_h2d", _offload),
        ),
    ),
    Section(
        "Vision",
        tuple(
            Row(f"freeze_{ours}", f"model.freeze_{theirs}", when=lambda w: w.vision)
            for ours, theirs in read_back.FROZEN.items()
        ),
    ),
    Section(
        "Adapters: the weights are frozen",
        (
            Row("adapter", "peft", lambda w: w.adapter, _has_adapter),
            *(
                Row("adapter", f"peft.{n}", lambda w, n=n: w.adapter.kwargs[n] if w.adapter else None, _has_adapter)
                for n in ("dim", "alpha", "dropout", "target_modules")
            ),
        ),
    ),
    Section(
        "Profiling", (Row(None, "profiling", _const(Call(_CONFIG, "ProfilingConfig")), when=lambda w: w.profiling),)
    ),
    Section(
        "Length of the run: short on mock data, else Bridge's defaults; change these freely",
        (
            Row(None, common.STEPS, _steps),
            Row(None, common.WARMUP, lambda w: common.warmup(w.task, w.mock)),
            Row(None, common.ITERATIONS, lambda w: common.validation_iterations(w.task, w.mock)),
            Row(None, common.INTERVAL, lambda w: common.validation_interval(w.task)),
            Row(
                None,
                common.BATCH,
                lambda w: common.smallest_validation_batch(w.batch.micro_batch, w.layout.dp, w.layout.pp, w.layout.vpp),
                _from_jsonl,
                _WHOLE_BATCH,
            ),
        ),
    ),
)
BACK: Mapping[str, Back] = {
    **{r.word: r.back for s in SECTIONS for r in s.rows if r.word and r.back},
    **read_back.OTHER,
}
"""How to read each keyword of a run back from a configuration."""


def rows(word: str) -> list[Row]:
    """Return the rows of a keyword."""
    return [r for s in SECTIONS for r in s.rows if r.word == word]


def words(c: Configuration) -> dict[str, Any]:
    """Return every keyword of a run that a configuration determines, with its value; sets are frozensets.

    A keyword that the fields do not determine is absent.
    """
    found = {word: back.value(c) for word, back in BACK.items()}
    return {word: value for word, value in found.items() if value is not None}

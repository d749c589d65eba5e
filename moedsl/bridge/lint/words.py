"""Map Bridge's fields back to the keywords of a run: the inverse of emit/fields.py, for any recipe.

A keyword that the fields do not determine is absent, and the rules that need it are skipped. Citations are to
megatron-bridge 0.6.2 and megatron-core 0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moedsl.bridge.lint.recipe import Recipe
from moedsl.facts import adapters, axes
from moedsl.facts.adapter import Adapter
from moedsl.facts.batch_shapes import BY_FIELD, shapes
from moedsl.facts.symbols import SWITCHES

Words = dict[str, Any]
FLEX = ("deepep", "hybridep", "ncclep")
_MIXED = {
    "bf16_mixed": "bf16",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8_blockwise",
    "bf16_with_fp8_current_scaling_mixed": "fp8_current",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
"""Bridge's names of mixed-precision recipes (bridge training/mixed_precision.py)."""
_FP8 = {"blockwise": "fp8_blockwise", "tensorwise": "fp8_current", "mxfp8": "mxfp8"}
_OVERLAP = "overlap_moe_expert_parallel_comm"
_OFFLOADING = "fine_grained_activation_offloading"
_MIXING = "mixed_precision"
"""A recipe of Bridge's by its name has all its fields."""


def words(r: Recipe) -> Words:
    """Every keyword of a run that the recipe determines, with its value."""
    out: Words = {"gpus": r.world}
    for word, (read, needs) in _READERS.items():
        if r.knows(*needs):
            value = read(r)
            if value is not None:
                out[word] = value
    return out


def _size(name: str) -> Callable[[Recipe], Any]:
    return lambda r: r.get(f"model.{name}") or 1


def _switch(path: str, unset: bool) -> Callable[[Recipe], Any]:
    return lambda r: r.get(path, unset)


def _etp(r: Recipe) -> int:
    """Expert tensor parallelism; unset, it is 1 with expert parallelism (bridge models/transformer_config.py:87), else
    TP (core model_parallel_config.py:507)."""
    ep, tp = r.get("model.expert_model_parallel_size") or 1, r.get("model.tensor_model_parallel_size") or 1
    return r.get("model.expert_tensor_parallel_size") or (1 if ep > 1 else tp)


def _dispatcher(r: Recipe) -> str | None:
    kind, backend = r.get("model.moe_token_dispatcher_type"), r.get("model.moe_flex_dispatcher_backend")
    if kind == "alltoall":
        return "alltoall"
    return backend if kind == "flex" and backend in FLEX else None


def _recompute(r: Recipe) -> frozenset[str]:
    """Recomputed modules; without a list, selective recompute is core_attn (core transformer_config.py:1764)."""
    granularity = r.get("model.recompute_granularity")
    if granularity != "selective":
        return frozenset(("full",) if granularity == "full" else ())
    modules = r.get("model.recompute_modules")
    return _among("recompute", ["core_attn"] if modules is None else modules)


def _offloaded(r: Recipe) -> frozenset[str] | None:
    """Offloaded modules; None if the language has no word for one of them."""
    named = (r.get("model.offload_modules") or []) if r.get(f"model.{_OFFLOADING}") else []
    found = _among("offload_modules", named)
    return found if len(found) == len({*named}) else None


def _graph(r: Recipe) -> frozenset[str]:
    """Captured modules; `cuda_graph_scope` is the older name of `cuda_graph_modules`; only one of them is set."""
    captured = graph_modules(r)
    if r.get("model.cuda_graph_impl") == "full_iteration" or "full_iteration" in captured:
        return frozenset(("full_iteration",))
    return _among("cuda_graph", captured) if r.get("model.cuda_graph_impl") not in (None, "none") else frozenset()


def graph_modules(r: Recipe) -> list[str]:
    """The names in `cuda_graph_scope` and `cuda_graph_modules`; "full" and an empty list name no module."""
    found: list[str] = []
    for name in ("cuda_graph_scope", "cuda_graph_modules"):
        value = r.get(f"model.{name}")
        found += [value] if isinstance(value, str) else [str(v) for v in value or ()]
    return found


def _among(axis: str, found: list[str]) -> frozenset[str]:
    return frozenset(found) & frozenset(axes.BY_NAME[axis].words)


def _overlap(r: Recipe, flag: str) -> bool:
    """A flag of `cfg.comm_overlap`, which overrides the model's; without that section, the model's own (bridge
    training/comm_overlap.py:437)."""
    has_section = "comm_overlap" in r.classes or any(n.startswith("comm_overlap.") for n in r.fields)
    return bool(r.get(f"{'comm_overlap' if has_section else 'model'}.{flag}"))


def _precision(r: Recipe) -> str | None:
    mixed = r.get("mixed_precision")
    if isinstance(mixed, str) and mixed in _MIXED:
        return _MIXED[mixed]
    for section in ("mixed_precision", "model"):
        if r.get(f"{section}.fp4"):
            return "nvfp4"
        if r.get(f"{section}.fp8"):
            return _FP8.get(str(r.get(f"{section}.fp8_recipe")))
    return "bf16" if any(r.get(f"{section}.bf16") for section in ("mixed_precision", "model")) else None


def _data(r: Recipe) -> str | None:
    """Whether the data is mock: the dataset is a mock, or names no source of text."""
    kind = r.classes.get("dataset", "")
    if kind.startswith("Mock"):
        return "mock"
    if kind != "GPTDatasetConfig":
        return "real" if kind else None
    return "real" if r.get("dataset.blend") or r.get("dataset.data_path") else "mock"


def _task(r: Recipe) -> str | None:
    """The task by the adapter and the dataset; a recipe for images is fine-tuning, whatever its name."""
    if "peft" in r.classes:
        return "peft"
    kind = r.classes.get("dataset", "")
    return None if not kind else "pretrain" if kind == "GPTDatasetConfig" else "sft"


def _frozen(r: Recipe) -> frozenset[str]:
    theirs = {"vision": "vision_model", "projection": "vision_projection", "language": "language_model"}
    return frozenset(f"freeze_{ours}" for ours, name in theirs.items() if r.get(f"model.freeze_{name}"))


def adapter(r: Recipe) -> Adapter | None:
    """The adapter that a recipe trains; None without one, or with one that the language cannot state."""
    return adapters.read(r.classes.get("peft", ""), r.fields)


def _of_adapter(name: str, without: Any) -> Callable[[Recipe], Any]:
    """Read one value of the adapter; what a run without one has if the recipe trains none."""

    def read(r: Recipe) -> Any:
        found = adapter(r)
        return getattr(found, name) if found else None if "peft" in r.classes else without

    return read


def _dtype(path: str) -> Callable[[Recipe], str]:
    return lambda r: "bf16" if str(r.get(path)).removeprefix("torch.") == "bfloat16" else "fp32"


_M = "model."
_MESH = {
    "tp": "tensor_model_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "vpp": "virtual_pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
}
_READERS: Mapping[str, tuple[Callable[[Recipe], Any], tuple[str, ...]]] = {
    **{word: (_size(name), (_M + name,)) for word, name in _MESH.items()},
    "etp": (_etp, tuple(_M + n for n in (_MESH["tp"], _MESH["ep"], "expert_tensor_parallel_size"))),
    "micro_batch": (lambda r: r.get("train.micro_batch_size"), ("train.micro_batch_size",)),
    "global_batch": (lambda r: r.get("train.global_batch_size"), ("train.global_batch_size",)),
    "seq": (lambda r: r.get("model.seq_length"), ("model.seq_length",)),
    "recompute": (_recompute, (_M + "recompute_granularity", _M + "recompute_modules")),
    "offload": (
        lambda r: "optimizer" if r.get("optimizer.optimizer_cpu_offload") else "none",
        ("optimizer.optimizer_cpu_offload",),
    ),
    "offload_modules": (_offloaded, tuple(_M + n for n in (_OFFLOADING, "offload_modules"))),
    "dispatcher": (_dispatcher, (_M + "moe_token_dispatcher_type", _M + "moe_flex_dispatcher_backend")),
    "cuda_graph": (_graph, (_M + "cuda_graph_impl",)),
    "ep_overlap": (lambda r: _overlap(r, _OVERLAP), (f"comm_overlap.{_OVERLAP}",)),
    "delay_wgrad": (lambda r: _overlap(r, "delay_wgrad_compute"), ("comm_overlap.delay_wgrad_compute",)),
    "precision": (_precision, ("mixed_precision",)),
    "sharding": (
        lambda r: "fsdp" if r.get("ddp.use_megatron_fsdp") or r.get("dist.use_megatron_fsdp") else "optimizer",
        ("ddp.use_megatron_fsdp",),
    ),
    "moments": (_dtype("optimizer.exp_avg_dtype"), ("optimizer.exp_avg_dtype",)),
    "grad_reduce": (lambda r: "fp32" if r.get("ddp.grad_reduce_in_fp32") else "bf16", ("ddp.grad_reduce_in_fp32",)),
    "routing": (
        lambda r: "balanced" if r.get(_M + "moe_router_force_load_balancing") else "natural",
        (_M + "moe_router_force_load_balancing",),
    ),
    "data": (_data, ()),
    "task": (_task, ()),
    "vlm": (_frozen, (_M + "freeze_vision_model",)),
    "adapter": (_of_adapter("method", "none"), ()),
    "adapter_rank": (_of_adapter("rank", 0), ()),
    "adapter_targets": (_of_adapter("targets", frozenset[str]()), ()),
    "adapter_experts": (_of_adapter("experts", "none"), ()),
    "adapter_normalized": (_of_adapter("normalized", False), ()),
    "adapter_regather": (_of_adapter("regather", False), ()),
    "pack": (lambda r: bool(r.get("dataset.enable_offline_packing")), ()),
    "shapes": (lambda r: shapes(r.fields), tuple(field for field, _, _ in BY_FIELD)),
    "saves": (lambda r: r.get("checkpoint.save") is not None, ("checkpoint.save",)),
    "imports_weights": (lambda r: False, ()),  # a recipe names a folder
    **{
        word: (_switch(field, unset), (_MIXING if _MIXING in field else field,))
        for word, (field, unset) in SWITCHES.items()
    },
}
"""For each keyword, how it is read and the fields that must be known."""

FIELDS: Mapping[str, tuple[str, ...]] = {
    **{word: needs for word, (_, needs) in _READERS.items()},
    "precision": ("mixed_precision", "mixed_precision.fp8_recipe", "mixed_precision.fp8", "mixed_precision.fp4"),
    "cuda_graph": (_M + "cuda_graph_impl", _M + "cuda_graph_modules", _M + "cuda_graph_scope"),
    "recompute": (_M + "recompute_modules", _M + "recompute_granularity"),
    "dispatcher": (_M + "moe_flex_dispatcher_backend", _M + "moe_token_dispatcher_type"),
    "ep_overlap": (f"comm_overlap.{_OVERLAP}", f"model.{_OVERLAP}"),
    "delay_wgrad": ("comm_overlap.delay_wgrad_compute", "model.delay_wgrad_compute"),
    "sharding": ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"),
    "etp": (_M + "expert_tensor_parallel_size",),
    "task": ("peft", "dataset"),
    "pack": ("dataset.enable_offline_packing", "dataset"),
    "adapter": ("peft",),
    "adapter_rank": ("peft.dim", "peft"),
    "adapter_targets": ("peft.target_modules", "peft"),
    "adapter_experts": ("peft.share_expert_adapters", "peft.experts_shared_outer_loras", "peft"),
    "adapter_normalized": ("peft.normalize_moe_lora", "peft"),
    "adapter_regather": ("peft.sequence_parallel_input_regather", "peft"),
}
"""The fields of each keyword, for the line that set it."""

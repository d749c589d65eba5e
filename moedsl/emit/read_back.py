"""Read a run's keywords back from any recipe's Bridge fields: the reading half of the table in emit/fields.py.

Citations are to megatron-bridge 0.6.2 and megatron-core 0.19.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import field, frozen

from moedsl.facts import axes, fine_tuning
from moedsl.facts.common import BY_FIELD
from moedsl.facts.common import batch_shapes as shapes
from moedsl.facts.fine_tuning import Adapter
from moedsl.facts.symbols import SWITCHES


@frozen
class Configuration:
    """Bridge's fields by dotted name, from any source. A field that is not in `fields` is unset or unknown."""

    fields: Mapping[str, Any]
    """Plain JSON values, including `env_vars`."""
    classes: Mapping[str, str] = field(factory=dict)
    """The name of the class that fills each section."""
    whole: bool = True
    """Whether a field that is not in `fields` is unset, not just unknown."""

    def get(self, name: str, otherwise: Any = None) -> Any:
        """Return a field's value; `otherwise` if it is unset or unknown."""
        value = self.fields.get(name)
        return otherwise if value is None else value

    def knows(self, *names: str) -> bool:
        """Whether each of these fields is known, be it a value or unset."""
        return self.whole or all(n in self.fields for n in names)


@frozen
class Back:
    """How to read a keyword back: `read` returns its value in a configuration, or None if the fields determine none."""

    read: Callable[[Configuration], Any]
    shown: tuple[str, ...] = ()
    """The fields that state the keyword, most telling first; a diagnostic points to the line that set one."""
    needs: tuple[str, ...] | None = None
    """The fields that must be known; None means `shown`."""

    def value(self, c: Configuration) -> Any:
        """Return the keyword's value; None if it is unknown."""
        return self.read(c) if c.knows(*(self.shown if self.needs is None else self.needs)) else None


FLEX = ("deepep", "hybridep", "ncclep")
_MIXED = {
    "bf16_mixed": "bf16",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8_blockwise",
    "bf16_with_fp8_current_scaling_mixed": "fp8_current",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
}
"""Bridge's names for mixed-precision recipes (bridge training/mixed_precision.py)."""
_FP8 = {"blockwise": "fp8_blockwise", "tensorwise": "fp8_current", "mxfp8": "mxfp8"}
_OFFLOADING = "fine_grained_activation_offloading"
_MIXING = "mixed_precision"
"""The section that may be only the name of a Bridge recipe, which then determines all its fields."""


def same(path: str) -> Back:
    """Read a keyword with the value of its field."""
    return Back(lambda r: r.get(path), (path,))


def size(path: str) -> Back:
    """Read a parallel size; 1 if unset."""
    return Back(lambda r: r.get(path) or 1, (path,))


def either(path: str, on: str, off: str) -> Back:
    """Read one value if a flag is on, another if it is off."""
    return Back(lambda r: on if r.get(path) else off, (path,))


def dtype(path: str) -> Back:
    """Read a number format: bf16, or fp32 for any other dtype."""
    return Back(lambda r: "bf16" if str(r.get(path)).removeprefix("torch.") == "bfloat16" else "fp32", (path,))


ETP = tuple(f"model.{n}_parallel_size" for n in ("tensor_model", "expert_model", "expert_tensor"))
"""The sizes that determine expert tensor parallelism."""


def etp(r: Configuration) -> int:
    """Return the expert tensor parallel size; if unset, 1 with expert parallelism (bridge
    models/transformer_config.py:87), else TP (core model_parallel_config.py:507)."""
    ep, tp = r.get("model.expert_model_parallel_size") or 1, r.get("model.tensor_model_parallel_size") or 1
    return r.get("model.expert_tensor_parallel_size") or (1 if ep > 1 else tp)


def dispatcher(r: Configuration) -> str | None:
    kind, backend = r.get("model.moe_token_dispatcher_type"), r.get("model.moe_flex_dispatcher_backend")
    if kind == "alltoall":
        return "alltoall"
    return backend if kind == "flex" and backend in FLEX else None


def recompute(r: Configuration) -> frozenset[str]:
    """Return the recomputed modules; selective recompute defaults to core_attn (core transformer_config.py:1764)."""
    granularity = r.get("model.recompute_granularity")
    if granularity != "selective":
        return frozenset(("full",) if granularity == "full" else ())
    modules = r.get("model.recompute_modules")
    return _among("recompute", ["core_attn"] if modules is None else modules)


def offloaded(r: Configuration) -> frozenset[str] | None:
    """Return the offloaded modules; None if the language has no name for one of them."""
    named = (r.get("model.offload_modules") or []) if r.get(f"model.{_OFFLOADING}") else []
    found = _among("offload_modules", named)
    return found if len(found) == len({*named}) else None


def graph(r: Configuration) -> frozenset[str]:
    """Return the captured modules; `cuda_graph_scope` is the older name of `cuda_graph_modules`; only one is set."""
    captured = graph_modules(r)
    if r.get("model.cuda_graph_impl") == "full_iteration" or "full_iteration" in captured:
        return frozenset(("full_iteration",))
    return _among("cuda_graph", captured) if r.get("model.cuda_graph_impl") not in (None, "none") else frozenset()


def graph_modules(r: Configuration) -> list[str]:
    """Return the names in `cuda_graph_scope` and `cuda_graph_modules`; "full" and an empty list name no module."""
    found: list[str] = []
    for name in ("cuda_graph_scope", "cuda_graph_modules"):
        value = r.get(f"model.{name}")
        found += [value] if isinstance(value, str) else [str(v) for v in value or ()]
    return found


def _among(axis: str, found: list[str]) -> frozenset[str]:
    return frozenset(found) & frozenset(axes.BY_NAME[axis].words)


def overlap(flag: str) -> Back:
    """Read a flag of `cfg.comm_overlap`, which overrides the model's; without that section, read the model's (bridge
    training/comm_overlap.py:437)."""

    def read(r: Configuration) -> bool:
        has_section = "comm_overlap" in r.classes or any(n.startswith("comm_overlap.") for n in r.fields)
        return bool(r.get(f"{'comm_overlap' if has_section else 'model'}.{flag}"))

    names = (f"comm_overlap.{flag}", f"model.{flag}")
    return Back(read, names, names[:1])


def precision(r: Configuration) -> str | None:
    mixed = r.get("mixed_precision")
    if isinstance(mixed, str) and mixed in _MIXED:
        return _MIXED[mixed]
    for section in ("mixed_precision", "model"):
        if r.get(f"{section}.fp4"):
            return "nvfp4"
        if r.get(f"{section}.fp8"):
            return _FP8.get(str(r.get(f"{section}.fp8_recipe")))
    return "bf16" if any(r.get(f"{section}.bf16") for section in ("mixed_precision", "model")) else None


def sharding(r: Configuration) -> str:
    """Return fsdp if Megatron FSDP shards everything, else optimizer: only its state is sharded."""
    return "fsdp" if r.get("ddp.use_megatron_fsdp") or r.get("dist.use_megatron_fsdp") else "optimizer"


def _data(r: Configuration) -> str | None:
    """Return mock for a mock dataset or one without a source of text, else real; None if the dataset is unknown."""
    kind = r.classes.get("dataset", "")
    if kind.startswith("Mock"):
        return "mock"
    if kind != "GPTDatasetConfig":
        return "real" if kind else None
    return "real" if r.get("dataset.blend") or r.get("dataset.data_path") else "mock"


_TASKS = {"": None, "GPTDatasetConfig": "pretrain"}
"""The task of a dataset's class that is not for fine-tuning; without a class it is not known."""
FROZEN = {"vision": "vision_model", "projection": "vision_projection", "language": "language_model"}
"""The parts of a model for images that may be frozen, each with Bridge's name."""


def adapter_of(r: Configuration) -> Adapter | None:
    """Return the adapter that a recipe trains; None if it has none, or one that the language cannot state."""
    return fine_tuning.read(r.classes.get("peft", ""), r.fields)


def _of_adapter(name: str, without: Any, *shown: str) -> Back:
    """Read one value of the adapter; `without` if the recipe trains none."""

    def read(r: Configuration) -> Any:
        found = adapter_of(r)
        return getattr(found, name) if found else None if "peft" in r.classes else without

    return Back(read, (*shown, "peft"), ())


OTHER: Mapping[str, Back] = {
    "data": Back(_data),
    # by the adapter and the dataset; a recipe for images is fine-tuning, whatever its name
    "task": Back(
        lambda r: "peft" if "peft" in r.classes else _TASKS.get(r.classes.get("dataset", ""), "sft"),
        ("peft", "dataset"),
        (),
    ),
    "vlm": Back(
        lambda r: frozenset(f"freeze_{ours}" for ours, name in FROZEN.items() if r.get(f"model.freeze_{name}")),
        ("model.freeze_vision_model",),
    ),
    "adapter": _of_adapter("method", "none"),
    "adapter_rank": _of_adapter("rank", 0, "peft.dim"),
    "adapter_targets": _of_adapter("targets", frozenset[str](), "peft.target_modules"),
    "adapter_experts": _of_adapter("experts", "none", "peft.share_expert_adapters", "peft.experts_shared_outer_loras"),
    "adapter_normalized": _of_adapter("normalized", False, "peft.normalize_moe_lora"),
    "adapter_regather": _of_adapter("regather", False, "peft.sequence_parallel_input_regather"),
    "pack": Back(
        lambda r: bool(r.get("dataset.enable_offline_packing")), ("dataset.enable_offline_packing", "dataset"), ()
    ),
    "shapes": Back(lambda r: shapes(r.fields), tuple(field for field, _, _ in BY_FIELD)),
    "saves": Back(lambda r: r.get("checkpoint.save") is not None, ("checkpoint.save",)),
    "imports_weights": Back(lambda r: False),  # a recipe names a folder
    "trained_params": Back(lambda r: 0),  # laws compare it with a node's memory, which a recipe does not know
    **{
        word: Back(partial(Configuration.get, name=field, otherwise=unset), (_MIXING if _MIXING in field else field,))
        for word, (field, unset) in SWITCHES.items()
    },
}
"""The keywords that no row of the table writes as a field: for the task, the data, the adapter and so on."""

"""The axes of a plan: every value that the solver decides, its type, and how a column writes it as a number.

Columns hold integers only. An enumerated axis holds the index of the word in its `words`; a set axis holds a bit mask
over its `words` (bit i is ``words[i]``); a flag holds 0 or 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

RECOMPUTE = ("layernorm", "moe_act", "mla_up_proj", "shared_experts", "core_attn", "mlp", "moe", "full")
OFFLOAD_MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Megatron's `offload_modules`, but for `fused_group_mlp`, which needs fused experts without their paged stash."""
CUDA_GRAPH = ("attn", "moe_router", "moe_preprocess", "full_iteration", "mamba")
PRECISION = ("bf16", "fp8_blockwise", "fp8_current", "mxfp8", "nvfp4")
PHASES = ("fit", "scale", "profile", "throughput")
"""What a run is for, in the order of the workflow; `throughput` is where it retunes."""


@frozen
class Axis:
    """One decided value. `kind` is int, enum, set or flag."""

    name: str
    kind: str
    doc: str
    words: tuple[str, ...] = ()

    def encode(self, value: int | str | bool | Iterable[str]) -> int:
        """A plan's value as the integer of a column; raises ValueError for a word that the axis does not have."""
        if self.kind == "enum":
            return self.words.index(str(value) if value else "none")
        if self.kind == "set":
            words = [] if value in ("none", None) else [value] if isinstance(value, str) else list(value)  # type: ignore[arg-type]
            return sum(1 << self.words.index(w) for w in set(words))
        return int(value)  # type: ignore[call-overload]

    def decode(self, code: int) -> int | str | bool | list[str]:
        """A column's integer as the plan's value: int, word, list of words, or bool."""
        if self.kind == "enum":
            return self.words[int(code)]
        if self.kind == "set":
            return [w for i, w in enumerate(self.words) if int(code) >> i & 1]
        return bool(code) if self.kind == "flag" else int(code)


_MESH = (
    Axis("pp", "int", "pipeline parallel size, shared by both meshes"),
    Axis("tp", "int", "tensor parallel size of attention and dense layers"),
    Axis("cp", "int", "context parallel size"),
    Axis("etp", "int", "expert tensor parallel size"),
    Axis("ep", "int", "expert parallel size"),
    Axis("vpp", "int", "virtual pipeline stages on a rank; 1 is none"),
)
_POLICY = (
    Axis("micro_batch", "int", "sequences in a microbatch"),
    Axis("recompute", "set", "modules recomputed in backward; full is whole layers", RECOMPUTE),
    Axis("offload", "enum", "what is kept in host memory", ("none", "optimizer")),
    Axis("offload_modules", "set", "modules whose inputs wait for backward in host memory", OFFLOAD_MODULES),
    Axis("dispatcher", "enum", "how tokens reach their experts", ("alltoall", "deepep", "hybridep")),
    Axis("cuda_graph", "set", "what is captured in CUDA graphs", CUDA_GRAPH),
    Axis("ep_overlap", "flag", "expert-parallel communication overlapped between microbatches (1F1B)"),
    Axis("delay_wgrad", "flag", "weight gradients delayed to hide more of it"),
)
_FIXED = (
    Axis("precision", "enum", "number format of the matrix products", PRECISION),
    Axis(
        "sharding",
        "enum",
        "what data parallelism shards: optimizer state, or all of it (Megatron FSDP)",
        ("optimizer", "fsdp"),
    ),
    Axis("moments", "enum", "number format of the optimizer's moments", ("fp32", "bf16")),
    Axis("grad_reduce", "enum", "number format in which gradients are kept and reduced", ("fp32", "bf16")),
)
AXES: tuple[Axis, ...] = _MESH + _POLICY + _FIXED
"""Mesh axes, then policies, then what is one value unless a sweep or `auto` opens it."""

BY_NAME = {a.name: a for a in AXES}
DERIVED = ("dp", "edp", "sequence_parallel", "num_microbatches")
"""What follows from the axes; a run that pins one requires it."""
PINNED = (*BY_NAME, *DERIVED, "pipeline_layout")
"""Every name that `pin` takes."""
SETS = tuple(a.name for a in AXES if a.kind == "set")
MEMBERS = tuple(dict.fromkeys(w for n in SETS for w in BY_NAME[n].words))
"""Every word of a set, in the order in which lists of them are written."""


def said(value: object) -> str:
    """A value of a plan's JSON as plans say it: on and off, `+` between the words of a set."""
    return _joined(value, "+")


def written(value: object) -> str:
    """The same as the language writes it: a set is `[moe_act, mlp]`, or none."""
    text = _joined(value, ", ")
    return f"[{text}]" if isinstance(value, list | tuple) and value else text


def label(value: object) -> str:
    """The same as a part of a run's name."""
    return _joined(value, "_")


def _joined(value: object, sign: str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return sign.join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def pairs(values: Mapping[str, object]) -> str:
    """Values by name as plans say them, `ep=64 recompute=moe_act`; a text that is no word in quotes."""
    words = ((n, f'"{v}"' if isinstance(v, str) and not v.isidentifier() else said(v)) for n, v in values.items())
    return " ".join(f"{name}={word}" for name, word in words)


def json_value(value: Any) -> Any:
    """As JSON has it: a set is a list in the order of `MEMBERS`, a whole float an integer."""
    if isinstance(value, frozenset):
        return sorted(value, key=lambda w: MEMBERS.index(w) if w in MEMBERS else len(MEMBERS))
    if isinstance(value, tuple):
        return [json_value(x) for x in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


COMPOSITES: dict[str, dict[str, dict[str, bool]]] = {
    "overlap": {
        "off": {"ep_overlap": False, "delay_wgrad": False},
        "on": {"ep_overlap": True, "delay_wgrad": False},
        "delayed": {"ep_overlap": True, "delay_wgrad": True},
    }
}
"""What `isolate` may vary that is several axes at once: the values of each word."""

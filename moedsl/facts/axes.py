"""Define the axes of a plan: every value that the solver decides, its type, and its number in a column.

Columns hold only integers. An enumerated axis holds the index of the word in its `words`; a set axis holds a bit mask
over its `words` (bit i is ``words[i]``); a flag holds 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from attrs import field, frozen

from moedsl.facts import releases

RECOMPUTE = ("layernorm", "moe_act", "mla_up_proj", "shared_experts", "core_attn", "mlp", "moe", "full")
OFFLOAD_MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Megatron's `offload_modules`, except `fused_group_mlp`, which needs fused experts without their paged stash."""
CUDA_GRAPH = ("attn", "moe_router", "moe_preprocess", "full_iteration", "mamba")
PRECISION = ("bf16", "fp8_blockwise", "fp8_current", "mxfp8", "nvfp4")
PHASES = ("fit", "scale", "profile", "throughput")
"""The purposes of a run, in the order of the workflow; `throughput` is the phase of `retune`."""


Role = Literal["parallel", "shape", "held", "moved", "follows"]
"""A size that divides the GPUs, another size of the mesh, a policy of what memory holds, a policy of how data moves and
kernels are launched, a value that follows from the axes."""
Mesh = Literal["", "pipeline", "attention", "experts"]
"""The mesh that a size belongs to; the pipeline is shared by both."""
End = Literal["", "high", "low"]
"""The end of an axis: its largest or smallest value, which for a set is the empty set; "" is neither."""
LAST = 99


@frozen
class Axis:
    """One value of a plan. `kind` is int, enum, set or flag."""

    name: str
    kind: str
    doc: str
    words: tuple[str, ...] = ()
    role: Role = field(kw_only=True)
    mesh: Mesh = field(kw_only=True, default="")
    place: int = field(kw_only=True, default=LAST)
    """Its position in lists of plans; policies with a position describe a layout best."""
    quiet: bool = field(kw_only=True, default=False)
    """Whether a short text names it only if it is on."""
    opened: bool = field(kw_only=True, default=True)
    """Whether a phase opens it for every model; else it has one value unless the run or a rule states others."""
    least_memory: End = field(kw_only=True, default="")
    """The end that never uses more memory than another value, for the search's bounds; "" if that depends."""
    least_time: End = field(kw_only=True, default="")
    """The end that is never slower than another value."""
    splits_activations: bool = field(kw_only=True, default=False)
    """Whether it divides activations alone: weights, gradients and optimizer state of a rank do not depend on it."""

    @property
    def off(self) -> int:
        """The code of a size of 1, of the first word, of no words, or of off."""
        return 1 if self.kind == "int" else 0

    @property
    def section(self) -> str:
        """The section of a plan with this axis: layout, batch or policy."""
        if self.role in ("held", "moved"):
            return "policy"
        return "layout" if self.mesh else "batch"

    @property
    def is_format(self) -> bool:
        """Whether its words are formats of numbers."""
        return "bf16" in self.words

    def is_on(self, value: object) -> bool:
        """Whether a plan's value differs from its off value."""
        return value != self.decode(self.off)

    def encode(self, value: int | str | bool | Iterable[str]) -> int:
        """Encode a plan's value as the integer of a column; raises ValueError for an unknown word."""
        if self.kind == "enum":
            return self.words.index(str(value) if value else "none")
        if self.kind == "set":
            words = [] if value in ("none", None) else [value] if isinstance(value, str) else list(value)  # type: ignore[arg-type]
            return sum(1 << self.words.index(w) for w in set(words))
        return int(value)  # type: ignore[call-overload]

    def decode(self, code: int) -> int | str | bool | list[str]:
        """Decode a column's integer to the plan's value: int, word, list of words, or bool."""
        if self.kind == "enum":
            return self.words[int(code)]
        if self.kind == "set":
            return [w for i, w in enumerate(self.words) if int(code) >> i & 1]
        return bool(code) if self.kind == "flag" else int(code)


AXES: tuple[Axis, ...] = (
    Axis("pp", "int", "pipeline parallel size, shared by both meshes", role="parallel", mesh="pipeline", place=4),
    Axis("tp", "int", "tensor parallel size of attention and dense layers", role="parallel", mesh="attention", place=1),
    Axis(
        "cp", "int", "context parallel size", role="parallel", mesh="attention", place=2, splits_activations=True,
    ),
    Axis("etp", "int", "expert tensor parallel size", role="parallel", mesh="experts", place=7, quiet=True),
    Axis("ep", "int", "expert parallel size", role="parallel", mesh="experts", place=6),
    Axis(
        "vpp", "int", "virtual pipeline stages on a rank; 1 is none", role="shape", mesh="pipeline", place=5,
        quiet=True,
    ),
    Axis("micro_batch", "int", "sequences in a microbatch", role="shape", quiet=True, splits_activations=True),
    Axis(
        "recompute", "set", "modules recomputed in backward; full is whole layers", RECOMPUTE, role="held",
        place=3, least_time="low",
    ),
    Axis(
        "offload", "enum", "what is kept in host memory", ("none", "optimizer"), role="held", least_memory="high",
        least_time="low",
    ),
    Axis(
        "offload_modules", "set", "modules whose inputs wait for backward in host memory", OFFLOAD_MODULES,
        role="held", quiet=True, opened=False, least_time="low",
    ),
    Axis(
        "dispatcher", "enum", "how tokens reach their experts", ("alltoall", "deepep", "hybridep"), role="moved",
        place=2, least_memory="low", least_time="high",
    ),
    Axis("cuda_graph", "set", "what is captured in CUDA graphs", CUDA_GRAPH, role="moved"),
    Axis(
        "ep_overlap", "flag", "expert-parallel communication overlapped between microbatches (1F1B)",
        role="moved", least_memory="low", least_time="high",
    ),
    Axis(
        "delay_wgrad", "flag", "weight gradients delayed to hide more of it", role="moved", quiet=True,
        least_memory="low", least_time="high",
    ),
    Axis(
        "precision", "enum", "number format of the matrix products", PRECISION, role="held", place=1,
        opened=False,
    ),
    Axis(
        "sharding", "enum", "what data parallelism shards: optimizer state, or all of it (Megatron FSDP)",
        ("optimizer", "fsdp"), role="held", opened=False,
    ),
    Axis(
        "moments", "enum", "number format of the optimizer's moments", ("fp32", "bf16"), role="held", quiet=True,
        opened=False, least_memory="high", least_time="high",
    ),
    Axis(
        "grad_reduce", "enum", "number format in which gradients are kept and reduced", ("fp32", "bf16"),
        role="held", quiet=True, opened=False, least_time="high",
    ),
)  # fmt: skip
"""The axes in the order of a plan's decisions; of equally good layouts, the one with the smaller first value wins."""
FOLLOWING: tuple[Axis, ...] = (
    Axis("dp", "int", "data parallel size: replicas of the attention mesh", role="follows", mesh="attention", place=3),
    Axis("edp", "int", "replicas of an expert's shard", role="follows", mesh="experts", place=8),
    Axis("sequence_parallel", "flag", "", role="follows", mesh="attention"),
    Axis("num_microbatches", "int", "", role="follows"),
)
"""Values that follow from the axes; a run that pins one requires it. A rule's reason documents those without a text."""


def _names(*roles: Role, where: Callable[[Axis], bool] = lambda _: True) -> tuple[str, ...]:
    return tuple(a.name for a in AXES if a.role in roles and where(a))


def _listed(section: str) -> tuple[str, ...]:
    """The sizes and policies of a section of the plan, in order."""
    found = [a for a in (*AXES, *FOLLOWING) if a.section == section and (a.role != "follows" or a.kind == "int")]
    return tuple(a.name for a in sorted(found, key=lambda a: a.place))


def _ranks(mesh: Mesh) -> tuple[str, ...]:
    """The sizes whose product is the number of GPUs, the fastest first as Megatron-Core numbers ranks."""
    data = tuple(a.name for a in FOLLOWING if a.mesh == mesh and a.kind == "int")
    return (
        *_names("parallel", where=lambda a: a.mesh == mesh),
        *data,
        *_names("parallel", where=lambda a: a.mesh == "pipeline"),
    )


BY_NAME = {a.name: a for a in AXES}
DERIVED = tuple(a.name for a in FOLLOWING)
PINNED = (*BY_NAME, *DERIVED, "pipeline_layout")
"""Every name that `pin` accepts."""
SIZES = _names("parallel")
"""The sizes that divide the GPUs."""
MESH = tuple(sorted(_names("parallel", "shape"), key=lambda n: BY_NAME[n].mesh != "pipeline"))
"""The axes of a mesh in the order of the search: only few pairs of pipeline sizes have a layout, so they come first."""
WEIGHTS = tuple(n for n in MESH if not BY_NAME[n].splits_activations)
"""The axes of a mesh that decide the weights of a rank."""
MEMORY_POLICIES = _names("held")
"""Policies that decide what is held in memory."""
TRANSPORT_POLICIES = _names("moved")
"""Policies that decide how data moves and how kernels are launched."""
ATTENTION, EXPERTS = _ranks("attention"), _ranks("experts")
LAYOUT, BATCH, POLICY = _listed("layout"), _listed("batch"), _listed("policy")
"""The sizes and policies of each section of a plan, in order."""
SUMMARY = tuple(a.name for a in AXES if a.role in ("parallel", "shape") or a.place != LAST)
"""The axes that describe a layout best."""
SETS = tuple(a.name for a in AXES if a.kind == "set")
MEMBERS = tuple(dict.fromkeys(w for n in SETS for w in BY_NAME[n].words))
"""Every word of a set, in the order in which lists of them are written."""


def named_value(name: str, value: Any) -> Any:
    """Write the value of a name as JSON; a version as 0.6.2."""
    return releases.as_text(value) if name in releases.NAMES else json_value(value)


def show(value: object) -> str:
    """Write a value of a plan's JSON as plans do: on and off, `+` between the words of a set."""
    return _joined(value, "+")


def written(value: object) -> str:
    """Write a value as in the language: a set is `[moe_act, mlp]`, or none."""
    text = _joined(value, ", ")
    return f"[{text}]" if isinstance(value, list | tuple) and value else text


def label(value: object) -> str:
    """Write a value as a part of a run's name."""
    return _joined(value, "_")


def _joined(value: object, sign: str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return sign.join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def pairs(values: Mapping[str, object]) -> str:
    """Write values by name as plans do, `ep=64 recompute=moe_act`; a text that is not a word is in quotes."""
    words = ((n, f'"{v}"' if isinstance(v, str) and not v.isidentifier() else show(v)) for n, v in values.items())
    return " ".join(f"{name}={word}" for name, word in words)


def json_value(value: Any) -> Any:
    """Convert a value to JSON: a set to a list in the order of `MEMBERS`, then of the alphabet, a whole float to an
    integer."""
    if isinstance(value, frozenset):
        return sorted(value, key=lambda w: (MEMBERS.index(w) if w in MEMBERS else len(MEMBERS), w))
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
"""Names that `isolate` may vary and that are several axes at once, with the values of each word."""

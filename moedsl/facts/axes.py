"""Define the axes of a plan: every value that the solver decides, its type, and its integer code in a column.

Columns hold only integers: for an enumerated axis, the index of the word in its `words`; for a set axis, a bit mask
over its `words` (bit i is ``words[i]``); for a flag, 0 or 1.
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
"""`parallel`: a size that divides the GPUs; `shape`: another size of the mesh; `held`: a policy on what memory holds;
`moved`: a policy on how data moves and kernels are launched; `follows`: a value derived from the axes."""
Mesh = Literal["", "pipeline", "attention", "experts"]
"""The mesh that a size belongs to; both meshes share the pipeline."""
End = Literal["", "high", "low"]
"""One extreme of an axis: `high` is its largest value, `low` its smallest (for a set, the empty set), "" is neither."""
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
    """Its position in its section of a plan; policies with a position are also in `SUMMARY`."""
    quiet: bool = field(kw_only=True, default=False)
    """Whether short texts omit it when it is off."""
    opened: bool = field(kw_only=True, default=True)
    """Whether the search may vary it for every model; else it has one value unless the run or a rule adds some."""
    least_memory: End = field(kw_only=True, default="")
    """The extreme that never uses more memory than another value, for the search's bounds; "" if it varies."""
    least_time: End = field(kw_only=True, default="")
    """The extreme that is never slower than another value; "" if it varies."""
    splits_activations: bool = field(kw_only=True, default=False)
    """Whether it affects only activations: a rank's weights, gradients and optimizer state do not depend on it."""

    @property
    def off(self) -> int:
        """The code of the off value: size 1, the first word, the empty set, or off."""
        return 1 if self.kind == "int" else 0

    @property
    def section(self) -> str:
        """The plan section that contains this axis: layout, batch or policy."""
        if self.role in ("held", "moved"):
            return "policy"
        return "layout" if self.mesh else "batch"

    @property
    def is_format(self) -> bool:
        """Whether its values are number formats."""
        return "bf16" in self.words

    def is_on(self, value: object) -> bool:
        """Whether a plan's value differs from its off value."""
        return value != self.decode(self.off)

    def encode(self, value: int | str | bool | Iterable[str]) -> int:
        """Encode a plan's value as a column integer; raise ValueError for an unknown word."""
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
        "dispatcher", "enum", "how tokens reach their experts", ("alltoall", "deepep", "hybridep", "ncclep"),
        role="moved",
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
"""The axes in the order of a plan's decisions; among equally good layouts, the smallest values in this order win."""
FOLLOWING: tuple[Axis, ...] = (
    Axis("dp", "int", "data parallel size: replicas of the attention mesh", role="follows", mesh="attention", place=3),
    Axis("edp", "int", "replicas of an expert's shard", role="follows", mesh="experts", place=8),
    Axis("sequence_parallel", "flag", "", role="follows", mesh="attention"),
    Axis("num_microbatches", "int", "", role="follows"),
)
"""Values derived from the axes; pinning one requires that value. A rule's reason documents those without a text."""


def _names(*roles: Role, where: Callable[[Axis], bool] = lambda _: True) -> tuple[str, ...]:
    return tuple(a.name for a in AXES if a.role in roles and where(a))


def _listed(section: str) -> tuple[str, ...]:
    """Return the sizes or policies of a plan section, in order."""
    found = [a for a in (*AXES, *FOLLOWING) if a.section == section and (a.role != "follows" or a.kind == "int")]
    return tuple(a.name for a in sorted(found, key=lambda a: a.place))


def _ranks(mesh: Mesh) -> tuple[str, ...]:
    """Return the sizes whose product is the GPU count, fastest-varying first as Megatron-Core numbers ranks."""
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
"""The mesh axes in search order; pipeline sizes come first because few pairs of them have a layout."""
WEIGHTS = tuple(n for n in MESH if not BY_NAME[n].splits_activations)
"""The mesh axes that decide a rank's weights."""
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
"""Every word of the set axes, in the order in which lists are written."""


def named_value(name: str, value: Any) -> Any:
    """Convert a named value to JSON; a version becomes text such as 0.6.2."""
    return releases.as_text(value) if name in releases.NAMES else json_value(value)


def show(value: object) -> str:
    """Format a plan's JSON value as plans print it: on or off for a flag, `+` between the words of a set."""
    return _joined(value, "+")


def written(value: object) -> str:
    """Format a value as a run file writes it: a set is `[moe_act, mlp]`, or none if empty."""
    text = _joined(value, ", ")
    return f"[{text}]" if isinstance(value, list | tuple) and value else text


def label(value: object) -> str:
    """Format a value for use in a run's name."""
    return _joined(value, "_")


def _joined(value: object, sign: str) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return sign.join(map(str, value)) or "none" if isinstance(value, list | tuple) else str(value)


def pairs(values: Mapping[str, object]) -> str:
    """Format named values as plans print them, `ep=64 recompute=moe_act`; quote texts that are not identifiers."""
    words = ((n, f'"{v}"' if isinstance(v, str) and not v.isidentifier() else show(v)) for n, v in values.items())
    return " ".join(f"{name}={word}" for name, word in words)


def json_value(value: Any) -> Any:
    """Convert a value to JSON: a set to a list in `MEMBERS` order, then alphabetical; a whole float to an integer."""
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
"""Names that `isolate` may vary and that set several axes at once, with the axis values for each word."""
